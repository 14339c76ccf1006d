"""The shadow models of a bundle: trained or given at the build, checked against the model, and read again on opening.

They are stored as shadows/00, 01, ... in the order of their ring (`Shadows`), so the manifest only says how many of them
are searched for one applicant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from stream.bundle.advice.pool_rank import area_under_curve
from stream.bundle.alignment import some
from stream.bundle.build_inputs import BuildInputs, BuildProgress
from stream.bundle.gate.kept_probes import mismatch
from stream.bundle.gate.owner import first_difference, owner_of
from stream.bundle.manifest import SHADOWS, Manifest, ShadowsEntry
from stream.bundle.manifest_fields import SHADOWS_MAX
from stream.bundle.pool import Rows
from stream.bundle.read_model import forest_in, library_of, read_file, read_model
from stream.bundle.shadows.training import TrainParams, labels_of, read_train_params, train_shadow
from stream.errors import ConfigurationError, CorruptionError, ProbeMismatch, shown
from stream.forest.libraries import LIBRARIES
from stream.forest.link import check_predictions, link_of
from stream.forest.trees import CATEGORY, INSIDE, Forest
from stream.forest.walk import margins_of
from stream.recourse.rules.features import FeatureRules
from stream.recourse.search.shadows import NO_SHADOWS, Shadows

TRAIN: Final = "train.json"  # in a bundle whose shadows the build trained: its parameters
SHADOWS_BYTES_MAX: Final = 1 << 30  # of all of them; opening a bundle reads them all
COMPARED_ROWS_MAX: Final = 4_096  # of the pool, spread evenly over it
EVEN: Final = 0.5  # the area under the curve of a model that ranks nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRequest:
    """The requested shadows: `count` trained with `params` on the outcomes of `target_column`, given files, or none."""

    count: int = 0
    params: TrainParams | None = None
    target_column: str = ""
    given: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltShadows:
    """Model files by name in the bundle, and their entry in the manifest, None without any."""

    files: dict[str, bytes] = field(default_factory=dict)
    entry: ShadowsEntry | None = None


def shadow_request(
    count: int | None, train_params: Path | None, models: Sequence[Path], target_column: str | None
) -> ShadowRequest:
    """Check the flags against each other and read train.json. Raises: ConfigurationError."""
    if count is not None and models:
        _refuse("--shadows trains shadow models and --shadow-models takes given ones; say one of the two")
    if count is None and train_params is not None:
        _refuse("--train-params says how --shadows trains; say how many shadow models to train, or leave it out")
    if len(models) > SHADOWS_MAX:
        _refuse(f"--shadow-models names {len(models)} files; give {SHADOWS_MAX} at most")
    if count is None:
        return ShadowRequest(given=tuple(models))
    if not 1 <= count <= SHADOWS_MAX:
        _refuse(f"--shadows {count}: train 1 to {SHADOWS_MAX}")
    if train_params is None:
        _refuse(
            "--shadows needs --train-params: no model file holds all that it was trained with (an XGBoost file holds neither eta "
            "nor the depth), and models of other parameters tell nothing of the next one; docs/shadows.md shows the file"
        )
    if target_column is None:
        _refuse("--shadows needs --target-column, the pool's column that the model was trained to predict")
    return ShadowRequest(count=count, params=read_train_params(train_params), target_column=target_column)


def build_shadows(request: ShadowRequest, inputs: BuildInputs, cutoff: float, progress: BuildProgress) -> BuiltShadows:
    """Train or read the shadows, and check each against the model and its own library. `cutoff` is the model's.

    Raises: ConfigurationError (ModelRefused among it) that names the shadow and why it does not fit, ProbeMismatch
    where its library computes anything else than we do.
    """
    params = request.params
    if params is None and not request.given:
        return BuiltShadows()
    files: dict[str, bytes] = {}
    forests: list[Forest] = []
    read = _given(request.given, inputs, progress) if params is None else _trained(request, params, inputs, progress)
    for shadow in read:
        _compare(shadow, inputs)
        _check_side(shadow, inputs, cutoff)
        files[f"{SHADOWS}/{len(forests):02d}{shadow.suffix}"] = shadow.content
        forests.append(shadow.forest)
        if sum(map(len, files.values())) > SHADOWS_BYTES_MAX:
            _refuse(f"the shadow models have more than {SHADOWS_BYTES_MAX} bytes in all; give fewer or smaller ones")
    shadows = Shadows(forests=tuple(forests))
    entry: ShadowsEntry = {
        "trained": params is not None,
        "searched": shadows.searched,
        "held_out": shadows.held_out,
        "forests_sha256": [forest.digest for forest in forests],
    }
    return BuiltShadows(files=files if params is None else files | {TRAIN: params.content}, entry=entry)


def stored_shadows(folder: Path, manifest: Manifest, forest: Forest, rules: FeatureRules) -> Shadows:
    """The shadows of the bundle in `folder`, whose model is `forest`.

    Raises: CorruptionError where the files are not those of the manifest, MachineMismatch where this machine
    reads another forest out of one than the builder's.
    """
    entry = manifest["shadows"]
    paths = sorted(path for path in manifest["files"] if path.startswith(f"{SHADOWS}/"))
    due = [] if entry is None else [f"{SHADOWS}/{number:02d}" for number in range(len(entry["forests_sha256"]))]
    if [path.rpartition(".")[0] for path in paths] != due:
        message = f"the manifest of {folder} names other files under {SHADOWS}/ than it counts; build the bundle again"
        raise CorruptionError(message)
    if entry is None:
        return NO_SHADOWS
    forests = []
    for path, digest in zip(paths, entry["forests_sha256"], strict=True):
        read, _ = read_model(folder / path, trees=manifest["trees"], missing=manifest["missing"])
        why = _incompatibility(read, forest, rules, trained=entry["trained"])
        if why is not None:
            message = f"{folder / path} is no shadow of the bundle's model: {why}; build or fetch the bundle again"
            raise CorruptionError(message)
        forests.append(_aligned(read, forest))
        if forests[-1].digest != digest:  # though its bytes are the ones that were built
            built_with = manifest["probes"]["library_version"]
            raise mismatch(forest, f"reads another forest out of {path} than", str(folder), built_with)
    shadows = Shadows(forests=tuple(forests))
    if (entry["searched"], entry["held_out"]) != (shadows.searched, shadows.held_out):
        message = (
            f"the manifest of {folder} says that {entry['searched']} shadows are searched and {entry['held_out']} held out, but of "
            f"{len(forests)} they are {shadows.searched} and {shadows.held_out}; build the bundle again"
        )
        raise CorruptionError(message)
    return shadows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shadow:
    """A shadow whose features are in the model's order. `name` is for messages."""

    name: str
    suffix: str
    content: bytes
    as_saved: Forest
    forest: Forest
    remedy: str  # where it ranks people in reverse


