from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from stream.notify.contacts.contact import read_contact
from stream.notify.deadlines import Deadlines
from stream.notify.letters.letter_writer import choose_channel
from stream.notify.settings import CHANNELS, Channel, ChannelRules, NotifySettings, read_notify_settings
from stream.notify.transports.outbox import Files
from stream.notify.transports.table import TRANSPORTS, TransportKind, open_transports
from tests.service.room import REPOSITORY


@pytest.fixture
def pigeon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A toy channel: one row in each table."""
    rules = ChannelRules(switch="notify_webhook_url", requires="notify_webhook_secret", needs_address=True)
    kind = TransportKind(open=lambda _settings, _deadlines: Files(tmp_path / "pigeons"))
    monkeypatch.setitem(cast("dict[str, Any]", CHANNELS), "pigeon", rules)
    monkeypatch.setitem(cast("dict[str, Any]", TRANSPORTS), "pigeon", kind)
    return "pigeon"


def test_each_channel_has_its_rules_its_transport_and_its_symbol() -> None:
    """Given the schema of a notice, then its channels are those of the type, of the settings and of the transports."""
    schema = json.loads((REPOSITORY / "schemas" / "notice.avsc").read_text("utf-8"))
    [symbols] = [one["type"][1]["symbols"] for one in schema["fields"] if one["name"] == "channel"]
    assert tuple(symbols) == get_args(Channel) == tuple(CHANNELS) == tuple(TRANSPORTS)


def test_a_new_channel_needs_two_rows(pigeon: str, tmp_path: Path) -> None:
    """Given a row for a new channel in each table, then settings list it, a contact may ask for it, a letter takes it, and its transport is opened; it is off without its switch."""
    named = {"COACH_NOTIFY_CHANNELS": pigeon, "COACH_NOTIFY_OUTBOX": str(tmp_path / "letters")}
    settings = read_notify_settings(
        named | {"COACH_NOTIFY_WEBHOOK_URL": "https://loft.example", "COACH_NOTIFY_WEBHOOK_SECRET": "s"}
    )
    assert settings.channels == (pigeon,)
    assert read_notify_settings(named).channels == ()
    contact = read_contact({"channel": pigeon, "consent": "yes", "address": "loft 7"})
    assert choose_channel(contact, "s-1", settings.channels) == (pigeon, "as_asked")
    homeless = read_contact({"channel": pigeon, "consent": "yes"})
    assert choose_channel(homeless, "s-1", settings.channels) == ("print", "no_address")
    assert set(open_transports(settings, Deadlines())) == {"print", pigeon}
    assert NotifySettings(notify_channels="files").channels == ("files",)
