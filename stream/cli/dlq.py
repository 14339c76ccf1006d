"""`coach dlq`: lists dead letters, shows one, and sends them back once what they waited for is there."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from stream.cli.progress import counted
from stream.cli.topic_lines import as_text
from stream.dlq.dead_letter_reader import LetterFilter, StoredLetter, dead_letters, matching_letters
from stream.dlq.originals import Originals
from stream.dlq.redrive import Receipts, Redrive, RedriveTotals, check_source, send_back
from stream.errors import ConfigurationError, RedisUnavailable, poison_kinds, shown
from stream.events import DeadLetter
from stream.runtime.connections import connect_redis, framing_of, kafka_properties
from stream.runtime.kafka.dead_letters import MESSAGE_CHARACTERS_MAX
from stream.runtime.kafka.delivery import KafkaDelivery
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings, read_settings
from stream.times import time_ms

POSITION: Final = re.compile(r"\d{1,10}:\d{1,19}")
REDRIVE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")
UNREADABLE: Final = "(unreadable)"
Command = TypeVar("Command", bound=Callable[..., Any])

GROUP_EXAMPLE = """\b
Example:
  coach dlq list
  coach dlq redrive --reason ModelNotPublished"""
LIST_EXAMPLE = """\b
Example:
  coach dlq list --reason ModelNotPublished --since 2026-11-01T00:00:00Z"""
SHOW_EXAMPLE = """\b
Example:
  coach dlq show 0:0"""
REDRIVE_EXAMPLE = """\b
Example:
  coach dlq redrive --reason ModelNotPublished --reason BundleLost --dry-run
  coach dlq redrive --at 0:0 --permanent"""


def _narrowing(command: Command) -> Command:
    options = [
        click.option("--reason", "reasons", multiple=True, help="Only this reason, such as ModelNotPublished."),
        click.option("--stage", help="Only letters of this stage, such as decode, resolve or notify."),
        click.option("--key", help="Only letters of records with this key."),
        click.option("--decision", help="Only letters of the decision with this decision_id."),
        click.option("--source", help="Only letters of records that came from this topic."),
        click.option("--since", help="Only letters last seen at or after this RFC 3339 time."),
        click.option("--until", help="Only letters last seen before this RFC 3339 time."),
        click.option("--topic", help="The dead letters' topic; else COACH_TOPIC_DLQ."),
        click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS."),
        click.option("--redis-url", help="redis://, rediss:// or unix://; else COACH_REDIS_URL."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(epilog=GROUP_EXAMPLE)
def dlq() -> None:
    """List dead letters, show one, or send them back to be answered."""


@dlq.command("list", epilog=LIST_EXAMPLE, short_help="List dead letters, with why they died and what may be done.")
@_narrowing
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line, without the values.")
def list_letters(*, as_json: bool, **narrowing: Any) -> None:  # noqa: ANN401 - the options of `_narrowing`
    """List the dead letters that the topic holds: place, time, stage, reason, key, and whether they were sent back.

    A retryable letter waited for something that may be there by now; the others need the sender to correct the record.
    """
    settings, topic, letter_filter = _letter_filter(narrowing)
    stored = counted(dead_letters(kafka_properties(settings), topic, framing_of(settings)), "dead letters")
    receipts = _Known(Receipts(connect_redis(settings), topic))
    reasons: Counter[tuple[str, bool, bool]] = Counter()
    unreadable = 0
    for one in stored:
        if isinstance(one.letter, str):
            unreadable += 1
            line = {"at": one.position, "error": UNREADABLE, "message": one.letter}
            click.echo(json.dumps(line) if as_json else f"{one.position:<12} {UNREADABLE}: {one.letter}")
            continue
        if not letter_filter.takes(one, one.letter):
            continue
        sent_back = receipts.of(one.position)
        reasons[one.letter["error"], one.letter["retryable"], sent_back is not None] += 1
        click.echo(json.dumps(_as_json(one, one.letter, sent_back)) if as_json else _line(one, one.letter, sent_back))
    if as_json:
        return
    for (reason, retryable, back), count in sorted(reasons.items()):
        state = "sent back" if back else "retryable" if retryable else "not retryable"
        click.echo(f"{count:>8,}  {shown(reason)} ({state})")
    if not reasons and not unreadable:
        click.echo(f"no dead letters of this kind on {topic}")


@dlq.command(epilog=SHOW_EXAMPLE, short_help="Show one dead letter in full.")
@click.argument("position", metavar="PARTITION:OFFSET")
@click.option("--value", "with_value", is_flag=True, help="Show the record's value and headers too: personal data.")
@click.option("--topic", help="The dead letters' topic; else COACH_TOPIC_DLQ.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
def show(*, position: str, with_value: bool, topic: str | None, kafka_brokers: str | None) -> None:
    """Show the dead letter that lies at PARTITION:OFFSET of the dead letters' topic, as `coach dlq list` names it.

    Without --value, the record's own value is given by size and SHA-256 only, for it holds what a person told the lender.
    """
    settings = read_settings(kafka_brokers=kafka_brokers)
    topic = topic or settings.topic_dlq
    wanted = _position(position)
    for one in dead_letters(kafka_properties(settings), topic, framing_of(settings)):
        if one.position == wanted:
            if isinstance(one.letter, str):
                message = f"{topic} at {position} {one.letter}"
                raise ConfigurationError(message)
            letter: dict[str, Any] = {"at": one.position, "decision_id": one.decision_id, **one.letter}
            if not with_value:
                value = one.letter["value"]
                sized = None if value is None else f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
                letter |= {"value": sized, "headers": [h["key"] for h in one.letter["headers"]]}
            click.echo(json.dumps(letter, indent=2, default=as_text))
            return
    message = f"topic {topic} has no record at {position}; `coach dlq list` names them"
    raise ConfigurationError(message)


@dlq.command(epilog=REDRIVE_EXAMPLE, short_help="Send dead letters back to the topic that they came from.")
@_narrowing
@click.option("--at", "positions", multiple=True, metavar="PARTITION:OFFSET", help="Only this letter; may be repeated.")
@click.option("--permanent", is_flag=True, help="Also letters that are not retryable.")
@click.option("--again", is_flag=True, help="Also letters that were sent back before.")
@click.option("--redrive-id", help="Name of this redrive, which a header carries; else one is made.")
@click.option("--dry-run", is_flag=True, help="Send nothing; say what would be sent.")
@click.option("--json", "as_json", is_flag=True, help="Write the counts as JSON.")
@click.pass_context
def redrive(
    ctx: click.Context,
    /,
    *,
    positions: tuple[str, ...],
    permanent: bool,
    again: bool,
    redrive_id: str | None,
    dry_run: bool,
    as_json: bool,
    **narrowing: Any,  # noqa: ANN401 - the options of `_narrowing`
) -> None:
    """Send dead letters back: key, value and headers as they were, and the header coach-redrive-id with this redrive's name.

    Without options, all retryable letters that were not sent back yet. It reads to the topic's present end, so that what
    dies again is left for the next redrive. Stopped half-way, it can be started again: what is sent twice is answered
    twice, equally. Exit 0: all were sent; 1: some could not be, each kind named.
    """
    settings, topic, letter_filter = _letter_filter(narrowing, positions=positions, retryable_only=not permanent)
    check_source(topic)
    name = redrive_id or f"redrive-{uuid.uuid4().hex[:12]}"
    if not REDRIVE_ID.fullmatch(name):
        message = f"--redrive-id={name!r}: must be 1 to 80 letters, digits, dots, hyphens or underscores"
        raise ConfigurationError(message)
    properties = kafka_properties(settings)
    partitions = TopicKeeper(properties, timeout_s=max(settings.start_wait_s, 1.0)).partitions()
    sources = (settings.topic_decisions, settings.topic_recommendations)  # the worker's input, and the notifier's
    targets = {one: partitions[one] for one in sources if one in partitions}
    totals, originals = RedriveTotals(), Originals(properties)
    found = matching_letters(
        counted(dead_letters(properties, topic, framing_of(settings)), "dead letters"), letter_filter
    )
    try:
        send_back(
            found,
            Redrive(redrive_id=name, targets=targets, again=again, dry_run=dry_run),
            delivery=KafkaDelivery(properties, delivery_timeout_s=settings.delivery_timeout_s),
            originals=originals,
            receipts=Receipts(connect_redis(settings), topic),
            retry=lambda: Retry(total_s=settings.outage_max_s, pause_max_s=settings.retry_delay_max_s),
            totals=totals,
        )
    finally:
        originals.close()
        _show_totals(totals, name, as_json=as_json, dry_run=dry_run)
    ctx.exit(1 if totals.refused or totals.could_not else 0)


def _show_totals(totals: RedriveTotals, name: str, *, as_json: bool, dry_run: bool) -> None:
    if totals.receipts_missing:
        click.echo(f"Redis does not know what was sent back: {totals.receipts_missing}", err=True)
    if as_json:
        counts = {"redrive_id": name, "sent": totals.sent, "left": dict(sorted(totals.left.items()))}
        click.echo(json.dumps({**counts, "refused": totals.refused, "dry_run": dry_run}))
        return
    click.echo(f"{'would send' if dry_run else 'sent'} {totals.sent:,} dead letters back ({name})")
    for why, count in sorted(totals.left.items()):
        click.echo(f"left {count:,}: {shown(why, MESSAGE_CHARACTERS_MAX)}")
    for refused in totals.refused:
        click.echo(f"refused by its topic: {refused}", err=True)


class _Known:
    """Receipts asked one by one until Redis is away; then none is known, and that is said once."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts: Receipts | None = receipts

    def of(self, position: str) -> str | None:
        """The redrive that sent a letter back last."""
        if self._receipts is None:
            return None
        try:
            return self._receipts.of([position])[0]
        except RedisUnavailable as away:
            self._receipts = None
            click.echo(f"which were sent back is unknown: {away}", err=True)
            return None