def _trained(
    request: ShadowRequest, params: TrainParams, inputs: BuildInputs, progress: BuildProgress
) -> Iterator[_Shadow]:
    forest, column = inputs.forest, request.target_column
    labels = labels_of(forest, inputs.pool, column)
    suffix = LIBRARIES[forest.library].trained_suffix
    name = f"a shadow model trained as --train-params {params.path} says"
    remedy = (
        f"name the --target-column that the model was trained to predict; {shown(column)!r} looks like its opposite"
    )
    for number in range(request.count):
        progress("training shadows", number, request.count)
        content = train_shadow(forest, inputs.pool.rows, labels, params, number)
        yield _read(name, content, Path(f"{number:02d}{suffix}"), inputs, trained=True, remedy=remedy)
    progress("training shadows", request.count, request.count)


def _given(paths: Sequence[Path], inputs: BuildInputs, progress: BuildProgress) -> Iterator[_Shadow]:
    known = {inputs.forest.digest: "the model itself"}
    for number, path in enumerate(paths):
        progress("reading shadows", number, len(paths))
        name = f"--shadow-models {path}"
        content = read_file(path, name)
        remedy = "give models that predict the same outcome"
        shadow = _read(name, content, path, inputs, trained=False, remedy=remedy)
        if (same := known.get(shadow.forest.digest)) is not None:
            _refuse(f"{name} holds the same trees as {same}, and would tell nothing more; give each model once")
        known[shadow.forest.digest] = str(path)
        yield shadow
    progress("reading shadows", len(paths), len(paths))


def _read(name: str, content: bytes, path: Path, inputs: BuildInputs, *, trained: bool, remedy: str) -> _Shadow:
    library_of(path, name)
    try:
        # The choice of trees that the model's file left applies to its shadows too.
        read = forest_in(content, path, trees=inputs.trees, missing=inputs.forest.missing)
        check_predictions(read, link_of(read))
    except ConfigurationError as error:
        message = f"{name}: {error}"
        raise type(error)(message) from error
    why = _incompatibility(read, inputs.forest, inputs.rules, trained=trained)
    if why is not None:
        _refuse(f"{name} is no shadow of the model: {why}")
    suffix, forest = path.suffix.lower(), _aligned(read, inputs.forest)
    return _Shadow(name=name, suffix=suffix, content=content, as_saved=read, forest=forest, remedy=remedy)


