"""`coach replay`: historic decisions through the same answer, into topics and files of their own, with a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from stream.bundle.read_model import read_file
from stream.cli.progress import RecordsProgress
from stream.replay.judge.verdict import APART, MODES
from stream.replay.judge.what_if import Change
from stream.replay.report.empty_run import why_nothing
from stream.replay.report.report import is_all_right
from stream.replay.report.wording import counting
from stream.replay.request import Request
from stream.replay.run import Finished, run_replay
from stream.replay.settings import read_replay_settings
from stream.replay.sources.records import window_of
from stream.replay.sources.topic_source import read_offsets
from stream.runtime.settings import read_settings

SUMMARY_KEYS: Final = (
    "run_id", "mode", "records", "counted", "conflicts", "outcomes", "answers", "numbers_behind", "recourse", "errors",
)  # fmt: skip
EXAMPLE: Final = """\b
Example:
  coach replay --run-id spring-check --mode reproduce --input answers.jsonl --bundle bundle \\
    --no-topics --out report --state report/state"""


@click.command(epilog=EXAMPLE, short_help="Answer historic decisions again, apart from the live topics.")
@click.option("--run-id", required=True, help="Names the run and its topics: 1 to 40 of a-z, 0-9 and hyphen.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="reproduce",
    show_default=True,
    help="reproduce: stored answers again, compared. what-if: decide again otherwise. backfill: answer what has no answer.",
)
@click.option("--topic", help="Source: this topic; without any source, audit for reproduce, else decisions.")
@click.option("--archive", help="Source: the archive at this URI; in backfill: what has an answer already.")
@click.option(
    "--input", "file", type=click.Path(path_type=Path), help="Source: JSONL of decisions, answers or audit records."
)
@click.option("--answers", type=click.Path(path_type=Path), help="Backfill: JSONL of what has an answer already.")
@click.option("--from", "from_time", help="RFC 3339 time: only decisions taken then or later.")
@click.option("--to", "to_time", help="RFC 3339 time: only decisions taken before.")
@click.option("--offsets", help="PARTITION:FIRST-END,... of the topic; END is excluded.")
@click.option(
    "--bundle",
    "bundles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder of a bundle; more than once.",
)
@click.option("--model", help="What-if: the model version to ask instead.")
@click.option("--threshold", type=float, help="What-if: the threshold for every decision.")
@click.option("--threshold-scale", type=click.Choice(["probability", "margin"]), help="Its scale; else the bundle's.")
@click.option("--features", type=click.Path(path_type=Path), help="What-if: this features.toml.")
@click.option("--policy", type=click.Path(path_type=Path), help="What-if: this policy.toml.")
@click.option("--no-topics", is_flag=True, help="Write no topics; needs --out.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for report and answers.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The run's own folder; else one in COACH_REPLAY_STATE_DIR.",
)
@click.option("--speed", type=float, help="At most so many records a second.")
@click.option("--kafka-brokers", help="host:port,host:port; else COACH_KAFKA_BROKERS.")
@click.option("--redis-url", help="redis://, rediss:// or unix://; else COACH_REDIS_URL.")
@click.option("--json", "as_json", is_flag=True, help="Print the report's counts as one JSON object.")
@click.pass_context
def replay(ctx: click.Context, /, *, as_json: bool, **flags: Any) -> None:  # noqa: ANN401 - a value for each option
    """Answer historic decisions again, by the same code, into topics and files of the run's own.

    \b
    reproduce  Stored answers (the audit topic, --archive, or --input) are answered
               again with the bundles that they name, and compared byte for byte.
    what-if    All decisions are decided again with another --model, --bundle,
               --threshold, --features or --policy, approved ones too.
    backfill   Decisions that have no audit record are answered.

    Answers go to TOPIC.replay.RUN_ID, and to --out; nothing can go to the live topics. A run that was interrupted goes
    on when it is started again with the same --run-id. It ends with report.json and report.html.

    Exit codes: 0 done; 1 something differs, or could not be replayed; 2 the request or a setting is wrong; 3 Kafka,
    Redis, a bundle or the disk is away.
    """  # noqa: D301 - a \b of click's, which keeps the lines as they are
    settings = read_settings(kafka_brokers=flags.pop("kafka_brokers"), redis_url=flags.pop("redis_url"))
    with RecordsProgress() as progress:
        finished = run_replay(_request(flags), settings, read_replay_settings(), progress=progress)
    _show(finished, as_json=as_json)
    ctx.exit(0 if is_all_right(finished.report) else 1)


def _request(flags: dict[str, Any]) -> Request:
    change = Change(
        model_version=flags.pop("model"),
        threshold=flags.pop("threshold"),
        threshold_scale=flags.pop("threshold_scale"),
        features=_content("--features", flags.pop("features")),
        policy=_content("--policy", flags.pop("policy")),
    )
    window = window_of(flags.pop("from_time"), flags.pop("to_time"))
    ranges = flags.pop("offsets")
    offsets = None if ranges is None else read_offsets(ranges)
    to_topics = not flags.pop("no_topics")
    return Request(window=window, offsets=offsets, change=change, to_topics=to_topics, **flags)  # by their own names


def _content(flag: str, path: Path | None) -> bytes | None:
    return None if path is None else read_file(path, f"{flag} {path}:")


def _show(finished: Finished, *, as_json: bool) -> None:
    report = finished.report
    if as_json:
        summary = {key: report[key] for key in SUMMARY_KEYS}
        paths = {"report": str(finished.json_path), "page": str(finished.html_path)}
        click.echo(json.dumps({**summary, "nothing": why_nothing(report), **paths}))
        return
    click.echo(f"{report['mode']} {report['run_id']}: {counting(report)}")
    if report["conflicts"]:
        click.echo(f"same id, other content: {report['conflicts']:,} of these, which count as decisions of their own")
    counts = _counts({name: number for name, number in report["outcomes"].items() if name not in APART})
    if counts:
        click.echo(f"outcomes: {counts}")
    if report["mode"] == "what-if" and report["outcomes"]["still_declined"]:
        behind = report["numbers_behind"]["of_those_told_the_same"]
        click.echo(
            f"those still declined: {_counts(report['answers'])}"
            + f" (of the same, {behind:,} with other numbers behind it)" * bool(behind)
        )
        click.echo(f"recourse of those still declined: {_counts(report['recourse'])}")
    for name, number in report["errors"].items():
        click.echo(f"not replayed: {number} {name}", err=True)
    if nothing := why_nothing(report):
        click.echo(nothing, err=True)
    click.echo(f"report: {finished.html_path}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items() if number)
