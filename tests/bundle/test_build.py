from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.bundle.build import build_bundle
from stream.bundle.open import open_bundle
from stream.errors import ConfigurationError, ModelRefused
from stream.forest.walk import margins_of
from stream.recourse.rules.scale import SCALES, Scale, scale_of
from tests.bundle.inputs import FEATURES, ModelForm, content_of, inputs, write_pool, write_table
from tests.forest.models import USUAL, forest_of, owner_of, xgboost_model

FORMS: list[ModelForm] = ["json", "ubj", "txt"]


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_opens_as_the_model_that_was_given(tmp_path: Path, form: ModelForm) -> None:
    """Given a model of either library, the opened bundle scores the library's bits and knows whom it accepts."""
    given = inputs(tmp_path, form)
    built = given.build(model_id="loan", model_version="7", revision=3)
    model = open_bundle(built.folder)
    margins = owner_of(given.booster, model.forest).ask(given.rows, "margin")
    assert margins_of(model.forest, given.rows).tobytes() == margins.tobytes()
    assert built.manifest["pool"]["accepted"] == int((margins >= built.manifest["cutoff_margin"]).sum())
    assert (model.identity["model_id"], model.identity["model_version"], model.identity["revision"]) == ("loan", "7", 3)
    assert model.identity["bundle_sha256"] == built.bundle_sha256
    assert built.probe.counts["pool"] == USUAL.rows
    assert built.probe.counts["threshold"] > 2 * sum(len(model.forest.thresholds(j)) for j in range(4)) - 8


def test_the_same_inputs_give_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    """Given two copies of the inputs in different folders, the two bundles are equal byte for byte."""
    here, there = inputs(tmp_path / "here"), inputs(tmp_path / "there" / "deeper")
    one, other = here.build(), there.build("named otherwise")
    assert content_of(one.folder) == content_of(other.folder)
    assert one.bundle_sha256 == other.bundle_sha256


@pytest.mark.parametrize("name", ["again.csv.gz", "again.parquet"])
def test_the_form_of_the_pool_s_file_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """Given the pool as gzipped CSV or Parquet, with columns in another order, the bundle is the same."""
    given = inputs(tmp_path)
    plain = given.build()
    write_pool(tmp_path / "ordered.parquet", *USUAL.data())
    import_order = ["f2", "target", "f0", "f3", "f1"]
    write_table(tmp_path / name, read_parquet(tmp_path / "ordered.parquet").select(import_order))
    assert given.build("other", pool_path=tmp_path / name).bundle_sha256 == plain.bundle_sha256


def read_parquet(path: Path) -> Any:
    import pyarrow.parquet  # noqa: PLC0415 - the one test that reads what it wrote

    return pyarrow.parquet.read_table(path)


@pytest.mark.parametrize(("approve", "scale", "threshold"), [("below", "probability", 0.4), ("below", "margin", 0.1)])
def test_a_model_that_approves_below_counts_those_below(
    tmp_path: Path, approve: str, scale: Any, threshold: float
) -> None:
    """Given a policy that approves below, the accepted are those whose score is at or under the threshold."""
    given = inputs(tmp_path, "txt")
    (tmp_path / "policy.toml").write_text(f'approve = "{approve}"\n')
    built = given.build(policy_path=tmp_path / "policy.toml", threshold=threshold, threshold_scale=scale)
    owner = owner_of(given.booster, forest_of(given.booster))
    scores = owner.ask(given.rows, "probability" if scale == "probability" else "margin")
    assert built.manifest["pool"]["accepted"] == int((scores <= threshold).sum())


@pytest.mark.parametrize("scale", SCALES)
def test_distances_are_measured_as_the_policy_says(tmp_path: Path, scale: Scale) -> None:
    """Given each `scale` of policy.toml, the opened bundle measures every feature of the pool in scales of that kind."""
    given = inputs(tmp_path)
    (tmp_path / "policy.toml").write_text(f'scale = "{scale}"\n')
    model = open_bundle(given.build(policy_path=tmp_path / "policy.toml").folder)
    assert model.policy.scale == scale
    assert model.matrix.scales.tolist() == [scale_of(column, scale) for column in given.rows.T]
    assert [scale_of(column, "percentile") for column in given.rows.T] != [
        scale_of(column, "deviation") for column in given.rows.T
    ]


def test_a_secret_changes_the_references_and_nothing_else(tmp_path: Path) -> None:
    """Given a reference key, only the opaque references differ from the bundle without one."""
    given = inputs(tmp_path)
    open_key, secret = given.build("a"), given.build("b", reference_key=b"secret")
    a, b = content_of(open_key.folder), content_of(secret.folder)
    assert {path for path in a if a[path] != b[path]} == {"manifest.json", "leaf_matrix/references.npy"}


