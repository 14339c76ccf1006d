"""Every configuration by which a replay could reach the live topics, and what it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream.cli.main import coach
from stream.errors import ConfigurationError
from stream.replay.fence import (
    FencedDelivery,
    ReplayOutput,
    ReplayTopic,
    ReplayTopics,
    live_topics,
    replay_topics,
)
from stream.runtime.kafka.delivery import Output, Undeliverable
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings, read_settings

NOBODY = "127.0.0.1:1"
TOPICS = list(live_topics(Settings()))
names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789._-", min_size=1, max_size=249)
run_ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=40)


class Taken:
    """Keeps what it is given; refuses nothing."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []

    def deliver(self, outputs: Sequence[Output], retry: Retry) -> list[Undeliverable]:
        """Keep."""
        del retry
        self.outputs += outputs
        return []


def settings_with(live: Sequence[str]) -> Settings:
    return read_settings(dict(zip(TOPICS, live, strict=True)))


@given(live=st.lists(names, min_size=6, max_size=6, unique=True), run_id=run_ids)
def test_no_settings_let_a_replay_name_a_live_topic(live: list[str], run_id: str) -> None:
    """Given any names of live topics and any run id, when the run's topics are named, then none is live, or there is none."""
    settings = settings_with(live)
    try:
        topics = replay_topics(settings, run_id)
    except ConfigurationError:
        return
    for topic in topics.all:
        assert topic.name not in live_topics(settings).values()
        assert topic.name.endswith(f".replay.{run_id}")
        assert len(topic.name) <= 249


@pytest.mark.parametrize("variable", TOPICS)
@pytest.mark.parametrize("name", ["audit.replay.spring-check", "x.replay.", ".replay.x", "decisions.replay.other"])
def test_a_live_topic_that_looks_like_a_replays_is_refused(variable: str, name: str, tmp_path: Path) -> None:
    """Given any COACH_TOPIC_* whose name has `.replay.` in it, when a replay starts, then it exits with 2 and names the setting, before any broker is asked."""
    result = run(["--run-id", "spring-check"], {variable: name}, tmp_path)
    assert result.exit_code == 2, result.output
    assert variable in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variable", TOPICS)
