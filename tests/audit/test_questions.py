"""The questions of docs/audit-archive.md, asked of an archive that the sink wrote; the records themselves answer as well."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from stream.audit.archive.target import Target
from tests.audit.archive.topic import MemoryTopic, audit_record, sink_once, stored

Json = Any
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "audit-archive.md"
SQL: Final = re.compile(r"^### (\d)\..*?^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
COUNT: Final = 90


def of_number(number: int) -> Json:
    """A record of its own month, place, applicant and revision."""
    month, version = 10 + number // 40, f"2026-{9 + number % 2:02d}"
    return audit_record(
        number,
        event_time=f"2026-{month:02d}-{1 + number % 28:02d}T23:59:59.999Z",
        model_version=version,
        subject_ref=f"s-{1000 + number % 30}",
        jurisdiction=("US", "DE", None)[number % 3],
        bundle={"revision": 1 + number % 2, "bundle_sha256": f"{number % 2}" * 64},
    )


@pytest.fixture(scope="module")
def records() -> list[Json]:
    """What the lender decided: ninety decisions, three delivered twice, two answered again by another revision."""
    made = [of_number(number) for number in range(COUNT)]
    again = [of_number(number) for number in (4, 5, 6)]
    revised = [
        audit_record(number, bundle={"revision": 3, "bundle_sha256": "c" * 64}, **changed)
        for number in (8, 9)
        for changed in [{k: v for k, v in made[number]["body"]["decision"].items() if k in CHANGED}]
    ]
    replayed = audit_record(2, envelope={"replay": True, "run_id": "spring-check"})
    return [*made, *again, *revised, replayed]


CHANGED: Final = ("event_time", "model_version", "subject_ref", "jurisdiction")


@pytest.fixture(scope="module")
def database(records: list[Json], tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the page's views, in the folder in which the archive lies."""
    folder = tmp_path_factory.mktemp("questions")
    topic = MemoryTopic(records={0: [stored(offset, record) for offset, record in enumerate(records)]})
    sink_once(topic, Target(str(folder / "archive")), range_offsets=40)
    views = PAGE.read_text().split("## Questions of a reviewer")[1].split("```sql\n")[1].split("```")[0]
    with duckdb.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        connection.execute(views)
        yield connection


@pytest.fixture
def answers(records: list[Json]) -> list[Json]:
    """The bodies of all answers, each once, without replays."""
    found = {one["body"]["recommendation_id"]: one["body"] for one in records if not one["envelope"]["replay"]}
    return list(found.values())


def asked(database: duckdb.DuckDBPyConnection, number: int) -> list[dict[str, Any]]:
    """The rows that a question of the page gives."""
    statements = {int(found[1]): found[2] for found in SQL.finditer(PAGE.read_text())}
    result = database.execute(statements[number])
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def test_what_one_applicant_was_told(database: duckdb.DuckDBPyConnection, records: list[Json]) -> None:
    """Given an applicant with several decisions, then each delivery is there with its reasons, its advice and its hash."""
    theirs = [one["body"] for one in records if one["body"]["decision"]["subject_ref"] == "s-1007"]
    rows = asked(database, 1)
    assert len(rows) == len(theirs) == 3
    for row, body in zip(rows, sorted(theirs, key=lambda one: str(one["decision"]["event_time"])), strict=True):
        assert row["decision_id"] == body["decision"]["decision_id"]
        assert row["reasons"] == [f"{one['code']}: {one['text']}" for one in body["reasons"]]
        assert [advice.split(": ")[0] for advice in row["advice"]] == [tier["tier"] for tier in body["tiers"]]
        for advice, tier in zip(row["advice"], body["tiers"], strict=True):
            told = dict(one.split(" from ") for one in advice.split(": ", 1)[1].split(", "))
            assert {name: _value(text.split(" to ")[1]) for name, text in told.items()} == tier["target"]
    assert any(row["advice"] for row in rows)


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def is_rounded(published: float, exact: Fraction) -> bool:
    """Whether a published number has at most four decimals, and no number of four decimals is nearer to the exact one."""
    number = Fraction(str(published))
    return (number * 10_000).denominator == 1 and abs(number - exact) <= Fraction(1, 20_000)


