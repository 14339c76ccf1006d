"""Letters by SMTP: text and HTML in one message, with the same Message-ID at each attempt."""

from __future__ import annotations

import contextlib
import re
import smtplib
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.errors import HeaderParseError, MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, Final, cast

from stream.errors import MailUnavailable
from stream.notify.deadlines import Deadlines, Watchdog, end_connection
from stream.notify.settings import NotifySettings, email_address
from stream.notify.transports.transport import AddressRefused, Package, TemporaryRefusal

SERVICE_NOT_AVAILABLE: Final = 421
MESSAGE_ID_CHARACTERS: Final = 40
EXCHANGE_ANSWERS: Final = 3  # a whole letter, with its connection, may take so many times the timeout of one answer
QUIT_S: Final = 2.0  # for QUIT, which nothing depends on
ENHANCED: Final = re.compile(rb"\A\s*([245]\.\d{1,3}\.\d{1,3})\b")
WRONG_ADDRESS: Final = (ValueError, IndexError, HeaderParseError, MessageError, UnicodeError)


class _Begun:
    """Passes a client of smtplib to `begin` before it connects, so that an endless greeting can be cut."""

    def __init__(self, *given: Any, begin: Callable[[smtplib.SMTP], None], **settings: Any) -> None:  # noqa: ANN401 - as smtplib takes them
        begin(cast("smtplib.SMTP", self))
        super().__init__(*given, **settings)


class _Smtp(_Begun, smtplib.SMTP):
    pass


class _SmtpTls(_Begun, smtplib.SMTP_SSL):
    pass


