"""The text of a LightGBM model, parsed and validated before LightGBM sees it.

LightGBM's own parser trusts the file: it reads past the end of a short line, follows links to nodes that do not exist, and
aborts the process where a tree does not start at the byte that the header states. So damaged files are refused here. Both
parsers read a decimal to the nearest double, so what passes holds the same numbers for both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn, TypeAlias

import numpy as np

from stream.errors import ModelRefused

Lines: TypeAlias = dict[str, str]

CATEGORY_BIT, DEFAULT_LEFT_BIT, MISSING_SHIFT = 1, 2, 2  # of a decision_type
MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2

_END = "\nend of trees"
_ANEW = "give the file that save_model('model.txt') wrote"
_PARAMETER = re.compile(r"\[[a-z0-9_]+: .*\]")
_LINEAR = re.compile(r"^is_linear=(?!0$)", re.MULTILINE)
_INTEGERS = re.compile(r"(?:-?[0-9]{1,10}(?: -?[0-9]{1,10})*)?")
_NUMBERS = re.compile(r"(?:[-+.0-9a-z]+(?: [-+.0-9a-z]+)*)?")
_PER_SPLIT = ("left_child", "right_child", "split_feature", "decision_type")
# Columns that LightGBM reads too, past the end of a short line; how many fewer values there are than leaves.
_FEWER_THAN_LEAVES = {"split_gain": 1, "internal_value": 1, "internal_weight": 1, "internal_count": 1}
_FEWER_THAN_LEAVES |= {"leaf_weight": 0, "leaf_count": 0}
_LINES_MAX = 22  # of one tree: LightGBM reads no further
_WORD_MAX = 2**32 - 1  # of cat_threshold: 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeText:
    """The columns of one tree, in LightGBM's numbering; a child below zero is leaf ~child."""

    left: list[int]
    right: list[int]
    feature: list[int]
    decision: list[int]
    threshold: list[float]  # of a split on a category, its number among those of the tree
    listed: list[frozenset[int]]  # codes that go left, by that number
    leaf_value: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """A whole model.txt: its header, its trees, and what follows them."""

    header: Lines
    features: tuple[str, ...]
    feature_infos: tuple[str, ...]
    trees: list[TreeText]
    appendix: str  # after the trees: parameters, and the categories of a DataFrame


def refuse(what: str, remedy: str) -> NoReturn:
    """Raise ModelRefused with what is refused and what to do."""
    message = f"LightGBM model refused: {what}; {remedy}"
    raise ModelRefused(message)


def read_text(text: str) -> ModelText:
    """Parse a file. Raises: ModelRefused where LightGBM would reject it or read it differently."""
    if text.startswith("tree\r"):
        refuse("its lines end in CRLF, which LightGBM cannot load", "save it with LF line ends, as LightGBM wrote it")
    if not text.startswith("tree\n") or _END not in text or "\0" in text:
        refuse("the file is not a whole LightGBM model text", _ANEW)
    body, _, appendix = text.partition(_END)
    _check_parameters(appendix)
    head, *blocks = body.split("\nTree=")
    header = _lines(head.split("\n")[1:])
    if header is None or "\r" in text or not {"feature_names", "feature_infos", "max_feature_idx"} <= header.keys():
        refuse("its header is damaged", _ANEW)
    features, infos = (tuple(header[name].split(" ")) for name in ("feature_names", "feature_infos"))
    if "" in features or not len(features) == len(infos) == _integer(header["max_feature_idx"]) + 1:
        refuse("its header states another number of features than it names", _ANEW)
    if len(set(features)) < len(features):
        refuse("two of its features have the same name", "give each feature a name of its own")
    if _LINEAR.search(body):
        refuse("it has linear leaves (linear_tree)", "train with linear_tree=false")
    sizes = header.get("tree_sizes", "")
    stated = sizes.split(" ") if sizes else []
    if len(stated) != len(blocks):
        refuse("the number of trees is not the one its header states", "check that the file is whole")
    trees = []
    for number, (block, size) in enumerate(zip(blocks, stated, strict=True)):
        tree = _tree(block, len(features)) if f"{len(block.encode()) + len('Tree=') + 1}" == size else None
        if tree is None:
            refuse(f"tree {number} is damaged", _ANEW)
        trees.append(tree)
    return ModelText(header=header, features=features, feature_infos=infos, trees=trees, appendix=appendix)