def _letter_filter(
    narrowing: dict[str, Any], *, positions: Iterable[str] = (), retryable_only: bool = False
) -> tuple[Settings, str, LetterFilter]:
    settings = read_settings(kafka_brokers=narrowing["kafka_brokers"], redis_url=narrowing["redis_url"])
    letter_filter = LetterFilter(
        positions=frozenset(map(_position, positions)),
        reasons=_reasons(narrowing["reasons"]),
        stage=narrowing["stage"],
        key=None if narrowing["key"] is None else narrowing["key"].encode(),
        decision_id=narrowing["decision"],
        topic=narrowing["source"],
        since_ms=_time("--since", narrowing["since"]),
        until_ms=_time("--until", narrowing["until"]),
        retryable_only=retryable_only,
    )
    return settings, narrowing["topic"] or settings.topic_dlq, letter_filter


def _reasons(given: Iterable[str]) -> frozenset[str]:
    """A reason that there is not would choose nothing, and look as if all were well."""
    known = [kind.__name__ for kind in poison_kinds()]
    for reason in given:
        if reason not in known:
            near = difflib.get_close_matches(reason, known, n=1)
            message = f"--reason {reason!r}: there is no such reason{f'; did you mean {near[0]}?' if near else ''} `coach dlq list` names them"
            raise ConfigurationError(message)
    return frozenset(given)


