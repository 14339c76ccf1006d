"""Features are matched by name: mismatches are reported side by side, with the likely misspelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from stream.errors import ConfigurationError, shown
from stream.recourse.rules.toml_files import read_toml

NAMES_SHOWN_MAX: Final = 5
NAMES_COMPARED_MAX: Final = 200  # of each side, in the quadratic search for the nearest
_LOOSE: Final = re.compile(r"[\s_]+")


def check_names(features: Sequence[str], features_toml: str) -> None:
    """Compare the model's feature names with the tables of features.toml.

    Raises: ConfigurationError that lists names missing on either side, and the remedy.
    """
    tables = list(read_toml("features.toml", features_toml))
    ours = [name for name in features if name not in tables]
    theirs = [name for name in tables if name not in features]
    if not ours and not theirs:
        return
    absent = f"{len(ours)} of the model's features have no table there: {some(ours)}"
    spare = f"{len(theirs)} of its tables are for no feature of the model: {some(theirs)}"
    mismatches = "; ".join(side for side, names in ((absent, ours), (spare, theirs)) if names)
    remedies = ("add a table for each feature of the model", ours), ("remove or rename those that are for none", theirs)
    remedy = " and ".join(what for what, names in remedies if names)
    hint = hint_of_spelling(ours, theirs, "table")
    message = f"features.toml does not fit the model: {mismatches}; {remedy}{hint}"
    raise ConfigurationError(message)


def hint_of_spelling(features: Sequence[str], others: Sequence[str], what: str) -> str:
    """What to rename: names that differ only in white space and underscores, or else the nearest one.

    LightGBM writes white space as underscores. Empty where no two names are close.
    """
    by_letters = {_letters(name): name for name in others}
    for name in features:
        other = by_letters.get(_letters(name))
        if other is not None and other != name:
            return (
                f"; the {what} {shown(other)!r} differs from {shown(name)!r} only in white space or underscores (LightGBM "
                f"saves white space as _): call it {shown(name)!r}"
            )
    compared = [name for name in others if name not in features][:NAMES_COMPARED_MAX]
    for name in features[:NAMES_COMPARED_MAX]:
        for other in difflib.get_close_matches(name, compared, 1):
            return f"; the {what} {shown(other)!r} is near to {shown(name)!r}: if it is meant, call it {shown(name)!r}"
    return ""


def some(names: Sequence[str]) -> str:
    """The first names, quoted, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(repr(shown(name)) for name in names[:NAMES_SHOWN_MAX]) + more


def _letters(name: str) -> str:
    return _LOOSE.sub("", name)
