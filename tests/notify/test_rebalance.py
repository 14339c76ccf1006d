from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.notify.answers import contacts_csv, recommendations
from tests.notify.notifier_room import notifier_room
from tests.notify.transports.smtp_server import SmtpServer
from tests.service.room import freeze, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos, pytest.mark.timeout(180)]


def contacts_file(folder: Path, count: int) -> str:
    path = folder / "contacts.csv"
    path.write_text(contacts_csv([f"s-{n}" for n in range(count)]))
    return str(path)


def test_an_outage_and_a_handover_send_each_letter_once(stack: Stack, tmp_path: Path) -> None:
    """Given a mail server that is away when the first notifier starts, a second notifier that joins meanwhile, and the first one stopped in good order amid the work, then each applicant has exactly one letter, none is a dead letter, and only what was begun at a handover is marked as a possible duplicate."""
    post = SmtpServer(tmp_path / "post")
    with notifier_room(stack, tmp_path, post.environment(), contacts=contacts_file(tmp_path, 60)) as here:
        here.send(recommendations(60))
        first = here.notifier()
        first.until("notify.outage")
        second = here.notifier(wait=False)
        second.until("notify.caught_up")
        with post:
            wait_until(lambda: post.count >= 15, what="some letters taken")
            assert first.stop() == 0
            here.until_done()
            assert second.stop() == 0
            letters = Counter(one["to"][0] for one in post.taken())
        assert letters == dict.fromkeys((f"s-{n}@people.example" for n in range(60)), 1)
        marked = [one for one in here.notices("sent") if one["duplicate_possible"]]
        assert len(marked) <= 2, "only what was begun when the other one took over"
        assert here.room.dead_letters() == []
        assert all(one.events("notice.sent") for one in (first, second))


@pytest.mark.nightly
def test_a_notifier_that_was_frozen_sends_nothing_that_is_another_ones(stack: Stack, tmp_path: Path) -> None:
    """Given a notifier frozen amid the work for longer than its session, whose partitions another one took over and finished, when it thaws, then it sends none of those letters again."""
    with (
        SmtpServer(tmp_path / "post") as post,
        notifier_room(stack, tmp_path, post.environment(), contacts=contacts_file(tmp_path, 120)) as here,
    ):
        here.send(recommendations(120))
        first = here.notifier()
        wait_until(lambda: post.count >= 10, what="some letters taken")
        freeze(first.process.pid)
        second = here.notifier(wait=False)
        here.until_done()
        first.process.send_signal(signal.SIGCONT)
        wait_until(lambda: first.events("notify.lost") or len(first.events("notify.caught_up")) > 1, what="the news")
        here.until_done()
        assert (first.stop(), second.stop()) == (0, 0)
        letters = Counter(one["to"][0] for one in post.taken())
        twice = {name for name, count in letters.items() if count > 1}
        assert set(letters) == {f"s-{n}@people.example" for n in range(120)}
        assert len(twice) <= 1, "only the letter that was under way when it froze"
        marked = {one["subject_ref"] + "@people.example" for one in here.notices("sent") if one["duplicate_possible"]}
        assert twice <= marked
