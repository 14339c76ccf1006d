"""A case of the bars: prepared, built, answered and judged by the commands that anyone would use; treecf on the same rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xgboost as xgb

from stream.audit.verify.body import verify
from stream.bundle.open import open_bundle
from stream.forest.trees import Library
from stream.recourse.answer import answer
from tests.evaluation import ours
from tests.evaluation.baselines.interface import Method, Rows, Setting
from tests.evaluation.baselines.treecf_search import Treecf
from tests.evaluation.datasets import FOLDER, read_dataset
from tests.evaluation.metrics import Yardstick, as_the_judge, measured, yardstick
from tests.evaluation.results import Record, Results
from tests.evaluation.sizes import Size
from tests.evaluation.sweep import swept
from tests.evaluation.training import margins_by, setting_from

JUDGE: Final = FOLDER.resolve().parent / "check" / "check.py"
COACH: Final = Path(sys.executable).with_name("coach")
OURS: Final = "ours"
FAST: Final = "treecf fast"
SURPLUSES: Final = {"treecf fast surplus 2": 2.0, "treecf fast surplus 3": 3.0}
EXACT: Final = "treecf exact"
SWEPT: Final = "ours, other settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One dataset, library and seed of the judge's own split."""

    dataset: str
    library: Library
    seed: int

    @property
    def name(self) -> str:
        """How its file and its folder are called."""
        return f"bars-{self.dataset}-{self.library}-{self.seed}"

    def methods(self, size: Size) -> tuple[str, ...]:
        """Whose records it has."""
        lasting = tuple(SURPLUSES) if self.seed < size.bar_surplus_seeds else ()
        dear = self.library == "xgboost"  # what takes long runs for one library
        exact = (EXACT,) if dear and self.seed < size.bar_exact_seeds else ()
        swept = (SWEPT,) if dear and self.seed < size.bar_swept_seeds else ()
        return (OURS, FAST, *swept, *lasting, *exact)


def cases(size: Size) -> list[Case]:
    """Every case of a size."""
    return [
        Case(dataset=dataset, library=library, seed=seed)
        for seed in range(size.bar_seeds)
        for library in size.bar_libraries
        for dataset in size.bar_datasets
    ]


def run_case(case: Case, size: Size, results: Results, scratch: Path) -> None:
    """Run the methods of a case whose records are not there yet."""
    absent = [name for name in case.methods(size) if name not in results.of(case.name)]
    if not absent:
        return
    folder = scratch / case.name
    shutil.rmtree(folder, ignore_errors=True)
    _prepare(case, size, folder)
    said = {"part": "bars", "dataset": case.dataset, "library": case.library, "seed": case.seed}
    rival = Rival(case, folder)
    if OURS in absent or FAST in absent:
        of_ours = _ours(folder, size, rival)
        results.add(case.name, said | of_ours)
        results.add(case.name, said | rival.record(FAST))
    if SWEPT in absent:
        _bundle(folder, size)
        points = swept(open_bundle(folder / "bundle"), rival.yard, rival.rows[: size.bar_swept_queries])
        results.add(case.name, said | {"method": SWEPT, "points": points})
    for name in absent:
        if name in SURPLUSES:
            results.add(case.name, said | rival.ask(name, Treecf(rival.setting, surplus=SURPLUSES[name])))
        elif name == EXACT:
            results.add(case.name, said | rival.ask(name, Treecf(rival.setting, exact=True)))
    shutil.rmtree(folder)


