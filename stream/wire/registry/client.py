"""Client of a schema registry, over confluent-kafka's: typed answers, typed errors, bounded waits.

The client's own caches are bypassed for what must be current: a subject's versions and its compatibility level.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from stream.errors import ConfigurationError, RegistryUnavailable, shown
from stream.wire.schema_files import SchemaNode

ERROR_CHARACTERS_MAX: Final = 600  # of a registry's own text, in a message
REFERENCES_MAX: Final = 100  # schemas that one schema may reference
_NO_SUCH: Final = frozenset({40401, 40402, 40403, 40408})  # subject, version, schema, level of a subject
_BUSY: Final = frozenset({408, 425, 429})
_REFUSALS: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY})

Answer = TypeVar("Answer")

for _name in ("httpx", "httpx2", "httpcore", "httpcore2"):  # they log a line per request, with its address
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as a registry holds it. `document` is None unless it is Avro; `kind` is its type."""

    schema_id: int
    kind: str
    document: SchemaNode | None
    version: int = 0  # within the subject that was asked for


class RefusedSchemaError(Exception):
    """The registry rejects a schema; the text is its own."""


class SchemaRegistry(Protocol):
    """A schema registry. Thread-safe; methods raise RegistryUnavailable or ConfigurationError."""

    @property
    def url(self) -> str:
        """Its address, for messages."""

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, oldest first; empty for an unknown subject."""

    def schema(self, schema_id: int) -> Registered | None:
        """The schema of an id, or None for an unknown id."""

    def register(self, subject: str, document: Mapping[str, Any]) -> int:
        """Register a schema; return its id. Raises: RefusedSchemaError when it is incompatible or no schema."""

    def level(self, subject: str) -> str | None:
        """A subject's compatibility level, its own or else the registry's default; None when neither is set."""

    def set_level(self, subject: str, level: str) -> None:
        """Set a subject's compatibility level."""


