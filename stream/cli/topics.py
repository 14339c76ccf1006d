"""`coach topics`: creates the topics or checks that they are as they must be, and prints what is on one."""

from __future__ import annotations

import json
from itertools import islice

import click

from stream.cli.topic_lines import line_of
from stream.runtime.connections import framing_of, kafka_properties
from stream.runtime.kafka.topic_scan import scan_topic
from stream.runtime.kafka.topics import TopicFinding, TopicKeeper, schema_findings
from stream.runtime.settings import read_settings
from stream.runtime.topic_specs import PARTITIONS, topic_specs

DIFFERS = ("missing", "different", "unmendable")


GROUP_EXAMPLE = """\b
Example:
  coach topics apply --dry-run"""
APPLY_EXAMPLE = """\b
Example:
  coach topics apply --kafka-brokers kafka-1:9092,kafka-2:9092 --partitions 12 --replication 3"""


READ_EXAMPLE = """\b
Example:
  coach topics read recommendations --limit 3
  coach topics read audit --key d-4711"""


@click.group(epilog=GROUP_EXAMPLE)
def topics() -> None:
    """Create the topics, check that they are as they must be, or print what is on one."""


@topics.command(epilog=READ_EXAMPLE, short_help="Print the records of a topic as JSON lines.")
@click.argument("topic")
@click.option("--key", help="Only records with this key: the decision_id on all topics but models.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
def read(*, topic: str, key: str | None, limit: int | None, kafka_brokers: str | None) -> None:
    """Print what TOPIC holds now, a line of JSON per record: partition, offset, key and the record.

    Reads without a consumer group, so that nothing is committed and no worker notices. Recommendations and audit
    records hold what a person told the lender: mind where the output goes.
    """
    settings = read_settings(kafka_brokers=kafka_brokers)
    framing = framing_of(settings)
    found = scan_topic(kafka_properties(settings), topic)
    wanted = (message for message in found if key is None or message.key() == key.encode())
    for message in islice(wanted, limit):
        click.echo(line_of(message, framing), nl=False)


@topics.command(epilog=APPLY_EXAMPLE, short_help="Create the topics, or bring them to what the settings ask for.")
@click.option("--dry-run", is_flag=True, help="Change nothing; exit with 1 when anything differs.")
@click.option(
    "--only",
    type=click.Choice(["topics", "schemas"]),
    help="Leave the schema registry, or Kafka, alone; without it, both.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=PARTITIONS,
    show_default=True,
    help="Partitions of a topic made now; `models` has one.",
)
@click.option(
    "--replication", type=click.IntRange(1, 9), help="Copies of each partition; without it, as the brokers say."
)
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--json", "as_json", is_flag=True, help="Write the findings as JSON.")
@click.pass_context
def apply(
    ctx: click.Context,
    *,
    dry_run: bool,
    only: str | None,
    partitions: int,
    replication: int | None,
    kafka_brokers: str | None,
    as_json: bool,
) -> None:
    """Bring the six topics to the sizes, retention and compaction that the settings ask for.

    Run it as often as you like: what is right is left alone, sizes and retention may be larger than asked, and
    partitions are never changed. Names and sizes are COACH_TOPIC_* and COACH_*_BYTES_MAX. The topics of audit
    records and of notices keep their records for 25 months, as US Regulation B asks.

    Where COACH_SCHEMA_REGISTRY_URL is set, each topic's schema is registered as well, and kept BACKWARD_TRANSITIVE;
    COACH_SCHEMA_REGISTRY_REGISTER=never only checks them. Exit code 1: something could not be mended, or differs.
    """
    settings = read_settings(kafka_brokers=kafka_brokers)
    findings: list[TopicFinding] = []
    if only != "schemas":
        keeper = TopicKeeper(kafka_properties(settings), timeout_s=max(settings.start_wait_s, 1.0))
        findings += keeper.apply(topic_specs(settings, partitions=partitions), replication=replication, dry_run=dry_run)
    if only != "topics":
        findings += schema_findings(settings, dry_run=dry_run, asked=only == "schemas")
    if as_json:
        click.echo(json.dumps([{"topic": f.topic, "verdict": f.verdict, "detail": f.detail} for f in findings]))
    else:
        for finding in findings:
            click.echo(f"{finding.verdict:<11} {finding.topic}{': ' * bool(finding.detail)}{finding.detail}")
    ctx.exit(1 if any(one.verdict in DIFFERS for one in findings) else 0)
