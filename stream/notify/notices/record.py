"""The record on the `notices` topic; the other records are in stream/events.py."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from stream.notify.settings import Channel

NoticeKind: TypeAlias = Literal["adverse_action"]
NoticeStatus: TypeAlias = Literal["sending", "sent", "printed", "failed", "withheld_different_answer"]


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
