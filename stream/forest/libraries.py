"""The libraries whose models are reproduced: one record each for how its files are read and its margins linked.

What scores rows with the library itself, and what trains with it, is keyed alike in `bundle/gate/owner.py` and
`bundle/shadows/training.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from stream.errors import ModelRefused
from stream.forest.cutoffs import Link
from stream.forest.lightgbm.link import lightgbm_link
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest, Library, TreesUsed
from stream.forest.xgboost.link import xgboost_link
from stream.forest.xgboost.reader import read_xgboost


class ReadModel(Protocol):
    """Reader of one library's model files."""

    def __call__(self, content: bytes, name: str, *, trees: TreesUsed | None, missing: float | None) -> Forest:
        """Read the content of file `name`, whose suffix says in which form. Raises: ModelRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLibrary:
    """What the product needs to know of one library."""

    title: str
    suffixes: tuple[str, ...]  # of its model files, in lower case
    trained_suffix: str  # of the files that the build trains
    takes_missing: bool  # whether it can be given a number that stands for missing
    chooses_trees: bool  # whether its file may hold more trees than the best iteration uses
    read: ReadModel
    link: Callable[[Forest], Link]


def _read_xgboost(content: bytes, name: str, *, trees: TreesUsed | None, missing: float | None) -> Forest:
    return read_xgboost(content, ubj=name.lower().endswith(".ubj"), trees=trees, missing=missing)


def _read_lightgbm(content: bytes, name: str, *, trees: TreesUsed | None, missing: float | None) -> Forest:  # noqa: ARG001 - it takes none
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"LightGBM model refused: {name} is not text; give the file that save_model('model.txt') wrote"
        raise ModelRefused(message) from error
    return read_lightgbm(text, trees=trees)


LIBRARIES: Final[dict[Library, ModelLibrary]] = {
    "xgboost": ModelLibrary(
        title="XGBoost",
        suffixes=(".json", ".ubj"),
        trained_suffix=".ubj",
        takes_missing=True,
        chooses_trees=True,
        read=_read_xgboost,
        link=lambda forest: xgboost_link(forest.objective),
    ),
    "lightgbm": ModelLibrary(
        title="LightGBM",
        suffixes=(".txt",),
        trained_suffix=".txt",
        takes_missing=False,
        chooses_trees=False,
        read=_read_lightgbm,
        link=lambda forest: lightgbm_link(forest.link_line, forest.trees if forest.averages else 1),
    ),
}
