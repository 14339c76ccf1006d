"""A real schema registry (Apicurio, in memory) without Docker, for tests: from Maven Central.

As a script it starts one and returns, or stops it:

    python tests/kafka/registry.py start DIRECTORY PORT
    python tests/kafka/registry.py stop DIRECTORY

It listens on 127.0.0.1:PORT; DIRECTORY holds its log and process id. The program is fetched once into
${COACH_TEST_CACHE:-~/.cache/coach-stream-tests} (109 MB). Needs Java and Maven. What it holds is gone when it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.kafka.brokers import FETCH_TIMEOUT_S, cache_directory

VERSION: Final = "3.0.9"
PATH: Final = "/apis/ccompat/v7"  # where it speaks as Confluent's registry does
JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 20


class NoRegistry(Exception):
    """A real registry cannot be started here; the message says why."""


def program() -> Path:
    """The folder of the registry's program, fetched once. Raises: NoRegistry."""
    for needed in ("java", "mvn"):
        if shutil.which(needed) is None:
            reason = f"{needed} is not installed"
            raise NoRegistry(reason)
    folder = cache_directory() / f"apicurio-registry-{VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as space:
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={space}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if done.returncode:
            reason = f"Maven does not fetch the registry: {(done.stdout + done.stderr).strip()[-300:]}"
            raise NoRegistry(reason)
        unpacked = Path(space) / "program"
        with tarfile.open(next(Path(space).glob("*.tar.gz"))) as archive:
            more: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
            archive.extractall(unpacked, **more)  # noqa: S202 - from Maven Central, which Maven checks
        with contextlib.suppress(OSError):  # another run was quicker
            unpacked.rename(folder)
    return folder


class ApicurioRegistry:
    """One registry in `directory`, from `__enter__` to `__exit__`; it can be killed and started again, then empty."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        """Prepare; `options` are further system properties, each as `-Dname=value`."""
        self._directory = directory
        self._port = port
        self._program = program()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What COACH_SCHEMA_REGISTRY_URL is to be."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def __enter__(self) -> Self:
        """Start, and wait until it answers."""
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_how: object) -> None:
        """End it."""
        self.down()

    def up(self) -> None:
        """Start it, with nothing in it. Raises: NoRegistry."""
        self._launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            address = f"{self.url}/subjects"
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - it is http
                if answer.status == 200:
                    return
            time.sleep(0.1)
        reason = f"the registry does not start: {self.log()[-500:]}"
        raise NoRegistry(reason)

    def _launch(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        jar = next(self._program.glob("*-runner.jar"))
        listen = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}")
        with (self._directory / "registry.log").open("ab") as said:
            self._process = subprocess.Popen(
                [*JAVA, *listen, *self._options, "-jar", str(jar)],
                cwd=self._program,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def down(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it; what it held is gone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log(self) -> str:
        """What it said."""
        file = self._directory / "registry.log"
        return file.read_text(errors="replace") if file.exists() else ""


def main(arguments: Sequence[str]) -> int:
    """Run as a script; return the exit code."""
    try:
        match arguments:
            case ["start", directory, port]:
                registry = ApicurioRegistry(Path(directory).resolve(), int(port))
                registry.up()
                (Path(directory) / "registry.pid").write_text(str(registry.pid))
                print(f"up: {registry.url}")
            case ["stop", directory]:
                pid_file = Path(directory) / "registry.pid"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid_file.read_text()), signal.SIGTERM)
                pid_file.unlink()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NoRegistry as reason:
        print(f"no real registry: {reason}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
