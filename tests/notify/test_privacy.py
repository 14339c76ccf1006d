from __future__ import annotations

import copy
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.errors import ContactRefused, MailUnavailable
from stream.events import Recommendation
from stream.notify.contacts.contact import Contact
from stream.notify.transports.transport import AddressRefused, TemporaryRefusal
from stream.runtime.logs import JsonFormatter
from tests.examples import examples
from tests.notify.answers import recommendations, step_labels
from tests.notify.world import World

SECRETS = ("Zebediah", "Quillfeather", "zq@people.example", "77 Marzipan Lane", "k-of-the-hash")
WORD, NUMBER = "Wombat", 918_273_645_546.25  # so long that no time or hash has the same digits by chance


def distinctive(one: Recommendation, number: int) -> Recommendation:
    """The same answer with values that are found nowhere by chance: none is short, and no two are equal."""
    changed: Any = copy.deepcopy(one)
    actions = [action for tier in changed["tiers"] for action in tier["actions"]]
    for place, action in enumerate(actions):
        low, high = (NUMBER + 1_000 * number + 20 * place + more for more in (1, 11))
        if isinstance(action["to"], str):
            action["from"], action["to"] = f"{WORD}-{number}-{place}-a", f"{WORD}-{number}-{place}-b"
        elif action["direction"] == "decrease":
            action["from"], action["to"] = high, low
        else:
            action["from"], action["to"] = low, high
    return changed  # type: ignore[no-any-return]


def values_of(one: Recommendation) -> set[str]:
    """Each value of its actions as a text: whole, and without what comes behind the point."""
    actions = [action for tier in one["tiers"] for action in tier["actions"]]
    values = {str(value) for action in actions for value in (action["from"], action["to"])}
    return values | {value.partition(".")[0] for value in values}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_address_or_value_is_in_log_metric_record_or_error(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """Given letters that go out, bounce, wait, fail or meet an outage, when all is said and done, then no log line, metric or dead letter's message holds a name, an address or a feature's value, and no notice a name or an address."""
    weather = random.Random(seed)  # noqa: S311 - no secret
    caplog.clear()
    caplog.set_level(logging.DEBUG)

    def trouble(step: str) -> None:
        if weather.random() < 0.2 and step in ("contacts", "send email", "send print"):
            raise weather.choice(
                [MailUnavailable("away"), ZeroDivisionError("zq@people.example")]
                + [TemporaryRefusal("451")] * (step != "contacts")
                + [AddressRefused("550 5.1.1")] * (step == "send email")
                + [ContactRefused("unusable")] * (step == "contacts")
            )

    folder = tmp_path_factory.mktemp("privacy")
    here = World(folder=folder, trouble=trouble, settings={"notify_address_key": "k-of-the-hash"})
    contact = Contact(
        channel=weather.choice(["email", "print", "files"]),
        address="zq@people.example",
        consent=weather.random() < 0.7,
        bounced=weather.random() < 0.2,
        name="Zebediah Quillfeather",
        postal_address=("77 Marzipan Lane",),
    )
    answers = [distinctive(one, number) for number, one in enumerate(recommendations(6))]
    here.people = {f"s-{n}": contact for n in range(5)}
    here.put(*answers)
    started = here.run()
    lines = "\n".join(JsonFormatter().format(record) for record in caplog.records)
    metrics = started.counters.exposition().decode()
    messages = json.dumps([one["message"] for one in here.dead])
    for secret in SECRETS:
        assert secret not in lines + metrics + messages
        assert secret not in json.dumps(here.notices)
    values = set().union(*map(values_of, answers))
    assert min(map(len, values)) >= 10
    said = (lines + metrics + messages).replace(",", "")
    assert not [value for value in values if value in said]
    letters = "".join(package.letter.text for _, package in here.letters)
    if step_labels(letters):  # they were there to be told: where there are steps, the letter tells them
        assert any(value in letters.replace(",", "") for value in values)


def test_a_notice_has_no_place_for_a_name_or_an_address(tmp_path: Path) -> None:
    """Given a notice, then its fields are these: whoever adds one for a name or an address meets this test."""
    here = World(folder=tmp_path)
    here.put(*recommendations(1))
    here.run()
    assert set(here.notices[-1]) == {
        "notice_id", "decision_id", "subject_ref", "kind", "recommendation_id", "recommendation_sha256", "status",
        "channel", "channel_why", "locale", "template_version", "subject", "text", "html", "rendered_sha256",
        "recorded_at", "sent_at", "notice_due_at", "attempts", "reply", "duplicate_possible", "address_hmac", "error",
        "software_version",
    }  # fmt: skip
