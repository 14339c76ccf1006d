from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream.cli.main import coach
from stream.errors import ConfigurationError
from stream.notify.transports.outbox import BY_HAND, Files, Outbox
from tests.notify.answers import contacts_csv, ok_one, recommendations, replaced
from tests.notify.letter_builder import letter_of, package_of
from tests.notify.notifier_room import LENDER
from tests.notify.test_command import answer_lines

LINES_MANY = 70


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own to work in."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(coach, ["notify", *arguments], env=environment, catch_exceptions=False)


def previewed(folder: Path, *answers: Any, out: str = "preview") -> Result:
    source = answer_lines(folder / "answers.jsonl", *(answers or recommendations(2)))
    return run("preview", "--input", str(source), "--out", out)


@pytest.mark.parametrize("setting", ["OUTBOX", "FILES"])
def test_a_folder_with_a_preview_takes_no_real_letters(tmp_path: Path, setting: str) -> None:
    """Given a preview in the outbox or in the files folder, when the notifier makes its ways or is checked, then it is refused as wrong configuration with the setting, and nothing is written there."""
    assert previewed(tmp_path).exit_code == 0
    before = sorted(path.name for path in (tmp_path / "preview").iterdir())
    makes: Callable[[Path], object] = {"OUTBOX": Outbox, "FILES": Files}[setting]
    with pytest.raises(ConfigurationError, match=f"COACH_NOTIFY_{setting}=.*holds a preview"):
        makes(tmp_path / "preview")
    done = run("check", "--offline", **LENDER, **{f"COACH_NOTIFY_{setting}": "preview"})
    assert (done.exit_code, "holds a preview" in done.stderr) == (2, True)
    assert sorted(path.name for path in (tmp_path / "preview").iterdir()) == before


def test_a_preview_that_was_cut_off_or_is_older_is_known(tmp_path: Path) -> None:
    """Given a preview without its list, or a list without the mark, when the notifier makes its outbox there, then it is refused."""
    for name in (".coach-preview", "index.html"):
        (tmp_path / name[1:4]).mkdir()
        (tmp_path / name[1:4] / name).touch()
        with pytest.raises(ConfigurationError, match="holds a preview"):
            Outbox(tmp_path / name[1:4])


def test_a_folder_of_real_letters_takes_no_preview(tmp_path: Path) -> None:
    """Given an outbox and a files folder, empty yet or with letters of an earlier version, when previewed into, then the exit code is 2, and nothing is written there."""
    Outbox(tmp_path / "letters")
    Files(tmp_path / "letters" / "files")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / f"d-1-{'0' * 16}.html").touch()
    (tmp_path / "earlier-outbox" / BY_HAND).mkdir(parents=True)
    for out in ("letters", "letters/files", "earlier", "earlier-outbox"):
        done = previewed(tmp_path, out=out)
        assert (done.exit_code, "holds letters to applicants" in done.stderr) == (2, True), out
        assert not list((tmp_path / out).glob("d-0*"))


def test_each_takes_its_own_folder_again(tmp_path: Path) -> None:
    """Given a preview's folder and an outbox, when each is used again by who made it, then it is taken."""
    assert [previewed(tmp_path).exit_code for _ in range(2)] == [0, 0]
    for _ in range(2):
        Outbox(tmp_path / "out").send(package_of(letter_of(ok_one())))
    assert len(list((tmp_path / "out").glob("*.html"))) == 1


def test_the_list_of_previews_can_be_scanned(tmp_path: Path) -> None:
    """Given answers with and without ways, when previewed, then each row of the list has its status, ways, steps of each way, and reasons, escaped."""
    one = ok_one()
    tiers = [one["tiers"][0]]
    reasons: Any = [{"code": "A", "text": "Too <b>much</b>", "feature": "debts"}]
    none = replaced(one, decision_id="d-none", status="no_feasible_recourse", tiers=[])
    previewed(tmp_path, replaced(one, tiers=tiers, reasons=reasons), none)
    rows = re.findall(r"<tr><td>.*?</tr>", (tmp_path / "preview" / "index.html").read_text("utf-8"))
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    assert [row[0] for row in cells] == [one["decision_id"], "d-none"]
    assert cells[0][2:6] == ["ok", "1", str(len(tiers[0]["actions"])), "Too &lt;b&gt;much&lt;/b&gt;"]
    assert cells[1][2:5] == ["no_feasible_recourse", "0", ""]
    assert cells[1][5] == "; ".join(reason["text"] for reason in one["reasons"])


