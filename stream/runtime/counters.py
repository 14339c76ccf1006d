"""What a process counts and measures, for `/metrics`, the log's totals and tests: one object, without any global.

Each part (worker, sink, notifier) writes down its meters in one place, makes one `Counters` of them, and hands it on:

    METERS = (
        counter("notices_total", "Notices, by channel and what became of them.", "channel", "status"),
        gauge("notices_waiting", "Notices that wait for their next try."),
        histogram("notice_duration_seconds", "From the recommendation's timestamp to its delivery.", DURATIONS_S),
    )
    counters = Counters(METERS, part="notify")
    counters.add("notices_total", channel="email", status="sent")       # any thread; labels by name
    counters.observe("notice_duration_seconds", elapsed_s)
    counters.follow("notices_waiting", lambda: len(queue))               # read at each scrape; cheap, and never blocks
    log.info("notify.totals", extra=counters.read())
    with served(settings.metrics_port, address=settings.metrics_address, counters=counters, vitals=vitals, not_ready=...):   # runtime/health.py
        ...

On `/metrics` each name gets the prefix `coach_`. Names follow Prometheus' conventions: a counter ends in `_total`, a
unit in `_seconds`, `_bytes`, ... . Give a counter's labels that are known beforehand as `known`, so that the first of
its events is a step from 0 to 1, which an alert sees, and not a series that appears at 1, which it does not.
A label is a word from a short list, or a model's name; never a decision's id, and never a value. What outsiders wrote is
made printable and cut, and past `series_max` label sets of a meter all others are counted as `other`.
"""

from __future__ import annotations

import platform
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stream.errors import shown

PREFIX: Final = "coach_"
OTHER: Final = "other"  # where the label sets of a meter are too many
SERIES_MAX: Final = 200  # label sets of one meter
DURATIONS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
)  # fmt: skip

Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = float | Mapping[Labels, float]  # of a meter without labels, or by its labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One thing that is counted or measured; `name` is without the prefix.

    `known`: label sets that start at 0. `buckets`: a histogram's upper bounds, rising. `in_log`: whether `read` tells it.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Labels = ()
    known: tuple[Labels, ...] = ()
    buckets: tuple[float, ...] = ()
    in_log: bool = True
    series_max: int = SERIES_MAX


def counter(name: str, meaning: str, *labels: str, known: Iterable[Labels] = (), in_log: bool = True) -> Meter:
    """Describe what only grows. Its name ends in `_total`."""
    return Meter(name=name, kind="counter", meaning=meaning, labels=labels, known=tuple(known), in_log=in_log)


def gauge(name: str, meaning: str, *labels: str, known: Iterable[Labels] = (), series_max: int = SERIES_MAX) -> Meter:
    """Describe what goes up and down."""
    return Meter(name=name, kind="gauge", meaning=meaning, labels=labels, known=tuple(known), series_max=series_max)


def histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str, known: Iterable[Labels] = ()) -> Meter:
    """Describe what is measured each time, in the unit that its name ends in."""
    return Meter(name=name, kind="histogram", meaning=meaning, labels=labels, known=tuple(known), buckets=buckets)


OF_EVERY_PART: Final = (
    gauge("build_info", "1; which part this is, and its versions.", "part", "version", "engine_version", "python"),
    gauge("ready", "Whether /ready says yes."),
    gauge("stalled_loops", "Loops of the process that missed their time limit; /health fails above 0."),
)


