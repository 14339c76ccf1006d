"""A schema registry that keeps the real one's promises, for tests without one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stream.errors import RegistryUnavailable
from stream.wire.registry.client import RefusedSchemaError, Registered
from stream.wire.registry.schema_differences import differences


class MemoryRegistry:
    """Ids count up over all subjects, equal texts share one. While `down` it raises; `asked` are the ids looked up."""

    url = "http://registry.test"

    def __init__(self) -> None:
        self.down = False
        self.asked: list[int] = []
        self.registered: list[str] = []
        self.levels: dict[str, str] = {}
        self.kinds: dict[int, str] = {}
        self._texts: list[str] = []
        self._subjects: dict[str, list[int]] = {}

    def put(self, subject: str, document: object, *, kind: str = "AVRO") -> int:
        """Register for somebody else, unchecked; return the id."""
        text = json.dumps(document)
        if text not in self._texts:
            self._texts.append(text)
        schema_id = self._texts.index(text) + 1
        self.kinds[schema_id] = kind
        ids = self._subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return schema_id

    def versions(self, subject: str) -> list[Registered]:
        """See `SchemaRegistry`."""
        self._check()
        return [self._registered(one, number) for number, one in enumerate(self._subjects.get(subject, []), 1)]

    def schema(self, schema_id: int) -> Registered | None:
        """See `SchemaRegistry`."""
        self.asked.append(schema_id)
        self._check()
        return self._registered(schema_id, 0) if 1 <= schema_id <= len(self._texts) else None

    def register(self, subject: str, document: Mapping[str, Any]) -> int:
        """See `SchemaRegistry`."""
        self._check()
        if self.levels.get(subject, "NONE") != "NONE":
            for one in self.versions(subject):
                if differences(document, one.document):
                    reason = f"incompatible with version {one.version}"
                    raise RefusedSchemaError(reason)
        self.registered.append(subject)
        return self.put(subject, document)

    def level(self, subject: str) -> str | None:
        """See `SchemaRegistry`."""
        self._check()
        return self.levels.get(subject, "NONE")

    def set_level(self, subject: str, level: str) -> None:
        """See `SchemaRegistry`."""
        self._check()
        self.levels[subject] = level

    def _registered(self, schema_id: int, version: int) -> Registered:
        kind = self.kinds[schema_id]
        document = json.loads(self._texts[schema_id - 1]) if kind == "AVRO" else None
        return Registered(schema_id=schema_id, kind=kind, document=document, version=version)

    def _check(self) -> None:
        if self.down:
            reason = f"the schema registry at {self.url} does not answer"
            raise RegistryUnavailable(reason)
