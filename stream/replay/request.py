"""The request of a replay, and the parameters that a resumed run must share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stream.bundle.uris import without_secrets
from stream.errors import ConfigurationError
from stream.recourse.model import PublishedModel
from stream.recourse.record.decision_record import ENGINE_VERSION
from stream.replay.fence import ReplayTopics, check_run_id, check_source
from stream.replay.judge.verdict import ModeName
from stream.replay.judge.what_if import Change
from stream.replay.settings import ReplaySettings
from stream.replay.sources.records import Window
from stream.runtime.settings import Settings

EVERYTHING: Final = Window()
NOTHING: Final = Change()
SPEED_MAX: Final = 1_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The flags of `coach replay`, read. Of `topic`, `archive` and `file` one is the source; None of all: the default topic."""

    run_id: str
    mode: ModeName
    topic: str | None = None
    archive: str | None = None
    file: Path | None = None
    answers: Path | None = None
    window: Window = EVERYTHING
    offsets: Mapping[int, tuple[int | None, int | None]] | None = None
    bundles: Sequence[Path] = ()
    change: Change = NOTHING
    to_topics: bool = True
    out: Path | None = None
    state: Path | None = None
    speed: float | None = None

    def source_topic(self, settings: Settings) -> str | None:
        """The topic to replay; None where the source is an archive or a file."""
        if self.file is not None or (self.archive is not None and self.mode != "backfill"):
            return None
        if self.topic is not None:
            return self.topic
        return settings.topic_audit if self.mode == "reproduce" else settings.topic_decisions

    def uses_kafka(self, settings: Settings) -> bool:
        """Whether the run needs brokers."""
        return self.to_topics or self.source_topic(settings) is not None

    def asks_models_topic(self, settings: Settings) -> bool:
        """Whether missing bundles are looked up on the models topic: not where bundles are given and no broker is used."""
        return self.uses_kafka(settings) or not self.bundles

    def folder(self, replay: ReplaySettings) -> Path:
        """The folder of the run's state."""
        return (self.state or replay.replay_state_dir / self.run_id).expanduser()


def check_request(request: Request, settings: Settings) -> None:
    """Refuse flags that contradict each other. Raises: ConfigurationError that names them."""
    check_run_id(request.run_id)
    if wrong := next((message for holds, message in _rules(request, settings) if holds), None):
        raise ConfigurationError(wrong)
    topic = request.source_topic(settings)
    if topic is not None:
        own = {settings.topic_audit: "COACH_TOPIC_AUDIT", settings.topic_decisions: "COACH_TOPIC_DECISIONS"}
        check_source(topic, "--topic" if request.topic is not None else own[topic])
    threshold = request.change.threshold
    is_share = request.change.threshold_scale == "probability"
    if threshold is not None and not (math.isfinite(threshold) and (not is_share or 0 < threshold < 1)):
        message = f"--threshold {threshold:g}: must be between 0 and 1 on scale probability, and finite on scale margin"
        raise ConfigurationError(message)


def _rules(request: Request, settings: Settings) -> Sequence[tuple[bool, str]]:
    """Each rule that a request may break, as (whether it does, the error's text)."""
    sources = [one for one in (request.topic, request.archive, request.file) if one is not None]
    change, what_if = request.change, request.mode == "what-if"
    of_another = request.archive is not None and request.mode == "backfill"
    changes = change != NOTHING or bool(request.bundles)
    return [
        (len(sources) - of_another > 1, "--topic, --archive and --input: name one source"),
        (not request.to_topics and request.out is None, "--no-topics: say where the answers go with --out FOLDER"),
        (
            what_if and not changes,
            "--mode what-if: say what is different: --model, --bundle, --threshold, --features or --policy",
        ),
        (
            not what_if and change != NOTHING,
            f"--model, --threshold, --features and --policy are for --mode what-if; --mode {request.mode} changes nothing",
        ),
        (
            change.threshold is None and change.threshold_scale is not None,
            "--threshold-scale: give the --threshold that it is the scale of",
        ),
        (
            request.offsets is not None and request.source_topic(settings) is None,
            "--offsets: are those of a topic; --archive and --input have none",
        ),
        (
            request.answers is not None and request.mode != "backfill",
            "--answers: tells --mode backfill what has an answer; replay a file of answers with --input",
        ),
        (
            request.mode == "backfill"
            and not request.uses_kafka(settings)
            and request.answers is None
            and request.archive is None,
            "--mode backfill: say what has an answer already, with --archive or --answers",
        ),
        (
            request.speed is not None and not 0 < request.speed <= SPEED_MAX,
            f"--speed {request.speed}: must be records a second, above 0 and at most {SPEED_MAX:g}",
        ),
    ]


def parameters_of(
    request: Request, settings: Settings, replay: ReplaySettings, given: Sequence[PublishedModel], topics: ReplayTopics
) -> dict[str, Any]:
    """What a run's result depends on besides the content of its source, as JSON."""
    change, window = request.change, request.window
    return {
        "run_id": request.run_id,
        "mode": request.mode,
        "engine_version": ENGINE_VERSION,
        "topic": request.source_topic(settings),
        "archive": None if request.archive is None else without_secrets(request.archive),
        "from_ms": window.from_ms,
        "to_ms": window.to_ms,
        "offsets": None
        if request.offsets is None
        else {str(part): list(ends) for part, ends in sorted(request.offsets.items())},
        "bundles": sorted(model.identity["bundle_sha256"] for model in given),
        "model": change.model_version,
        "threshold": change.threshold,
        "threshold_scale": change.threshold_scale,
        "features_sha256": _digest(change.features),
        "policy_sha256": _digest(change.policy),
        "chunk_records": replay.replay_chunk_records,
        "topics": [topic.name for topic in topics.all] if request.to_topics else [],
        "out": None if request.out is None else str(request.out.absolute()),
    }


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
