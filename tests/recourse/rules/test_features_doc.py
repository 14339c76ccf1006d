"""docs/features.md: every example is read, every key is listed, and what it says of the examples is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from stream.recourse.rules.feature_table import KEYS
from stream.recourse.rules.features import FeatureRules, read_features
from stream.recourse.space import linked_features as lines
from stream.recourse.space import person_reach as feasible
from stream.recourse.space.grouped_features import COMBINATIONS_MAX, PEOPLE_MIN
from tests.recourse.space.test_unit_cases import person_of, ways

DOC = (Path(__file__).resolve().parents[3] / "docs" / "features.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)


def read(example: str) -> FeatureRules:
    return read_features(example, tuple(tomllib.loads(example)))


def example_with(name: str) -> tuple[str, tuple[str, ...]]:
    """The example that has a feature, and all features of it."""
    [found] = [example for example in EXAMPLES if name in tomllib.loads(example)]
    return found, tuple(tomllib.loads(found))


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_read(example: str) -> None:
    """Given an example of the reference, it is read as it stands, and its features are one unit, or each alone."""
    rules = read(example)
    assert [unit.members for unit in rules.units] in ([], [(0, 1)], [(0, 2)], [(0, 1, 2)])


def test_every_key_is_listed() -> None:
    """Given the keys that a table may have, the reference's table lists them and no others."""
    rows = [line.split("|")[1] for line in DOC.splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == KEYS


def test_figures_and_reasons_are_those_of_the_code() -> None:
    """Given the bounds and the reasons that the reference names, they are those of the code."""
    assert (
        f"at least {PEOPLE_MIN} people of the training pool have, and of these the {COMBINATIONS_MAX} commonest"
        in " ".join(DOC.split())
    )
    assert f"at most {lines.LINE_STOPS_MAX} such stops" in DOC
    told = " ".join(DOC.split())
    for reason in (feasible.GROUP, feasible.UNSEEN, feasible.DEPENDS, feasible.STAYS, lines.NOT_KNOWN, lines.NO_RATIO):
        assert f"`{reason}`" in told


def test_the_link_does_what_is_said() -> None:
    """Given the example of the link and an income of 2,000, one of 2,100 makes a tax of 431."""
    text, names = example_with("tax")
    assert ways(person_of(text, names, [2000.0, 400.0], [[2050.0], []])) == [[2100.0, 431.0]]


def test_a_follower_that_may_not_go_on_bounds_its_driver() -> None:
    """Given the example of the link and a `max` of 450 for the tax, no income from 2,200 on is a target, and one below is."""
    text, names = example_with("tax")
    bounded = text.replace("factor = 0.305", "factor = 0.305\nmax = 450")
    person = [2000.0, 400.0], [[2050.0, 2150.0, 2250.0], []]
    assert ways(person_of(text, names, *person)) == [[2100.0, 431.0], [2200.0, 461.0], [2300.0, 492.0]]
    assert ways(person_of(bounded, names, *person)) == [[2100.0, 431.0]]


def test_the_ratio_does_what_is_said() -> None:
    """Given the example of the ratio and a limit of 700, a balance of 290 is a utilisation of 41.4."""
    text, names = example_with("utilisation")
    assert ways(person_of(text, names, [600.0, 700.0, 85.7], [[300.0], [], []])) == [[290.0, 41.4]]
