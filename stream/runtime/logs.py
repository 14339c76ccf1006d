"""The log: one JSON object a line on standard error. Never a feature value, never a secret."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import orjson

# Their INFO lines are many, and Faust's start-up would leave the root logger at DEBUG, which cost 40 % of the speed.
# Those of the HTTP clients hold each request's URL, and with it keys and pseudonyms.
NOISY: Final = (
    "faust", "aiokafka", "mode", "kafka", "asyncio", "fsspec", "numba", "httpx", "httpx2", "httpcore", "httpcore2",
)  # fmt: skip
FOREIGN_EVERY_S: Final = 30.0
librdkafka_log: Final = logging.getLogger("librdkafka")  # what confluent-kafka's clients are told to log to
_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


def _ours(name: str) -> bool:
    return name == "stream" or name.startswith("stream.")


class ForeignOnce(logging.Filter):
    """Lets one line of each foreign logger and level through in `every_s`, with the number of those held back before it.

    In an outage aiokafka and librdkafka write some 95 lines a second (measured on aiokafka 0.14.0), each the same.
    """

    def __init__(
        self,
        every_s: float = FOREIGN_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        *,
        filtered_already: tuple[str, ...] = (),
    ) -> None:
        """Nothing is held back yet; loggers of `filtered_already` have such a filter of their own."""
        super().__init__()
        self._every_s = every_s
        self._filtered_already = filtered_already
        self._clock = clock
        self._lock = threading.Lock()
        self._state: dict[tuple[str, int], tuple[float, int]] = {}  # when the next may go, how many did not

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record goes out."""
        if _ours(record.name) or record.name in self._filtered_already:
            return True
        if "LoadInProgress" in record.getMessage() or "load in progress" in record.getMessage().lower():
            return False  # a coordinator that starts, which every client waits for: nothing is wrong
        key, now_s = (record.name, record.levelno), self._clock()
        with self._lock:
            next_s, suppressed = self._state.get(key, (now_s, 0))
            goes = now_s >= next_s
            self._state[key] = (now_s + self._every_s, 0) if goes else (next_s, suppressed + 1)
        if goes and suppressed:
            record.suppressed = suppressed
        return goes


class JsonFormatter(logging.Formatter):
    """A record as one line: time, level, event (the message), and its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the record as one line of JSON, without the line's end."""
        milliseconds = int(record.msecs)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{milliseconds:03d}Z", "level": record.levelname, "event": record.getMessage()}
        if not _ours(record.name):
            line["logger"] = record.name
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def set_up_logging(level: str) -> None:
    """Send everything of `level` and above to standard error as JSON lines; libraries speak from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(ForeignOnce(filtered_already=(librdkafka_log.name,)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))


librdkafka_log.addFilter(ForeignOnce())  # at the logger: commands have no handler, and print what it says as it is
