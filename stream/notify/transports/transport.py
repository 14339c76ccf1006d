"""What is handed to a transport, and how a transport says what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stream.notify.contacts.contact import Contact
from stream.notify.letters.templates import Letter
from stream.notify.notices.record import NoticeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One letter and where it goes. `needs_address`: printed, and somebody has to find out the address."""

    notice_id: str
    decision_id: str
    subject_ref: str | None
    kind: NoticeKind
    locale: str
    letter: Letter
    contact: Contact | None
    needs_address: bool = False


class Transport(Protocol):
    """One way for letters to go out."""

    def send(self, package: Package) -> str:
        """Hand a letter over; return the transport's answer, without personal data.

        Raises: TemporaryRefusal, AddressRefused, LetterRefused, DependencyError (who takes no letter at all now).
        """

    def close(self) -> None:
        """Let go of connections."""


class TemporaryRefusal(Exception):
    """Refused for the time being, this one letter. `uncertain`: it may have been taken all the same."""

    def __init__(self, why: str, *, uncertain: bool = False) -> None:
        """`why` holds nothing personal."""
        super().__init__(why)
        self.uncertain = uncertain


class AddressRefused(Exception):
    """The recipient's address is refused for good, or cannot be written to; the letter goes by post instead."""
