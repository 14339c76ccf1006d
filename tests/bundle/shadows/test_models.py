"""Shadow models from the build to the opened bundle, through the cache as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.bundle.fetch import fetch_bundle
from stream.bundle.gate.owner import OwnerPredictions, owner_of
from stream.bundle.manifest import MANIFEST, digest_of_file
from stream.bundle.open import open_bundle
from stream.bundle.shadows import models as shadow_models
from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.errors import ConfigurationError, CorruptionError, MachineMismatch, ModelRefused, ProbeMismatch
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.models import bundle_cache
from stream.recourse.search.shadows import NO_SHADOWS, Shadows
from stream.runtime.clients import redis_client
from tests.bundle.inputs import content_of
from tests.bundle.kinds import CITIES, DART, NAMES, Made, lightgbm, stopped, table, target, xgboost
from tests.bundle.shadows.shadow_inputs import ShadowInputs, shadow_inputs

RF: dict[str, Any] = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}
KINDS: dict[str, tuple[Callable[..., Made], dict[str, Any], dict[str, Any]]] = {
    "xgboost": (xgboost, {}, {}),
    "xgboost sentinel": (xgboost, {"missing": -999.0, "flags": {"missing": -999.0}}, {}),
    "xgboost codes": (xgboost, {"categories": "codes"}, {"max_cat_to_onehot": 1}),
    "xgboost words": (xgboost, {"categories": "words"}, {"max_cat_to_onehot": 1}),
    "xgboost dart": (xgboost, {}, DART),
    "lightgbm": (lightgbm, {}, {}),
    "lightgbm codes": (lightgbm, {"categories": "codes"}, {}),
    "lightgbm words": (lightgbm, {"categories": "words"}, {}),
    "lightgbm rf": (lightgbm, {}, RF),
}


def made_of(kind: str, folder: Path) -> ShadowInputs:
    make, how, params = KINDS[kind]
    return shadow_inputs(folder, make(**how, **params), **params)


@pytest.fixture
def plain(tmp_path: Path) -> ShadowInputs:
    return made_of("xgboost", tmp_path / "inputs")


@pytest.mark.parametrize("kind", KINDS)
def test_a_shadow_is_what_the_library_trains_on_its_bootstrap(tmp_path: Path, kind: str) -> None:
    """Given a model of any kind and its train.json, each shadow of the opened bundle gives the bits of a model that was trained by hand on the same bootstrap, with the same categories and the same missing values."""
    given = made_of(kind, tmp_path)
    built = given.train(2)
    model = open_bundle(built.folder)
    one, other = model.shadows.forests
    for number, shadow in enumerate((one, other)):
        booster, pool = given.retrained(number), given.coded()
        assert margins_of(shadow, pool).tobytes() == given.margins(booster).tobytes()
        assert margins_of(shadow, pool).tobytes() != margins_of(model.forest, pool).tobytes()
    assert one.digest != other.digest


@pytest.mark.parametrize("kind", ["xgboost words", "lightgbm words"])
def test_the_same_inputs_train_the_same_shadows(tmp_path: Path, kind: str) -> None:
    """Given the same inputs in two folders, the two bundles are equal byte for byte, and one of more shadows begins with the same ones."""
    here, there = made_of(kind, tmp_path / "here"), made_of(kind, tmp_path / "there")
    one, other, more = here.train(2), there.train(2), here.train(3, "more")
    assert one.bundle_sha256 == other.bundle_sha256
    assert content_of(one.folder) == content_of(other.folder)
    two, three = (content_of(built.folder) for built in (one, more))
    shadows = sorted(path for path in two if path.startswith("shadows/"))
    assert len(shadows) == 2
    assert all(two[path] == three[path] for path in shadows)


@pytest.mark.parametrize(
    ("count", "searched"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (10, 7), (35, 24), (64, 44)]
)
def test_seven_of_ten_are_searched(count: int, searched: int) -> None:
    """Given some shadows, 70 % of them, rounded down, are searched for an applicant and all others held out; a single one is held out."""
    forests: Any = tuple(object() for _ in range(count))
    shadows = Shadows(forests=forests)
    assert (shadows.searched, shadows.held_out) == (searched, count - searched)
    assert sorted(shadows.ring(np.array([1.0, np.nan]))) == list(range(count))


def test_every_shadow_is_held_out_for_its_share_of_applicants() -> None:
    """Given ten shadows and many applicants, each is searched for about seven of ten of them, in the order of the ring; equal rows, however zero and NaN are spelled, have equal rings."""
    forests: Any = tuple(range(10))
    shadows, rng = Shadows(forests=forests), np.random.default_rng(6)
    rows = np.round(rng.normal(0, 3, (2_000, 4)), 1)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    counted = np.zeros(10, np.int64)
    for row in rows:
        ring = shadows.ring(row)
        assert [k - ring[0] for k in ring] == [k if k + ring[0] < 10 else k - 10 for k in range(10)]
        counted[ring[: shadows.searched]] += 1
        spelled = np.where(row == 0.0, -0.0, row)
        spelled[np.isnan(row)] = -np.nan
        assert shadows.ring(spelled) == ring
    assert (np.abs(counted - 1_400) < 100).all()  # five deviations of a binomial are 102


def test_the_manifest_tells_of_the_shadows(plain: ShadowInputs) -> None:
    """Given trained shadows, the manifest counts them and holds a digest of each file and forest; train.json is kept as it was given."""
    built = plain.train(5)
    entry = built.manifest["shadows"]
    assert entry is not None
    assert (entry["trained"], entry["searched"], entry["held_out"]) == (True, 3, 2)
    assert len(set(entry["forests_sha256"])) == 5
    assert {f"shadows/0{i}.ubj" for i in range(5)} < built.manifest["files"].keys()
    assert (built.folder / "train.json").read_bytes() == (plain.folder / "train.json").read_bytes()


def test_a_bundle_without_shadows_has_none(plain: ShadowInputs) -> None:
    """Given no flag of shadows, the bundle holds none, and says so."""
    built = plain.build()
    assert built.manifest["shadows"] is None
    assert open_bundle(built.folder).shadows is NO_SHADOWS


def saved(given: ShadowInputs, name: str, booster: Any) -> Path:
    path = given.folder / name
    booster.save_model(path)
    return path


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_given_models_keep_their_order(tmp_path: Path, kind: str) -> None:
    """Given three model files, they stand in the ring in the order in which they were given, byte for byte; two are searched for an applicant."""
    given = made_of(kind, tmp_path)
    paths = [saved(given, f"v{i}{given.made.suffix}", given.retrained(i)) for i in (5, 3, 4)]
    built = given.build(shadow_model_paths=paths)
    shadows = open_bundle(built.folder).shadows
    for shadow, number in zip(shadows.forests, (5, 3, 4), strict=True):
        assert margins_of(shadow, given.coded()).tobytes() == given.margins(given.retrained(number)).tobytes()
    assert (shadows.searched, shadows.held_out) == (2, 1)
    for i, path in enumerate(paths):
        assert (built.folder / "shadows" / f"0{i}{path.suffix}").read_bytes() == path.read_bytes()
    assert built.manifest["shadows"] is not None
    assert not built.manifest["shadows"]["trained"]
    assert "train.json" not in built.manifest["files"]


def test_a_given_model_with_its_features_in_another_order_is_aligned(plain: ShadowInputs) -> None:
    """Given an earlier version that was trained with the columns in another order, the opened shadow takes the model's rows and gives the bits that its library gives for the reordered ones."""
    order = [2, 0, 1]
    names = [NAMES[j] for j in order]
    rows = plain.coded()
    matrix = xgb.DMatrix(rows[:, order], target(), feature_names=names, nthread=1)
    booster = xgb.train({"objective": "binary:logistic", "max_depth": 2, "nthread": 1}, matrix, 7)
    built = plain.build(shadow_model_paths=[saved(plain, "before.ubj", booster)])
    (shadow,) = open_bundle(built.folder).shadows.forests
    assert shadow.features == NAMES
    assert margins_of(shadow, rows).tobytes() == booster.predict(matrix, output_margin=True).tobytes()
    assert plain.made.pool[names[0]].equals(table()[names[0]])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "words" in kind or "codes" in kind])
