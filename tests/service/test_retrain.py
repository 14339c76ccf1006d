"""The everyday path of a retrain: versions and revisions are published while decisions flow."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest
import redis

from stream.models.publishing import PublishRequest, publish
from stream.times import rfc3339, time_ms
from tests.service.lender import Lender, record, revised, toy_lender
from tests.service.room import Room, command, room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(400)]

LEAD_MS: Final = 3_000  # from a revision's publication to its first decision: time for both workers to read of it
PAUSE_S: Final = 0.02


class Traffic:
    """A lender's decisions of this moment, sent by a thread; each names one of `versions`, which grow while it sends."""

    def __init__(self, here: Room, seed: int) -> None:
        self.versions: list[Lender] = []
        self.sent: dict[str, tuple[Lender, int, int]] = {}  # decision_id -> lender, row, event time
        self._here = here
        self._random = random.Random(seed)  # noqa: S311 - traffic, no secret
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                self._here.send(self._decisions())
        except BaseException as failure:  # noqa: BLE001 - told by the test's own thread
            self._failure = failure

    def _decisions(self) -> Iterator[tuple[bytes, bytes]]:
        versions = list(self.versions)
        for lender in self._random.choices(versions, k=2) if versions else ():
            row = self._random.randrange(len(lender.rows))
            now_ms = time.time_ns() // 1_000_000
            name = f"{lender.version}-{len(self.sent)}"
            self.sent[name] = (lender, row, now_ms)
            yield record(lender.decision(row, decision_id=name, event_time=rfc3339(now_ms)))


@pytest.mark.parametrize("versions", [3, pytest.param(10, marks=pytest.mark.nightly)])
def test_publications_under_load(stack: Stack, tmp_path: Path, versions: int) -> None:
    """Given two workers and a flow of decisions, when so many versions and a second revision of each are published, Redis being emptied now and then, then every decline is answered by the version that it names and the revision effective at its time, with that version's own margin, none is lost, and none is a dead letter."""
    seed = 20261128
    print(f"seed {seed}")
    lenders = [toy_lender(tmp_path / f"v{number}", version=f"v{number}", seed=number) for number in range(versions)]
    second = {one.version: revised(one, 2, policy="expiry_days = 60\n") for one in lenders}
    since_ms: dict[str, int] = {}
    with room(stack, tmp_path, partitions=4, models_max="3") as here:
        here.worker(wait=False)
        here.worker()
        with Traffic(here, seed) as traffic, redis.Redis.from_url(stack.redis.url) as client:
            for number, lender in enumerate(lenders):
                traffic.versions.append(lender)  # its decisions come before its publication
                publish(here.settings, PublishRequest(uri=str(lender.bundle)))
                if number:
                    version = lenders[number - 1].version
                    since_ms[version] = time.time_ns() // 1_000_000 + LEAD_MS
                    publish(
                        here.settings,
                        PublishRequest(uri=str(second[version].bundle), effective_from_ms=since_ms[version]),
                    )
                if number % 3 == 2:
                    client.flushall()
            version = lenders[-1].version
            since_ms[version] = time.time_ns() // 1_000_000 + LEAD_MS
            publish(here.settings, PublishRequest(uri=str(second[version].bundle), effective_from_ms=since_ms[version]))
            time.sleep(LEAD_MS / 1_000 + 1)
        here.until_done(timeout_s=180)
        expected = {name: one for name, one in traffic.sent.items() if not one[0].approved(one[1])}
        check(here, expected, since_ms)
        assert here.dead_letters() == []
        rows = json.loads(command(here, "model", "list", "--json").stdout)
        assert len(rows) == 2 * versions
        assert all(len(row["known_by"]) == len(row["workers"]) == 2 for row in rows)
        assert any(row["open_in"] for row in rows)
        print(f"{len(traffic.sent)} decisions, {len(expected)} declined, {len(rows)} publications")
        assert min(len(traffic.sent), len(expected)) > 5 * versions, "too few decisions to tell anything"


def check(here: Room, expected: dict[str, tuple[Lender, int, int]], since_ms: dict[str, int]) -> None:
    """Hold every audit record and every recommendation against what the lender's own library and clock say."""
    answered: dict[str, set[str]] = defaultdict(set)
    revisions: set[int] = set()
    for audit in here.audits():
        name, body = audit["decision_id"], audit["body"]
        lender, row, event_ms = expected[name]
        revision = 2 if event_ms >= since_ms[lender.version] else 1
        assert (body["bundle"]["model_version"], body["bundle"]["revision"]) == (lender.version, revision), name
        assert body["margin"] == float(lender.margins[row]), name
        assert time_ms(body["decision"]["event_time"]) == event_ms
        answered[name].add(audit["body_sha256"])
        revisions.add(revision)
    assert set(answered) == set(expected)
    assert all(len(bodies) == 1 for bodies in answered.values())
    assert revisions == {1, 2}
    told: dict[str, Any] = {one["decision_id"]: one for one in here.recommendations()}
    assert set(told) == set(expected)
    for name, one in told.items():
        assert one["model_version"] == expected[name][0].version


def test_the_list_says_who_serves_what(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a worker, when a model is published, then `coach model list` says that it knows and, once asked, has it open; when the worker ends, nobody does."""
    with room(stack, tmp_path, partitions=1) as here:
        worker = here.worker()
        here.publish(toy)
        here.send([record(toy.decision(toy.declined(1)[0]))])
        here.until_done()

        def row() -> dict[str, Any]:
            found: list[dict[str, Any]] = json.loads(command(here, "model", "list", "--json").stdout)
            return found[0]

        wait_until(lambda: row()["open_in"], what="the worker says what it has open")
        assert row()["known_by"] == row()["open_in"]
        said = command(here, "model", "list").stdout
        assert "workers: 1 of 1 know it, 1 have it open" in said
        assert re.search(r"^worker \S+ .* models read to epoch 0, 1 bundles open, partitions 0$", said, re.MULTILINE)
        assert worker.stop() == 0
        assert row()["workers"] == []