def test_no_worker_can_have_a_topic_that_looks_like_a_replays(variable: str) -> None:
    """Given a name with `.replay.` for any live topic, when a worker is asked for its settings, then it refuses as well: what it writes can never be what a replay writes."""
    result = CliRunner().invoke(coach, ["worker", "--print-config"], env={variable: "audit.replay.spring-check"})
    assert result.exit_code == 2
    assert variable in result.output
    with pytest.raises(ConfigurationError, match=variable):
        replay_topics(dataclasses.replace(Settings(), **{variable.lower()[6:]: "a.replay.b"}), "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["COACH_TOPIC_AUDIT", "COACH_TOPIC_RECOMMENDATIONS", "COACH_TOPIC_DLQ"])
def test_a_name_that_kafka_cannot_hold_is_refused(variable: str, tmp_path: Path) -> None:
    """Given a live topic whose name leaves no room for the run's, when a replay starts, then it exits with 2 and names the setting."""
    result = run(["--run-id", "spring-check"], {variable: "t" * 240}, tmp_path)
    assert result.exit_code == 2
    assert variable in result.output
    assert "249" in result.output


def test_a_live_topic_that_kafka_takes_for_the_runs_is_refused(tmp_path: Path) -> None:
    """Given a live topic that differs from a topic of the run in dots and underscores only, when a replay starts, then it is refused, as Kafka itself would."""
    result = run(["--run-id", "spring-check"], {"COACH_TOPIC_NOTICES": "audit_replay_spring-check"}, tmp_path)
    assert result.exit_code == 2
    assert "COACH_TOPIC_NOTICES" in result.output


@pytest.mark.parametrize(
    "run_id", ["", "Spring", "a b", "a.b", "a/b", "../x", "a_b", "ä", "a\n", "x" * 41, ".replay.", "*"]
)
def test_a_run_id_that_could_name_anything_else_is_refused(run_id: str, tmp_path: Path) -> None:
    """Given a run id of other letters or length, when a replay starts, then it exits with 2, names the flag, and leaves nothing behind."""
    result = run(["--run-id", run_id], {}, tmp_path)
    assert result.exit_code == 2
    assert "--run-id" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        (["--topic", "audit.replay.other"], {}, "--topic"),
        (["--topic", "audit.replay.spring-check"], {}, "--topic"),
        (["--mode", "backfill", "--topic", "decisions.replay.x"], {}, "--topic"),
        ([], {"COACH_GROUP": "coach-without-a-group"}, "COACH_GROUP"),
        ([], {"COACH_TOPIC_AUDIT": "decisions"}, "COACH_TOPIC"),
        ([], {"COACH_TOPIC_AUDIT": "au dit"}, "COACH_TOPIC_AUDIT"),
        (["--no-topics"], {}, "--no-topics"),
        (["--topic", "a", "--input", "b.jsonl"], {}, "--topic, --archive and --input"),
        (["--mode", "what-if"], {}, "--mode what-if"),
        (["--threshold", "0.7"], {}, "--threshold"),
        (["--mode", "what-if", "--threshold", "1.5", "--threshold-scale", "probability"], {}, "--threshold"),
        (["--mode", "what-if", "--threshold", "nan"], {}, "--threshold"),
        (["--mode", "what-if", "--model", "2", "--threshold-scale", "margin"], {}, "--threshold-scale"),
        (["--input", "answers.jsonl", "--offsets", "0:1-2"], {}, "--offsets"),
        (["--offsets", "0:5-2,0:1-2"], {}, "--offsets"),
        (["--offsets", "nonsense"], {}, "--offsets"),
        (["--from", "yesterday"], {}, "--from"),
        (["--from", "2026-02-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], {}, "--from"),
        (["--speed", "0"], {}, "--speed"),
        (["--speed", "nan"], {}, "--speed"),
        (["--answers", "answers.jsonl"], {}, "--answers"),
        (["--mode", "what-if", "--features", "absent.toml"], {}, "--features"),
        ([], {"COACH_REPLAY_CHUNK_RECORDS": "0"}, "COACH_REPLAY_CHUNK_RECORDS"),
        ([], {"COACH_REPLAY_CHUNK_RECORD": "5"}, "COACH_REPLAY_CHUNK_RECORD"),
        (["--mode", "backfill", "--input", "d.jsonl", "--no-topics", "--out", "o"], {}, "--mode backfill"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(
    flags: list[str], environment: dict[str, str], named: str, tmp_path: Path
) -> None:
    """Given flags or settings that cannot be meant, when a replay starts, then it exits with 2 and names them."""
    result = run(["--run-id", "spring-check", *flags], environment, tmp_path)
    assert result.exit_code == 2, result.output
    assert named in result.output


def test_a_delivery_takes_nothing_but_the_topics_of_its_run() -> None:
    """Given outputs for another run, when they are delivered, then it refuses, and nothing at all is sent; the run's own carry its id."""
    topics = replay_topics(Settings(), "spring-check")
    taken = Taken()
    delivery = FencedDelivery(taken, topics)
    retry = Retry(total_s=1, pause_max_s=1)
    good = ReplayOutput(topic=topics.audit, key=b"k", value=b"v")
    for foreign in (
        ReplayTopic("audit", "autumn-check"),
        ReplayTopic("notices", "spring-check"),
        dataclasses.replace(topics.audit, live="decisions"),
    ):
        with pytest.raises(ConfigurationError):
            delivery.deliver([good, ReplayOutput(topic=foreign, key=None, value=b"")], retry)
    assert taken.outputs == []
    assert delivery.deliver([good], retry) == []
    [sent] = taken.outputs
    assert (sent.topic, sent.headers) == ("audit.replay.spring-check", (("coach-replay-run-id", b"spring-check"),))


def test_no_topic_of_a_replay_can_be_made_from_a_replays() -> None:
    """Given a topic that a replay wrote, when a topic of a replay is made from it, then there is none."""
    for live, run_id in (("audit.replay.x", "y"), ("", "y"), ("audit", "Y"), ("audit", "")):
        with pytest.raises(ConfigurationError):
            ReplayTopic(live, run_id)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ReplayTopic("audit", "y").live = "audit"  # type: ignore[misc]
    assert isinstance(replay_topics(Settings(), "y"), ReplayTopics)


def run(flags: list[str], environment: dict[str, str], folder: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201 - click's Result
    """Run `coach replay` with brokers that nobody is behind."""
    around = {"COACH_KAFKA_BROKERS": NOBODY, "COACH_REPLAY_STATE_DIR": str(folder), "COACH_START_WAIT_S": "0"}
    return CliRunner().invoke(coach, ["replay", *flags], env={**around, **environment})
