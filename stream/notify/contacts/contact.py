"""Who an applicant is to the post: name, address, language, and whether electronic delivery was agreed to.

A contact never goes into a log, a metric, an error or a notice. `repr` shows nothing of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from stream.notify.settings import CHANNELS, Channel

FIELD_CHARACTERS_MAX: Final = 1_000
TRUE: Final = frozenset({"1", "true", "yes", "y"})
FALSE: Final = frozenset({"", "0", "false", "no", "n"})
# As a CSV's heading, a column of an SQLite table, or a field of a JSON answer.
REQUIRED: Final = ("channel",)
OPTIONAL: Final = ("address", "locale", "consent", "bounced", "name", "postal_address")
COLUMNS: Final = (*REQUIRED, *OPTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How one applicant is reached. `consent`: to electronic delivery (US E-SIGN). `bounced`: the address is dead."""

    channel: Channel = field(repr=False)
    address: str = field(default="", repr=False)
    locale: str = field(default="", repr=False)
    consent: bool = field(default=False, repr=False)
    bounced: bool = field(default=False, repr=False)
    name: str = field(default="", repr=False)
    postal_address: tuple[str, ...] = field(default=(), repr=False)


class Contacts(Protocol):
    """Whoever knows applicants by their pseudonym."""

    def find(self, subject_ref: str) -> Contact | None:
        """Look one up; None where nobody knows it.

        Raises: ContactRefused for an unusable answer about this one, ContactsUnavailable, DiskUnavailable.
        """

    def check(self) -> str:
        """Say what was found, for a person; raises as `find`, and ConfigurationError."""

    def close(self) -> None:
        """Let go of connections."""


class NoContacts:
    """Knows nobody: every letter is printed for manual handling."""

    def find(self, subject_ref: str) -> Contact | None:  # noqa: ARG002 - the protocol's
        """Know nothing."""
        return None

    def check(self) -> str:
        """Say so."""
        return "no contacts are set up: every letter is printed for manual handling"

    def close(self) -> None:
        """Nothing is held."""


def read_contact(fields: Mapping[str, object]) -> Contact:
    """Make a contact of named fields, texts or truth values.

    Raises: ValueError that names the field and never repeats what it holds.
    """
    texts = {name: _text(name, fields.get(name)) for name in COLUMNS}
    channel = texts["channel"].lower()
    if channel not in CHANNELS:
        message = f"channel must be one of {', '.join(CHANNELS)}"
        raise ValueError(message)
    lines = texts["postal_address"].replace("|", "\n").splitlines()
    for name in ("address", "locale", "name"):
        if not texts[name].isprintable():
            message = f"{name} must be one line of printable characters"
            raise ValueError(message)
    return Contact(
        channel=cast("Channel", channel),
        address=texts["address"],
        locale=texts["locale"],
        consent=_truth("consent", texts["consent"]),
        bounced=_truth("bounced", texts["bounced"]),
        name=" ".join(texts["name"].split()),
        postal_address=tuple(" ".join(line.split()) for line in lines if line.strip()),
    )


def address_hmac(key: str, contact: Contact | None) -> str | None:
    """Hash an address under the lender's key, so that only who has the key can ask whether it was this one."""
    if not key or contact is None or not contact.address:
        return None
    return hmac.new(key.encode(), contact.address.strip().lower().encode(), hashlib.sha256).hexdigest()


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int) and name in ("consent", "bounced"):
        return str(value).lower()
    if not isinstance(value, str):
        message = f"{name} must be a text"
        raise ValueError(message)  # noqa: TRY004 - one kind of error for all that is wrong in a contact
    if len(value) > FIELD_CHARACTERS_MAX:
        message = f"{name} is longer than {FIELD_CHARACTERS_MAX} characters"
        raise ValueError(message)
    return value.strip()


def _truth(name: str, text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    message = f"{name} must be yes or no"
    raise ValueError(message)
