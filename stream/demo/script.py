"""Which data the demo plays: German credit, or the user's own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stream.demo import german_credit
from stream.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The data with its features.toml, how it is decided about, and the folder that the run's files go to."""

    title: str
    data: Path
    features_toml: str
    target: str
    favourable: str
    leave_out: Collection[str]
    model_id: str
    threshold: float
    per_second: float
    folder: Path


def german_credit_script(folder: Path, *, threshold: float, per_second: float, cache: Path) -> Script:
    """The German credit data, downloaded the first time. Raises: IndexUnavailable, CorruptionError."""
    return Script(
        title="German credit (UCI 144), 1,000 loans with their outcomes",
        data=german_credit.german_credit_csv(cache),
        features_toml=german_credit.features_toml(),
        target=german_credit.TARGET,
        favourable=german_credit.FAVOURABLE,
        leave_out=german_credit.NOT_IN_THE_MODEL,
        model_id="german-credit",
        threshold=threshold,
        per_second=per_second,
        folder=folder,
    )


def own_script(
    folder: Path,
    *,
    data: Path,
    features: Path | None,
    target: str | None,
    favourable: str,
    leave_out: Collection[str],
    threshold: float,
    per_second: float,
) -> Script:
    """The user's own data.

    Raises: ConfigurationError that names the flag that is missing or the file that cannot be read.
    """
    if features is None or target is None:
        message = "--data also needs --features (a features.toml with a table per column) and --target-column"
        raise ConfigurationError(message)
    try:
        features_toml = features.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"--features {features} cannot be read: {error}"
        raise ConfigurationError(message) from error
    return Script(
        title=str(data),
        data=data,
        features_toml=features_toml,
        target=target,
        favourable=favourable,
        leave_out=leave_out,
        model_id="demo",
        threshold=threshold,
        per_second=per_second,
        folder=folder,
    )
