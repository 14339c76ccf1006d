"""Builds the records of the notices topic: which letter, when, by which channel, in which words; never the address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream.canonical import sha256
from stream.events import Recommendation
from stream.notify.letters.templates import Letter
from stream.notify.notices.record import Notice, NoticeKind, NoticeStatus
from stream.notify.settings import Channel
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.times import rfc3339

KIND: Final[NoticeKind] = "adverse_action"


def notice_id(decision_id: str, kind: NoticeKind) -> str:
    """The id of a decision's one notice of a kind; 64 hex digits."""
    return sha256({"decision_id": decision_id, "kind": kind})


def answer_sha256(recommendation: Recommendation) -> str:
    """Hash an answer, without `replay` and `run_id`, which are transport."""
    return sha256({name: value for name, value in recommendation.items() if name not in ("replay", "run_id")})


def withheld_id(one: str, answer: str) -> str:
    """The id of the report of a different answer."""
    return sha256({"notice_id": one, "recommendation_sha256": answer})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A letter as the notice keeps it, and the templates it came from."""

    letter: Letter
    locale: str
    template_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A letter's channel, and why it was chosen."""

    channel: Channel
    why: str
    address_hmac: str | None


def notice(  # noqa: PLR0913 - the fields of a record, by name
    recommendation: Recommendation,
    *,
    status: NoticeStatus,
    now_ms: int,
    rendered: Rendered | None = None,
    route: Route | None = None,
    attempts: int = 0,
    reply: str | None = None,
    duplicate_possible: bool = False,
    error: str | None = None,
) -> Notice:
    """Build the record. `sending` holds the letter's hash only; the record after it holds the text."""
    one, answer = notice_id(recommendation["decision_id"], KIND), answer_sha256(recommendation)
    held = None if rendered is None or status == "sending" else rendered.letter
    return {
        "notice_id": withheld_id(one, answer) if status == "withheld_different_answer" else one,
        "decision_id": recommendation["decision_id"],
        "subject_ref": recommendation["subject_ref"],
        "kind": KIND,
        "recommendation_id": recommendation["recommendation_id"],
        "recommendation_sha256": answer,
        "status": status,
        "channel": None if route is None else route.channel,
        "channel_why": "" if route is None else route.why,
        "locale": None if rendered is None else rendered.locale,
        "template_version": None if rendered is None else rendered.template_version,
        "subject": "" if held is None else held.subject,
        "text": "" if held is None else held.text,
        "html": "" if held is None else held.html,
        "rendered_sha256": None if rendered is None else rendered.letter.sha256,
        "recorded_at": rfc3339(now_ms),
        "sent_at": rfc3339(now_ms) if status in ("sent", "printed") else None,
        "notice_due_at": recommendation["notice_due_at"],
        "attempts": attempts,
        "reply": reply,
        "duplicate_possible": duplicate_possible,
        "address_hmac": None if route is None else route.address_hmac,
        "error": error,
        "software_version": SOFTWARE_VERSION,
    }
