"""`coach demo`: the whole story on this machine."""

from __future__ import annotations

import math
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from stream.demo.german_credit import default_cache
from stream.demo.publisher import publish_only as send_only
from stream.demo.script import german_credit_script, own_script
from stream.demo.story import run_demo
from stream.errors import ConfigurationError
from stream.runtime.settings import read_settings

FAULTS_SHOWN_MAX: Final = 20
TERMINATED: Final = 143  # 128 + SIGTERM
EXAMPLE: Final = """\b
Example:
  coach demo
  coach demo --data training.csv --features features.toml --target-column outcome --rate 500"""


@click.command(epilog=EXAMPLE, short_help="The whole story on this machine, with nothing else installed.")
@click.option("--data", type=click.Path(path_type=Path), help="Your own past applications: .csv, .csv.gz or .parquet.")
@click.option("--features", type=click.Path(path_type=Path), help="features.toml for --data, a table per column.")
@click.option("--target-column", help="Column of --data that says how each application turned out.")
@click.option("--favourable", default="1", show_default=True, help="The good value of the target column.")
@click.option("--exclude", multiple=True, metavar="COLUMN", help="Column of --data that is no feature; repeatable.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Probability of the favourable outcome from which the demo's lender approves.",
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=100.0, show_default=True, help="Decisions a second."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep model, pool, bundle, answers.jsonl and log in this new folder.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="COACH_CACHE_DIR",
    help="Where the downloaded data is kept.  [default: ~/.cache/coach-stream]",
)
@click.option(
    "--publish-only",
    is_flag=True,
    help="Publish the demo's model to the Kafka and Redis of COACH_KAFKA_BROKERS and COACH_REDIS_URL, send its decisions "
    "there, and end; needs --out, a folder that the workers there can read.",
)
@click.pass_context
def demo(  # noqa: PLR0913, PLR0917 - one parameter per flag
    ctx: click.Context,
    data: Path | None,
    features: Path | None,
    target_column: str | None,
    favourable: str,
    exclude: tuple[str, ...],
    threshold: float,
    rate: float,
    out: Path | None,
    cache_dir: Path | None,
    *,
    publish_only: bool,
) -> None:
    """Show everything on this machine, with nothing installed but this package.

    Starts an embedded Kafka and Redis, trains a model on the German credit data (or on yours), publishes it, lets the
    real worker answer every declined application, prints three of the answers, and verifies every audit record.
    """
    if not math.isfinite(rate):
        message = f"--rate {rate}: a finite number of decisions a second"
        raise ConfigurationError(message)
    if publish_only and out is None:
        message = "--publish-only also needs --out, a folder that the workers can read: the bundle's place"
        raise ConfigurationError(message)
    with _signals(), _folder(out, again=publish_only) as folder:
        if data is None:
            cache = cache_dir or default_cache()
            script = german_credit_script(folder, threshold=threshold, per_second=rate, cache=cache)
        else:
            script = own_script(
                folder,
                data=data,
                features=features,
                target=target_column,
                favourable=favourable,
                leave_out=exclude,
                threshold=threshold,
                per_second=rate,
            )
        if publish_only:
            send_only(script, read_settings(), click.echo, _progress)
            return
        faults = run_demo(script, click.echo, _progress)
    for fault in faults[:FAULTS_SHOWN_MAX]:
        click.echo(fault, err=True)
    if out is not None:
        click.echo(f"\nThe files are in {out}. Look into the bundle, and check the answers again:")
        click.echo(f"  coach bundle show {out / 'bundle'}")
        click.echo(f"  coach audit verify {out / 'answers.jsonl'} --bundle {out / 'bundle'}")
    ctx.exit(1 if faults else 0)


@contextmanager
def _signals() -> Iterator[None]:
    """Leave as after an exception, so that all is stopped; a Kafka client being made turns it into an error of its own."""
    ended: list[BaseException] = []

    def end(number: int, _frame: object) -> None:
        ended.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED))
        raise ended[-1]

    for one in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(one) is not signal.SIG_IGN:  # as a script's background job ignores SIGINT
            signal.signal(one, end)
    try:
        yield
    except Exception:
        if ended:
            raise ended[-1] from None
        raise


@contextmanager
def _folder(out: Path | None, *, again: bool) -> Iterator[Path]:
    """The named folder, which must not hold anything yet unless used `again`, or one that goes away afterwards."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="coach-demo-") as folder:
            yield Path(folder)
        return
    try:
        occupied = out.exists() and any(out.iterdir())
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--out {out} cannot be made: {error.strerror or error}"
        raise ConfigurationError(message) from error
    if occupied and not again:
        message = f"--out {out} is not empty; name a new folder"
        raise ConfigurationError(message)
    yield out


@contextmanager
def _progress(length: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; elsewhere its label alone, as a plain line."""
    with click.progressbar(length=length, label=label) as bar:
        yield bar.update
