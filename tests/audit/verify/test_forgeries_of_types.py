"""Records in which a value is of another type than the schema has there, so that adding up alone would let it pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream.audit.verify.body import verify
from tests.audit.verify.test_body import Json, comparator, one, target
from tests.audit.verify.test_forgeries import with_hashes
from tests.recourse.lenders import LENDERS, Approve, Library


def cell(body: Json) -> Json:
    """The cell of a row of the comparator ledger that is bounded on a side."""
    cells = [f["other"]["cell"] for f in comparator(body)["features"] if f["other"]["cell"]]
    return next(c for c in cells if c["low"] is not None or c["high"] is not None)


def empty_cell(width: float) -> Callable[[Json], None]:
    """Let a cell end where it begins, or before, on the side where it lies."""

    def change(body: Json) -> None:
        here = cell(body)
        at = here["low"] if here["low"] is not None else here["high"]
        here.update(low=at + width, high=at) if here["low"] is None else here.update(low=at, high=at - width)

    return change


def without_detail(change: Callable[[Json], None]) -> Callable[[Json], None]:
    """The same in a record without detail by tree, of which less is known."""

    def both(body: Json) -> None:
        for ledger in [body["reasons_ledger"], *(ledger for t in body["tiers"] for ledger in t["ledgers"].values())]:
            ledger["trees"] = None
        body.update(query_leaves=None, splits=None)
        change(body)

    return both


def ends(low: Any, high: Any) -> Callable[[Json], None]:
    return lambda body: cell(body).update(low=low, high=high)


HOLDS_NOTHING = "holds nothing, or is no cell"
CELLS: dict[str, Callable[[Json], None]] = {
    "that ends where it begins": empty_cell(0.0),
    "that ends before it begins": empty_cell(5.0),
    "of texts": ends("a", "b"),
    "of a text": ends(None, "b"),
    "of true": ends(True, None),  # noqa: FBT003
    "closed by neither end": lambda body: cell(body).update(closed="both"),
    "without an end": lambda body: cell(body).pop("low"),
    "that is a list": lambda body: next(f for f in comparator(body)["features"] if f["other"]["cell"])["other"].update(
        cell=[1, 2]
    ),
    "of the same category twice": lambda body: comparator(body)["features"][0]["other"].update(
        cell=None, missing=False, categories=["a", "a"]
    ),
    "of words and numbers": lambda body: comparator(body)["features"][0]["other"].update(
        cell=None, missing=False, categories=["a", 1.0]
    ),
}


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@pytest.mark.parametrize("change", CELLS.values(), ids=CELLS)
def test_a_cell_that_holds_nothing_is_named(library: Library, approve: Approve, change: Callable[[Json], None]) -> None:
    """Given a comparator's cell in which no value can lie, verify() names it, with detail by tree and without."""
    body, told = one(library, approve)
    without_detail(lambda _: None)(body)
    assert verify(body, with_hashes(body, told), told) == []
    change(body)
    assert any(HOLDS_NOTHING in fault for fault in faults_of(body, told))
    body, told = one(library, approve)
    change(body)
    assert faults_of(body, told)


def faults_of(body: Json, told: Json) -> list[str]:
    """What verify() finds in a body whose hashes were made to fit."""
    return verify(body, with_hashes(body, told), None)


AT: dict[str, Callable[[Json], tuple[Json, Any]]] = {  # every integer of any size that a record writes as digits
    "margin_exact": lambda b: (b, "margin_exact"),
    "margin_rounding": lambda b: (b, "margin_rounding"),
    "the rounding of a tier": lambda b: (b["tiers"][0], "margin_rounding"),
    "the gap of the reasons": lambda b: (b["reasons_ledger"], "margin_gap"),
    "a shortfall": lambda b: (b["reasons_ledger"]["features"][0], "contribution"),
    "a shortfall of a tree": lambda b: (b["reasons_ledger"]["trees"]["contribution"], 0),
    "a principal reason": lambda b: (b["reasons"][0], "contribution"),
    "the gap of a comparator": lambda b: (comparator(b), "margin_gap"),
    "the gap of a target": lambda b: (target(b), "margin_gap"),
    "a row of a ledger": lambda b: (comparator(b)["features"][0], "contribution"),
    "a tree of a ledger": lambda b: (target(b)["trees"]["contribution"], 0),
    "a solo shift": lambda b: (target(b)["features"][0], "solo_shift"),
}
SPELLINGS: dict[str, Callable[[str], Any]] = {  # of the same number, or of none
    "space before": lambda text: f" {text}",
    "a line after": lambda text: f"{text}\n",
    "a plus": lambda text: f"+{text.lstrip('-')}",
    "zeros before": lambda text: f"{'-' if text[0] == '-' else ''}00{text.lstrip('-')}",
    "an underscore": lambda text: f"{text}_0",
    "other digits": lambda text: text.translate({ord(str(d)): chr(0x0660 + d) for d in range(10)}),
    "a point": lambda text: f"{text}.0",
    "a number": lambda text: int(text) % 1000,
    "minus zero": lambda _: "-0",
    "nothing": lambda _: "",
    "null": lambda _: None,
}


