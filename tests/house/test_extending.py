from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from stream.events import TIERS, TierName
from stream.runtime.settings import Settings
from stream.runtime.topic_specs import topic_specs
from tests.house.extended_copy import ExtendedCopy
from tests.house.toy_kinds import (
    APPEAL_READ,
    BUILD_AND_ANSWER,
    LETTERS_SENT,
    TIERS_ANSWERED,
    add_library,
    add_tier,
    add_topic,
    add_transport,
)

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
FILES_MAX = {"A transport of letters": 3, "A topic": 4, "A tier": 5, "A model library": 7}


def symbols(schema: str, name: str) -> list[str]:
    """The symbols of an enum of a schema."""
    text = (REPOSITORY / "schemas" / schema).read_text(encoding="utf-8")
    found = re.search(rf'"name": "{name}".*?"symbols": (\[[^\]]*\])', text, re.DOTALL)
    assert found is not None
    listed: list[str] = json.loads(found.group(1))
    return listed


@pytest.mark.parametrize(("kind", "steps_max"), FILES_MAX.items())
def test_each_kind_is_added_in_few_steps(kind: str, steps_max: int) -> None:
    """Given the section of a kind, when its steps are counted, then they are few, and each file that it names is there."""
    section = PAGE.partition(f"## {kind}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. ", section, re.MULTILINE)
    assert 0 < len(steps) <= steps_max
    for path in re.findall(r"`((?:stream|schemas|docs)/[\w/.]*)`", section):
        assert (REPOSITORY / path).exists(), path


def test_every_topic_of_the_settings_has_its_record() -> None:
    """Given the settings that name topics, then each topic has one record of what it must be."""
    settings = Settings()
    named = [str(getattr(settings, field.name)) for field in fields(settings) if field.name.startswith("topic_")]
    assert sorted(named) == sorted(spec.name for spec in topic_specs(settings))


@pytest.mark.parametrize("schema", ["audit_record.avsc", "recommendation.avsc"])
def test_every_tier_has_its_symbol(schema: str) -> None:
    """Given the tiers, then a schema's symbols are theirs, in their order."""
    assert list(TIERS) == list(get_args(TierName)) == symbols(schema, "TierName")


@pytest.fixture
def copy(tmp_path: Path) -> ExtendedCopy:
    """The package of this checkout, to be extended."""
    return ExtendedCopy.of_this_checkout(tmp_path / "copy")


def steps_of(kind: str) -> set[str]:
    """The files and rooms that the page names for a kind."""
    section = PAGE.partition(f"## {kind}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`((?:stream|schemas)/[\w/.]*)`", section))


def test_a_toy_transport_is_added_by_the_steps(copy: ExtendedCopy) -> None:
    """Given the steps for a transport, when one of pigeons is added to a copy of the package, then it is on with its setting, takes the letters of those who ask for it, its refusals are printed, and each notice names it."""
    add_transport(copy)
    assert copy.touched - {"stream/notify/transports/loft.py"} <= steps_of("A transport of letters")
    found = copy.run(LETTERS_SENT)
    assert found == {
        "channels": ["files", "pigeon"],
        "without its switch": [],
        "sent": [["pigeon", "as_asked"], ["print", "no_loft"], ["print", "no_address"]],
        "landed": True,
    }


def test_a_toy_topic_is_added_by_the_steps(copy: ExtendedCopy) -> None:
    """Given the steps for a topic, when one for appeals is added to a copy of the package, then its name is a setting, the table has it, and its record is written and read."""
    add_topic(copy)
    assert copy.touched - {"stream/appeals.py"} <= steps_of("A topic")
    found = copy.run(APPEAL_READ)
    assert found.pop("topics")[-2:] == ["lender.appeals", "notices"]
    assert found == {"record": "Appeal", "read": {"decision_id": "d-1", "text": "Look again."}}


def test_a_toy_tier_is_added_by_the_steps(copy: ExtendedCopy) -> None:
    """Given the steps for a tier, when a fourth is added to a copy of the package, then each answer has four tiers that the verifier, the contract of letters and Avro accept."""
    add_tier(copy)
    assert copy.touched <= steps_of("A tier")
    found = copy.run(TIERS_ANSWERED)
    assert found == {"tiers": ["near mid far beyond"], "faults": [], "read again": True}


def test_a_toy_library_is_added_by_the_steps(copy: ExtendedCopy) -> None:
    """Given the steps for a model library, when one that nobody has seen is added to a copy of the package, then the gate finds its bits, shadows are trained with it, its declines are answered and the verifier finds every number right."""
    add_library(copy)
    known = steps_of("A model library")
    assert {path for path in copy.touched if "/forest/stumps/" not in path} <= known
    found = copy.run(BUILD_AND_ANSWER)
    assert found.pop("compared") > 1_000
    declined, below_the_cutoff = found.pop("declined")
    assert found == {"answered": declined, "library": ["stumps"], "faults": []}
    assert declined == below_the_cutoff > 20
