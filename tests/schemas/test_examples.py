"""Each example beside the schemas does what it is an example of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream import errors
from stream.audit.verify.body import verify
from stream.errors import CorruptionError, PoisonError
from stream.wire.avro_records import decode, encode, reader_between, writer_of
from stream.wire.decisions import read_decision
from stream.wire.schema_files import RECORDS, RecordName, current_schemas, published_schemas
from tests.records import decision_dict
from tests.schemas.example_files import EXAMPLES, bad_examples, good_examples, read_bad, read_good, with_bytes

OUTPUTS = [record for record in RECORDS if record != "Decision"]
GOOD = [(record, path) for record in RECORDS for path in good_examples(record)]
GOOD_OUTPUTS = [(record, path) for record, path in GOOD if record != "Decision"]
BAD_OUTPUTS = [(record, path) for record in OUTPUTS for path in bad_examples(record)]


def _name(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)


def _framed(path: Path) -> bytes:
    return bytes.fromhex(path.with_suffix(".hex").read_text("utf-8"))


def test_every_record_has_good_and_bad_examples() -> None:
    """Given the records, then each has at least two good examples and a bad one."""
    for record in RECORDS:
        assert len(good_examples(record)) >= 2, record
        assert bad_examples(record), record


@pytest.mark.parametrize("path", good_examples("Decision"), ids=_name)
def test_a_good_decision_reads_the_same_from_json_and_from_avro(path: Path) -> None:
    """Given a good decision as JSON and as Avro, when both are read, then they are one decision, and its bytes are those."""
    decision = read_decision(path.read_bytes())
    assert read_decision(_framed(path)) == decision
    assert encode("Decision", decision_dict(decision)) == _framed(path)


@pytest.mark.parametrize(("record", "path"), GOOD_OUTPUTS, ids=_name)
def test_a_good_record_goes_to_its_bytes_and_back(record: RecordName, path: Path) -> None:
    """Given a good record, when it is written and read, then the bytes are the example's and nothing is lost."""
    value = read_good(record, path)
    assert encode(record, value) == _framed(path)
    assert decode(_framed(path)) == (record, value)


@pytest.mark.parametrize("record", ["AuditRecord", "Recommendation"])
def test_what_an_older_schema_wrote_keeps_its_hash(record: RecordName) -> None:
    """Given a record written before a schema grew, when it is read by the schema of today, then it is the same JSON, so its hash still fits."""
    value = read_good(record, EXAMPLES / record / "ok.json")
    for version in published_schemas(record):
        assert reader_between(version, current_schemas()[record])(writer_of(version)(value), 0) == value


@pytest.mark.parametrize("path", good_examples("AuditRecord"), ids=_name)
def test_a_good_audit_record_adds_up_after_avro(path: Path) -> None:
    """Given an audit record that came through Avro, when it is verified with its recommendation, then every number adds up."""
    _, value = decode(_framed(path))
    _, recommendation = decode(_framed(path.parents[1] / "Recommendation" / path.name))
    assert verify(value["body"], value["body_sha256"], recommendation) == []


@pytest.mark.parametrize("path", bad_examples("Decision"), ids=_name)
def test_a_bad_decision_is_refused_for_its_reason(path: Path) -> None:
    """Given a bad decision, when it is read, then it is refused by exactly the class that the example names."""
    example = read_bad(path)
    expected = getattr(errors, example.error)
    assert issubclass(expected, PoisonError)
    with pytest.raises(expected) as refused:
        read_decision(example.data)
    assert type(refused.value) is expected
    assert refused.value.stage in ("decode", "validate")


@pytest.mark.parametrize(("record", "path"), BAD_OUTPUTS, ids=_name)
def test_a_bad_record_of_ours_is_not_written(record: RecordName, path: Path) -> None:
    """Given an output that does not fit its schema, when it is written, then that is a fault of ours, named by field."""
    example = read_bad(path)
    assert example.error == "CorruptionError"
    value = with_bytes(current_schemas()[record].document, json.loads(example.data))
    with pytest.raises(CorruptionError, match=f"does not fit its schema: {record}"):
        encode(record, value)