@pytest.mark.parametrize("at", AT.values(), ids=AT)
@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_an_integer_in_another_spelling_is_named(
    at: Callable[[Json], tuple[Json, Any]], spell: Callable[[str], Any]
) -> None:
    """Given an integer in any spelling but digits alone, verify() says which field it is, whatever the number."""
    body, told = one("xgboost")
    part, key = at(body)
    part[key] = spell(part[key])
    faults = faults_of(body, told)
    assert any("is not an integer written in digits alone" in fault for fault in faults), faults


NUMBERS: dict[str, Callable[[Json], tuple[Json, str]]] = {
    "margin": lambda b: (b, "margin"),
    "probability": lambda b: (b, "probability"),
    "cutoff_margin": lambda b: (b, "cutoff_margin"),
    "threshold": lambda b: (b, "threshold"),
    "epsilon": lambda b: (b, "epsilon"),
    "beta": lambda b: (b, "beta"),
    "scale": lambda b: (b["scales"], next(iter(b["scales"]))),
    "margin of a tier": lambda b: (b["tiers"][0], "margin"),
    "probability of a tier": lambda b: (b["tiers"][0], "probability"),
    "effort": lambda b: (b["tiers"][0], "effort"),
}


@pytest.mark.parametrize("at", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("make", [str, lambda _: True, lambda n: [n], lambda _: {}, lambda _: None])
def test_a_number_that_is_none_is_named(at: Callable[[Json], tuple[Json, str]], make: Callable[[float], Any]) -> None:
    """Given a number as a text, a truth value, a list, an object or null, verify() says that it is no finite number."""
    body, told = one("lightgbm")
    part, key = at(body)
    part[key] = make(part[key])
    faults = faults_of(body, told)
    assert any("not a finite number" in fault for fault in faults), faults


COUNTS: dict[str, Callable[[Json], tuple[Json, Any]]] = {
    "unit_log2": lambda b: (b, "unit_log2"),
    "trees_used": lambda b: (b, "trees_used"),
    "a leaf of the query": lambda b: (b["query_leaves"], 0),
    "a rank": lambda b: (b["tiers"][0], "rank"),
    "a divisor": lambda b: (b["reasons_ledger"], "divisor"),
    "trees of a row": lambda b: (target(b)["features"][0], "trees"),
    "a tree": lambda b: (comparator(b)["trees"]["tree"], 0),
    "a leaf": lambda b: (comparator(b)["trees"]["query_leaf"], 0),
    "another leaf": lambda b: (comparator(b)["trees"]["other_leaf"], 0),
    "a node": lambda b: (comparator(b)["trees"]["node"], 0),
    "a split": lambda b: (comparator(b)["trees"]["split"], 0),
}


@pytest.mark.parametrize("at", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("make", [float, lambda n: n + 0.5, str, bool, lambda _: None, lambda _: -5_000])
def test_a_count_that_is_none_is_named(at: Callable[[Json], tuple[Json, Any]], make: Callable[[int], Any]) -> None:
    """Given a whole number as a float, with a fraction, as a text or a truth value, or far below zero, verify() names it."""
    body, told = one("xgboost")
    part, key = at(body)
    part[key] = make(part[key])
    faults = faults_of(body, told)
    assert any("whole number" in fault for fault in faults), faults


def test_a_unit_beyond_every_double_is_named() -> None:
    """Given a unit that no margin can have, verify() names it, and does not compute with it."""
    body, told = one("xgboost")
    body["unit_log2"] = 1 << 40
    assert any("unit_log2 is above" in fault for fault in faults_of(body, told))


TRUTHS: dict[str, tuple[Callable[[Json], Json], str]] = {
    "feasible": (lambda b: comparator(b)["features"][0], "feasible and not feasible at once"),
    "missing": (lambda b: comparator(b)["features"][0]["other"], "is not said in one way"),
    "from_tercile": (lambda b: b["tiers"][0], "neither true nor false"),
}


@pytest.mark.parametrize("key", TRUTHS)
def test_a_truth_value_that_is_a_number_is_named(key: str) -> None:
    """Given 1 or 0 for true or false, verify() takes it for neither."""
    body, told = one("xgboost")
    at, named = TRUTHS[key]
    at(body)[key] = int(at(body)[key])
    assert any(named in fault for fault in faults_of(body, told))
