"""Letters of the shipped templates, for tests."""

from __future__ import annotations

from functools import cache
from typing import Final

from stream.events import Recommendation
from stream.notify.letters.templates import LetterTemplates, read_templates
from stream.notify.letters.view import Recipient, view_of
from stream.notify.notices.notice import KIND, Letter, notice_id
from stream.notify.settings import NotifySettings
from stream.notify.transports.transport import Package
from tests.notify.answers import NOW_MS

CREDITOR: Final = NotifySettings(
    notify_lender_name="Example Savings Bank",
    notify_lender_address="100 Market Street, Springfield IL 62701",
    notify_lender_contact="call 1-800-555-0100",
    notify_lender_notice="The federal Equal Credit Opportunity Act prohibits creditors from discriminating against credit applicants.",
)
PAT: Final = Recipient(name="Pat Doe", address=("1 Main Street", "Springfield IL 62701"))


@cache
def shipped() -> LetterTemplates:
    """The shipped English templates."""
    return read_templates("", "en").find("en")


def letter_of(one: Recommendation, recipient: Recipient = PAT) -> Letter:
    """The letter of a recommendation."""
    return shipped().letter(view_of(one, CREDITOR, recipient=recipient, words=shipped().words, now_ms=NOW_MS))


def package_of(letter: Letter, *, decision_id: str = "d-1", needs_address: bool = False, **more: object) -> Package:
    """A letter wrapped up."""
    fields = {
        "notice_id": notice_id(decision_id, KIND), "decision_id": decision_id, "subject_ref": "s-1",
        "locale": "en", "letter": letter, "contact": None, "needs_address": needs_address,
    } | more  # fmt: skip
    return Package(**fields)  # type: ignore[arg-type]
