"""`coach audit`: keeps audit records as Parquet, and re-checks them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path

import click

from stream.audit.archive_check import ArchiveCheck
from stream.audit.record_check import Tally, check
from stream.audit.sink.settings import read_sink_settings
from stream.audit.sink.sink import Sink
from stream.audit.sources import Found, from_jsonl, from_topic
from stream.audit.stray_files import ArchiveFault
from stream.bundle.open import open_bundle
from stream.cli.progress import counted
from stream.errors import ConfigurationError
from stream.runtime.connections import framing_of, kafka_properties
from stream.runtime.logs import set_up_logging
from stream.runtime.settings import read_settings

FAULTS_SHOWN_MAX = 50


GROUP_EXAMPLE = """\b
Example:
  coach audit verify answers.jsonl"""
VERIFY_EXAMPLE = """\b
Example:
  coach audit verify answers.jsonl --bundle bundle
  coach audit verify --topic audit"""


SINK_EXAMPLE = """\b
Example:
  coach audit sink --to archive --once"""


@click.group(epilog=GROUP_EXAMPLE)
def audit() -> None:
    """Keep audit records as Parquet, and re-check them: arithmetic, hashes, and that duplicates are equal."""


@audit.command("verify", epilog=VERIFY_EXAMPLE, short_help="Re-check every record of a file, an archive or a topic.")
@click.argument("source", metavar="[FILE|ARCHIVE]", required=False)
@click.option("--topic", help="Read this topic from its beginning to its present end instead.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also answer each decision again with this bundle.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
@click.pass_context
def verify_records(
    ctx: click.Context, source: str | None, topic: str | None, bundle: Path | None, *, as_json: bool
) -> None:
    """Re-check every record; needs no model. Exit 0: all good; 1: something wrong, each named; 3: no broker answers.

    FILE is the JSONL that `coach recommend` or `coach topics read audit` writes, or an audit record a line. ARCHIVE is what `coach audit
    sink` fills, a folder or a URI; what it promises of itself is checked too: no file missing, changed or too many, no
    offset twice or left out, and no column that says other than its record. With --topic the records come from Kafka
    (settings COACH_KAFKA_*). With --bundle each decision of that bundle is answered again, and the record and its
    recommendation must be that answer; without it, only what the model alone knows is taken as it is written.
    """
    if (source is None) == (topic is None):
        message = "say what to verify: a FILE, an ARCHIVE, or --topic NAME"
        raise ConfigurationError(message)
    model = None if bundle is None else open_bundle(bundle)
    found, archive = _found(source, topic)
    tally = Tally()
    for shown, fault in enumerate(check(counted(found, "records"), tally, model)):
        if shown < FAULTS_SHOWN_MAX:
            click.echo(fault, err=True)
        elif shown == FAULTS_SHOWN_MAX:
            click.echo("... further faults are only counted", err=True)
    counts = {
        "records": tally.records,
        "wrong": tally.wrong,
        "duplicates": tally.duplicates,
        "answered_again": tally.answered_again,
    }
    summary = f"{tally.records} records, {tally.wrong} wrong, {tally.duplicates} equal duplicates"
    if model is not None:
        summary += f", {tally.answered_again} of them of this bundle and answered again"
    if archive is not None:
        extent = archive.extent
        counts |= {name: getattr(extent, name) for name in ("ranges", "whole", "files", "unreadable", "lost", "gaps")}
        counts["broken"] = tally.broken
        summary += (
            f"; {extent.files} files of {extent.ranges} ranges ({extent.whole} whole), {tally.broken} broken promises"
        )
    click.echo(json.dumps(counts) if as_json else summary)
    idle = model is not None and not tally.answered_again and not tally.wrong
    if idle:
        why = f"no record is of the bundle in {bundle}" if tally.records else f"there is no record in {source or topic}"
        click.echo(f"{why}: nothing was answered again", err=True)
    ctx.exit(1 if tally.wrong or tally.broken or idle else 0)


def _found(source: str | None, topic: str | None) -> tuple[Iterable[Found | ArchiveFault], ArchiveCheck | None]:
    if source is None:
        settings = read_settings()
        return from_topic(kafka_properties(settings), str(topic), framing_of(settings)), None
    if "://" in source or Path(source).is_dir():
        archive = ArchiveCheck(source)
        return archive.read(), archive
    return from_jsonl(Path(source)), None


@audit.command("sink", epilog=SINK_EXAMPLE, short_help="Keep the audit topic as Parquet files, exactly once.")
@click.option("--to", "sink_to", help="A folder, or a URI such as s3://bucket/audit; else COACH_SINK_TO.")
@click.option("--once", is_flag=True, help="End at the topic's present end instead of waiting for more.")
@click.option("--range-offsets", "sink_range_offsets", type=int, help="Offsets in a range of a new archive.")
@click.option("--tail-s", "sink_tail_s", type=float, help="How long a record waits at most until the archive shows it.")
@click.option("--group", "sink_group", help="Consumer group; one for all sinks of an archive.")
@click.option(
    "--accept-loss", is_flag=True, help="Go on where the topic deleted records unread; they are named as lost."
)
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
@click.pass_context
def sink_records(
    ctx: click.Context, /, *, once: bool, accept_loss: bool, kafka_brokers: str | None, as_json: bool, **own: object
) -> None:
    """Bring the audit topic (COACH_TOPIC_AUDIT) into an archive of Parquet files by day and model; runs until SIGTERM.

    Each record is in it exactly once, whatever is killed when; run as many as the topic has partitions, or one with
    --once now and then. docs/audit-archive.md says how it lies there, and has questions in SQL. Settings: COACH_SINK_*
    and those of Kafka. Exit 1: the topic lost records before they were kept; with --once also: some are unreadable.
    """
    settings = read_settings(kafka_brokers=kafka_brokers)
    sink = Sink(settings, read_sink_settings(None, **own), once=once, accept_loss=accept_loss)
    set_up_logging(settings.log_level)
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda *_: sink.stop())
    totals = sink.run()
    if as_json:
        click.echo(json.dumps(totals.counts()))
    else:
        click.echo(", ".join(f"{count} {what.replace('_', ' ')}" for what, count in totals.counts().items()))
    ctx.exit(1 if once and totals.unreadable else 0)
