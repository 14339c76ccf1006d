from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from stream.events import RecommendedTier
from stream.recourse.answer import answer
from stream.recourse.rules.policy import NUMBERS
from stream.recourse.search.robust_space import ASSUMED_DEVIATION
from stream.recourse.search.robust_targets import OTHER_COST_MAX
from stream.recourse.search.shadows import Shadows
from tests.forest.models import Owner, forest_of, owner_of
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, applicants, lender, lender_of

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
SHADOWS = 5
PEOPLE = 25


def trained(library: Library, pool: Rows, target: Rows, **changes: Any) -> Any:
    """A small model by its own library."""
    if library == "xgboost":
        settings = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.3, "nthread": 1, "seed": 0, "verbosity": 0}
        return xgb.train(settings | changes, xgb.DMatrix(pool, target, feature_names=list(FEATURES), nthread=1), 14)
    settings = {"objective": "binary", "max_depth": 3, "num_leaves": 8, "learning_rate": 0.3, "verbose": -1, "seed": 0}
    settings |= {"num_threads": 1, "deterministic": True, "min_data_in_leaf": 5}
    return lgb.train(settings | changes, lgb.Dataset(pool, target, feature_name=list(FEATURES)), 14)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Shadowed:
    """A lender, and the owner libraries' own models of its shadows."""

    shop: Lender
    owners: tuple[Owner, ...]

    def asked(self, row: Rows) -> tuple[list[Owner], list[Owner]]:
        """Whom an applicant's search asks, and who is held out."""
        shadows = self.shop.model.shadows
        ring = [self.owners[k] for k in shadows.ring(row)]
        return ring[: shadows.searched], ring[shadows.searched :]


@cache
def shadowed(library: Library, approve: Approve) -> Shadowed:
    """Train shadows on bootstraps of the lender's own pool."""
    pool, paid = applicants(0, 240)
    target = (paid if approve == "above" else 1 - paid).astype(np.float64)
    drawn = [np.random.default_rng(seed).integers(0, len(pool), len(pool)) for seed in range(SHADOWS)]
    boosters = [trained(library, pool[at], target[at]) for at in drawn]
    forests = [forest_of(booster) for booster in boosters]
    owners = tuple(owner_of(booster, forest) for booster, forest in zip(boosters, forests, strict=True))
    return Shadowed(shop=lender(library, approve).with_model(shadows=Shadows(forests=tuple(forests))), owners=owners)


def targets(shop: Lender, row: Rows) -> list[tuple[Rows, float | None, float]]:
    """The target row of each tier, with its share and its effort."""
    body = answer(shop.decide(row), shop.model).body
    decided = shop.features_of(row)
    return [
        (shop.model.rules.encode(decided | tier["target"]), tier["robust_share"], tier["effort"])
        for tier in body["tiers"]
    ]


def past(shop: Lender, owner: Owner, target: Rows) -> float:
    """How far past the cutoff a model's own library puts a target; more is better."""
    return shop.sign * (float(owner.ask(target[None], "margin")[0]) - shop.cutoff)


@PAIRS
def test_the_share_told_is_that_of_the_held_out_shadows_by_their_own_library(
    library: Library, approve: Approve
) -> None:
    """Given shadows, the robust share of each tier, in both records, is what the owner library says of those that its search does not ask: of all for near, else of those held out; they are not all of one mind."""
    asked = shadowed(library, approve)
    shop, seen = asked.shop, set()
    for row in shop.declined(PEOPLE):
        searched, held_out = asked.asked(row)
        assert (len(searched), len(held_out)) == (3, 2)
        for k, (target, share, _) in enumerate(targets(shop, row)):
            unasked = held_out if k else [*searched, *held_out]
            accepting = [past(shop, owner, target) >= 0 for owner in unasked]
            assert share == sum(accepting) / len(accepting)
            seen.add(share)
        answered = answer(shop.decide(row), shop.model)
        told = [tier["robust_share"] for tier in answered.recommendation["tiers"]]
        assert told == [tier["robust_share"] for tier in answered.body["tiers"]]
    assert len(seen) > 1


@PAIRS
def test_without_shadows_no_share_is_told(library: Library, approve: Approve) -> None:
    """Given a model without shadows, the robust share is null in both records."""
    for answered in lender(library, approve).answers(5):
        for tier in (*answered.body["tiers"], *answered.recommendation["tiers"]):
            assert tier["robust_share"] is None


@PAIRS
def test_mid_is_worth_no_less_than_near_to_the_shadows(library: Library, approve: Approve) -> None:
    """Given shadows, what mid costs and what the searched ones miss of their surplus, priced by the policy, is together no more than near's, and altogether more of them accept mid."""
    asked = shadowed(library, approve)
    shop, policy = asked.shop, asked.shop.model.policy
    assert shop.model.robust is not None
    unit = shop.model.robust.deviation
    accepting, better = [0, 0], 0
    for row in shop.declined(PEOPLE):
        found = targets(shop, row)[:2]
        worth = []
        for k, (target, _, effort) in enumerate(found):
            margins = [past(shop, owner, target) / unit for owner in asked.asked(row)[0]]
            wishes = [policy.mid_surplus_price * max(0.0, policy.mid_surplus - margin) for margin in margins]
            moved = int(((target != row) & ~np.isnan(target)).sum())
            worth.append(effort + policy.action_cost * moved + float(np.mean(wishes)))
            accepting[k] += sum(margin >= 0 for margin in margins)
        if found:
            assert worth[1] <= worth[0] + 1e-4
            better += worth[1] < worth[0] - 1e-4
    assert accepting[1] > accepting[0]
    assert better > 5