def test_per_tree_detail_is_dropped_where_it_would_not_fit(tmp_path: Path) -> None:
    """Given a topic for records smaller than with per-tree detail, the bundle says so and stays under the limit."""
    given = inputs(tmp_path)
    full = given.build("full").manifest
    assert full["audit_trees"]
    small = given.build("small", record_bytes_max=full["audit_record_bytes_max"] - 1).manifest
    assert not small["audit_trees"]
    assert small["audit_record_bytes_max"] < full["audit_record_bytes_max"]
    assert not open_bundle(tmp_path / "small").audit_trees


def test_an_early_stopped_model_is_built_with_the_trees_asked_for(tmp_path: Path) -> None:
    """Given a file with trees past its best iteration, --trees decides, and the opened bundle uses as many."""
    given = inputs(tmp_path)
    booster = xgb.Booster(model_file=given.model)
    booster.set_attr(best_iteration="4")
    booster.save_model(given.model)
    with pytest.raises(ModelRefused, match="--trees best"):
        given.build()
    assert given.build("best", trees="best").manifest["trees_used"] == 5
    assert open_bundle(tmp_path / "best").forest.trees == 5
    assert given.build("all", trees="all").manifest["trees_used"] == 20


def test_a_number_that_stands_for_missing_is_missing_wherever_the_bundle_is_opened(tmp_path: Path) -> None:
    """Given a model of a sentinel, then pool cells that hold it or round to it are missing, and the opened bundle scores it as the library told of it does."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0)
    given = inputs(tmp_path)
    booster = xgboost_model(recipe)
    booster.save_model(given.model)
    rows = recipe.data()[0]
    rows[0, 0] = np.nextafter(-999.0, 0.0)  # which float32 rounds to the sentinel
    write_pool(tmp_path / "pool.csv", rows, USUAL.data()[1])
    built = given.build(missing=-999.0)
    model = open_bundle(built.folder)
    assert built.manifest["missing"] == model.forest.missing == -999.0
    empty = np.where(rows.astype(np.float32) == np.float32(-999), np.nan, rows)
    assert np.isnan(empty).sum() > USUAL.rows / 10
    assert np.isnan(model.matrix.rows).sum() == np.isnan(empty).sum()
    for asked in (rows, empty):
        theirs = owner_of(booster, model.forest).ask(asked, "margin")
        assert margins_of(model.forest, asked).tobytes() == theirs.tobytes()
    write_pool(tmp_path / "pool.csv", empty, USUAL.data()[1])
    assert given.build("empty", missing=-999.0).bundle_sha256 == built.bundle_sha256
    assert given.build("untold").manifest["missing"] is None


def test_an_empty_folder_is_filled_and_a_full_one_refused(tmp_path: Path) -> None:
    """Given --out with something in it, nothing is touched; given an empty one, it becomes the bundle."""
    given = inputs(tmp_path)
    (tmp_path / "bundle").mkdir()
    built = given.build()
    before = content_of(built.folder)
    with pytest.raises(ConfigurationError, match="not empty"):
        given.build()
    assert content_of(built.folder) == before


WRONG: dict[str, dict[str, Any]] = {
    "accepts none of the 400 rows": {"threshold": 1 - 1e-7},
    "strictly between 0 and 1": {"threshold": 1.0},
    "must be finite": {"threshold": float("nan"), "threshold_scale": "margin"},
    "--missing nan: give the finite number": {"missing": float("nan")},
    "--missing inf: give the finite number": {"missing": float("inf")},
    "--missing -999: LightGBM knows no number": {"missing": -999.0, "model_path": "other.txt"},
    "--revision 0": {"revision": 0},
    "--model-id": {"model_id": "a/b"},
    "--model-version": {"model_version": "\n"},
    "even without per-tree detail": {"record_bytes_max": 100},
    "no column 'outcome'": {"target_column": "outcome"},
    "'f1' is a feature": {"target_column": "f1"},
    "none of .json": {"model_path": Path("model.bin")},
    "model.txt cannot be read": {"model_path": Path("nowhere/model.txt")},
    "features.toml cannot be read": {"features_path": Path("nowhere/features.toml")},
    "is not UTF-8": {"features_path": "latin.toml"},
    "have no table there: 'f3'; add a table": {"features_path": "short.toml"},
    "is not text": {"model_path": "latin.txt"},
    "none of .csv": {"pool_path": Path("pool.xlsx")},
    "pool nowhere.csv cannot be read": {"pool_path": Path("nowhere.csv")},
}


@pytest.mark.parametrize("what", WRONG)
def test_inputs_that_make_no_bundle_are_named_and_leave_nothing(tmp_path: Path, what: str) -> None:
    """Given one wrong input, the build says which in one line, and no folder is left, not even a hidden one."""
    given = inputs(tmp_path)
    (tmp_path / "other.txt").write_text("tree\n")
    (tmp_path / "short.toml").write_text(FEATURES.partition("[f3]")[0])
    (tmp_path / "latin.toml").write_bytes("é".encode("latin-1"))
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    changes: dict[str, Any] = {
        k: tmp_path / v if k.endswith("_path") and isinstance(v, str) else v for k, v in WRONG[what].items()
    }
    before = content_of(tmp_path)
    with pytest.raises(ConfigurationError, match=re.escape(what)) as refusal:
        given.build("bundle", **changes)
    assert "\n" not in str(refusal.value)
    assert content_of(tmp_path) == before
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_a_build_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """Given an interruption while the bundle is written, neither the bundle nor a draft of it is left."""
    given = inputs(tmp_path)

    def interrupt(stage: str, done: int, total: int) -> None:
        if (stage, done, total) == ("writing", 0, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        given.build(progress=interrupt)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_progress_tells_of_every_stage_and_of_every_compared_row(tmp_path: Path) -> None:
    """Given a callback, it hears the stages in order, and the comparing one up to all of its rows."""
    heard: list[tuple[str, int, int]] = []
    built = inputs(tmp_path).build(progress=lambda *told: heard.append(told))
    stages = list(dict.fromkeys(stage for stage, _, _ in heard))
    assert stages == ["reading the model", "reading the pool", "comparing", "building the leaf matrix", "writing"]
    assert max(done for stage, done, _ in heard if stage == "comparing") == built.probe.rows
    assert all(total == built.probe.rows for stage, _, total in heard if stage == "comparing")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Given --out below a file, the build names the place."""
    given = inputs(tmp_path)
    with pytest.raises(ConfigurationError, match=r"cannot write beside .*model\.json"):
        given.build("model.json/bundle")


