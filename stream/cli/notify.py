"""`coach notify`: sends each declined applicant one letter, and records it."""

from __future__ import annotations

import json
import shutil
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stream.cli.progress import counted
from stream.cli.worker import print_settings
from stream.errors import ConfigurationError
from stream.notify.settings import check_runnable, read_notify_settings
from stream.runtime.logs import set_up_logging
from stream.runtime.settings import read_settings

if TYPE_CHECKING:
    from stream.notify.letters.preview import PreviewTotals

FAULTS_SHOWN_MAX: Final = 20
EXAMPLE: Final = """\b
Example:
  coach notify --start-at earliest --kafka-brokers kafka:9092 --contacts contacts.csv --outbox letters
  coach notify check --contacts contacts.csv --offline
  coach notify --print-config"""
CHECK_EXAMPLE: Final = """\b
Example:
  coach notify check --contacts contacts.csv --offline
  coach notify check --contacts contacts.csv --offline --input answers.jsonl"""
TEMPLATES_EXAMPLE: Final = """\b
Example:
  coach notify templates --out templates/letters"""
PREVIEW_EXAMPLE: Final = """\b
Example:
  coach notify preview --input answers.jsonl --out preview"""


@click.group(
    epilog=EXAMPLE, invoke_without_command=True, short_help="Send each declined applicant one letter, and record it."
)
@click.option("--start-at", help="earliest, latest, or an RFC 3339 time: where a new group begins.")
@click.option("--kafka-brokers", help="host:port,host:port of the brokers to ask first.")
@click.option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")
@click.option("--contacts", help="A .csv or SQLite file, or a URL with {subject_ref} in it.")
@click.option("--templates", help="Folder with a folder of templates a locale.")
@click.option("--outbox", help="Folder of print-ready letters.")
@click.option("--state", help="SQLite index of sent letters; one per notifier.")
@click.option("--group", help="Consumer group; notifiers of one group share the partitions.")
@click.option("--metrics-port", help="Port of /metrics and /health; 0: none.")
@click.option("--print-config", is_flag=True, help="Print the notifier's settings, secrets masked, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --print-config: as JSON.")
@click.pass_context
def notify(
    ctx: click.Context,
    /,
    *,
    start_at: str | None,
    kafka_brokers: str | None,
    log_level: str | None,
    print_config: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Send each declined applicant one letter a decision, and record it on the topic `notices`.

    Reads `recommendations` in a group of its own and ignores replays. Letters go out by e-mail, to a webhook or to
    files where the contact says so and the applicant agreed to it; else they are printed: HTML files in the outbox.
    A decline that the model did not make has no reasons here: it is counted, and the system that made it must write.

    COACH_NOTIFY_LENDER_NAME and COACH_NOTIFY_LENDER_CONTACT are required: each letter states both.

    Every setting is an environment variable COACH_NOTIFY_* (--print-config lists them), beside those of the service
    for Kafka and topics. The log is one JSON object a line on standard error, without a name, an address or a value.

    Exit codes: 0 stopped; 2 a setting, template or topic is wrong; 3 Kafka, the mail server or another receiver could
    not be reached for too long.
    """
    named = {f"notify_{name}": value for name, value in flags.items()}
    if ctx.invoked_subcommand is not None:
        ctx.obj = named
        return
    settings = read_notify_settings(None, **named)
    if print_config:
        print_settings(settings, as_json=as_json)
        return
    service = read_settings(None, start_at=start_at, kafka_brokers=kafka_brokers, log_level=log_level)
    check_runnable(settings, service)
    set_up_logging(service.log_level)
    from stream.notify.run import run_notifier  # noqa: PLC0415 - the HTTP client and jinja are slow to import

    run_notifier(settings, service)


@notify.command(epilog=CHECK_EXAMPLE, short_help="Check settings, templates and contacts; send nothing.")
@click.option("--contacts", help="As for `coach notify`.")
@click.option("--templates", help="As for `coach notify`.")
@click.option(
    "--input",
    "answers",
    type=click.Path(path_type=Path),
    help="JSONL that `coach recommend` wrote: also say how many letters name features without a label.",
)
@click.option("--offline", is_flag=True, help="Ask neither the mail server nor an HTTP look-up.")
@click.option("--locale", help="Locale of the sample letter.")
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Also write the sample letter as HTML here."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_obj
def check(
    named: dict[str, str | None],
    *,
    contacts: str | None,
    templates: str | None,
    answers: Path | None,
    offline: bool,
    locale: str | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Load templates and contacts, check that the mail server answers, and print a sample letter. Sends nothing.

    COACH_NOTIFY_LENDER_NAME and COACH_NOTIFY_LENDER_CONTACT, which `coach notify` requires, may be missing here: the findings
    say so, and the sample letter holds their names instead.

    Exit codes: 0 all good; 2 a setting, template or contact file is wrong; 3 the mail server or look-up does not answer.
    """
    from stream.notify.checking import findings, sample  # noqa: PLC0415 - as above

    given = {"notify_contacts": contacts, "notify_templates": templates}
    settings = read_notify_settings(None, **{**named, **{name: value for name, value in given.items() if value}})
    lines = findings(settings, offline=offline, answers=answers)
    letter = sample(settings, locale or settings.notify_locale)
    if page is not None:
        page.write_text(letter.html, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"findings": lines, "subject": letter.subject, "text": letter.text}))
        return
    for line in lines:
        click.echo(line, err=True)
    click.echo(f"Subject: {letter.subject}\n\n{letter.text}", nl=False)


