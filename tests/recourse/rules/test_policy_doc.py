"""docs/recourse.md: every key of policy.toml is listed with its default, every example is read, and its figures are the code's."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from stream.events import TIERS
from stream.recourse.comparators import people
from stream.recourse.rules import scale
from stream.recourse.rules.policy import Policy, read_policy
from stream.recourse.search import least_effort, proof, robust_descent, robust_space, robust_targets
from stream.recourse.search.shadows import SEARCHED_SHARE, Shadows
from stream.recourse.space import linked_features, margin_profiles

DOCS = Path(__file__).resolve().parents[3] / "docs"
DOC = (DOCS / "recourse.md").read_text("utf-8")
TOLD = " ".join(DOC.split())
SHADOWS = " ".join((DOCS / "shadows.md").read_text("utf-8").split())
FORESTS: Any = (object(),) * 10
TEN = Shadows(forests=FORESTS)
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
POLICY = DOC.partition("## policy.toml\n")[2]
ROWS = {
    cells[1].strip(" `"): cells[2:5]
    for cells in (line.split("|") for line in POLICY.partition("### ")[0].splitlines() if line.startswith("| `"))
}


def test_every_key_is_listed_with_its_default() -> None:
    """Given the settings of a policy, the reference's table lists them in their order and no others, each with its default as TOML spells it, a unit and an effect."""
    assert list(ROWS) == [field.name for field in fields(Policy)]
    text = "\n".join(f"{key} = {default.strip(' `')}" for key, (default, _, _) in ROWS.items())
    assert tomllib.loads(text) == asdict(Policy())
    assert read_policy(text) == Policy()
    assert all(unit.strip() and effect.strip() for _, unit, effect in ROWS.values())


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_read(example: str) -> None:
    """Given an example of the reference, it is read as it stands, and sets nothing to what it is by default."""
    read = asdict(read_policy(example))
    said = tomllib.loads(example)
    assert said
    assert all(read[key] == value for key, value in said.items())
    assert all(asdict(Policy())[key] != value for key, value in said.items())


def test_every_scale_and_tier_is_told_of() -> None:
    """Given the tiers and the scales that there are, the reference has a row for each tier and says each scale."""
    assert [name for name in re.findall(r"^\| (\w+) \|", DOC, re.MULTILINE) if name != "Tier"][:3] == list(TIERS)
    assert all(f'`"{name}"`' in POLICY for name in scale.SCALES)


def test_every_price_has_its_place_in_an_objective() -> None:
    """Given the keys of mid, of far and of actions, the table of objectives names each of them."""
    objectives = DOC.partition("one objective each\n")[2].partition("\n- ")[0]
    named = set(re.findall(r"`(\w+)`", objectives))
    assert named == {key for key in ROWS if key.startswith(("mid_", "far_")) or key == "action_cost"}


def test_figures_are_those_of_the_code() -> None:
    """Given the bounds that the reference states, they are those of the code."""
    for told in (
        f"at most {least_effort.MOVES_MAX} of them",
        f"of the {robust_targets.NEIGHBOURHOOD_MAX:,} accepted people nearest",
        f"again and again (at most {robust_descent.ROUNDS_MAX})",
        f"up to {robust_descent.EXCHANGES_MAX} exchanges",
        f"fewer than {people.CROWDED} share it",
        f"up to {robust_space.DEVIATIONS_AMONG_MAX:,} people of the pool",
        f"a deviation is taken to be {robust_space.ASSUMED_DEVIATION:g} log odds",
        f"(at least {robust_targets.LEAST_COST:g})",
        f"a path of {margin_profiles.DEPTH_MAX:,} splits or more",
        f"where {proof.REGIONS_MAX:,} boxes did not suffice",
        f"more than {linked_features.LINE_STOPS_MAX} stops",
        f"from the {scale.TAIL:g}th to the {100 - scale.TAIL:g}th percentile",
    ):
        assert told in TOLD, told
    assert people.NEAREST == 5
    assert "the mean distance to the five nearest" in TOLD
    assert scale.GUARD == 10
    assert "more than ten times the percentile scale" in TOLD
    assert TEN.held_out == 3
    assert "Of three held-out models it can only be 0, 1/3, 2/3 or 1" in TOLD
    assert f"{100 * SEARCHED_SHARE} %, rounded down" in SHADOWS
    assert TEN.searched == 7
    assert robust_targets.PEOPLE_STARTS_MAX == 3
    assert f"(of up to {robust_targets.OTHER_STARTS_MAX} of them)" in TOLD
    assert robust_targets.OTHER_COST_MAX == 3
    assert "costs at most three times as much" in TOLD
    assert "toward up to three of" in TOLD
    assert "of ten seven and three" in SHADOWS


def test_its_links_lead_somewhere() -> None:
    """Given the reference's links to other pages, each is there."""
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", DOC))
    assert {"features.md", "shadows.md"} <= linked
    assert all((DOCS / name).is_file() for name in linked)
