"""The columns of flat rows: a decision's own, unused ones, and misspelt overrides.

Unused columns are skipped and reported. A misspelt `policy_overrides` is refused instead: without it the person would be
advised to change what the override says cannot change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any, Final

from stream.errors import MalformedRecord, shown
from stream.wire.decisions import json_object

OVERRIDES: Final = "policy_overrides"
OWN_COLUMNS: Final = (
    "decision_id", "event_time", "subject_ref", "outcome", "decline_basis", "margin", "probability", "threshold",
    "threshold_scale", "product", "jurisdiction", OVERRIDES,
)  # fmt: skip
_MEANT: Final = ("policyoverrides", "overrides")
_CLOSE: Final = 0.85  # share of common letters: `overide` is close, a lender's own `manual_override` is not
_CLOSE_CHARACTERS_MAX: Final = 64  # the comparison is quadratic, and a name may have a million characters


def unused(names: Iterable[str], foreign: Collection[str]) -> tuple[str, ...]:
    """The unused columns: neither in `foreign` (features, columns passed over) nor a decision's own."""
    return tuple(name for name in names if name not in foreign and name not in OWN_COLUMNS)


def misspelt(names: Iterable[str]) -> str | None:
    """Correct the first of `names` that looks like `policy_overrides`; None if none does."""
    for name in names:
        if _is_close(name):
            return (
                f"column {shown(name)} looks like {OVERRIDES}, and that is the name to use; a misspelt one would "
                "change the answer unnoticed, so rename it if it is something else"
            )
    return None


def overrides_of(cell: str) -> Mapping[str, Any] | None:
    """Read the JSON object in a cell; None for a blank cell. Raises: MalformedRecord, which does not repeat it."""
    if not cell.strip():
        return None
    try:
        return json_object(cell.encode())
    except MalformedRecord:
        message = f'column {OVERRIDES} is no JSON object such as {{"income": "immutable"}}, or has a key twice'
        raise MalformedRecord(message) from None  # the cause is about a whole decision


def _is_close(name: str) -> bool:
    if len(name) > _CLOSE_CHARACTERS_MAX:
        return False
    letters = "".join(c for c in name.casefold() if c.isalnum())
    return any(SequenceMatcher(None, letters, meant, autojunk=False).ratio() >= _CLOSE for meant in _MEANT)
