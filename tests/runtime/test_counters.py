from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from stream.runtime.counters import OTHER, SERIES_MAX, Counters, counter, gauge, histogram

METERS = (
    counter("letters_total", "Letters.", "channel", "status", known=[("email", "sent")]),
    counter("loops_total", "Loops."),
    counter("by_model_total", "By model.", "model", in_log=False),
    gauge("waiting", "Waiting."),
    gauge("lag_records", "Lag.", "partition", series_max=3),
    histogram("took_seconds", "Took.", (0.1, 1.0), "stage"),
)
TEXTS = st.text(max_size=120)


def made() -> Counters:
    return Counters(METERS, part="tests", engine_version="7")


def scraped(counters: Counters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus' own parser reads out of /metrics; each series may be there once."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(counters.exposition().decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_numbers_are_exposed_as_they_were_counted() -> None:
    """Given counts, a gauge, a reading and measurements, when scraped, then Prometheus' parser reads them back, zeros of what is known beforehand as well."""
    counters = made()
    counters.add("loops_total")
    counters.add("letters_total", 2, channel="paper", status="sent")
    counters.set("waiting", 4)
    counters.follow("lag_records", lambda: {("0",): 11, ("1",): 0})
    counters.observe("took_seconds", 0.1, stage="read")
    counters.observe_all("took_seconds", [5.0] * 3, stage="read")
    found = scraped(counters)
    assert found["coach_loops_total", ()] == 1
    assert found["coach_letters_total", (("channel", "email"), ("status", "sent"))] == 0
    assert found["coach_letters_total", (("channel", "paper"), ("status", "sent"))] == 2
    assert found["coach_waiting", ()] == 4
    assert found["coach_lag_records", (("partition", "0"),)] == 11
    assert [found["coach_took_seconds_bucket", (("le", le), ("stage", "read"))] for le in ("0.1", "1.0", "+Inf")] == [
        1,
        1,
        4,
    ]
    assert found["coach_took_seconds_sum", (("stage", "read"),)] == 15.1
    assert found["coach_took_seconds_count", (("stage", "read"),)] == 4
    assert {"process_cpu_seconds_total", "python_info"} <= {name for name, _ in found}
    ((_, about),) = [key for key in found if key[0] == "coach_build_info"]
    assert dict(about)["part"] == "tests"
    assert not [name for name, _ in found if name.endswith("_created")]


def test_the_log_is_told_the_counters() -> None:
    """Given counts and readings, when the log's totals are taken, then they are the counters that moved, by label, and neither gauges nor what names models."""
    counters = made()
    counters.add("letters_total", channel="paper", status="sent")
    counters.add("by_model_total", model="m")
    counters.set("waiting", 4)
    counters.follow("loops_total", lambda: 9)
    assert counters.read() == {"letters:paper/sent": 1, "loops": 9}
    assert counters.total("letters_total") == 1


@given(names=st.lists(TEXTS, max_size=30))
def test_what_outsiders_name_breaks_no_scrape(names: Sequence[str]) -> None:
    """Given label values of any text, when scraped, then Prometheus' parser reads every series once, in one line, bounded, and nothing is lost of the sum."""
    counters = made()
    for name in names:
        counters.add("by_model_total", model=name)
    found = {labels: value for (name, labels), value in scraped(counters).items() if name == "coach_by_model_total"}
    assert sum(found.values()) == len(names)
    assert all(len(labels[0][1]) <= 1_000 and labels[0][1].isprintable() for labels in found)


def test_a_flood_of_names_is_bounded() -> None:
    """Given more label sets than a meter may have, when counted or read, then the further ones of a counter are one series, those of a reading are left out, and the sum holds."""
    counters = made()
    for number in range(3 * SERIES_MAX):
        counters.add("by_model_total", model=f"m{number}")
    counters.follow("lag_records", lambda: {(str(number),): 1 for number in range(9)})
    found = scraped(counters)
    models = {labels[0][1]: value for (name, labels), value in found.items() if name == "coach_by_model_total"}
    assert len(models) == SERIES_MAX + 1
    assert models[OTHER] == 2 * SERIES_MAX
    assert len([name for name, _ in found if name == "coach_lag_records"]) == 3


def test_a_slip_in_a_name_or_label_is_told_at_once() -> None:
    """Given names or labels that no meter has, or a name given twice or against the conventions, when used, then it is an error."""
    counters = made()
    wrongs: tuple[Callable[[], None], ...] = (
        lambda: counters.add("loop_total"),
        lambda: counters.add("letters_total", channel="email"),
        lambda: counters.add("letters_total"),
        lambda: counters.observe("took_seconds", 1, step="read"),
        lambda: counters.follow("nothing", lambda: 1),
    )
    for wrong in wrongs:
        with pytest.raises(KeyError):
            wrong()
    for meters in ([gauge("a", ""), gauge("a", "")], [counter("letters", "")], [gauge("letters_total", "")]):
        with pytest.raises(ValueError, match="a name is given once"):
            Counters(meters, part="tests")


def test_threads_lose_no_count() -> None:
    """Given four threads that count and one that scrapes, when all are done, then every count is there."""
    counters = made()

    def count() -> None:
        for number in range(2_000):
            counters.add("letters_total", channel="paper", status=str(number % 7))
            counters.observe("took_seconds", number, stage="read")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for one in threads:
        one.start()
    while any(one.is_alive() for one in threads):
        scraped(counters)
    assert counters.total("letters_total") == 8_000
    assert scraped(counters)["coach_took_seconds_count", (("stage", "read"),)] == 8_000


def test_counting_costs_next_to_nothing() -> None:
    """Given one count and one measurement, when made many times, then each takes some microseconds, of the hundreds that a decision takes."""
    counters = made()
    began = time.process_time()
    for _ in range(10_000):
        counters.add("letters_total", channel="email", status="sent")
        counters.observe("took_seconds", 0.3, stage="read")
    assert (time.process_time() - began) / 20_000 < 20e-6
