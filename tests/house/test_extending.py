from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from stream.events import TIERS, TierName
from stream.runtime.kafka.topics import topic_specs
from stream.runtime.settings import Settings

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