@PAIRS
def test_near_does_not_depend_on_shadows(library: Library, approve: Approve) -> None:
    """Given a model with shadows and without, near is the same, and what lasts is not."""
    asked, plain = shadowed(library, approve).shop, lender(library, approve)
    other = 0
    for row in plain.declined(PEOPLE):
        with_them, without = targets(asked, row), targets(plain, row)
        assert [t[0].tobytes() for t in with_them[:1]] == [t[0].tobytes() for t in without[:1]]
        other += [t[0].tobytes() for t in with_them[1:]] != [t[0].tobytes() for t in without[1:]]
    assert other > 5


def log_odd_of(shop: Lender) -> float:
    """How many margins one log odd is to a model without shadows."""
    assert shop.model.robust is not None
    return shop.model.robust.deviation / ASSUMED_DEVIATION


@PAIRS
def test_a_logistic_margin_is_a_log_odd(library: Library, approve: Approve) -> None:
    """Given a logistic model, one log odd is one margin, to three roundings of the model's floats."""
    shop = lender(library, approve)
    assert abs(log_odd_of(shop) - 1.0) <= 3 * float(np.finfo(shop.model.forest.dtype).eps)


def test_a_steeper_or_flatter_link_has_another_unit() -> None:
    """Given LightGBM's sigmoid of a half, one log odd is two margins, and of two it is half a margin, to three roundings."""
    pool, paid = applicants(0, 240)
    for sigmoid in (0.5, 2.0):
        shop = lender_of(trained("lightgbm", pool, paid.astype(np.float64), sigmoid=sigmoid), pool.copy(), "above")
        assert abs(log_odd_of(shop) * sigmoid - 1.0) <= 3 * float(np.finfo(np.float64).eps)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_model_without_odds_is_measured_by_its_pool(library: Library) -> None:
    """Given a regression, a log odd is the share of the pool's deviation that it is of the logistic distribution's."""
    pool, paid = applicants(0, 240)
    objective = "reg:squarederror" if library == "xgboost" else "regression"
    booster = trained(library, pool, paid.astype(np.float64), objective=objective)
    shop = lender_of(booster, pool.copy(), "above", scale="margin")
    deviation = float(np.std(np.sort(shop.owner.ask(pool, "margin").astype(np.float64))))  # added in the pool's order
    assert shop.model.robust is not None
    assert shop.model.robust.deviation == ASSUMED_DEVIATION * (deviation / (math.pi / math.sqrt(3)))
    assert log_odd_of(shop) < 1.0


@PAIRS
def test_a_deviation_is_what_shadows_lie_from_the_model(library: Library, approve: Approve) -> None:
    """Given shadows, a deviation is the median over the pool of the root mean square of what their own libraries' margins differ from the model's."""
    asked = shadowed(library, approve)
    shop = asked.shop
    assert shop.model.robust is not None
    rows = shop.model.matrix.rows
    own = shop.owner.ask(rows, "margin").astype(np.float64)
    apart = np.array([owner.ask(rows, "margin").astype(np.float64) - own for owner in asked.owners])
    by_hand = sorted(math.sqrt(sum(x * x for x in column.tolist()) / len(column)) for column in apart.T)
    middle = len(by_hand) // 2
    due = by_hand[middle] if len(by_hand) % 2 else (by_hand[middle - 1] + by_hand[middle]) / 2
    assert abs(shop.model.robust.deviation - due) <= 4 * math.ulp(due)
    assert shop.model.robust.deviation != ASSUMED_DEVIATION


@PAIRS
def test_shadows_that_say_what_the_model_says_tell_no_deviation(library: Library, approve: Approve) -> None:
    """Given shadows with the model's own margins, the deviation is what is assumed without any."""
    shop = lender(library, approve)
    same = shop.with_model(shadows=Shadows(forests=(shop.model.forest, shop.model.forest))).model
    assert same.robust is not None
    assert shop.model.robust is not None
    assert same.robust.deviation == shop.model.robust.deviation


@PAIRS
def test_three_tiers_are_one_only_where_no_other_way_is_near(library: Library, approve: Approve) -> None:
    """Given prices for which near is the best of every tier, far does without a move of near's, for at most three times the cost; where it does not, the person who cannot make one of these moves has no such way."""
    plain = lender(library, approve)
    free: Any = {name: 0.0 for name in NUMBERS if name.startswith(("mid_", "far_"))}
    shop, others = plain.with_model(policy=dataclasses.replace(plain.model.policy, **free)), 0
    for row in shop.declined(PEOPLE):
        tiers = answer(shop.decide(row), shop.model).recommendation["tiers"]
        if not tiers:
            continue
        near, mid, far = (moved(tier) for tier in tiers)
        assert near == mid
        if near != far:
            others += 1
            assert near.keys() - far.keys()
            assert price(shop, tiers[2]) <= OTHER_COST_MAX * price(shop, tiers[0])
            continue
        for name in near:
            kept = shop.decide(row, policy_overrides={name: "immutable"})
            again = answer(kept, shop.model).recommendation["tiers"]
            assert not again or price(shop, again[0]) > OTHER_COST_MAX * price(shop, tiers[0])
    assert others > 5


def moved(tier: RecommendedTier) -> dict[str, object]:
    """What a tier asks for."""
    return {action["feature"]: action["to"] for action in tier["actions"]}


def price(shop: Lender, tier: RecommendedTier) -> float:
    """What a tier costs."""
    return tier["effort"] + shop.model.policy.action_cost * len(tier["actions"])
