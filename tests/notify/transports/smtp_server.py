"""A real SMTP server as a process of its own, which survives whatever happens to a notifier, and refuses by rule.

As a script: `smtp_server.py PORT FOLDER REFUSE_EVERY`. Each letter that it took is a line of FOLDER/taken.jsonl, written
before it says yes. It refuses one letter in REFUSE_EVERY for the time being (451), and recipients at refused.example
for good (550).
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

REPOSITORY: Final = Path(__file__).resolve().parents[3]
START_TIMEOUT_S: Final = 15.0
DOOM: Final = "doom"  # the file that names processes to kill


class SmtpServer:
    """The process, from `__enter__` to `__exit__`; it can be taken down and started again on its port."""

    def __init__(self, folder: Path, *, refuse_every: int = 0, certificate: tuple[Path, Path] | None = None) -> None:
        """With a `certificate` and its key it wants STARTTLS, and the login u with the password right."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._refuse_every = refuse_every
        self._certificate = certificate
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.up()
        return self

    def __exit__(self, *_how: object) -> None:
        """End."""
        self.down()

    def up(self) -> None:
        """Start, with what was taken before."""
        with (self._folder / "smtp.log").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    str(self.port),
                    str(self._folder),
                    str(self._refuse_every),
                    *map(str, self._certificate or ()),
                ],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        reason = f"the SMTP server does not start: {(self._folder / 'smtp.log').read_text()[-500:]}"
        raise AssertionError(reason)

    def down(self) -> None:
        """End at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def doom(self, *pids: int) -> None:
        """Kill processes right after the next letter was taken, from whichever of them, and before anybody hears of it."""
        draft = self._folder / f"{DOOM}.part"
        draft.write_text(" ".join(map(str, pids)))
        draft.replace(self._folder / DOOM)

    @property
    def doom_is_done(self) -> bool:
        """Whether it happened."""
        return not (self._folder / DOOM).exists()

    def taken(self) -> list[dict[str, Any]]:
        """All letters that it said yes to, in order: to, message_id, at (Unix seconds), text, html, headers."""
        file = self._folder / "taken.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @property
    def count(self) -> int:
        """How many they are, without reading them."""
        file = self._folder / "taken.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def environment(self) -> dict[str, str]:
        """The notifier's settings for it."""
        return {
            "COACH_NOTIFY_SMTP_HOST": "127.0.0.1",
            "COACH_NOTIFY_SMTP_PORT": str(self.port),
            "COACH_NOTIFY_SMTP_SECURITY": "none",
            "COACH_NOTIFY_SMTP_FROM": "letters@lender.example",
            "COACH_NOTIFY_SMTP_TIMEOUT_S": "5",
        }


class _Clerk:
    """What aiosmtpd asks about each step."""

    def __init__(self, folder: Path, refuse_every: int) -> None:
        self._file = (folder / "taken.jsonl").open("a", encoding="utf-8")
        self._doom = folder / DOOM
        self._refuse_every = refuse_every
        self._count = 0

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: object, _session: object, envelope: Any, address: str, _options: list[str]
    ) -> str:
        """Refuse some recipients for good."""
        if address.endswith("@refused.example"):
            return f"550 5.1.1 <{address}> is unknown here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, _server: object, session: Any, envelope: Any) -> str:  # noqa: N802 - as above
        """Refuse every so many for the time being; write down the others."""
        self._count += 1
        if self._refuse_every and self._count % self._refuse_every == 0:
            return f"451 4.7.1 <{envelope.rcpt_tos[0]}> greylisted, try again"
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        parts = {part.get_content_subtype(): part.get_content() for part in message.walk() if not part.is_multipart()}
        line = {
            "to": envelope.rcpt_tos,
            "message_id": message["Message-ID"],
            "at": time.time(),
            "tls": bool(session.ssl),
            "text": parts.get("plain", "").replace("\r\n", "\n"),
            "html": parts.get("html", ""),
            "headers": {name: str(value) for name, value in message.items()},
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        with contextlib.suppress(FileNotFoundError):  # the sender dies before it hears that its letter was taken
            pids = [int(pid) for pid in self._doom.read_text().split()]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            self._doom.unlink()
        return "250 2.0.0 taken"


def _knows(_server: object, _session: object, _envelope: object, _how: str, login: Any) -> AuthResult:
    return AuthResult(success=(login.login, login.password) == (b"u", b"right"))


def main(port: int, folder: Path, refuse_every: int, *certificate: str) -> None:
    """Serve until killed."""
    options: dict[str, Any] = {}
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        options = {"tls_context": context, "require_starttls": True, "auth_required": True, "authenticator": _knows}
    controller = Controller(_Clerk(folder, refuse_every), hostname="127.0.0.1", port=port, **options)
    controller.start()
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
