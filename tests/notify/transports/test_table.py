from __future__ import annotations

import json
from typing import get_args

from stream.notify.settings import CHANNELS, Channel
from stream.notify.transports.table import TRANSPORTS
from tests.service.room import REPOSITORY


def test_each_channel_has_its_rules_its_transport_and_its_symbol() -> None:
    """Given the schema of a notice, then its channels are those of the type, of the settings and of the transports."""
    schema = json.loads((REPOSITORY / "schemas" / "notice.avsc").read_text("utf-8"))
    [symbols] = [one["type"][1]["symbols"] for one in schema["fields"] if one["name"] == "channel"]
    assert tuple(symbols) == get_args(Channel) == tuple(CHANNELS) == tuple(TRANSPORTS)