class Mail:
    """One connection to a mail server, opened when needed and kept."""

    def __init__(self, settings: NotifySettings, deadlines: Deadlines | None = None) -> None:
        self._settings = settings
        self._deadlines = deadlines or Deadlines()
        self._left_s = self._deadlines.within(0)
        self._server: smtplib.SMTP | None = None
        self._connecting: smtplib.SMTP | None = None  # the connection that the watchdog cuts
        self._was_cut = False

    def send(self, package: Package) -> str:
        """See `Transport`."""
        message = message_of(package, self._settings)
        with self._watched():
            may_be_stale = self._server is not None  # servers close connections that are idle
            while True:
                try:
                    return self._deliver(self._connected(), package, message)
                except smtplib.SMTPServerDisconnected as gone:
                    self.close()
                    if not may_be_stale:
                        raise self._unavailable(gone) from gone
                    may_be_stale = False

    def close(self) -> None:
        """See `Transport`."""
        server, self._server = self._server, None
        if server is not None:
            if not self._was_cut:
                with (
                    Watchdog(self._deadlines.within(QUIT_S), self._cut),
                    contextlib.suppress(OSError, smtplib.SMTPException),
                ):
                    server.quit()
            server.close()
        self._connecting = None

    def check(self) -> str:
        """Connect and log in. Raises: MailUnavailable."""
        with self._watched():
            self._connected()
            self.close()
        return f"the mail server {self._settings.notify_smtp_host} answers"

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Cut the connection at the deadline: a server that drips bytes never meets a timeout."""
        self._left_s = self._deadlines.within(EXCHANGE_ANSWERS * self._settings.notify_smtp_timeout_s)
        with Watchdog(self._left_s, self._cut):
            yield

    def _cut(self) -> None:
        self._was_cut = True
        if self._connecting is not None:
            end_connection(self._connecting.sock)

    def _connected(self) -> smtplib.SMTP:
        if self._left_s() <= 0:
            self.close()
            raise self._unavailable(TimeoutError("the whole exchange took too long"), "connecting")
        if self._server is None:
            server, doing = None, "connecting"
            try:
                server = self._connect()
                if self._settings.notify_smtp_username:
                    doing = "logging in"
                    server.login(self._settings.notify_smtp_username, self._settings.notify_smtp_password)
            except (OSError, smtplib.SMTPException) as error:
                if server is not None:
                    server.close()
                self._connecting = None
                raise self._unavailable(error, doing) from error
            self._server = server
        return self._server

    def _connect(self) -> smtplib.SMTP:
        settings = self._settings
        host, port = settings.notify_smtp_host, settings.notify_smtp_port
        timeout_s = min(settings.notify_smtp_timeout_s, max(self._left_s(), 0.01))
        self._was_cut = False
        context = ssl.create_default_context(cafile=settings.notify_smtp_ca_file or None)
        if settings.notify_smtp_security == "tls":
            server: smtplib.SMTP = _SmtpTls(host, port, timeout=timeout_s, context=context, begin=self._begin)
        else:
            server = _Smtp(host, port, timeout=timeout_s, begin=self._begin)
        if settings.notify_smtp_security == "starttls":
            server.starttls(context=context)
        server.ehlo_or_helo_if_needed()
        return server

    def _begin(self, server: smtplib.SMTP) -> None:
        self._connecting = server

    def _deliver(self, server: smtplib.SMTP, package: Package, mail: EmailMessage) -> str:
        """Send in single SMTP steps: what a refusal means depends on the step."""
        address = "" if package.contact is None else package.contact.address
        try:
            self._expect(*server.mail(self._settings.notify_smtp_from), is_sender=True)
            self._expect(*server.rcpt(address), is_sender=False)
        except UnicodeError as wrong:
            self._reset(server)
            message = "the address cannot be written in this server's SMTP"
            raise AddressRefused(message) from wrong
        except smtplib.SMTPServerDisconnected:
            raise
        except (OSError, smtplib.SMTPException) as error:
            self.close()
            raise self._unavailable(error) from error
        try:
            code, said = server.data(mail.as_bytes(policy=SMTP))
        except smtplib.SMTPDataError as refused:
            self._expect(refused.smtp_code, _bytes(refused.smtp_error), is_sender=False)
            raise
        except (OSError, smtplib.SMTPException) as error:  # the server may have taken it
            self.close()
            message = f"the mail server was lost while it took the letter: {type(error).__name__}"
            raise TemporaryRefusal(message, uncertain=True) from error
        self._expect(code, said, is_sender=False)
        return f"{mail['Message-ID']} {_code(code, said)}"

    def _expect(self, code: int, said: bytes, *, is_sender: bool) -> None:
        """Raise for a refusal. The reply's text may hold the address, and is not repeated. `is_sender`: it concerns the sender."""
        if 200 <= code < 300:  # noqa: PLR2004 - SMTP's own numbers
            return
        if self._server is not None:
            self._reset(self._server)
        reply = _code(code, said)
        if code == SERVICE_NOT_AVAILABLE:
            self.close()
            message = f"the mail server {self._settings.notify_smtp_host} takes nothing now ({reply})"
            raise MailUnavailable(message)
        if 400 <= code < 500:  # noqa: PLR2004 - as above
            raise TemporaryRefusal(reply)
        if is_sender:
            message = f"the mail server {self._settings.notify_smtp_host} refuses the sender of COACH_NOTIFY_SMTP_FROM ({reply})"
            raise MailUnavailable(message)
        raise AddressRefused(reply)

    def _reset(self, server: smtplib.SMTP) -> None:
        try:
            server.rset()
        except (OSError, smtplib.SMTPException):
            self.close()

    def _unavailable(self, error: BaseException, doing: str = "sending") -> MailUnavailable:
        settings = self._settings
        why = type(error).__name__
        if self._was_cut or self._left_s() <= 0:
            why = "it took too long for one whole letter"
        elif isinstance(error, smtplib.SMTPResponseException):
            why = f"{why} {_code(error.smtp_code, _bytes(error.smtp_error))}"
        elif isinstance(error, OSError) and error.strerror:
            why = error.strerror
        where = f"{settings.notify_smtp_host}:{settings.notify_smtp_port}"
        return MailUnavailable(
            f"the mail server at {where} cannot be used: {why} while {doing} (COACH_NOTIFY_SMTP_SECURITY={settings.notify_smtp_security})"
        )


def message_of(package: Package, settings: NotifySettings) -> EmailMessage:
    """Write the message. Raises: AddressRefused where the address is not an e-mail address."""
    contact = package.contact
    mail = EmailMessage(policy=SMTP)
    sender = settings.notify_smtp_from
    try:
        email_address("" if contact is None else contact.address)
        name = "" if contact is None else contact.name
        mail["To"] = Address(display_name=_header_text(name), addr_spec="" if contact is None else contact.address)
    except WRONG_ADDRESS as wrong:
        message = "the address is no e-mail address"
        raise AddressRefused(message) from wrong
    mail["From"] = Address(display_name=_header_text(settings.notify_lender_name), addr_spec=sender)
    if settings.notify_smtp_reply_to:
        mail["Reply-To"] = Address(addr_spec=settings.notify_smtp_reply_to)
    mail["Subject"] = _header_text(package.letter.subject)
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{package.notice_id[:MESSAGE_ID_CHARACTERS]}@{sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office replies
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(package.letter.text)
    mail.add_alternative(package.letter.html, subtype="html")
    mail["Content-Language"] = package.locale
    return mail


def _header_text(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _bytes(said: bytes | str) -> bytes:
    return said if isinstance(said, bytes) else said.encode(errors="replace")


def _code(code: int, said: bytes) -> str:
    found = ENHANCED.match(said)
    return f"{code} {found.group(1).decode()}" if found else str(code)
