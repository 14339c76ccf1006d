"""Records of a topic as lines of JSON: what `coach topics read` prints."""

from __future__ import annotations

import base64

import orjson
from confluent_kafka import Message

from stream.errors import PoisonError
from stream.wire.avro_records import REGISTRY_MARK, SINGLE_OBJECT_MARK
from stream.wire.framing import Framing


def line_of(message: Message, framing: Framing) -> bytes:
    """Write one record with its place and key. Bytes are given as text where they are ASCII, else in base64.

    Raises: RegistryUnavailable.
    """
    key, value = message.key(), message.value()
    where = {"partition": message.partition(), "offset": message.offset(), "key": key}
    return orjson.dumps(
        {**where, "record": _record(value, str(message.topic()), framing)},
        default=as_text,
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _record(value: bytes | None, topic: str, framing: Framing) -> object:
    if value is None:
        return None
    try:
        # A decision may be plain JSON; everything of ours is Avro.
        if value.startswith((SINGLE_OBJECT_MARK, REGISTRY_MARK)):
            return framing.decode(value, topic=topic)[1]
        return orjson.loads(value)
    except PoisonError as refused:
        return {"not_readable": str(refused), "value": value}
    except orjson.JSONDecodeError:
        return value


def as_text(value: object) -> object:
    """Give bytes as JSON can hold them: text where they are ASCII, else base64. Raises: TypeError for anything else."""
    if not isinstance(value, bytes):
        raise TypeError
    return value.decode() if value.isascii() else {"base64": base64.b64encode(value).decode()}
