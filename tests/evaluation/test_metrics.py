from __future__ import annotations

import math

import numpy as np
import pytest

from stream.recourse.answer import answer
from tests.evaluation import ours
from tests.evaluation.baselines.interface import Rows, Setting
from tests.evaluation.datasets import Dataset
from tests.evaluation.metrics import Yardstick, as_the_judge, measured, yardstick
from tests.evaluation.paper_method import PaperCoach
from tests.evaluation.training import CUTOFF, Kind, bootstraps, margins_by, setting_of

COLUMNS = ("income", "age", "purpose", "debts")
KIND = Kind("xgboost", 3, 12)
ROWS = 160


def _dataset() -> Dataset:
    rng = np.random.default_rng(3)
    x = np.column_stack(
        [rng.normal(3, 1, ROWS), rng.integers(18, 80, ROWS), rng.integers(0, 3, ROWS), rng.integers(0, 9, ROWS)]
    ).astype(np.float64)
    y = (x[:, 0] + x[:, 1] / 40 - x[:, 3] / 4 + (x[:, 2] == 1) + rng.normal(0, 0.4, ROWS) > 3.9).astype(np.int64)
    x[::11, 0] = np.nan
    return Dataset(name="adult", columns=COLUMNS, x=x, y=y, labels=("mutable", "immutable", "mutable", "decrease_only"))


@pytest.fixture(scope="module")
def setting() -> Setting:
    """A small model of the protocol, whose third feature is a category."""
    made = setting_of(KIND, _dataset(), np.arange(ROWS), 0)
    made.nominal[2] = True
    return made


@pytest.fixture(scope="module")
def yard(setting: Setting) -> Yardstick:
    """Its yardstick, with two retrained models."""
    return yardstick(setting, [margins_by(b, "xgboost", COLUMNS) for b in bootstraps(KIND, setting, 2, 9)])


@pytest.fixture
def declined(setting: Setting) -> Rows:
    """Declined people, one without an income among them."""
    rows: Rows = setting.x[~setting.accepted]
    return np.concatenate([rows[~np.isnan(rows[:, 0])][:5], rows[np.isnan(rows[:, 0])][:1]])


def _effort(setting: Setting, row: Rows, target: Rows) -> float:
    """By hand, feature by feature."""
    total = 0.0
    for j, (a, b) in enumerate(zip(row.tolist(), target.tolist(), strict=True)):
        if math.isnan(a) and math.isnan(b):
            continue
        if math.isnan(a) or math.isnan(b):
            total += 1
        elif a != b:
            total += 1 if setting.nominal[j] else abs(b - a) / float(setting.deviation[j])
    return total


def _manifold(setting: Setting, target: Rows) -> float:
    """By hand: every distance, the five least of them."""
    middle = [float(np.median(column[~np.isnan(column)])) for column in setting.x.T]
    distances = []
    for other in setting.x[setting.accepted]:
        squares = 0.0
        for j in range(len(target)):
            a, b = (middle[j] if math.isnan(v) else v for v in (float(target[j]), float(other[j])))
            squares += ((a - b) / float(setting.deviation[j])) ** 2
        distances.append(math.sqrt(squares))
    return math.fsum(sorted(distances)[:5]) / 5


def test_measures_are_those_added_up_by_hand(setting: Setting, yard: Yardstick, declined: Rows) -> None:
    """Given targets with a category, a missing value and none at all, when measured, then each figure is the one by hand."""
    targets: list[Rows | None] = [setting.x[setting.accepted][i].copy() for i in range(len(declined))]
    targets[1] = None
    found = measured(yard, declined, targets, undo=False)
    assert found["answered"] == [1, 0, 1, 1, 1, 1]
    for i, target in enumerate(targets):
        if target is None:
            assert (found["valid"][i], found["lasting"][i], found["effort"][i], found["manifold"][i]) == (
                0,
                0,
                None,
                None,
            )
            continue
        row = declined[i]
        changed = sum(not (a == b or (math.isnan(a) and math.isnan(b))) for a, b in zip(row, target, strict=True))
        accepts = [float(m(target[None])[0]) >= CUTOFF for m in yard.retrained]
        assert found["changed"][i] == changed
        assert found["valid"][i] == (float(setting.margins(target[None])[0]) >= CUTOFF)
        assert found["lasting"][i] == sum(accepts) / 2
        assert abs(found["effort"][i] - _effort(setting, row, target)) < 1e-12
        assert abs(found["manifold"][i] - _manifold(setting, target)) < 1e-9


