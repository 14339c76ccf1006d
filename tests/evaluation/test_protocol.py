from __future__ import annotations

import numpy as np

from tests.evaluation.baselines.interface import Label
from tests.evaluation.datasets import Dataset
from tests.evaluation.judging.judged import cases
from tests.evaluation.protocol import ASKED, OURS, PAPERS, PEOPLE, split_of, units
from tests.evaluation.sizes import FULL, SMOKE

ROWS = 53


def _dataset() -> Dataset:
    x = np.arange(ROWS, dtype=np.float64)[:, None]
    label: Label = "mutable"
    return Dataset(name="toy", columns=("a",), x=x, y=(np.arange(ROWS) % 3 == 0).astype(np.int64), labels=(label,))


def test_five_splits_of_a_repetition_test_everyone_once() -> None:
    """Given the five splits of a repetition, when made, then test parts cover all rows once and never meet the training part."""
    parts = [split_of(_dataset(), split) for split in range(5)]
    assert sorted(np.concatenate([test for _, test in parts]).tolist()) == list(range(ROWS))
    for train, test in parts:
        assert not set(train.tolist()) & set(test.tolist())
        assert len(train) + len(test) == ROWS


def test_repetitions_differ_and_a_split_is_always_the_same() -> None:
    """Given split 0 and split 5, when made twice, then each is itself again, and they are not the same people."""
    first, again, other = (split_of(_dataset(), split)[1].tolist() for split in (0, 0, 5))
    assert first == again != other


def test_the_full_size_is_the_papers_protocol() -> None:
    """Given the full size, when its units are listed, then five datasets have twenty splits with every method, and the other kinds fewer."""
    found = units(FULL)
    main = [unit for unit in found if unit.main]
    assert len(main) == 5 * 20
    assert {(unit.kind.library, unit.kind.depth, unit.kind.trees) for unit in main} == {("xgboost", 4, 300)}
    assert set(main[0].methods) == {PEOPLE, *OURS, *PAPERS, *ASKED}
    others = {(unit.kind.library, unit.kind.depth, unit.kind.trees) for unit in found if not unit.main}
    assert len(others) == 2 * 3 * 2 - 1
    assert len({unit.name for unit in found}) == len(found)


def test_the_full_size_has_all_cases_of_the_bars() -> None:
    """Given the full size, when its cases are listed, then five seeds of three datasets and two libraries are there."""
    assert len({case.name for case in cases(FULL)}) == 5 * 3 * 2
    assert len(cases(SMOKE)) < 5
