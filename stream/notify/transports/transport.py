"""What a transport sends, and how it reports the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stream.notify.contacts.contact import Contact
from stream.notify.notices.notice import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One letter and its recipient. `needs_address`: printed, and a person has to find the address."""

    notice_id: str
    decision_id: str
    subject_ref: str | None
    locale: str
    letter: Letter
    contact: Contact | None
    needs_address: bool = False


class Transport(Protocol):
    """Sends letters by one channel."""

    def send(self, package: Package) -> str:
        """Send a letter; return the receiver's reply, without personal data.

        Raises: TemporaryRefusal, AddressRefused, LetterRefused; DependencyError while the receiver takes no letters.
        """

    def close(self) -> None:
        """Close connections, where there are any."""
        return  # mypy takes an empty body for an abstract method


class TemporaryRefusal(Exception):
    """This letter is refused for now. `uncertain`: the receiver may have taken it. The text holds nothing personal."""

    def __init__(self, why: str, *, uncertain: bool = False) -> None:
        super().__init__(why)
        self.uncertain = uncertain


class AddressRefused(Exception):
    """The recipient's address is refused permanently; the letter is printed instead."""
