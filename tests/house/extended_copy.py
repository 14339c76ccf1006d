"""A copy of the package to which a test adds a kind by the steps of docs/extending.md, and asks whether it works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
ANSWER_S = 100


@dataclass
class ExtendedCopy:
    """`stream` and `schemas` in a folder of their own. `touched`: the files of the package that the steps changed or added."""

    root: Path
    touched: set[str] = field(default_factory=set)

    @classmethod
    def of_this_checkout(cls, root: Path) -> ExtendedCopy:
        """Copy the package with what is compiled already, which goes by the times of files."""
        for part in ("stream", "schemas"):
            shutil.copytree(REPOSITORY / part, root / part)
        return cls(root)

    def replace(self, path: str, before: str, after: str) -> None:
        """Put one text in the place of another, which must stand in the file once."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path} holds {before!r} {text.count(before)} times"
        self._write(path, text.replace(before, after))

    def add(self, path: str, text: str) -> None:
        """Add a file."""
        assert not (self.root / path).exists()
        self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")
        if path.startswith("stream/"):
            self.touched.add(path)

    def run(self, code: str) -> Any:
        """Run a program on the copy, with the tests of this checkout at hand; give the JSON that it prints last."""
        environment = os.environ | {"PYTHONPATH": f"{self.root}{os.pathsep}{REPOSITORY}"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.root, env=environment, capture_output=True, text=True, check=False,
            timeout=ANSWER_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
