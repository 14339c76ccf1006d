from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.events import TIERS
from stream.forest.walk import leaf_slots
from stream.recourse.answer import answer
from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.comparators.people import coordinates_of_row, distances
from stream.recourse.comparators.ranking import Ranking, ranking
from stream.recourse.rules.feature_rule import LABELS, Mutability
from stream.recourse.rules.policy import Policy
from stream.recourse.search.robust_targets import OTHER_COST_MAX
from stream.recourse.search.tier_targets import (
    AIMED_RANKS_MAX,
    FIRST_CHUNK,
    TierTarget,
    TierTargets,
    prune,
    targets_of,
)
from stream.recourse.space.person_reach import PersonReach, person_reach
from tests.examples import examples
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
TIGHTER = {
    name: [label for label in LABELS if own in (Mutability.MUTABLE, LABELS[label]) or label == "immutable"]
    for name, own in zip(FEATURES, [r.mutability for r in lender("xgboost").model.rules.rules], strict=True)
}
overrides = st.fixed_dictionaries({}, optional={name: st.sampled_from(labels) for name, labels in TIGHTER.items()})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """One declined row, ranked and searched, and how far each comparator alone would bring it. `ranked`: everyone's scores."""

    shop: Lender
    reach: PersonReach
    ranking: Ranking
    ranked: Rows
    first: int
    cutoff: float

    @property
    def outcome(self) -> TierTargets:
        """What our search finds, or proves."""
        return targets_of(self.shop.model, self.reach, self.ranking, first=self.first, cutoff=self.cutoff)

    @property
    def found(self) -> tuple[TierTarget, ...]:
        """What our search finds."""
        return self.outcome.targets

    @property
    def by_ranking(self) -> tuple[TierTarget, ...]:
        """What is found for a model that is not searched: the ends of the walk."""
        model = dataclasses.replace(self.shop.model, robust=None)
        return targets_of(model, self.reach, self.ranking, first=self.first, cutoff=self.cutoff).targets

    def price(self, target: Rows) -> float:
        """What a target costs: per feature its cost times the scales moved, one for a category or a first value, and the action."""
        model, total = self.shop.model, 0.0
        for j, rule in enumerate(model.rules.rules):
            own, to = float(self.reach.row[j]), float(target[j])
            if to != own and not np.isnan(to):
                one = rule.type == "category" or rule.is_unrecorded(own)
                total += rule.cost * (1.0 if one else abs(to - own) / model.matrix.scales[j]) + model.policy.action_cost
        return total

    def walked(self, k: int) -> Rows | None:
        """What the walk of the k-th tier ends with, after pruning; None where it finds nobody."""
        rank = self.rank(k)
        if rank is None:
            return None
        own, walked = self.walk(k)
        target = self.projections()[walked[rank]]
        least = tier_floor(self, own[0]) if own else self.shop.sign * self.cutoff
        floor = min(least, float(self.score(target[None])[0]))
        return prune(self.shop.model.forest, self.reach, target, floor=floor, sign=self.shop.sign)

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
    ranked = ranking(
        model.forest,
        model.matrix,
        model.rules,
        query_slots=leaf_slots(model.forest, row[None])[0],
        query_row=without_no_record(row[None], model.rules)[0],
        mutability=mutability,
        first=first,
        beta=model.policy.beta,
        magnitudes=model.magnitudes,
    )
    cells = model.cells.of(row[None])[0]
    reach = person_reach(model.rules, model.matrix, model.cell_targets, row=row, cells=cells, mutability=mutability)
    return Query(shop=shop, reach=reach, ranking=ranked, ranked=ranked.scores(), first=first, cutoff=cutoff)


@PAIRS
@settings(max_examples=examples(7))
@given(place=st.integers(0, 100), tightened=overrides, threshold=st.sampled_from([0.5, 0.3, 0.7]))
def test_the_best_ranked_that_the_library_accepts_is_taken(
    library: Library, approve: Approve, place: int, tightened: dict[str, str], threshold: float
) -> None:
    """Given a model that is not searched and any labels, each tier takes, of its tercile and then of all, the best-ranked whose projection scores as its tercile does, else the best-ranked that the library accepts; they are empty only where there is none."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened, threshold)
    if query.score(query.reach.row[None])[0] >= shop.sign * query.cutoff:
        return
    accepted = query.score(query.projections()) >= shop.sign * query.cutoff
    found = {target.tier: target for target in query.by_ranking}
    assert list(found) == (list(TIERS) if accepted.any() else [])
    for k, tier in enumerate(TIERS):
        own, walked = query.walk(k)
        first = query.rank(k)
        if first is not None:
            assert found[tier].rank == first
            assert found[tier].comparator == query.first + walked[first]
            assert found[tier].from_tercile == (walked[first] in own)


@PAIRS
@settings(max_examples=examples(7))
@given(place=st.integers(0, 100), tightened=overrides, threshold=st.sampled_from([0.5, 0.3, 0.7]))
def test_near_is_accepted_and_no_dearer_than_the_walk(
    library: Library, approve: Approve, place: int, tightened: dict[str, str], threshold: float
) -> None:
    """Given any labels, near is there where the walk finds anyone; the library accepts it, it costs no more than the walk's pruned target and stays within the labels, and beside each tier stands the best-ranked of its tercile."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened, threshold)
    if query.score(query.reach.row[None])[0] >= shop.sign * query.cutoff:
        return
    near = next((target for target in query.found if target.tier == "near"), None)
    walked = query.walked(0)
    assert near is not None or walked is None
    if near is None:
        return
    assert query.score(near.target[None])[0] >= shop.sign * query.cutoff
    assert walked is None or query.price(near.target) <= query.price(walked)
    for k, target in enumerate(query.found):
        own, order = query.walk(k)
        assert (target.rank, target.comparator) == (0, query.first + order[0])
        assert target.from_tercile == (order[0] in own)
    moves = np.nan_to_num(near.target - query.reach.row)
    labels = query.reach.mutability
    assert not moves[labels == Mutability.IMMUTABLE].any()
    assert (moves[labels == Mutability.INCREASE_ONLY] >= 0).all()
    assert (moves[labels == Mutability.DECREASE_ONLY] <= 0).all()


