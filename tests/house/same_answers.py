"""Answers of two commits compared byte for byte: `python -m tests.house.same_answers BASE`.

Each of twelve cases (three datasets, both libraries, with and without shadows; some with words, a group, or a model that
approves below its threshold) is built and answered by the package as it stood at BASE and as it stands here. Bundles,
JSON lines and Avro frames must be equal. What BASE gave is kept in build/same_answers for the next comparison.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd  # type: ignore[import-untyped]

from tests.evaluation.datasets import NOMINAL

REPOSITORY: Final = Path(__file__).resolve().parents[2]
JUDGE: Final = REPOSITORY.parent / "shared" / "check" / "check.py"
ROWS: Final = 50  # declined, a case: 600 in all
SHADOWS: Final = 10
GROUP: Final = {"marital-status", "relationship"}  # of adult: they change together

# Runs inside the tree whose package is asked, so that it needs nothing but addresses which both trees have.
FRAME: Final = """
import hashlib, json, sys
from stream.wire.avro_records import encode
source = {"topic": "decisions", "partition": 0, "offset": 0, "timestamp": None}
envelope = {"source": source, "software_version": "-", "traceparent": None, "replay": False, "run_id": None, "seal": None}
for line in open(sys.argv[1], "rb"):
    answer = json.loads(line)
    audit = {"decision_id": answer["decision_id"], **answer["audit"], "envelope": envelope}
    frames = encode("AuditRecord", audit) + encode("Recommendation", answer["recommendation"])
    print(answer["decision_id"], hashlib.sha256(frames).hexdigest())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model and how it is asked."""

    dataset: str
    library: str
    shadows: int

    @property
    def name(self) -> str:
        """What the case's files are called."""
        return f"{self.dataset}-{self.library}-{self.shadows}"

    @property
    def approve(self) -> str:
        """HELOC's LightGBM model predicts the default, as a bank's does."""
        return "below" if (self.dataset, self.library) == ("heloc", "lightgbm") else "above"


CASES: Final = [
    Case(dataset=dataset, library=library, shadows=shadows)
    for dataset in ("heloc", "taiwan_default", "adult")
    for library in ("xgboost", "lightgbm")
    for shadows in (0, SHADOWS)
]


def prepare(case: Case, folder: Path) -> None:
    """Make the inputs of a case, once for both trees: the judge's own, with words and a group for adult's LightGBM."""
    if (folder / "rows.csv").is_file():
        return
    command: list[str | Path] = [sys.executable, JUDGE, "prepare", case.dataset, folder, "--library", case.library]
    subprocess.run([*command, "--approve", case.approve, "--queries", str(ROWS)], check=True, stdout=sys.stderr)
    if (case.dataset, case.library) == ("adult", "lightgbm"):
        _say_in_words(folder)


def _say_in_words(folder: Path) -> None:
    pool, rows = pd.read_csv(folder / "pool.csv"), pd.read_csv(folder / "rows.csv")
    features = (folder / "features.toml").read_text("utf-8")
    for column in NOMINAL["adult"]:
        words = [f"{column} {code}" for code in range(int(pool[column].max()) + 1)]
        for table in (pool, rows):
            table[column] = [None if pd.isna(code) else words[int(code)] for code in table[column]]
        more = f"categories = {json.dumps(words)}\n" + ('group = "household"\n' if column in GROUP else "")
        features = features.replace(f'["{column}"]\n', f'["{column}"]\n{more}')
    pool.to_csv(folder / "pool.csv", index=False)
    rows.to_csv(folder / "rows.csv", index=False)
    (folder / "features.toml").write_text(features, "utf-8")


def answers(tree: Path, case: Case, inputs: Path, out: Path) -> dict[str, str]:
    """Build and answer a case by the package in `tree`. Returns: what was made -> its SHA-256."""
    shutil.rmtree(out, ignore_errors=True)  # what a comparison that was stopped left
    out.mkdir(parents=True)
    model = "model.json" if case.library == "xgboost" else "model.txt"
    build: list[str | Path] = [
        "--model",
        inputs / model,
        "--pool",
        inputs / "pool.csv",
        "--features",
        inputs / "features.toml",
    ]
    build += ["--policy", inputs / "policy.toml", "--threshold", "0.5", "--target-column", "target"]
    if case.shadows:
        build += ["--shadows", str(case.shadows), "--train-params", inputs / "train.json"]
    _run(tree, "-m", "stream.cli.main", "bundle", "build", *build, "--out", out / "bundle")
    asked: list[str | Path] = [
        "--bundle",
        out / "bundle",
        "--input",
        inputs / "rows.csv",
        "--output",
        out / "answers.jsonl",
    ]
    _run(tree, "-m", "stream.cli.main", "recommend", *asked)
    made = {
        "manifest.json": _sha256((out / "bundle" / "manifest.json").read_bytes()),
        "answers.jsonl": _sha256((out / "answers.jsonl").read_bytes()),
    }
    for line in _run(tree, "-c", FRAME, out / "answers.jsonl").splitlines():
        name, made[f"frames of {name}"] = line.rsplit(" ", 1)
    return made


def _run(tree: Path, *words: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{tree}: {' '.join(map(str, words[:4]))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def base_answers(base: str, work: Path) -> Iterator[tuple[Case, dict[str, str]]]:
    """What the package gave at `base`: read from an earlier comparison, or made from a checkout of that commit."""
    tree = work / base / "tree"
    for case in CASES:
        kept = work / base / f"{case.name}.json"
        if not kept.is_file():
            if not tree.is_dir():
                subprocess.run(["git", "worktree", "prune"], cwd=REPOSITORY, check=True)
                subprocess.run(["git", "worktree", "add", "--detach", tree, base], cwd=REPOSITORY, check=True)
            kept.write_text(json.dumps(answers(tree, case, work / "inputs" / case.name, work / base / case.name)))
        yield case, json.loads(kept.read_text())


def main() -> int:
    """Compare, a line a case. Returns: 0 where every byte is equal, 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit whose answers are to be equal")
    parser.add_argument("--only-base", action="store_true", help="make the base's answers and compare nothing")
    told = parser.parse_args()
    revision = ["git", "rev-parse", "--short=12", told.base]
    base = subprocess.run(revision, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.strip()
    work = REPOSITORY / "build" / "same_answers"
    for case in CASES:
        prepare(case, work / "inputs" / case.name)
    here = work / f"here-{os.getpid()}"
    compared = different = 0
    for case, expected in base_answers(base, work):
        if told.only_base:
            continue
        found = answers(REPOSITORY, case, work / "inputs" / case.name, here / case.name)
        apart = [name for name in expected | found if expected.get(name) != found.get(name)]
        compared += len(expected) - 2  # two are files, the others decisions
        different += len(apart)
        print(f"{case.name}: {len(expected) - 2} decisions, {len(apart)} different", *apart[:5], sep="  ", flush=True)
    print(f"{compared} decisions compared with {base}, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
