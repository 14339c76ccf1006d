"""The manual's table of metrics, as the code has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stream.audit.sink.sink_metrics import METERS as OF_THE_SINK
from stream.notify.metrics import METERS as OF_THE_NOTIFIER
from stream.runtime.counters import OF_EVERY_PART, PREFIX, Meter
from stream.worker.metrics import METERS as OF_THE_WORKER

PARTS = {"every part": OF_EVERY_PART, "worker": OF_THE_WORKER, "sink": OF_THE_SINK, "notifier": OF_THE_NOTIFIER}


def rows() -> Iterator[str]:
    """The table's lines below its heading."""
    for part, meters in PARTS.items():
        yield from _rows(part, meters)


def _rows(part: str, meters: Iterable[Meter]) -> Iterator[str]:
    for one in meters:
        labels = ", ".join(one.labels)
        yield f"| `{PREFIX}{one.name}` | {part} | {one.kind} | {labels} | {one.meaning} |"


if __name__ == "__main__":
    print("\n".join(rows()))
