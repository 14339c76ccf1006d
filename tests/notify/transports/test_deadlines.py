from __future__ import annotations

import io
import logging
import sys
import threading
import time
from typing import Any

import pytest

from stream.errors import ContactsUnavailable, MailUnavailable
from stream.notify.contacts.contact import Contact
from stream.notify.contacts.contact_lookup import HttpContacts
from stream.notify.deadlines import Deadlines, Watchdog
from stream.notify.notices.notice import Letter
from stream.notify.settings import NotifySettings
from stream.notify.transports.mail import EXCHANGE_ANSWERS, Mail
from stream.notify.transports.transport import TemporaryRefusal
from stream.notify.transports.webhook import Webhook
from stream.runtime.logs import set_up_logging
from tests.notify.letter_builder import package_of
from tests.notify.transports.dripping import dripping
from tests.notify.transports.http_server import http_server

LETTER = Letter(subject="Our decision", text="Dear Pat\n", html="<p>Dear Pat</p>\n")
PAT = Contact(channel="email", address="pat@people.example", consent=True, name="Pat Doe")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LONG_HEAD = HEAD + b"Content-Length: 60000\r\n\r\n{"
pytestmark = pytest.mark.timeout(20)  # without its deadline an exchange lasts a minute, or for ever
TIMEOUT_S = 0.6


def settings(port: int, **changes: Any) -> NotifySettings:
    usual: dict[str, Any] = {
        "notify_smtp_host": "127.0.0.1", "notify_smtp_port": port, "notify_smtp_security": "none",
        "notify_smtp_from": "letters@lender.example", "notify_smtp_timeout_s": TIMEOUT_S / EXCHANGE_ANSWERS,
        "notify_webhook_url": f"http://127.0.0.1:{port}/hook", "notify_webhook_secret": "s3cret",
        "notify_webhook_timeout_s": TIMEOUT_S,
    }  # fmt: skip
    return NotifySettings(**(usual | changes))


def look_up(
    port: int, deadlines: Deadlines | None = None, *, timeout_s: float = TIMEOUT_S, tries: int = 1
) -> HttpContacts:
    settings = NotifySettings(
        notify_contacts=f"http://127.0.0.1:{port}/p/{{subject_ref}}?key=k3y",
        notify_contacts_timeout_s=timeout_s,
        notify_contacts_tries=tries,
    )
    return HttpContacts(settings, deadlines)


@pytest.mark.parametrize(("answer", "drop"), [(LONG_HEAD, b" "), (HEAD, b"X-More: y\r\n"), (HEAD, b"x")])
def test_a_look_up_that_drips_is_an_outage(answer: bytes, drop: bytes) -> None:
    """Given a look-up that sends its answer byte by byte for ever, in its body or in its head, when asked, then after the timeout it counts as away."""
    with dripping(answer, drop=drop) as port:
        contacts = look_up(port)
        with pytest.raises(ContactsUnavailable, match="ReadTimeout"):
            contacts.find("s-1")
        contacts.close()


def test_a_receiver_that_drips_holds_one_letter_up() -> None:
    """Given a webhook's receiver that sends a head without end, when a letter is posted, then it waits after the timeout, for it may have been taken."""
    with dripping(HEAD, drop=b"X-More: y\r\n") as port:
        hook = Webhook(settings(port))
        with pytest.raises(TemporaryRefusal, match="ReadTimeout") as raised:
            hook.send(package_of(LETTER))
        assert raised.value.uncertain
        hook.close()


@pytest.mark.parametrize(
    ("answers", "drop", "error"),
    [
        ((b"220-wait\r\n",), b"220-wait\r\n", MailUnavailable),
        ((b"220 hi\r\n",), b"250-wait\r\n", MailUnavailable),
        ((b"220 hi\r\n", b"250 hi\r\n"), b"250-wait\r\n", MailUnavailable),
        ((b"220 hi\r\n", b"250 hi\r\n", b"250 ok\r\n"), b"250-wait\r\n", MailUnavailable),
        ((b"220 hi\r\n", b"250 hi\r\n", b"250 ok\r\n", b"250 ok\r\n"), b"354-wait\r\n", TemporaryRefusal),
    ],
)
def test_a_mail_server_that_drips_is_cut(answers: tuple[bytes, ...], drop: bytes, error: type[Exception]) -> None:
    """Given a mail server whose answer to one step or another has no end, when a letter goes out, then after the bound of a whole letter the connection is cut, and the error says so."""
    mail_settings = settings(0, notify_smtp_timeout_s=TIMEOUT_S / EXCHANGE_ANSWERS)
    assert mail_settings.notify_smtp_timeout_s > 0.1  # longer than the pause between two lines
    with dripping(*answers, drop=drop) as port:
        mail = Mail(settings(port))
        with pytest.raises(error, match=r"too long|lost while it took"):
            mail.send(package_of(LETTER, contact=PAT))
        mail.close()


def test_a_stop_ends_what_goes_on_within_its_bound() -> None:
    """Given a look-up, a receiver and a mail server that drip and long timeouts, when a stop leaves them half a second, then each is over by then, and none begins anew."""
    deadlines = Deadlines()
    with dripping(LONG_HEAD, drop=b" ") as port, dripping(b"220 hi\r\n", drop=b"250-wait\r\n") as post:
        contacts = look_up(port, deadlines, timeout_s=60, tries=5)
        mail = Mail(settings(post, notify_smtp_timeout_s=60.0), deadlines)
        ways: list[tuple[type[Exception], Any]] = [
            (MailUnavailable, lambda: mail.send(package_of(LETTER, contact=PAT))),
            (ContactsUnavailable, lambda: contacts.find("s-1")),
        ]
        timer = threading.Timer(0.3, lambda: deadlines.stop_in(0.5))
        timer.start()
        for error, way in ways:
            with pytest.raises(error):
                way()
        timer.join()
        assert deadlines.is_over
        for error, way in ways:
            with pytest.raises(error):
                way()
        contacts.close()
        mail.close()


def test_a_watch_that_is_over_cuts_nothing() -> None:
    """Given an exchange that ends in time, when its deadline passes, then nothing is cut."""
    cuts: list[int] = []
    with Watchdog(Deadlines().within(0.1), lambda: cuts.append(1)):
        pass
    time.sleep(0.2)
    assert not cuts
    with Watchdog(Deadlines().within(0.05), lambda: cuts.append(1)):
        time.sleep(0.4)
    assert cuts


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_no_line_of_the_log_holds_a_url(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Given a log at INFO or DEBUG, when a contact is looked up and a letter posted, then no line holds a pseudonym, a key of a URL, or a path."""
    root, former = logging.getLogger(), logging.getLogger().handlers[:]
    before = root.level
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    names = ("httpx2", "httpcore2")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.NOTSET)
    try:
        set_up_logging(level)
        with http_server() as server:
            contacts, hook = look_up(server.port), Webhook(settings(server.port))
            assert contacts.find("s-secret") is None
            assert hook.send(package_of(LETTER)) == "HTTP 200"
            contacts.close()
            hook.close()
            assert len(server.asked) == 2
        logging.getLogger("stream.test").info("a line")
    finally:
        root.handlers[:] = former
        root.setLevel(before)
        for name, was in levels.items():
            logging.getLogger(name).setLevel(was)
    assert "a line" in said.getvalue()
    assert not [text for text in ("s-secret", "k3y", "/p/", "/hook") if text in said.getvalue()]
