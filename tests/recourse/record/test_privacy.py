from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.canonical import canonical_json
from stream.recourse.answer import answer
from stream.recourse.comparators.leaf_matrix import LeafMatrix, without_no_record
from stream.recourse.comparators.people import CROWDED, people_of
from stream.recourse.comparators.ranking import Ranking, ranking
from stream.recourse.explain.attribution import SplitRows
from stream.recourse.finding import score
from stream.recourse.model import PublishedModel
from stream.recourse.record.audit_body import tier_of
from stream.recourse.record.recommendation import recommended_tier
from stream.recourse.search.tier_targets import targets_of
from stream.recourse.space.person_reach import person_reach
from tests.examples import examples
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
OF_ALL = ("scales", "medians", "category_start", "category_codes", "category_counts")  # figures of the pool as a whole


def moved_within_its_cells(shop: Lender, seed: int) -> Rows:
    """The pool with every number of every person replaced by another of the same cell; what says that there is none is no number."""
    rng = np.random.default_rng(seed)
    cells, found, pool = shop.model.cells, shop.model.cells.of(shop.pool), shop.pool.copy()
    for i, j in np.argwhere(~np.isnan(without_no_record(pool, shop.model.rules))):
        low, high = cells.smallest(int(j), int(found[i, j])), cells.largest(int(j), int(found[i, j]))
        low, high = max(low, min(high, pool[i, j]) - 1e4), min(high, max(low, pool[i, j]) + 1e4)
        pool[i, j] = min(max(low + (high - low) * rng.random(), low), high)
    return pool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn(Ranking):
    """A ranking whose scores were drawn, whoever the comparators are."""

    drawn: Rows

    def scores(self) -> Rows:
        """All that were drawn."""
        return self.drawn

    def best(self, low: int, high: int) -> int:
        """The first of the highest."""
        return low + int(self.drawn[low:high].argmax())


def tiers(model: PublishedModel, shop: Lender, row: Rows, scores: Rows) -> bytes:
    """What goes out of all tiers for a row when comparators are ranked by the given scores, whoever they are."""
    scored = score(shop.decide(row), model)
    cells, mutability = model.cells.of(row[None])[0], model.rules.mutabilities({})
    reach = person_reach(model.rules, model.matrix, model.cell_targets, row=row, cells=cells, mutability=mutability)
    first = len(model.matrix) - len(scores)
    splits = SplitRows(model.forest, model.rules)
    out: list[Any] = []
    ranked = ranking(
        model.forest,
        model.matrix,
        model.rules,
        query_slots=scored.slots,
        query_row=without_no_record(row[None], model.rules)[0],
        mutability=mutability,
        first=first,
        beta=model.policy.beta,
    )
    drawn = Drawn(**{one.name: getattr(ranked, one.name) for one in dataclasses.fields(ranked)}, drawn=scores)
    found = targets_of(model, reach, drawn, first=first, cutoff=scored.cutoff)
    for target in found.targets:
        audited = tier_of(model, scored, reach, target, splits)
        out.append([audited, recommended_tier(model, scored, target, audited)])
    return canonical_json([out, splits.table()])


@PAIRS
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32 - 1), ranks=st.integers(0, 2**32 - 1))
def test_targets_and_ledgers_know_a_comparator_by_its_cells_alone(
    library: Library, approve: Approve, seed: int, ranks: int
) -> None:
    """Given a pool whose every value moved within its cell, when the same comparators are chosen, then all tiers are equal byte for byte, and all records of them."""
    shop = lender(library, approve)
    model, other = twins(shop, seed)
    eligible = len(model.matrix) - model.matrix.first_past(shop.cutoff, shop.sign)
    chosen = np.random.default_rng(ranks).random(eligible)
    for row in shop.declined(6):
        assert tiers(model, shop, row, chosen) == tiers(other, shop, row, chosen)