def test_forbidden_moves_are_undone_before_anything_is_measured(yard: Yardstick, declined: Rows) -> None:
    """Given targets that change all features, when measured as feasible, then age and more debts stay as they were."""
    row = declined[0]
    target = row + np.array([1.0, 5.0, 0.0, 2.0])
    target[2] = (row[2] + 1) % 3
    less = target.copy()
    less[3] = row[3] - 1
    found = measured(yard, declined[:1], [target], undo=True)
    expected = row.copy()
    expected[[0, 2]] = target[[0, 2]]
    assert found == measured(yard, declined[:1], [expected], undo=False)
    expected[3] = less[3]
    assert measured(yard, declined[:1], [less], undo=True) == measured(yard, declined[:1], [expected], undo=False)


def test_nobody_answered_is_a_result_too(yard: Yardstick, declined: Rows) -> None:
    """Given a method that finds nothing, when summed up as the judge does, then coverage and validity are 0 and the rest is none."""
    found = as_the_judge(measured(yard, declined, [None] * len(declined), undo=True))
    assert (found["coverage"], found["valid"], found["effort"], found["manifold"]) == (0, 0, None, None)


def test_genuine_people_are_measured_against_others_than_themselves(setting: Setting, yard: Yardstick) -> None:
    """Given accepted people of the training set, when their own distance is asked, then none counts as its own neighbour."""
    placed = yard.place(setting.x[setting.accepted])
    distances = np.sqrt(((placed[:, None] - placed[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    assert abs(yard.genuine() - np.sort(distances, axis=1)[:, :5].mean()) < 1e-9


def test_ours_is_read_from_its_actions_and_its_ledgers_leave_nothing(setting: Setting, declined: Rows) -> None:
    """Given answers of ours, when read, then targets are accepted, the verifier finds error 0, and k actions are k moves."""
    model = ours.published(setting, KIND, 0)
    for row in declined:
        found = answer(ours.decision_of(model, row), model)
        audited = ours.audited(found)
        assert (float(audited.coverage), float(audited.error), audited.faults) == (1.0, 0.0, 0)
        for tier, target in ours.targets(row, found, COLUMNS).items():
            assert setting.accepts(target[None])[0], tier
            assert np.array_equal(setting.permitted(row, target), target, equal_nan=True)
            some = ours.targets(row, found, COLUMNS, 1)[tier]
            assert sum(a.tobytes() != b.tobytes() for a, b in zip(some, row, strict=True)) == 1


def test_the_papers_method_copies_its_comparator_on_decisive_features(setting: Setting, declined: Rows) -> None:
    """Given a declined row, when the paper's method answers, then the target is the row but for decisive features of someone accepted."""
    model = ours.published(setting, KIND, 0)
    for aware in (False, True):
        coach = PaperCoach(setting, model, aware=aware)
        for row in declined:
            one = coach.compared(row)
            assert setting.accepts(one.comparator[None])[0]
            others = np.setdiff1d(np.arange(len(row)), one.decisive)
            assert one.target()[others].tobytes() == row[others].tobytes()
            assert np.array_equal(one.target()[list(one.decisive)], one.comparator[list(one.decisive)], equal_nan=True)
            assert one.target(0).tobytes() == row.tobytes()
