"""Careful forgeries of records with categories, zero that is missing, and a sentinel: each is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from stream.audit.verify.body import verify
from stream.audit.verify.splits import rounded
from tests.audit.verify.test_body import Json, comparator, target
from tests.audit.verify.test_forgeries import with_hashes
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import Library


@cache
def _with_categories(library: Library) -> str:
    shop = category_lender(library)
    for answered in shop.answers(250):
        body = answered.body
        rows = [f for f in comparator(body)["features"] if is_known_category(f)]
        splits: Json = body["splits"]
        needs_zero = library == "lightgbm" and not zero_that_counts(body)
        numbers = {"income", "debts"} & {f["feature"] for f in target(body)["features"]}
        if rows and any(splits.get("categories", [])) and not needs_zero and numbers:
            return json.dumps([body, answered.recommendation])
    pytest.fail("no answer with a category on both sides")


def is_known_category(row: Json) -> bool:
    return bool(row["other"]["categories"]) and row["query_value"] is not None


def zero_that_counts(body: Json) -> list[int]:
    """Splits that take zero for missing, at which a zero of query or target goes where its number would not."""
    table, found = body["splits"], set()
    for ledger in [ledger for tier in body["tiers"] for ledger in tier["ledgers"].values()]:
        zeros = {f["feature"] for f in ledger["features"] if 0 in (f["query_value"], f["other"]["value"])}
        for at in ledger["trees"]["split"]:
            if table["feature"][at] in zeros and table.get("zero_is_missing", [False] * (at + 1))[at]:
                found |= {at} if table["default_left"][at] != (table["threshold"][at] >= 0) else set()
    return sorted(found)


def category_row(body: Json) -> Json:
    """A row of the comparator ledger from a known category to a cell of others."""
    return next(f for f in comparator(body)["features"] if is_known_category(f))


def splits_on(body: Json, row: Json) -> list[int]:
    """The decisive splits of the comparator ledger on a row's feature, each once; several trees may share one."""
    table = body["splits"]
    return sorted({at for at in comparator(body)["trees"]["split"] if table["feature"][at] == row["feature"]})


def operator_swapped(body: Json, _: Json) -> None:
    table = body["splits"]
    at = next(k for k, listed in enumerate(table["categories"]) if listed is not None)
    table["operator"][at] = "in" if table["operator"][at] == "not in" else "not in"


def list_altered(body: Json, _: Json) -> None:
    """Let the query's own category stand on the side of the comparator's."""
    row = category_row(body)
    table = body["splits"]
    for at in splits_on(body, row):
        listed, own = table["categories"][at], row["query_value"]
        table["categories"][at] = [one for one in listed if one != own] if own in listed else [*listed, own]


def list_emptied(body: Json, _: Json) -> None:
    for at in splits_on(body, category_row(body)):
        body["splits"]["categories"][at] = []


def list_without_its_binding(body: Json, _: Json) -> None:
    """Add a category that nobody has to a list: the sides stay, what binds does not."""
    row = category_row(body)
    for at in splits_on(body, row):
        body["splits"]["categories"][at].append("of nobody")


def cell_moved(body: Json, _: Json) -> None:
    """Say that the comparator's cell is the one that holds the query's category."""
    row = next(f for f in comparator(body)["features"] if is_known_category(f))
    row["other"]["categories"] = [row["query_value"]]


def cell_widened(body: Json, _: Json) -> None:
    row = next(f for f in comparator(body)["features"] if is_known_category(f))
    row["other"]["categories"].append(row["query_value"])


def cell_as_an_interval(body: Json, _: Json) -> None:
    category_row(body)["other"].update(categories=None, cell={"low": None, "high": None, "closed": "low"})


def number_for_a_category(body: Json, _: Json) -> None:
    table = body["splits"]
    at = next(k for k, listed in enumerate(table["categories"]) if listed is not None)
    table["categories"][at], table["threshold"][at] = None, 1.0
    table["operator"][at] = "<" if body["library"] == "xgboost" else "<="


def both_at_once(body: Json, _: Json) -> None:
    table = body["splits"]
    table["threshold"][next(k for k, listed in enumerate(table["categories"]) if listed is not None)] = 1.0


def listed_twice(body: Json, _: Json) -> None:
    listed = next(listed for listed in body["splits"]["categories"] if listed)
    listed.append(listed[0])