@dataclass(slots=True)
class _Spread:
    """A histogram's counts, one more than there are buckets, and the sum of all that was observed."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class _Series:
    """What is known of one meter, by its labels; of a histogram in `spreads`, else in `numbers`."""

    meter: Meter
    numbers: dict[Labels, float] = field(default_factory=dict)
    spreads: dict[Labels, _Spread] = field(default_factory=dict)
    read: Callable[[], Reading] | None = None


class Counters(Collector):
    """All numbers of one process; any thread may add to them."""

    def __init__(self, meters: Iterable[Meter], *, part: str, engine_version: str = "") -> None:
        """Everything without labels, and all that is `known`, starts at 0. `engine_version` is told by who answers.

        Raises: ValueError for a name given twice, or a counter's that does not end in `_total`.
        """
        self._lock = threading.Lock()
        self._series: dict[str, _Series] = {}
        for meter in (*OF_EVERY_PART, *meters):
            if meter.name in self._series or (meter.kind == "counter") != meter.name.endswith("_total"):
                message = f"{meter.name}: a name is given once, and a counter's ends in _total"
                raise ValueError(message)
            self._series[meter.name] = series = _Series(meter)
            for labels in meter.known or (() if meter.labels else ((),)):
                self._start(series, labels)
        ours = {"version": version("coach-stream"), "engine_version": engine_version}
        self.set("build_info", 1, part=part, python=platform.python_version(), **ours)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        for of_the_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_the_process(registry=self._registry)

    def add(self, name: str, count: float = 1, **labels: str) -> None:
        """Count. Raises: KeyError for a name or label that the meter does not have."""
        series = self._series[name]
        key = tuple([labels[one] for one in series.meter.labels]) if labels else ()
        with self._lock:
            if key not in series.numbers:
                key = self._start(series, key)
            series.numbers[key] += count

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge. Raises: as `add`."""
        series = self._series[name]
        key = tuple(labels[one] for one in series.meter.labels)
        with self._lock:
            series.numbers[self._start(series, key)] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Measure once. Raises: as `add`."""
        self.observe_all(name, (value,), **labels)

    def observe_all(self, name: str, values: Sequence[float], **labels: str) -> None:
        """Measure many at once, which costs much less than each alone. Raises: as `add`."""
        series = self._series[name]
        key = tuple([labels[one] for one in series.meter.labels])
        buckets = series.meter.buckets
        with self._lock:
            spread = series.spreads[self._start(series, key)]
            for value in values:
                spread.counts[bisect_left(buckets, value)] += 1
            spread.total += sum(values)

    def follow(self, name: str, read: Callable[[], Reading]) -> None:
        """Ask `read` for a meter's numbers whenever they are wanted: one number, or a number by label values.

        `read` runs in whichever thread asks, must be quick, and must not raise. Raises: KeyError for an unknown name.
        """
        self._series[name].read = read

    def total(self, name: str) -> float:
        """The sum over a counter's or gauge's labels."""
        return sum(self._numbers(self._series[name]).values())

    def read(self) -> dict[str, int]:
        """All counters now, for the log, without their `_total`: `decisions_read`, `decisions:declined/ok`."""
        totals: dict[str, int] = {}
        for series in self._series.values():
            if series.meter.kind == "counter" and series.meter.in_log:
                name = series.meter.name.removesuffix("_total")
                for labels, number in sorted(self._numbers(series).items()):
                    if number or not labels:
                        totals[f"{name}:{'/'.join(labels)}" if labels else name] = int(number)
        return totals

    def exposition(self) -> bytes:
        """All numbers, and the process's own, in Prometheus' text format (version 0.0.4)."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's `Collector`."""
        for series in self._series.values():
            meter = series.meter
            name = PREFIX + meter.name
            if meter.kind == "histogram":
                yield self._histogram(name, series)
                continue
            kind = CounterMetricFamily if meter.kind == "counter" else GaugeMetricFamily
            family = kind(name, meter.meaning, labels=meter.labels)
            for labels, number in sorted(self._numbers(series).items()):
                family.add_metric(labels, number)
            yield family

    def _histogram(self, name: str, series: _Series) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, series.meter.meaning, labels=series.meter.labels)
        with self._lock:
            spreads = {labels: (list(one.counts), one.total) for labels, one in series.spreads.items()}
        for labels, (counts, total) in sorted(spreads.items()):
            below, buckets = 0, []
            for bound, count in zip((*series.meter.buckets, float("inf")), counts, strict=True):
                below += count
                buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(below)))
            family.add_metric(labels, buckets, total)
        return family

    def _numbers(self, series: _Series) -> dict[Labels, float]:
        if series.read is None:
            with self._lock:
                return dict(series.numbers)
        reading = series.read()
        if not isinstance(reading, Mapping):
            return {(): float(reading)}
        bounded = list(reading.items())[: series.meter.series_max]
        return {tuple(map(shown, labels)): float(number) for labels, number in bounded}

    def _start(self, series: _Series, labels: Labels) -> Labels:
        """Make room for a label set where there is none yet; return the one to count it under."""
        meter = series.meter
        if len(labels) != len(meter.labels):
            message = f"{meter.name} has the labels {meter.labels}"
            raise KeyError(message)
        labels = tuple(map(shown, labels))
        there: Mapping[Labels, object] = series.spreads if meter.kind == "histogram" else series.numbers
        if labels not in there and len(there) >= meter.series_max:
            labels = (OTHER,) * len(meter.labels)
        if labels in there:
            return labels
        if meter.kind == "histogram":
            series.spreads[labels] = _Spread([0] * (len(meter.buckets) + 1))
        else:
            series.numbers[labels] = 0
        return labels
