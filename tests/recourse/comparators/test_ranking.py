from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.walk import leaf_slots
from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.comparators.ranking import Ranking, magnitudes_of, ranking
from tests.examples import examples
from tests.oracles.ranking import score
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

LABELS = ["mutable", "increase_only", "decrease_only", "immutable"]
NOMINAL = [name in ("purpose", "region") for name in FEATURES]


def ours(shop: Lender, row: Rows, labels: list[str], first: int, beta: float) -> Rows:
    return ranking(
        shop.model.forest,
        shop.model.matrix,
        shop.model.rules,
        query_slots=leaf_slots(shop.model.forest, row[None])[0],
        query_row=without_no_record(row[None], shop.model.rules)[0],
        mutability=np.array([LABELS.index(label) for label in labels], np.int8),
        first=first,
        beta=beta,
    ).scores()


def papers(shop: Lender, row: Rows, labels: list[str], first: int, beta: float) -> Rows:
    """The reference, from the library's leaves and the raw pool."""
    order = np.argsort(shop.sign * shop.owner.ask(shop.pool, "margin"), kind="stable")[first:]
    pool, leaves = without_no_record(shop.pool[order], shop.model.rules), shop.owner.leaves(shop.pool[order]).tolist()
    own = shop.owner.leaves(row[None])[0].tolist()
    query = without_no_record(row[None], shop.model.rules)[0].tolist()
    phi = [[float(tree.value[leaf]) for tree, leaf in zip(shop.trees, ids, strict=True)] for ids in [own, *leaves]]
    return np.array(
        [
            score(
                phi[0],
                phi[1 + i],
                [a == b for a, b in zip(own, leaves[i], strict=True)],
                query,
                pool[i].tolist(),
                shop.model.matrix.scales.tolist(),
                NOMINAL,
                labels,
                beta,
            )
            for i in range(len(pool))
        ]
    )


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@settings(max_examples=examples(8))
@given(
    place=st.integers(0, 239),
    labels=st.lists(st.sampled_from(LABELS), min_size=len(FEATURES), max_size=len(FEATURES)),
    first=st.sampled_from([0, 100, 200]),
    beta=st.sampled_from([0.0, 1.0, 0.3]),
)
def test_scores_are_the_papers(
    library: Library, approve: Approve, place: int, labels: list[str], first: int, beta: float
) -> None:
    """Given any query, labels and beta, each comparator's score is the paper's, computed in plain Python, to the last bit."""
    shop = lender(library, approve)
    row = shop.pool[place]
    assert ours(shop, row, labels, first, beta).tobytes() == papers(shop, row, labels, first, beta).tobytes()


def test_no_eligible_comparator_is_no_score() -> None:
    """Given a suffix without rows, when ranked, then there is nothing, and no error."""
    shop = lender("xgboost")
    assert ours(shop, shop.pool[0], ["mutable"] * len(FEATURES), len(shop.pool), 1.0).shape == (0,)


def test_a_query_at_the_end_of_the_numbers_is_ranked() -> None:
    """Given numbers so large that distances overflow, every score is a finite number."""
    shop = lender("lightgbm")
    row = shop.declined(1)[0].copy()
    row[:2] = -1.7e308, 1.7e308
    found = ours(shop, row, ["mutable"] * len(FEATURES), 0, 1.0)
    assert np.isfinite(found).all()
    row[:2] = 1e200
    assert np.isfinite(ours(shop, row, ["mutable"] * len(FEATURES), 0, 1e200)).all()


def test_oneself_scores_nothing() -> None:
    """Given the query itself among the comparators, its score is 0: no leaf differs, and there is no way to go."""
    shop = lender("lightgbm")
    order = np.argsort(shop.owner.ask(shop.pool, "margin"), kind="stable")
    for place in (0, 100):
        found = ours(shop, shop.pool[order[place]], ["mutable"] * len(FEATURES), 0, 1.0)
        assert found[place] == 0.0


