"""A model file of either library -> Forest, told apart by its suffix, and read in each way that its trees may be meant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stream.bundle.manifest import MODEL_FILES
from stream.errors import ConfigurationError, ModelRefused
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest, TreesUsed
from stream.forest.xgboost.reader import read_xgboost

CHOICES: tuple[TreesUsed, ...] = ("best", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """A model file as it may be meant. `chosen` is None where the file leaves a choice that nobody made."""

    model: bytes
    chosen: Forest | None
    others: dict[TreesUsed, Forest] = field(default_factory=dict)

    @property
    def any_forest(self) -> Forest:
        """One of them: names, words and objective are the same in all."""
        return self.chosen or next(iter(self.others.values()))

    def other_than(self, trees: TreesUsed | None) -> dict[TreesUsed, Forest]:
        """What was read with the trees that are not used."""
        return {choice: forest for choice, forest in self.others.items() if choice != trees}


def read_every_way(path: Path, *, trees: TreesUsed | None, missing: float | None, claimed: bool) -> Readings:
    """Read a model file; where `claimed`, which is when claims can tell, with the other choice of trees as well.

    Raises: as `read_model` does; without claims, also where the file leaves a choice that nobody made.
    """
    try:
        forest, model = read_model(path, trees=trees, missing=missing)
    except ModelRefused as refusal:
        if trees is not None or not claimed:
            raise
        try:
            read = {choice: read_model(path, trees=choice, missing=missing) for choice in CHOICES}
        except ModelRefused:
            raise refusal from None  # it was not about the trees
        return Readings(model=read["all"][1], chosen=None, others={choice: one[0] for choice, one in read.items()})
    others: dict[TreesUsed, Forest] = {}
    if claimed and trees is not None and path.suffix.lower() != ".txt":  # a LightGBM file holds no other choice
        other = CHOICES[1 - CHOICES.index(trees)]
        others = {other: read_model(path, trees=other, missing=missing)[0]}
    return Readings(model=model, chosen=forest, others=others)


def read_model(path: Path, *, trees: TreesUsed | None, missing: float | None = None) -> tuple[Forest, bytes]:
    """The forest in a model file, and the file's content. `missing` is the number that XGBoost is told to take for none.

    Raises: ModelRefused where it holds what we cannot reproduce, ConfigurationError where it cannot be read or where
    its library knows no such number.
    """
    if path.suffix.lower() not in MODEL_FILES:
        message = f"model file {path} is none of .json, .ubj (XGBoost) and .txt (LightGBM); save it as one of these"
        raise ModelRefused(message)
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"model file {path} cannot be read: {error.strerror or error}"
        raise ConfigurationError(message) from error
    return forest_in(content, path, trees=trees, missing=missing), content


def forest_in(content: bytes, path: Path, *, trees: TreesUsed | None, missing: float | None = None) -> Forest:
    """The forest in the content of a model file; `path` gives its form by its suffix. Raises: as `read_model`."""
    suffix = path.suffix.lower()
    if suffix != ".txt":
        return read_xgboost(content, ubj=suffix == ".ubj", trees=trees, missing=missing)
    if missing is not None:
        message = (
            f"--missing {missing:g}: LightGBM knows no number that stands for missing; leave it out, and leave such cells "
            "of the pool empty where the model was trained on empty ones"
        )
        raise ConfigurationError(message)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"LightGBM model refused: {path} is not text; give the file that save_model('model.txt') wrote"
        raise ModelRefused(message) from error
    return read_lightgbm(text, trees=trees)