def _run(*command: str | Path, codes: Sequence[int] = (0,)) -> str:
    """Run a command to its end and give what it printed. Raises: RuntimeError with the end of it where it fails."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in codes:
        message = f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        raise RuntimeError(message)
    return done.stdout


def _prepare(case: Case, size: Size, folder: Path) -> None:
    how: tuple[str | Path, ...] = ("--library", case.library, "--seed", str(case.seed), "--data", FOLDER)
    how += ("--queries", str(size.bar_queries), "--trees", str(size.trees), "--depth", str(size.depth))
    _run(sys.executable, JUDGE, "prepare", case.dataset, folder, *how)


def _model_file(folder: Path) -> Path:
    return next(path for path in (folder / "model.json", folder / "model.txt") if path.exists())


def _bundle(folder: Path, size: Size) -> float:
    """Build the bundle by its command where it is not there, and say how many seconds that took."""
    if (folder / "bundle").exists():
        return 0.0
    files = ("--model", _model_file(folder), "--pool", folder / "pool.csv", "--target-column", "target")
    rules = ("--features", folder / "features.toml", "--policy", folder / "policy.toml", "--threshold", "0.5")
    training = ("--shadows", str(size.shadows), "--train-params", folder / "train.json")
    began = time.perf_counter()
    _run(COACH, "bundle", "build", *files, *rules, *training, "--out", folder / "bundle")
    return time.perf_counter() - began


class Rival:
    """The case's model as rivals see it, and its declined rows."""

    def __init__(self, case: Case, folder: Path) -> None:
        dataset = read_dataset(case.dataset)
        pool = pd.read_csv(folder / "pool.csv")
        x, y = pool[list(dataset.columns)].to_numpy(np.float64), pool["target"].to_numpy(np.int64)
        booster = _loaded(_model_file(folder), case.library)
        self.setting: Setting = setting_from(booster, case.library, dataset, x, y, case.seed)
        retrained = [_loaded(path, case.library) for path in sorted(folder.glob("retrain*"))]
        columns = dataset.columns
        self.yard: Yardstick = yardstick(self.setting, [margins_by(b, case.library, columns) for b in retrained])
        asked = pd.read_csv(folder / "rows.csv")[list(columns)].to_numpy(np.float64)
        self.rows: Rows = asked[~self.setting.accepts(asked)]
        self.fast: Method = Treecf(self.setting)
        self.targets: list[Rows | None] = []
        self.ms: list[float] = []

    def answer(self, row: Rows) -> None:
        """Ask treecf's fast mode for one row, and keep what it said and how long that took."""
        began = time.perf_counter()
        self.targets.append(self.fast.answer(row))
        self.ms.append((time.perf_counter() - began) * 1000)

    def ask(self, name: str, method: Method) -> Record:
        """Ask a method for every row, after one that does not count."""
        method.answer(self.rows[0])
        self.targets, self.ms, self.fast = [], [], method
        for row in self.rows:
            self.answer(row)
        return self.record(name)

    def record(self, name: str) -> Record:
        """What was answered, by the judge's measures: means over those answered, shares over all declined."""
        found = as_the_judge(measured(self.yard, self.rows, self.targets, undo=False))
        return {"method": name, "figures": found, "ms": self.ms}


def _loaded(path: Path, library: Library) -> Any:
    return xgb.Booster(model_file=path) if library == "xgboost" else lgb.Booster(model_file=path)


def _ours(folder: Path, size: Size, rival: Rival) -> Record:
    """Build, answer and judge by the commands; then time an answer of ours and one of treecf's by turns, row by row."""
    seconds = _bundle(folder, size)
    output = folder / "out.jsonl"
    _run(COACH, "recommend", "--bundle", folder / "bundle", "--input", folder / "rows.csv", "--output", output)
    verdict = json.loads(_run(sys.executable, JUDGE, "judge", folder, output, "--json", codes=(0, 1)))
    lines = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    faults = [verify(one["audit"]["body"], one["audit"]["body_sha256"], one["recommendation"]) for one in lines]
    model = open_bundle(folder / "bundle")
    decisions = [ours.decision_of(model, row) for row in rival.rows]
    answer(decisions[0], model)
    rival.fast.answer(rival.rows[0])
    elapsed, found = [], []
    for row, decision in zip(rival.rows, decisions, strict=True):
        began = time.perf_counter()
        found.append(answer(decision, model))
        elapsed.append((time.perf_counter() - began) * 1000)
        rival.answer(row)
    by_tier = [ours.targets(row, one, rival.setting.columns) for row, one in zip(rival.rows, found, strict=True)]
    again: dict[str, Any] = {}
    for tier in ours.TIERS:
        again[tier] = as_the_judge(measured(rival.yard, rival.rows, [one.get(tier) for one in by_tier], undo=False))
    return {
        "method": OURS,
        "judge": verdict,
        "audit_faults": sum(map(len, faults)),
        "proven": sum(bool(one["recommendation"]["proven"]) for one in lines),
        "build_seconds": seconds,
        "ms": elapsed,
        "time_ratio": float(np.sum(elapsed) / np.sum(rival.ms)),
        "apart_from_judge": _apart(verdict["tiers"], again),
    }


def _apart(judge: Mapping[str, Any], again: Mapping[str, Any]) -> float:
    """The largest difference between the judge's figures and our own measures of the same answers."""
    pairs: list[tuple[Any, Any]] = [
        (judge[tier].get(name), value) for tier, figures in again.items() for name, value in figures.items()
    ]
    return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)