def _check_parameters(appendix: str) -> None:
    """Each training parameter must be on a line of its own: LightGBM looks for a colon past the end of other lines."""
    _, begun, after = appendix.partition("\nparameters:")
    parameters, ended, _ = after.partition("\nend of parameters\n")
    if begun and not (ended and all(_PARAMETER.fullmatch(line) for line in parameters.split("\n") if line)):
        refuse("its list of parameters is damaged", _ANEW)


def _lines(lines: list[str]) -> Lines | None:
    """`name=value` by name; None for a repeated name, as LightGBM might take the other one."""
    pairs = [line.partition("=")[::2] for line in lines if line]
    named = dict(pairs)
    return named if len(named) == len(pairs) else None


def _integer(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


def _tree(block: str, features: int) -> TreeText | None:
    """One tree with all numbers of each node; None where it is damaged."""
    _, *lines = block.rstrip("\n").split("\n")
    named = _lines(lines)
    if named is None or len(named) < len(lines) or len(lines) > _LINES_MAX or not all("=" in line for line in lines):
        return None
    try:
        return _columns(named, features)
    except (KeyError, ValueError):
        return None


def _columns(named: Lines, features: int) -> TreeText:
    """Raises: KeyError, ValueError where a column is missing, holds something else, or leads nowhere."""
    (leaves,), (categories,) = _integers(named["num_leaves"], 1), _integers(named["num_cat"], 1)
    splits = leaves - 1
    left, right, feature, decision = (_integers(named[name], splits) if splits else [] for name in _PER_SPLIT)
    for name, fewer in _FEWER_THAN_LEAVES.items():
        if name in named and (splits or (name == "leaf_count" and named[name])):  # empty of one leaf, up to 4.3
            _numbers(named[name], leaves - fewer)
    _numbers(named.get("shrinkage", "1"), 1)
    found = TreeText(
        left=left,
        right=right,
        feature=feature,
        decision=decision,
        threshold=_numbers(named["threshold"], splits) if splits else [],
        listed=_listed(named, categories) if categories and splits else [],
        leaf_value=_numbers(named["leaf_value"], leaves),
    )
    _check_links(found)
    _check_decisions(found, features)
    return found


def _check_links(tree: TreeText) -> None:
    """Each split but the root and each leaf is the child of one split before it."""
    leaves = len(tree.leaf_value)
    each_once = sorted([*tree.left, *tree.right]) == [*range(-leaves, 0), *range(1, leaves - 1)] or leaves == 1
    downward = all(link < 0 or link > split for side in (tree.left, tree.right) for split, link in enumerate(side))
    if not each_once or not downward:
        raise ValueError


def _check_decisions(tree: TreeText, features: int) -> None:
    """Each split has a known type of decision on a feature that exists."""
    for feature, decision, threshold in zip(tree.feature, tree.decision, tree.threshold, strict=True):
        if not 0 <= feature < features or not 0 <= decision < (MISSING_NAN + 1) << MISSING_SHIFT:
            raise ValueError
        if decision & CATEGORY_BIT and not (0 <= threshold < len(tree.listed) and threshold.is_integer()):
            raise ValueError


def _listed(named: Lines, categories: int) -> list[frozenset[int]]:
    """The codes that each split on a category lists: one bit a code."""
    ends = _integers(named["cat_boundaries"], categories + 1)
    words = _integers(named["cat_threshold"], ends[-1])
    if ends[0] != 0 or ends != sorted(ends) or not all(0 <= word <= _WORD_MAX for word in words):
        raise ValueError
    bits = np.unpackbits(np.array(words, "<u4").view(np.uint8), bitorder="little").reshape(-1, 32)
    return [frozenset(np.flatnonzero(bits[first:end]).tolist()) for first, end in pairwise(ends)]


def _integers(text: str, count: int) -> list[int]:
    """Exactly `count` integers. int() alone would read 1_0 as ten, where LightGBM reads one."""
    if not _INTEGERS.fullmatch(text):
        raise ValueError
    values = [int(word) for word in text.split(" ")] if text else []
    if len(values) != count:
        raise ValueError
    return values


def _numbers(text: str, count: int) -> list[float]:
    """Exactly `count` doubles; LightGBM writes inf and nan too."""
    if not _NUMBERS.fullmatch(text):
        raise ValueError
    values = [float(word) for word in text.split(" ")] if text else []
    if len(values) != count:
        raise ValueError
    return values
