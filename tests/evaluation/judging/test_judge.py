from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream.audit.verify.body import verify
from tests.evaluation.judging.bars import BARS, verdicts
from tests.evaluation.judging.judged import Case, run_case
from tests.evaluation.results import Results
from tests.evaluation.sizes import FULL, LABELLED

COACH = str(Path(sys.executable).with_name("coach"))
EVERY_ROW = 1_000_000

CASE = ("dataset", "library", "approve")
EVERY_CASE = [
    (dataset, library, approve)
    for dataset in ("heloc", "taiwan_default", "adult")
    for library in ("xgboost", "lightgbm")
    for approve in ("above", "below")
]
# The other library and side of the threshold than the test with shadows; the nightly test judges every case on every row.
CASES_IN_CI = [("adult", "lightgbm", "below")]


@pytest.fixture(scope="module")
def check(datasets: Path) -> Path:
    """The judge: a program outside the repository that knows the contract, the dataset and the owner library alone."""
    program = datasets.resolve().parent / "check" / "check.py"
    if not program.is_file():
        absent = f"NOT JUDGED: there is no {program}; put the shared folder beside the repository, or set COACH_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        print(f"\n{absent}", file=sys.stderr)
        pytest.skip(absent)
    return program


def run(*command: str | Path) -> str:
    """Run to the end and give what was printed; a failure shows the end of it."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # waiting threads leave a shared machine to the others
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def judged(
    check: Path, folder: Path, case: tuple[str, str, str], *, queries: int, trees: int, shadows: int = 0
) -> dict[str, Any]:
    """The whole way of someone with a model and a pool, by the commands of CONTRACTS, and what the judge says of it."""
    dataset, library, approve = case
    size = ("--queries", str(queries), "--trees", str(trees))
    run(sys.executable, check, "prepare", dataset, folder, "--library", library, "--approve", approve, *size)
    model = folder / ("model.json" if library == "xgboost" else "model.txt")
    files = ("--model", model, "--pool", folder / "pool.csv", "--target-column", "target")
    rules = ("--features", folder / "features.toml", "--policy", folder / "policy.toml", "--threshold", "0.5")
    training = ("--shadows", str(shadows), "--train-params", folder / "train.json") if shadows else ()
    run(COACH, "bundle", "build", *files, *rules, *training, "--out", folder / "bundle")
    answers = folder / "out.jsonl"
    run(COACH, "recommend", "--bundle", folder / "bundle", "--input", folder / "rows.csv", "--output", answers)
    for line in answers.read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        assert verify(answer["audit"]["body"], answer["audit"]["body_sha256"], answer["recommendation"]) == []
    found: dict[str, Any] = json.loads(run(sys.executable, check, "judge", folder, answers, "--json"))
    return found


def beyond_reproach(found: dict[str, Any]) -> None:
    assert found["faults"] == {}
    assert found["declined"] > 0
    assert found["tiers"]["near"]["valid"] >= 0.99
    for name in ("near", "mid", "far"):
        tier = found["tiers"][name]
        assert tier["valid"] == tier["coverage"], f"{name}: a target that the model declines"


@pytest.mark.judge
@pytest.mark.timeout(600)
@pytest.mark.parametrize(CASE, CASES_IN_CI)
def test_the_judge_finds_no_fault(check: Path, tmp_path: Path, dataset: str, library: str, approve: str) -> None:
    """Given 40 declined applicants of real data, when answered by the commands, then the judge finds no fault, near is valid for 99 %, and all records verify."""
    beyond_reproach(judged(check, tmp_path, (dataset, library, approve), queries=40, trees=50))


@pytest.mark.judge
@pytest.mark.timeout(600)
def test_mid_and_far_outlive_a_retrain(check: Path, tmp_path: Path) -> None:
    """Given a bundle with 10 shadows and 40 declined applicants, the judge finds no fault; mid and far are accepted by a share of its unseen models that is larger by 0.2 than near's; far is nearer to accepted people than near; and mid's published share is that of the unseen models to within 0.12.

    So wide because it is of 40 people, each with three held-out shadows here and five retrained models there: 0.03, as it
    should be over many, lies within what chance makes of so few.
    """
    found = judged(check, tmp_path, ("heloc", "xgboost", "above"), queries=40, trees=60, shadows=10)
    assert found["faults"] == {}
    tiers = found["tiers"]
    assert [(tiers[name]["coverage"], tiers[name]["valid"]) for name in ("near", "mid", "far")] == [(1.0, 1.0)] * 3
    assert min(tiers["mid"]["retrain_valid"], tiers["far"]["retrain_valid"]) >= tiers["near"]["retrain_valid"] + 0.2
    assert abs(tiers["mid"]["robust_share"] - tiers["mid"]["retrain_valid"]) <= 0.12
    assert tiers["far"]["manifold"] < tiers["near"]["manifold"]


KNOWN_TO_HOLD = frozenset(
    {"faults of the judge", "faults of the audit records", "near: effort", "near: actions a person"}
    | {f"{tier}: {figure}" for tier in ("near", "mid", "far") for figure in ("coverage", "validity")}
)


@pytest.mark.judge
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("check")
@pytest.mark.parametrize("dataset", LABELLED)
def test_the_bars_on_the_default_split(tmp_path: Path, capsys: pytest.CaptureFixture[str], dataset: str) -> None:
    """Given 200 declined applicants of the judge's default split and 10 shadows, every figure is printed beside its bar, and those of near, coverage, validity and faults are within theirs."""
    size = replace(FULL, bar_surplus_seeds=0, bar_exact_seeds=0, bar_swept_seeds=0)
    results = Results(tmp_path / "results")
    run_case(Case(dataset=dataset, library="xgboost", seed=0), size, results, tmp_path)
    found = verdicts(results.all())
    assert [one.bar for one in found] == list(BARS)
    assert {bar.name for bar in BARS} > KNOWN_TO_HOLD
    with capsys.disabled():
        for one in found:
            bar, told = one.bar, "met" if one.met_first else "MISSED"
            print(
                f"\n{dataset:15s} {bar.name:62s} {one.values[0]:8.4f}, {bar.side} {bar.limit(dataset):g}: {told}",
                end="",
            )
    assert [one.bar.name for one in found if one.bar.name in KNOWN_TO_HOLD and not one.met_first] == []


@pytest.mark.judge
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(CASE, EVERY_CASE)
def test_the_judge_finds_no_fault_in_any_row(
    check: Path, tmp_path: Path, dataset: str, library: str, approve: str
) -> None:
    """Given every declined applicant of the test part and the paper's 300 trees, the judge finds no fault, and near is valid for 99 %."""
    beyond_reproach(judged(check, tmp_path, (dataset, library, approve), queries=EVERY_ROW, trees=300))
    run(COACH, "audit", "verify", tmp_path / "out.jsonl", "--bundle", tmp_path / "bundle")
