from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.house import pictures
from tests.service.lender import Lender, toy_lender

REPOSITORY = Path(__file__).resolve().parents[2]
BYTES_MAX = 250_000


def test_the_readme_shows_a_letter_and_the_dashboard() -> None:
    """Given the README, when its pictures are looked for, then each is there and small enough to load at once."""
    shown = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for picture in pictures.FOLDER.iterdir():
        assert f'src="docs/pictures/{picture.name}"' in shown
        assert picture.stat().st_size < BYTES_MAX
        assert pictures.png_size(picture)[0] == 900


def test_a_letter_is_shot(tmp_path: Path) -> None:
    """Given a file of answers, when the picture is made, then it is a letter of the window's size."""
    if shutil.which("chromium") is None:
        pytest.skip("no Chromium here to shoot a letter with")
    lender: Lender = toy_lender(tmp_path)
    answers = tmp_path / "answers.jsonl"
    pictures.run_coach(
        "recommend", "--bundle", lender.bundle, "--input", rows_of(lender, tmp_path), "--output", answers
    )
    pictures.make_letter(answers, tmp_path / "letters", tmp_path / "letter.png")
    assert pictures.png_size(tmp_path / "letter.png") == (900, 1180)


def rows_of(lender: Lender, folder: Path) -> Path:
    rows = folder / "rows.csv"
    lines = [",".join(lender.features), *(",".join(map(str, lender.rows[n])) for n in lender.declined(3))]
    rows.write_text("\n".join(lines) + "\n", "utf-8")
    return rows
