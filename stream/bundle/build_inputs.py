"""The files that a bundle is built from, read and checked against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from stream.bundle.advice.claims import ClaimColumn, trees_meant
from stream.bundle.alignment import check_names
from stream.bundle.manifest import FEATURES, POLICY
from stream.bundle.pool import Pool, read_pool
from stream.bundle.read_model import MODEL_FILES, read_choices, read_file
from stream.errors import ConfigurationError
from stream.forest.trees import Forest, TreesUsed
from stream.recourse.rules.features import FeatureRules, rules_for
from stream.recourse.rules.policy import Policy, read_policy

BuildProgress: TypeAlias = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPaths:
    """Paths of the input files."""

    model: Path
    pool: Path
    features: Path
    policy: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInputs:
    """Contents of the input files."""

    model: bytes
    forest: Forest
    trees: TreesUsed | None  # the choice, where the file left one
    trees_by_claims: bool  # whether claims made it
    other_trees: Mapping[TreesUsed, Forest]  # the same file with the trees that were not chosen
    rules: FeatureRules
    policy: Policy
    pool: Pool
    files: dict[str, bytes]  # their bytes, by their names in the bundle


def read_inputs(
    paths: InputPaths,
    target_column: str | None,
    claims: ClaimColumn | None,
    *,
    missing: float | None,
    trees: TreesUsed | None,
    progress: BuildProgress,
) -> BuildInputs:
    """Read all inputs of a build.

    Raises: ConfigurationError (ModelRefused among it) for files that cannot be read or do not fit each other,
    ClaimsDiffer where claims should decide which trees are meant, and do not.
    """
    progress("reading the model", 0, 1)
    readings = read_choices(paths.model, trees=trees, missing=missing, claimed=claims is not None)
    features = read_file(paths.features, str(paths.features))
    policy_file = b"" if paths.policy is None else read_file(paths.policy, str(paths.policy))
    features_toml = _text(features, paths.features)
    check_names(readings.any_forest.features, features_toml)
    rules = rules_for(readings.any_forest, features_toml)
    policy = read_policy(_text(policy_file, paths.policy))
    progress("reading the pool", 0, 1)
    claim_column = None if claims is None else claims.name
    pool = read_pool(paths.pool, rules, target_column=target_column, claim_column=claim_column, missing=missing)
    forest, chosen = readings.any_forest, trees
    if claims is not None and readings.chosen is None:
        chosen = trees_meant(readings.others, readings.model, pool, claims)
        forest = readings.others[chosen]
    return BuildInputs(
        model=readings.model,
        forest=forest,
        trees=chosen,
        trees_by_claims=readings.chosen is None,
        other_trees={trees: one for trees, one in readings.others.items() if trees != chosen},
        rules=rules,
        policy=policy,
        pool=pool,
        files={MODEL_FILES[paths.model.suffix.lower()]: readings.model, FEATURES: features, POLICY: policy_file},
    )


def check_missing(missing: float | None) -> None:
    """Refuse a number that cannot stand for missing. Raises: ConfigurationError."""
    if missing is not None and not math.isfinite(missing):
        message = (
            f"--missing {missing:g}: give the finite number that stands for missing; NaN and empty cells always do"
        )
        raise ConfigurationError(message)


def _text(content: bytes, path: Path | None) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text"
        raise ConfigurationError(message) from error
