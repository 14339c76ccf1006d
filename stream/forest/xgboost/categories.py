"""The categories in an XGBoost model: those that its splits list, and since 3.1 the words that its training data had.

Of the words, the file keeps one encoding per feature: strings as bytes and offsets into them, whole numbers as a typed
array, and nothing for a feature that is no category. A code is a place in that encoding. Of words beyond ASCII, what a
pandas DataFrame brought is garbled: XGBoost 3.2.0 counts characters where it cuts bytes, and the end is lost. An Arrow
table brings them whole, but the file does not tell which of the two it was, so such words are taken for unknown.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from stream.forest.trees import CODES_MAX, Word

Json: TypeAlias = dict[str, Any]

_BYTES = frozenset(range(-128, 256))
_CATEGORY = "c"  # in feature_types


def listed_categories(tree: Json) -> dict[int, frozenset[int]]:
    """By node, the codes that each split on a category lists; XGBoost sends them to the right."""
    codes = tree["categories"]
    lists = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return {node: frozenset(codes[first : first + size]) for node, first, size in lists}


def are_categories(learner: Json, trees: list[Json], count: int) -> tuple[bool, ...]:
    """Per feature, whether it holds category codes: as the file says, and where it is silent, as its trees split."""
    if learner["feature_types"]:
        return tuple(kind == _CATEGORY for kind in learner["feature_types"])
    split_on = {tree["split_indices"][node] for tree in trees for node in tree["categories_nodes"]}
    return tuple(feature in split_on for feature in range(count))


def words_in_file(model: Json, count: int) -> tuple[tuple[Word, ...] | None, ...]:
    """Per feature the training categories by code, None where the file does not give them.

    Raises: ValueError where they are whole numbers that no float holds, of which two could look alike.
    """
    encodings = model.get("cats", {}).get("enc", [])
    if not encodings:
        return (None,) * count
    return tuple(_words(encoding) for encoding in encodings)


def _words(encoding: Json) -> tuple[Word, ...] | None:
    values = encoding["values"]
    if "offsets" not in encoding:
        words = tuple(map(float, values))
        if words != tuple(values):
            message = "a category is a whole number beyond those that a float holds"
            raise ValueError(message)
        return words
    content = bytes(byte & 0xFF for byte in values)  # the file has them as signed bytes
    if not content.isascii():
        return None
    offsets = encoding["offsets"]
    return tuple(content[start:end].decode() for start, end in pairwise(offsets)) or None


def check_listed(tree: Json, nodes: int) -> bool:
    """Whether the lists of categories of a tree of so many nodes lie within it; XGBoost reads past them unawares."""
    codes, kinds = tree["categories"], tree["split_type"]
    lists = list(zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True))
    return (
        [node for node, kind in enumerate(kinds) if kind] == [node for node, _, _ in lists]
        and len(kinds) == nodes
        and all(0 <= first <= first + size <= len(codes) for _, first, size in lists)
        and all(0 <= code < CODES_MAX for code in codes)
    )


def check_words(cats: Json, features: int) -> bool:
    """Whether the words of so many features, and the order that XGBoost keeps of them, lie within their arrays."""
    encodings, ends, order = cats["enc"], cats["feature_segments"], cats["sorted_idx"]
    if not encodings:
        return ends in ([], [0]) and order == []
    if not all(_fits(encoding) for encoding in encodings):
        return False
    counts = [
        len(encoding["offsets"]) - 1 if encoding.get("offsets") else len(encoding["values"]) for encoding in encodings
    ]
    starts = list(accumulate(counts, initial=0))
    return (
        len(encodings) == features
        and ends == starts
        and len(order) == starts[-1]
        and all(sorted(order[a:b]) == list(range(b - a)) for a, b in pairwise(starts))
    )


def _fits(encoding: Json) -> bool:
    """Whether the numbers of an encoding are numbers, and its texts end where its bytes do."""
    offsets, values = encoding.get("offsets"), encoding["values"]
    if not offsets:
        return all(isinstance(value, int | float) for value in values)
    return (
        all(isinstance(value, int) and value in _BYTES for value in values)
        and offsets == sorted(offsets)
        and (offsets[0], offsets[-1]) == (0, len(values))
    )
