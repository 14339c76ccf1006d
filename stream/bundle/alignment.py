"""Names decide which value is which, so names that do not match are told side by side, with what they may have become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from stream.errors import ConfigurationError, shown
from stream.recourse.toml_files import read_toml

NAMES_SHOWN_MAX: Final = 5
_LOOSE: Final = re.compile(r"[\s_]+")


def check_names(features: Sequence[str], features_toml: str) -> None:
    """Hold the model's feature names against the tables of features.toml; where one lacks some, `read_features` says so.

    Raises: ConfigurationError where both hold names that the other does not.
    """
    tables = list(read_toml("features.toml", features_toml))
    ours = [name for name in features if name not in tables]
    theirs = [name for name in tables if name not in features]
    if ours and theirs:
        message = (
            f"the model's features are not those of features.toml, for {len(ours)} of the model's there is no table for: "
            f"{_some(ours)}; and {len(theirs)} of its tables are for no feature of the model: {_some(theirs)}"
            f"{hint_of_spelling(ours, theirs, 'table')}"
        )
        raise ConfigurationError(message)


def hint_of_spelling(features: Sequence[str], others: Sequence[str], what: str) -> str:
    """What to rename where names differ in white space and underscores alone: LightGBM writes one for the other."""
    by_letters = {_letters(name): name for name in others}
    for name in features:
        other = by_letters.get(_letters(name))
        if other is not None and other != name:
            return (
                f"; the {what} {shown(other)!r} differs from {shown(name)!r} only in white space or underscores (LightGBM "
                f"saves white space as _): call it {shown(name)!r}"
            )
    return ""


def _letters(name: str) -> str:
    return _LOOSE.sub("", name)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(repr(shown(name)) for name in names[:NAMES_SHOWN_MAX]) + more
