from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.forest.trees import Library
from tests.evaluation.baselines import lime
from tests.evaluation.baselines.every import EVERY
from tests.evaluation.baselines.face import Face
from tests.evaluation.baselines.feature_tweaking import EPSILON, FeatureTweaking, paths_of
from tests.evaluation.baselines.greedy import Greedy, held_by_accepted
from tests.evaluation.baselines.interface import Label, Method, Rows, Setting
from tests.evaluation.baselines.lime import Lime, ridge
from tests.evaluation.baselines.nice import Nice
from tests.evaluation.baselines.shap import TreeShap
from tests.evaluation.baselines.treecf_search import Treecf, treecf_fast_seconds
from tests.evaluation.datasets import Dataset
from tests.evaluation.training import Kind, forest_of, setting_of
from tests.oracles.trees import trees_of

COLUMNS = ("income", "share", "debts", "accounts", "region", "age")
LABELS: tuple[Label, ...] = ("mutable", "mutable", "decrease_only", "increase_only", "mutable", "immutable")
REGION, AGE = 4, 5
ASKED = 12
ROUNDING = 1e-4  # of a float32 sum of a few leaves, in margin
METHODS: dict[str, Callable[[Setting], Method]] = {
    **EVERY,
    "treecf exact": partial(Treecf, exact=True),
    "treecf fills missing": partial(Treecf, fills_missing=True),
}
SETTINGS = ("xgboost", "lightgbm", "xgboost, approves below")


@cache
def invented(*, rows: int = 600, missing: float = 0.1, smooth: bool = False) -> Dataset:
    """People whose target hangs on every feature; `smooth` leaves only the two real numbers."""
    chance = np.random.default_rng(3)
    x = np.column_stack(
        [
            chance.lognormal(8, 0.5, rows),
            chance.uniform(0, 1, rows),
            chance.integers(0, 9, rows),
            chance.integers(0, 20, rows),
            chance.integers(0, 5, rows),
            chance.integers(18, 80, rows),
        ]
    )
    score = np.log(x[:, 0]) - 8 - x[:, 1] - x[:, 2] / 8 + x[:, 3] / 20 + (x[:, 4] == 2) + (x[:, 5] - 50) / 80
    y = (score + chance.normal(0, 0.2, rows) > 0).astype(np.int64)
    x[chance.random(x.shape) < missing] = np.nan
    width = 2 if smooth else len(COLUMNS)
    return Dataset(name="invented", columns=COLUMNS[:width], x=x[:, :width], y=y, labels=LABELS[:width])


@cache
def setting_for(name: str, *, trees: int = 12, depth: int = 3, **people: Any) -> Setting:
    """A small real model; where it approves below, it predicts the unfavourable outcome."""
    library: Library = "lightgbm" if name == "lightgbm" else "xgboost"
    data = invented(**people)
    below = name.endswith("below")
    asked = dataclasses.replace(data, y=1 - data.y) if below else data
    found = setting_of(Kind(library, depth, trees), asked, np.arange(len(data.x)), 0)
    found = dataclasses.replace(found, nominal=np.array([column == "region" for column in data.columns]))
    if not below:
        return found
    ask = found.margins
    return dataclasses.replace(
        found, y=data.y, sign=-1, margins=lambda rows: -ask(rows), accepted=-ask(found.x) >= found.cutoff
    )


def declined(setting: Setting) -> Rows:
    rows: Rows = setting.x[~setting.accepted][:ASKED]
    return rows


def moves(setting: Setting, row: Rows, target: Rows) -> float:
    """Effort in plain words: codes and moves from missing count 1."""
    total = 0.0
    for j, (a, b) in enumerate(zip(row, target, strict=True)):
        if not (a == b or (math.isnan(a) and math.isnan(b))):
            total += 1 if math.isnan(a) or setting.nominal[j] else abs(b - a) / setting.deviation[j]
    return total


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_what_a_rival_claims_is_accepted_by_the_library_and_is_the_same_again(method: str, name: str) -> None:
    """Given declined people, when each rival is asked, then the library accepts its targets, and a second one of its kind says the same."""
    setting = setting_for(name)
    first, second = METHODS[method](setting), METHODS[method](setting)
    rows = declined(setting)
    targets = [first.answer(row.copy()) for row in rows]
    found = [target for target in targets if target is not None]
    assert len(found) > ASKED // 2
    assert setting.accepts(np.array(found)).all()
    again = [second.answer(row) for row in reversed(rows)][::-1]
    assert [t if t is None else t.tobytes() for t in targets] == [t if t is None else t.tobytes() for t in again]