def test_reasons_by_month(database: duckdb.DuckDBPyConnection, answers: list[Json]) -> None:
    """Given decisions of several months, then each reason is counted in its month, and shares are of the month's reasons."""
    counts = Counter((body["decision"]["event_time"][:7], one["code"]) for body in answers for one in body["reasons"])
    rows = asked(database, 2)
    assert {(row["month"], row["code"]): row["declines"] for row in rows} == counts
    totals: Counter[str] = Counter()
    for (month, _), count in counts.items():
        totals[month] += count
    for row in rows:
        assert is_rounded(row["share"], Fraction(row["declines"], totals[row["month"]]))


def test_who_was_told_that_nothing_helps(database: duckdb.DuckDBPyConnection, answers: list[Json]) -> None:
    """Given declines for which there is no feasible recourse, then they are named by version and revision, beside how many declines there were."""
    expected: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    declines: Counter[tuple[Any, ...]] = Counter()
    for body in answers:
        key = (body["decision"]["model_version"], body["bundle"]["revision"], body["engine_version"])
        declines[key] += body["status"] != "not_model_decline"
        expected[key] += [body["decision"]["decision_id"]] * (body["status"] == "no_feasible_recourse")
    rows = asked(database, 3)
    found = {(row["model_version"], row["revision"], row["engine_version"]): row for row in rows}
    assert {key: row["model_declines"] for key, row in found.items()} == declines
    assert {key: row["decisions"] or [] for key, row in found.items()} == {k: sorted(v) for k, v in expected.items()}
    assert sum(row["nothing_helps"] for row in rows) > 0


def test_declines_that_were_close(database: duckdb.DuckDBPyConnection, answers: list[Json]) -> None:
    """Given declines at all distances, then those within half a unit of margin are named, with what the nearest tier would have changed."""
    expected = {}
    for body in answers:
        short = body["cutoff_margin"] - body["margin"]
        if body["decision"]["decline_basis"] == "model" and 0 < short < 0.5:
            near = [tier for tier in body["tiers"] if tier["tier"] == "near"]
            features = sorted(near[0]["target"]) if near else None
            expected[body["recommendation_id"]] = (body["decision"]["decision_id"], short, features)
    rows = asked(database, 4)
    assert sorted((row["decision_id"], row["margin_short"], row["features"]) for row in rows) == sorted(
        expected.values()
    )
    assert rows == sorted(rows, key=lambda row: (row["margin_short"], row["decision_id"]))
    assert 0 < len(rows) < len(answers)


def test_reasons_by_jurisdiction(database: duckdb.DuckDBPyConnection, answers: list[Json]) -> None:
    """Given decisions of several jurisdictions, then a reason's share there stands against its share anywhere."""
    named = [body for body in answers if body["decision"]["jurisdiction"] is not None]
    model = Counter(b["decision"]["jurisdiction"] for b in named if b["decision"]["decline_basis"] == "model")
    given = Counter((b["decision"]["jurisdiction"], code) for b in named for code in {r["code"] for r in b["reasons"]})
    all_model = sum(body["decision"]["decline_basis"] == "model" for body in answers)
    rows = asked(database, 5)
    assert {(row["jurisdiction"], row["code"]): row["times"] for row in rows} == given
    for row in rows:
        anywhere = Fraction(sum(count for (_, code), count in given.items() if code == row["code"]), all_model)
        share = Fraction(given[row["jurisdiction"], row["code"]], model[row["jurisdiction"]])
        assert is_rounded(row["share"], share)
        assert is_rounded(row["against_all"], share / anywhere)


def test_who_was_answered_in_two_ways(database: duckdb.DuckDBPyConnection) -> None:
    """Given decisions answered again by another revision, and others delivered twice with one answer, then the former alone are named."""
    rows = asked(database, 6)
    assert [(row["decision_id"], row["revisions"]) for row in rows] == [("d-000008", [1, 3]), ("d-000009", [2, 3])]
