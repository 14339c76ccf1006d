"""What a build reports besides the bundle: what was proven, what looks forgotten, what looks wrong. It refuses nothing."""

from __future__ import annotations

from dataclasses import dataclass

from stream.bundle.advice.claims import ClaimReport
from stream.bundle.advice.pool_rank import PoolRank, rank_pool
from stream.bundle.advice.undeclared import Undeclared, find_undeclared
from stream.bundle.advice.untrue_ratios import UntrueRatio, untrue_ratios
from stream.bundle.build_inputs import BuildInputs
from stream.forest.walk import margins_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildAdvice:
    """Findings on the model and its pool."""

    ignored_columns: tuple[str, ...]
    unlabelled: tuple[str, ...]  # features that a letter would call by their column's name
    unproven_words: tuple[
        str, ...
    ]  # features whose words only features.toml gives, with no claims to prove their order
    rank: PoolRank | None  # of the pool's target column, where one was named
    claims: ClaimReport | None
    trees_by_claims: bool  # whether claims decided which trees were meant
    undeclared: Undeclared  # nothing where claims are equal
    untrue_ratios: tuple[UntrueRatio, ...]  # of features.toml, where the pool has other values than their parts give


def advise(inputs: BuildInputs, claims: ClaimReport | None, target_column: str | None) -> BuildAdvice:
    """Look through the inputs of a build; `claims` are those that were found equal, None without any."""
    forest, pool, rules = inputs.forest, inputs.pool, inputs.rules
    rank = None
    if target_column is not None:
        rank = rank_pool(target_column, pool.target, margins_of(forest, pool.rows), inputs.policy.approve)
    words = zip(rules.rules, forest.words, strict=True)
    unproven = [rule.name for rule, in_file in words if rule.categories is not None and in_file is None]
    return BuildAdvice(
        ignored_columns=pool.ignored,
        unlabelled=tuple(rule.name for rule in rules.rules if rule.label == rule.name),
        unproven_words=tuple(unproven) if claims is None else (),
        rank=rank,
        claims=claims,
        trees_by_claims=inputs.trees_by_claims,
        undeclared=find_undeclared(forest, inputs.model, pool, rules) if claims is None else Undeclared(),
        untrue_ratios=untrue_ratios(pool.rows, rules),
    )