class RegistryClient:
    """`SchemaRegistry` over HTTP, connecting on first use. No message holds the password."""

    def __init__(
        self, url: str, *, username: str = "", password: str = "", ca_file: str = "", timeout_s: float = 5.0
    ) -> None:
        """`url`: one or several of http(s), separated by commas. Each request waits `timeout_s` at most.

        Raises: ConfigurationError for a CA file that holds no certificate.
        """
        self.url, self._username = url, username
        # Callers retry within their own bounds.
        properties: dict[str, Any] = {"url": url, "timeout": timeout_s, "max.retries": 0}
        if username:
            properties["basic.auth.user.info"] = f"{username}:{password}"
        if ca_file:
            properties["ssl.ca.location"] = ca_file
        try:
            self._client = SchemaRegistryClient(properties)
        except (OSError, ValueError) as error:
            message = f"the client of the schema registry at {url} cannot be made: {error}"
            raise ConfigurationError(message) from error
        weakref.finalize(self, self._client.close)  # close its sockets with the last reference

    def versions(self, subject: str) -> list[Registered]:
        """See `SchemaRegistry`."""
        numbers = self._ask(f"subject {subject}", lambda: self._client.get_versions(subject)) or []
        return [one for number in sorted(numbers) if (one := self._version(subject, number)) is not None]

    def schema(self, schema_id: int) -> Registered | None:
        """See `SchemaRegistry`."""
        found = self._ask(f"schema {schema_id}", lambda: self._client.get_schema(schema_id))
        return None if found is None else self._registered(schema_id, found, 0)

    def register(self, subject: str, document: Mapping[str, Any]) -> int:
        """See `SchemaRegistry`."""
        schema = Schema(json.dumps(document, ensure_ascii=False), "AVRO")
        schema_id = self._ask(f"subject {subject}", lambda: self._client.register_schema(subject, schema), _REFUSALS)
        if schema_id is None:
            message = f"the schema registry at {self.url} took a schema for subject {subject} and gave no id"
            raise ConfigurationError(message)
        return schema_id

    def level(self, subject: str) -> str | None:
        """See `SchemaRegistry`."""
        own = self._ask(f"the level of {subject}", lambda: self._client.get_compatibility(subject))
        return own or self._ask("the general level", self._client.get_compatibility)

    def set_level(self, subject: str, level: str) -> None:
        """See `SchemaRegistry`."""
        self._ask(f"the level of {subject}", lambda: self._client.set_compatibility(subject, level))

    def _version(self, subject: str, number: int) -> Registered | None:
        found = self._ask(f"subject {subject}", lambda: self._client.get_version(subject, number))
        return None if found is None else self._registered(int(found.schema_id or 0), found.schema, number)

    def _registered(self, schema_id: int, schema: Schema, version: int) -> Registered:
        kind = schema.schema_type or "AVRO"
        document = self._document(schema) if kind == "AVRO" else None
        return Registered(schema_id=schema_id, kind=kind, document=document, version=version)

    def _document(self, schema: Schema) -> SchemaNode | None:
        """Parse a schema, with each referenced schema inlined at its first use."""
        try:
            document = json.loads(schema.schema_str or "")
        except ValueError:
            return schema.schema_str  # a bare name is Avro too
        named: dict[str, SchemaNode] = {}
        self._collect(schema, named)
        return _whole(document, named, "") if named else document

    def _collect(self, schema: Schema, named: dict[str, SchemaNode]) -> None:
        for reference in schema.references or ():
            if reference.name in named or len(named) >= REFERENCES_MAX:
                continue
            subject, version = str(reference.subject), int(reference.version or 0)
            found = self._ask(f"subject {subject}", partial(self._client.get_version, subject, version))
            if found is not None and reference.name:
                named[reference.name] = json.loads(found.schema.schema_str or "null")
                self._collect(found.schema, named)

    def _ask(self, what: str, question: Callable[[], Answer], refusals: Collection[int] = ()) -> Answer | None:
        """Send a request; None where the registry knows no such subject, version or schema.

        Raises: RefusedSchemaError for an HTTP status of `refusals`; RegistryUnavailable, ConfigurationError.
        """
        try:
            return question()
        except SchemaRegistryError as error:
            status, error_text = error.http_status_code, shown(str(error.error_message), ERROR_CHARACTERS_MAX)
            if status in refusals:
                raise RefusedSchemaError(error_text) from error
            if error.error_code in _NO_SUCH:
                return None
            raise self._failure(status, what, error_text) from error
        except Exception as error:
            # The client's libraries raise anything: no connection, no TLS, no JSON. All of it means that the registry is
            # unavailable. Their text is not repeated, because some of it holds the address with its password.
            message = (
                f"the schema registry at {self.url} does not answer ({type(error).__name__}); "
                "is it there, and is COACH_SCHEMA_REGISTRY_URL right?"
            )
            raise RegistryUnavailable(message) from error

    def _failure(self, status: int, what: str, error_text: str) -> RegistryUnavailable | ConfigurationError:
        where = f"the schema registry at {self.url}"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            who = f"COACH_SCHEMA_REGISTRY_USERNAME={self._username!r}" if self._username else "us, without a user,"
            return ConfigurationError(f"{where} does not let {who} at {what} (HTTP {status}): {error_text}")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY:
            return RegistryUnavailable(f"{where} answers HTTP {status} for {what}: {error_text}")
        path = "is its path right? Confluent's has none, Apicurio's is /apis/ccompat/v7"
        hint = path if status == HTTPStatus.NOT_FOUND else error_text
        return ConfigurationError(f"{where} does not understand us (HTTP {status} for {what}): {hint}")


def _whole(node: SchemaNode, named: dict[str, SchemaNode], space: str) -> SchemaNode:
    """Inline each definition in `named` at its first use, and remove it from `named`."""
    if isinstance(node, str):
        full = node if "." in node or not space else f"{space}.{node}"
        for name in (full, node):
            if name in named:
                return _whole(named.pop(name), named, name.rpartition(".")[0])
        return node
    if isinstance(node, list):
        return [_whole(branch, named, space) for branch in node]
    if not isinstance(node, dict):
        return node
    space = node.get("namespace") or (str(node["name"]).rpartition(".")[0] if "." in str(node.get("name")) else space)
    whole = dict(node)
    if "fields" in node:
        whole["fields"] = [{**one, "type": _whole(one["type"], named, space)} for one in node["fields"]]
    for part in ("items", "values"):
        if part in node:
            whole[part] = _whole(node[part], named, space)
    if isinstance(node.get("type"), list | dict):
        whole["type"] = _whole(node["type"], named, space)
    return whole
