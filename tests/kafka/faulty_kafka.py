"""The embedded Kafka with faults: brokers that go away and come back, and requests that fail."""

from __future__ import annotations

import ctypes
import sys
from typing import ClassVar

from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.demo.embedded.line_process import serve_lines
from stream.demo.embedded.mock_cluster import MockCluster


class FaultyKafka(EmbeddedKafka):
    """A mock cluster whose process is this module."""

    MODULE: ClassVar[str] = "tests.kafka.faulty_kafka"

    def down(self, broker: int = 1) -> None:
        """Close all connections of a broker and refuse new ones; what it holds is kept."""
        self.command(f"down {broker}")

    def up(self, broker: int = 1) -> None:
        """Let a broker that was down answer again."""
        self.command(f"up {broker}")

    def err(self, api_key: int, error_code: int, count: int = 1) -> None:
        """Let the next `count` requests of a kind fail with a protocol error (Produce is 0, Fetch 1, OffsetCommit 8)."""
        self.command(f"err {api_key} {error_code} {count}")


class _FaultyCluster(MockCluster):
    def obey(self, line: str) -> None:
        """Obey a fault, or what every cluster obeys."""
        handle, number = ctypes.c_void_p(self.cluster), ctypes.c_int32
        match line.split():
            case ["down", broker]:
                self.check(self.library.rd_kafka_mock_broker_set_down(handle, number(int(broker))))
            case ["up", broker]:
                self.check(self.library.rd_kafka_mock_broker_set_up(handle, number(int(broker))))
            case ["err", api_key, error_code, count]:
                codes = (ctypes.c_int * int(count))(*([int(error_code)] * int(count)))
                push = self.library.rd_kafka_mock_push_request_errors_array  # returns nothing
                push(handle, ctypes.c_int16(int(api_key)), ctypes.c_size_t(int(count)), codes)
            case _:
                super().obey(line)


if __name__ == "__main__":
    running = _FaultyCluster(int(sys.argv[1]), int(sys.argv[2]))
    serve_lines(running.bootstrap, running.obey, ValueError)
