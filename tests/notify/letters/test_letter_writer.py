from __future__ import annotations

import pytest

from stream.notify.contacts.contact import read_contact
from stream.notify.letters.letter_writer import choose_channel

PAT = {"channel": "email", "address": "pat@people.example", "consent": "yes"}


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, ("email", "as_asked")),
        ({"consent": ""}, ("print", "no_consent")),
        ({"bounced": "yes"}, ("print", "bounced")),
        ({"address": ""}, ("print", "no_address")),
        ({"channel": "print"}, ("print", "as_asked")),
        ({"channel": "webhook"}, ("print", "channel_off")),
        ({"channel": "files", "address": ""}, ("files", "as_asked")),
        ({"channel": "files", "consent": "no"}, ("print", "no_consent")),
    ],
)
def test_a_letter_goes_electronically_only_with_consent(changes: dict[str, str], chosen: tuple[str, str]) -> None:
    """Given a contact, when the channel is chosen, then electronic only with consent, an address that works, and a channel that is on."""
    assert choose_channel(read_contact({**PAT, **changes}), "s-1", ("email", "files")) == chosen


def test_who_is_unknown_gets_a_printed_letter() -> None:
    """Given no contact or no pseudonym, when the channel is chosen, then print, and why."""
    assert choose_channel(None, "s-1", ("email",)) == ("print", "unknown_subject")
    assert choose_channel(None, None, ("email",)) == ("print", "no_subject_ref")
