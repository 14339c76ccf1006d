"""One run from start to report: a frozen source, processed and recorded chunk by chunk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.models.open_bundles import OpenBundles, check_folder
from stream.models.publishing import read_models
from stream.replay.fence import FencedDelivery, ReplayTopics, replay_topics
from stream.replay.judge.models import Models, Published, open_given
from stream.replay.judge.modes import Backfill, Judge, Mode, Reproduce, WhatIf, answered_in
from stream.replay.judge.repeats import SeenRecords
from stream.replay.outputs import ANSWERS, REFUSED, Judged, ToFiles, ToTopics
from stream.replay.own_topics import prepare_topics
from stream.replay.report.report import report_bytes, report_of
from stream.replay.report.tally import ReplayTally, merged
from stream.replay.request import Request, check_request, parameters_of
from stream.replay.run_folder import CHUNKS, RunFolder, RunState, locked, refuse_other_parameters, sweep, write_whole
from stream.replay.settings import ReplaySettings
from stream.replay.sources.archive_source import ArchivedRecords
from stream.replay.sources.records import Window
from stream.replay.sources.source import Chunk, JsonlSource, ReadsRecords, Snapshot, chunks_of
from stream.replay.sources.topic_source import TopicRecords
from stream.runtime.connections import connect_redis, framing_of, kafka_properties
from stream.runtime.kafka.delivery import KafkaDelivery
from stream.runtime.settings import Settings
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

REPORT_JSON: Final = "report.json"
REPORT_HTML: Final = "report.html"
PACE_STEP_S: Final = 1.0
REPORT: Final = "report"  # the report's folder within the run's state, unless --out names another

ReplayProgress: TypeAlias = Callable[[int, int, int], None]  # records done, of them before this start, records in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A finished run: its report and the files that hold it."""

    report: dict[str, Any]
    json_path: Path
    html_path: Path


def run_replay(
    request: Request,
    settings: Settings,
    replay: ReplaySettings,
    *,
    progress: ReplayProgress = lambda _done, _before, _total: None,
) -> Finished:
    """Run a replay, or what is left of it.

    Raises: ConfigurationError when the request, the settings or what is on the run's topics do not allow it;
    DependencyError when a dependency is down for too long, and CorruptionError. Finished chunks are kept: the same run id
    resumes after them.
    """
    check_request(request, settings)
    topics = replay_topics(settings if request.uses_kafka(settings) else Settings(), request.run_id)
    given = open_given(request.bundles)
    parameters = parameters_of(request, settings, replay, given, topics)
    with locked(request.folder(replay), request.run_id) as folder:
        work = _Work(
            request=request,
            settings=settings,
            replay=replay,
            folder=folder,
            topics=topics,
            framing=framing_of(settings),
        )
        state = work.begin_or_go_on(parameters)
        models = Models(given, work.published if request.asks_models_topic(settings) else None)
        tally = work.do(state, models, progress)
        return work.report(state, tally)