@pytest.mark.parametrize(("library", "approve"), LENDERS)
def test_without_groups_near_is_seldom_dearer_than_the_walk_and_cheaper_on_average(
    library: Library, approve: Approve
) -> None:
    """Given forty people of a lender without groups, near's comparator is the best-ranked of its tercile, at most one pays more than the walk's pruned target asks, and all together pay less."""
    shop = category_lender(library, approve)
    dearer, near, walk = 0, 0.0, 0.0
    for row in shop.declined(40):
        query = query_of(shop, row, {})
        found = query.found
        walked = query.walked(0)
        if walked is None:
            continue
        assert (found[0].tier, found[0].rank, found[0].from_tercile) == ("near", 0, True)
        one, other = query.price(found[0].target), query.price(walked)
        dearer, near, walk = dearer + (one > other), near + one, walk + other
    assert dearer <= 1
    assert 0 < near < walk


@PAIRS
def test_a_dearer_action_makes_no_longer_lists(library: Library, approve: Approve) -> None:
    """Given forty people, near has no more actions on average where each has a high price than where it has none."""
    moved = []
    for cost in (0.0, 2.0):
        shop = category_lender(library, approve).with_policy(action_cost=cost)
        near = [(row, query_of(shop, row, {}).found[:1]) for row in shop.declined(40)]
        moved.append(sum(int(((to.target != row) & ~np.isnan(to.target)).sum()) for row, found in near for to in found))
    assert moved[0] >= moved[1] > 0


@PAIRS
def test_a_long_walk_counts_every_step(library: Library, approve: Approve) -> None:
    """Given a model that is not searched and labels that leave few features free, the one taken may stand far down the ranking: its rank is the number passed over."""
    shop = lender(library, approve)
    fixed = dict.fromkeys(set(FEATURES) - {"debts", "share", "purpose"}, "immutable")
    ranks = []
    for row in shop.declined(60):
        query = query_of(shop, row, fixed)
        for target in query.by_ranking:
            assert target.rank == query.rank(TIERS.index(target.tier))
            ranks.append(target.rank)
    assert max(ranks) > FIRST_CHUNK


@PAIRS
@settings(max_examples=examples(7))
@given(place=st.integers(0, 100), tightened=overrides)
def test_pruning_leaves_no_move_that_could_be_given_back(
    library: Library, approve: Approve, place: int, tightened: dict[str, str]
) -> None:
    """Given a target that was walked to, it keeps to the projection it came from, reaches the tercile's least score or the projection's own, and loses that with any move less."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened)
    row = query.reach.row
    for k, target in enumerate(query.by_ranking):
        whole = query.projections()[target.comparator - query.first]
        kept = target.target.view(np.int64)
        moved = [j for j in range(len(row)) if kept[j] != row.view(np.int64)[j]]
        assert moved
        assert kept[moved].tolist() == whole.view(np.int64)[moved].tolist()
        low, high = len(query.ranked) * k // 3, len(query.ranked) * (k + 1) // 3
        assert low < high
        floor = min(tier_floor(query, low), float(query.score(whole[None])[0]))
        assert query.score(target.target[None])[0] >= floor >= shop.sign * query.cutoff
        grouped = {j: unit.members for unit in shop.model.rules.units for j in unit.members}
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
    tiers = [tier["tier"] for tier in body["tiers"]]
    assert body["status"] == ("ok" if tiers else "no_feasible_recourse")
    assert tiers == list(TIERS) if possible else tiers in ([], list(TIERS) if eligible else [])


@PAIRS
def test_no_feasible_recourse_keeps_its_reasons(library: Library, approve: Approve) -> None:
    """Given labels that fix everything, or a surplus that no comparator has, there is no recourse, which only the labels prove; and the reasons are all there."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    usual = answer(shop.decide(row), shop.model)
    fixed = answer(shop.decide(row, policy_overrides=dict.fromkeys(FEATURES, "immutable")), shop.model)
    alone = answer(shop.decide(row), shop.with_policy(epsilon=1000.0).model)
    assert usual.body["reasons"]
    assert fixed.recommendation["proven"] is True
    assert alone.recommendation["proven"] is False
    for found in (fixed, alone):
        assert found.body["status"] == found.recommendation["status"] == "no_feasible_recourse"
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


