"""LightGBM, loaded only when a model needs it: its wheel wants an OpenMP library that not every machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from stream.errors import ConfigurationError


class _Silence:
    """LightGBM's log. By default it prints on stdout, where a command's JSON goes; what matters it raises as well."""

    def info(self, message: str) -> None:
        """Say nothing."""

    def warning(self, message: str) -> None:
        """Say nothing."""


@cache
def lightgbm() -> Any:  # noqa: ANN401  (the module itself, which has no type information)
    """Import LightGBM and silence it.

    Raises: ConfigurationError where the machine lacks what LightGBM links.
    """
    try:
        library = import_module("lightgbm")
    except OSError as error:
        message = (
            f"LightGBM cannot be loaded ({error}); its wheel needs the system's OpenMP library: "
            "`apt-get install libgomp1` on Debian and Ubuntu, `brew install libomp` on macOS"
        )
        raise ConfigurationError(message) from error
    library.register_logger(_Silence())
    return library


class _Ear:
    """LightGBM's log for somebody who wants to know what it warns of."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def info(self, message: str) -> None:
        """Take a line: LightGBM's own warnings come this way."""
        self.heard.append(message)

    def warning(self, message: str) -> None:
        """Take a line: those of its Python package come this way."""
        self.heard.append(message)


@contextmanager
def captured_warnings() -> Iterator[list[str]]:
    """Give a list that fills with what LightGBM says meanwhile, in the whole process; then it is silent again."""
    ear = _Ear()
    lightgbm().register_logger(ear)
    try:
        yield ear.heard
    finally:
        lightgbm().register_logger(_Silence())
