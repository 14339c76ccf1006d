from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import DiskUnavailable
from stream.notify.notices.notice import KIND, Letter, notice_id
from stream.notify.transports.outbox import Files, Outbox, file_name, write_whole
from tests.notify.answers import recommendations
from tests.notify.letter_builder import letter_of, package_of

LETTER = Letter(subject="Our decision", text="Dear Ünal\n", html="<p>Dear Ünal</p>\n")


@given(decision_id=st.text(min_size=1, max_size=300))
def test_a_letters_file_has_a_harmless_name(decision_id: str) -> None:
    """Given any decision_id, when its file is named, then by harmless characters only, in bounds, and not as another decision's."""
    name = file_name(decision_id, notice_id(decision_id, KIND))
    assert len(name) <= 80
    assert all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    assert name != file_name(decision_id + "x", notice_id(decision_id + "x", KIND))


def test_a_printed_letter_is_one_whole_file(tmp_path: Path) -> None:
    """Given a hostile decision_id, when its letter is printed twice, then one whole file lies in the outbox, for its group only; without an address, in the folder by-hand."""
    outbox = Outbox(tmp_path / "out")
    package = package_of(LETTER, decision_id="../../etc/passwd\n")
    for _ in range(2):
        place = outbox.send(package)
    assert [path.name for path in (tmp_path / "out").glob("*.html")] == [place]
    assert (tmp_path / "out" / place).read_text("utf-8") == LETTER.html
    assert os.stat(tmp_path / "out" / place).st_mode & 0o007 == 0  # noqa: PTH116 - its mode
    assert outbox.send(package_of(LETTER, needs_address=True)).startswith("by-hand/")
    assert not list(tmp_path.rglob("*.part"))


def test_files_hold_subject_text_and_html(tmp_path: Path) -> None:
    """Given the channel files, when a letter goes out, then its text with the subject and its HTML lie there."""
    files = Files(tmp_path)
    letter = letter_of(recommendations(1)[0])
    name = files.send(package_of(letter))
    assert (tmp_path / name).read_text("utf-8") == f"{letter.subject}\n\n{letter.text}"
    assert (tmp_path / name.replace(".txt", ".html")).read_text("utf-8") == letter.html


def test_a_folder_that_cannot_be_written_is_a_dependency_that_is_away(tmp_path: Path) -> None:
    """Given a file where the outbox should be, when opened or written, then the error says that the disk is unavailable."""
    (tmp_path / "taken").write_text("x")
    with pytest.raises(DiskUnavailable, match="cannot be written"):
        Outbox(tmp_path / "taken")
    with pytest.raises(DiskUnavailable, match="cannot be written"):
        write_whole(tmp_path / "gone" / "x.html", "x")