def permitted(query: Query, target: Rows) -> bool:
    """Whether a target keeps to the labels of the decision."""
    moves = np.nan_to_num(target - query.reach.row)
    labels = query.reach.mutability
    up, down = moves[labels == Mutability.INCREASE_ONLY], moves[labels == Mutability.DECREASE_ONLY]
    return not moves[labels == Mutability.IMMUTABLE].any() and bool((up >= 0).all() and (down <= 0).all())


@PAIRS
@settings(max_examples=examples(7))
@given(place=st.integers(0, 100), tightened=overrides, threshold=st.sampled_from([0.5, 0.3, 0.7]))
def test_all_tiers_are_there_or_none_and_all_are_accepted_and_permitted(
    library: Library, approve: Approve, place: int, tightened: dict[str, str], threshold: float
) -> None:
    """Given any labels, where near is there so are mid and far; the library accepts each, each keeps to the labels, and none is found where there is a proof of none."""
    shop = lender(library, approve)
    query = query_of(shop, shop.declined(101)[place], tightened, threshold)
    if query.score(query.reach.row[None])[0] >= shop.sign * query.cutoff:
        return
    outcome = query.outcome
    assert [target.tier for target in outcome.targets] in ([], list(TIERS))
    assert not (outcome.proven and (outcome.targets or query.by_ranking))
    for target in outcome.targets:
        assert query.score(target.target[None])[0] >= shop.sign * query.cutoff
        assert permitted(query, target.target)


def without_prices(shop: Lender, *kept: str) -> Lender:
    """The same lender where mid and far pay for nothing but effort, actions and what is kept."""
    names = [f.name for f in dataclasses.fields(Policy) if f.name.endswith("_price") and f.name not in kept]
    return shop.with_policy(**dict.fromkeys(names, 0.0))


@PAIRS
def test_where_nothing_has_a_price_mid_and_far_cost_no_more_than_near(library: Library, approve: Approve) -> None:
    """Given that neither shortness nor distance has a price, mid costs no more than near, and far no more than mid, unless it is another way than one that near and mid share."""
    shop = without_prices(category_lender(library, approve))
    seen = 0
    for row in shop.declined(25):
        query = query_of(shop, row, {})
        if not query.found:
            continue
        near, mid, far = (target.target for target in query.found)
        assert query.price(mid) <= query.price(near)
        shared = near.tobytes() == mid.tobytes()
        assert query.price(far) <= query.price(mid) * (OTHER_COST_MAX if shared else 1)
        kept = (far == near) | (np.isnan(far) & np.isnan(near))
        assert query.price(far) <= query.price(mid) or not kept[near != row].all()
        seen += 1
    assert seen > 15


@PAIRS
def test_mid_keeps_a_surplus_that_near_does_not_have(library: Library, approve: Approve) -> None:
    """Given forty people and no shadows, mid's margin by the library is never less than near's, at a dearer price it is more on average, and near is the same."""
    shop = category_lender(library, approve)
    dear = shop.with_policy(mid_surplus_price=50.0)
    gained, same, all_of = 0.0, 0, 0
    for row in shop.declined(40):
        usual, other = query_of(shop, row, {}).found, query_of(dear, row, {}).found
        if not usual:
            continue
        query = query_of(shop, row, {})
        near, mid = (float(query.score(target.target[None])[0]) for target in usual[:2])
        assert mid >= near
        gained += float(query.score(other[1].target[None])[0]) - near
        assert other[0].target.tobytes() == usual[0].target.tobytes()
        same += usual[1].target.tobytes() == usual[0].target.tobytes()
        all_of += 1
    assert gained > 0.5 * all_of
    assert same < all_of


@PAIRS
def test_far_is_nearer_to_accepted_people_than_near(library: Library, approve: Approve) -> None:
    """Given forty people, the mean distance of far to the five nearest accepted people is less than near's."""
    shop = category_lender(library, approve)
    model = shop.model
    assert model.robust is not None
    accepted = model.robust.people.coordinates[model.matrix.first_past(shop.cutoff, shop.sign) :]
    near: list[npt.NDArray[np.float32]] = []
    far: list[npt.NDArray[np.float32]] = []
    for row in shop.declined(40):
        if found := query_of(shop, row, {}).found:
            for places, target in ((near, found[0]), (far, found[2])):
                places.append(coordinates_of_row(target.target, model.rules, model.matrix, model.cells))
    nominal = model.robust.people.nominal
    assert len(near) > 20
    assert distances(accepted, nominal, np.array(far)).mean() < distances(accepted, nominal, np.array(near)).mean()
