from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stream.errors import LetterRefused, WebhookUnavailable
from stream.notify.contacts.contact import Contact
from stream.notify.notices.notice import Letter
from stream.notify.settings import NotifySettings
from stream.notify.transports.transport import TemporaryRefusal
from stream.notify.transports.webhook import Webhook, signature
from tests.notify.letter_builder import package_of
from tests.notify.transports.http_server import HttpServer, http_server

LETTER = Letter(subject="Our decision", text="Dear Ünal\n", html="<p>Dear Ünal</p>\n")
PAT = Contact(channel="email", address="pat@people.example", consent=True, name="Pat Doe")


def settings(**changes: Any) -> NotifySettings:
    return NotifySettings(**({"notify_webhook_secret": "s3cret"} | changes))


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A receiver that says yes."""
    with http_server() as found:
        yield found


def test_a_webhook_is_signed_and_has_an_idempotency_key(server: HttpServer) -> None:
    """Given a receiver, when a letter is posted, then body, timestamp and signature verify, and the key is the notice's."""
    hook = Webhook(settings(notify_webhook_url=server.hook), clock=lambda: 1_795_774_500.9)
    package = package_of(LETTER, contact=PAT)
    assert hook.send(package) == "HTTP 200"
    hook.close()
    [asked] = server.asked
    stamp = asked.headers["Coach-Timestamp"]
    expected = hmac.new(b"s3cret", f"{stamp}.".encode() + asked.body, hashlib.sha256).hexdigest()
    assert stamp == "1795774500"
    assert asked.headers["Coach-Signature"] == f"v1={expected}" == signature("s3cret", stamp, asked.body)
    assert asked.headers["Idempotency-Key"] == package.notice_id
    posted = json.loads(asked.body)
    assert (posted["text"], posted["subject_ref"], posted["to"]["address"]) == (
        LETTER.text,
        "s-1",
        "pat@people.example",
    )


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (201, None), (400, LetterRefused), (422, LetterRefused), (413, LetterRefused), (500, TemporaryRefusal),
        (301, WebhookUnavailable), (401, WebhookUnavailable), (404, WebhookUnavailable), (429, WebhookUnavailable),
        (503, WebhookUnavailable),
    ],
)  # fmt: skip
def test_each_status_of_a_webhook_has_its_meaning(
    server: HttpServer, status: int, error: type[Exception] | None
) -> None:
    """Given a receiver's status, when a letter is posted, then it is taken, refused for good, not taken now, or nobody's letter is."""
    server.answers = [status]
    hook = Webhook(settings(notify_webhook_url=server.hook))
    if error is None:
        assert hook.send(package_of(LETTER)) == f"HTTP {status}"
    else:
        with pytest.raises(error, match=f"HTTP {status}"):
            hook.send(package_of(LETTER))
    hook.close()
    assert len(server.asked) == 1  # a redirect is not followed


def test_a_receiver_that_is_away_is_waited_for() -> None:
    """Given nobody at the webhook's URL, when a letter is posted, then the receiver is unavailable for all letters."""
    hook = Webhook(settings(notify_webhook_url="http://127.0.0.1:9/hook"))
    with pytest.raises(WebhookUnavailable, match="ConnectError"):
        hook.send(package_of(LETTER))
    hook.close()
