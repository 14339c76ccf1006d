"""Addresses as they may be shown: without user, password and query, however malformed they are."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"
SECRET_PARAMETER: Final = re.compile(r"[?&#][^=&]*(?:sig|token|secret|passw|key|credential|auth)[^=&]*=", re.IGNORECASE)
_SCHEME: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.:-]*)?://|")
_AUTHORITY_END: Final = re.compile(r"[/?#]")


def without_secrets(address: str) -> str:
    """Mask all that stands before the last @, whole as it is, and all that follows ? or #; keep the rest.

    Nothing is parsed, so that nothing malformed gets through: a password may hold any of the characters that end one.
    """
    found = _SCHEME.match(address)
    scheme = found.group() if found else ""
    user, at, place = address[len(scheme) :].rpartition("@")
    shown = re.sub(r"([?#]).*", rf"\1{MASK}", place, count=1, flags=re.DOTALL)
    return f"{scheme}{MASK if user else ''}{at}{shown}"


def has_secrets(uri: str) -> bool:
    """Whether a URI names a user or password, or signs itself by its query."""
    _, separator, rest = uri.partition("://")
    return "@" in _AUTHORITY_END.split(rest if separator else "", maxsplit=1)[0] or bool(SECRET_PARAMETER.search(uri))