def binding_of_another(body: Json, _: Json) -> None:
    category_row(body)["binding_categories"].append("of nobody")


def binding_gone(body: Json, _: Json) -> None:
    del category_row(body)["binding_categories"]


def binding_of_the_reasons(body: Json, _: Json) -> None:
    row = next(f for f in body["reasons_ledger"]["features"] if f.get("binding_categories") is not None)
    row["binding_categories"] = ["of nobody"]


def columns_gone(body: Json, _: Json) -> None:
    del body["splits"]["categories"]


def column_short(body: Json, _: Json) -> None:
    body["splits"]["categories"].pop()


def zero_flag_flipped(body: Json, _: Json) -> None:
    for at in zero_that_counts(body):
        body["splits"]["zero_is_missing"][at] = False


def zero_on_a_category(body: Json, _: Json) -> None:
    table = body["splits"]
    flags = table.setdefault("zero_is_missing", [False] * len(table["feature"]))
    flags[next(k for k, listed in enumerate(table["categories"]) if listed is not None)] = True


def sentinel_of_lightgbm(body: Json, _: Json) -> None:
    body["missing"] = -1.0


def sentinel_of_a_goal(body: Json, _: Json) -> None:
    """Say that the goal of an action stands for missing."""
    row = next(f for f in target(body)["features"] if f["feature"] in ("income", "debts"))
    body["missing"] = rounded(row["other"]["value"], "xgboost")


def sentinel_a_text(body: Json, _: Json) -> None:
    body["missing"] = "none"


CATEGORIES: dict[str, tuple[Callable[[Json, Json], None], str, tuple[Library, ...]]] = {
    "the operator swapped": (operator_swapped, "operator that is not the library's", ("xgboost", "lightgbm")),
    "a list altered": (list_altered, "does not part the two sides", ("xgboost", "lightgbm")),
    "a list emptied": (list_emptied, "does not part the two sides", ("xgboost", "lightgbm")),
    "a list with one more": (list_without_its_binding, "the binding threshold of", ("xgboost", "lightgbm")),
    "a cell moved": (cell_moved, "does not part the two sides", ("xgboost", "lightgbm")),
    "a cell widened": (cell_widened, "does not part the two sides", ("xgboost", "lightgbm")),
    "a cell as an interval": (cell_as_an_interval, "does not part the two sides", ("xgboost", "lightgbm")),
    "a number for a category": (number_for_a_category, "a number to one split", ("xgboost", "lightgbm")),
    "a category with a threshold": (both_at_once, "on a category has a threshold", ("xgboost", "lightgbm")),
    "a category listed twice": (listed_twice, "once each", ("xgboost", "lightgbm")),
    "another list that binds": (binding_of_another, "the binding threshold of", ("xgboost", "lightgbm")),
    "no list that binds": (binding_gone, "the binding threshold of", ("xgboost", "lightgbm")),
    "a list of the reasons": (binding_of_the_reasons, "reasons ledger: the binding", ("xgboost", "lightgbm")),
    "no lists at all": (columns_gone, "has no number for a threshold", ("xgboost", "lightgbm")),
    "a list too few": (column_short, "shape", ("xgboost", "lightgbm")),
    "zero that is a number": (zero_flag_flipped, "does not part the two sides", ("lightgbm",)),
    "zero of a category": (zero_on_a_category, "takes zero for missing", ("xgboost", "lightgbm")),
    "a sentinel of LightGBM": (sentinel_of_lightgbm, "stands for missing is none", ("lightgbm",)),
    "a sentinel that is a text": (sentinel_a_text, "stands for missing is none", ("xgboost",)),
    "a sentinel that is a goal": (sentinel_of_a_goal, "does not part the two sides", ("xgboost",)),
}
RUNS = [(name, library) for name, (_, _, libraries) in CATEGORIES.items() for library in libraries]


@pytest.mark.parametrize(("name", "library"), RUNS)
def test_a_forgery_of_categories_is_named(name: str, library: Library) -> None:
    """Given a record of a model with categories rewritten, hashes included, verify() names what does not fit, and the record as it was has no fault."""
    forge, named, _ = CATEGORIES[name]
    body, told = json.loads(_with_categories(library))
    assert verify(body, with_hashes(body, told), told) == []
    forge(body, told)
    faults = verify(body, with_hashes(body, told), told)
    assert any(named in fault for fault in faults), faults
    assert not any("hash" in fault for fault in faults)
