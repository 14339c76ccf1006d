"""`coach replay` as a process of its own, in the corner of a stack that a test has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.service.room import PYTHONPATH, Room

LONGEST_S: Final = 1_200.0


def environment_of(here: Room | None, **more: str) -> dict[str, str]:
    """The environment of a command: the test's own, then the room's, then more."""
    return {**os.environ, "PYTHONPATH": PYTHONPATH, **(here.environment if here else {}), **more}


def replay(
    here: Room | None, *arguments: str, folder: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `coach replay` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "stream.cli.main", "replay", *arguments],
        env=environment_of(here, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def start_replay(here: Room | None, *arguments: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start `coach replay`; what it says goes to `log`."""
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "stream.cli.main", "replay", *arguments],
            env=environment_of(here, **more),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
