"""The walk of one declined decision through the modules: `python -m tests.house.decision_walk`.

A decision is read from Kafka's side of the pipeline and answered by the real pipeline until both records are delivered. A
module is visited when one of its functions is given the decision, or what an earlier one made of it. Visits in a row are
one stay; a stay in a module that was left before is a return.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import orjson

from stream.bundle.open import open_bundle
from stream.models.model_table import ModelTable
from stream.runtime.health import Vitals
from stream.runtime.settings import Settings
from stream.wire.framing import SINGLE_OBJECT
from stream.worker.answering import Answerer
from stream.worker.decision_log import DecisionLog
from stream.worker.metrics import worker_counters
from stream.worker.outputs import write_out
from stream.worker.pipeline import Pipeline
from tests.models.test_model_table import published
from tests.service.lender import Lender, toy_lender
from tests.worker.fakes import Book, FakeDelivery, inbound
from tests.worker.test_answering import Memory, Models

PACKAGE: Final = str(Path(__file__).resolve().parents[2] / "stream") + "/"


class Walk:
    """Notes the modules that a decision is handed to. `_carried` are the ids of what it has become so far."""

    def __init__(self, decision: object) -> None:
        self._carried = {id(one): one for one in unpacked(decision)}
        self._visited: set[int] = set()  # frames that were given it
        self._lock = threading.Lock()
        self.stays: list[str] = []

    def __call__(self, frame: FrameType, event: str, returned: Any) -> None:
        """Be a profiler, as `sys.setprofile` takes it."""
        code = frame.f_code
        if event not in ("call", "return") or not PACKAGE or not code.co_filename.startswith(PACKAGE):
            return
        with self._lock:
            if event == "return":
                if id(frame) in self._visited:
                    self._visited.discard(id(frame))
                    for one in unpacked(returned):
                        self._carried[id(one)] = one
                return
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [frame.f_locals.get(name) for name in names if name != "self"]
            if any(id(one) in self._carried for value in given for one in unpacked(value)):
                self._visited.add(id(frame))
                module = code.co_filename.removeprefix(PACKAGE)
                if not self.stays or self.stays[-1] != module:
                    self.stays.append(module)


def unpacked(value: object) -> list[object]:
    """What of a value can be a decision or come of one: records and bytes, alone or in lists."""
    if isinstance(value, list | tuple):
        return [one for inner in value for one in unpacked(inner)]
    known = isinstance(value, dict | bytes) or type(value).__module__.startswith("stream.")
    return [value] if known and value else []


async def _answer(walked: Walk, lender: Lender, record: Any) -> None:
    table, delivery, book = ModelTable(), FakeDelivery(), Book()
    table.learn(published(1, "2026-01-01T00:00:00Z", version="2026-10") | {"model_id": "toy"}, 0)
    settings = Settings()
    answerer = Answerer(
        table=table,
        open_model=Models(open_bundle(Path(lender.bundle))).model,
        remember=Memory(),
        framing=SINGLE_OBJECT,
        settings=settings,
    )
    pipeline = Pipeline(
        outcomes_of=answerer.outcomes,
        write_out=partial(write_out, delivery, SINGLE_OBJECT, settings),
        order=book.order(),
        settings=settings,
        decision_log=DecisionLog(worker_counters(), Vitals()),
        generation=lambda: 1,
        suspended=lambda: False,
        models_changes=lambda: 0,
    )
    before = sys.getprofile()
    sys.setprofile(walked)
    threading.setprofile(walked)
    task = asyncio.create_task(pipeline.run())
    await pipeline.take(record)
    while not book.acked:  # noqa: ASYNC110 - the pipeline tells nobody
        await asyncio.sleep(0.01)
    sys.setprofile(before)
    threading.setprofile(None)
    task.cancel()


def walk() -> list[str]:
    """Answer one declined decision. Returns: the modules it stayed in, in order."""
    with tempfile.TemporaryDirectory() as folder:
        lender = toy_lender(Path(folder))
        record = inbound(0)
        value = orjson.dumps(lender.decision(lender.declined(1)[0]))
        object.__setattr__(record, "value", value)
        walked = Walk([record, value])
        asyncio.run(_answer(walked, lender, record))
    return walked.stays


def main() -> None:
    """Print the walk."""
    stays = walk()
    print(*stays, sep="\n")
    modules = len(set(stays))
    print(f"{len(stays)} stays in {modules} modules, {len(stays) - modules} returns")


if __name__ == "__main__":
    main()
