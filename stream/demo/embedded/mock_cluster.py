"""The process behind `EmbeddedKafka`: librdkafka's mock cluster, driven by lines on standard input.

Run as `python -m stream.demo.embedded.mock_cluster BROKERS REBALANCE_DELAY_MS`. It answers with one line on standard output: first
the bootstrap address, then one line per command, `ok` or `error` and why. It ends when standard input does, so it
cannot outlive whoever started it, however that one died.

The library is the copy that the confluent-kafka wheel carries; nothing else needs to be installed. Facts about it, read
from librdkafka 2.x and measured here: each partition keeps 5 MiB or 100,000 records and silently drops its oldest beyond
that; there is no CreateTopics and no DescribeConfigs (topics are made by the `topic` command, or with four partitions by
asking for their metadata); nothing is written to disk.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
import sysconfig
from pathlib import Path
from typing import Final

from stream.demo.embedded.line_process import serve_lines
from stream.errors import ConfigurationError

PRODUCER: Final = 0  # RD_KAFKA_PRODUCER: the mock cluster hangs on a client handle of this type
ERROR_TEXT_BYTES: Final = 512
REPLICAS_MAX: Final = 3
WHERE_WHEELS_KEEP_IT: Final = (  # relative to site-packages: Linux and Windows (auditwheel, delvewheel), then macOS (delocate)
    "confluent_kafka.libs/librdkafka*.so*",
    "confluent_kafka.libs/librdkafka*.dll",
    "confluent_kafka/.dylibs/librdkafka*.dylib",
)


def library_path() -> str:
    """Find librdkafka: inside the confluent-kafka wheel first, else wherever the system keeps one.

    Raises: ConfigurationError if there is none.
    """
    for folder in dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("platlib", "purelib")):
        for pattern in WHERE_WHEELS_KEEP_IT:
            found = sorted(Path(folder).glob(pattern))
            if found:
                return str(found[0])
    beside_the_system = ctypes.util.find_library("rdkafka")
    if beside_the_system is None:
        message = (
            "no librdkafka found for the embedded broker: the installed confluent-kafka carries none; "
            "reinstall confluent-kafka from its wheel, or install librdkafka on the system"
        )
        raise ConfigurationError(message)
    return beside_the_system


def load_library() -> ctypes.CDLL:
    """Load librdkafka and declare the signatures used here (rdkafka.h, rdkafka_mock.h)."""
    library = ctypes.CDLL(library_path())
    text, handle = ctypes.c_char_p, ctypes.c_void_p
    signatures: dict[str, tuple[list[type], type]] = {
        "conf_new": ([], handle),
        "new": ([ctypes.c_int, handle, text, ctypes.c_size_t], handle),
        "mock_cluster_new": ([handle, ctypes.c_int], handle),
        "mock_cluster_bootstraps": ([handle], text),
        "mock_topic_create": ([handle, text, ctypes.c_int, ctypes.c_int], ctypes.c_int),
        "mock_group_initial_rebalance_delay_ms": ([handle, ctypes.c_int32], ctypes.c_int),
        "err2str": ([ctypes.c_int], text),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.argtypes, function.restype = arguments, result
    return library


class MockCluster:
    """A mock cluster inside this process. Brokers are numbered from 1."""

    def __init__(self, brokers: int, rebalance_delay_ms: int) -> None:
        """Start `brokers` brokers; a new consumer group waits `rebalance_delay_ms` for further members."""
        self.library = load_library()
        self._brokers = brokers
        why = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        client = self.library.rd_kafka_new(PRODUCER, self.library.rd_kafka_conf_new(), why, ERROR_TEXT_BYTES)
        if not client:
            message = f"librdkafka does not start: {why.value.decode(errors='replace')}"
            raise ConfigurationError(message)
        self.cluster = self.library.rd_kafka_mock_cluster_new(client, brokers)
        self.library.rd_kafka_mock_group_initial_rebalance_delay_ms(self.cluster, rebalance_delay_ms)

    @property
    def bootstrap(self) -> str:
        """`host:port,host:port`, one for each broker."""
        return bytes(self.library.rd_kafka_mock_cluster_bootstraps(self.cluster)).decode()

    def obey(self, line: str) -> None:
        """Make a topic: `topic NAME PARTITIONS`. Raises: ValueError for anything else, or with librdkafka's refusal."""
        match line.split():
            case ["topic", name, partitions]:
                replicas = min(self._brokers, REPLICAS_MAX)
                make = self.library.rd_kafka_mock_topic_create
                self.check(make(self.cluster, name.encode(), int(partitions), replicas))
            case _:
                message = f"no command {line!r}; there is `topic NAME PARTITIONS`"
                raise ValueError(message)

    def check(self, code: int) -> None:
        """Raise ValueError with the meaning of a code of librdkafka that is not 0."""
        if code != 0:
            raise ValueError(bytes(self.library.rd_kafka_err2str(code)).decode())


if __name__ == "__main__":
    cluster = MockCluster(int(sys.argv[1]), int(sys.argv[2]))
    serve_lines(cluster.bootstrap, cluster.obey, ValueError)