def twins(shop: Lender, seed: int) -> tuple[PublishedModel, PublishedModel]:
    """A model, and the same one with every value of the pool moved within its cell; figures of the whole pool are kept.

    Such are scales and medians, how often each category comes, and the medians of crowded cells: to have moved one person alone
    would hardly have moved them, but here everyone moves. So the twin has the places of the original's people.
    """
    model = shop.model
    other = shop.with_pool(moved_within_its_cells(shop, seed)).model
    assert other.matrix.rows.tobytes() != model.matrix.rows.tobytes()
    for same in ("codes", "cells", "margins", "references"):
        assert getattr(other.matrix, same).tobytes() == getattr(model.matrix, same).tobytes()
    of_all = {name: getattr(model.matrix, name) for name in OF_ALL}
    blurred: LeafMatrix = dataclasses.replace(other.matrix, **of_all)
    twin = shop.with_model(matrix=blurred).model
    assert model.robust is not None
    assert twin.robust is not None
    lasting = dataclasses.replace(twin.robust, people=model.robust.people, people_apart=model.robust.people_apart)
    return model, dataclasses.replace(twin, robust=lasting)


@PAIRS
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32 - 1))
def test_people_in_a_cell_of_few_stand_where_the_cell_does(library: Library, approve: Approve, seed: int) -> None:
    """Given a pool whose every value moved within its cell, whoever shares a cell with too few for a median has the same place among people, to the last bit."""
    both = twins(lender(library, approve), seed)
    places = [people_of(one.rules, one.matrix, one.cells).coordinates for one in both]
    few = np.column_stack([np.bincount(own)[own] < CROWDED for own in both[0].matrix.cells.T])
    assert few.any()
    assert places[0][few].tobytes() == places[1][few].tobytes()
    assert (places[0] != places[1])[~few].any()


@PAIRS
def test_far_shows_only_target_values(library: Library, approve: Approve) -> None:
    """Given any pool, every value that far asks for is one that the rules and the model's cells give, whoever is in the pool."""
    shop = lender(library, approve)
    model, other = twins(shop, 7)
    for row in shop.declined(20):
        for asked in (model, other):
            assert asked.robust is not None
            space, mutability = asked.robust, asked.rules.mutabilities({})
            cells = space.cells.of(row[None])[0]
            reach = person_reach(
                asked.rules, model.matrix, space.cell_targets, row=row, cells=cells, mutability=mutability
            )
            start = reach.cell_targets.start
            told = answer(shop.decide(row), asked).recommendation["tiers"]
            for action in told[-1]["actions"] if told else ():
                j = FEATURES.index(action["feature"])
                to = asked.rules.encode({**shop.features_of(row), action["feature"]: action["to"]})[j]
                u = [k for k, unit in enumerate(reach.cell_targets.units) if j in [one.j for one in unit.members]]
                ways = [reach.alternatives.of(k)[1].ravel() for k in u]
                assert to in np.concatenate([reach.target_value[start[j] : start[j + 1]], *ways])


def numbers(value: Any) -> Iterator[float]:
    """Every number anywhere in a JSON value, those inside texts too."""
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


@PAIRS
def test_no_value_of_the_pool_is_told(library: Library, approve: Approve) -> None:
    """Given people with numbers of 17 digits, when answered, then no such number of anyone but the applicant is in what goes out."""
    shop = lender(library, approve)
    written = [j for j, name in enumerate(FEATURES) if name in ("income", "limit", "balance")]
    told = {float(x) for x in shop.pool[:, written].ravel() if not np.isnan(x)}
    assert len(told) > 500
    thresholds = {float(t) for j in written for t in shop.model.forest.thresholds(j)}
    for row, answered in zip(shop.declined(30), shop.answers(30), strict=True):
        own = set(row.tolist())
        sent = set(numbers([answered.recommendation, answered.body["tiers"]]))
        assert not (sent & told) - own - thresholds
        text = canonical_json([answered.recommendation, answered.body]).decode()
        assert not [x for x in (told - own - thresholds) if repr(x) in text]


def test_the_trap_would_close() -> None:
    """Given a recommendation with a comparator's raw income in it, the search for pool values finds it."""
    shop = lender("xgboost")
    raw = float(shop.pool[~np.isnan(shop.pool[:, 0]), 0][0])
    assert raw in set(numbers({"tiers": [{"actions": [{"to": raw}]}]}))
    assert raw not in {float(t) for t in shop.model.forest.thresholds(0)}