@dataclass(kw_only=True)
class _Work:
    request: Request
    settings: Settings
    replay: ReplaySettings
    folder: RunFolder
    topics: ReplayTopics
    framing: Framing

    def begin_or_go_on(self, parameters: dict[str, Any]) -> RunState:
        """Freeze the source and record the run's parameters, or check them against those recorded."""
        for folder in self._folders():
            sweep(folder)
        source = self._source()
        state = self.folder.state()
        goes_on = state is not None
        if state is not None:
            refuse_other_parameters(state.parameters, parameters, self.request.run_id)
            source.check(state.source)
        self._prepare_topics(goes_on=goes_on)
        if state is None:
            self._refuse_occupied_out()
            audit = self._audit_topic()
            answered = None if audit is None else audit.snapshot()
            state = RunState(parameters=parameters, source=source.snapshot(), answered=answered)
            self.folder.begin(state)
        return state

    def _folders(self) -> list[Path]:
        out = self.request.out
        return [
            self.folder.folder,
            self.folder.folder / CHUNKS,
            *([] if out is None else [out, out / ANSWERS, out / REFUSED]),
        ]

    def _refuse_occupied_out(self) -> None:
        for name in (ANSWERS, REFUSED):
            if self.request.out is not None and (self.request.out / name).exists():
                message = f"--out {self.request.out}: holds {name} of another run; name another folder"
                raise ConfigurationError(message)

    def do(self, state: RunState, models: Models, progress: ReplayProgress) -> ReplayTally:
        """Judge and write every unfinished chunk; add up all results."""
        chunks = chunks_of(state.source.ranges, self.replay.replay_chunk_records)
        left = [chunk for chunk in chunks if not self.folder.finished(chunk)]
        if left:
            with SeenRecords() as seen:
                judge = Judge(
                    self._mode(state, models),
                    framing=self.framing,
                    window=self.request.window,
                    decision_bytes_max=self.settings.decision_bytes_max,
                    seen=seen,
                )
                self._do_chunks(chunks, left, judge, seen, progress)
        return merged(self.folder.result(chunk)[0] for chunk in chunks)

    def report(self, state: RunState, tally: ReplayTally) -> Finished:
        """Write the report, a pure function of what the run began with and its chunks' results."""
        from stream.replay.report.page import write_page  # noqa: PLC0415 - its plots take a second to import

        out = self.request.out or self.folder.folder / REPORT
        report = report_of(state.parameters, state.source, tally)
        paths = out / REPORT_JSON, out / REPORT_HTML
        write_whole(paths[0], report_bytes(report))
        write_whole(paths[1], write_page(report))
        return Finished(report=report, json_path=paths[0], html_path=paths[1])

    def published(self) -> Published:
        """Read the publications; bundles are opened as a worker opens them."""
        check_folder(self.settings.bundle_dir)
        open_bundles = OpenBundles(
            self.settings.bundle_dir,
            connect_redis(self.settings),
            models_max=self.settings.models_max,
            sources=self.settings.bundle_sources.split(",") if self.settings.bundle_sources else (),
            bytes_max=self.settings.bundle_bytes_max,
            chunk_bytes=self.settings.redis_chunk_bytes,
        )
        try:
            table = read_models(self.settings, self.framing)
        except KafkaUnavailable as away:
            message = f"{away}; the run needs the models topic; it does not where bundles are given with --bundle and no topic is used"
            raise KafkaUnavailable(message) from away
        return Published(table=table, open_bundles=open_bundles)

    def _do_chunks(
        self, chunks: Sequence[Chunk], left: Sequence[Chunk], judge: Judge, seen: SeenRecords, progress: ReplayProgress
    ) -> None:
        total = sum(chunk.end - chunk.first for chunk in chunks)
        done = before = total - sum(chunk.end - chunk.first for chunk in left)
        writers, pace = self._writers(), _Pace(self.request.speed)
        begun, to_do = iter(chunks), frozenset(left)
        for read in self._source().read(left):
            chunk = read.chunk
            for earlier in takewhile(lambda one: one != chunk, begun):  # noqa: B023 - used up at once
                if earlier not in to_do:
                    seen.know(self.folder.result(earlier)[1])
            judged: list[Judged] = []
            for raw in read.raws:
                pace.wait()
                judged.append((raw, judge.verdict(raw)))
                progress(done + len(judged), before, total)
            for writer in writers:
                judged = writer.write(chunk, judged)
            tally = ReplayTally(without_record=read.without_record)
            for raw, verdict in judged:
                tally.add(verdict, raw.where)
            self.folder.finish(chunk, tally, seen.taken())
            done += chunk.end - chunk.first  # offsets without a record count once their chunk is done
            progress(done, before, total)

    def _mode(self, state: RunState, models: Models) -> Mode:
        if self.request.mode == "reproduce":
            return Reproduce(models)
        if self.request.mode == "what-if":
            version = self.request.change.model_version
            if version is not None and version not in (known := models.versions()):
                message = f"--model {version}: no model of this version is published or given with --bundle; known are {', '.join(sorted(known)) or 'none'}"
                raise ConfigurationError(message)
            return WhatIf(models, self.request.change)
        return Backfill(models, answered_in(self._answer_sources(state), self.framing))

    def _answer_sources(self, state: RunState) -> Iterator[tuple[ReadsRecords, Snapshot]]:
        audit = self._audit_topic()
        if audit is not None and state.answered is not None:
            yield audit, state.answered
        if self.request.archive is not None:
            archive = ArchivedRecords(self.request.archive, window=Window(), framing=self.framing)
            yield archive, archive.snapshot()
        if self.request.answers is not None:
            lines = JsonlSource(self.request.answers)
            yield lines, lines.snapshot()

    def _audit_topic(self) -> TopicRecords | None:
        """The audit topic, where a backfill asks it which decisions have an answer."""
        if self.request.mode != "backfill" or not self.request.uses_kafka(self.settings):
            return None
        return TopicRecords(kafka_properties(self.settings), self.settings.topic_audit, window=Window())

    def _source(self) -> ReadsRecords:
        topic = self.request.source_topic(self.settings)
        if topic is not None:
            return TopicRecords(
                kafka_properties(self.settings), topic, window=self.request.window, offsets=self.request.offsets
            )
        if self.request.file is not None:
            return JsonlSource(self.request.file)
        return ArchivedRecords(str(self.request.archive), window=self.request.window, framing=self.framing)

    def _prepare_topics(self, *, goes_on: bool) -> None:
        if self.request.to_topics:
            own = self.topics
            self.framing.prepare(
                writes={
                    own.audit.name: "AuditRecord",
                    own.recommendations.name: "Recommendation",
                    own.dlq.name: "DeadLetter",
                }
            )
            prepare_topics(self.settings, self.replay, self.topics, self.framing, goes_on=goes_on)

    def _writers(self) -> list[ToTopics | ToFiles]:
        writers: list[ToTopics | ToFiles] = []
        if self.request.to_topics:
            delivery = KafkaDelivery(
                kafka_properties(self.settings), delivery_timeout_s=self.settings.delivery_timeout_s
            )
            writers.append(
                ToTopics(
                    delivery=FencedDelivery(delivery, self.topics),
                    topics=self.topics,
                    framing=self.framing,
                    settings=self.settings,
                )
            )
        if self.request.out is not None:
            writers.append(ToFiles(folder=self.request.out, run_id=self.request.run_id))
        return writers


class _Pace:
    """Limits a run to so many records a second; None does not limit it."""

    def __init__(self, records_per_s: float | None) -> None:
        self._every_s = 0.0 if records_per_s is None else 1 / records_per_s
        self._next_s = time.monotonic()

    def wait(self) -> None:
        while self._every_s and (early_s := self._next_s - time.monotonic()) > 0:
            time.sleep(min(early_s, PACE_STEP_S))
        self._next_s = max(self._next_s, time.monotonic() - PACE_STEP_S) + self._every_s
