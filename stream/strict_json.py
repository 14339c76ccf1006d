"""JSON that no two readers can read differently: no key twice in an object, no NaN and no Infinity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from stream.errors import shown


class DuplicateKeyError(ValueError):
    """An object has a key twice; readers differ in which of the two counts."""


class NonFiniteNumberError(ValueError):
    """NaN, Infinity or -Infinity (`name`), which Python reads and JSON does not have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} is no number of JSON")


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook`. Raises: DuplicateKeyError."""
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    message = f"{shown(repeated)!r} occurs twice in one object"
    raise DuplicateKeyError(message)


def finite_numbers(name: str) -> NoReturn:
    """A `parse_constant`. Raises: NonFiniteNumberError."""
    raise NonFiniteNumberError(name)


STRICT_JSON: Final = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=finite_numbers)
