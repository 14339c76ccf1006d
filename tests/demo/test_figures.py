from __future__ import annotations

import math

from stream.demo.account import by_count, in_milliseconds, own_times_s, percentile


def test_a_percentile_is_one_of_the_values() -> None:
    """Given ten values, when percentiles are asked for, then each is the nearest-rank value, never one in between."""
    values = [float(v) for v in range(10, 0, -1)]
    assert [percentile(values, p) for p in (0, 10, 11, 50, 99, 100)] == [1, 1, 2, 5, 10, 10]
    assert math.isnan(percentile([], 50))


def test_latencies_are_given_in_milliseconds() -> None:
    """Given seconds, when written out, then three shares stand in milliseconds."""
    assert in_milliseconds([0.001, 0.002, 0.1]) == "p50 2.0 ms, p90 100.0 ms, p99 100.0 ms"


def test_counts_are_listed_by_size() -> None:
    """Given counts, when written out, then the largest comes first; given none, then it says so."""
    assert by_count({"rare": 1, "ok": 2400}) == "ok 2,400, rare 1"
    assert by_count({}) == "none"


def test_the_workers_own_times_come_from_its_log() -> None:
    """Given a log with other lines and broken ones, when read, then only ended decisions that were timed count."""
    assert own_times_s(LOG) == [0.0015]


LOG = """
{"event": "decision.ended", "elapsed_us": 1500}
{"event": "decision.ended", "status": "dead_letter"}
decision.ended but no JSON
{"event": "worker.started"}
"""