@notify.command(epilog=PREVIEW_EXAMPLE, short_help="Write the letters of `coach recommend`'s answers to a folder.")
@click.option(
    "--input", "source", type=click.Path(path_type=Path), required=True, help="JSONL that `coach recommend` wrote."
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for letters and index.html."
)
@click.option("--templates", help="Folder with a folder of templates a locale.")
@click.option("--locale", help="Locale of the letters.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
@click.pass_context
def preview(
    ctx: click.Context,
    *,
    source: Path,
    out: Path,
    templates: str | None,
    locale: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Write the letters that these answers would give, as HTML and text, to a made-up recipient. Sends nothing.

    To work on templates: change one, run this again, and open index.html in a browser. A setting that is not set yet
    appears in the letters by its name. A folder that holds letters to applicants is refused, and `coach notify` refuses
    one that holds a preview.

    Exit codes: 0 done; 1 an answer makes no letter (the first 20 are named); 2 a setting, template or file is wrong.
    """
    from stream.notify.letters.preview import PreviewFolder, PreviewTotals, previews  # noqa: PLC0415 - as above
    from stream.notify.run import loaded_templates  # noqa: PLC0415 - as above

    given = {"notify_templates": templates, "notify_locale": locale}
    settings = read_notify_settings(None, **{**ctx.obj, **{name: value for name, value in given.items() if value}})
    templates_read = loaded_templates(settings)
    folder, totals = PreviewFolder(out), PreviewTotals()
    wrong: list[str] = []
    letters = previews(source, settings, templates_read, time.time_ns() // 1_000_000)
    for one in islice(counted(letters, "lines"), limit):
        totals.add(one)
        if not one.is_wrong or totals.wrong <= FAULTS_SHOWN_MAX:
            folder.write(one)
        if one.is_wrong and len(wrong) < FAULTS_SHOWN_MAX:
            wrong.append(f"{one.decision_id}: {one.why}")
    totals.check_answers(source)
    folder.finish()
    _print_totals(wrong, totals, index=out / "index.html", as_json=as_json)
    ctx.exit(1 if wrong else 0)


@notify.command(epilog=TEMPLATES_EXAMPLE, short_help="Copy the shipped templates to a folder, to change them there.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="A folder that is not there yet."
)
def templates(*, out: Path) -> None:
    """Copy the shipped templates to a folder. Change them there, preview them, and pass the folder as --templates.

    A locale is a folder: copy en/ to de/, translate the four files, and applicants whose locale is de or de-AT get them.
    """
    from stream.notify.letters.templates import shipped_folder  # noqa: PLC0415 - as above

    try:
        shutil.copytree(shipped_folder(), out)
    except OSError as error:
        message = f"--out {out}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    click.echo(f"{out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_dir()))}")


def _print_totals(wrong: list[str], totals: PreviewTotals, *, index: Path, as_json: bool) -> None:
    for line in wrong:
        click.echo(line, err=True)
    if totals.wrong > len(wrong):
        click.echo(f"... and {totals.wrong - len(wrong)} more that make no letter", err=True)
    if totals.unlabelled:
        click.echo(totals.unlabelled_summary(), err=True)
    if as_json:
        counts = {
            "letters": totals.letters,
            "without": totals.without,
            "wrong": totals.wrong,
            "unlabelled_letters": totals.unlabelled_letters,
            "unlabelled_features": totals.unlabelled,
            "index": str(index),
        }
        click.echo(json.dumps(counts))
        return
    click.echo(
        f"{totals.letters} letters, {totals.without} answers without one, {totals.wrong} of them wrong; see {index}"
    )
