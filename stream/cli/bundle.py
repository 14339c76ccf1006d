"""`coach bundle`: build a bundle from a model and its training pool, or look into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from stream.bundle.build import DECISION_BYTES_MAX, MODEL_ID, RECORD_BYTES_MAX, build_bundle
from stream.bundle.manifest import read_manifest
from stream.bundle.manifest_fields import SHADOWS_MAX
from stream.bundle.open import open_bundle
from stream.bundle.read_model import read_file
from stream.cli.bundle_report import built_for_machines, built_for_people, facts, probes_line
from stream.cli.progress import has_terminal
from stream.errors import ConfigurationError
from stream.recourse.search.shadows import SEARCHED_SHARE

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
BAR_CHARACTERS: Final = 30


# A line of \b keeps click from filling what follows it.
GROUP_EXAMPLE: Final = """\b
Example:
  coach bundle build --model model.json --pool training.csv --features features.toml --target-column outcome \\
    --threshold 0.5 --out bundle
  coach bundle show bundle"""
BUILD_EXAMPLE: Final = """\b
Example:
  coach bundle build --model model.json --pool training.csv.gz --target-column outcome \\
    --features features.toml --policy policy.toml --threshold 0.5 --out bundle
\b
A decider that gives XGBoost -999 where a value is not known, and an early-stopped model of which it uses all trees:
  coach bundle build --model model.json --pool training.csv --features features.toml --threshold 0.5 \\
    --missing -999 --trees all --out bundle
\b
Which of that is right, the decider's own scores of the pool tell:
  coach bundle build --model model.json --pool scored.csv --features features.toml --threshold 0.5 \\
    --claim-column score --out bundle
\b
With ten models like it, so that advice is sought, and judged, by more than this one:
  coach bundle build --model model.json --pool training.csv --features features.toml --threshold 0.5 \\
    --target-column outcome --shadows 10 --train-params train.json --out bundle"""
SHOW_EXAMPLE: Final = """\b
Example:
  coach bundle show bundle"""


@click.group("bundle", epilog=GROUP_EXAMPLE)
def bundle() -> None:
    """Build a bundle from a model and its training pool, or look into one."""


class ManyPaths(click.Command):
    """A command without arguments of its own, whose option `MANY` takes all words up to the next option."""

    MANY: Final = "--shadow-models"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say the option before each of its words, as click wants it."""
        words: list[str] = []
        of_many = has_word = False
        for word in args:
            if word.startswith("-"):
                of_many, has_word = word.partition("=")[0] == self.MANY, "=" in word
            elif of_many:
                words += [self.MANY] if has_word else []
                has_word = True
            words.append(word)
        return super().parse_args(ctx, words)


