"""Results on disk: a JSON line for each method on each unit of work, so that a stopped run goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class Results:
    """A folder with one file a unit; a unit is written by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, unit: str) -> dict[str, Record]:
        """The records of one unit by method. A line that a stopped run left unfinished is none."""
        try:
            text = self._path(unit).read_text("utf-8")
        except FileNotFoundError:
            return {}
        lines = text.splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return {record["method"]: record for record in records}

    def add(self, unit: str, record: Record) -> None:
        """Append one record, after taking away what a stopped run left unfinished."""
        path = self._path(unit)
        whole = path.read_bytes() if path.exists() else b""
        if not whole.endswith(b"\n") and whole:
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def all(self) -> list[Record]:
        """Every record, by unit and in the order of writing."""
        return [record for path in sorted(self.folder.glob("*.jsonl")) for record in self.of(path.stem).values()]

    def check_size(self, size: Record) -> None:
        """Keep what is run beside its results. Raises: SystemExit where the folder holds those of another size."""
        path = self.folder / "size.json"
        if path.exists() and json.loads(path.read_text("utf-8")) != size:
            message = (
                f"{self.folder} holds results of other parameters; delete it, or name another folder with --results"
            )
            raise SystemExit(message)
        path.write_text(json.dumps(size), "utf-8")

    def add_run(self, run: Record) -> None:
        """Note one run of this folder: when, how long, of which commit."""
        runs = [*self.runs(), run]
        (self.folder / "runs.json").write_text(json.dumps(runs), "utf-8")

    def runs(self) -> list[Record]:
        """The runs that these results are of, the first one first."""
        path = self.folder / "runs.json"
        found: list[Record] = json.loads(path.read_text("utf-8")) if path.exists() else []
        return found

    def _path(self, unit: str) -> Path:
        return self.folder / f"{unit}.jsonl"
