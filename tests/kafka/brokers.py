"""Real Apache Kafka (KRaft) without Docker, for tests: one broker or three, from Maven Central's jars.

As a script it starts brokers and returns, or stops them:

    python tests/kafka/brokers.py start DIRECTORY PORT [PORT PORT]
    python tests/kafka/brokers.py stop DIRECTORY

Each broker listens for clients on its PORT, and as a controller on PORT + 1, both on 127.0.0.1; DIRECTORY holds logs,
data and process ids. The jars are fetched once into ${COACH_TEST_CACHE:-~/.cache/coach-stream-tests}. Needs Java and Maven.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

VERSION: Final = "4.4.0"
HERE: Final = Path(__file__).resolve().parent
STORAGE_TOOLS: Final = ("kafka.tools.StorageTool", "org.apache.kafka.tools.StorageTool")  # it moved between versions
JAVA: Final = (
    "java", "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
FETCH_TIMEOUT_S: Final = 600
START_TIMEOUT_S: Final = 90
STOP_TIMEOUT_S: Final = 20


class NoBrokers(Exception):
    """Real brokers cannot be started here; the message says why."""


def cache_directory() -> Path:
    """Where jars are kept between runs."""
    return Path(os.environ.get("COACH_TEST_CACHE") or "~/.cache/coach-stream-tests").expanduser()


def jars() -> Path:
    """The folder of the broker's jars, fetched once. Raises: NoBrokers."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            reason = f"{program} is not installed"
            raise NoBrokers(reason)
    folder = cache_directory() / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as space:
        fetched = Path(space) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={fetched}", "-DincludeScope=runtime", f"-Dkafka.version={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if done.returncode:
            reason = f"Maven does not fetch Kafka's jars: {(done.stdout + done.stderr).strip()[-300:]}"
            raise NoBrokers(reason)
        with contextlib.suppress(OSError):  # another run was quicker
            fetched.rename(folder)
    return folder


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, each with its neighbour free as well."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with socket.socket() as neighbour, contextlib.suppress(OSError, OverflowError):
            neighbour.bind(("127.0.0.1", port + 1))
            if all(abs(port - other) > 1 for other in found):
                found.append(port)
    return found


class Brokers:
    """One broker or three in `directory`, from `__enter__` to `__exit__`; each can be killed and started again."""

    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        """Prepare; broker number n (from 1) listens on the n-th port."""
        self._directory = directory
        self._ports = list(ports)
        self._java = [*JAVA, "-cp", f"{jars()}/*"]

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def __enter__(self) -> Self:
        """Format the directories and start all brokers."""
        try:
            self._format()
            for number in range(1, len(self._ports) + 1):
                self._launch(number)
            for number in range(1, len(self._ports) + 1):
                self._wait(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_how: object) -> None:
        """Stop all."""
        self.stop()

    def up(self, number: int = 1) -> None:
        """Start a broker that is down, with what it had."""
        self._launch(number)
        self._wait(number)

    def down(self, number: int = 1, *, how: signal.Signals = signal.SIGKILL) -> None:
        """End a broker; its data stays."""
        pid_file = self._directory / f"broker-{number}.pid"
        pid = int(pid_file.read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        pid_file.unlink()

    def stop(self) -> None:
        """End all brokers at once."""
        for number in range(1, len(self._ports) + 1):
            if (self._directory / f"broker-{number}.pid").exists():
                self.down(number)

    def log(self, number: int = 1) -> str:
        """What a broker said."""
        file = self._directory / f"broker-{number}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _format(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        cluster = _uuid()
        numbers = range(1, len(self._ports) + 1)
        voters = ",".join(f"{n}@127.0.0.1:{self._ports[n - 1] + 1}:{_uuid()}" for n in numbers)
        for number in numbers:
            properties = self._directory / f"broker-{number}.properties"
            properties.write_text(self._properties(number))
            if (self._directory / f"data-{number}" / "meta.properties").exists():
                continue
            how = ["--standalone"] if len(self._ports) == 1 else ["--initial-controllers", voters]
            self._format_storage("-t", cluster, *how, "-c", str(properties))

    def _properties(self, number: int) -> str:
        port, copies = self._ports[number - 1], len(self._ports)
        controllers = ",".join(f"127.0.0.1:{one + 1}" for one in self._ports)
        in_sync = 2 if copies > 1 else 1
        return f"""\
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers={controllers}
log.dirs={self._directory}/data-{number}
auto.create.topics.enable=false
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
unclean.leader.election.enable=false
log.segment.bytes=16777216
metadata.max.idle.interval.ms=0
num.network.threads=1
num.io.threads=2
"""

    def _launch(self, number: int) -> None:
        with (self._directory / f"broker-{number}.log").open("ab") as said:
            process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._directory / f"broker-{number}.properties")],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        _children.append(process)
        (self._directory / f"broker-{number}.pid").write_text(str(process.pid))

    def _wait(self, number: int) -> None:
        pid = int((self._directory / f"broker-{number}.pid").read_text())
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and _alive(pid):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports[number - 1]), 1):
                return
            time.sleep(0.1)
        reason = f"broker {number} does not start: {self.log(number)[-500:]}"
        raise NoBrokers(reason)

    def _format_storage(self, *arguments: str) -> None:
        said = ""
        for tool in STORAGE_TOOLS:
            command = [*self._java, tool, "format", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            said += done.stdout + done.stderr
        reason = f"Kafka's StorageTool fails: {said.strip()[-500:]}"
        raise NoBrokers(reason)


def _uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in base64, of which the first is no hyphen."""
    return f"A{secrets.token_urlsafe(16)[1:]}"


_children: list[subprocess.Popen[bytes]] = []  # kept, so that an ended broker can be told from a running one


def _alive(pid: int) -> bool:
    for child in _children:
        if child.pid == pid:
            return child.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def main(arguments: Sequence[str]) -> int:
    """Run as a script; return the exit code."""
    try:
        match arguments:
            case ["start", directory, *ports] if len(ports) in (1, 3):
                brokers = Brokers(Path(directory).resolve(), [int(port) for port in ports])
                brokers.__enter__()
                print(f"up: {brokers.bootstrap}")
            case ["stop", directory]:
                for pid_file in sorted(Path(directory).resolve().glob("broker-*.pid")):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid_file.read_text()), signal.SIGTERM)
                    pid_file.unlink()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NoBrokers as reason:
        print(f"no real Kafka: {reason}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
