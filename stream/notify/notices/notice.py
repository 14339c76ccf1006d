"""Records of the `notices` topic: which letter, when, by which channel, in which words; never the address."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

from stream.canonical import sha256
from stream.events import Recommendation
from stream.notify.settings import Channel
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.times import rfc3339

NoticeKind: TypeAlias = Literal["adverse_action"]
NoticeStatus: TypeAlias = Literal["sending", "sent", "printed", "failed", "withheld_different_answer"]

KIND: Final[NoticeKind] = "adverse_action"


class Notice(TypedDict):
    """What happened to one letter. Text and HTML are as sent, but for the recipient's name and address."""

    notice_id: str
    decision_id: str
    subject_ref: str | None
    kind: NoticeKind
    recommendation_id: str
    recommendation_sha256: str  # of its canonical JSON: tells different answers apart
    status: NoticeStatus
    channel: Channel | None  # None: no letter went out
    channel_why: str
    locale: str | None
    template_version: str | None  # sha256 over the templates that it was rendered from
    subject: str
    text: str
    html: str
    rendered_sha256: str | None
    recorded_at: str
    sent_at: str | None
    notice_due_at: str | None
    attempts: int
    reply: str | None  # what the transport answered: Message-ID and code, HTTP status, or file name
    duplicate_possible: bool
    address_hmac: str | None  # keyed hash of the address; the address itself is never kept
    error: str | None  # class name
    software_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One letter as sent."""

    subject: str
    text: str
    html: str

    @property
    def sha256(self) -> str:
        """SHA-256 of all three, each followed by a zero byte; hex."""
        whole = b"".join(part.encode() + b"\0" for part in (self.subject, self.text, self.html))
        return hashlib.sha256(whole).hexdigest()


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
class KeptLetter:
    """A letter as its notice keeps it, the templates it came from, its channel, and why that one."""

    letter: Letter
    locale: str
    template_version: str
    channel: Channel
    channel_why: str
    address_hmac: str | None


def notice(
    recommendation: Recommendation,
    *,
    status: NoticeStatus,
    now_ms: int,
    kept: KeptLetter | None = None,
    attempts: int = 0,
    reply: str | None = None,
    duplicate_possible: bool = False,
    error: str | None = None,
) -> Notice:
    """Build the record. `sending` holds the letter's hash only; the record after it holds the text."""
    one, answer = notice_id(recommendation["decision_id"], KIND), answer_sha256(recommendation)
    held = None if kept is None or status == "sending" else kept.letter
    return {
        "notice_id": withheld_id(one, answer) if status == "withheld_different_answer" else one,
        "decision_id": recommendation["decision_id"],
        "subject_ref": recommendation["subject_ref"],
        "kind": KIND,
        "recommendation_id": recommendation["recommendation_id"],
        "recommendation_sha256": answer,
        "status": status,
        "channel": None if kept is None else kept.channel,
        "channel_why": "" if kept is None else kept.channel_why,
        "locale": None if kept is None else kept.locale,
        "template_version": None if kept is None else kept.template_version,
        "subject": "" if held is None else held.subject,
        "text": "" if held is None else held.text,
        "html": "" if held is None else held.html,
        "rendered_sha256": None if kept is None else kept.letter.sha256,
        "recorded_at": rfc3339(now_ms),
        "sent_at": rfc3339(now_ms) if status in ("sent", "printed") else None,
        "notice_due_at": recommendation["notice_due_at"],
        "attempts": attempts,
        "reply": reply,
        "duplicate_possible": duplicate_possible,
        "address_hmac": None if kept is None else kept.address_hmac,
        "error": error,
        "software_version": SOFTWARE_VERSION,
    }