def test_a_distance_discounts_and_immutability_weighs() -> None:
    """Given beta and labels, a score never grows with beta, and is 0 where no feature may move."""
    shop = lender("xgboost")
    row = shop.declined(1)[0]
    free, fixed = ["mutable"] * len(FEATURES), ["immutable"] * len(FEATURES)
    assert (ours(shop, row, free, 0, 2.0) <= ours(shop, row, free, 0, 1.0)).all()
    assert not ours(shop, row, fixed, 0, 1.0).any()


def asked(shop: Lender, row: Rows, labels: list[str], first: int, beta: float, *, magnitudes: bool) -> Ranking:
    model = shop.model
    return ranking(
        model.forest,
        model.matrix,
        model.rules,
        query_slots=leaf_slots(model.forest, row[None])[0],
        query_row=without_no_record(row[None], model.rules)[0],
        mutability=np.array([LABELS.index(label) for label in labels], np.int8),
        first=first,
        beta=beta,
        magnitudes=magnitudes_of(model.forest, model.matrix) if magnitudes else None,
    )


def first_highest(values: list[float]) -> int:
    """The reference: the place of the highest value, of equal ones the first."""
    best = 0
    for place, value in enumerate(values):
        if value > values[best]:
            best = place
    return best


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@settings(max_examples=examples(25), deadline=None)
@given(
    place=st.integers(0, 239),
    labels=st.lists(st.sampled_from(LABELS), min_size=len(FEATURES), max_size=len(FEATURES)),
    first=st.sampled_from([0, 100, 200]),
    beta=st.sampled_from([0.0, 1.0, 0.3, 1e300, 1e308]),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)).filter(lambda pair: pair[0] != pair[1]),
    magnitudes=st.booleans(),
)
def test_the_best_is_the_first_of_the_highest_scores(
    library: Library,
    approve: Approve,
    place: int,
    labels: list[str],
    first: int,
    beta: float,
    ends: tuple[int, int],
    *,
    magnitudes: bool,
) -> None:
    """Given any slice, whoever is found the best there has its highest score, and nobody before has that."""
    shop = lender(library, approve)
    ranked = asked(shop, shop.pool[place], labels, first, beta, magnitudes=magnitudes)
    low, high = min(ends), max(ends)
    inside = ours(shop, shop.pool[place], labels, first, beta)[low:high].tolist()
    assert ranked.best(low, high) == low + first_highest(inside)


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), people=st.integers(1, 40))
def test_of_equals_the_first_is_the_best(library: Library, approve: Approve, seed: int, people: int) -> None:
    """Given a pool in which a few people come again and again, in any order, the best is the first of the highest scores."""
    shop, rng = lender(library, approve), np.random.default_rng(seed)
    matrix, few = shop.model.matrix, rng.integers(0, len(shop.pool), 4)
    again = few[rng.integers(0, len(few), people)]
    doubled = dataclasses.replace(matrix, codes=matrix.codes[again], rows=matrix.rows[again])
    doubled = dataclasses.replace(doubled, margins=matrix.margins[again])
    row = shop.pool[int(rng.integers(len(shop.pool)))]
    ranked = ranking(
        shop.model.forest,
        doubled,
        shop.model.rules,
        query_slots=leaf_slots(shop.model.forest, row[None])[0],
        query_row=without_no_record(row[None], shop.model.rules)[0],
        mutability=np.zeros(len(FEATURES), np.int8),
        first=0,
        beta=1.0,
        magnitudes=magnitudes_of(shop.model.forest, doubled),
    )
    assert ranked.best(0, people) == first_highest(ranked.scores().tolist())


def test_among_nobody_there_is_no_best() -> None:
    """Given a slice without anyone, or past the end, when its best is asked for, then that is refused."""
    shop = lender("xgboost")
    ranked = asked(shop, shop.pool[0], ["mutable"] * len(FEATURES), 200, 1.0, magnitudes=True)
    for low, high in ((3, 3), (0, 41), (-1, 2)):
        with pytest.raises(ValueError, match="nobody"):
            ranked.best(low, high)
