"""The registry's client against a server that says what it is told to: every failure has its type and names no secret."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stream.errors import ConfigurationError, RegistryUnavailable
from stream.wire.registry.client import RefusedSchemaError, RegistryClient

PASSWORD = "hunter2"  # noqa: S105 - a test's
DELAY = "delay"


class Scripted:
    """Path -> (status, answer); everything else is an unknown subject."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.url = ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Its handler."""
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                status, said = answers.get(self.path.partition("?")[0], (404, {"error_code": 40401, "message": "no"}))
                if said == DELAY:
                    time.sleep(1.0)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # it may have given up waiting
                    self.wfile.write(body)

            def log_message(self, *_line: Any) -> None:
                pass

            do_GET = do_POST = do_PUT = _reply  # noqa: N815 - as http.server calls them

        return Handler


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A server."""
    script = Scripted()
    with ThreadingHTTPServer(("127.0.0.1", 0), script.handler()) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        script.url = f"http://127.0.0.1:{running.server_address[1]}"
        yield script
        running.shutdown()
        thread.join(5)


def registry(server: Scripted, *, timeout_s: float = 5.0) -> RegistryClient:
    return RegistryClient(server.url, username="coach", password=PASSWORD, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("status", "said", "error", "told"),
    [
        (500, {"error_code": 50001, "message": "store"}, RegistryUnavailable, "HTTP 500 .*store"),
        (503, "<html>", RegistryUnavailable, "HTTP 503"),
        (429, {"error_code": 42901, "message": "slowly"}, RegistryUnavailable, "HTTP 429"),
        (401, {"error_code": 401, "message": "who?"}, ConfigurationError, "COACH_SCHEMA_REGISTRY_USERNAME='coach'"),
        (403, {"error_code": 40301, "message": "not you"}, ConfigurationError, "does not let .*not you"),
        (404, "<html>", ConfigurationError, "is its path right.*/apis/ccompat/v7"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, ConfigurationError, "is its path right"),
        (418, {"error_code": 1, "message": "teapot"}, ConfigurationError, "does not understand us .*teapot"),
        (200, "<html>", RegistryUnavailable, "does not answer"),
        (200, DELAY, RegistryUnavailable, "does not answer .ReadTimeout"),
    ],
)
def test_every_failure_has_its_type(
    server: Scripted, status: int, said: Any, error: type[Exception], told: str
) -> None:
    """Given a registry that fails in some way, when asked, then the error says whether it is ours to mend or its to come back, with the address and no password."""
    server.answers["/subjects/a-value/versions"] = status, said
    with pytest.raises(error, match=told) as failed:
        registry(server, timeout_s=0.3 if said == DELAY else 5.0).versions("a-value")
    assert server.url in str(failed.value)
    assert PASSWORD not in str(failed.value)


def test_nobody_there_is_unavailable() -> None:
    """Given an address at which nobody listens, then the registry is unavailable."""
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        RegistryClient("http://127.0.0.1:9", timeout_s=1).schema(1)


def test_a_bad_file_of_authorities_is_a_matter_of_configuration(tmp_path: Any) -> None:
    """Given a CA file that holds no certificate, then the client cannot be made, and the error says so."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigurationError, match="cannot be made"):
        RegistryClient("https://127.0.0.1:9", ca_file=str(tmp_path / "ca.pem"))


def test_what_is_not_there_is_no_failure(server: Scripted) -> None:
    """Given an unknown subject, id or level, then there is none."""
    server.answers["/schemas/ids/7"] = 404, {"error_code": 40403, "message": "no"}
    server.answers["/config"] = 200, {"compatibilityLevel": "BACKWARD"}
    server.answers["/config/a-value"] = 404, {"error_code": 40408, "message": "no level of its own"}
    here = registry(server)
    assert here.versions("a-value") == []
    assert here.schema(7) is None
    assert here.level("a-value") == "BACKWARD"


def test_a_refused_schema_says_why(server: Scripted) -> None:
    """Given a registry that finds a schema incompatible, then its words are told."""
    server.answers["/subjects/a-value/versions"] = 409, {"error_code": 409, "message": "READER_FIELD_MISSING x"}
    with pytest.raises(RefusedSchemaError, match="READER_FIELD_MISSING x"):
        registry(server).register("a-value", {"type": "record", "name": "A", "fields": []})


def test_references_are_put_together(server: Scripted) -> None:
    """Given a schema that refers to others, which refer to more, when fetched, then each is put in where it is named first."""
    outer = {
        "type": "record",
        "name": "Decision",
        "namespace": "bank",
        "fields": [
            {"name": "branch", "type": ["null", "bank.geo.Branch"]},
            {"name": "other", "type": "bank.geo.Branch"},
        ],
    }
    branch = {
        "type": "record",
        "name": "Branch",
        "namespace": "bank.geo",
        "fields": [{"name": "towns", "type": {"type": "array", "items": "Town"}}],
    }
    town = {"type": "enum", "name": "Town", "namespace": "bank.geo", "symbols": ["a"]}

    def stored(document: Any, *references: tuple[str, str]) -> dict[str, Any]:
        named = [{"name": name, "subject": subject, "version": 1} for name, subject in references]
        return {"id": 1, "schema": json.dumps(document), "references": named}

    server.answers["/schemas/ids/1"] = 200, stored(outer, ("bank.geo.Branch", "branch"))
    server.answers["/subjects/branch/versions/1"] = 200, stored(branch, ("bank.geo.Town", "town"))
    server.answers["/subjects/town/versions/1"] = 200, stored(town)
    found = registry(server).schema(1)
    assert found is not None
    whole = {**branch, "fields": [{"name": "towns", "type": {"type": "array", "items": town}}]}
    assert found.document == {
        **outer,
        "fields": [{"name": "branch", "type": ["null", whole]}, {"name": "other", "type": "bank.geo.Branch"}],
    }


def test_other_kinds_are_told(server: Scripted) -> None:
    """Given a schema that is not Avro, then its kind is told, and it has no document."""
    server.answers["/schemas/ids/1"] = 200, {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}
    found = registry(server).schema(1)
    assert found is not None
    assert (found.kind, found.document) == ("PROTOBUF", None)
