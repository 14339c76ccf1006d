from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream.cli.main import coach
from stream.notify.contacts.contact import Contact
from stream.notify.settings import NotifySettings
from stream.notify.transports.outbox import Outbox, count_without_address
from stream.notify.warnings import missing_by_law, warn_of_missing, warn_of_missing_addresses
from tests.notify.answers import ok_one, recommendations
from tests.notify.letter_builder import letter_of, package_of
from tests.notify.notifier_room import LENDER
from tests.notify.world import World

BOTH = {"COACH_NOTIFY_LENDER_ADDRESS", "COACH_NOTIFY_LENDER_NOTICE"}


def warnings(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What was said with a warning of one event."""
    return [
        record.__dict__
        for record in caplog.records
        if record.getMessage() == event and record.levelno == logging.WARNING
    ]


def test_what_the_law_wants_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Given a lender without an address or a legal notice, when the notifier starts, then it warns of each setting, by its name and with the rule; with both it is silent."""
    warn_of_missing(NotifySettings())
    logged = warnings(caplog, "notify.setting_missing")
    assert {one["setting"] for one in logged} == BOTH
    assert all("12 CFR 1002.9" in one["why"] for one in logged)
    caplog.clear()
    full = NotifySettings(notify_lender_address="1 Main St", notify_lender_notice="The ECOA notice")
    warn_of_missing(full)
    assert caplog.records == []
    assert set(missing_by_law(NotifySettings(notify_lender_notice="x"))) == {"COACH_NOTIFY_LENDER_ADDRESS"}


def test_check_says_what_the_law_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a lender without an address or a legal notice, when checked, then a line warns of each, and the exit code stays 0."""
    monkeypatch.chdir(tmp_path)
    some = {name: value for name, value in LENDER.items() if name not in BOTH}
    done = CliRunner().invoke(coach, ["notify", "check", "--offline"], env=some, catch_exceptions=False)
    assert done.exit_code == 0
    logged = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("WARNING: ")]
    assert set(logged) == BOTH


def test_letters_in_another_language_are_counted_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given contacts who want German and French where only English is there, one with English of another land, and one whose locale is none, when their letters go out, then each locale is warned of once and its letters are counted, and what is no locale is not repeated."""
    here = World(folder=tmp_path)
    wanted = ["de-AT", "de-AT", "fr", "en-GB", "", "Pat Doe, 1 Main St"]
    here.people = {
        f"s-{n}": Contact(channel="print", locale=one, postal_address=("x",)) for n, one in enumerate(wanted)
    }
    here.put(*recommendations(len(wanted)))
    started = here.run()
    logged = warnings(caplog, "notify.locale_fallback")
    assert sorted(one["wanted"] for one in logged) == ["de-AT", "fr", "other"]
    counted = started.counters.read()
    assert {name: count for name, count in counted.items() if "locale_fallback" in name} == {
        "notices_locale_fallback:de-AT": 2,
        "notices_locale_fallback:fr": 1,
        "notices_locale_fallback:other": 1,
    }
    assert "Pat Doe" not in str([record.__dict__ for record in caplog.records])


def test_letters_by_hand_are_counted(tmp_path: Path) -> None:
    """Given applicants whom nobody knows, and one with an address, when their letters are printed, then those without an address are counted as by hand."""
    here = World(folder=tmp_path)
    here.people = {"s-0": Contact(channel="print", postal_address=("1 Main St",))}
    here.put(*recommendations(4))
    started = here.run()
    assert started.counters.total("notices_by_hand_total") == 3
    assert sum(package.needs_address for _, package in here.letters) == 3


def test_letters_that_lie_in_by_hand_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given an outbox, when its totals are told, then a warning gives the number of letters in by-hand until they are taken out; an outbox that is not there says nothing."""
    outbox = Outbox(tmp_path)
    warn_of_missing_addresses(tmp_path)
    warn_of_missing_addresses(tmp_path / "nowhere")
    assert caplog.records == []
    letter = letter_of(ok_one())
    outbox.send(package_of(letter, decision_id="d-with-address"))
    places = [outbox.send(package_of(letter, decision_id=f"d-{n}", needs_address=True)) for n in range(3)]
    warn_of_missing_addresses(tmp_path)
    assert [one["count"] for one in warnings(caplog, "notify.by_hand")] == [3]
    for place in places:
        (tmp_path / place).unlink()
    assert count_without_address(tmp_path) == 0
