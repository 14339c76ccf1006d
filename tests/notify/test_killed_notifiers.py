from __future__ import annotations

import random
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream.notify.notices.notice import answer_sha256
from tests.notify.answers import IMMUTABLE, LABELS, contacts_csv, different, recommendations, replaced, step_labels
from tests.notify.notifier_room import NotifierRoom, notifier_room
from tests.notify.transports.smtp_server import SmtpServer
from tests.service.room import wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos]

IMMUTABLE_LABELS = {LABELS[name] for name in IMMUTABLE}


@dataclass(frozen=True, kw_only=True)
class Storm:
    """How hard it blows."""

    letters: int
    kills: int
    seed: int
    notifiers: int = 1
    partitions: int = 2


def test_a_hundred_and_fifty_letters_and_three_kills(stack: Stack, tmp_path: Path) -> None:
    """Given 150 recommendations with duplicates, a mail server that refuses one in five, and a notifier killed 3 times, then each applicant has the letter, duplicates fall only between delivery and record, and nobody has two different letters."""
    blow(stack, tmp_path, Storm(letters=150, kills=3, seed=20261128))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_thousand_letters_and_ten_kills(stack: Stack, tmp_path: Path) -> None:
    """Given 1,000 recommendations with duplicates, a mail server that refuses one in five, and two notifiers killed 10 times, then the same."""
    counts = blow(stack, tmp_path, Storm(letters=1_000, kills=10, seed=4711, notifiers=2, partitions=4))
    print(counts)


def blow(stack: Stack, folder: Path, storm: Storm) -> dict[str, Any]:
    """Send, kill, restart; check all that must hold; return the figures."""
    weather = random.Random(storm.seed)  # noqa: S311 - a storm, no secret
    answers = recommendations(storm.letters)
    later = [different(one) for one in answers[:: storm.letters // 25]]
    contacts = folder / "contacts.csv"
    people = [f"s-{n}" for n in range(storm.letters)]
    refused, no_consent = people[3::50], people[7::50]
    contacts.write_text(contacts_csv(people, refused=refused, no_consent=no_consent))
    began_s = time.monotonic()
    with (
        SmtpServer(folder / "post", refuse_every=5) as post,
        notifier_room(stack, folder, post.environment(), partitions=storm.partitions, contacts=str(contacts)) as here,
    ):
        duplicates = weather.sample(answers, storm.letters // 5)
        replays = [replaced(one, replay=True, run_id="r") for one in answers[:10]]
        mixed = [*answers, *duplicates, *replays]
        weather.shuffle(mixed)
        here.send([*mixed, *later])
        in_the_gap = let_it_blow(here, post, storm, weather)
        here.until_done(timeout_s=300)
        for one in here.notifiers:
            if one.alive:
                assert one.stop() == 0
        counts = check(here, post, {one["decision_id"]: answer_sha256(one) for one in answers}, len(later))
        assert counts["second letters"] >= in_the_gap > 0
        return {
            **counts,
            "kills": storm.kills,
            "of them between taking and record, for sure": in_the_gap,
            "seconds": round(time.monotonic() - began_s),
        }


def let_it_blow(here: NotifierRoom, post: SmtpServer, storm: Storm, weather: random.Random) -> int:
    """Kill at seeded points of the work: after so many letters, and a moment of its own; return how many fell into the gap for sure."""
    running = [here.notifier(wait=False, state=f"{n}-0") for n in range(storm.notifiers)]
    doomed = 0
    points = sorted(weather.sample(range(1, storm.letters * 8 // 10), storm.kills))
    for number, point in enumerate(points, 1):
        wait_until(lambda: post.count >= point, timeout_s=120, what=f"{point} letters taken")  # noqa: B023
        victims = [weather.randrange(storm.notifiers)]
        if weather.random() < 0.4:  # all of them, for whose letter is next nobody knows: it is then sent twice for sure
            doomed += 1
            victims = list(range(storm.notifiers))
            post.doom(*(one.process.pid for one in running))
            wait_until(lambda: post.doom_is_done, timeout_s=60, what="a letter between whose taking and record to kill")
        time.sleep(weather.random() * 0.05)
        for victim in victims:
            running[victim].kill()
            fresh = weather.random() < 0.5  # on another host, as it were: nothing but the topic tells what was sent
            running[victim] = here.notifier(wait=False, state=f"{victim}-{number if fresh else 0}")
    return doomed


def check(here: NotifierRoom, post: SmtpServer, answers: dict[str, str], different_count: int) -> dict[str, Any]:
    """Hold what the applicants got against what is recorded."""
    notices = here.notices("sent", "printed")
    by_decision = defaultdict(list)
    for one in notices:
        by_decision[one["decision_id"]].append(one)
    assert set(by_decision) == set(answers), "somebody has no letter, or a letter nobody was to have"
    assert all(len({one["rendered_sha256"] for one in some}) == 1 for some in by_decision.values())
    letters = defaultdict(list)
    for letter in post.taken():
        letters[re.search(r"^Reference: (\S+)$", letter["text"], re.MULTILINE)[1]].append(letter)  # type: ignore[index]
    printed = {one["decision_id"] for one in notices if one["channel"] == "print"}
    assert set(letters) | printed == set(answers)
    twice = {name: len(some) - 1 for name, some in letters.items() if len(some) > 1}
    kills = sum(not one.events("notify.stopped") for one in here.notifiers)
    assert sum(twice.values()) <= kills, (twice, kills)
    for name in twice:
        assert any(one["duplicate_possible"] for one in by_decision[name]), f"{name}: a second letter nobody explains"
        assert len({letter["message_id"] for letter in letters[name]}) == 1
    for some in letters.values():
        assert len({letter["text"] for letter in some}) == 1, "two different letters for one decision"
    for one in notices:
        labels = set(step_labels(one["text"]))
        assert not labels & IMMUTABLE_LABELS
        assert labels <= set(LABELS.values())
    first = {name: some[0]["recommendation_sha256"] for name, some in by_decision.items()}
    different_told = [name for name, one in first.items() if one != answers[name]]
    withheld = here.notices("withheld_different_answer")
    assert {one["decision_id"] for one in withheld}.isdisjoint(different_told)
    assert len({one["notice_id"] for one in withheld}) == different_count
    assert here.room.dead_letters() == []
    assert here.lag() == 0
    return {
        "letters": len(answers),
        "by_mail": len(letters),
        "printed": len(printed),
        "second letters": sum(twice.values()),
        "marked as possibly doubled": sum(
            any(one["duplicate_possible"] for one in some) for some in by_decision.values()
        ),
        "withheld": len({one["notice_id"] for one in withheld}),
        "tries refused": sum(one["attempts"] - 1 for one in notices),
        "channels": dict(Counter(one["channel"] for one in notices)),
    }
