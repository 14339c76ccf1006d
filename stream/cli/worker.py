"""`coach worker`: answers declined decisions from Kafka until it is stopped."""

from __future__ import annotations

import json
import logging
from importlib.metadata import version

import click

from stream.runtime.logs import set_up_logging
from stream.runtime.settings import read_settings
from stream.runtime.settings_reader import AnySettings, documentation, masked

log = logging.getLogger(__name__)


EXAMPLE = """\b
Example:
  coach worker --start-at earliest --kafka-brokers kafka:9092 --redis-url redis://redis:6379/0
  coach worker --print-config"""


@click.command(epilog=EXAMPLE, short_help="Answer declined decisions from Kafka until it is stopped.")
@click.option("--start-at", help="earliest, latest, or an RFC 3339 time: where a group that never read begins.")
@click.option("--kafka-brokers", help="host:port,host:port of the brokers to ask first.")
@click.option("--redis-url", help="redis://, rediss:// or unix://")
@click.option("--group", help="Consumer group; workers of one group share the partitions.")
@click.option("--metrics-port", help="Port of /metrics and /health; 0: none.")
@click.option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")
@click.option("--print-config", is_flag=True, help="Print all settings with their values, secrets masked, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --print-config: as JSON.")
def worker(*, print_config: bool, as_json: bool, **flags: str | None) -> None:
    """Answer declined decisions from Kafka until SIGTERM or Ctrl-C.

    Every setting is an environment variable COACH_*, and the flags here win over them; the second example lists them
    all. The log is one JSON object a line on standard error. Start as many workers as there are partitions:
    they share them out among themselves.

    A group that never read a partition begins nowhere by itself: say --start-at once. Offsets that are committed
    already always win over it.

    Exit codes: 0 stopped; 2 a setting or topic is wrong; 3 Kafka, Redis or a bundle could not be reached for too long.
    """
    settings = read_settings(None, **flags)
    if print_config:
        print_settings(settings, as_json=as_json)
        return
    set_up_logging(settings.log_level)
    log.info("worker.starting", extra={"software_version": version("coach-stream"), "group": settings.group})
    from stream.worker.run import run_worker  # noqa: PLC0415 - Faust and the model libraries take seconds to import

    run_worker(settings)


def print_settings(settings: AnySettings, *, as_json: bool) -> None:
    """Print settings, secrets masked: as JSON, or a line each with its meaning."""
    shown = masked(settings)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for variable, _, meaning in documentation(type(settings)):
        click.echo(f"{variable}={shown[variable]}  # {meaning}")
