from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.bundle.advice.undeclared import Undeclared, UndeclaredMissing
from stream.bundle.build import BuiltBundle
from tests.bundle.advice.test_claims import build
from tests.bundle.inputs import FEATURES, Inputs, inputs, write_pool
from tests.bundle.test_command import build as command
from tests.forest.models import USUAL

FIRST = USUAL.names[0]


def with_column(given: Inputs, values: Any) -> BuiltBundle:
    """Build with other values in the first column of the pool."""
    rows, target = USUAL.data()
    rows = rows.copy()
    rows[:, 0] = values
    write_pool(given.folder / "pool.csv", rows, target)
    return given.build()


def mixed(number: float, others: Any, share: int = 50) -> Any:
    """One number in every so many rows, and the others in turn."""
    places = np.arange(USUAL.rows)
    return np.where(places % share == 0, number, np.asarray(others, np.float64)[places % len(others)])


LOOKS_SO: dict[str, tuple[float, Any]] = {
    "the only number below zero": (-1.0, [0, 40, 90_000]),
    "far below all": (-999.0, [-3, 0, 5, 9]),
    "far above all": (99.0, [0, 1, 2, 14, 15]),
    "zero where none is near": (0.0, [*range(18, 80)]),
}
LOOKS_NOT_SO: dict[str, tuple[float, Any, int]] = {
    "one of many counts": (0.0, [1, 2, 3, 5], 50),
    "the end of a range": (99.0, [*range(40, 99)], 50),
    "neither least nor greatest": (-9.0, [-500, 400, 900], 50),
    "in too few rows": (-999.0, [1, 2, 3], 134),
    "no usual number": (-7.5, [1, 2, 3], 50),
    "one of two": (0.0, [1], 2),
    "the only one": (0.0, [0], 2),
}


@pytest.mark.parametrize("why", LOOKS_SO)
def test_a_number_that_stands_apart_in_a_column_is_told(tmp_path: Path, why: str) -> None:
    """Given a usual sentinel at an end of a column, apart from the others and frequent, then a build without --missing names both."""
    number, others = LOOKS_SO[why]
    found = with_column(inputs(tmp_path), mixed(number, others)).advice.undeclared
    assert found == Undeclared(missing=(UndeclaredMissing(number=number, columns=(FIRST,)),))


@pytest.mark.parametrize("why", LOOKS_NOT_SO)
def test_a_number_that_belongs_to_its_column_is_not_told(tmp_path: Path, why: str) -> None:
    """Given a number that is rare, unusual, or no further from the others than they are from each other, then nothing is told."""
    number, others, share = LOOKS_NOT_SO[why]
    assert with_column(inputs(tmp_path), mixed(number, others, share)).advice.undeclared == Undeclared()


def test_what_is_said_is_not_asked(tmp_path: Path) -> None:
    """Given -999 in two columns, then it is told, unless it is under no_record, given as --missing, or the model is LightGBM's."""
    given = inputs(tmp_path)
    rows, target = USUAL.data()
    rows = rows.copy()
    rows[::10, [0, 3]] = -999.0
    write_pool(tmp_path / "pool.csv", rows, target)
    assert given.build().advice.undeclared.missing == (
        UndeclaredMissing(number=-999.0, columns=(FIRST, USUAL.names[3])),
    )
    assert given.build("said", missing=-999.0).advice.undeclared == Undeclared()
    (tmp_path / "features.toml").write_text(FEATURES.replace(f"[{FIRST}]\n", f"[{FIRST}]\nno_record = [-999]\n"))
    assert given.build("listed").advice.undeclared.missing == (
        UndeclaredMissing(number=-999.0, columns=(USUAL.names[3],)),
    )
    lightgbm = inputs(tmp_path / "lightgbm", "txt")
    assert dataclasses.replace(lightgbm, folder=tmp_path).build("other").advice.undeclared == Undeclared()


def test_the_command_names_what_is_undeclared(tmp_path: Path) -> None:
    """Given -999 and no --missing, then the build succeeds, and text and JSON name number, column and what to do."""
    inputs(tmp_path)
    rows, target = USUAL.data()
    rows = rows.copy()
    rows[::10, 0] = -999.0
    write_pool(tmp_path / "pool.csv", rows, target)
    done = command(tmp_path)
    assert done.exit_code == 0
    assert f"  missing?      -999 looks like a number for missing in the pool's column {FIRST};\n" in done.stdout
    assert "say --missing -999, or list it as no_record in features.toml, or prove with --claim-column" in done.stdout
    told = json.loads(command(tmp_path, "--json", "--out", tmp_path / "again").stdout)
    assert told["unsaid"] == {"missing": [{"number": -999.0, "columns": [FIRST]}], "in_place_differs": 0}
    assert "missing?" not in command(tmp_path, "--missing", "-999", "--out", tmp_path / "said").stdout


def test_a_dart_model_is_told_to_be_predicted_in_two_ways(tmp_path: Path) -> None:
    """Given a DART model of which inplace_predict gives other bits, then it is told in how many rows; claims that are equal prove which one is meant."""
    given = inputs(tmp_path, booster="dart", rate_drop=0.5, one_drop=1, eta=1.0, normalize_type="forest")
    rows, _ = USUAL.data()
    in_place = given.booster.inplace_predict(rows, predict_type="margin", validate_features=False)
    by_matrix = given.booster.predict(xgb.DMatrix(rows, feature_names=USUAL.names), output_margin=True)
    differs = int((in_place != by_matrix).sum())
    assert differs
    told = command(tmp_path).stdout
    assert (
        f"  DART          scores of XGBClassifier (inplace_predict) are rounded otherwise in {differs} of 400 rows"
        in told
    )
    assert "compare your decider's with --claim-column" in told
    proven = build(given, by_matrix, claim_scale="margin", out_dir=tmp_path / "proven")
    assert proven.advice.undeclared == Undeclared()
