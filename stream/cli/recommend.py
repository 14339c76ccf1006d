"""`coach recommend`: answers the declined rows of a file, offline, with the content that goes to the topics."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from stream.bundle.open import open_bundle
from stream.cli.progress import counted
from stream.errors import ModelNotPublished, PoisonError, shown
from stream.files.answer_lines import answer_line
from stream.files.decision_files import FlatRows, Row, read_rows
from stream.files.output_file import written
from stream.forest.trees import Word
from stream.recourse.answer import Answer, answer, answer_if_declined
from stream.recourse.model import PublishedModel

FAULTS_SHOWN_MAX: Final = 20
FAULT_CHARACTERS_MAX: Final = 400
NOT_USED_SHOWN_MAX: Final = 20
EXAMPLE: Final = """\b
Example:
  coach recommend --bundle bundle --input applications.csv --output answers.jsonl

\b
A row of features whose income cannot change, as CSV and as a line of JSON:
  income,tax,policy_overrides
  2000,400,"{""income"": ""immutable""}"
  {"income": 2000, "tax": 400, "policy_overrides": {"income": "immutable"}}

\b
A whole decision, as a line of JSON:
  {"decision_id": "d-1", "model_id": "credit", "model_version": "1", "outcome": "declined", \
"features": {"income": 2000, "tax": 400}, "policy_overrides": {"income": "immutable"}}"""


@click.command(epilog=EXAMPLE, short_help="Answer the declined rows of a file, offline.")
@click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of a built bundle.",
)
@click.option(
    "--input", "source", type=click.Path(path_type=Path), required=True, help=".csv, .csv.gz, .parquet, .jsonl or .avro"
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="JSONL to write, whole or not; without it, standard output."
)
@click.option("--target-column", help="A column with how it turned out, as in training data; passed over.")
@click.pass_context
def recommend(ctx: click.Context, bundle: Path, source: Path, output: Path | None, target_column: str | None) -> None:
    """Answer the declined rows of a file, without Kafka or Redis.

    Writes a line of JSON per declined row: decision_id, the recommendation, and the audit body with its hash. Rows
    that the model approves have no line. A row is the features by name, or a whole decision; decision_id comes from
    a column of that name, else it is the row number. An empty cell is a missing value, and in a column of true and false
    these are 1 and 0. The columns event_time, subject_ref, outcome, decline_basis, margin, probability, threshold,
    threshold_scale, product, jurisdiction and policy_overrides are the decision's own; policy_overrides is an object
    that says what this applicant cannot change, in a table a cell with its JSON. Other columns are named on standard
    error as not used.

    A row that cannot be answered is named on standard error, and the others are answered all the same (exit 1).
    """
    model = open_bundle(bundle)
    flat = FlatRows(
        model_id=model.identity["model_id"],
        model_version=model.identity["model_version"],
        features=model.forest.features,
        words={rule.name: words for rule in model.rules.rules if (words := _texts(rule.categories))},
        passed_over=frozenset() if target_column is None else frozenset({target_column}),
    )
    answered = approved = 0
    faults: list[str] = []
    faulty = 0
    not_used: dict[str, None] = {}  # in the order of the file; one more than is shown, so that its memory is bounded
    with written(output) as write:
        for row in counted(read_rows(source, flat), "rows"):
            new = [name for name in row.not_used if name not in not_used]
            not_used |= dict.fromkeys(new[: NOT_USED_SHOWN_MAX + 1 - len(not_used)])
            try:
                found = _answer(row, model)
            except PoisonError as error:
                faulty += 1
                if len(faults) < FAULTS_SHOWN_MAX:
                    faults.append(f"row {shown(row.name)}: {error.reason}: {shown(str(error), FAULT_CHARACTERS_MAX)}")
                continue
            if found is None:
                approved += 1
                continue
            answered += 1
            write(answer_line(row.name, found.recommendation, found.body, found.body_sha256))
    if not_used:
        names = ", ".join(map(shown, list(not_used)[:NOT_USED_SHOWN_MAX]))
        more = " and more" if len(not_used) > NOT_USED_SHOWN_MAX else ""
        click.echo(f"  {'not used':13s} the input's columns {names}{more}", err=True)
    for fault in faults:
        click.echo(fault, err=True)
    if faulty > len(faults):
        click.echo(f"... and {faulty - len(faults)} more", err=True)
    rows = "row" if answered == 1 else "rows"
    click.echo(f"{answered} declined {rows} answered, {approved} approved, {faulty} not answerable", err=True)
    ctx.exit(1 if faulty else 0)


def _texts(categories: tuple[Word, ...] | None) -> tuple[str, ...]:
    """Categories that are texts; those that are numbers are read from a file as numbers."""
    return tuple(word for word in categories or () if isinstance(word, str))


def _answer(row: Row, model: PublishedModel) -> Answer | None:
    if isinstance(row.decision, PoisonError):
        raise row.decision
    named = (row.decision.model_id, row.decision.model_version)
    if named != (model.identity["model_id"], model.identity["model_version"]):
        message = f"it names model {shown(' '.join(named))}, which this bundle is not"
        raise ModelNotPublished(message)
    if not row.decided:
        return answer_if_declined(row.decision, model)
    return None if row.decision.outcome == "approved" else answer(row.decision, model)
