"""A past to replay: decisions of two versions of a model, answered live by workers under kills."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream.replay.request import Request
from stream.replay.run import Finished, run_replay
from stream.replay.settings import ReplaySettings
from stream.wire.avro_records import decode
from tests.service.lender import Lender, record
from tests.service.room import Room, WorkerProcess, freeze, room
from tests.service.stack import Stack

TRIES = 3  # for each kill: a worker may have done all of its share before
AT_WORK_S = 0.15
DONE_S = 240  # below what pytest grants, so that a failure says what the workers said


@dataclass(kw_only=True)
class Lived:
    """What was decided and answered live: by two versions of a model, under kills."""

    here: Room
    lenders: tuple[Lender, Lender]
    decisions: list[dict[str, Any]]

    @property
    def declined(self) -> set[str]:
        """The ids of all that have an answer."""
        return {one["decision_id"] for one in self.decisions if one["outcome"] == "declined"}

    def replay(self, run_id: str, mode: Any, **more: Any) -> Finished:
        """Do a run in this process."""
        request = Request(run_id=run_id, mode=mode, state=self.here.folder / "runs" / run_id, **more)
        return run_replay(request, self.here.settings, ReplaySettings(replay_chunk_records=50, replay_partitions=2))

    def written(self, topic: str, run_id: str) -> list[dict[str, Any]]:
        """What a run wrote to one of its topics."""
        return [decode(value)[1] for value in self.here.values(f"{topic}.replay.{run_id}")]


@contextmanager
def past(
    stack: Stack, lenders: tuple[Lender, Lender], folder: Path, *, decisions: int, kills: int, chunk: int
) -> Iterator[Lived]:
    """Let workers answer decisions of two versions under kills; then the room is as they left it."""
    rows = len(lenders[0].rows)
    made = [lenders[number % 2].decision(number // 2 % rows, decision_id=f"d-{number}") for number in range(decisions)]
    with room(
        stack,
        folder,
        partitions=3,
        replay_state_dir=str(folder / "state"),
        replay_chunk_records=str(chunk),
        replay_partitions="2",
    ) as here:
        for lender in lenders:
            here.publish(lender)
        answer_live(here, made, kills, random.Random(20261128))  # noqa: S311 - a storm, no secret
        yield Lived(here=here, lenders=lenders, decisions=made)


def answer_live(here: Room, decisions: list[dict[str, Any]], kills: int, weather: random.Random) -> None:
    """Let two workers answer all decisions, and kill one of them in the middle of its work, exactly so many times."""
    workers = [here.worker(wait=False) for _ in range(2)]
    workers[0].until("worker.assigned")
    shares = kills * TRIES + 1
    share, hit = len(decisions) // shares + 1, 0
    for step in range(shares):
        victim = weather.randrange(len(workers))
        if hit < kills:
            workers[victim].until("worker.assigned")
            freeze(workers[victim].process.pid)  # so that work waits for it
        here.send(record(one) for one in decisions[step * share : (step + 1) * share])
        if hit < kills and killed_at_work(here, workers[victim], weather.random() * AT_WORK_S):
            workers[victim] = here.worker(wait=False)
            hit += 1
    assert hit == kills, f"{hit} of {kills} kills fell into the work of a worker"
    here.until_done(timeout_s=DONE_S)
    for one in workers:
        one.kill()


def killed_at_work(here: Room, worker: WorkerProcess, after_s: float) -> bool:
    """Let a stopped worker go on for a moment and kill it, if there was work before that moment and after it."""
    before = here.lag()
    os.kill(worker.process.pid, signal.SIGCONT)
    time.sleep(after_s)
    freeze(worker.process.pid)
    if before > 0 and here.lag() > 0:
        worker.kill()
        return True
    os.kill(worker.process.pid, signal.SIGCONT)
    return False
