"""`coach recommend`: answers the declined rows of a file, offline, with the content that goes to the topics."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

import click
import orjson

from stream.bundle.open import open_bundle
from stream.cli.progress import counted
from stream.errors import ModelNotPublished, PoisonError
from stream.recourse.answer import Answer, answer, answer_if_declined
from stream.recourse.model import PublishedModel
from stream.wire.decision_files import FlatRows, Row, read_rows

FAULTS_SHOWN_MAX = 20


@click.command()
@click.option("--bundle", type=click.Path(path_type=Path), required=True, help="Folder of a built bundle.")
@click.option(
    "--input", "source", type=click.Path(path_type=Path), required=True, help=".csv, .csv.gz, .parquet, .jsonl or .avro"
)
@click.option("--output", type=click.Path(path_type=Path), help="JSONL to write; without it, standard output.")
@click.pass_context
def recommend(ctx: click.Context, bundle: Path, source: Path, output: Path | None) -> None:
    """Answer the declined rows of a file, without Kafka or Redis.

    Writes a line of JSON per declined row: decision_id, the recommendation, and the audit body with its hash. Rows
    that the model approves have no line. A row is the features by name, or a whole decision; decision_id comes from
    a column of that name, else it is the row number. An empty cell is a missing value.

    Example: coach recommend --bundle my-bundle --input applications.csv --output answers.jsonl
    """
    model = open_bundle(bundle)
    flat = FlatRows(
        model_id=model.identity["model_id"],
        model_version=model.identity["model_version"],
        features=model.forest.features,
        words={rule.name: rule.categories for rule in model.rules.rules if rule.categories is not None},
    )
    answered = approved = 0
    faults: list[str] = []
    with _opened(output) as out:
        for row in counted(read_rows(source, flat), "rows"):
            try:
                found = _answer(row, model)
            except PoisonError as error:
                faults.append(f"row {row.name}: {error.reason}: {error}")
                continue
            if found is None:
                approved += 1
                continue
            answered += 1
            out.write(_line(row.name, found))
    for fault in faults[:FAULTS_SHOWN_MAX]:
        click.echo(fault, err=True)
    click.echo(f"{answered} declined rows answered, {approved} approved, {len(faults)} not answerable", err=True)
    ctx.exit(1 if faults else 0)


def _answer(row: Row, model: PublishedModel) -> Answer | None:
    if isinstance(row.decision, PoisonError):
        raise row.decision
    named = (row.decision.model_id, row.decision.model_version)
    if named != (model.identity["model_id"], model.identity["model_version"]):
        msg = f"it names model {' '.join(named)}, which this bundle is not"
        raise ModelNotPublished(msg)
    if not row.decided:
        return answer_if_declined(row.decision, model)
    return None if row.decision.outcome == "approved" else answer(row.decision, model)


def _line(name: str, found: Answer) -> bytes:
    audit = {"body": found.body, "body_sha256": found.body_sha256}
    return orjson.dumps(
        {"decision_id": name, "recommendation": found.recommendation, "audit": audit}, option=orjson.OPT_APPEND_NEWLINE
    )


def _opened(output: Path | None) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdout.buffer) if output is None else output.open("wb")
