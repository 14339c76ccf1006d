"""Incoming decisions: bytes to `Decision`, from Avro or plain JSON, or a typed refusal.

schemas/README.md has the rules and their reasons. A refusal names the field and never repeats its value: a decision is
about a person, and messages go to logs and dead letters. Features are checked against the model later, where it is known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast, get_args

from stream.errors import InvalidDecision, MalformedRecord, NonFiniteFeature, UnknownOutcome, WrongFeatureType
from stream.events import Decision, DecisionOutcome, DeclineBasis, ThresholdScale, Value
from stream.strict_json import STRICT_JSON, DuplicateKeyError, NonFiniteNumberError
from stream.times import time_ms
from stream.wire.avro_records import REGISTRY_MARK, SINGLE_OBJECT_MARK
from stream.wire.framing import SINGLE_OBJECT, Framing

DECISION_BYTES_MAX: Final = 1 << 20  # what a Kafka broker takes by default (message.max.bytes)
ID_CHARACTERS_MAX: Final = 256
_NAME_CHARACTERS_SHOWN: Final = 64  # of a name that the sender chose, in a message

_REQUIRED: Final = frozenset({"decision_id", "event_time", "model_id", "model_version", "features", "outcome"})
_OPTIONAL: Final = frozenset(
    {
        "subject_ref", "decline_basis", "margin", "probability", "threshold", "threshold_scale", "product",
        "jurisdiction", "policy_overrides", "disclosures", "traceparent",
    }
)  # fmt: skip
_FIELDS: Final = _REQUIRED | _OPTIONAL
_BLANK: Final = b" \t\r\n"


def read_decision(
    value: bytes, *, bytes_max: int = DECISION_BYTES_MAX, framing: Framing = SINGLE_OBJECT, topic: str = ""
) -> Decision:
    """Read one decision: Avro as `framing` reads it from `topic`, or a plain JSON object in UTF-8.

    `bytes_max` is the topic's limit; a longer value is refused unread.
    Raises: MalformedRecord, UnknownSchema, InvalidDecision or one of its branches; RegistryUnavailable.
    """
    if len(value) > bytes_max:
        message = f"the decision has {len(value)} bytes; at most {bytes_max} are allowed"
        raise MalformedRecord(message)
    if value.startswith((SINGLE_OBJECT_MARK, REGISTRY_MARK)):
        record, fields = framing.decode(value, topic=topic)
        if record != "Decision":
            message = f"the record is a {record} where a Decision was expected"
            raise MalformedRecord(message)
        return decision_of(fields)
    return decision_of(json_object(value))


def json_object(value: bytes) -> dict[str, Any]:
    """Parse a JSON object; orjson would keep one of two equal keys, and round integers. Raises: MalformedRecord."""
    if not value.lstrip(_BLANK).startswith(b"{"):
        message = f"the {len(value)} bytes are neither an Avro record (C3 01) nor a JSON object"
        raise MalformedRecord(message)
    try:
        text = value.decode()
        parsed: dict[str, Any] = STRICT_JSON.decode(text)
        if "\\u" in text:  # only an escape can bring in half of a surrogate pair
            json.dumps(parsed, ensure_ascii=False).encode()
        return parsed  # noqa: TRY300 - each except below says what is wrong
    except DuplicateKeyError:
        message = "an object of the JSON decision has the same key twice"
    except NonFiniteNumberError as error:
        message = f"the JSON decision holds {error.name}, which JSON does not have; a known-missing value is null"
    except UnicodeError:
        message = "the JSON decision is not UTF-8, or escapes half of a surrogate pair"
    except json.JSONDecodeError as error:
        message = f"the JSON decision breaks off at character {error.pos}: {error.msg}"
    except RecursionError:
        message = "the JSON decision is nested too deeply; only features, policy_overrides and disclosures are objects"
    except ValueError:  # an integer of more digits than Python reads (4,300)
        message = "the JSON decision holds an integer with thousands of digits"
    raise MalformedRecord(message)


def decision_of(fields: Mapping[str, Any], *, timed: bool = True) -> Decision:
    """Check the fields of one decision and assemble it; `timed` is False for offline rows, which need no time.

    Raises: InvalidDecision or one of its branches.
    """
    if unknown := fields.keys() - _FIELDS:
        name = _shown(min(unknown))
        message = f"decision: there is no field {name}; a misspelt one would change the answer unnoticed"
        raise InvalidDecision(message)
    for name in sorted(_REQUIRED if timed else _REQUIRED - {"event_time"}):
        if fields.get(name) is None:
            _refuse(name, "is missing; it is required")
    return Decision(
        decision_id=_id(fields, "decision_id"),
        event_time_ms=_time(fields, "event_time"),
        model_id=_id(fields, "model_id"),
        model_version=_id(fields, "model_version"),
        features=_features(fields["features"]),
        outcome=_outcome(fields["outcome"]),
        decline_basis=cast("DeclineBasis", _word(fields, "decline_basis", get_args(DeclineBasis)) or "model"),
        subject_ref=_text(fields, "subject_ref"),
        margin=_number(fields, "margin"),
        probability=_number(fields, "probability"),
        threshold=_number(fields, "threshold"),
        threshold_scale=cast("ThresholdScale | None", _word(fields, "threshold_scale", get_args(ThresholdScale))),
        product=_text(fields, "product"),
        jurisdiction=_text(fields, "jurisdiction"),
        policy_overrides=_texts(fields, "policy_overrides"),
        disclosures=_texts(fields, "disclosures"),
        traceparent=_text(fields, "traceparent"),
    )


def _shown(name: str) -> str:
    """A name that the sender chose, bounded and with control characters escaped."""
    return repr(name if len(name) <= _NAME_CHARACTERS_SHOWN else name[:_NAME_CHARACTERS_SHOWN] + "...")


def _refuse(name: str, what: str) -> NoReturn:
    message = f"decision: {name} {what}"
    raise InvalidDecision(message)


def _id(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not 1 <= len(value) <= ID_CHARACTERS_MAX or not value.isprintable():
        _refuse(name, f"must be a text of 1 to {ID_CHARACTERS_MAX} printable characters")
    return value


def _time(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        _refuse(name, "is no usable time: not a text")
    try:
        return time_ms(value)
    except ValueError as error:
        fault = str(error)
    _refuse(name, f"is no usable time: {fault}")


def _outcome(value: object) -> DecisionOutcome:
    if value not in get_args(DecisionOutcome):
        message = f"decision: outcome must be one of {', '.join(get_args(DecisionOutcome))}"
        raise UnknownOutcome(message)
    return cast("DecisionOutcome", value)


def _word(fields: Mapping[str, Any], name: str, words: tuple[str, ...]) -> str | None:
    value = fields.get(name)
    if value is not None and value not in words:
        _refuse(name, f"must be one of {', '.join(words)}")
    return cast("str | None", value)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        _refuse(name, "must be a text or null")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> Mapping[str, str]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        _refuse(name, "must be an object of texts")
    return cast("dict[str, str]", value)


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) not in (int, float):
        _refuse(name, "must be a number or null")
    number = _double(value)
    if number is None or not math.isfinite(number):
        _refuse(name, "must be finite and fit a double")
    return number


def _double(value: float) -> float | None:
    """The number as a double; None for an integer that a double cannot hold exactly."""
    if type(value) is float:
        return value
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number == value else None


def _features(features: object) -> Mapping[str, Value]:
    if not isinstance(features, dict):
        _refuse("features", "must be an object of numbers, texts and nulls")
    return {
        name: value if value is None or type(value) is str else _feature(name, value)
        for name, value in features.items()
    }


def _feature(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        truth = "; for true and false write 1 and 0" if isinstance(value, bool) else ""
        message = f"decision: feature {_shown(name)} must be a number, a text or null{truth}"
        raise WrongFeatureType(message)
    number = _double(value)
    if number is None:
        message = f"decision: feature {_shown(name)} is an integer that a double cannot hold exactly"
        raise WrongFeatureType(message)
    if not math.isfinite(number):
        message = f"decision: feature {_shown(name)} is not finite; a known-missing value is null"
        raise NonFiniteFeature(message)
    return number
