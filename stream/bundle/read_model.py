"""A model file of either library -> Forest, told apart by its suffix."""

from __future__ import annotations

from pathlib import Path

from stream.bundle.manifest import MODEL_FILES
from stream.errors import ConfigurationError, ModelRefused
from stream.forest.from_lightgbm import read_lightgbm
from stream.forest.from_xgboost import read_xgboost
from stream.forest.trees import Forest, TreesUsed


def read_model(path: Path, *, trees: TreesUsed | None) -> tuple[Forest, bytes]:
    """The forest in a model file, and the file's content.

    Raises: ModelRefused where it holds what we cannot reproduce, ConfigurationError where it cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix not in MODEL_FILES:
        message = f"model file {path} is none of .json, .ubj (XGBoost) and .txt (LightGBM); save it as one of these"
        raise ModelRefused(message)
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"model file {path} cannot be read: {error.strerror or error}"
        raise ConfigurationError(message) from error
    if suffix != ".txt":
        return read_xgboost(content, ubj=suffix == ".ubj", trees=trees), content
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"LightGBM model refused: {path} is not text; give the file that save_model('model.txt') wrote"
        raise ModelRefused(message) from error
    return read_lightgbm(text, trees=trees), content
