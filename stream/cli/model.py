"""`coach model publish` and `coach model list`: which bundle answers from when on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from stream.bundle.uris import without_secrets
from stream.errors import ConfigurationError, RedisUnavailable
from stream.models.model_table import Publication
from stream.models.publishing import Request, publish, read_models
from stream.runtime.connections import connect_redis
from stream.runtime.settings import Settings, read_settings
from stream.wire.leaf_cache import holds_bundle, read_pointer
from stream.wire.serving import Serving, announced
from stream.wire.times import time_ms

MIB = 1 << 20
LINES_FROM_BYTES = 64 * MIB  # below, one line at the end is enough


GROUP_EXAMPLE = """\b
Example:
  coach model publish bundle
  coach model list"""
PUBLISH_EXAMPLE = """\b
Example:
  coach model publish bundle --effective-from 2026-11-01T00:00:00Z --approved-by "Model Risk\""""
LIST_EXAMPLE = """\b
Example:
  coach model list --json"""


@click.group(epilog=GROUP_EXAMPLE)
def model() -> None:
    """Publish a bundle to the workers, or list what is published."""


@model.command(name="publish", epilog=PUBLISH_EXAMPLE, short_help="Publish a bundle to the workers.")
@click.argument("uri")
@click.option(
    "--effective-from",
    help="RFC 3339 time from which decisions are answered by it; without it, see above.",
)
@click.option("--approved-by", help="Who approved it.")
@click.option("--supersedes", help="Key of the publication that it replaces, such as consumer-loan/2026-10/1.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--redis-url", help="redis://, rediss:// or unix://; else COACH_REDIS_URL.")
@click.option("--json", "as_json", is_flag=True, help="Write the publication as JSON.")
def publish_command(
    *,
    uri: str,
    effective_from: str | None,
    approved_by: str | None,
    supersedes: str | None,
    kafka_brokers: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Publish the bundle at URI, a folder or anything that fsspec reads, to Redis and the `models` topic.

    A decision is answered by the highest revision of its model version that was effective at its event_time. Without
    --effective-from, the first publication of a model version answers all decisions that name it, a revision published
    again keeps its time, and a new revision answers decisions from 10 s from now on, when all workers have read of it. For
    the same reason, a time that you give should be one to come. A rollback is a new publication: build the old
    content with a higher --revision.
    """
    settings = read_settings(kafka_brokers=kafka_brokers, redis_url=redis_url)
    request = Request(
        uri=uri,
        effective_from_ms=None if effective_from is None else _time("--effective-from", effective_from),
        approved_by=approved_by,
        supersedes=supersedes,
    )
    reasons: list[str] = []
    with _progress() as progress:
        publication = publish(settings, request, progress=progress, tell=reasons.append)
    if as_json:
        click.echo(json.dumps({**publication.published, "epoch": publication.epoch}))
        return
    one = publication.published
    name = f"{one['model_id']}/{one['model_version']}/{one['revision']}"
    click.echo(f"published {name} (epoch {publication.epoch}), effective from {one['effective_from']}: {reasons[0]}")


@model.command(name="list", epilog=LIST_EXAMPLE, short_help="List what is published, and whether Redis holds it.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--redis-url", help="redis://, rediss:// or unix://; else COACH_REDIS_URL.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON list.")
def list_command(*, kafka_brokers: str | None, redis_url: str | None, as_json: bool) -> None:
    """List all publications in the order in which they were made, whether Redis holds their bundles, and who serves them.

    `current` marks the one that the model's pointer in Redis names. Of the workers of COACH_GROUP that run now it says how
    many know a publication, having read `models` that far, and how many have its bundle open.
    """
    settings = read_settings(kafka_brokers=kafka_brokers, redis_url=redis_url)
    publications = read_models(settings).publications()
    rows: list[dict[str, Any]] = [
        {**one.published, "bundle_uri": without_secrets(one.published["bundle_uri"]), "epoch": one.epoch, **state}
        for one, state in _states(settings, publications)
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo("nothing is published")
    for row in rows:
        mark = "current" if row["current"] else ""
        name = f"{row['model_id']}/{row['model_version']}/{row['revision']}"
        click.echo(
            f"epoch {row['epoch']:<5} {name:<40} from {row['effective_from']}  {row['bundle_sha256'][:12]}  "
            f"cache: {row['cache']:<7} {_served(row):<34} {mark}".rstrip()
        )


def _served(row: dict[str, Any]) -> str:
    workers = row["workers"]
    if workers is None:
        return "workers: unknown"
    return f"workers: {len(row['known_by'])} of {workers} know it, {len(row['open_in'])} have it open"


def _states(settings: Settings, publications: list[Publication]) -> Iterator[tuple[Publication, dict[str, Any]]]:
    """Give each publication with what Redis knows of it; unknown, said once, where Redis is away."""
    client = connect_redis(settings)
    workers: list[Serving] = []
    away = False
    for one in publications:
        state: dict[str, Any] = {"cache": "unknown", "current": False, "workers": None, "known_by": [], "open_in": []}
        if not away:
            try:
                workers = workers or announced(client, settings.group)
                held = holds_bundle(client, one.published["bundle_sha256"])
                pointer = read_pointer(client, one.published["model_id"])
                digest = one.published["bundle_sha256"]
                state = {
                    "cache": "held" if held else "absent",
                    "current": pointer is not None and pointer.epoch == one.epoch,
                    "workers": len(workers),
                    "known_by": [worker["worker"] for worker in workers if worker["models_epoch"] >= one.epoch],
                    "open_in": [worker["worker"] for worker in workers if digest in worker["open_bundles"]],
                }
            except RedisUnavailable as error:
                away = True
                click.echo(f"the cache's state is unknown: {error}", err=True)
        yield one, state


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line at each tenth elsewhere; both on standard error."""
    terminal, told = sys.stderr.isatty(), -1

    def show(done: int, total: int) -> None:
        nonlocal told
        tenth = 10 if total == 0 else 10 * done // total
        if terminal:
            click.echo(f"\rto Redis: [{'#' * tenth:<10}] {done / MIB:.1f} of {total / MIB:.1f} MiB", err=True, nl=False)
        elif tenth != told and (done == total or total >= LINES_FROM_BYTES):
            click.echo(f"to Redis: {done / MIB:.1f} of {total / MIB:.1f} MiB", err=True)
        told = tenth

    yield show
    if terminal and told >= 0:
        click.echo(err=True)


def _time(flag: str, text: str) -> int:
    try:
        return time_ms(text)
    except ValueError as wrong:
        reason = f"{flag}={text}: {wrong}"
        raise ConfigurationError(reason) from wrong
