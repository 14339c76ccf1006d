"""Damaged files: LightGBM's own parser ends the process on some, so each of these is refused before it sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from stream.errors import ModelRefused
from stream.forest.lightgbm.model_text import read_text
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.link import link_of
from stream.forest.walk import leaf_ids, leaf_slots, margins
from tests.forest.models import Recipe, lightgbm_model

CODES = Recipe(
    seed=5,
    rows=400,
    features=4,
    trees=3,
    depth=4,
    missing=0.1,
    whole=False,
    constant=True,
    signal=True,
    categories=2,
    cardinality=70,
)
ARABIC_ONE = "\u0661"  # a digit for int()
DAMAGES, DAMAGES_IN_CI = 20_000, 300
ODD = [
    "",
    "-1",
    "0",
    "1",
    "2",
    "7",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "1_0",
    "0x1",
    ARABIC_ONE,
    "4294967295",
    "4294967296",
]
ODD += ["-2147483648", "99999999999999999999", "1 1", " ", "=", "\r", "\0", "\n", "\n\n", "é", "Tree=", "=1", ".", "e"]


@cache
def whole(kind: str = "codes") -> str:
    parameters: dict[str, dict[str, Any]] = {
        "codes": {"min_data_per_group": 1, "cat_smooth": 0, "max_cat_to_onehot": 1},
        "rf": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        "stump": {"min_gain_to_split": 1e9, "objective": "poisson"},
    }
    return str(lightgbm_model(CODES, **parameters[kind]).model_to_string())


def resized(text: str) -> str:
    """The text with the sizes of its trees in the header as they are, so that a damage is not noticed by its size."""
    head, *blocks = text.partition("\nend of trees")[0].split("\nTree=")
    del head
    sizes = " ".join(str(len(block.encode()) + 6) for block in blocks)
    return re.sub("^tree_sizes=.*$", f"tree_sizes={sizes}", text, count=1, flags=re.MULTILINE)


def changed(name: str, change: Callable[[list[str]], list[str]], tree: int = 0) -> str:
    """The text with the values of one line of one tree changed, and the size of the tree set right."""
    text = whole()
    start = text.index(f"\nTree={tree}\n")
    line = re.compile(f"^{name}=(.*)$", re.MULTILINE).search(text, start)
    assert line is not None
    return resized(f"{text[: line.start(1)]}{' '.join(change(line[1].split()))}{text[line.end(1) :]}")


def test_what_is_set_right_is_whole() -> None:
    """Given a text to which no damage was done, it is read, with its splits on categories."""
    text = changed("threshold", list)
    assert text == whole()
    assert read_text(text).trees[0].listed


DAMAGED = {
    "a column too short": changed("threshold", lambda values: values[:-1]),
    "a column too long": changed("leaf_value", lambda values: [*values, "0"]),
    "a column that nothing needs, too short": changed("internal_value", lambda values: values[:-1]),
    "counts of leaves too short": changed("leaf_count", lambda values: values[:-1]),
    "a shrinkage that is no number": changed("shrinkage", lambda _: ["="]),
    "no number": changed("leaf_value", lambda values: ["x", *values[1:]]),
    "a number that reads as another": changed("leaf_value", lambda values: ["1_0", *values[1:]]),
    "digits of another script": changed("left_child", lambda values: [ARABIC_ONE, *values[1:]]),
    "a feature that does not exist": changed("split_feature", lambda values: ["4", *values[1:]]),
    "a feature below zero": changed("split_feature", lambda values: ["-1", *values[1:]]),
    "a child that does not exist": changed("left_child", lambda values: ["99", *values[1:]]),
    "a child that is the root": changed("left_child", lambda values: ["0", *values[1:]]),
    "two ways to one child": changed("right_child", lambda values: [values[0], *values[:1], *values[2:]]),
    "a type of missing that does not exist": changed("decision_type", lambda values: ["14", *values[1:]]),
    "a decision that is no byte": changed("decision_type", lambda values: ["266", *values[1:]]),
    "more categories than lists": changed("num_cat", lambda values: [str(int(values[0]) + 1)]),
    "fewer categories than thresholds": changed("num_cat", lambda values: [str(int(values[0]) - 1)]),
    "no categories": changed("num_cat", lambda _: ["0"]),
    "boundaries that do not start at zero": changed("cat_boundaries", lambda values: ["1", *values[1:]]),
    "boundaries that fall": changed(
        "cat_boundaries", lambda values: [values[0], str(int(values[-1]) + 1), *values[2:]]
    ),
    "boundaries past the end": changed("cat_boundaries", lambda values: [*values[:-1], "99"]),
    "a list beyond its 32 bits": changed("cat_threshold", lambda values: ["4294967296", *values[1:]]),
    "a list below zero": changed("cat_threshold", lambda values: ["-1", *values[1:]]),
    "no leaves": changed("num_leaves", lambda _: ["0"]),
    "a line twice": resized(whole().replace("\nnum_cat=", "\nnum_cat=0\nnum_cat=", 1)),
    "an empty line": resized(whole().replace("\nnum_cat=", "\n\nnum_cat=", 1)),
    "a line without =": resized(whole().replace("\nnum_cat=", "\nnum_cat\nnum_cat=", 1)),
    "more lines than LightGBM reads": resized(whole().replace("\nnum_cat=", "\na=\nb=\nc=\nd=\ne=\nnum_cat=", 1)),
    "another size than the header states": whole().replace("\nshrinkage=1\n", "\nshrinkage=1.0\n", 1),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_tree_is_refused(what: str) -> None:
    """Given a tree that lost or gained something, the refusal names it, before LightGBM could read past its end."""
    assert DAMAGED[what] != whole()
    with pytest.raises(ModelRefused, match=r"LightGBM.*tree 0 is damaged; .+"):
        read_text(DAMAGED[what])


def test_a_split_on_a_category_needs_a_list() -> None:
    """Given a split on a category whose number is none of the tree's lists, the file is refused."""
    number = next(i for i, decision in enumerate(read_text(whole()).trees[0].decision) if decision & 1)
    for odd in ("-1", "99", "0.5", "nan", "inf"):
        with pytest.raises(ModelRefused, match="tree 0 is damaged"):
            read_text(changed("threshold", lambda values, odd=odd: [*values[:number], odd, *values[number + 1 :]]))  # type: ignore[misc]


