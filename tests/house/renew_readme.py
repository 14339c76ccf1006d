"""Puts real output into README.md and docs, between marks: `python tests/house/renew_readme.py demo | modules | settings | test`.

`demo` runs `coach demo`, `test` runs `make test` and keeps its first and last lines, `settings` writes the worker's table,
`modules` the first line of each module's docstring.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from stream.runtime.settings import Settings
from stream.runtime.settings_reader import documentation

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = {
    "demo output": REPOSITORY / "docs" / "demo.md",
    "modules": REPOSITORY / "docs" / "architecture.md",
    "settings": REPOSITORY / "docs" / "settings.md",
    "test output": REPOSITORY / "README.md",
}
TIMEOUT_S = 3_600
RENEWING = "COACH_README_RENEWING"  # tells the tests that the output they are making is not in the README yet
SUMMARY = re.compile(r"^=+ .*\d+ (passed|failed).*=+$|^(SKIPPED|FAILED|ERROR|real Kafka|no real)", re.IGNORECASE)


def put(mark: str, content: str) -> None:
    """Replace what stands between the marks."""
    page = PAGES[mark]
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(before + begin + content + end + after, encoding="utf-8")


def output_of(*command: str) -> str:
    """Run a command in the repository, and return what it printed."""
    telling = {**os.environ, RENEWING: "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=telling
    )
    return done.stdout


def settings_table() -> str:
    """The worker's settings as a table of Markdown."""
    rows = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |"
        for name, default, meaning in documentation(Settings)
    ]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"


def modules_table() -> str:
    """Every module of the package by its room, with the first line of its docstring, as tables of Markdown."""
    lines: list[str] = []
    room = None
    for path in sorted((REPOSITORY / "stream").rglob("*.py"), key=lambda one: (one.parent, one.name)):
        if path.name == "__init__.py":
            continue
        if path.parent != room:
            room = path.parent
            lines.append(f"\n### {room.relative_to(REPOSITORY)}\n\n| module | |\n|---|---|\n")
        said = (ast.get_docstring(ast.parse(path.read_bytes())) or "").partition("\n")[0]
        lines.append(f"| `{path.name}` | {said.replace('|', chr(92) + '|')} |\n")
    return "".join(lines)


def main() -> None:
    """Do what the argument says."""
    match sys.argv[1:]:
        case ["demo"]:
            put(
                "demo output",
                f"```text\n{output_of(str(Path(sys.executable).with_name('coach')), 'demo').strip()}\n```\n",
            )
        case ["modules"]:
            put("modules", modules_table())
        case ["settings"]:
            put("settings", settings_table())
        case ["test"]:
            lines = [line for line in output_of("make", "test").splitlines() if SUMMARY.match(line)]
            put("test output", "```text\n" + "\n".join(lines) + "\n```\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
