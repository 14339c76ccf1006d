from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stream.bundle.gate import probe_rows
from stream.bundle.gate.probe_rows import (
    BATCH_ROWS,
    COMBINATIONS,
    STRANGE_CODES,
    TOGETHER_MAX,
    TRIPPING,
    ProbeBatch,
    ProbeRows,
)
from tests.forest.models import USUAL, Rows, forest_of, lightgbm_model, xgboost_model

POOL = USUAL.data()[0]
CATEGORIES = dataclasses.replace(USUAL, categories=1, cardinality=9)


def all_of(rows: ProbeRows) -> dict[str, list[ProbeBatch]]:
    found: dict[str, list[ProbeBatch]] = {kind: [] for kind in rows.counts}
    for asked in rows.batches():
        found[asked.kind].append(asked)
    return found


def values(batches: list[ProbeBatch], feature: int) -> set[float]:
    """What was put into one feature."""
    return {
        float(row[feature]) for asked in batches for i, row in enumerate(asked.rows) if asked.placed(i) == (feature,)
    }


@pytest.mark.parametrize("model", [xgboost_model, lightgbm_model])
def test_every_threshold_and_its_neighbours_are_asked(model: Any) -> None:
    """Given a forest, each threshold of each feature is asked, and one ulp to each side of it in float32 and float64."""
    forest = forest_of(model(USUAL))
    asked = all_of(ProbeRows(forest, POOL))["threshold"]
    for feature in range(4):
        thresholds = forest.thresholds(feature)
        wanted = set(thresholds.astype(np.float64).tolist())
        for kind in (thresholds.dtype.type, np.float64):
            for end in (-np.inf, np.inf):
                wanted |= {float(np.nextafter(kind(t), kind(end))) for t in thresholds.tolist()}
        assert values(asked, feature) == wanted
        assert len(wanted) >= 3 * len(thresholds) > 0


def test_every_number_that_trips_code_is_asked_in_every_feature() -> None:
    """Given a forest with a sentinel, missing, zeros, large numbers and the sentinel's neighbours are asked in each feature."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0)
    forest = forest_of(xgboost_model(recipe), missing=-999.0)
    asked = all_of(ProbeRows(forest, POOL))["tripping"]
    around = {-999.0, float(np.nextafter(np.float32(-999), np.float32(0))), float(np.nextafter(-999.0, 0.0))}
    for feature in range(4):
        found = values(asked, feature)
        assert around | {number for number in TRIPPING if number == number} <= found  # noqa: PLR0124 - all but NaN
        assert any(np.isnan(number) for number in found)
    cells = np.concatenate([batch.rows for batch in asked])
    assert (np.signbit(cells) & (cells == 0)).sum() >= 4  # -0.0 is another zero


def test_every_code_is_asked_that_is_listed_or_declared_and_some_that_are_none() -> None:
    """Given a category of nine codes of which twelve are declared, then 0 .. 12 are asked, and what is no code at all."""
    forest = forest_of(lightgbm_model(CATEGORIES))
    asked = all_of(ProbeRows(forest, CATEGORIES.data()[0], [12, 0, 0, 0]))["category"]
    found = values(asked, 0)
    assert {code for code in found if code == code} == {*map(float, range(13)), *STRANGE_CODES[:3], *STRANGE_CODES[4:]}  # noqa: PLR0124
    assert sum(len(batch.rows) for batch in asked) == 13 + len(STRANGE_CODES)
    undeclared = all_of(ProbeRows(forest, CATEGORIES.data()[0]))["category"]
    listed = set().union(*(forest.listed(node) for node in range(len(forest.kind))))
    assert {code for code in values(undeclared, 0) if code >= 0} >= {*map(float, listed), max(listed) + 1.0}


def test_words_of_a_number_are_asked_as_codes_as_well() -> None:
    """Given a feature that is a number to the model and has three words in features.toml, then its codes are asked."""
    forest = forest_of(xgboost_model(USUAL))
    counts = ProbeRows(forest, POOL, [0, 3, 0, 0]).counts
    assert counts["category"] == 4 + len(STRANGE_CODES)


def test_combinations_put_several_features_onto_probes_at_once_and_are_the_same_each_time() -> None:
    """Given a forest, combinations differ from their pool rows in two features or more, all values are probes, and a second asking gives the same bytes."""
    forest = forest_of(xgboost_model(USUAL))
    asked, again = (all_of(ProbeRows(forest, POOL)) for _ in range(2))
    (batch,), (same,) = asked["combination"], again["combination"]
    assert batch.rows.tobytes() == same.rows.tobytes()
    assert len(batch.rows) == COMBINATIONS
    placed = [batch.placed(i) for i in range(COMBINATIONS)]
    assert {len(features) for features in placed} >= {2, 3, 4}
    assert max(map(len, placed)) <= TOGETHER_MAX
    known = [values(asked["threshold"], j) | {x for x in TRIPPING if x == x} for j in range(4)]  # noqa: PLR0124 - all but NaN
    for row, features, pool_row in zip(batch.rows, placed, batch.pool_rows.tolist(), strict=True):
        kept = [j for j in range(4) if j not in features]
        assert row[kept].tobytes() == POOL[pool_row, kept].tobytes()
        assert all(np.isnan(row[j]) or float(row[j]) in known[j] for j in features)


def test_a_model_of_one_feature_has_no_combinations() -> None:
    """Given one feature, nothing can be combined, and the other kinds are asked all the same."""
    one = dataclasses.replace(USUAL, features=1)
    counts = ProbeRows(forest_of(xgboost_model(one)), one.data()[0]).counts
    assert counts["combination"] == 0
    assert counts["tripping"] == len(TRIPPING)


def test_rows_come_in_batches_of_one_kind_that_leave_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given small batches, each holds rows of one kind, they follow each other, and all rows are the same as in large ones."""
    forest = forest_of(lightgbm_model(USUAL))
    large = _rows(ProbeRows(forest, POOL))
    monkeypatch.setattr(probe_rows, "BATCH_ROWS", 7)
    small = ProbeRows(forest, POOL)
    begun = dict.fromkeys(small.counts, 0)
    for asked in small.batches():
        assert asked.start == begun[asked.kind]
        assert 0 < len(asked.rows) == len(asked.pool_rows) <= 7 < BATCH_ROWS
        begun[asked.kind] += len(asked.rows)
    assert begun == small.counts
    assert _rows(small).tobytes() == large.tobytes()


def _rows(asking: ProbeRows) -> Rows:
    return np.concatenate([asked.rows for asked in asking.batches()])
