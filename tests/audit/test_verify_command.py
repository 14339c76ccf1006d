"""`coach audit verify` over files and topics: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from stream.audit.sources import NO_ENVELOPE
from stream.canonical import sha256
from stream.cli.main import coach
from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.wire.avro_records import encode
from tests.bundle.inputs import inputs

Json = Any


def run(*words: str | Path, brokers: str = "127.0.0.1:1") -> Result:
    return CliRunner().invoke(coach, ["audit", "verify", *map(str, words)], env={"COACH_KAFKA_BROKERS": brokers})


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two bundles of the same model, and the answers of the first to its pool."""
    folder = tmp_path_factory.mktemp("room")
    given = inputs(folder)
    given.build()
    given.build("other", revision=2)
    words = ["--bundle", folder / "bundle", "--input", folder / "pool.csv", "--output", folder / "answers.jsonl"]
    assert CliRunner().invoke(coach, ["recommend", *map(str, words)]).exit_code == 0
    return folder


def lines(room: Path) -> list[Json]:
    return [json.loads(line) for line in (room / "answers.jsonl").read_text().splitlines()]


@pytest.fixture
def line(room: Path) -> Json:
    """An answer with tiers and reasons, free to be spoilt."""
    return next(one for one in lines(room) if one["recommendation"]["tiers"] and one["recommendation"]["reasons"])


def write(folder: Path, *values: Json) -> Path:
    path = folder / "written.jsonl"
    path.write_text("".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values))
    return path


def with_hashes(line: Json) -> Json:
    """Make the hashes fit a body that was changed, as a forger would."""
    body = line["audit"]["body"]
    named = {"bundle_sha256": body["bundle"]["bundle_sha256"], "decision": body["decision"]}
    body["recommendation_id"] = sha256(named | {"engine_version": body["engine_version"]})
    line["recommendation"]["recommendation_id"] = body["recommendation_id"]
    line["audit"]["body_sha256"] = sha256(body)
    return line


def test_what_topics_read_prints_verifies(room: Path, tmp_path: Path) -> None:
    """Given audit records as `coach topics read audit` prints them, then each verifies; with a changed figure, its line is named."""
    printed = [
        {"partition": 0, "offset": number, "key": "k", "record": one["audit"]} for number, one in enumerate(lines(room))
    ]
    done = run(write(tmp_path, *printed))
    assert (done.exit_code, done.stdout) == (0, f"{len(printed)} records, 0 wrong, 0 equal duplicates\n")
    printed[1]["record"]["body"]["gap"] = 0
    done = run(write(tmp_path, *printed))
    assert done.exit_code == 1
    assert "line 2: " in done.stderr


def test_good_answers_verify(room: Path) -> None:
    """Given the answers of `coach recommend`, when verified with and without their bundle, then all are counted and the exit code is 0."""
    count = len(lines(room))
    done = run(room / "answers.jsonl")
    assert (done.exit_code, done.stdout) == (0, f"{count} records, 0 wrong, 0 equal duplicates\n")
    assert not done.stderr.count(":")
    done = run(room / "answers.jsonl", "--bundle", room / "bundle", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"records": count, "wrong": 0, "duplicates": 0, "answered_again": count}


def test_an_audit_record_alone_verifies(tmp_path: Path, room: Path, line: Json) -> None:
    """Given lines that are audit records as the topic has them in JSON, when verified, then they count as records."""
    decision_id, envelope = line["decision_id"], {**NO_ENVELOPE, "software_version": "0.1.0"}
    path = write(tmp_path, {"decision_id": decision_id, **line["audit"], "envelope": envelope}, line["audit"], "\n")
    done = run(path, "--bundle", room / "bundle")
    assert done.exit_code == 0
    assert done.stdout.startswith("2 records, 0 wrong, 1 equal duplicates, 2 of them of this bundle")


def test_an_empty_file_has_no_records(tmp_path: Path, room: Path) -> None:
    """Given an empty file, then there are 0 records and nothing is wrong; with a bundle to hold them against, that is exit code 1."""
    path = write(tmp_path)
    assert (run(path).exit_code, run(path).stdout) == (0, "0 records, 0 wrong, 0 equal duplicates\n")
    done = run(path, "--bundle", room / "bundle")
    assert done.exit_code == 1
    assert f"there is no record in {path}: nothing was answered again" in done.stderr


def test_another_bundle_is_no_proof(room: Path) -> None:
    """Given good records and a bundle that answered none of them, then the exit code is 1 and it is said why."""
    done = run(room / "answers.jsonl", "--bundle", room / "other")
    assert done.exit_code == 1
    assert f"no record is of the bundle in {room / 'other'}: nothing was answered again" in done.stderr
    assert ", 0 wrong, 0 equal duplicates, 0 of them of this bundle" in done.stdout


