from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.walk import leaf_slots
from stream.recourse.answer import answer
from stream.recourse.feasible import Reach, groups, reach_of
from stream.recourse.features import LABELS, Mutability
from stream.recourse.leaf_matrix import without_no_record
from stream.recourse.ranking import scores
from stream.recourse.search import AIMED_RANKS_MAX, FIRST_CHUNK, TIERS, TierTarget, targets_of
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
TIGHTER = {
    name: [label for label in LABELS if own in (Mutability.MUTABLE, LABELS[label]) or label == "immutable"]
    for name, own in zip(FEATURES, [r.mutability for r in lender("xgboost").model.rules.rules], strict=True)
}
overrides = st.fixed_dictionaries({}, optional={name: st.sampled_from(labels) for name, labels in TIGHTER.items()})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """One declined row, ranked and searched, and how far each comparator alone would bring it."""

    shop: Lender
    reach: Reach
    ranked: Rows
    first: int
    cutoff: float

    @property
    def found(self) -> list[TierTarget]:
        """What our search finds."""
        return targets_of(
            self.shop.model.forest, self.reach, self.ranked, first=self.first, cutoff=self.cutoff, sign=self.shop.sign
        )

    def projections(self) -> Rows:
        """How far the person gets toward each eligible comparator."""
        return self.reach.project(self.shop.model.matrix.cells[self.first :])

    def walk(self, k: int) -> tuple[list[int], list[int]]:
        """Who is of the k-th tercile, and in which order its tier tries everyone: its own, then the others, each by score, then by margin."""
        eligible = len(self.ranked)
        own = range(eligible * k // 3, eligible * (k + 1) // 3)
        others = sorted({*range(eligible)} - {*own})
        by_score = [sorted(part, key=lambda i: -self.ranked[i]) for part in (own, others)]
        return list(own), [*by_score[0], *by_score[1]]

    def rank(self, k: int) -> int | None:
        """Where the k-th tier's walk ends: at the first of the best-ranked that reaches its tercile's least score, else at the first accepted."""
        own, walked = self.walk(k)
        reached = self.score(self.projections()[walked])
        least = tier_floor(self, own[0]) if own else self.shop.sign * self.cutoff
        aimed = np.flatnonzero(reached[:AIMED_RANKS_MAX] >= least)
        accepted = np.flatnonzero(reached >= self.shop.sign * self.cutoff)
        return next((int(hits[0]) for hits in (aimed, accepted) if len(hits)), None)

    def score(self, rows: Rows) -> npt.NDArray[np.float64]:
        """What the owner library says, turned so that more is better."""
        return self.shop.sign * self.shop.owner.ask(rows, "margin").astype(np.float64)


def query_of(shop: Lender, row: Rows, tightened: dict[str, str], threshold: float = 0.5) -> Query:
    model = shop.model
    mutability = model.rules.mutabilities(tightened)
    cutoff = model.link.cutoff(threshold, "probability", model.policy.approve)
    first = model.matrix.first_past(cutoff + shop.sign * model.policy.epsilon, shop.sign)
    ranked = scores(
        model.forest,
        model.matrix,
        model.rules,
        query_slots=leaf_slots(model.forest, row[None])[0],
        query_row=without_no_record(row[None], model.rules)[0],
        mutability=mutability,
        first=first,
        beta=model.policy.beta,
    )
    cells = model.cells.of(row[None])[0]
    reach = reach_of(model.rules, model.matrix, model.landings, row=row, cells=cells, mutability=mutability)
    return Query(shop=shop, reach=reach, ranked=ranked, first=first, cutoff=cutoff)


@PAIRS
@settings(max_examples=7)
@given(place=st.integers(0, 100), tightened=overrides, threshold=st.sampled_from([0.5, 0.3, 0.7]))
def test_the_best_ranked_that_the_library_accepts_is_taken(
    library: Library, approve: Approve, place: int, tightened: dict[str, str], threshold: float
) -> None:
    """Given any labels, each tier takes, of its tercile and then of all, the best-ranked whose projection scores as its tercile does, else the best-ranked that the library accepts; it is empty only where there is none."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened, threshold)
    if query.score(query.reach.row[None])[0] >= shop.sign * query.cutoff:
        return
    accepted = query.score(query.projections()) >= shop.sign * query.cutoff
    found = {target.tier: target for target in query.found}
    assert list(found) == (list(TIERS) if accepted.any() else [])
    for k, tier in enumerate(TIERS):
        own, walked = query.walk(k)
        first = query.rank(k)
        if first is not None:
            assert found[tier].rank == first
            assert found[tier].comparator == query.first + walked[first]
            assert found[tier].from_tercile == (walked[first] in own)


@PAIRS
def test_a_long_walk_counts_every_step(library: Library, approve: Approve) -> None:
    """Given labels that leave few features free, the one taken may stand far down the ranking: its rank is the number passed over."""
    shop = lender(library, approve)
    fixed = dict.fromkeys(set(FEATURES) - {"debts", "share", "purpose"}, "immutable")
    ranks = []
    for row in shop.declined(60):
        query = query_of(shop, row, fixed)
        for k, target in enumerate(query.found):
            assert target.rank == query.rank(k)
            ranks.append(target.rank)
    assert max(ranks) > FIRST_CHUNK


@PAIRS
@settings(max_examples=7)
@given(place=st.integers(0, 100), tightened=overrides)
def test_pruning_leaves_no_move_that_could_be_given_back(
    library: Library, approve: Approve, place: int, tightened: dict[str, str]
) -> None:
    """Given a target, it keeps to the projection it came from, reaches the tercile's least score or the projection's own, and loses that with any move less."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened)
    row = query.reach.row
    for k, target in enumerate(query.found):
        whole = query.projections()[target.comparator - query.first]
        kept = target.target.view(np.int64)
        moved = [j for j in range(len(row)) if kept[j] != row.view(np.int64)[j]]
        assert moved
        assert kept[moved].tolist() == whole.view(np.int64)[moved].tolist()
        low, high = len(query.ranked) * k // 3, len(query.ranked) * (k + 1) // 3
        assert low < high
        floor = min(tier_floor(query, low), float(query.score(whole[None])[0]))
        assert query.score(target.target[None])[0] >= floor >= shop.sign * query.cutoff
        grouped = {j: tuple(members) for members in groups(shop.model.rules) for j in members}
        for unit in {grouped.get(j, (j,)) for j in moved}:
            less = target.target.copy()
            less[list(unit)] = row[list(unit)]
            assert query.score(less[None])[0] < floor


def tier_floor(query: Query, low: int) -> float:
    """The least score of a tercile, by the library over the whole pool."""
    return float(np.sort(query.score(query.shop.pool), kind="stable")[query.first + low])


@PAIRS
def test_the_library_accepts_every_target(library: Library, approve: Approve) -> None:
    """Given answers at several thresholds, the owner library itself accepts each recommended row, and its margin is the published one."""
    shop = lender(library, approve)
    targets, margins, cutoffs = [], [], []
    for threshold in (0.3, 0.5, 0.8):
        for row in shop.declined(25):
            body = answer(shop.decide(row, threshold=threshold), shop.model).body
            for tier in body["tiers"]:
                to = shop.features_of(row) | tier["target"]
                targets.append(shop.model.rules.encode(to))
                margins.append(tier["margin"])
                cutoffs.append(body["cutoff_margin"])
    found = shop.owner.ask(np.array(targets), "margin").astype(np.float64)
    assert found.tolist() == margins
    assert (shop.sign * found >= shop.sign * np.array(cutoffs)).all()
    assert len(targets) > 100


@PAIRS
def test_an_answer_is_what_ranking_and_search_give(library: Library, approve: Approve) -> None:
    """Given policy's beta and epsilon, overrides, and people with sentinels, each tier of an answer has the comparator, rank and target of the search."""
    shop = lender(library, approve).with_policy(beta=0.4, epsilon=0.2)
    rows = shop.declined(25).copy()
    rows[::2, FEATURES.index("accounts")] = -9
    searched = 0
    for row in rows[~shop.accepts(rows)]:
        query = query_of(shop, row, {"income": "increase_only"})
        found = {target.tier: target for target in query.found}
        body = answer(shop.decide(row, policy_overrides={"income": "increase_only"}), shop.model).body
        assert [tier["tier"] for tier in body["tiers"]] == list(found)
        for tier in body["tiers"]:
            same = found[tier["tier"]]
            assert (tier["rank"], tier["from_tercile"]) == (same.rank, same.from_tercile)
            assert tier["comparator"]["reference"] == shop.model.matrix.references[same.comparator].tobytes().hex()
            target = shop.model.rules.encode(shop.features_of(row) | tier["target"])
            assert target.tobytes() == same.target.tobytes()
            searched += 1
    assert searched > 40


@PAIRS
@pytest.mark.parametrize("eligible", [0, 1, 2, 3])
def test_a_pool_of_few_eligible_people_still_serves_every_tier(
    library: Library, approve: Approve, eligible: int
) -> None:
    """Given fewer eligible people than tiers, those there are serve all tiers; with none there is no feasible recourse."""
    shop = lender(library, approve)
    accepted = shop.accepts(shop.pool)
    few = shop.with_pool(np.concatenate([shop.pool[~accepted][:30], shop.pool[accepted][:eligible]]))
    row = few.declined(1)[0]
    query = query_of(few, row, {})
    assert len(query.ranked) == eligible
    possible = bool(eligible) and bool((query.score(query.projections()) >= few.sign * query.cutoff).any())
    body = answer(few.decide(row), few.model).body
    assert body["status"] == ("ok" if possible else "no_feasible_recourse")
    assert [tier["tier"] for tier in body["tiers"]] == (list(TIERS) if possible else [])


@PAIRS
def test_no_feasible_recourse_keeps_its_reasons(library: Library, approve: Approve) -> None:
    """Given a surplus that no comparator has, or labels that fix everything, there is no recourse, and the reasons are all there."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    usual = answer(shop.decide(row), shop.model)
    fixed = answer(shop.decide(row, policy_overrides=dict.fromkeys(FEATURES, "immutable")), shop.model)
    alone = answer(shop.decide(row), shop.with_policy(epsilon=1000.0).model)
    assert usual.body["reasons"]
    for found in (fixed, alone):
        assert found.body["status"] == found.recommendation["status"] == "no_feasible_recourse"
        assert found.recommendation["proven"] is False
        assert not found.recommendation["tiers"]
        assert found.body["reasons"] == usual.body["reasons"]
        assert found.body["reasons_ledger"] == usual.body["reasons_ledger"]
        assert found.recommendation["reasons"] == usual.recommendation["reasons"]


@PAIRS
def test_a_comparator_has_the_surplus_that_policy_asks(library: Library, approve: Approve) -> None:
    """Given epsilon, each chosen comparator's own margin, by the library, is at least that far past the cutoff."""
    shop = lender(library, approve).with_policy(epsilon=0.7)
    scores_of = np.sort(shop.sign * shop.owner.ask(shop.pool, "margin").astype(np.float64))
    for row in shop.declined(10):
        for target in query_of(shop, row, {}).found:
            assert scores_of[target.comparator] >= shop.sign * shop.cutoff + 0.7
