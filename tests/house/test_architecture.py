from __future__ import annotations

import re
from pathlib import Path

from tests.house import decision_walk
from tests.house.renew_readme import modules_table

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES_MAX, RETURNS_MAX = 25, 8  # of the walk of one decision


def test_every_module_that_it_names_is_there() -> None:
    """Given docs/architecture.md, when its paths are followed, then each is a module or a room."""
    named = re.findall(r"`(stream/[\w/.]+)`", PAGE)
    assert len(named) > 60
    assert not [path for path in named if not (REPOSITORY / path).exists()]


def test_every_file_that_a_page_names_is_there() -> None:
    """Given the README and all pages, when the files of the repository that they name are looked for, then each is there."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "schemas" / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    named = {
        (str(page.relative_to(REPOSITORY)), path)
        for page in pages
        for path in re.findall(
            r"\b((?:stream|tests|deploy)/[\w/.-]+\.(?:py|toml|md|yml|json))", page.read_text("utf-8")
        )
    }
    assert len(named) > 60
    assert not sorted(one for one in named if not (REPOSITORY / one[1]).exists())


def test_every_room_is_in_it() -> None:
    """Given the package, when its rooms are listed, then the page has each."""
    rooms = {str(path.parent.relative_to(REPOSITORY)) for path in (REPOSITORY / "stream").rglob("*/__init__.py")}
    assert not {room for room in rooms if f"`{room}`" not in PAGE}


def test_it_lists_every_module_as_its_docstring_says() -> None:
    """Given the page, then its last part is what the modules say of themselves today."""
    assert modules_table() in PAGE, "renew it: python tests/house/renew_readme.py modules"


def test_a_decision_goes_a_short_way() -> None:
    """Given one declined decision, when it is followed from the record to both outputs, then it visits few modules, and seldom one that it left."""
    stays = decision_walk.walk()
    modules = set(stays)
    print(f"{len(stays)} stays in {len(modules)} modules")
    assert {"worker/pipeline.py", "recourse/answer.py", "worker/outputs.py"} <= modules
    assert len(modules) <= MODULES_MAX
    assert len(stays) - len(modules) <= RETURNS_MAX
