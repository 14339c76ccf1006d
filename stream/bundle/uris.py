"""Addresses masked for messages: without user, password and query, even if malformed."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "********"
SECRET_PARAMETER: Final = re.compile(r"[?&#][^=&]*(?:sig|token|secret|passw|key|credential|auth)[^=&]*=", re.IGNORECASE)
_SCHEME: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.:-]*)?://|")
_AUTHORITY_END: Final = re.compile(r"[/?#]")


def without_secrets(address: str) -> str:
    """Mask everything before the last @ and everything after ? or #; keep the rest.

    Nothing is parsed, so nothing malformed leaks: a password may contain any delimiter.
    """
    found = _SCHEME.match(address)
    scheme = found.group() if found else ""
    user, at, rest = address[len(scheme) :].rpartition("@")
    shown = re.sub(r"([?#]).*", rf"\1{MASK}", rest, count=1, flags=re.DOTALL)
    return f"{scheme}{MASK if user else ''}{at}{shown}"


def has_secrets(uri: str) -> bool:
    """Whether a URI names a user or password, or signs itself by its query."""
    _, separator, rest = uri.partition("://")
    return "@" in _AUTHORITY_END.split(rest if separator else "", maxsplit=1)[0] or bool(SECRET_PARAMETER.search(uri))