@pytest.mark.parametrize("method", METHODS)
def test_a_rival_leaves_the_row_it_is_asked_about_alone(method: str) -> None:
    """Given a declined row, when a rival is asked, then the row still holds what it held."""
    row = declined(setting_for("xgboost"))[0]
    before = row.tobytes()
    METHODS[method](setting_for("xgboost")).answer(row)
    assert row.tobytes() == before


def test_moves_against_the_labels_are_undone_and_missing_counts_as_either_direction() -> None:
    """Given a move of every feature up, down and from missing, when the forbidden ones are undone, then those that the labels permit stay."""
    setting = setting_for("xgboost")
    row = np.full(len(COLUMNS), 3.0)
    assert setting.permitted(row, row + 1).tolist() == [4, 4, 3, 4, 4, 3]
    assert setting.permitted(row, row - 1).tolist() == [2, 2, 2, 3, 2, 3]
    filled = setting.permitted(np.full(len(COLUMNS), np.nan), row)
    assert filled[:AGE].tolist() == [3.0] * AGE
    assert np.isnan(filled[AGE])


def test_nice_copies_its_nearest_neighbour_in_the_order_of_what_each_value_gains() -> None:
    """Given people with missing values, when NICE answers, then a plain loop over neighbours and steps says the same."""
    setting = setting_for("xgboost")
    method = Nice(setting)
    people = [x for x, y, accepted in zip(setting.x, setting.y, setting.accepted, strict=True) if accepted and y == 1]
    spread = setting.high - setting.low

    def apart(j: int, a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return float(math.isnan(a) != math.isnan(b))
        return float(a != b) if j == REGION else abs(a - b) / spread[j]

    for row in declined(setting):
        totals = [sum(apart(j, a, b) for j, (a, b) in enumerate(zip(row, x, strict=True))) for x in people]
        assert np.abs(method.distances(row) - totals).max() < 1e-12
        neighbour = people[int(method.distances(row).argmin())]
        target = row.copy()
        while setting.margins(target[None])[0] < setting.cutoff:
            steps = []
            for j, value in enumerate(neighbour):
                if apart(j, target[j], value) > 0:
                    step = target.copy()
                    step[j] = value
                    steps.append((float(setting.margins(step[None])[0]), -j, step))
            target = max(steps, key=lambda step: step[:2])[2]
        answer = method.answer(row)
        assert answer is not None
        assert answer.tobytes() == target.tobytes()


def test_face_goes_the_shortest_way_through_neighbours() -> None:
    """Given 200 people, each joined to 3, when FACE answers, then no way along the graph to any accepted person is shorter, and some lead past others."""
    setting, neighbours, passing = setting_for("xgboost", rows=200, missing=0.0), 3, 0
    placed = setting.x / setting.deviation
    apart = np.sqrt(((placed[:, None] - placed[None]) ** 2).sum(axis=2))
    near = np.argsort(apart, axis=1, kind="stable")[:, : neighbours + 1]
    ways = np.full(apart.shape, np.inf)
    for i, some in enumerate(near):
        ways[i, some] = ways[some, i] = apart[i, some]
    for k in range(len(ways)):  # Floyd and Warshall
        ways = np.minimum(ways, ways[:, k : k + 1] + ways[k])
    method = Face(setting, neighbours=neighbours)
    chance = np.random.default_rng(0)
    for row in declined(setting) + chance.normal(0, 0.01, len(COLUMNS)):
        joined = np.sqrt(((placed - row / setting.deviation) ** 2).sum(axis=1))
        first = np.argsort(joined, kind="stable")[:neighbours]
        lengths = (joined[first, None] + ways[first]).min(axis=0)
        answer = method.answer(row)
        assert answer is not None
        [reached] = np.flatnonzero((setting.x == answer).all(axis=1))
        assert setting.accepted[reached]
        assert lengths[reached] <= lengths[setting.accepted].min() + 1e-9
        passing += reached not in first
    assert passing


def test_face_leads_out_of_a_crowd_of_equals() -> None:
    """Given someone far from everyone but many copies of them, when FACE answers, then it reaches somebody else who is accepted."""
    setting = setting_for("xgboost", rows=200, missing=0.0)
    row = setting.low - 5 * setting.deviation
    crowd = dataclasses.replace(
        setting,
        x=np.vstack([setting.x, np.tile(row, (30, 1))]),
        accepted=np.concatenate([setting.accepted, np.zeros(30, np.bool_)]),
    )
    answer = Face(crowd, neighbours=5).answer(row)
    assert answer is not None
    assert setting.accepts(answer[None])[0]


def test_face_finds_nothing_where_nobody_is_accepted() -> None:
    """Given a model that accepts nobody, when FACE and NICE are asked, then neither has an answer."""
    setting = dataclasses.replace(setting_for("xgboost"), accepted=np.zeros(len(invented().x), np.bool_))
    assert Face(setting).answer(setting.x[0]) is None
    assert Nice(setting).answer(setting.x[0]) is None


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_feature_tweaking_finds_what_trying_every_leaf_finds(name: str) -> None:
    """Given a tiny forest of real numbers, when every leaf's tweak is tried one by one, then the cheapest accepted one is the answer."""
    setting = setting_for(name, trees=6, depth=2, missing=0.0, smooth=True)
    trees = trees_of(setting.booster)
    method = FeatureTweaking(setting)
    for row in declined(setting):
        own = leaves_of(setting, row[None])[0]
        tried = []
        for tree, leaf in zip(trees, own, strict=True):
            for other, path in tree.path.items():
                if tree.value[other] > tree.value[int(leaf)]:
                    target = tweaked(setting, row, path)
                    if setting.accepts(target[None])[0]:
                        tried.append((moves(setting, row, target), target))
        answer = method.answer(row)
        assert (answer is None) == (not tried)
        if answer is not None:
            assert abs(moves(setting, row, answer) - min(cost for cost, _ in tried)) < 1e-12
            assert any((answer == target).all() for _, target in tried)


def tweaked(setting: Setting, row: Rows, path: Any) -> Rows:
    """The row with what a path forbids moved past the threshold, or to the middle where the next one is too near."""
    target = row.copy()
    for j in {feature for _, feature, _, _ in path}:
        high = min((t for _, feature, t, left in path if feature == j and left), default=math.inf)
        low = max((t for _, feature, t, left in path if feature == j and not left), default=-math.inf)
        margin = EPSILON * setting.deviation[j]
        if row[j] > high:
            target[j] = high - margin if high - margin > low else (low + high) / 2
            target[j] = max(target[j], setting.low[j]) if setting.low[j] > low else target[j]
        elif row[j] < low:
            target[j] = low + margin if low + margin < high else (low + high) / 2
            target[j] = min(target[j], setting.high[j]) if setting.high[j] < high else target[j]
    return target


def leaves_of(setting: Setting, rows: Rows) -> Any:
    """The owner library's own leaf ids."""
    if setting.library == "lightgbm":
        return setting.booster.predict(rows, pred_leaf=True)
    asked = xgb.DMatrix(rows, feature_names=list(setting.columns))
    return setting.booster.predict(asked, pred_leaf=True)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_tweak_reaches_a_leaf_that_adds_more(name: str) -> None:
    """Given whole numbers and missing values, when a row is tweaked, then the library finds each copy in a better leaf of some tree, its whole numbers whole and in range."""
    setting = setting_for(name)
    trees = trees_of(setting.booster)
    for row in declined(setting):
        own = leaves_of(setting, row[None])[0]
        targets, costs = FeatureTweaking(setting).tweaks(row)
        for leaves in leaves_of(setting, targets):
            gains = [tree.value[int(b)] - tree.value[int(a)] for tree, a, b in zip(trees, own, leaves, strict=True)]
            assert max(setting.sign * gain for gain in gains) > 0
        moved = (targets != row) & ~np.isnan(targets)
        assert not (moved & setting.whole & (targets != np.round(targets))).any()
        assert not (moved & ((targets < setting.low) | (targets > setting.high))).any()
        assert np.abs(costs - [moves(setting, row, target) for target in targets]).max() < 1e-12


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_every_better_leaf_that_whole_numbers_can_reach_is_tweaked_into(name: str) -> None:
    """Given nothing missing, when a row is tweaked, then there is a copy for each leaf that adds more and has a whole number of the training range in each of its conditions."""
    setting = setting_for(name, missing=0.0)
    for row in declined(setting):
        own = leaves_of(setting, row[None])[0]
        paths = [
            path
            for tree, leaf in zip(trees_of(setting.booster), own, strict=True)
            for other, path in tree.path.items()
            if tree.value[other] > tree.value[int(leaf)]
        ]
        reachable = sum(all(can_obey(setting, path, j) for j in {step[1] for step in path}) for path in paths)
        assert len(FeatureTweaking(setting).tweaks(row)[0]) == reachable > 0


def can_obey(setting: Setting, path: Any, j: int) -> bool:
    """Whether some whole number of the training range goes a path's way at one feature; real numbers always can."""
    if not setting.whole[j]:
        return True
    steps = [(t, left) for _, feature, t, left in path if feature == j]
    goes_left = float.__lt__ if setting.library == "xgboost" else float.__le__
    numbers = map(float, range(int(setting.low[j]), int(setting.high[j]) + 1))
    return any(all(goes_left(number, t) == left for t, left in steps) for number in numbers)


def test_feature_tweaking_refuses_a_model_that_splits_on_categories() -> None:
    """Given a model with categories, when Feature Tweaking is made for it, then it says what it needs instead."""
    data = invented()
    codes = data.x[:, [REGION]]
    matrix = xgb.DMatrix(codes, data.y, feature_names=["region"], feature_types=["c"], enable_categorical=True)
    booster = xgb.train({"max_depth": 2, "objective": "binary:logistic", "nthread": 1}, matrix, 2)
    with pytest.raises(ValueError, match="numeric splits only"):
        paths_of(forest_of(booster, "xgboost"))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_shap_values_sum_to_the_margin(name: str) -> None:
    """Given rows with missing values, when the library says their SHAP values, then with the expectation they sum to the turned margin."""
    setting = setting_for(name)
    shap = TreeShap(setting)
    for row in declined(setting):
        assert abs(shap.with_expectation(row).sum() - setting.margins(row[None])[0]) < ROUNDING
        assert len(shap.of(row)) == len(COLUMNS)


class Fixed:
    """An attribution that says the same of everybody."""

    def __init__(self, *counts: float) -> None:
        self._counts = np.array(counts)

    def of(self, row: Rows) -> Rows:
        """Give what it was made with. Shape: as any attribution's."""
        del row
        return self._counts


@pytest.mark.parametrize(
    ("counts", "order"),
    [((-1.0, -3.0, -2.0, 1.0, -0.5, 0.0), (1, 2, 0, 4)), ((3.0, -1.0, 2.0, 1.0, -0.5, 0.0), (1, 4))],
)
def test_greedy_follows_the_attributions_order_to_the_first_move_that_is_enough(
    counts: tuple[float, ...], order: tuple[int, ...]
) -> None:
    """Given an attribution, when greedy answers, then a plain walk over values that accepted people hold, of the features against the person, says the same."""
    setting = setting_for("xgboost")
    held = held_by_accepted(setting)
    method = Greedy(setting, "fixed", Fixed(*counts))
    lengths = set()
    for row in declined(setting):
        answer, target = method.answer(row), row
        for moved, j in enumerate(order):
            tried = []
            for value in held[j]:
                step = target.copy()
                step[j] = value
                tried.append((float(setting.margins(step[None])[0]), step))
            enough = [(moves(setting, row, step), -margin, step) for margin, step in tried if margin >= setting.cutoff]
            if enough:
                others = moves(setting, row, target)
                wanted = min(enough, key=lambda one: (one[0] - others, one[1]))[2]
                assert answer is not None
                assert answer.tobytes() == wanted.tobytes()
                lengths.add(moved)
                break
            best = max(tried, key=lambda one: one[0])
            target = best[1] if best[0] > setting.margins(target[None])[0] else target
        else:
            assert answer is None
    assert lengths
    assert max(lengths) > 0


def test_what_accepted_people_hold_is_tried() -> None:
    """Given accepted people with missing values, when asked what they hold, then it is their codes, and at most 19 of their own numbers between the extremes."""
    setting = setting_for("xgboost")
    for j, values in enumerate(held_by_accepted(setting)):
        theirs = {v for v in setting.x[setting.accepted][:, j].tolist() if not math.isnan(v)}
        assert set(values.tolist()) == theirs if j == REGION else set(values.tolist()) <= theirs
        assert j == REGION or min(theirs) < values[0] < values[-1] < max(theirs) or setting.whole[j]
        assert len(values) <= 19
        assert (np.diff(values) > 0).all()


def test_lime_finds_the_feature_that_decides() -> None:
    """Given a model that asks for one feature alone, when LIME explains someone it declines, then that feature counts against them and no other does as much."""
    setting = setting_for("xgboost", missing=0.0)
    on_debts = dataclasses.replace(setting, margins=lambda rows: 4 - rows[:, 2], cutoff=0.0)
    row = setting.x[setting.x[:, 2] == 8][0]
    weights = Lime(on_debts).of(row)
    assert weights.argmin() == 2
    assert np.delete(np.abs(weights), 2).max() < -weights[2] / 4


def test_limes_regression_is_the_least_squares_of_its_penalty() -> None:
    """Given weighted points, when the ridge is solved, then it equals the plain least squares of points and penalty stacked."""
    chance = np.random.default_rng(1)
    x, y, weight = chance.random((50, 4)), chance.random(50), chance.random(50)
    root = np.sqrt(weight)[:, None]
    points = np.hstack([x, np.ones((50, 1))]) * root
    penalty = np.hstack([np.eye(4) * np.sqrt(lime.RIDGE), np.zeros((4, 1))])
    stacked, goal = np.vstack([points, penalty]), np.concatenate([y * root[:, 0], np.zeros(4)])
    assert np.abs(ridge(x, y, weight) - np.linalg.lstsq(stacked, goal)[0][:4]).max() < 1e-9


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_treecf_keeps_the_labels_and_whole_numbers(name: str, *, exact: bool) -> None:
    """Given labels, whole numbers and missing values, when treecf answers, then no move is against a label, whole numbers are whole and missing stays missing."""
    setting = setting_for(name)
    method, found = Treecf(setting, exact=exact), 0
    for row in declined(setting):
        target = method.answer(row)
        if target is not None:
            found += 1
            assert setting.permitted(row, target).tobytes() == target.tobytes()
            assert (np.isnan(target) == np.isnan(row)).all()
            moved = ~np.isnan(row) & (target != row)
            assert not (moved & setting.whole & (target != np.round(target))).any()
    assert found > ASKED // 2


def test_treecf_fills_what_is_missing_where_it_may() -> None:
    """Given people with missing values, when treecf may fill them, then it does for someone, and empties no feature."""
    setting = setting_for("xgboost")
    rows = declined(setting)
    targets = [Treecf(setting, fills_missing=True).answer(row) for row in rows]
    pairs = [(np.isnan(row), np.isnan(t)) for row, t in zip(rows, targets, strict=True) if t is not None]
    assert any((before & ~after).any() for before, after in pairs)
    assert not any((after & ~before).any() for before, after in pairs)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_surplus_is_a_margin_beyond_the_cutoff(name: str) -> None:
    """Given growing surpluses, when treecf answers, then each target's margin by the library is at least that far beyond the cutoff."""
    setting = setting_for(name)
    for surplus in (0.0, 0.2, 0.4):
        method = Treecf(setting, surplus=surplus)
        targets = [target for row in declined(setting) if (target := method.answer(row)) is not None]
        assert len(targets) > ASKED // 3
        assert (setting.margins(np.array(targets)) >= setting.cutoff + surplus - ROUNDING).all()


def test_exact_is_never_dearer_than_fast_in_what_treecf_minimises_and_for_some_cheaper() -> None:
    """Given a model of 40 trees, when both modes answer, then exact's moves in deviations are no more than fast's, and for someone fewer."""
    setting = setting_for("xgboost", trees=40)
    fast, exact = Treecf(setting), Treecf(setting, exact=True)
    compared = cheaper = 0
    for row in declined(setting):
        answers = [method.answer(row) for method in (exact, fast)]
        efforts = [np.nansum(np.abs(a - row) / setting.deviation) for a in answers if a is not None]
        compared += len(efforts) == 2
        assert all(a <= b + 1e-9 for a, b in pairwise(efforts))
        cheaper += any(a < b - 1e-9 for a, b in pairwise(efforts))
    assert compared > ASKED // 2
    assert cheaper


def test_treecfs_names_say_how_it_was_asked() -> None:
    """Given the ways to ask treecf, when their names are read, then each is told from the others."""
    setting = setting_for("xgboost")
    ways: list[dict[str, Any]] = [{}, {"exact": True}, {"surplus": 2.0}, {"surplus": 2.5}, {"fills_missing": True}]
    names = [Treecf(setting, **way).name for way in ways]
    assert names[:3] == ["treecf fast", "treecf exact", "treecf fast surplus 2"]
    assert len(set(names)) == len(ways)


def test_treecf_is_timed_once_a_row() -> None:
    """Given four rows, when treecf's fast mode is timed on them, then there are four times above nothing and below what a test may last."""
    setting = setting_for("xgboost")
    seconds = treecf_fast_seconds(setting, declined(setting)[:4])
    assert seconds.shape == (4,)
    assert ((seconds > 0) & (seconds < 60)).all()