def _incompatibility(shadow: Forest, forest: Forest, rules: FeatureRules, *, trained: bool) -> str | None:
    """Why a shadow cannot take the rows, the codes or the cutoff of `forest`, in whatever order its features are; None where it can.

    `trained`: whether the build trained it, and so on the codes of `forest`.
    """
    if shadow.library != forest.library:
        return f"it is of {shadow.library}, and the model of {forest.library}"
    absent, spare = set(forest.features) - set(shadow.features), set(shadow.features) - set(forest.features)
    if absent or spare:
        sides = (("lacks", absent), ("has besides", spare))
        differences = " and ".join(f"{what} {some(sorted(names))}" for what, names in sides if names)
        return f"of the model's features it {differences}"
    if _link(shadow) != _link(forest):
        return (
            f"it predicts by {_link(shadow)} and the model by {_link(forest)}, so that one cutoff does not serve both"
        )
    return _other_categories(shadow, forest, rules, trained=trained)


def _aligned(shadow: Forest, forest: Forest) -> Forest:
    """The shadow with its features in the order of `forest`, which has the same ones."""
    if shadow.features == forest.features:
        return shadow
    column = np.array([*(forest.features.index(name) for name in shadow.features), INSIDE], np.int32)  # of -1: the last
    sources = [shadow.features.index(name) for name in forest.features]
    return dataclasses.replace(
        shadow,
        features=forest.features,
        is_category=tuple(shadow.is_category[j] for j in sources),
        words=tuple(shadow.words[j] for j in sources),
        split_feature=column[shadow.split_feature],
    )


def _link(forest: Forest) -> str:
    line = (
        forest.link_line if forest.objective in forest.link_line else f"{forest.objective} {forest.link_line}".strip()
    )
    return f"{shown(line)!r}{f' over the mean of {forest.trees} trees' if forest.averages else ''}"


def _other_categories(shadow: Forest, forest: Forest, rules: FeatureRules, *, trained: bool) -> str | None:
    for node in np.flatnonzero(shadow.split_feature != INSIDE).tolist():
        name = shadow.features[shadow.split_feature[node]]
        if (shadow.kind[node] == CATEGORY) != forest.is_category[forest.features.index(name)]:
            return f"one of the two takes {shown(name)!r} for a category and the other for a number"
    for j, name in enumerate(forest.features):
        theirs = shadow.words[shadow.features.index(name)]
        if theirs is None and trained:
            continue
        ours = forest.words[j] if theirs is None else rules.rules[j].categories
        if theirs != ours:
            return f"its file does not tell the same categories of {shown(name)!r} in the same order, so its codes may mean others"
    return None


def _compare(shadow: _Shadow, inputs: BuildInputs) -> None:
    """Raise ProbeMismatch where the library's margins of the shadow are not ours, bit for bit, on rows of the pool."""
    indices = np.unique(np.linspace(0, len(inputs.pool.rows) - 1, COMPARED_ROWS_MAX).astype(np.int64))
    rows: Rows = inputs.pool.rows[indices]
    order = [inputs.forest.features.index(name) for name in shadow.as_saved.features]
    theirs = owner_of(shadow.as_saved, shadow.content).predict(np.ascontiguousarray(rows[:, order])).margins
    ours = margins_of(shadow.forest, rows)
    if (wrong := first_difference(ours, theirs)) is None:
        return
    message = (
        f"{shadow.name} is refused: on row {indices[wrong]} of the pool (from 0) its margin is {ours[wrong]!s} here and "
        f"{theirs[wrong]!s} there; what {shadow.forest.library} computes is not reproduced exactly, so please report the model file"
    )
    raise ProbeMismatch(message)


def _check_side(shadow: _Shadow, inputs: BuildInputs, cutoff: float) -> None:
    """Refuse a shadow that ranks those whom the model accepts below those whom it declines: it learnt the opposite outcome."""
    sign = inputs.policy.sign
    accepted = sign * margins_of(inputs.forest, inputs.pool.rows) >= sign * cutoff
    area = area_under_curve(sign * margins_of(shadow.forest, inputs.pool.rows), accepted)
    if area < EVEN:  # not so where it is NaN, as the model declines nobody
        _refuse(
            f"{shadow.name} ranks those whom the model accepts below those whom it declines (AUC {area:.3f}); {shadow.remedy}"
        )


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message)
