from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream.errors import ConfigurationError, ContactRefused, ContactsUnavailable, DiskUnavailable
from stream.notify.contacts.contact import Contact, NoContacts, address_hmac, read_contact
from stream.notify.contacts.contact_files import SETTLED_S, CsvContacts, SqliteContacts
from stream.notify.contacts.contact_lookup import HttpContacts, contacts_of
from stream.notify.settings import NotifySettings
from tests.examples import examples
from tests.notify.transports.http_server import HttpServer, http_server

HEADING = "subject_ref,channel,address,locale,consent,bounced,name,postal_address\n"
PAT = "s-1,email,pat@people.example,en,yes,no,Pat Doe,1 Main St|Springfield\n"
EXPECTED = Contact(
    channel="email",
    address="pat@people.example",
    locale="en",
    consent=True,
    bounced=False,
    name="Pat Doe",
    postal_address=("1 Main St", "Springfield"),
)
AS_JSON = {
    "channel": "email", "address": "pat@people.example", "locale": "en", "consent": True, "bounced": False,
    "name": "Pat Doe", "postal_address": "1 Main St\nSpringfield",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A look-up that answers."""
    with http_server() as found:
        yield found
        while clients:
            clients.pop().close()


clients: list[HttpContacts] = []


def client_of(url: str, *, token: str = "", timeout_s: float = 2, tries: int = 3, **more: Any) -> HttpContacts:
    settings = NotifySettings(
        notify_contacts=url,
        notify_contacts_token=token,
        notify_contacts_timeout_s=timeout_s,
        notify_contacts_tries=tries,
    )
    made = HttpContacts(settings, **({"sleep": lambda _s: None} | more))
    clients.append(made)
    return made


def look_up(server: HttpServer, **more: Any) -> HttpContacts:
    return client_of(server.look_up, **more)


def sqlite_file(path: Path, *rows: tuple[str, ...]) -> Path:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"CREATE TABLE IF NOT EXISTS contacts ({HEADING.strip()})")
        file.executemany("INSERT INTO contacts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return path


def test_every_source_gives_the_same_contact(tmp_path: Path, server: HttpServer) -> None:
    """Given one applicant in a CSV, in SQLite and behind HTTP, when looked up, then the contact is the same, and an unknown one is None."""
    csv = tmp_path / "contacts.csv"
    csv.write_text(HEADING + PAT)
    table = sqlite_file(tmp_path / "contacts.sqlite", tuple(PAT.strip().split(",")))
    server.people["s-1"] = AS_JSON
    for contacts in (CsvContacts(csv), SqliteContacts(table), look_up(server)):
        assert contacts.find("s-1") == EXPECTED
        assert contacts.find("s-2") is None
        assert contacts.check()


def test_a_changed_csv_is_taken_up_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given a CSV that changes, when looked up again, then the new one serves; a broken one is told without its values, and the former serves."""
    csv = tmp_path / "contacts.csv"
    csv.write_text(HEADING + PAT)
    contacts = CsvContacts(csv)
    csv.write_text(HEADING + PAT + PAT.replace("s-1", "s-2"))
    assert contacts.find("s-2") == EXPECTED
    with caplog.at_level(logging.ERROR):
        csv.write_text(HEADING + PAT.replace(",yes,", ",hunter2,"))
        assert contacts.find("s-2") == EXPECTED
        os.unlink(csv)  # noqa: PTH108 - as a deployment does
        assert contacts.find("s-2") == EXPECTED
    logged = " ".join(str(record.__dict__.get("why")) for record in caplog.records)
    assert "line 2: consent must be yes or no" in logged
    assert "cannot be read" in logged
    assert "hunter2" not in logged


class Clock:
    """Seconds, as the test says."""

    time_s = 1_000.0

    def __call__(self) -> float:
        """Read it."""
        return self.time_s


def people(*numbers: int) -> str:
    return HEADING + "".join(PAT.replace("s-1,", f"s-{number},") for number in numbers)


def test_a_csv_that_is_half_written_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given a CSV of 1,000 people that is rewritten in place, when it is read at 500 of them or at its heading, then nobody becomes unknown and a warning tells it; whole again it serves at once, and a smaller one after it has not changed for a minute."""
    csv, clock = tmp_path / "contacts.csv", Clock()
    csv.write_text(people(*range(1_000)))
    contacts = CsvContacts(csv, clock)
    with csv.open("r+") as file, caplog.at_level(logging.WARNING):
        for count in (0, 500):
            file.seek(0)
            file.truncate()
            file.write(people(*range(count)))
            file.flush()
            clock.time_s += SETTLED_S - 1
            assert contacts.find("s-999") == EXPECTED
        file.seek(0)
        file.write(people(*range(1_001)))
    assert contacts.find("s-1000") == EXPECTED
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    warned = [record.__dict__ for record in loud if record.name.startswith("stream.")]
    assert [record["missing"] for record in warned] == [1_000, 500]
    csv.write_text(people(7))
    assert contacts.find("s-8") == EXPECTED
    clock.time_s += SETTLED_S
    assert contacts.find("s-8") is None
    assert contacts.find("s-7") == EXPECTED


def test_a_csv_that_comes_by_rename_serves_at_once(tmp_path: Path) -> None:
    """Given a CSV of ten, when one of eight comes in its place by rename, then it serves at once; one that misses more than a fifth waits for a minute."""
    csv, clock = tmp_path / "contacts.csv", Clock()
    csv.write_text(people(*range(10)))
    contacts = CsvContacts(csv, clock)
    for numbers in (range(8), range(6)):
        (tmp_path / "new").write_text(people(*numbers))
        (tmp_path / "new").replace(csv)
        assert contacts.find("s-9") is None
        assert (contacts.find("s-7") is None) == (len(numbers) == 5)
    assert contacts.find("s-6") == EXPECTED
    clock.time_s += SETTLED_S
    assert contacts.find("s-6") is None


def test_one_row_that_is_not_utf_8_concerns_this_applicant_alone(tmp_path: Path) -> None:
    """Given one name in Latin-1 in an SQLite file, when looked up, then this one is refused, no part of the name is told, and the others are found."""
    table = sqlite_file(
        tmp_path / "contacts.sqlite", *(tuple(PAT.replace("s-1", f"s-{n}").strip().split(",")) for n in (1, 2))
    )
    with closing(sqlite3.connect(table)) as file, file:
        file.execute("UPDATE contacts SET name = CAST(x'4af67267204d65696572' AS TEXT) WHERE subject_ref = 's-1'")
    contacts = SqliteContacts(table)
    with pytest.raises(ContactRefused, match="name is not UTF-8") as raised:
        contacts.find("s-1")
    assert "Meier" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert contacts.find("s-2") == EXPECTED


def test_an_error_of_the_table_does_not_tell_what_stands_in_it(tmp_path: Path) -> None:
    """Given a table that cannot be read any more, when looked up, then the error names the kind of fault only."""
    table = sqlite_file(tmp_path / "contacts.sqlite")
    contacts = SqliteContacts(table)
    with closing(sqlite3.connect(table)) as file, file:
        file.execute("DROP TABLE contacts")
    with pytest.raises(DiskUnavailable, match=r"cannot be read: SQLITE_ERROR$"):
        contacts.find("s-1")


def test_a_changed_table_shows_at_once(tmp_path: Path) -> None:
    """Given an SQLite file, when a row comes, then the next look-up has it."""
    table = sqlite_file(tmp_path / "contacts.sqlite")
    contacts = SqliteContacts(table)
    assert contacts.find("s-1") is None
    sqlite_file(table, tuple(PAT.strip().split(",")))
    assert contacts.find("s-1") == EXPECTED


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: there is no column subject_ref, channel"),
        ("subject_ref,address\n", "line 1: there is no column channel"),
        (HEADING + PAT + PAT, "line 3: subject_ref is empty or occurs twice"),
        (HEADING + "s-1,email\n", "line 2: has another number of fields"),
        (HEADING + PAT.replace("email", "pigeon"), "line 2: channel must be one of"),
        (HEADING + PAT.replace("Pat Doe", "Pat\x00Doe"), "line 2|NUL"),
        (HEADING + PAT.replace("Pat Doe", '"Pat\nBcc: x"'), "name must be one line"),
        (HEADING + PAT.replace("Pat Doe", "P" * 1_001), "name is longer"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_broken_csv_is_refused_at_the_start(tmp_path: Path, content: str | bytes, message: str) -> None:
    """Given a CSV with a fault, when opened, then the error names file and line, and no value of a person."""
    csv = tmp_path / "contacts.csv"
    csv.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigurationError, match=message) as raised:
        CsvContacts(csv)
    assert str(csv) in str(raised.value)
    assert "people.example" not in str(raised.value)


def test_a_file_that_is_no_table_of_contacts_is_refused(tmp_path: Path) -> None:
    """Given no file, a text, or another table, when opened as SQLite, then the error says what was expected."""
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as file, file:
        file.execute("CREATE TABLE contacts (subject_ref)")
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all, and long enough to see it " * 30)
    for path, message in (
        (other, "no column channel"),
        (text, "a table named contacts"),
        (tmp_path / "no.db", "no.db"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            SqliteContacts(path)


def test_a_pseudonym_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Given two rows of one pseudonym, when looked up, then neither is taken: which of the two would be chance."""
    row = tuple(PAT.strip().split(","))
    contacts = SqliteContacts(sqlite_file(tmp_path / "contacts.sqlite", row, row))
    with pytest.raises(ContactRefused, match="occurs twice"):
        contacts.find("s-1")


def test_the_look_up_quotes_the_pseudonym_and_shows_its_token(server: HttpServer) -> None:
    """Given a hostile pseudonym, when looked up, then it is one segment of the path, and the token goes with it."""
    hostile = "..x/admin?x=1#y/ü z"
    server.people[hostile] = AS_JSON
    assert look_up(server, token="t-1").find(hostile) == EXPECTED  # noqa: S106 - made up
    [asked] = server.asked
    assert asked.path == "/people/..x%2Fadmin%3Fx%3D1%23y%2F%C3%BC%20z?v=1"
    assert asked.headers["Authorization"] == "Bearer t-1"


refs = st.text(st.sampled_from("./\\%2eE;?#@:& é\n\x00\ud800ab"), max_size=8) | st.text(max_size=600)


@pytest.mark.parametrize(
    "shape", ["/v1/people/{subject_ref}/contact", "/v1/.{subject_ref}", "/v1?key=k&ref={subject_ref}"]
)
def test_no_pseudonym_leaves_the_look_ups_path(server: HttpServer, shape: str) -> None:
    """Given any pseudonym, when looked up, then the server sees the URL's own path with one quoted segment in it, or is not asked."""
    made = client_of(server.look_up.partition("/people")[0] + shape, token="t", tries=1)  # noqa: S106 - made up
    before, after = shape.split("{subject_ref}")

    @given(ref=refs)
    @example(ref="..")
    @example(ref=".")
    @example(ref="")
    @example(ref="%2e%2e")
    @example(ref="a/../b")
    @example(ref="..\\x")
    @settings(max_examples=examples(60), deadline=None)
    def holds(ref: str) -> None:
        server.asked.clear()
        with suppress(ContactRefused):
            made.find(ref)
        for asked in server.asked:
            assert asked.path.startswith(before)
            assert asked.path.endswith(after)
            segment = asked.path.removeprefix(before).removesuffix(after)
            assert unquote(segment) == ref
            assert not set("/?#&\\") & set(segment)
            if "?" not in shape:
                steps = re.split(r"[/\\]", unquote(before.rpartition("/")[2] + segment))
                assert not {".", ".."} & set(steps)
                assert not {".", ".."} & set(map(unquote, steps))

    holds()


def test_the_look_up_tries_again_what_may_heal(server: HttpServer) -> None:
    """Given a look-up that fails at first, when asked, then it is asked again up to its bound; a refusal is not repeated."""
    server.people["s-1"] = AS_JSON
    server.answers = [503, 429]
    assert look_up(server).find("s-1") == EXPECTED
    server.answers = [500, 502, 503]
    with pytest.raises(ContactsUnavailable, match="HTTP status 503"):
        look_up(server).find("s-1")
    server.asked.clear()
    for status in (401, 403, 302):
        server.answers = [status]
        with pytest.raises(ContactsUnavailable, match=f"HTTP status {status}"):
            look_up(server, token="secret-token").find("s-1")  # noqa: S106 - made up
    assert len(server.asked) == 3


def test_a_look_up_that_is_away_names_no_person() -> None:
    """Given nobody at the URL, when asked, then the error names the host and neither pseudonym nor token."""
    away = client_of("http://127.0.0.1:9/{subject_ref}", token="tok", timeout_s=1, tries=2)  # noqa: S106 - made up
    with pytest.raises(ContactsUnavailable, match=r"127\.0\.0\.1 does not answer: ConnectError") as raised:
        away.find("s-secret")
    assert "s-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"hello", "is no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"channel": 3}', "channel must be a text"),
        (b'{"address": "hunter2@x.example"}', "channel must be one of"),
        (b'{"channel": "email", "consent": "perhaps"}', "consent must be yes or no"),
        (b'{"channel": "email", "address": "' + b"x" * 70_000 + b'"}', "longer than 65536 bytes"),
    ],
)
def test_an_unusable_answer_concerns_this_applicant_alone(server: HttpServer, raw: bytes, message: str) -> None:
    """Given an answer that is no contact, when looked up, then this one is refused, to be tried again, without its values."""
    server.raw = raw
    with pytest.raises(ContactRefused, match=message) as raised:
        look_up(server).find("s-1")
    assert raised.value.retryable
    assert "hunter2" not in str(raised.value)


def test_the_settings_choose_the_source(tmp_path: Path, server: HttpServer) -> None:
    """Given a file, a URL or nothing, when the contacts are made, then of that kind."""
    csv = tmp_path / "c.csv"
    csv.write_text(HEADING + PAT)
    table = sqlite_file(tmp_path / "c.db")
    kinds: dict[str, type[object]] = {
        "": NoContacts,
        str(csv): CsvContacts,
        str(table): SqliteContacts,
        server.look_up: HttpContacts,
    }
    for where, kind in kinds.items():
        made = contacts_of(NotifySettings(notify_contacts=where))
        assert type(made) is kind
        made.close()


def test_an_address_is_kept_as_a_keyed_hash_at_most() -> None:
    """Given an address, when hashed, then only with a key, by the key, and alike for one mailbox."""
    assert address_hmac("", EXPECTED) is None
    assert address_hmac("k", None) is None
    one = address_hmac("k", EXPECTED)
    assert one == address_hmac("k", read_contact({**AS_JSON, "address": "Pat@People.example"}))
    assert one != address_hmac("other", EXPECTED)
    assert "pat@" not in repr(EXPECTED)
    assert "Main" not in repr(EXPECTED)
