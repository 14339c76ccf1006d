from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import (
    ConfigurationError,
    ContactRefused,
    ContactsUnavailable,
    KafkaUnavailable,
    LetterRefused,
    MailUnavailable,
)
from stream.notify.consumer import PartitionLost
from stream.notify.contacts.contact import Contact
from stream.notify.transports.transport import AddressRefused, TemporaryRefusal
from tests.examples import examples
from tests.notify.answers import different, recommendations, replaced
from tests.notify.world import Crash, World

PAT = Contact(
    channel="email", address="pat@people.example", consent=True, name="Pat Secretname", postal_address=("1 Main St",)
)


class Troubles:
    """Raises what is planned for a step, the first times it comes."""

    def __init__(self, **planned: Sequence[BaseException | None]) -> None:
        self._planned = {step.replace("_", " "): list(events) for step, events in planned.items()}

    def __call__(self, step: str) -> None:
        """Have the next one happen."""
        events = self._planned.get(step)
        event = events.pop(0) if events else None
        if event is not None:
            raise event


def world(folder: Path, **changes: Any) -> World:
    made = World(folder=folder, **changes)
    made.people = {f"s-{n}": PAT for n in range(30)}
    return made


def test_a_letter_is_begun_before_it_goes_and_recorded_after(tmp_path: Path) -> None:
    """Given one recommendation, when taken, then `sending`, the letter, and `sent` come in this order, and then it is settled."""
    seen: list[str] = []
    here = world(tmp_path, trouble=seen.append)
    here.put(*recommendations(1))
    here.run()
    steps = [step for step in seen if step != "contacts"]
    assert steps == [
        "prove",
        "write sending",
        "written sending",
        "prove",
        "send email",
        "sent",
        "write sent",
        "written sent",
    ]
    begun, done = here.notices
    assert (begun["status"], begun["text"], begun["html"]) == ("sending", "", "")
    assert begun["rendered_sha256"] == done["rendered_sha256"]
    assert begun["notice_id"] == done["notice_id"]
    assert "Pat Secretname" not in str(here.notices)
    assert "Dear [name]" in done["text"]
    assert "Dear Pat Secretname" in here.letters[0][1].letter.text
    assert "1 Main St" not in here.letters[0][1].letter.html  # by e-mail nobody needs it
    assert here.settled == {0}


def test_a_letter_refused_for_now_waits_while_others_go(tmp_path: Path) -> None:
    """Given a first letter that is refused twice for the time being, when worked through, then the second goes out meanwhile, the first after growing pauses, and its notice counts three tries."""
    here = world(tmp_path, trouble=Troubles(send_email=[TemporaryRefusal("451"), None, TemporaryRefusal("451")]))
    here.put(*recommendations(2))
    started = here.run()
    assert [package.decision_id for _, package in here.letters] == ["d-1", "d-0"]
    assert {one["decision_id"]: one["attempts"] for one in here.notices_with("sent")} == {"d-0": 3, "d-1": 1}
    assert not any(one["duplicate_possible"] for one in here.notices_with("sent"))
    assert started.counters.total("notify_retries_total") == 2


def test_an_uncertain_refusal_is_marked(tmp_path: Path) -> None:
    """Given a letter whose taking nobody confirmed, when it goes again, then its notice says that it may have come twice."""
    here = world(tmp_path, trouble=Troubles(sent=[TemporaryRefusal("lost", uncertain=True)]))
    here.put(*recommendations(1))
    here.run()
    assert len(here.letters) == 2
    assert here.letters[0][1] == here.letters[1][1]
    assert here.notices_with("sent")[0]["duplicate_possible"]


def test_a_letter_that_is_refused_for_too_long_is_a_dead_letter(tmp_path: Path) -> None:
    """Given a letter that is never taken while others are, when its bound is over, then it is a dead letter to be sent again, with a notice that it failed, and all is settled."""
    here = world(tmp_path, settings={"notify_give_up_s": 600.0})
    [first, *others] = recommendations(5)
    refused = replaced(first, subject_ref="s-20")
    here.people["s-20"] = Contact(channel="webhook", consent=True)
    here.settings["notify_webhook_url"] = "http://x"

    def trouble(step: str) -> None:
        if step == "send webhook":
            raise TemporaryRefusal(step)

    here.trouble = trouble
    here.put(refused, *others)
    here.run(rounds=3_000)
    [dead] = here.dead
    assert (dead["error"], dead["stage"], dead["retryable"]) == ("NoticeGivenUp", "notify", True)
    assert dead["value"] == here.recommendations[0]
    [failed] = here.notices_with("failed")
    assert (failed["decision_id"], failed["error"]) == ("d-0", "NoticeGivenUp")
    assert here.settled == set(range(5))
    here.trouble = lambda _step: None  # mended, and redriven
    here.put(refused)
    here.run()
    assert here.notices_with("sent")[-1]["decision_id"] == "d-0"
    assert not here.notices_with("sent")[-1]["duplicate_possible"]


