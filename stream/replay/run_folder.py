"""A run's folder: its parameters, its frozen source, and the result of each finished chunk.

    run.json              mode, parameters, and the source as it was at the start
    chunks/<chunk>.json   what a finished chunk adds to the report, and digests of its records
    lock                  held by the one process that works on the run

Every file is written atomically. A restarted run resumes after its last finished chunk.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from stream.bundle.atomic_folder import atomic_file
from stream.errors import ConfigurationError, CorruptionError, DiskUnavailable
from stream.replay.judge.repeats import Keys, keys_from
from stream.replay.report.tally import ReplayTally, tally_of
from stream.replay.sources.source import Chunk, Snapshot, snapshot_of

FORMAT_VERSION: Final = 1
RUN: Final = "run.json"
CHUNKS: Final = "chunks"
LOCK: Final = "lock"
DRAFTS: Final = ".*.????????.part"
VALUE_CHARACTERS_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What run.json says: the parameters, and the snapshots of all that is read."""

    parameters: Mapping[str, Any]
    source: Snapshot
    answered: Snapshot | None  # of the audit topic, where a backfill asks it which decisions have an answer


class RunFolder:
    """The state of one run on disk; use it within `locked`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def state(self) -> RunState | None:
        """Return the state that the run began with; None for a new run.

        Raises: ConfigurationError when the folder holds something else.
        """
        try:
            content = (self.folder / RUN).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.folder, error) from error
        try:
            run = json.loads(content)
            if run["format_version"] != FORMAT_VERSION:
                message = f"{self.folder / RUN} is of another version of coach; finish the run with that, or choose another --run-id"
                raise ConfigurationError(message)
            answered = None if run["answered"] is None else snapshot_of(run["answered"])
            return RunState(parameters=run["parameters"], source=snapshot_of(run["source"]), answered=answered)
        except (ValueError, KeyError, TypeError) as error:
            message = f"--state {self.folder}: {RUN} in it is not a replay's; name another folder"
            raise ConfigurationError(message) from error

    def begin(self, state: RunState) -> None:
        """Record the state that the run begins with.

        Raises: ConfigurationError when the folder holds anything else already; DiskUnavailable.
        """
        others = [one.name for one in self.folder.iterdir() if one.name != LOCK and not one.name.startswith(".")]
        if others:
            message = f"--state {self.folder}: holds {others[0][:VALUE_CHARACTERS_MAX]!r} and no {RUN}; name an empty or new folder"
            raise ConfigurationError(message)
        run = {
            "format_version": FORMAT_VERSION,
            "parameters": dict(state.parameters),
            "source": state.source.to_json(),
            "answered": None if state.answered is None else state.answered.to_json(),
        }
        write_whole(self.folder / RUN, json.dumps(run, indent=2, sort_keys=True).encode() + b"\n")

    def finished(self, chunk: Chunk) -> bool:
        """Whether a chunk's result is recorded."""
        return self._path(chunk).is_file()

    def finish(self, chunk: Chunk, tally: ReplayTally, seen: Iterable[Keys]) -> None:
        """Record a chunk's result. `seen`: its records but for repeats. Raises: DiskUnavailable."""
        result = {
            "first": chunk.first,
            "end": chunk.end,
            "part": chunk.part,
            "tally": tally.to_json(),
            "seen": [keys.to_text() for keys in seen],
        }
        write_whole(self._path(chunk), json.dumps(result, sort_keys=True).encode() + b"\n")

    def result(self, chunk: Chunk) -> tuple[ReplayTally, list[Keys]]:
        """Read a chunk's result back: its tally, and its records but for repeats.

        Raises: CorruptionError when it is damaged or another chunk's.
        """
        path = self._path(chunk)
        try:
            result = json.loads(path.read_bytes())
            if (result["part"], result["first"], result["end"]) != (chunk.part, chunk.first, chunk.end):
                message = f"{path} is the result of another range; remove it, and start this run again"
                raise CorruptionError(message)
            return tally_of(result["tally"]), [keys_from(text) for text in result["seen"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} is damaged; remove it, and start this run again"
            raise CorruptionError(message) from error
        except OSError as error:
            raise _unusable(path, error) from error

    def _path(self, chunk: Chunk) -> Path:
        return self.folder / CHUNKS / f"{chunk.name}.json"


def refuse_other_parameters(before: Mapping[str, Any], now: Mapping[str, Any], run_id: str) -> None:
    """Check that a resumed run has the parameters that it began with.

    Raises: ConfigurationError that names each parameter that differs.
    """
    differing = [
        f"{key} was {_shown(before.get(key))} and is {_shown(now.get(key))}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
    if differing:
        message = (
            f"--run-id {run_id}: this run began with other parameters: {'; '.join(differing)}; start it as it began, or choose "
            "another --run-id"
        )
        raise ConfigurationError(message)


@contextmanager
def locked(folder: Path, run_id: str) -> Iterator[RunFolder]:
    """Lock the run for this process; the lock ends with the process.

    Raises: ConfigurationError when another process works on it, or the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise _unusable(folder, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"--run-id {run_id}: process {_holder(file)} is already working on this run; wait for it, or choose another --run-id"
            raise ConfigurationError(message) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield RunFolder(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically and durably. Raises: DiskUnavailable."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file(path, content, draft=draft)
    except OSError as error:
        message = (
            f"{path} cannot be written: {error.strerror or type(error).__name__}; start this run again when it can"
        )
        raise DiskUnavailable(message) from error


def sweep(folder: Path) -> None:
    """Remove the drafts of killed writers; the holder of the run's lock is the only writer."""
    for draft in folder.glob(DRAFTS):
        draft.unlink(missing_ok=True)


def _holder(file: IO[str]) -> str:
    with suppress(OSError):
        file.seek(0)
        return file.read(20).strip() or "another"
    return "another"


def _shown(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."


def _unusable(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"--state {folder}: cannot be used: {error.strerror or type(error).__name__}")
