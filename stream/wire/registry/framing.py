"""Records framed for a schema registry: a zero byte, the schema's id in four, the Avro body (Confluent's wire format).

Ids for writing are fetched once and kept. For reading, all versions of the topics' subjects are fetched ahead; an unknown
id is looked up in a thread of its own, so that readers wait no longer than they can afford, and then cached. Records in
single-object encoding are still read, so a topic may hold both. Denied ids and outages are remembered for a while, so that
a flood of unknown ids does not become a flood of requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, cast

from stream.errors import ConfigurationError, MalformedRecord, RegistryUnavailable, StreamError, UnknownSchema, shown
from stream.wire.avro_records import REGISTRY_MARK, ReadRecord, decode, encode_body, reader_between
from stream.wire.framing import NOTHING
from stream.wire.registry.client import Registered, SchemaRegistry
from stream.wire.registry.subjects import WRITTEN_BY_OTHERS, ensure_readable, ensure_registered, why_unreadable
from stream.wire.schema_files import RECORDS, RecordName, RecordSchema, current_schemas, schema_fingerprint

log = logging.getLogger(__name__)

ID_BYTES: Final = 4
HEAD_BYTES: Final = len(REGISTRY_MARK) + ID_BYTES
DENIED_S: Final = 60.0  # before an id that the registry denied is asked for again
DENIED_MAX: Final = 10_000  # denied ids kept; the oldest is dropped first
KNOWN_MAX: Final = 10_000  # schemas kept for reading
OUTAGE_S: Final = 1.0  # before a registry that did not answer is asked again
LOOKUPS_MAX: Final = 4  # concurrent look-ups

Known: TypeAlias = tuple[RecordName, ReadRecord]


class RegistryFraming:
    """See `Framing`. Connects on first use."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        register: bool,
        records: Mapping[str, RecordName] = NOTHING,
        lookup_wait_s: float | None = None,
    ) -> None:
        """`register`: whether our schemas may be registered; `records`: the record on each of our topics.

        `lookup_wait_s`: how long `decode` waits for the registry; None: as long as a request may take.
        """
        self._registry = registry
        self._register = register
        self._records = records
        self._lookup_wait_s = lookup_wait_s
        self._heads: dict[tuple[str, RecordName], bytes] = {}
        self._loaded: set[str] = set()
        self._known: dict[bytes, Known] = {}
        self._denied: dict[bytes, tuple[float, str]] = {}
        self._under_way: dict[bytes, Future[Known]] = {}
        self._away: tuple[float, str] | None = None  # when the registry may be asked again, and why not before
        self._preparing = threading.Lock()
        self._lock = threading.Lock()

    def prepare(self, *, writes: Mapping[str, RecordName] = NOTHING, reads: Collection[str] = ()) -> None:
        """See `Framing`."""
        with self._preparing:
            for topic, record in writes.items():
                if (topic, record) not in self._heads:
                    schema_id = ensure_registered(self._registry, topic, record, register=self._register)
                    self._heads[topic, record] = REGISTRY_MARK + schema_id.to_bytes(ID_BYTES, "big")
            for topic in reads:
                if topic not in self._loaded and topic in self._records:
                    record = self._records[topic]
                    register = self._register and record in WRITTEN_BY_OTHERS
                    for one in ensure_readable(self._registry, topic, record, register=register):
                        self._take_in(one)
                    self._loaded.add(topic)

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:
        """See `Framing`."""
        head = self._heads.get((topic, record))
        if head is None:
            self.prepare(writes={topic: record})
            head = self._heads[topic, record]
        return head + encode_body(record, value)

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:  # noqa: ARG002 - ids are the registry's
        """See `Framing`."""
        if not data.startswith(REGISTRY_MARK):
            return decode(data)
        if len(data) < HEAD_BYTES:
            message = f"{len(data)} bytes that begin with 00 are no record: four bytes of schema id and a body follow"
            raise MalformedRecord(message)
        known = self._known.get(data[1:HEAD_BYTES]) or self._look_up(data[1:HEAD_BYTES])
        return known[0], known[1](data, HEAD_BYTES)

    def _look_up(self, name: bytes) -> Known:
        """Look up a schema in the registry. Raises: UnknownSchema, RegistryUnavailable."""
        with self._lock:
            under_way = self._under_way.get(name) or self._begin(name)
        try:
            return under_way.result(self._lookup_wait_s)
        except TimeoutError:
            message = (
                f"the schema registry at {self._registry.url} did not tell of schema {_id(name)} within "
                f"{self._lookup_wait_s:g} s; asking goes on"
            )
            self._away = time.monotonic() + OUTAGE_S, message
            raise RegistryUnavailable(message) from None

    def _begin(self, name: bytes) -> Future[Known]:
        """Start a look-up unless its outcome is known. The caller holds the lock."""
        now = time.monotonic()
        until, message = self._denied.get(name, (0.0, ""))
        if now < until:
            raise UnknownSchema(message)
        if self._away is not None and now < self._away[0]:
            raise RegistryUnavailable(self._away[1])
        if len(self._under_way) >= LOOKUPS_MAX:
            message = f"the schema registry at {self._registry.url} is being asked for {LOOKUPS_MAX} other schemas"
            raise RegistryUnavailable(message)
        found: Future[Known] = Future()
        self._under_way[name] = found
        threading.Thread(target=self._ask, args=(name, found), name="coach-registry", daemon=True).start()
        return found

    def _ask(self, name: bytes, found: Future[Known]) -> None:
        """Run the look-up in its thread; result or error go into the future."""
        try:
            answer = self._registry.schema(_id(name))
            self._away = None
            if answer is None:
                self._deny(name, f"the schema registry at {self._registry.url} knows no schema {_id(name)}")
            else:
                self._take_in(answer)
            known = self._known.get(name)
            if known is None:
                raise UnknownSchema(self._denied[name][1])  # noqa: TRY301 - handled with the other failures below
            found.set_result(known)
        except UnknownSchema as unknown:
            found.set_exception(unknown)
        except Exception as error:  # noqa: BLE001 - the future is the only way out of this thread
            away = error if isinstance(error, RegistryUnavailable) else self._failure(error)
            if self._away is None:
                log.warning("registry.away", extra={"why": str(away)})
            self._away = time.monotonic() + OUTAGE_S, str(away)
            found.set_exception(away)
        finally:
            with self._lock:
                self._under_way.pop(name, None)

    def _failure(self, error: Exception) -> RegistryUnavailable:
        """What a registry that refuses access, or a bug here, means to readers."""
        why = str(error) if isinstance(error, StreamError) else type(error).__name__
        return RegistryUnavailable(f"the schema registry at {self._registry.url} could not be asked: {why}")

    def _take_in(self, one: Registered) -> None:
        """Cache the reader of a registered schema, or the reason why it cannot be read."""
        name = one.schema_id.to_bytes(ID_BYTES, "big")
        if name in self._known:
            return
        try:
            known = self._readable(one)
        except UnknownSchema as unknown:
            self._deny(name, str(unknown))
            return
        while len(self._known) >= KNOWN_MAX:
            self._known.pop(next(iter(self._known)), None)
        self._known[name] = known

    def _readable(self, one: Registered) -> Known:
        """Raises: UnknownSchema."""
        where = f"schema {one.schema_id} of the registry at {self._registry.url}"
        title = _title(one.document).rpartition(".")[2]  # in any namespace
        record = next((record for record in RECORDS if record == title), None)
        if record is None:
            title = one.kind if one.document is None else f"of {_title(one.document)}"
            message = f"{where} is {title}; it must be Avro, of a record named {', '.join(RECORDS)} (in any namespace)"
            raise UnknownSchema(message)
        why = why_unreadable(one, record)
        if why is not None:
            message = f"{where} cannot be read as our {record}: {why}"
            raise UnknownSchema(message)
        document = cast("Mapping[str, Any]", one.document)
        try:
            written = RecordSchema(
                record=record, document=document, fingerprint=schema_fingerprint(document), where=where
            )
            return record, reader_between(written, current_schemas()[record])
        except Exception as error:  # a foreign schema: whatever the libraries raise, it is unreadable
            ours = isinstance(error, ConfigurationError)
            why = str(error) if ours else f"{type(error).__name__}: {shown(str(error))}"
            message = f"{where} cannot be read as our {record}: {why}"
            raise UnknownSchema(message) from error

    def _deny(self, name: bytes, why: str) -> None:
        with self._lock:
            while len(self._denied) >= DENIED_MAX:
                self._denied.pop(next(iter(self._denied)), None)
            self._denied.pop(name, None)
            self._denied[name] = time.monotonic() + DENIED_S, why


def _id(name: bytes) -> int:
    return int.from_bytes(name, "big")


def _title(document: object) -> str:
    if isinstance(document, dict) and document.get("type") in ("record", "error"):
        return shown(str(document.get("name", "")))
    return "something that is no record"
