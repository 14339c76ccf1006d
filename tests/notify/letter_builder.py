"""Letters of the shipped templates, for tests."""

from __future__ import annotations

from datetime import UTC
from functools import cache
from typing import Final

from stream.events import Recommendation
from stream.notify.letters.templates import Letter, LetterTemplates, read_templates
from stream.notify.letters.view import Creditor, Recipient, view_of
from stream.notify.notices.notice import KIND, notice_id
from stream.notify.transports.transport import Package
from tests.notify.answers import NOW_MS

CREDITOR: Final = Creditor(
    name="Example Savings Bank",
    address=("100 Market Street", "Springfield IL 62701"),
    contact="call 1-800-555-0100",
    notice="The federal Equal Credit Opportunity Act prohibits creditors from discriminating against credit applicants.",
    zone=UTC,
)
PAT: Final = Recipient(name="Pat Doe", address=("1 Main Street", "Springfield IL 62701"))


@cache
def shipped() -> LetterTemplates:
    """The shipped English templates."""
    return read_templates("", "en").find(KIND, "en")


def letter_of(one: Recommendation, recipient: Recipient = PAT) -> Letter:
    """The letter of a recommendation."""
    return shipped().letter(view_of(one, creditor=CREDITOR, recipient=recipient, words=shipped().words, now_ms=NOW_MS))


def package_of(letter: Letter, *, decision_id: str = "d-1", needs_address: bool = False, **more: object) -> Package:
    """A letter wrapped up."""
    fields = {
        "notice_id": notice_id(decision_id, KIND), "decision_id": decision_id, "subject_ref": "s-1", "kind": KIND,
        "locale": "en", "letter": letter, "contact": None, "needs_address": needs_address,
    } | more  # fmt: skip
    return Package(**fields)  # type: ignore[arg-type]
