"""`coach audit`: re-checks audit records."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stream.audit_log.check import Tally, check
from stream.audit_log.sources import from_jsonl, from_topic
from stream.bundle.open import open_bundle
from stream.cli.progress import counted
from stream.errors import ConfigurationError
from stream.runtime.connections import kafka_properties
from stream.runtime.settings import read_settings

FAULTS_SHOWN_MAX = 50


GROUP_EXAMPLE = """\b
Example:
  coach audit verify answers.jsonl"""
VERIFY_EXAMPLE = """\b
Example:
  coach audit verify answers.jsonl --bundle my-bundle
  coach audit verify --topic audit"""


@click.group(epilog=GROUP_EXAMPLE)
def audit() -> None:
    """Re-check audit records: their arithmetic, their hashes, and that duplicates are equal."""


@audit.command("verify", epilog=VERIFY_EXAMPLE, short_help="Re-check every record of a file or a topic.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--topic", help="Read this topic from its beginning to its present end instead of a file.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also answer each decision again with this bundle.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
@click.pass_context
def verify_records(
    ctx: click.Context, file: Path | None, topic: str | None, bundle: Path | None, *, as_json: bool
) -> None:
    """Re-check every record; needs no model. Exit 0: all good; 1: something wrong, each named; 3: no broker answers.

    FILE is the JSONL that `coach recommend` writes, or one audit record in JSON a line. With --topic the records come
    from Kafka (settings COACH_KAFKA_*). With --bundle each decision of that bundle is answered again, and the record
    and its recommendation must be that answer; without it, only what the model alone knows is taken as it is written.
    """
    if (file is None) == (topic is None):
        msg = "say what to verify: a FILE, or --topic NAME"
        raise ConfigurationError(msg)
    model = None if bundle is None else open_bundle(bundle)
    source = from_jsonl(file) if file is not None else from_topic(kafka_properties(read_settings()), str(topic))
    tally = Tally()
    for shown, fault in enumerate(check(counted(source, "records"), tally, model)):
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
    if as_json:
        click.echo(json.dumps(counts))
    else:
        again = "" if model is None else f", {counts['answered_again']} of them of this bundle and answered again"
        click.echo(f"{tally.records} records, {tally.wrong} wrong, {tally.duplicates} equal duplicates{again}")
    idle = model is not None and not tally.answered_again and not tally.wrong
    if idle:
        click.echo(f"no record is of the bundle in {bundle}: nothing was answered again", err=True)
    ctx.exit(1 if tally.wrong or idle else 0)