def _position(text: str) -> str:
    if not POSITION.fullmatch(text):
        message = f"{text!r} is no place; name it as PARTITION:OFFSET, such as 0:17, as `coach dlq list` does"
        raise ConfigurationError(message)
    partition, offset = text.split(":")
    return f"{int(partition)}:{int(offset)}"


def _time(flag: str, text: str | None) -> int | None:
    try:
        return None if text is None else time_ms(text)
    except ValueError as wrong:
        message = f"{flag}={text}: {wrong}"
        raise ConfigurationError(message) from wrong


def _as_json(stored: StoredLetter, letter: DeadLetter, sent_back: str | None) -> dict[str, Any]:
    shown = {name: value for name, value in letter.items() if name not in ("value", "headers", "key")}
    key = letter["key"]
    return {
        "at": stored.position,
        "decision_id": stored.decision_id,
        "key": None if key is None else as_text(key),
        **shown,
        "sent_back": sent_back,
    }


def _line(stored: StoredLetter, letter: DeadLetter, sent_back: str | None) -> str:
    key = "-" if letter["key"] is None else shown(letter["key"].decode(errors="replace"))
    decision = shown(stored.decision_id) if stored.decision_id else "-"
    state = f"sent back: {sent_back}" if sent_back else "retryable" if letter["retryable"] else ""
    where = f"{shown(letter['topic'])}[{letter['partition']}]@{letter['offset']}"
    line = f"{stored.position:<12} {letter['last_seen']}  {shown(letter['stage']):<8} {shown(letter['error']):<20} {where}  decision {decision}  key {key}  {state}"
    return f"{line.rstrip()}\n             {shown(letter['message'], MESSAGE_CHARACTERS_MAX)}"
