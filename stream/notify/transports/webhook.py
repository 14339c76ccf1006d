"""Letters to the lender's own receiver: a signed POST, with the same idempotency key at each attempt.

Headers: `Idempotency-Key` (the notice_id), `Coach-Timestamp` (Unix seconds), `Coach-Signature`: `v1=` and the hex of
HMAC-SHA256 under the shared secret over the timestamp, a full stop, and the body. docs/notify.md shows how to verify it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httpx2
import orjson

from stream.errors import LetterRefused, WebhookUnavailable
from stream.notify.deadlines import Deadlines
from stream.notify.http_exchange import HttpClient
from stream.notify.notices.notice import KIND
from stream.notify.settings import NotifySettings
from stream.notify.transports.transport import Package, TemporaryRefusal

# Permanent refusals of this letter. All other failures concern the notifier or the receiver.
OF_THE_LETTER: Final = frozenset({400, 406, 409, 410, 411, 412, 413, 414, 415, 416, 417, 422, 431})
FOR_NOW: Final = frozenset({425, 500})  # may concern this letter only; others are tried meanwhile


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The value of Coach-Signature."""
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Posts to one URL over connections that stay open; redirects are not followed."""

    def __init__(
        self, settings: NotifySettings, deadlines: Deadlines | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._http = HttpClient(deadlines or Deadlines(), timeout_s=settings.notify_webhook_timeout_s)

    def send(self, package: Package) -> str:
        """See `Transport`."""
        body = orjson.dumps(content_of(package))
        timestamp = str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "coach-stream",
            "Idempotency-Key": package.notice_id,
            "Coach-Timestamp": timestamp,
            "Coach-Signature": signature(self._settings.notify_webhook_secret, timestamp, body),
        }
        try:
            with self._http.exchange(
                "POST", self._settings.notify_webhook_url, content=body, headers=headers
            ) as answer:  # whose body is not read
                status = answer.status_code
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise self._away(type(error).__name__) from error
        except httpx2.HTTPError as error:
            message = f"the receiver was lost while it took the letter: {type(error).__name__}"
            raise TemporaryRefusal(message, uncertain=True) from error
        return self._reply(status)

    def close(self) -> None:
        """See `Transport`."""
        self._http.close()

    def _reply(self, status: int) -> str:
        reply = f"HTTP {status}"
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own numbers
            return reply
        if status in OF_THE_LETTER:
            message = f"the webhook's receiver refuses this letter permanently ({reply})"
            raise LetterRefused(message)
        if status in FOR_NOW:
            raise TemporaryRefusal(reply)
        raise self._away(reply)

    def _away(self, why: str) -> WebhookUnavailable:
        where = urlsplit(self._settings.notify_webhook_url).hostname
        return WebhookUnavailable(f"the webhook's receiver at {where} takes no letters: {why}")


def content_of(package: Package) -> dict[str, object]:
    """The body of the request: the letter, the pseudonym, and the contact as the look-up gave it."""
    contact = package.contact
    return {
        "notice_id": package.notice_id,
        "decision_id": package.decision_id,
        "subject_ref": package.subject_ref,
        "kind": KIND,
        "locale": package.locale,
        "to": None if contact is None else {"name": contact.name, "address": contact.address},
        "subject": package.letter.subject,
        "text": package.letter.text,
        "html": package.letter.html,
    }
