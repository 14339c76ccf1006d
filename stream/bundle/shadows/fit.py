"""Whether a model can shadow another one: same features, same codes, and a cutoff that serves both."""

from __future__ import annotations

import dataclasses

import numpy as np

from stream.bundle.alignment import some
from stream.errors import shown
from stream.forest.trees import CATEGORY, INSIDE, Forest
from stream.recourse.rules.features import FeatureRules


def incompatibility(shadow: Forest, forest: Forest, rules: FeatureRules, *, trained: bool) -> str | None:
    """Why a shadow cannot take the rows or the cutoff of `forest`; None where it can.

    `trained`: whether the build trained it, and so on the codes of `forest`. The order of the features does not matter.
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


def aligned(shadow: Forest, forest: Forest) -> Forest:
    """The shadow with its features in the order of `forest`, which has the same ones."""
    if shadow.features == forest.features:
        return shadow
    places = np.array([*(forest.features.index(name) for name in shadow.features), INSIDE], np.int32)  # of -1: the last
    from_places = [shadow.features.index(name) for name in forest.features]
    return dataclasses.replace(
        shadow,
        features=forest.features,
        is_category=tuple(shadow.is_category[j] for j in from_places),
        words=tuple(shadow.words[j] for j in from_places),
        split_feature=places[shadow.split_feature],
    )


def _link(forest: Forest) -> str:
    """The link in words, equal where the links are."""
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
