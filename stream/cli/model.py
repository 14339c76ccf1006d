"""`coach model publish` and `coach model list`: which bundle answers from when on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from stream.bundle.uris import without_secrets
from stream.cli.progress import has_terminal
from stream.errors import ConfigurationError, shown
from stream.events import ModelPublished
from stream.models.publishing import PublishRequest, publish
from stream.models.serving import Listed, Listing, list_models
from stream.runtime.settings import read_settings
from stream.times import time_ms

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
@click.option("--effective-from", help="RFC 3339 time from which decisions are answered by it; without it, see above.")
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
    request = PublishRequest(
        uri=uri,
        effective_from_ms=None if effective_from is None else _time("--effective-from", effective_from),
        approved_by=approved_by,
        supersedes=supersedes,
    )
    reasons: list[str] = []
    with _progress() as progress:
        publication = publish(settings, request, progress=progress, say_why=reasons.append)
    if as_json:
        click.echo(json.dumps({**publication.published, "epoch": publication.epoch}))
        return
    one = publication.published
    click.echo(
        f"published {_name(one)} (epoch {publication.epoch}), effective from {one['effective_from']}: {reasons[0]}"
    )


@model.command(name="list", epilog=LIST_EXAMPLE, short_help="List what is published, and whether Redis holds it.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--redis-url", help="redis://, rediss:// or unix://; else COACH_REDIS_URL.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON list.")
def list_command(*, kafka_brokers: str | None, redis_url: str | None, as_json: bool) -> None:
    """List all publications in the order in which they were made, whether Redis holds their bundles, and who serves them.

    `current` marks the latest of each model. Of the workers of COACH_GROUP that run now it says how
    many know a publication, having read `models` that far, and how many have its bundle open; a line for each worker says
    how far it read and which partitions of the decisions it has.
    """
    settings = read_settings(kafka_brokers=kafka_brokers, redis_url=redis_url)
    listing = list_models(settings)
    if listing.unknown is not None:
        click.echo(f"the state of cache and workers is unknown: {listing.unknown}", err=True)
    if as_json:
        click.echo(json.dumps([_row(one, listing) for one in listing.publications]))
        return
    if not listing.publications:
        click.echo("nothing is published")
    for one in listing.publications:
        published = one.publication.published
        mark = "current" if one.current else ""
        by = published["approved_by"]
        approval = f"approved by {shown(by)}" if by else "approved by nobody named"
        served = "workers: unknown"
        if listing.workers is not None:
            served = f"workers: {len(one.known_by)} of {len(listing.workers)} know it, {len(one.open_in)} have it open"
        click.echo(
            f"epoch {one.publication.epoch:<5} {_name(published):<40} from {published['effective_from']}  "
            f"{published['bundle_sha256'][:12]}  cache: {one.cache:<7} {served:<34} "
            f"{approval:<24} {mark}".rstrip()
        )
    for worker in listing.workers or ():
        partitions = ", ".join(map(str, worker["partitions"])) or "none"
        click.echo(
            f"worker {worker['worker']}  {worker['software_version']}  models read to epoch {worker['models_epoch']}, "
            f"{len(worker['open_bundles'])} bundles open, partitions {partitions}"
        )


def _row(one: Listed, listing: Listing) -> dict[str, Any]:
    published = one.publication.published
    return {
        **published,
        "bundle_uri": without_secrets(published["bundle_uri"]),
        "epoch": one.publication.epoch,
        "cache": one.cache,
        "current": one.current,
        "known_by": one.known_by,
        "open_in": one.open_in,
        "workers": listing.workers,
    }


def _name(published: ModelPublished) -> str:
    return f"{published['model_id']}/{published['model_version']}/{published['revision']}"


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line at each tenth elsewhere; both on standard error."""
    terminal, shown_tenth = has_terminal(), -1

    def show(done: int, total: int) -> None:
        nonlocal shown_tenth
        tenth = 10 if total == 0 else 10 * done // total
        if terminal:
            click.echo(f"\rto Redis: [{'#' * tenth:<10}] {done / MIB:.1f} of {total / MIB:.1f} MiB", err=True, nl=False)
        elif tenth != shown_tenth and (done == total or total >= LINES_FROM_BYTES):
            click.echo(f"to Redis: {done / MIB:.1f} of {total / MIB:.1f} MiB", err=True)
        shown_tenth = tenth

    yield show
    if terminal and shown_tenth >= 0:
        click.echo(err=True)


def _time(flag: str, text: str) -> int:
    try:
        return time_ms(text)
    except ValueError as wrong:
        message = f"{flag}={text}: {wrong}"
        raise ConfigurationError(message) from wrong
