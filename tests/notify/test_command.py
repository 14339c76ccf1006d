from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from stream.bundle.uris import MASK
from stream.cli.main import coach
from stream.errors import ConfigurationError
from stream.notify.settings import NotifySettings, check_runnable, read_notify_settings
from stream.runtime.settings import Settings
from tests.notify.answers import contacts_csv, recommendations, replaced
from tests.notify.notifier_room import LENDER
from tests.notify.transports.http_server import http_server
from tests.service.room import REPOSITORY


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own to work in."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(coach, ["notify", *arguments], env=environment, catch_exceptions=False)


def answer_lines(path: Path, *recommendations_: Any) -> Path:
    path.write_bytes(b"\n".join(orjson.dumps({"decision_id": "x", "recommendation": one}) for one in recommendations_))
    return path


def test_preview_writes_a_letter_for_each_answer(tmp_path: Path) -> None:
    """Given answers of `coach recommend`, one of them without times, when previewed, then each has its letter as HTML and text, and a page lists them."""
    one, two = recommendations(2)
    untimed = replaced(two, expires_at=None, notice_due_at=None)
    by_policy = replaced(one, decision_id="d-p", status="not_model_decline", tiers=[], reasons=[], proven=None)
    source = answer_lines(tmp_path / "answers.jsonl", one, untimed, by_policy)
    done = run("preview", "--input", str(source), "--out", "letters", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["letters"] == 2
    pages = sorted((tmp_path / "letters").glob("d-*.html"))
    assert len(pages) == len(sorted((tmp_path / "letters").glob("d-*.txt"))) == 2
    text = pages[1].with_suffix(".txt").read_text("utf-8")
    assert "[no day: these rows have no event_time]" in text
    assert "[COACH_NOTIFY_LENDER_CONTACT]" in text
    index = (tmp_path / "letters" / "index.html").read_text("utf-8")
    assert "the model did not decline this" in index
    assert all(page.name in index for page in pages)


def test_preview_names_what_makes_no_letter(tmp_path: Path) -> None:
    """Given answers that break the contract or are none, when previewed, then each is named, the others are written, and the exit code is 1."""
    [one] = recommendations(1)
    source = answer_lines(tmp_path / "answers.jsonl", one, replaced(one, decision_id="d-b", reasons=[]), {"x": 1})
    with source.open("ab") as file:
        file.write(b"\nno json\n[1]\n")
    done = run("preview", "--input", str(source), "--out", "letters")
    assert done.exit_code == 1
    assert "d-b: RecommendationRefused: no letter can be made" in done.stderr
    assert "line 3: MalformedRecord" in done.stderr
    assert "line 4: MalformedRecord" in done.stderr
    assert "1 letters, 4 answers without one, 4 of them wrong" in done.stdout


def test_preview_without_its_file_is_wrong_usage() -> None:
    """Given no such file, when previewed, then the exit code is 2 and the file is named."""
    done = run("preview", "--input", "no.jsonl", "--out", "letters")
    assert done.exit_code == 2
    assert "no.jsonl" in done.stderr


def test_check_prints_a_sample_and_sends_nothing(tmp_path: Path) -> None:
    """Given settings and contacts, when checked, then what was found and a sample letter are printed, and written as HTML where asked."""
    (tmp_path / "contacts.csv").write_text(contacts_csv(["s-1"]))
    done = run("check", "--contacts", "contacts.csv", "--offline", "--html", "sample.html", **LENDER)
    assert done.exit_code == 0, done.output
    assert "1 contacts in contacts.csv" in done.stderr
    assert "Example Savings Bank" in done.stdout
    assert "Way 1: closest to what is on our records" in done.stdout
    assert "WARNING" not in done.output
    assert "<!doctype html>" in (tmp_path / "sample.html").read_text("utf-8")
    as_json = run("check", "--contacts", "contacts.csv", "--offline", "--json", **LENDER)
    assert json.loads(as_json.stdout)["subject"] == "Our decision on your application to Example Savings Bank"


def test_check_asks_the_look_up_and_the_mail_server() -> None:
    """Given a look-up that refuses its token, or a mail server that is away, when checked, then the exit code is 3 and the dependency is named."""
    with http_server() as server:
        server.answers = [401]
        refused = run("check", "--contacts", server.look_up, **LENDER)
    assert (refused.exit_code, "HTTP status 401" in refused.stderr) == (3, True)
    mail = {
        "COACH_NOTIFY_SMTP_HOST": "127.0.0.1",
        "COACH_NOTIFY_SMTP_PORT": "9",
        "COACH_NOTIFY_SMTP_FROM": "a@b.example",
    }
    away = run("check", **LENDER, **mail)
    assert (away.exit_code, "the mail server at 127.0.0.1:9" in away.stderr) == (3, True)


def test_a_template_that_does_not_load_is_wrong_configuration(tmp_path: Path) -> None:
    """Given a template with a margin in it, when checked, previewed or started, then the exit code is 2 with file, line and block."""
    folder = tmp_path / "templates"
    source = REPOSITORY / "stream" / "notify" / "letters" / "templates" / "en"
    (folder / "en").mkdir(parents=True)
    for path in source.iterdir():
        text = path.read_text("utf-8").replace("{% block no_offer %}", "{% block no_offer %}\n{{ tiers[0].margin }}")
        (folder / "en" / path.name).write_text(text, "utf-8")
    for arguments in (("check", "--offline", "--templates", str(folder)), ("--templates", str(folder))):
        done = run(*arguments, **LENDER, COACH_NOTIFY_STATE=str(tmp_path / "state"))
        assert done.exit_code == 2, done.output
        assert re.search(r"adverse_action\.txt:\d+: block no_offer uses margin, which is not meant", done.stderr)


def test_print_config_masks_what_is_secret() -> None:
    """Given passwords, keys and a token in a URL, when the settings are printed, then none of them shows."""
    secrets = {
        "COACH_NOTIFY_SMTP_USERNAME": "u",
        "COACH_NOTIFY_SMTP_PASSWORD": "hunter1",
        "COACH_NOTIFY_CONTACTS_TOKEN": "hunter2",
        "COACH_NOTIFY_ADDRESS_KEY": "hunter3",
        "COACH_NOTIFY_WEBHOOK_SECRET": "hunter4",
        "COACH_NOTIFY_CONTACTS": "https://user:hunter5@host.example/{subject_ref}",
        "COACH_NOTIFY_WEBHOOK_URL": "https://user:hunter6@host.example/",
    }
    plain, as_json = run("--print-config", **secrets), run("--print-config", "--json", **secrets)
    assert "hunter" not in plain.output + as_json.output
    assert json.loads(as_json.stdout)["COACH_NOTIFY_SMTP_PASSWORD"] == MASK
    assert "COACH_NOTIFY_GIVE_UP_S=14400.0  # after so long" in plain.stdout


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CONTACTS", "people.xlsx", "must be a .csv"),
        ("CONTACTS", "http://host/people", "must hold {subject_ref} once"),
        ("CONTACTS", "http://{subject_ref}.host/", "in its path or query"),
        ("CHANNELS", "email,pigeon", "must be some of email, webhook, files"),
        ("SMTP_FROM", "lender", "must be an e-mail address"),
        ("TIME_ZONE", "Mars/Base", "must be a time zone"),
        ("LENDER_NAME", "a\nb", "must be one line"),
        ("TEMPLATES", "/no/such/folder", "is not a folder"),
        ("WEBHOOK_URL", "ftp://x", "must begin with http"),
        ("SMTP_SECURITY", "maybe", "must be one of starttls, tls, none"),
        ("GIVEUP_S", "5", "did you mean COACH_NOTIFY_GIVE_UP_S"),
        ("SMTP_USERNAME", "u", "set both or neither"),
        ("SMTP_HOST", "mail", "COACH_NOTIFY_SMTP_FROM: must be set"),
        ("WEBHOOK_URL", "https://x.example/", "COACH_NOTIFY_WEBHOOK_SECRET: must be set"),
        ("RETRY_FIRST_S", "500", "must not be longer than"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str, message: str) -> None:
    """Given a wrong setting, when read, then the error names it and what it takes."""
    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        read_notify_settings({f"COACH_NOTIFY_{name}": value})
    assert f"COACH_NOTIFY_{name}" in str(raised.value) or name == "SMTP_HOST"


def test_a_password_never_goes_in_the_clear() -> None:
    """Given a login without TLS, when read, then it is refused."""
    login = {"COACH_NOTIFY_SMTP_USERNAME": "u", "COACH_NOTIFY_SMTP_PASSWORD": "p", "COACH_NOTIFY_SMTP_SECURITY": "none"}
    with pytest.raises(ConfigurationError, match="in the clear"):
        read_notify_settings(login)


def test_a_lender_without_name_or_contact_cannot_write_letters() -> None:
    """Given no lender's name and contact, or the workers' own group, when about to run, then the error names the settings."""
    with pytest.raises(ConfigurationError, match=r"COACH_NOTIFY_LENDER_NAME.*COACH_NOTIFY_LENDER_CONTACT"):
        check_runnable(NotifySettings(), Settings())
    good = NotifySettings(notify_lender_name="x", notify_lender_contact="y", notify_group="coach-stream")
    with pytest.raises(ConfigurationError, match="COACH_NOTIFY_GROUP"):
        check_runnable(good, Settings())


def test_no_broker_is_an_unreachable_dependency(tmp_path: Path) -> None:
    """Given no Kafka, when started, then the exit code is 3 with one line that names it."""
    done = subprocess.run(
        [sys.executable, "-m", "stream.cli.main", "notify", "--kafka-brokers", "127.0.0.1:9"],
        env={"PYTHONPATH": str(REPOSITORY), "COACH_START_WAIT_S": "1", "HOME": str(tmp_path), **LENDER},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith("coach: no Kafka broker answered")
