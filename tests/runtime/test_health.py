from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import pytest

from stream.errors import ConfigurationError
from stream.runtime.counters import Counters
from stream.runtime.health import REQUESTS_MAX, Vitals, served
from tests.kafka.brokers import free_ports

LOCAL = "127.0.0.1"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_port_listens_on_the_named_address_alone() -> None:
    """Given one address of this host, when served there, then another address of it refuses; given all, both answer; given none of this host, the error names the setting."""
    counters, vitals = Counters((), part="tests"), Vitals()
    (port,) = free_ports(1)
    other = ("127.0.0.2", port)  # all of 127/8 is this host
    with served(port, address=LOCAL, counters=counters, vitals=vitals, not_ready=list):
        assert get(port, "/health")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(other, 5)
    with served(port, address="0.0.0.0", counters=counters, vitals=vitals, not_ready=list):  # noqa: S104 - on purpose
        socket.create_connection(other, 5).close()
    nowhere = served(port, address="192.0.2.1", counters=counters, vitals=vitals, not_ready=list)
    with pytest.raises(ConfigurationError, match=r"COACH_METRICS_ADDRESS=192\.0\.2\.1"), nowhere:
        pass


def test_not_ready_is_not_dead_and_wedged_is_both() -> None:
    """Given a process that waits, then one that works, then one whose loop was not heard of, when asked, then health fails in the last case alone, readiness in the first and last, each with its reason, and the metrics agree."""
    now_s = [0.0]
    vitals, counters, reasons = Vitals(lambda: now_s[0]), Counters((), part="tests"), ["no Kafka broker answers"]
    (port,) = free_ports(1)
    with served(port, address=LOCAL, counters=counters, vitals=vitals, not_ready=lambda: reasons):
        vitals.expect("the loop", 10)
        assert get(port, "/health")[0] == 200
        code, body = get(port, "/ready")
        assert (code, json.loads(body)) == (503, {"status": "not ready", "why": ["no Kafka broker answers"]})
        assert "coach_ready 0.0" in get(port, "/metrics")[1]
        reasons.clear()
        assert get(port, "/ready")[0] == 200
        assert "coach_ready 1.0" in get(port, "/metrics")[1]
        now_s[0] = 13.0
        code, body = get(port, "/health")
        assert (code, json.loads(body)["status"]) == (503, "stalled")
        assert json.loads(body)["why"] == ["the loop was to be heard of within 10 s, and was not for 13 s"]
        assert get(port, "/ready")[0] == 503
        assert "coach_stalled_loops 1.0" in get(port, "/metrics")[1]
        vitals.expect("the loop", 10)
        assert get(port, "/health")[0] == 200
        now_s[0] = 100.0
        vitals.rest("the loop")
        assert get(port, "/health")[0] == 200
        assert get(port, "/other")[0] == 404


def test_a_port_that_is_taken_is_a_wrong_setting() -> None:
    """Given a port on which another listens, when served there, then the error names the setting; and port 0 serves nothing."""
    counters, vitals = Counters((), part="tests"), Vitals()
    (port,) = free_ports(1)
    with served(port, address=LOCAL, counters=counters, vitals=vitals, not_ready=list):
        taken = served(port, address=LOCAL, counters=counters, vitals=vitals, not_ready=list)
        with pytest.raises(ConfigurationError, match=f"COACH_METRICS_PORT={port}"), taken:
            pass
        with served(0, address=LOCAL, counters=counters, vitals=vitals, not_ready=list):
            assert get(port, "/health")[0] == 200


@pytest.mark.parametrize("begun", [b"", b"GET /metr"])
def test_clients_that_never_end_keep_no_probe_out(begun: bytes) -> None:
    """Given ever more connections that stay silent or never end their request, when the process is asked, then every probe is answered at once, and no more are kept open than may be."""
    counters, vitals = Counters((), part="tests"), Vitals()
    (port,) = free_ports(1)
    silent: list[socket.socket] = []
    with served(port, address=LOCAL, counters=counters, vitals=vitals, not_ready=list):
        try:
            for _ in range(4):
                for _ in range(REQUESTS_MAX):
                    silent.append(socket.create_connection(("127.0.0.1", port), 5))
                    silent[-1].sendall(begun)
                assert get(port, "/health")[0] == 200
        finally:
            for one in silent:
                one.close()
