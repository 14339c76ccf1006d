from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.notify.answers import recommendations
from tests.notify.notifier_room import notifier_room
from tests.notify.transports.dripping import dripping
from tests.notify.transports.http_server import http_server
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(120)]

DRAIN_S = 1.0
STOP_TIMEOUT_S = 20.0  # the servers would hold an unbounded stop for 60 s
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n{"


@pytest.mark.parametrize("what", ["look-up", "mail server", "receiver"])
def test_a_notifier_stops_in_time_though_a_server_drips(stack: Stack, tmp_path: Path, what: str) -> None:
    """Given a look-up, a mail server or a receiver whose answer never ends and timeouts of a minute, when SIGTERM comes in the midst of it, then the notifier ends within its drain bound, in order, and nothing was sent."""
    began, answers = threading.Event(), recommendations(1)
    contacts = tmp_path / "contacts.csv"
    channel = {"mail server": "email", "receiver": "webhook"}.get(what, "print")
    contacts.write_text(
        f"subject_ref,channel,address,consent\n{answers[0]['subject_ref']},{channel},pat@people.example,yes\n"
    )
    first = b"220 hi\r\n" if what == "mail server" else b"HTTP/1.1 200 OK\r\n" if what == "receiver" else HEAD
    drop = {"mail server": b"250-wait\r\n", "receiver": b"X-More: y\r\n"}.get(what, b" ")
    with dripping(first, drop=drop, began=began) as port:
        url = f"http://127.0.0.1:{port}"
        more = {
            "look-up": {"CONTACTS": f"{url}/{{subject_ref}}", "CONTACTS_TIMEOUT_S": "60"},
            "mail server": {
                "SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(port), "SMTP_SECURITY": "none", "SMTP_TIMEOUT_S": "60",
                "SMTP_FROM": "letters@lender.example",
            },
            "receiver": {"WEBHOOK_URL": url, "WEBHOOK_SECRET": "k", "WEBHOOK_TIMEOUT_S": "60"},
        }[what]  # fmt: skip
        settings = {"COACH_NOTIFY_CONTACTS": str(contacts), "COACH_DRAIN_S": str(DRAIN_S)}
        settings |= {f"COACH_NOTIFY_{name}": value for name, value in more.items()}
        with notifier_room(stack, tmp_path, settings) as here:
            here.send(answers)
            notifier = here.notifier()
            assert began.wait(20)
            assert notifier.stop(timeout_s=STOP_TIMEOUT_S) == 0
            assert not here.notices("sent", "printed", "failed")
            assert here.lag() == 1


def test_one_name_that_is_not_utf_8_stops_nobody(stack: Stack, tmp_path: Path) -> None:
    """Given an SQLite file with one name in Latin-1, when the notifier runs, then the other letters go out, this one is a dead letter, and no part of the name is in log, dead letter or notice."""
    answers = recommendations(3)
    table = tmp_path / "contacts.sqlite"
    with closing(sqlite3.connect(table)) as file, file:
        file.execute("CREATE TABLE contacts (subject_ref TEXT PRIMARY KEY, channel, name)")
        for one in answers:
            file.execute("INSERT INTO contacts VALUES (?, 'print', 'A B')", (one["subject_ref"],))
        file.execute(
            "UPDATE contacts SET name = CAST(x'4af67267204d65696572' AS TEXT) WHERE subject_ref = ?",
            (answers[1]["subject_ref"],),
        )
    with notifier_room(stack, tmp_path, contacts=str(table)) as here:
        here.send(answers)
        notifier = here.notifier()
        here.until_done()
        assert notifier.stop() == 0
        assert len(here.notices("printed")) == 2
        assert [one["error"] for one in here.notices("failed")] == ["ContactRefused"]
        assert notifier.events("notice.dead")
        dead = b"".join(here.room.values(here.room.settings.topic_dlq))
        assert "Meier" not in here.logs()
        assert b"Meier" not in dead


def test_no_url_is_in_the_log_of_a_notifier(stack: Stack, tmp_path: Path) -> None:
    """Given a look-up whose URL holds a key, and a receiver, when letters go out, then neither URL nor pseudonym is in the log."""
    answers = recommendations(2)
    with http_server() as server:
        server.people = {
            str(one["subject_ref"]): {"channel": "webhook", "address": "x", "consent": "yes"} for one in answers
        }
        url = server.look_up.replace("?v=1", "?key=k3y-of-it")
        more = {"COACH_LOG_LEVEL": "DEBUG"}
        hook = f"{server.hook}/t0ken-in-path"
        with notifier_room(stack, tmp_path, more, contacts=url, webhook_url=hook, webhook_secret="k") as here:  # noqa: S106 - made up
            here.send(answers)
            notifier = here.notifier()
            here.until_done()
            assert notifier.stop() == 0
            assert len(here.notices("sent")) == 2
            assert not [text for text in ("k3y-of-it", "/people/", "t0ken-in-path") if text in here.logs()]