def test_when_nothing_goes_out_at_all_nobody_is_given_up_at_once(tmp_path: Path) -> None:
    """Given a server that refuses every letter for the time being for longer than the bound, when it takes letters again, then all go out and none is a dead letter."""
    here = world(tmp_path, settings={"notify_give_up_s": 600.0})
    until = here.time_s + 900

    def trouble(step: str) -> None:
        if step == "send email" and here.time_s < until:
            raise TemporaryRefusal(step)

    here.trouble = trouble
    here.put(*recommendations(5))
    here.run(rounds=3_000)
    assert here.dead == []
    assert len(here.letters) == 5


@pytest.mark.parametrize("away", [MailUnavailable("m"), ContactsUnavailable("c"), KafkaUnavailable("k")])
@pytest.mark.parametrize("step", ["send_email", "contacts", "write_sent", "write_sending", "prove"])
def test_an_outage_is_waited_out(tmp_path: Path, away: Exception, step: str) -> None:
    """Given an outage at any step, when it passes, then the letter went out once, and is recorded."""
    here = world(tmp_path, trouble=Troubles(**{step: [away, away, away]}))
    here.put(*recommendations(1))
    here.run()
    assert len(here.notices_with("sent")) == 1
    assert here.dead == []
    assert len(here.letters) == 1


def test_an_outage_that_lasts_ends_the_process(tmp_path: Path) -> None:
    """Given a mail server that stays away past the outage bound, when waited for, then the error names it, and nothing is settled or dead."""
    here = world(tmp_path, trouble=Troubles(send_email=[MailUnavailable("the mail server is away")] * 999))
    here.put(*recommendations(1))
    with pytest.raises(MailUnavailable, match="the bound is COACH_OUTAGE_MAX_S"):
        here.run()
    assert (here.settled, here.dead) == (set(), [])


def test_a_bounce_goes_by_post(tmp_path: Path) -> None:
    """Given a mail server that refuses the recipient for good, when sent, then the letter is printed, and the notice says why."""
    here = world(tmp_path, trouble=Troubles(send_email=[AddressRefused("550 5.1.1")]))
    here.put(*recommendations(1))
    here.run()
    [done] = here.notices_with("printed")
    assert (done["channel"], done["channel_why"], done["error"]) == ("print", "bounced", "Bounced: 550 5.1.1")
    [(channel, package)] = here.letters
    assert (channel, package.needs_address) == ("print", False)
    assert "1 Main St" in package.letter.html
    assert "[address]" in done["html"]


