"""How much of the evaluation is run. The full size is the one whose report is kept; smoke shows within minutes that all works."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from stream.forest.trees import Library

LIBRARIES: Final[tuple[Library, ...]] = ("xgboost", "lightgbm")
LABELLED: Final = ("heloc", "taiwan_default", "adult")  # those with mutability labels; of Polish companies all may move
DATASETS: Final = (*LABELLED, "polish_1year", "polish_2year")
FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is run, and how often."""

    name: str
    # The bars: the judge's own split.
    bar_datasets: tuple[str, ...] = LABELLED
    bar_libraries: tuple[Library, ...] = LIBRARIES
    bar_seeds: int = 5
    bar_queries: int = 200
    bar_surplus_seeds: int = 2  # seeds on which treecf is also asked for targets that last
    bar_exact_seeds: int = 1  # seeds on which its exact mode runs too, which takes half a second a query
    bar_swept_seeds: int = 1  # seeds on which ours answers under other settings too
    bar_swept_queries: int = 60
    # The paper's protocol: cross-validation, repeated; the main setting is XGBoost, 300 trees of depth 4.
    datasets: tuple[str, ...] = DATASETS
    repeats: int = 4
    splits_max: int = 4 * FOLDS
    queries: int = 25
    trees: int = 300
    depth: int = 4
    # Other libraries, depths and numbers of trees, on the first splits of the same cross-validation.
    other_datasets: tuple[str, ...] = DATASETS
    other_depths: tuple[int, ...] = (4, 6, 8)
    other_trees: tuple[int, ...] = (300, 800)
    other_splits: int = 1
    other_queries: int = 20
    other_retrained: int = 3
    other_shadows: int = 5
    # Of the main setting and the bars.
    retrained: int = 5  # unseen models on bootstraps, which say whether a target lasts
    shadows: int = 10

    def said(self) -> dict[str, Any]:
        """All of it as JSON says it."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}


FULL: Final = Size(name="full")
SMOKE: Final = Size(
    name="smoke",
    bar_datasets=("heloc", "adult"),
    bar_libraries=("xgboost",),
    bar_seeds=2,
    bar_surplus_seeds=1,
    bar_swept_queries=5,
    bar_queries=20,
    datasets=("heloc", "adult", "polish_1year"),
    repeats=1,
    splits_max=3,
    queries=8,
    trees=60,
    other_datasets=("heloc",),
    other_depths=(4, 6),
    other_trees=(60,),
    other_splits=1,
    other_queries=8,
    other_retrained=2,
    other_shadows=2,
    retrained=2,
    shadows=4,
)
SMALL: Final = replace(
    FULL, name="small", bar_seeds=1, repeats=1, splits_max=2, queries=25, other_datasets=LABELLED, other_depths=(4, 8)
)
SIZES: Final = {size.name: size for size in (FULL, SMALL, SMOKE)}
