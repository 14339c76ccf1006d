"""The sums of a what-if's report against sums of the single answers, made here from `answer` alone."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.bundle.build import build_bundle
from stream.bundle.open import open_bundle
from stream.recourse.answer import answer
from stream.replay.judge.what_if import Change
from stream.replay.request import Request
from stream.replay.run import run_replay
from stream.replay.settings import ReplaySettings
from stream.runtime.settings import Settings
from stream.wire.decisions import decision_of
from tests.service.lender import THRESHOLD, Lender

PEOPLE = 120
CHUNK = 17
MEAN_EFFORT_DIGITS = 6
MEAN_ACTIONS_DIGITS = 4


@pytest.fixture(scope="module")
def bundles(toy: Lender, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small lender's bundle, and one in which little may be changed, each with its features.toml beside it."""
    owner, folder = toy.bundle.parent, tmp_path_factory.mktemp("tight")
    tight = [
        f'["{name}"]\ntype = "number"\nmutability = "{"increase_only" if name == "f1" else "immutable"}"\n'
        for name in toy.features
    ]
    (folder / "features.toml").write_text("\n".join(tight))
    build_bundle(
        model_path=owner / "model.json",
        pool_path=owner / "pool.csv",
        features_path=folder / "features.toml",
        threshold=THRESHOLD,
        out_dir=folder / "bundle",
        target_column="target",
        model_id="toy",
        model_version="2026-10",
        revision=2,
    )
    return {"loose": toy.bundle, "tight": folder / "bundle"}


def told_apart(before: str, after: str) -> str:
    """What became of a person's recourse, in the report's words."""
    was, is_now = before == "ok", after == "ok"
    return {
        (True, True): "still_feasible",
        (False, True): "newly_feasible",
        (True, False): "no_longer_feasible",
        (False, False): "still_infeasible",
    }[was, is_now]


def summed(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers, means and actions by feature of each tier, exactly, from the answers' own words."""
    found: dict[str, Any] = {}
    for tier in ("near", "mid", "far"):
        its_own = [one for body in bodies for one in body["tiers"] if one["tier"] == tier]
        effort = sum((Fraction(one["effort"]) for one in its_own), Fraction(0))
        features = Counter(name for one in its_own for name in one["target"])
        count = len(its_own)
        found[tier] = {
            "answers": count,
            "effort_mean": float(effort / count) if count else None,
            "actions_mean": float(Fraction(features.total(), count)) if count else None,
            "features": dict(features),
        }
    return found


@pytest.mark.parametrize(("rules", "group"), [("loose", "newly_feasible"), ("tight", "no_longer_feasible")])
def test_a_report_of_other_rules_is_the_sum_of_the_single_answers(
    toy: Lender, bundles: dict[str, Path], tmp_path: Path, rules: str, group: str
) -> None:
    """Given decisions and rules that loosen or tighten what may change, when a what-if asks them, then who is newly or no longer feasible, the means of effort and actions before and after, and the actions by feature are what the answers of two bundles built with the two rules add up to."""
    was = bundles["tight" if rules == "loose" else "loose"]
    source = tmp_path / "decisions.jsonl"
    rows = toy.declined(PEOPLE)
    source.write_bytes(b"".join(orjson.dumps(toy.decision(number)) + b"\n" for number in rows))
    before, after = open_bundle(was), open_bundle(bundles[rules])
    decisions = [decision_of(toy.decision(number)) for number in rows]
    bodies: dict[str, list[dict[str, Any]]] = {
        "before": [dict(answer(one, before).body) for one in decisions],
        "after": [dict(answer(one, after).body) for one in decisions],
    }
    request = Request(
        run_id="spring-check",
        mode="what-if",
        file=source,
        bundles=[was],
        change=Change(features=(bundles[rules].parent / "features.toml").read_bytes()),
        to_topics=False,
        out=tmp_path / "out",
        state=tmp_path / "state",
    )
    report = run_replay(request, Settings(), ReplaySettings(replay_chunk_records=CHUNK)).report
    pairs = [(one["status"], other["status"]) for one, other in zip(bodies["before"], bodies["after"], strict=True)]
    expected = Counter(told_apart(*pair) for pair in pairs)
    assert {name: number for name, number in report["recourse"].items() if number} == dict(expected)
    assert expected[group] > PEOPLE // 10
    assert expected["still_feasible"] > PEOPLE // 10
    assert report["outcomes"]["still_declined"] == PEOPLE
    assert len(report["examples"][group]) == min(12, expected[group])
    for side, its_own in bodies.items():
        feasible = sum(one["status"] == "ok" for one in its_own)
        assert report["feasibility"][side] == {
            "feasible": feasible, "infeasible": PEOPLE - feasible, "not_model": 0,
        }  # fmt: skip
        for tier, wanted in summed(its_own).items():
            told = report["tiers"][side][tier]
            assert (told["answers"], told["features"]) == (wanted["answers"], wanted["features"])
            if wanted["answers"]:
                for name, digits in (("effort_mean", MEAN_EFFORT_DIGITS), ("actions_mean", MEAN_ACTIONS_DIGITS)):
                    assert abs(Fraction(told[name]) - Fraction(wanted[name])) <= Fraction(1, 10**digits), name
            else:
                assert told["effort_mean"] is told["actions_mean"] is None