@bundle.command(cls=ManyPaths, epilog=BUILD_EXAMPLE, short_help="Build a bundle from a model and its training pool.")
@click.option("--model", "model_path", type=FILE, required=True, help="XGBoost .json or .ubj, or LightGBM .txt.")
@click.option(
    "--pool", "pool_path", type=FILE, required=True, help="Training data: .csv, .csv.gz or .parquet, words or codes."
)
@click.option("--features", "features_path", type=FILE, required=True, help="features.toml, a table per feature.")
@click.option("--threshold", type=float, required=True, help="Where the model's decision turns.")
@click.option(
    "--threshold-scale",
    type=click.Choice(["probability", "margin"]),
    default="probability",
    show_default=True,
    help="What the threshold is compared with.",
)
@click.option("--policy", "policy_path", type=FILE, help="policy.toml; `approve` above or below, and more.")
@click.option("--target-column", help="The pool's column with the outcome, which is not a feature.")
@click.option(
    "--missing",
    type=float,
    metavar="NUMBER",
    help="What the decider's XGBoost takes for missing (its `missing=`, which the file does not hold), besides NaN.",
)
@click.option(
    "--trees",
    type=click.Choice(["best", "all"]),
    help="Up to the best iteration (as XGBClassifier.predict), or all (as Booster.predict); needed when an XGBoost file has trees after the best and no --claim-column tells. A LightGBM file names no best.",
)
@click.option(
    "--claim-column", help="The pool's column with the scores that the decider's model gave; each must be ours."
)
@click.option(
    "--claim-scale",
    type=click.Choice(["probability", "margin"]),
    default="probability",
    show_default=True,
    help="What that column holds: what the model predicts, or its raw margin.",
)
@click.option(
    "--shadows",
    type=click.IntRange(1, SHADOWS_MAX),
    help="Train so many models like this one on bootstraps of the pool; needs a train.json and the target column.",
)
@click.option(
    "--train-params",
    "train_params_path",
    type=FILE,
    help='The train.json that says how: {"params": {...}, "rounds": N}, as the library\'s train() was given them.',
)
@click.option(
    ManyPaths.MANY,
    "shadow_model_paths",
    type=FILE,
    multiple=True,
    metavar="FILE...",
    help=f"Take these models instead, as previous versions. For each applicant the search asks {100 * SEARCHED_SHARE} % of them, rounded down; the others are held out and judge it.",
)
@click.option("--out", "out_dir", type=click.Path(path_type=Path), required=True, help="Folder to make.")
@click.option("--model-id", default=MODEL_ID, show_default=True, help="How decisions name the model.")
@click.option("--model-version", help="How they name its version.  [default: from the model file's digest]")
@click.option(
    "--revision", type=click.IntRange(1, 2**31 - 1), default=1, show_default=True, help="Of the same version."
)
@click.option("--reference-key-file", type=FILE, help="Secret that turns pool rows into opaque references.")
@click.option(
    "--record-bytes-max",
    type=click.IntRange(min=1),
    default=RECORD_BYTES_MAX,
    show_default=True,
    help="Largest audit record that the topic takes. Beyond it, per-tree detail is dropped.",
)
@click.option(
    "--decision-bytes-max",
    type=click.IntRange(min=1),
    default=DECISION_BYTES_MAX,
    show_default=True,
    help="Largest decision that the topic takes; the audit record holds it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def build(*, reference_key_file: Path | None, as_json: bool, **inputs: Any) -> None:  # noqa: ANN401 - click checks each
    """Build a bundle, if the model's own library computes exactly what we do.

    Leaves, margins and predictions are compared on the whole pool, on both sides of every threshold, on every code of a
    category, missing and zero, and on several of these at once; one differing bit refuses the bundle (exit 1) and names
    row, tree and node. Same inputs give the same bytes. What is exact and what is refused: docs/models.md.

    Columns of the pool are taken by name. A pool may hold words where the model was trained on their codes: list them
    as `categories` in features.toml, in the order of the codes 0, 1, 2, ..., where the model file does not hold them.
    With --target-column the model's ranking of the pool is told as an AUC; one near 0.5 means a wrong order or another
    pool. With --claim-column the pool's own scores are held against the model, bit for bit: they find a model that is
    read otherwise than its decider reads it.

    Shadows are models that might have been in this one's place, or were. Advice that they accept too is likely to outlive
    the next retrain; docs/shadows.md says how to train or give some.
    """
    built = build_bundle(
        **inputs,  # every other flag is a keyword of the same name
        reference_key=_secret(reference_key_file),
        progress=BuildStages(terminal=has_terminal()),
    )
    if as_json:
        click.echo(json.dumps(built_for_machines(built), sort_keys=True))
    else:
        for line in built_for_people(built):
            click.echo(line)


@bundle.command(epilog=SHOW_EXAMPLE, short_help="Say what is in a bundle, and check it.")
@click.argument("folder", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and the digest as one JSON object.")
def show(*, folder: Path, as_json: bool) -> None:
    """Say what is in a bundle, check that each file is the one that was built, and compute its probes on this machine."""
    open_bundle(folder)
    manifest, digest = read_manifest(folder)
    if as_json:
        click.echo(json.dumps({"bundle_sha256": digest, "manifest": manifest}, sort_keys=True))
        return
    for line in (*facts(manifest, digest), probes_line(manifest)):
        click.echo(line)


class BuildStages:
    """Shows a build's stages on standard error: a bar on a terminal, a line per stage elsewhere."""

    def __init__(self, *, terminal: bool) -> None:
        self._stage = ""
        self._percent = -1
        self._terminal = terminal

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        percent = 100 * done // max(total, 1)
        if self._terminal and (stage, percent) != (self._stage, self._percent):
            bar = "#" * (BAR_CHARACTERS * percent // 100)
            shown = f"{bar:.<{BAR_CHARACTERS}} {percent:3d}% {stage}"
            click.echo(f"\r\x1b[K{shown}", err=True, nl=False, color=True)
            if (stage, percent) == ("writing", 100):
                click.echo("\r\x1b[K", err=True, nl=False, color=True)
        elif not self._terminal and stage != self._stage:
            click.echo(f"{stage} ...", err=True)
        self._stage, self._percent = stage, percent


def _secret(path: Path | None) -> bytes | None:
    if path is None:
        return None
    secret = read_file(path, f"--reference-key-file {path}").strip()
    if not secret:
        message = f"--reference-key-file {path} is empty"
        raise ConfigurationError(message)
    return secret
