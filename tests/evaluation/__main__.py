"""`python -m tests.evaluation`: runs the evaluation and writes its report. A stopped run goes on where it was."""

from __future__ import annotations

import argparse
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.evaluation.datasets import FOLDER
from tests.evaluation.judging.judged import JUDGE, cases
from tests.evaluation.protocol import units
from tests.evaluation.reporting.report import write_report
from tests.evaluation.results import Results
from tests.evaluation.running import Work, run_all
from tests.evaluation.sizes import SIZES

REPOSITORY: Final = Path(__file__).resolve().parents[2]
KEPT: Final = REPOSITORY / "tests" / "evaluation" / "report"  # of the last full run, in the repository


def main() -> int:
    """Do what the arguments say: 0 when all was run, 1 when a part failed, 2 without the data."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--only", choices=["bars", "protocol", "report"], help="run only one part, or just write the report"
    )
    parser.add_argument("--results", type=Path, help="folder of the results  [build/evaluation/SIZE]")
    parser.add_argument(
        "--report", type=Path, help="folder of the report  [tests/evaluation/report for full, else in results]"
    )
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if not FOLDER.is_dir() or not JUDGE.is_file():
        print(f"no datasets at {FOLDER} or no judge at {JUDGE}: set COACH_DATA to the data folder beside it")
        return 2
    size = SIZES[args.size]
    folder = args.results or REPOSITORY / "build" / "evaluation" / size.name
    results = Results(folder)
    results.check_size(size.said())
    work: list[Work] = []
    if args.only in (None, "bars"):
        work += cases(size)
    if args.only in (None, "protocol"):
        work += units(size)
    began = time.monotonic()
    failed = run_all(work, size, folder, args.processes) if work else []
    if work:
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        results.add_run({"date": date, "minutes": (time.monotonic() - began) / 60, "commit": _commit()})
    page = write_report(results, size, args.report or (KEPT if size.name == "full" else folder / "report"))
    print(f"{page}\n{page.with_suffix('.md')}")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


def _commit() -> str:
    """The commit that is checked out, and whether files differ from it."""
    told = [
        subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    return f"{told[0] or 'unknown'}{' with changes' if told[1] else ''}"


if __name__ == "__main__":
    raise SystemExit(main())
