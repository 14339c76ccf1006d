"""The page of a report: what it says, that it fetches nothing, and that a real browser shows it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar, cast

import orjson
import pytest

from stream.errors import InvalidDecision, MissingFeature
from stream.recourse.answer import Answer
from stream.replay.judge.verdict import ModeName, Side, Verdict
from stream.replay.report.page import write_page
from stream.replay.report.report import report_bytes, report_of
from stream.replay.report.tally import ReplayTally
from stream.replay.sources.source import Snapshot

HOSTILE = '<script>alert(1)</script><img src="http://example.com/x">$\\frac{1}{2}$ &amp; "q"'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class FakeAnswer:
    """As much of an answer as a tally looks at."""

    body: ClassVar[dict[str, Any]] = {
        "bundle": {"model_id": HOSTILE, "model_version": "2", "revision": 0, "bundle_sha256": "ab" * 32}
    }


FAKE = cast("Answer", FakeAnswer())


def side(margin: float, effort: float, *features: str) -> Side:
    tiers = (("near", effort, features), ("mid", 2 * effort, features), ("far", 3 * effort, (*features, "age")))
    return Side(margin=margin, feasibility="feasible", tiers=tiers)


def what_if_tally() -> ReplayTally:
    """A tally with something of every kind in it; ids and features as bad as they can be."""
    tally = ReplayTally()
    for number in range(40):
        tally.add(Verdict(outcome="still_approved", decision_id=f"a{number}", before=Side(margin=1.0)), "line 1")
    for number in range(7):
        margins = Side(margin=0.2 + number / 9), Side(margin=0.1)
        tally.add(Verdict(outcome="newly_approved", decision_id=HOSTILE, before=margins[0], after=margins[1]), HOSTILE)
    lost = Side(margin=-1.25, feasibility="infeasible")
    for number in range(30):
        before, after = side(-1 - number / 50, 0.5 + number / 10, "income", HOSTILE), side(-0.8, 0.7, "income")
        tally.add(
            Verdict(
                outcome="still_declined",
                decision_id=f"d{number}",
                differs=("near: actions", HOSTILE),
                before=before,
                after=after,
                answer=FAKE,
            ),
            f"decisions[0]@{number}",
        )
    tally.add(
        Verdict(outcome="still_declined", decision_id="lost", before=side(-1, 1, "income"), after=lost, answer=FAKE),
        "decisions[0]@99",
    )
    tally.add(Verdict(outcome="error", decision_id=None, error=MissingFeature("x")), "decisions[1]@5")
    tally.add(Verdict(outcome="error", decision_id="e", error=InvalidDecision("x")), "decisions[1]@6")
    return tally


def report(mode: ModeName, tally: ReplayTally) -> dict[str, Any]:
    parameters = {
        "run_id": "spring-check", "mode": mode, "model": HOSTILE, "threshold": 0.6, "threshold_scale": None, "topic": "decisions",
        "archive": None, "engine_version": "2", "features_sha256": None, "policy_sha256": None,
    }  # fmt: skip
    source = Snapshot(kind="kafka", says={"topic": "decisions"}, ranges={0: (0, tally.records)}, records=tally.records)
    return report_of(parameters, source, tally)


class Page(HTMLParser):
    """What a page would run or fetch, and how its tables and figures are marked."""

    VOID = frozenset({"meta", "link", "img", "br", "input", "hr", "use", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep."""
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """All elements of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("mode", ["reproduce", "what-if", "backfill"])
def test_a_page_is_a_pure_function_that_fetches_nothing(mode: ModeName) -> None:
    """Given a report of any mode, when its page is written twice, then the bytes are equal, there is no script and no address to fetch from, and what others chose as names is text."""
    tally = what_if_tally() if mode == "what-if" else ReplayTally()
    first, second = (write_page(report(mode, tally)).decode() for _ in range(2))
    assert first == second
    page = Page(first)
    assert not {"script", "iframe", "img", "object", "embed", "form"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), attributes
    assert not re.search(r"url\((?!#)|@import", first)
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)", "", first)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "two elements share an id"


def test_a_page_can_be_read_without_seeing_it() -> None:
    """Given a page with plots, when read by its marks alone, then it has a language and a title, each figure says what it shows, and each table names its columns."""
    page = Page(write_page(report("what-if", what_if_tally())).decode())
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) == 1
    figures = page.all("figure")
    assert len(figures) == 4
    assert all(len(str(one["aria-label"])) > 20 and one["role"] == "img" for one in figures)
    assert all(one.get("aria-hidden") == "true" for one in page.all("svg"))
    assert all(one.get("scope") in ("col", "row") for one in page.all("th"))


def test_the_numbers_of_a_page_are_those_of_the_report() -> None:
    """Given a report, when its page is read, then each outcome stands there with its count, and nothing that the report does not have."""
    found = report("what-if", what_if_tally())
    text = write_page(found).decode()
    rows = re.findall(r'<th scope="row">([^<]+)</th><td class="n">([\d,]+)</td><td class="n">[\d.]+ %</td>', text)
    assert {name: int(count) for name, count in rows if name != "All"} == {
        "Still approved": 40, "Newly declined": 0, "Newly approved": 7, "Still declined": 31, "Approved by a person": 0,
        "Declined otherwise": 0, "Not replayed": 2, "Repeats": 0, "Outside the window": 0, "Of a replay": 0,
    }  # fmt: skip
    assert found["recourse"]["no_longer_feasible"] == 1
    assert write_page(orjson.loads(report_bytes(found))).decode() == text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_real_browser_shows_it_and_asks_nobody(tmp_path: Path, pytestconfig: pytest.Config, scheme: str) -> None:
    """Given the page on disk, when Chromium opens it, then it draws it in full, tries no address, and reports no error."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is required here (CI)")
        pytestconfig.get_terminal_writer().line(
            "\n>>> NO CHROMIUM: nobody looked at the replay's page", bold=True, red=True
        )
        pytest.skip("no Chromium here")
    (tmp_path / "report.html").write_bytes(write_page(report("what-if", what_if_tally())))
    log = tmp_path / "net.json"
    done = subprocess.run(
        [
            CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--enable-logging=stderr",
            *(["--force-dark-mode"] if scheme == "dark" else []), "--window-size=1100,3000", "--dump-dom",
            f"--screenshot={tmp_path / 'page.png'}", (tmp_path / "report.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Replay <code>spring-check</code>" in done.stdout
    assert done.stdout.count("<svg") == 4
    assert "CONSOLE" not in done.stderr, done.stderr
    asked = set(re.findall(r'"url":"([a-z-]+://[^"]*)', log.read_text(errors="replace")))
    of_the_page = {one for one in asked if "example.com" in one}
    assert not of_the_page
    assert (tmp_path / "page.png").stat().st_size > 20_000
