"""The programs of the stack as processes on this machine: parts of coach, and Debian's Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.service.room import PYTHONPATH, REPOSITORY
from tests.service.stack import REQUIRED, loud

DEPLOY: Final = REPOSITORY / "deploy"
STOP_S: Final = 30.0
INTERVAL: Final = "2s"  # instead of the deployed 10 s, so that a test need not wait for three of them


def need(config: pytest.Config, program: str) -> str:
    """The path of a program; without it the test is skipped aloud, in CI it fails."""
    found = shutil.which(program)
    if found is None:
        absent = f"{program} is not installed: on Debian and Ubuntu, apt-get install prometheus"
        if REQUIRED:
            pytest.fail(absent)
        loud(config, f"NO {program.upper()}: what is deployed for it is not tested here")
        pytest.skip(absent)
    return found


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process from its start to the end of the block, where it is told to stop, as an orchestrator does."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
            stdout=said,
            stderr=said,
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def coach(*arguments: str) -> list[str]:
    """The command line of `coach ...`."""
    return [sys.executable, "-m", "stream.cli.main", *arguments]


def with_targets(configuration: str, ports: Mapping[str, int]) -> str:
    """The deployed scrape configuration with this machine's addresses in place of the stack's names, and nothing else but the interval changed."""
    for job, port in ports.items():
        block = rf"(  - job_name: {job}\n)    dns_sd_configs:.*\n(?:      .*\n)*?(?=\n|\Z)"
        there = f"\\g<1>    static_configs:\n      - targets: [127.0.0.1:{port}]\n"
        configuration, count = re.subn(block, there, configuration)
        assert count == 1, job
    assert "dns_sd_configs" not in configuration
    return configuration.replace(": 10s\n", f": {INTERVAL}\n").replace(
        "scrape_timeout: 5s", f"scrape_timeout: {INTERVAL}"
    )


class Prometheus:
    """A running server; answers as Grafana hears them."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API."""
        url = f"{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                reason = f"{parameters}: {error.read().decode()}"
                raise AssertionError(reason) from error
        assert told["status"] == "success"
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query's series."""
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return found

    def number(self, expression: str) -> float | None:
        """The one number of a query; None where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, expression
        return float(found[0]["value"][1]) if found else None

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=5) as answer:  # noqa: S310 - as above
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False
