from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def stays() -> list[str]:
    """Where one declined decision stays, from the record to both outputs."""
    return decision_walk.walk()


def test_a_decision_goes_a_short_way(stays: list[str]) -> None:
    """Given one declined decision, when it is followed from the record to both outputs, then it visits few modules, and seldom one that it left."""
    modules = set(stays)
    print(f"{len(stays)} stays in {len(modules)} modules")
    assert {"worker/pipeline.py", "recourse/answer.py", "worker/outputs.py"} <= modules
    assert len(modules) <= MODULES_MAX
    assert len(stays) - len(modules) <= RETURNS_MAX


def test_the_life_of_a_decision_is_its_walk(stays: list[str]) -> None:
    """Given the page's life of a decision, when a real one is followed, then the list has each module that it visits, in the order of first visits."""
    life = re.findall(
        r"^\d+\. `stream/([\w/.]+)`", PAGE.partition("## The life of a decision")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert [module for module in life if module in stays] == list(dict.fromkeys(stays))


def test_the_bounds_of_the_searches_are_the_codes() -> None:
    """Given the bounds that docs/recourse.md states, then each module has them at that value, and none of the modules has another that it calls a judgement."""
    page = (REPOSITORY / "docs" / "recourse.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| `(stream/[\w/]+)\.py` \|", page, re.MULTILINE)
    assert len(stated) > 15
    for name, value, module in stated:
        assert str(getattr(import_module(module.replace("/", ".")), name)) == value, name
    named = {name for name, _, _ in stated}
    for module in {module for _, _, module in stated}:
        text = (REPOSITORY / f"{module}.py").read_text(encoding="utf-8")
        assert set(re.findall(r"^(?:.*, )?(\w+_(?:MAX|WIDTH)|NEIGHBOURS)\b[^=\n]* = ", text, re.MULTILINE)) <= named, (
            module
        )