@pytest.mark.parametrize("error", [ContactRefused("c"), LetterRefused("l"), ZeroDivisionError("secret")])
def test_a_poison_letter_is_dead_and_the_others_go_on(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a letter that meets an error of its own, or a fault of this software, when taken, then it is a dead letter to be tried again, no text of the fault is told, and the next goes out."""
    here = world(tmp_path, trouble=Troubles(contacts=[error]))
    here.put(*recommendations(2))
    with caplog.at_level(logging.DEBUG):
        here.run()
    assert [one["retryable"] for one in here.dead] == [True]
    assert [package.decision_id for _, package in here.letters] == ["d-1"]
    assert here.settled == {0, 1}
    formatter = logging.Formatter()
    assert "secret" not in "".join(formatter.format(record) + str(record.__dict__) for record in caplog.records)


def test_a_different_answer_that_comes_while_the_first_waits_is_not_sent(tmp_path: Path) -> None:
    """Given a first answer that waits for its next try, when an equal and a different one come, then neither overtakes it, and after it the equal one is skipped and the different one reported."""
    here = world(tmp_path, trouble=Troubles(send_email=[TemporaryRefusal("451"), TemporaryRefusal("451")]))
    [one] = recommendations(1)
    here.put(one, different(one), one, different(one))
    started = here.run()
    assert len(here.letters) == 1
    assert here.notices_with("sent")[0]["recommendation_id"] == one["recommendation_id"]
    [withheld] = here.notices_with("withheld_different_answer")
    assert withheld["recommendation_id"] == different(one)["recommendation_id"]
    assert (withheld["channel"], withheld["text"]) == (None, "")
    assert started.counters.read()["notify_skipped:duplicate"] == 1
    assert started.counters.read()["notify_skipped:different_answer_again"] == 1
    assert here.settled == {0, 1, 2, 3}


def test_after_a_lost_letter_a_different_one_does_not_go_out(tmp_path: Path) -> None:
    """Given a letter that may have been taken and became a dead letter, when a different answer comes, then it is reported and not sent; when the first comes back, it goes out."""
    here = world(tmp_path, trouble=Troubles(send_email=[TemporaryRefusal("lost", uncertain=True), LetterRefused("l")]))
    [one] = recommendations(1)
    here.put(one)
    here.run()
    assert here.notices_with("failed")[0]["duplicate_possible"]
    here.put(different(one))
    here.run()
    assert here.letters == []
    assert len(here.notices_with("withheld_different_answer")) == 1
    here.put(one)
    here.run()
    assert [package.decision_id for _, package in here.letters] == ["d-0"]
    assert here.notices_with("sent")[0]["duplicate_possible"]


def test_after_a_crash_the_letter_is_of_the_day_on_which_it_was_begun(tmp_path: Path) -> None:
    """Given a crash between delivery and record, when another notifier goes on days later, then the second letter equals the first, and its notice says that it may have come twice."""
    here = world(tmp_path, trouble=Troubles(sent=[Crash()]))
    here.put(*recommendations(1))
    with pytest.raises(Crash):
        here.run()
    here.time_s += 3 * 86_400
    here.run()
    first, second = here.letters
    assert first[1].letter == second[1].letter
    assert here.notices_with("sent")[0]["duplicate_possible"]


def test_what_is_no_longer_ours_is_not_sent(tmp_path: Path) -> None:
    """Given a partition that went to another notifier right before the sending, when proven, then nothing goes out; it is tried again only if it stays ours."""
    here = world(tmp_path, trouble=Troubles(prove=[None, PartitionLost()]))
    here.put(*recommendations(1))
    started = here.start()
    started.read_all()
    assert here.letters == []
    started.notifier.drop({0})
    here.time_s += 10
    started.notifier.take_due()
    assert here.letters == []
    here.run(started)
    assert len(here.letters) == 1


def test_a_record_that_the_topic_refuses_ends_the_process(tmp_path: Path) -> None:
    """Given a notices topic that refuses a record for good, when a letter is begun, then the process ends before anything goes out, and says what to do."""
    here = world(tmp_path, refused_topics={"notices"})
    here.put(*recommendations(1))
    with pytest.raises(ConfigurationError, match="coach topics apply"):
        here.run()
    assert here.letters == []


def test_a_letter_too_large_to_be_kept_does_not_go_out(tmp_path: Path) -> None:
    """Given disclosures that make a notice larger than its topic takes, when taken, then it is a dead letter and nothing goes out."""
    here = world(tmp_path)
    [one] = recommendations(1)
    here.put(replaced(one, disclosures={f"d{n}": "x" * 1_900 for n in range(300)}))
    here.run()
    assert here.letters == []
    assert here.dead[0]["error"] == "LetterRefused"


def test_a_late_letter_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given a notice that was due yesterday, when its letter waits and goes out, then it counts as overdue and late, and the log warns."""
    here = world(tmp_path, trouble=Troubles(send_email=[TemporaryRefusal("451")]))
    [one] = recommendations(1)
    here.put(replaced(one, notice_due_at="2026-11-26T00:00:00.000Z"))
    started = here.start()
    started.read_all()
    text = started.counters.exposition().decode()
    assert "coach_notices_overdue 1.0" in text
    assert "coach_notices_urgent 1.0" in text
    assert "coach_notices_waiting 1.0" in text
    here.run(started)
    assert started.counters.total("notices_late_total") == 1
    assert [record.levelno for record in caplog.records if record.getMessage() == "notice.late"] == [logging.WARNING]


class Storm:
    """Crashes, refusals and outages at any step, by chance."""

    def __init__(self, seed: int) -> None:
        self.weather = random.Random(seed)  # noqa: S311 - a storm, no secret
        self._crashes_left = 6

    def __call__(self, step: str) -> None:
        """Blow, or not."""
        if self.weather.random() > 0.12:
            return
        if step.startswith("send"):
            raise self.weather.choice(
                [TemporaryRefusal("451"), TemporaryRefusal("lost", uncertain=True), MailUnavailable("x"), Crash()]
            )
        if step in ("written sending", "sent", "written sent") and self._crashes_left:
            self._crashes_left -= 1
            raise Crash


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(15))
def test_a_storm_of_crashes_and_refusals_loses_no_letter(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Given recommendations with equal and different duplicates, and crashes, refusals and outages at any step, when all is settled, then each applicant has a letter, all letters of a decision are the same, and every second one is explained by its notice."""
    storm = Storm(seed)
    here = world(tmp_path_factory.mktemp("storm"), trouble=storm)
    answers = recommendations(8)
    later = [different(one) for one in storm.weather.sample(answers, 2)]
    here.put(*answers, *storm.weather.sample(answers, 4), *later)
    for _ in range(200):
        with contextlib.suppress(Crash):
            here.run()
        if here.settled >= set(range(len(here.recommendations))):
            break
    letters, done = defaultdict(set), defaultdict(list)
    for _, package in here.letters:
        letters[package.decision_id].add(package.letter)
    for one in here.notices_with("sent", "printed"):
        done[one["decision_id"]].append(one)
    assert set(letters) == set(done) == {one["decision_id"] for one in answers}
    assert all(len(some) == 1 for some in letters.values())
    how_often = Counter(package.decision_id for _, package in here.letters)
    assert all(any(one["duplicate_possible"] for one in done[name]) for name, count in how_often.items() if count > 1)
    assert all(len(some) == 1 for some in done.values())
    assert {one["decision_id"] for one in here.notices_with("withheld_different_answer")} == {
        one["decision_id"] for one in later
    }
    assert here.dead == []
