"""Which features of a LightGBM model are categories, and what the training data called their codes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stream.forest.lightgbm.model_text import CATEGORY_BIT, ModelText, refuse
from stream.forest.trees import Word

_CODES = re.compile(r"-?[0-9]+(?::-?[0-9]+)*")  # feature_infos of a category; of a number it is [least:greatest]
_UNUSED = "none"  # feature_infos of a column of one value, whatever its kind
_DECLARED = re.compile(r"^\[categorical_feature: ([0-9]+(?:,[0-9]+)*)?\]$", re.MULTILINE)
_EXACT_MAX = 2.0**53  # a whole number beyond may not be a double
_WORDS = "pandas_categorical:"


def categories_of(model: ModelText) -> tuple[tuple[bool, ...], tuple[tuple[Word, ...] | None, ...]]:
    """Per feature, whether it holds codes of categories, and the training categories by code where they are certain.

    The file lists the categories of a DataFrame's columns in their order and does not say which columns these are.
    They are the features declared as categories, unless the training named others in `categorical_feature` or a column's
    categories were ordered; the number of lists shows that, and then all words are left to the decider.
    Raises: ModelRefused where the list is no list.
    """
    codes = _codes(model)
    declared = _declared(model.appendix)
    found = [j for j in range(len(model.features)) if j in codes or j in (declared or ())]
    is_category = tuple(j in found for j in range(len(model.features)))
    nothing = (None,) * len(model.features)
    lists = _lists(model.appendix)
    if len(lists) != len(found) or (declared is None and _UNUSED in model.feature_infos):
        return is_category, nothing
    words = [_words(listed) for listed in lists]
    by_feature: dict[int, tuple[Word, ...]] = {}
    for feature, listed in zip(found, words, strict=True):
        if listed is None or max(codes.get(feature, ()), default=-1) >= len(listed):
            return is_category, nothing
        by_feature[feature] = listed
    return is_category, tuple(by_feature.get(j) for j in range(len(model.features)))


def _codes(model: ModelText) -> Mapping[int, set[int]]:
    """The codes that the file knows, by feature, of each feature that is certainly a category."""
    found = {
        j: {int(code) for code in info.split(":")}
        for j, info in enumerate(model.feature_infos)
        if _CODES.fullmatch(info)
    }
    for tree in model.trees:
        for feature, decision, threshold in zip(tree.feature, tree.decision, tree.threshold, strict=True):
            if decision & CATEGORY_BIT:
                found.setdefault(feature, set()).update(tree.listed[int(threshold)])
    return found


def _declared(appendix: str) -> set[int] | None:
    """The features that the training declared as categories, constant ones among them; None where the file is silent."""
    declared = _DECLARED.search(appendix)
    return None if declared is None else {int(j) for j in (declared[1] or "").split(",") if j}


def _lists(appendix: str) -> list[Any]:
    """What LightGBM wrote of the DataFrame's categories: a list for each of its category columns."""
    *_, last = appendix.rstrip("\n").rpartition("\n")
    if not last.startswith(_WORDS):
        return []
    try:
        lists = json.loads(last.removeprefix(_WORDS))
    except (ValueError, RecursionError):
        lists = 0
    if lists is None:
        return []
    if not isinstance(lists, list) or not all(isinstance(listed, list) for listed in lists):
        refuse("its pandas_categorical is damaged", "give the file that save_model('model.txt') wrote")
    return lists


def _words(listed: list[Any]) -> tuple[Word, ...] | None:
    """The categories of one column as words; true and false are 1 and 0. None where they are no distinct words."""
    words: list[Word] = []
    for word in listed:
        if isinstance(word, str):
            words.append(word)
        elif isinstance(word, int | float) and abs(word) <= _EXACT_MAX:
            words.append(float(word))
        else:
            return None
    return tuple(words) if len(set(words)) == len(words) else None
