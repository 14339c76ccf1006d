"""One table of features.toml while it is read: each getter checks one key, and its refusal names table and key."""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn, TypeGuard

from stream.errors import ConfigurationError, shown
from stream.forest.trees import Word

KEYS: Final = frozenset(
    {
        "type", "mutability", "min", "max", "step", "no_record", "categories", "unit", "label", "reason", "cost",
        "group", "follows", "factor", "ratio_of", "ratio_factor", "moves",
    }
)  # fmt: skip
REASON_KEYS: Final = frozenset({"code", "too_low", "too_high", "missing"})


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_double(value: float) -> float:
    """Give a number as a double; NaN for an integer beyond all doubles."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def refusal(name: str, key: str, what: str) -> ConfigurationError:
    """Say what is wrong with one key of one table."""
    return ConfigurationError(f'features.toml: ["{shown(name)}"] {key} {what}')


class FeatureTable:
    """The table of one feature. Raises: ConfigurationError, here and in every getter."""

    def __init__(self, name: str, table: object) -> None:
        if not isinstance(table, dict):
            message = f'features.toml: "{shown(name)}" must be a table'
            raise ConfigurationError(message)
        self.name: str = name
        self.table: dict[str, Any] = table
        if unknown := sorted(set(table) - KEYS):
            self.refuse(shown(unknown[0]), f"is not a known key; known are {', '.join(sorted(KEYS))}")

    def refuse(self, key: str, what: str) -> NoReturn:
        """Raise the ConfigurationError for one key."""
        raise refusal(self.name, key, what)

    def word(self, key: str, allowed: tuple[str, ...]) -> str:
        """Give one of the allowed words."""
        value = self.table.get(key)
        if value not in allowed:
            self.refuse(key, f"must be one of {', '.join(allowed)}")
        return str(value)

    def text(self, key: str) -> str | None:
        """Give a text that is not empty, or None where there is none."""
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, "must be a text that is not empty")
        return value

    def number(self, key: str, default: float) -> float:
        """Give a number, inf among them."""
        value = self.table.get(key, default)
        if not is_number(value) or math.isnan(number := as_double(value)):
            self.refuse(key, "must be a number")
        return number

    def step(self, kind: str) -> float | None:
        """Give the step of targets; that of integers is whole, and 1 unless told otherwise."""
        if kind == "integer" and not self._whole_or_unbounded("min"):  # targets are counted from it
            self.refuse("min", "must be whole for an integer")
        if "step" not in self.table:
            return 1.0 if kind == "integer" else None
        step = self.number("step", 0)
        if kind == "category":
            self.refuse("step", "has no meaning for a category")
        if not 0 < step < math.inf:
            self.refuse("step", "must be above 0 and finite")
        if kind == "integer" and not step.is_integer():
            self.refuse("step", "must be whole for an integer")
        return step

    def _whole_or_unbounded(self, key: str) -> bool:
        bound = self.number(key, 0.0)
        return math.isinf(bound) or bound.is_integer()

    def no_record(self, categories: tuple[Word, ...] | None) -> tuple[float, ...]:
        """Give the numbers that mean "no record", as the model gets them: a category that is a number has a code."""
        values = self.table.get("no_record", [])
        values = values if isinstance(values, list) else [values]
        if not all(is_number(v) and math.isfinite(as_double(v)) for v in values):
            self.refuse("no_record", "must be a list of finite numbers")
        if categories is None or isinstance(categories[0], str):
            return tuple(float(v) for v in values)
        if any(v not in categories for v in values):
            self.refuse("no_record", "holds a number that is none of the feature's categories")
        return tuple(float(categories.index(v)) for v in values)

    def categories(self, kind: str, words: tuple[Word, ...] | None, *, of_model: bool) -> tuple[Word, ...] | None:
        """Give the words, in the order of the codes 0, 1, 2, ...

        `words`: those of the model file, which may be numbers; `of_model`: whether it takes the feature for a category.
        """
        said = self.table.get("categories")
        if said is None:
            return words
        if kind != "category":
            self.refuse("categories", 'needs type = "category"')
        is_texts = isinstance(said, list) and bool(said) and all(isinstance(word, str) for word in said)
        is_numbers = isinstance(said, list) and bool(said) and all(map(is_number, said))
        if isinstance(said, list) and any(isinstance(word, bool) for word in said):
            self.refuse(
                "categories", "holds true or false, which are 1 and 0 to the model: write 0 and 1, as decisions do"
            )
        if not is_texts and not (is_numbers and (of_model or words is not None)):
            self.refuse("categories", "must be a list of words, in the order of the codes 0, 1, 2, ...")
        found: tuple[Word, ...] = tuple(said) if is_texts else tuple(as_double(number) for number in said)
        if len(set(found)) != len(found):
            self.refuse("categories", "lists a word twice")
        if is_numbers and not all(math.isfinite(number) for number in found if not isinstance(number, str)):
            self.refuse("categories", "holds a number that is not finite")
        if words is not None and found != words:
            self._refuse_other_words(found, words)
        return found

    def _refuse_other_words(self, found: tuple[Word, ...], words: tuple[Word, ...]) -> NoReturn:
        at = next(
            (i for i, (a, b) in enumerate(zip(found, words, strict=False)) if a != b), min(len(found), len(words))
        )
        here, there = (shown(repr(some[at])) if at < len(some) else "nothing" for some in (found, words))
        self.refuse(
            "categories",
            f"are not those that the model was trained on: at place {at} (from 0) there is {here} and in the model "
            f"{there}; leave `categories` out, or list them in the model's order{self._truth(found, words)}",
        )

    @staticmethod
    def _truth(found: tuple[Word, ...], words: tuple[Word, ...]) -> str:
        """What to say to who lists words for truth values, which the model file holds as numbers."""
        are_words = {str(word).lower() for word in found} == {"true", "false"}
        return (
            " (true and false are the numbers 1 and 0: decisions say these)"
            if are_words and set(words) <= {0.0, 1.0}
            else ""
        )

    def together(self) -> dict[str, Any]:
        """Give what the table says of other features, as `FeatureRule` has it: its group, its driver, or its parts."""
        if len(said := [key for key in ("group", "follows", "ratio_of") if key in self.table]) > 1:
            self.refuse(said[1], f"does not go with {said[0]}; a feature is of one unit alone")
        for key, needs in (("factor", "follows"), ("ratio_factor", "ratio_of"), ("moves", "ratio_of")):
            if key in self.table and needs not in self.table:
                self.refuse(key, f"has no meaning without {needs}")
        found: dict[str, Any] = {"group": self.text("group")}
        if said in (["follows"], ["ratio_of"]) and self.table.get("type") == "category":
            self.refuse(said[0], "has no meaning for a category")
        if said == ["follows"]:
            found |= {"follows": self.text("follows"), "factor": self.number("factor", 0.0)}
            if found["factor"] == 0 or math.isinf(found["factor"]):
                self.refuse(
                    "factor", "must say how far the feature moves for each 1 that the other one does; not 0, and finite"
                )
        elif said == ["ratio_of"]:
            found |= {
                "ratio_of": self._parts(),
                "ratio_factor": self.number("ratio_factor", 1.0),
                "moves": self.text("moves"),
            }
            if not 0 < found["ratio_factor"] < math.inf:
                self.refuse("ratio_factor", "must be above 0 and finite")
            if found["moves"] is not None and found["moves"] not in found["ratio_of"]:
                self.refuse("moves", "must be one of the two features of ratio_of")
        return found

    def _parts(self) -> tuple[str, str]:
        parts = self.table["ratio_of"]
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):  # noqa: PLR2004
            self.refuse("ratio_of", "must be a list of two features: what is divided, and by what")
        return parts[0], parts[1]

    def reason(self, label: str, *, of_model: bool) -> dict[str, str]:
        """Give the texts of a reason, and its code as the feature's name where there is none.

        A category of the model (`of_model`) is never too low or too high: one text serves for both where one is given.
        """
        raw = self.table.get("reason", {})
        if isinstance(raw, str):
            raw = {"code": raw}
        if not isinstance(raw, dict) or not all(isinstance(text, str) and text.strip() for text in raw.values()):
            self.refuse("reason", f"must be a table of texts with the keys {', '.join(sorted(REASON_KEYS))}")
        known = ", ".join(sorted(REASON_KEYS))
        if unknown := sorted(set(raw) - REASON_KEYS):
            self.refuse(f"reason.{shown(unknown[0])}", f"is not a known key; known are {known}")
        category = self.table.get("type") == "category"
        texts = {
            "code": self.name,
            "too_low": f"{label}: not favourable" if category else f"{label}: too low",
            "too_high": f"{label}: not favourable" if category else f"{label}: too high",
            "missing": f"{label}: no information",
        } | raw
        if of_model:
            texts["too_low"] = raw.get("too_low", texts["too_high"])
            texts["too_high"] = texts["too_low"]
        return texts
