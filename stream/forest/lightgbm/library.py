"""LightGBM, imported only when a model needs it: its wheel needs an OpenMP library that not every machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from stream.errors import ConfigurationError


class _SilentLogger:
    """A silent logger: LightGBM logs to stdout, where a command's JSON goes. It raises whatever matters too."""

    def info(self, message: str) -> None:
        """Drop a line that LightGBM logs."""

    def warning(self, message: str) -> None:
        """Drop a line that LightGBM logs."""


@cache
def lightgbm() -> Any:  # noqa: ANN401  (the module itself, which has no type information)
    """Import LightGBM and silence it. Raises: ConfigurationError where the machine lacks what LightGBM links."""
    try:
        library = import_module("lightgbm")
    except OSError as error:
        message = (
            f"LightGBM cannot be loaded ({error}); its wheel needs the system's OpenMP library: "
            "`apt-get install libgomp1` on Debian and Ubuntu, `brew install libomp` on macOS"
        )
        raise ConfigurationError(message) from error
    library.register_logger(_SilentLogger())
    return library


class _CollectingLogger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str) -> None:
        """Collect a line of LightGBM's own, warnings among them."""
        self.lines.append(message)

    def warning(self, message: str) -> None:
        """Collect a warning of its Python package."""
        self.lines.append(message)


@contextmanager
def captured_warnings() -> Iterator[list[str]]:
    """A list that collects LightGBM's log lines of the whole process; afterwards it is silent again."""
    logger = _CollectingLogger()
    lightgbm().register_logger(logger)
    try:
        yield logger.lines
    finally:
        lightgbm().register_logger(_SilentLogger())
