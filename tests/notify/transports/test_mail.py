from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from email import message_from_bytes
from email.policy import SMTP, default
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import MailUnavailable
from stream.notify.contacts.contact import Contact
from stream.notify.notices.notice import Letter
from stream.notify.settings import NotifySettings
from stream.notify.transports.mail import Mail, message_of
from stream.notify.transports.transport import AddressRefused, TemporaryRefusal
from tests.notify.letter_builder import package_of
from tests.notify.transports.smtp_server import SmtpServer

LETTER = Letter(subject="Our decision", text="Dear Ünal\n", html="<p>Dear Ünal</p>\n")
PAT = Contact(channel="email", address="pat@people.example", consent=True, name="Pat Doe")


def settings(**changes: Any) -> NotifySettings:
    usual: dict[str, Any] = {
        "notify_lender_name": "Example Savings Bank",
        "notify_smtp_host": "127.0.0.1",
        "notify_smtp_security": "none",
        "notify_smtp_from": "letters@lender.example",
        "notify_smtp_timeout_s": 3.0,
    }
    return NotifySettings(**(usual | changes))


def test_mail_arrives_as_text_and_html_and_refusals_are_told_apart(tmp_path: Path) -> None:
    """Given a real mail server that refuses every second letter for the time being and one recipient for good, when letters go out over one connection, then each is taken, not now, or bounced; restarted meanwhile, it is found again."""
    with SmtpServer(tmp_path, refuse_every=2) as post:
        mail = Mail(settings(notify_smtp_port=post.port))
        package = package_of(LETTER, contact=PAT)
        said = mail.send(package)
        assert said == f"<{package.notice_id[:40]}@lender.example> 250 2.0.0"
        with pytest.raises(TemporaryRefusal, match=r"^451 4\.7\.1$") as later:
            mail.send(package)
        assert not later.value.uncertain
        with pytest.raises(AddressRefused, match=r"^550 5\.1\.1$"):
            mail.send(package_of(LETTER, contact=Contact(channel="email", address="pat@refused.example")))
        post.down()
        with pytest.raises(MailUnavailable, match="cannot be used"):
            mail.send(package)
        post.up()
        assert mail.send(package) == said
        mail.close()
        first, second = post.taken()
        assert first["message_id"] == second["message_id"] == said.split()[0]
        assert (first["to"], first["text"], first["html"].strip()) == (
            ["pat@people.example"],
            LETTER.text,
            LETTER.html.strip(),
        )
        assert first["headers"]["From"] == "Example Savings Bank <letters@lender.example>"
        assert first["headers"]["To"] == "Pat Doe <pat@people.example>"
        assert first["headers"]["Auto-Submitted"] == "auto-generated"