def test_a_given_model_with_the_same_categories_is_taken(tmp_path: Path, kind: str) -> None:
    """Given an earlier version that was trained on the same words, or on codes as the model was, its margins of the model's rows are its library's."""
    make, how, params = KINDS[kind]
    given, earlier = made_of(kind, tmp_path), make(**how, **params, learns="accepted", min_child_weight=3)
    path = other_model(given, earlier.content, earlier.suffix)
    (shadow,) = open_bundle(given.build(shadow_model_paths=[path]).folder).shadows.forests
    theirs = owner_of(shadow, earlier.content).predict(given.coded()).margins
    assert margins_of(shadow, given.coded()).tobytes() == theirs.tobytes()
    assert len(np.unique(theirs)) > 2


@pytest.mark.parametrize("trees", ["best", "all"])
def test_the_choice_of_trees_holds_for_shadows_too(tmp_path: Path, trees: Any) -> None:
    """Given early-stopped files and --trees, a shadow has the trees that the choice means; without a choice its file is named."""
    given = shadow_inputs(tmp_path, xgboost())
    earlier = stopped(trees=trees, max_depth=2)
    path = other_model(given, earlier.content)
    (shadow,) = open_bundle(given.build(shadow_model_paths=[path], trees=trees).folder).shadows.forests
    assert shadow.trees == {"best": 2, "all": 4}[trees]
    with pytest.raises(ModelRefused, match=r"--shadow-models .*before\.json: .*say --trees best"):
        given.build("other", shadow_model_paths=[path])