@pytest.mark.parametrize("odd", ["-inf", "nan"])
def test_a_threshold_that_nothing_can_be_compared_with_is_refused(odd: str) -> None:
    """Given a split on a number at minus infinity or at none, the refusal names the split and what to do."""
    number = next(i for i, decision in enumerate(read_text(whole()).trees[0].decision) if not decision & 1)
    text = changed("threshold", lambda values: [*values[:number], odd, *values[number + 1 :]])
    with pytest.raises(ModelRefused, match=rf"tree 0 split {number} has threshold {odd}; remove infinite values"):
        read_lightgbm(text, trees=None)


HEADERS = {
    "names=f0 f1 f2 f3": ("names=f0 f1 f2", "another number of features"),
    "feature_names=f0 f1": ("feature_names=f1 f1", "the same name"),
    "max_feature_idx=3": ("max_feature_idx=2", "another number of features"),
    "max_feature_idx=": ("max_feature_index=", "header is damaged"),
    "feature_infos=": ("feature_infos=x\nfeature_infos=", "header is damaged"),
    "label_index=": ("label_\rindex=", "header is damaged"),
    "num_class=1": ("num_class=3", "3 outputs"),
    "num_class=": ("num_klass=", "outputs"),
    "num_tree_per_iteration=1": ("num_tree_per_iteration=2", "2 outputs"),
    "objective=binary": ("objective=unary", "objective is unary sigmoid:1, which is not known here"),
    "binary sigmoid:1": ("", "objective is empty"),
    "sigmoid:1": ("sigmoid:1 more", "not known here"),
    "label_index=0\n": ("", "cannot load it"),
    "end of trees": ("end of forest", "not a whole"),
    "tree_sizes=": ("tree_sizes=9 ", "number of trees"),
    "[metric: binary_logloss]": ("[metric", "list of parameters is damaged"),
    "end of parameters": ("end of it", "list of parameters is damaged"),
    "[metric: ": ("[metric: \r", "header is damaged"),
    "pandas_categorical:null": ("pandas_categorical:[1]", "pandas_categorical is damaged"),
    "pandas_categorical:": ("pandas_categorical:[", "pandas_categorical is damaged"),
}