class Script:
    """An SMTP server that says what it is told to, step by step: for what a real one says rarely."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rwb") as file:
            for answer in self._answers:
                if answer == "hang up":
                    break
                file.write(answer.encode() + b"\r\n")
                file.flush()
                if answer.startswith("354"):
                    while file.readline().rstrip() not in (b".", b""):
                        pass
                else:
                    file.readline()
        self._socket.close()


@pytest.mark.parametrize(
    ("answers", "error", "message"),
    [
        (("421 closing",), MailUnavailable, "SMTPConnectError 421"),
        (("220 hi", "250 ok", "530 5.7.0 log in"), MailUnavailable, "refuses the sender"),
        (("220 hi", "250 ok", "452 4.3.1 full"), TemporaryRefusal, r"452 4\.3\.1"),
        (("220 hi", "250 ok", "250 ok", "421 4.7.0 slow down"), MailUnavailable, "takes nothing now"),
        (("220 hi", "250 ok", "250 ok", "250 ok", "554 5.7.1 spam"), AddressRefused, r"554 5\.7\.1"),
        (
            ("220 hi", "250 ok", "250 ok", "250 ok", "354 go on", "552 5.3.4 pat@people.example"),
            AddressRefused,
            r"^552 5\.3\.4$",
        ),
        (
            ("220 hi", "250 ok", "250 ok", "250 ok", "354 go on", "hang up"),
            TemporaryRefusal,
            "lost while it took the letter",
        ),
    ],
)
def test_each_step_of_smtp_has_its_own_meaning(answers: tuple[str, ...], error: type[Exception], message: str) -> None:
    """Given a mail server's refusal, when it comes at one step or another, then it is about us, this letter, or this recipient; and no address is repeated."""
    server = Script(*answers)
    mail = Mail(settings(notify_smtp_port=server.port, notify_smtp_timeout_s=1.0))
    with pytest.raises(error, match=message) as raised:
        mail.send(package_of(LETTER, contact=PAT))
    assert "pat@" not in str(raised.value)
    if isinstance(raised.value, TemporaryRefusal):
        assert raised.value.uncertain == (answers[-1] == "hang up")
    mail.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "pat",
        "pat@",
        "a@b",
        "pat@x.example\r\nBcc: all@x.example",
        "pat@x.example, q@y.example",
        "<pat@x.example>",
        "pät@x",
    ],
)
def test_what_is_no_address_bounces(address: str) -> None:
    """Given an address that no message can go to, when the message is written, then it bounces, and the letter is printed."""
    contact = Contact(channel="email", address=address, consent=True)
    with pytest.raises(AddressRefused):
        message_of(package_of(LETTER, contact=contact), settings())


hostile = st.text(st.sampled_from('aZ \r\n\t\x00\x7f:;,<>@"\\é漢=?_\u2028\u0085'), max_size=40)


@given(name=hostile, subject=hostile, lender=hostile)
def test_no_name_can_add_a_header(name: str, subject: str, lender: str) -> None:
    """Given names and a subject of any characters, when the message is written, then its headers are ours and no more, and there is one recipient."""
    letter = Letter(subject=subject, text="x\n", html="<p>x</p>\n")
    contact = Contact(channel="email", address="pat@people.example", name=name)
    message = message_of(package_of(letter, contact=contact), settings(notify_lender_name=lender))
    back = message_from_bytes(message.as_bytes(policy=SMTP), policy=default)
    assert set(back.keys()) == {
        "To", "From", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Auto-Response-Suppress", "Content-Language",
        "MIME-Version", "Content-Type",
    }  # fmt: skip
    assert [one.addr_spec for one in back["To"].addresses] == ["pat@people.example"]
    assert [one.addr_spec for one in back["From"].addresses] == ["letters@lender.example"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of localhost that signs itself, and its key; without openssl a skip, in CI a failure."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("openssl is required here (CI), to make a certificate with")
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([*command.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def test_mail_goes_over_tls_with_a_login(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Given a mail server that wants STARTTLS and a login, when a letter goes out, then over TLS; with a wrong password, an unknown authority or no TLS at all, nothing goes out, the error says which, and no password shows."""
    with SmtpServer(tmp_path, certificate=certificate) as post:
        usual: dict[str, Any] = {
            "notify_smtp_host": "localhost", "notify_smtp_port": post.port, "notify_smtp_security": "starttls",
            "notify_smtp_ca_file": str(certificate[0]), "notify_smtp_username": "u", "notify_smtp_password": "right",
        }  # fmt: skip
        mail = Mail(settings(**usual))
        assert mail.send(package_of(LETTER, contact=PAT)).endswith(" 250 2.0.0")
        mail.close()
        wrong: dict[str, dict[str, Any]] = {
            "while logging in": {"notify_smtp_password": "hunter2"},
            "CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError": {"notify_smtp_ca_file": ""},
            "530": {"notify_smtp_security": "none", "notify_smtp_username": "", "notify_smtp_password": ""},
        }
        for message, changes in wrong.items():
            refused = Mail(settings(**(usual | changes)))
            with pytest.raises(MailUnavailable, match=message) as raised:
                refused.send(package_of(LETTER, contact=PAT))
            refused.close()
            assert "hunter2" not in str(raised.value)
        assert [one["tls"] for one in post.taken()] == [True]
