"""An applicant's contact: name, address, language, and consent to electronic delivery.

A contact never goes into a log, a metric, an error or a notice, and its `repr` is empty.
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
# Columns of a CSV file or SQLite table, fields of a JSON response.
REQUIRED: Final = ("channel",)
OPTIONAL: Final = ("address", "locale", "consent", "bounced", "name", "postal_address")
COLUMNS: Final = (*REQUIRED, *OPTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How to reach one applicant. `consent`: to electronic delivery (US E-SIGN). `bounced`: the address is dead."""

    channel: Channel = field(repr=False)
    address: str = field(default="", repr=False)
    locale: str = field(default="", repr=False)
    consent: bool = field(default=False, repr=False)
    bounced: bool = field(default=False, repr=False)
    name: str = field(default="", repr=False)
    postal_address: tuple[str, ...] = field(default=(), repr=False)


class Contacts(Protocol):
    """Looks applicants up by their pseudonym."""

    def find(self, subject_ref: str) -> Contact | None:
        """Return the contact, or None for an unknown pseudonym.

        Raises: ContactRefused for an unusable contact, ContactsUnavailable, DiskUnavailable.
        """

    def check(self) -> str:
        """Describe the source in a line. Raises: as `find`; ConfigurationError."""

    def close(self) -> None:
        """Close connections, where there are any."""
        return  # mypy takes an empty body for an abstract method


class NoContacts(Contacts):
    """No source: every letter is printed for manual handling."""

    def find(self, subject_ref: str) -> Contact | None:  # noqa: ARG002 - the protocol's
        """See `Contacts`."""
        return None

    def check(self) -> str:
        """See `Contacts`."""
        return "no contacts are set up: every letter is printed for manual handling"


def read_contact(fields: Mapping[str, object]) -> Contact:
    """Make a contact of named fields, strings or booleans. Raises: ValueError that names the field, never its value."""
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
    """Hash an address with the lender's key: only the key's owner can test whether it was a given one."""
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
        raise ValueError(message)  # noqa: TRY004 - one error for all faults of a contact
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
