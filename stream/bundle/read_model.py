"""A model file -> Forest: its suffix names the library. Where it leaves a choice of trees, each choice is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stream.errors import ConfigurationError, ModelRefused
from stream.forest.libraries import LIBRARIES, ModelLibrary
from stream.forest.trees import Forest, TreesUsed

CHOICES: Final[tuple[TreesUsed, ...]] = ("best", "all")
_BY_SUFFIX: Final = {suffix: library for library in LIBRARIES.values() for suffix in library.suffixes}
MODEL_FILES: Final = {suffix: f"model{suffix}" for suffix in _BY_SUFFIX}  # by suffix, the model's name in a bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReadings:
    """A model file read with each choice of trees. `chosen` is None where the file leaves a choice that nobody made."""

    model: bytes
    chosen: Forest | None
    others: dict[TreesUsed, Forest] = field(default_factory=dict)

    @property
    def any_forest(self) -> Forest:
        """Any of them: names, words and objective are the same in all."""
        return self.chosen or next(iter(self.others.values()))


def read_choices(path: Path, *, trees: TreesUsed | None, missing: float | None, claimed: bool) -> ModelReadings:
    """Read a model file; where claims can decide between the choices of trees (`claimed`), with each of them.

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
        return ModelReadings(model=read["all"][1], chosen=None, others={choice: one[0] for choice, one in read.items()})
    others: dict[TreesUsed, Forest] = {}
    if claimed and trees is not None and library_of(path, str(path)).chooses_trees:
        other = CHOICES[1 - CHOICES.index(trees)]
        others = {other: read_model(path, trees=other, missing=missing)[0]}
    return ModelReadings(model=model, chosen=forest, others=others)


def read_model(path: Path, *, trees: TreesUsed | None, missing: float | None = None) -> tuple[Forest, bytes]:
    """The forest in a model file, and the file's content. `missing` is the number that XGBoost takes for missing.

    Raises: ModelRefused where the model cannot be reproduced, ConfigurationError where the file cannot be read or its
    library takes no such number.
    """
    name = f"model file {path}"
    library_of(path, name)
    content = read_file(path, name)
    return forest_in(content, path, trees=trees, missing=missing), content


def read_file(path: Path, name: str) -> bytes:
    """The content of an input file. Raises: ConfigurationError, calling the file `name`."""
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{name} cannot be read: {error.strerror or error}"
        raise ConfigurationError(message) from error


def forest_in(content: bytes, path: Path, *, trees: TreesUsed | None, missing: float | None = None) -> Forest:
    """The forest in the content of a model file; the suffix of `path` gives its form. Raises: as `read_model`."""
    library = library_of(path, f"model file {path}")
    if missing is not None and not library.takes_missing:
        message = (
            f"--missing {missing:g}: {library.title} knows no number that stands for missing; leave it out, and leave such cells "
            "of the pool empty where the model was trained on empty ones"
        )
        raise ConfigurationError(message)
    return library.read(content, str(path), trees=trees, missing=missing)


def library_of(path: Path, name: str) -> ModelLibrary:
    """The library that writes files of this suffix. Raises: ModelRefused, calling the file `name`, where none does."""
    library = _BY_SUFFIX.get(path.suffix.lower())
    if library is None:
        known = " and ".join(f"{', '.join(one.suffixes)} ({one.title})" for one in LIBRARIES.values())
        message = f"{name} is none of {known}; save it as one of these"
        raise ModelRefused(message)
    return library
