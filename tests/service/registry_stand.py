"""A real schema registry for the service tests, and a guard in front of it that wants a password and speaks TLS."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import http.client
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.kafka.brokers import free_ports
from tests.kafka.registry import ApicurioRegistry, NoRegistry
from tests.service.stack import REQUIRED, loud

USER: Final = "coach"
PASSWORD: Final = "hunter2-of-the-registry"  # noqa: S105 - a test's


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[ApicurioRegistry]:
    """A real registry; where none can be started, one loud line and a skip; in CI that is a failure."""
    try:
        with ApicurioRegistry(tmp_path_factory.mktemp("registry"), free_ports(1)[0]) as running:
            yield running
    except NoRegistry as why:
        if REQUIRED:
            pytest.fail(f"a real schema registry is required here (CI or COACH_REQUIRE_REAL=1): {why}")
        loud(pytestconfig, f"NO REAL SCHEMA REGISTRY ({why}): its tests are skipped")
        pytest.skip(f"no real schema registry: {why}")


@contextmanager
def guarded(registry: ApicurioRegistry, folder: Path) -> Iterator[tuple[str, Path]]:
    """The registry behind HTTPS and a password: (its address there, the file of its authority)."""
    target = urlsplit(registry.url)
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Guard(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != wanted:
                self._answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                return
            inner = http.client.HTTPConnection(str(target.hostname), target.port, timeout=10)
            with contextlib.closing(inner):
                kind = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
                inner.request(self.command, target.path + self.path, body, kind)
                answer = inner.getresponse()
                self._answer(answer.status, answer.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_line: Any) -> None:
            pass

        do_GET = do_POST = do_PUT = _pass_on  # noqa: N815 - as http.server calls them

    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}", certificate
        finally:
            server.shutdown()
            thread.join(10)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry of a test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    pem, key_pem = folder / "registry.pem", folder / "registry.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, key_pem
