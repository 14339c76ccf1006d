"""Writes the last part of docs/architecture.md: every module with the first line of its docstring.

`python -m tests.house.module_index` renews it.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PAGE: Final = REPOSITORY / "docs" / "architecture.md"
BEGIN: Final = "## Every module\n"


def with_index(page: str) -> str:
    """The page with the part as the package has it today."""
    lines = [page.partition(BEGIN)[0], BEGIN, "\nFrom their docstrings, by `python -m tests.house.module_index`.\n"]
    room = None
    modules = (REPOSITORY / "stream").rglob("*.py")
    for path in sorted(modules, key=lambda one: (one.parent, one.name)):
        if path.name == "__init__.py":
            continue
        if path.parent != room:
            room = path.parent
            lines.append(f"\n### {room.relative_to(REPOSITORY)}\n\n| module | |\n|---|---|\n")
        said = (ast.get_docstring(ast.parse(path.read_bytes())) or "").partition("\n")[0]
        lines.append(f"| `{path.name}` | {said.replace('|', chr(92) + '|')} |\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(with_index(PAGE.read_text("utf-8")), "utf-8")
