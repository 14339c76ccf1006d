"""The log: one JSON object a line on standard error. Never a feature value, never a secret."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

import orjson

# Their INFO lines are many, and Faust's start-up would leave the root logger at DEBUG, which cost 40 % of the speed.
NOISY: Final = ("faust", "aiokafka", "mode", "kafka", "asyncio", "fsspec", "numba")
_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


class JsonLines(logging.Formatter):
    """A record as one line: time, level, event (the message), and its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the line."""
        milliseconds = int(record.msecs)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{milliseconds:03d}Z", "level": record.levelname, "event": record.getMessage()}
        if record.name != "stream" and not record.name.startswith("stream."):
            line["logger"] = record.name
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def set_up_logging(level: str) -> None:
    """Send everything of `level` and above to standard error as JSON lines; libraries speak from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