def test_words_of_the_pool_become_the_codes_the_model_was_trained_on(tmp_path: Path) -> None:
    """Given a worded column, the bundle is that of the same pool with the codes, but for features.toml."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 300).astype(float)
    booster = xgb.train(
        {"objective": "binary:logistic", "nthread": 1},
        xgb.DMatrix(code[:, None], code > rng.normal(1, 1, 300), feature_names=["purpose"], nthread=1),
        5,
    )
    booster.save_model(tmp_path / "model.json")
    words = ["car", "none", "NA"]
    rule = '[purpose]\ntype = "category"\nmutability = "mutable"\n'
    (tmp_path / "words.toml").write_text(rule + 'categories = ["car", "none", "NA"]\n')
    (tmp_path / "codes.toml").write_text(rule)
    (tmp_path / "words.csv").write_text("purpose\n" + "\n".join(words[int(c)] for c in code) + "\n")
    (tmp_path / "codes.csv").write_text("purpose\n" + "\n".join(str(c) for c in code) + "\n")
    pools = set()
    for kind in ("words", "codes"):
        built = build_bundle(
            model_path=tmp_path / "model.json",
            pool_path=tmp_path / f"{kind}.csv",
            features_path=tmp_path / f"{kind}.toml",
            threshold=0.5,
            out_dir=tmp_path / kind,
        )
        pools.add(built.manifest["pool"]["sha256"])
    assert len(pools) == 1


def test_a_bundle_may_move(tmp_path: Path) -> None:
    """Given a bundle copied elsewhere, it opens as the same."""
    built = inputs(tmp_path).build()
    shutil.copytree(built.folder, tmp_path / "moved")
    assert open_bundle(tmp_path / "moved").identity["bundle_sha256"] == built.bundle_sha256


def test_a_pool_number_beyond_what_the_model_computes_with_is_refused(tmp_path: Path) -> None:
    """Given 1e39 in a cell, a bundle of XGBoost, which refuses it too, names column and row; LightGBM computes with it."""
    rows, target = USUAL.data()
    rows[2, 1] = 1e39
    forms: list[tuple[ModelForm, bool]] = [("json", True), ("txt", False)]
    for form, refused in forms:
        given = inputs(tmp_path / form, form)
        write_pool(given.folder / "pool.csv", rows, target)
        if refused:
            with pytest.raises(ConfigurationError, match=r"column 'f1' holds a number .* float32.* in row 2 "):
                given.build()
        else:
            assert given.build().manifest["pool"]["rows"] == len(rows)