def test_a_model_that_approves_below_has_shadows_too(plain: ShadowInputs) -> None:
    """Given a policy that approves below, shadows that rank as the model does are taken, and one of the opposite is refused."""
    policy = plain.folder / "policy.toml"
    policy.write_text('approve = "below"\n')
    assert plain.train(2, policy_path=policy).manifest["shadows"] is not None
    opposite = other_model(plain, xgboost(1 - target()).content)
    with pytest.raises(ConfigurationError, match="ranks those whom the model accepts below"):
        plain.build("other", policy_path=policy, shadow_model_paths=[opposite])


def other_model(given: ShadowInputs, content: bytes, suffix: str = ".json") -> Path:
    path = given.folder / f"before{suffix}"
    path.write_bytes(content)
    return path


UNFIT: dict[str, tuple[str, Callable[[], Made], str]] = {
    "library": ("xgboost", lightgbm, "it is of lightgbm, and the model of xgboost"),
    "objective": ("xgboost", lambda: xgboost(objective="binary:logitraw"), "'binary:logitraw' and the model by 'binary:logistic'"),
    "sigmoid": ("lightgbm", lambda: lightgbm(sigmoid=0.5), "'binary sigmoid:0.5' and the model by 'binary sigmoid:1'"),
    "mean of more trees": ("lightgbm", lambda: lightgbm(**RF), "over the mean of 4 trees and the model by"),
    "a number for a category": ("xgboost codes", xgboost, "takes 'city' for a category and the other for a number"),
    "a category for a number": ("lightgbm", lambda: lightgbm(categories="codes"), "takes 'city' for a category and the other"),
    "words in another order": (
        "xgboost words", lambda: xgboost(categories="words", cities=CITIES[::-1]), "the same categories of 'city'",
    ),
    "no words": ("lightgbm words", lambda: lightgbm(categories="codes"), "the same categories of 'city'"),
    "no model": ("xgboost", lambda: Made(suffix=".json", content=b"{}", pool=table()), "XGBoost model refused"),
    "no suffix of one": ("xgboost", lambda: Made(suffix=".bin", content=b"{}", pool=table()), r"none of \.json"),
    "more than one class": (
        "xgboost", lambda: xgboost("class", objective="multi:softprob", num_class=3), "it has 3 classes",
    ),
    "the opposite": ("xgboost", lambda: xgboost(1 - target()), "give models that predict the same outcome"),
    "the model itself": ("xgboost", xgboost, "the same trees as the model itself"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_a_model_that_is_no_shadow_is_refused_by_name(tmp_path: Path, what: str) -> None:
    """Given a file of another kind than the model, or the model itself, the build says which file it is and why it is refused, and leaves nothing."""
    kind, make, why = UNFIT[what]
    given, made = made_of(kind, tmp_path), make()
    path = other_model(given, made.content, made.suffix)
    with pytest.raises(ConfigurationError, match=why) as refused:
        given.build(shadow_model_paths=[path])
    assert str(refused.value).startswith(f"--shadow-models {path}")
    assert isinstance(refused.value, ModelRefused) == (what in ("no model", "no suffix of one", "more than one class"))
    assert not (given.folder / "bundle").exists()


def test_other_features_are_told_side_by_side(plain: ShadowInputs) -> None:
    """Given a file with another feature in place of one, the message names what it lacks and what it has besides."""
    matrix = xgb.DMatrix(plain.coded(), target(), feature_names=["income", "debt", "town"], nthread=1)
    booster = xgb.train({"objective": "binary:logistic", "nthread": 1}, matrix, 1)
    with pytest.raises(ConfigurationError, match="it lacks 'city' and has besides 'town'"):
        plain.build(shadow_model_paths=[saved(plain, "before.json", booster)])


def test_a_file_that_is_given_twice_or_is_not_there_is_refused(plain: ShadowInputs) -> None:
    """Given one model under two names, or a path without a file, the build refuses the second name, or the path."""
    one, other = (saved(plain, f"v{i}.ubj", plain.retrained(0)) for i in range(2))
    with pytest.raises(ConfigurationError, match=r"v1\.ubj holds the same trees as .*v0\.ubj"):
        plain.build(shadow_model_paths=[one, other])
    with pytest.raises(ConfigurationError, match=r"absent\.json cannot be read: No such file"):
        plain.build(shadow_model_paths=[plain.folder / "absent.json"])


def test_one_bit_off_the_library_refuses_a_shadow(plain: ShadowInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a library whose margin of one row of the pool is one bit off ours, the build refuses the shadow and names the row."""

    def wrong(forest: Forest, model: bytes) -> Any:
        class Off:
            def predict(self, rows: Any) -> OwnerPredictions:
                answers = owner_of(forest, model).predict(rows)
                answers.margins[7] = np.nextafter(answers.margins[7], np.float32(np.inf))
                return answers

        return Off()

    monkeypatch.setattr(shadow_models, "owner_of", wrong)
    with pytest.raises(ProbeMismatch, match=r"a shadow model trained as .*: on row 7 of the pool"):
        plain.train(1)


def test_shadows_have_a_largest_size(plain: ShadowInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given shadow files that are larger in all than the bound, the build refuses them; a byte less is taken."""
    paths = [saved(plain, f"v{i}.ubj", plain.retrained(i)) for i in range(2)]
    in_all = sum(path.stat().st_size for path in paths)
    monkeypatch.setattr(shadow_models, "SHADOWS_BYTES_MAX", in_all - 1)
    with pytest.raises(ConfigurationError, match=f"more than {in_all - 1} bytes in all"):
        plain.build(shadow_model_paths=paths)
    monkeypatch.setattr(shadow_models, "SHADOWS_BYTES_MAX", in_all)
    assert plain.build(shadow_model_paths=paths).manifest["shadows"] is not None


def rewritten(folder: Path, change: Callable[[Any], None]) -> None:
    """Change the manifest on disk, and mend the digests of the files that it names."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    for path in manifest["files"]:
        manifest["files"][path] = digest_of_file(folder / path)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def swap(folder: Path, _manifest: Any) -> None:
    one, other = (folder / "shadows" / f"0{i}.ubj" for i in (0, 1))
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def put_another(folder: Path, _manifest: Any) -> None:
    (folder / "shadows" / "00.ubj").write_bytes(xgboost(suffix=".ubj", objective="binary:logitraw").content)


def take_away(_folder: Path, manifest: Any) -> None:
    del manifest["files"]["shadows/01.ubj"]


def say_none(_folder: Path, manifest: Any) -> None:
    manifest["shadows"] = None


def count_otherwise(_folder: Path, manifest: Any) -> None:
    manifest["shadows"] |= {"searched": 2, "held_out": 0}


@pytest.mark.parametrize(
    ("tamper", "error", "told"),
    [
        (swap, MachineMismatch, "another forest out of shadows/00.ubj"),
        (put_another, CorruptionError, "00.ubj is no shadow of the bundle's model"),
        (take_away, CorruptionError, "names other files under shadows/ than it counts"),
        (say_none, CorruptionError, "names other files under shadows/ than it counts"),
        (
            count_otherwise,
            CorruptionError,
            "says that 2 shadows are searched and 0 held out, but of 2 they are 1 and 1",
        ),
    ],
)
def test_what_was_tampered_with_is_refused_though_digests_fit(
    plain: ShadowInputs, tamper: Callable[[Path, Any], None], error: type[Exception], told: str
) -> None:
    """Given shadows that were swapped, replaced or taken away, digests mended, opening refuses the bundle."""
    built = plain.train(2)
    rewritten(built.folder, lambda manifest: tamper(built.folder, manifest))
    with pytest.raises(error, match=told):
        open_bundle(built.folder)


def test_a_changed_byte_of_a_shadow_is_found(plain: ShadowInputs) -> None:
    """Given one bit flipped in the file of a shadow, opening names it."""
    path = plain.train(2).folder / "shadows" / "01.ubj"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptionError, match=r"01\.ubj is not the file that the manifest names"):
        open_bundle(path.parents[1])


def test_shadows_come_through_the_cache_and_from_a_uri(tmp_path: Path, plain: ShadowInputs) -> None:
    """Given a bundle with shadows, what Redis and a file URI give back opens with the same shadows in the same order."""
    built = plain.train(3)
    due = open_bundle(built.folder).shadows
    with EmbeddedRedis() as server:
        client = redis_client(server.url, timeout_s=2)
        digest = bundle_cache.publish_bundle(client, built.folder)
        assert bundle_cache.fetch_bundle(client, digest, tmp_path / "cached")
    fetch_bundle(built.folder.as_uri(), tmp_path / "fetched", bundle_sha256=digest)
    for copy in ("cached", "fetched"):
        found = open_bundle(tmp_path / copy).shadows
        assert [forest.digest for forest in due.forests] == [forest.digest for forest in found.forests]
    assert len(due.forests) == 3