@pytest.mark.parametrize("there", HEADERS)
def test_a_damaged_header_is_refused(there: str) -> None:
    """Given a header or an appendix that says too little or something else, the refusal says what."""
    text, (instead, reason) = whole(), HEADERS[there]
    assert there in text
    with pytest.raises(ModelRefused, match=rf"LightGBM.*{reason}.*; .+") as refusal:
        read_lightgbm(text.replace(there, instead, 1), trees=None)
    assert str(refusal.value).isprintable()


def test_a_file_with_crlf_is_refused_with_what_to_do() -> None:
    """Given line ends of Windows, on which LightGBM ends the process, the refusal says to take them out."""
    with pytest.raises(ModelRefused, match=r"CRLF.*; save it with LF"):
        read_lightgbm(whole().replace("\n", "\r\n"), trees=None)


def damaged(text: str, rng: np.random.Generator) -> str:
    """The text with one random damage; in half of the cases the sizes in the header agree with it."""
    at, kind = int(rng.integers(5, len(text) - 1)), rng.integers(6)
    odd = ODD[rng.integers(len(ODD))]
    start, end = text.rindex("\n", 0, at) + 1, text.index("\n", at)
    if kind == 0:
        text = text[:at]
    elif kind == 1:
        text = text[:at] + chr(rng.integers(1, 128)) + text[at + 1 :]
    elif kind == 2:
        text = text[:start] + text[end + 1 :]
    elif kind == 3:
        text = text[:end] + "\n" + text[start:]
    else:
        words = list(re.finditer("[^ =\n]+", text[start:end])) or list(re.finditer("^.*$", text[start:end]))
        word = words[rng.integers(len(words))]
        text = text[: start + word.start()] + odd + text[start + word.end() :]
    return resized(text) if rng.random() < 0.5 else text


def read_damaged(seeds: range, progress: Path) -> int:
    """Read so many damaged texts, each refused or exact; how many were read."""
    rows = CODES.data()[0]
    read = 0
    for seed in seeds:
        progress.write_text(str(seed))
        rng = np.random.default_rng(seed)
        text = damaged(whole(["codes", "rf", "stump"][seed % 3]), rng)
        try:
            forest = read_lightgbm(text, trees=None)
        except ModelRefused:
            continue
        booster = lgb.Booster(model_str=text)
        slots = leaf_slots(forest, rows)
        scored = margins(forest, slots)
        linked = link_of(forest).probabilities(scored)
        leaves = booster.predict(rows, pred_leaf=True, num_threads=1)
        wanted = (np.asarray(booster.predict(rows, num_threads=1, **what)) for what in ({"raw_score": True}, {}))
        assert np.array_equal(leaf_ids(forest, slots).ravel(), np.ravel(leaves)), seed
        assert [scored.tobytes(), linked.tobytes()] == [want.tobytes() for want in wanted], seed
        read += 1
    return read


@pytest.mark.parametrize("count", [DAMAGES_IN_CI, pytest.param(DAMAGES, marks=pytest.mark.nightly)])
@pytest.mark.timeout(3600)
def test_a_random_damage_is_refused_or_read_as_lightgbm_reads_it(count: int, tmp_path: Path) -> None:
    """Given random damages, none ends the process that reads them, and what is read has the library's bits."""
    progress = tmp_path / "seed"
    with ProcessPoolExecutor(1, get_context("spawn")) as reader:
        try:
            read = reader.submit(read_damaged, range(count), progress).result()
        except BrokenProcessPool:
            pytest.fail(f"damage {progress.read_text()} ended the process")
    assert count // 20 < read < count // 2  # neither kind is missing