def test_a_file_that_cannot_be_read_is_a_matter_of_usage(tmp_path: Path) -> None:
    """Given no file, a folder, or nothing to verify, then one line says so and the exit code is 2."""
    for words, said in (
        ([tmp_path / "none.jsonl"], "cannot read"),
        ([tmp_path], "there is no archive at"),
        ([], "say what to verify"),
        ([tmp_path, "--topic", "audit"], "say what to verify"),
    ):
        done = run(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


GARBAGE = {
    "no JSON": ("{", "is neither an audit record nor an answer"),
    "a list": ("[1]", "is neither an audit record nor an answer"),
    "another object": ("{}", "is neither an audit record nor an answer"),
    "a number": ("1", "is neither an audit record nor an answer"),
    "a body that is a text": ('{"body": "x"}', "has a body that is no JSON object"),
    "a body of nothing": ('{"body": {}}', "does not have the shape of an audit record"),
    "nesting without end": ('{"body": ' + "[" * 100_000, "is neither an audit record nor an answer"),
    "not a number": ('{"body": {"margin": NaN}}', "holds NaN or Infinity"),
    "a key twice": ('{"body": {"a": 1, "a": 2}}', "has an object with the same key twice"),
}


@pytest.mark.parametrize(("text", "said"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_wrong_and_named_by_its_line(tmp_path: Path, line: Json, text: str, said: str) -> None:
    """Given a line of garbage between good ones, then it is named by its number, the others count, and the exit code is 1."""
    done = run(write(tmp_path, line, text + "\n", line))
    assert (done.exit_code, done.stdout) == (1, "3 records, 1 wrong, 1 equal duplicates\n")
    assert f"line 2: {said}" in done.stderr


def test_bytes_that_are_no_text_are_wrong(tmp_path: Path) -> None:
    """Given a line that is no UTF-8, then it is wrong like any other garbage."""
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\x00\n")
    done = run(path)
    assert done.exit_code == 1
    assert "line 1: is neither" in done.stderr


def test_a_line_too_long_is_wrong(tmp_path: Path, line: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a line longer than any record, then it is skipped as wrong, and the next one is read as it is."""
    monkeypatch.setattr("stream.audit.sources.LINE_BYTES_MAX", 1 << 20)
    done = run(write(tmp_path, "x" * (5 << 20) + "\n", line))
    assert (done.exit_code, done.stdout) == (1, "2 records, 1 wrong, 0 equal duplicates\n")
    assert "line 1: is longer than 1 MiB" in done.stderr


def test_duplicates_must_be_equal(tmp_path: Path, line: Json) -> None:
    """Given an answer twice, then it is an equal duplicate; with another body the second is named."""
    other = json.loads(json.dumps(line))
    other["audit"]["body"]["tiers"][0]["rank"] += 1
    done = run(write(tmp_path, line, line, with_hashes(other)))
    assert (done.exit_code, done.stdout) == (1, "3 records, 1 wrong, 1 equal duplicates\n")
    assert "line 3: is the same answer as line 1, with another body" in done.stderr


def _no_hash(line: Json) -> None:
    del line["audit"]["body_sha256"]


def _null_hash(line: Json) -> None:
    line["audit"]["body_sha256"] = None


def _other_hash(line: Json) -> None:
    line["audit"]["body_sha256"] = "0" * 64


def _other_id(line: Json) -> None:
    line["decision_id"] = "someone-else"


def _other_id_inside(line: Json) -> None:
    line["audit"]["decision_id"] = "someone-else"


def _no_recommendation(line: Json) -> None:
    line["recommendation"] = None


def _advice(line: Json) -> None:
    line["recommendation"]["extra_advice"] = "pay me"


def _advice_in_the_body(line: Json) -> None:
    line["audit"]["body"]["extra"] = 1
    with_hashes(line)


def _yes_for_a_number(line: Json) -> None:
    line["audit"]["body"]["beta"] = True
    with_hashes(line)


FORGED_LINES = {
    "no hash": (_no_hash, "body_sha256 is missing"),
    "a hash of null": (_null_hash, "body_sha256 is missing"),
    "another hash": (_other_hash, "body_sha256 is not the hash of the body"),
    "another decision_id": (_other_id, "another decision_id than its body"),
    "another decision_id inside": (_other_id_inside, "another decision_id than its body"),
    "no recommendation": (_no_recommendation, "has a recommendation that is no JSON object"),
    "a field more": (_advice, "unknown field 'extra_advice'"),
    "a field more in the body": (_advice_in_the_body, "unknown field 'extra'"),
    "true for a number": (_yes_for_a_number, "does not fit the schema"),
}


@pytest.mark.parametrize(("forge", "said"), FORGED_LINES.values(), ids=FORGED_LINES)
def test_a_forged_line_is_named(tmp_path: Path, line: Json, forge: Any, said: str) -> None:
    """Given a line changed around the body or beyond its schema, then it is named and the exit code is 1."""
    forge(line)
    done = run(write(tmp_path, line))
    assert (done.exit_code, done.stdout) == (1, "1 records, 1 wrong, 0 equal duplicates\n")
    assert said in done.stderr


def test_a_key_twice_in_the_recommendation_is_named(tmp_path: Path, line: Json) -> None:
    """Given a line whose recommendation tells two statuses, then it is wrong, whichever a reader would take."""
    text = json.dumps(line).replace('"recommendation": {', '"recommendation": {"status": "no_feasible_recourse", ', 1)
    done = run(write(tmp_path, text + "\n"))
    assert done.exit_code == 1
    assert "line 1: has an object with the same key twice" in done.stderr


CONTENT: dict[str, Any] = {
    "what an action is called": (lambda r: r["tiers"][0]["actions"][0].update(label="your race"), "tiers"),
    "nothing but the run": (lambda _: None, None),
    "a unit": (lambda r: r["tiers"][0]["actions"][0].update(unit="EUR"), "tiers"),
    "a binding threshold": (lambda r: r["tiers"][0]["actions"][0].update(binding_threshold=0.5), "tiers"),
}


@pytest.mark.parametrize(("change", "key"), CONTENT.values(), ids=CONTENT)
def test_the_bundle_knows_the_whole_recommendation(
    tmp_path: Path, room: Path, line: Json, change: Any, key: str | None
) -> None:
    """Given a recommendation changed where the record proves nothing, then the bundle's own answer differs and is named; a run_id may be any."""
    change(line["recommendation"])
    line["recommendation"].update(replay=True, run_id="r-1")
    path = write(tmp_path, line)
    assert run(path).exit_code == 0
    done = run(path, "--bundle", room / "bundle")
    assert done.exit_code == (0 if key is None else 1)
    assert (f"gives another recommendation for this decision; it differs in: {key}" in done.stderr) == bool(key)


def test_the_bundle_knows_what_only_the_model_can(tmp_path: Path, room: Path, line: Json) -> None:
    """Given a share of robustness and texts made up in both records, hashes included, then the bundle names the parts that differ."""
    for record in (line["audit"]["body"], line["recommendation"]):
        record["tiers"][0]["robust_share"] = 1.0
        record["reasons"][0]["text"] = "too old"
    path = write(tmp_path, with_hashes(line))
    assert run(path).exit_code == 0
    done = run(path, "--bundle", room / "bundle")
    assert done.exit_code == 1
    assert "gives another body for this decision; it differs in: tiers, reasons\n" in done.stderr
    assert "gives another recommendation for this decision; it differs in: tiers, reasons\n" in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("epsilon", 0.25, "description"), ("threshold", 0.5000001, "threshold"), ("library_version", "9", "description")],
)
def test_records_of_one_bundle_agree_on_it(tmp_path: Path, line: Json, key: str, value: Any, said: str) -> None:
    """Given two records of one bundle that describe it differently, then the second is named, without the bundle."""
    other = json.loads(json.dumps(line))
    body = other["audit"]["body"]
    body["decision"]["decision_id"] = other["decision_id"] = other["recommendation"]["decision_id"] = "another"
    body[key] = value
    done = run(write(tmp_path, line, with_hashes(other)))
    assert done.exit_code == 1
    assert f"line 2: is of the same bundle as line 1, and gives it another {said}" in done.stderr


# --- from a topic -----------------------------------------------------------------------------------------------------


def record_of(line: Json) -> bytes:
    decision_id = line["audit"]["body"]["decision"]["decision_id"]
    return encode("AuditRecord", {"decision_id": decision_id, **line["audit"], "envelope": NO_ENVELOPE})


def test_a_topic_is_read_to_its_end(room: Path, line: Json) -> None:
    """Given a topic with good records, then they verify; with a record under another key, a recommendation and garbage, each is named by its place."""
    good, key = record_of(line), line["decision_id"]
    with EmbeddedKafka({"audit": 2, "mixed": 1, "empty": 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for k in range(5):
            producer.produce("audit", good, key, partition=k % 2)
        for value, name in (
            (good, key),
            (good, "x"),
            (encode("Recommendation", line["recommendation"]), key),
            (b"", key),
        ):
            producer.produce("mixed", value, name)
        assert producer.flush(20) == 0
        done = run("--topic", "audit", "--bundle", room / "bundle", brokers=kafka.bootstrap)
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("5 records, 0 wrong, 4 equal duplicates, 5 of them of this bundle")
        done = run("--topic", "mixed", brokers=kafka.bootstrap)
        assert (done.exit_code, done.stdout) == (1, "4 records, 3 wrong, 0 equal duplicates\n")
        for said in ("[0]@1: has another key", "[0]@2: is a Recommendation", "[0]@3: cannot be decoded"):
            assert f"mixed{said}" in done.stderr
        assert run("--topic", "empty", brokers=kafka.bootstrap).stdout == "0 records, 0 wrong, 0 equal duplicates\n"
        done = run("--topic", "nowhere", brokers=kafka.bootstrap)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "have no topic nowhere; create it with `coach topics apply`" in done.stderr


def test_a_broker_that_is_down_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no broker where the settings say, then one line names the address, nothing of librdkafka's own, and the exit code is 3."""
    monkeypatch.setattr("stream.runtime.kafka.topic_scan.ANSWER_MAX_S", 1.5)
    done = run("--topic", "audit", brokers="127.0.0.1:9")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("coach: reading topic audit from the brokers at 127.0.0.1:9 failed: ")
    assert done.stderr.count("\n") == 1
    assert capfd.readouterr() == ("", "")