def test_features_without_a_label_are_named(tmp_path: Path) -> None:
    """Given letters that call features by the model's names, in a step or in a reason, when previewed or checked, then they are counted and the features listed, those of most letters first."""
    one = ok_one()
    step: Any = {**one["tiers"][0]["actions"][0], "feature": "MSinceOldest", "label": "MSinceOldest"}
    in_a_step = replaced(one, decision_id="d-s", tiers=[{**one["tiers"][0], "actions": [step]}])
    reason: Any = {"code": "A", "text": "PctNeverDelq: too low", "feature": "PctNeverDelq"}
    in_a_reason = [replaced(one, decision_id=f"d-{name}", reasons=[reason]) for name in "rt"]
    done = previewed(tmp_path, one, in_a_step, *in_a_reason)
    message = "3 of 4 letters call a feature by the model's name, for features.toml gives it no label: PctNeverDelq, MSinceOldest"
    assert message in done.stderr
    as_json = run("preview", "--input", "answers.jsonl", "--out", "preview", "--json")
    assert json.loads(as_json.stdout)["unlabelled_features"] == ["PctNeverDelq", "MSinceOldest"]
    assert json.loads(as_json.stdout)["unlabelled_letters"] == 3
    checked = run("check", "--offline", "--input", "answers.jsonl", **LENDER)
    assert f"WARNING: {message}" in checked.stderr
    good = answer_lines(tmp_path / "good.jsonl", one)
    assert "has a label" in run("check", "--offline", "--input", str(good), **LENDER).stderr


def test_a_file_of_another_kind_is_told_once(tmp_path: Path) -> None:
    """Given a table instead of answers, when previewed or checked, then one line says what kind of file is expected, and the exit code is 2."""
    (tmp_path / "contacts.csv").write_text(contacts_csv([f"s-{n}" for n in range(LINES_MANY)]))
    for arguments in (("preview", "--out", "preview"), ("check", "--offline")):
        done = run(*arguments, "--input", "contacts.csv", **LENDER)
        assert done.exit_code == 2
        [line] = done.stderr.splitlines()
        assert f"none of its {LINES_MANY + 1} lines is an answer" in line
        assert "`coach recommend --output` or `coach topics read recommendations` writes" in line


def test_what_topics_read_prints_is_previewed(tmp_path: Path) -> None:
    """Given recommendations as `coach topics read recommendations` prints them, then each has its letter."""
    line = {"partition": 0, "offset": 7, "key": "d-1", "record": ok_one()}
    (tmp_path / "printed.jsonl").write_text(json.dumps(line) + "\n")
    done = run("preview", "--input", "printed.jsonl", "--out", "printed", "--json", **LENDER)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["letters"] == 1


def test_of_many_wrong_lines_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    """Given an answer among many lines that are none, when previewed, then twenty of them are told, in the list as well, and the rest are counted."""
    source = answer_lines(tmp_path / "answers.jsonl", ok_one())
    with source.open("a") as file:
        file.write("\n" + "a,b,c\n" * LINES_MANY)
    done = run("preview", "--input", "answers.jsonl", "--out", "preview")
    assert done.exit_code == 1
    assert len([line for line in done.stderr.splitlines() if line.startswith("line ")]) == 20
    assert f"and {LINES_MANY - 20} more that make no letter" in done.stderr
    assert (tmp_path / "preview" / "index.html").read_text("utf-8").count("MalformedRecord") == 20
