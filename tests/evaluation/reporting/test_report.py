from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.judging.bars import BARS, verdicts
from tests.evaluation.ours import TIERS, TOP_K
from tests.evaluation.protocol import OURS, PAPERS, PEOPLE
from tests.evaluation.reporting.page import Cell, Section, Table, as_html, as_markdown
from tests.evaluation.reporting.report import write_report
from tests.evaluation.reporting.summary import Protocol, comparisons
from tests.evaluation.results import Record, Results
from tests.evaluation.sizes import SMOKE


def _measures(valid: list[int], lasting: list[float], effort: list[float]) -> dict[str, list[Any]]:
    """Measures of as many queries; one that is not valid has an answer all the same."""
    n = len(valid)
    return {
        "answered": [1] * n, "valid": valid, "lasting": lasting, "effort": effort, "changed": [2] * n,
        "manifold": [1.5] * n,
    }  # fmt: skip


def _protocol_records(splits: int) -> list[Record]:
    """Made-up records of one dataset: ours is always valid, the paper's method for one query of two."""
    records: list[Record] = []
    for split in range(splits):
        said: Record = {
            "part": "protocol",
            "main": True,
            "dataset": "heloc",
            "library": "xgboost",
            "depth": 4,
            "trees": 60,
        }
        said["split"] = split
        people = {"genuine": 2.1, "declined_manifold": 3.0, "features": 20, "queries": 2, "declined": 9}
        records.append(said | {"method": PEOPLE} | people)
        for method in (*OURS, *PAPERS):
            own = method in OURS
            measures = _measures([1, int(own)], [1.0, 0.5], [1.0 + 0.01 * split, 2.0 if own else 9.0])
            record = said | {"method": method, "ms": [3.0, 5.0], "free": measures, "feasible": measures}
            record["top_k"] = {str(k): [1, 0] for k in TOP_K}
            record |= {"audit": {"coverage": 1.0, "error": 0.0, "faults": 0}} if own else {"agreement": [0.5, 0.7]}
            records.append(record)
    return records


def _bar_record(seed: int, **near: float) -> Record:
    """A made-up record of ours on HELOC that meets every bar, but for what is given of near."""
    tier = {"coverage": 1.0, "valid": 1.0, "retrain_valid": 0.95, "robust_share": 0.94, "effort": 1.0, "actions": 2.0}
    tiers = {name: tier | {"manifold": 2.0} for name in TIERS}
    tiers["near"] = tiers["near"] | near
    judge = {"faults": {}, "tiers": tiers, "declined": 20, "genuine_manifold": 2.1}
    said: Record = {
        "part": "bars",
        "dataset": "heloc",
        "library": "xgboost",
        "seed": seed,
        "method": "ours",
        "judge": judge,
    }
    more = {"audit_faults": 0, "time_ratio": 0.25, "ms": [4.0, 6.0], "build_seconds": 9.0, "apart_from_judge": 0.0}
    return said | more


@pytest.mark.parametrize(
    ("efforts", "met"),
    [
        ((1.0, 1.15), (True, True)),
        ((1.0, 1.25), (True, False)),
        ((1.15, 1.0), (False, True)),
        ((1.2, 1.15), (False, False)),
    ],
)
def test_a_bar_is_held_against_the_default_split_and_the_mean(
    efforts: tuple[float, ...], met: tuple[bool, bool]
) -> None:
    """Given two seeds around the limit of near's effort, 1.10, when held against it, then seed 0 and the mean have a verdict each."""
    held = verdicts([_bar_record(seed, effort=effort) for seed, effort in enumerate(efforts)])
    assert len(held) == len(BARS)
    verdict = next(one for one in held if one.bar.name == "near: effort")
    assert (verdict.met_first, verdict.met_by_mean) == met
    assert verdict.seeds_met == sum(effort <= 1.1 for effort in efforts)
    assert all(one.met_first and one.met_by_mean for one in held if one is not verdict)


def test_what_is_not_published_is_not_met() -> None:
    """Given answers without robust_share, when held against its bar, then it is not met."""
    record = _bar_record(0)
    record["judge"]["tiers"]["mid"]["robust_share"] = None
    verdict = next(one for one in verdicts([record]) if "robust_share" in one.bar.name)
    assert not verdict.met_first
    assert math.isinf(verdict.mean)


def test_figures_are_means_over_splits_of_means_over_queries() -> None:
    """Given two splits, when summed up, then validity, effort and the share of features are those by hand."""
    protocol = Protocol(_protocol_records(2))
    assert protocol.figure("heloc", PAPERS[0], "feasible", "valid") == 0.5
    assert protocol.figure("heloc", PAPERS[0], "feasible", "effort") == ((1.0 + 9.0) / 2 + (1.01 + 9.0) / 2) / 2
    assert protocol.sparsity("heloc", OURS[0], "feasible") == 0.1
    assert protocol.milliseconds("heloc", OURS[0]) == 4.0


def test_effort_is_compared_where_both_are_accepted() -> None:
    """Given a rival that is dear where it fails, when effort is compared, then only the query that both serve counts."""
    protocol = Protocol(_protocol_records(3))
    effort = protocol.difference("heloc", OURS[0], PAPERS[0], "effort")
    valid = protocol.difference("heloc", OURS[0], PAPERS[0], "valid")
    assert effort is not None
    assert valid is not None
    assert (effort.mean, valid.mean) == (0.0, 0.5)


def test_every_comparison_is_of_one_family() -> None:
    """Given two rivals and four figures, when tested, then eight comparisons are corrected together."""
    found = comparisons(Protocol(_protocol_records(3)))
    assert len(found) == 8
    assert all(one.corrected >= one.difference.p for one in found)
    assert {one.better for one in found if one.figure == "valid"} == {True}
    assert {one.better for one in found if one.figure == "effort"} == {None}


def test_a_page_escapes_what_it_is_told() -> None:
    """Given a cell with angle brackets, when written as HTML, then they are text; the Markdown has the same figures."""
    table = Table(title="t", header=["a", "b"], rows=[[Cell("x < y"), Cell("0.5", "met")], [Cell("a heading")]])
    section = Section(title="One & two", text=["see `code`"], parts=[table])
    page = as_html("title", ["lead"], [section])
    assert "x &lt; y" in page
    assert '<td class="met">0.5</td>' in page
    assert 'id="one-two"' in page
    assert "<code>code</code>" in page
    assert "<!-- BODY -->" not in page
    assert "| x < y | 0.5 |" in as_markdown("title", ["lead"], [section])


@pytest.mark.parametrize("parts", ["bars", "protocol", "both", "none"])
def test_a_report_is_written_of_whatever_is_there(tmp_path: Path, parts: str) -> None:
    """Given results of one part, of both or of none, when reported, then page, Markdown and the plots it links are there."""
    results = Results(tmp_path / "results")
    records = [] if parts in ("protocol", "none") else [_bar_record(0)]
    records += [] if parts in ("bars", "none") else _protocol_records(2)
    for i, record in enumerate(records):
        results.add(f"unit-{i:03d}", record)
    page = write_report(results, SMOKE, tmp_path / "report")
    markdown = page.with_suffix(".md").read_text("utf-8")
    linked = {line.split("](")[1].rstrip(")") for line in markdown.splitlines() if line.startswith("![")}
    assert linked == {path.name for path in page.parent.glob("*.svg")}
    assert bool(linked) == (parts != "none")
    assert page.read_text("utf-8").count("<figure>") == len(linked)
    again = write_report(results, SMOKE, tmp_path / "again")
    assert all((again.parent / name).read_bytes() == (page.parent / name).read_bytes() for name in linked)
