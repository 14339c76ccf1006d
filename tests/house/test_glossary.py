from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PURE = ("stream/forest", "stream/recourse", "stream/audit/verify", "stream/events.py", "stream/errors.py")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| **")
]
WORDS = {word.lower() for row in ROWS for word in re.findall(r"[A-Za-z0-9]+", row[0])}
# Ordinary words of English and of programming, with the meaning that every dictionary gives them.
PLAIN = frozenset(
    """
    action amounts answer array base body by code codes configuration contrast corruption damaged data dependency
    delivery differs disk error fault feature features field file finite found given header identity interval invalid
    kafka kind largest letter library link linked lost lightgbm mail malformed map mismatch missing mode model
    models module non not number of other out override parts people published range record redis refused registry
    row scored side sides source space split splits state status stream system table target text time too tree trees type
    unavailable unexpected unreadable loading unknown written unit units value version webhook with wrong poison xgboost rule rules texts reason reasons
    body conflict dimensions merged read outcome audited booster node person probe question ratio reference search exact formula share named contacts notice recommendation recommended archive schema machine claim claims entry
    sums joint moves move parsed saved box binding moving member position parked large up given by
    """.split()  # noqa: SIM905 - a text is easier to keep in order
)


def classes() -> list[tuple[str, str]]:
    paths = [
        path
        for place in PURE
        for path in ([REPOSITORY / place] if place.endswith(".py") else (REPOSITORY / place).rglob("*.py"))
    ]
    return [
        (str(path.relative_to(REPOSITORY)), node.name)
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def is_known(word: str) -> bool:
    """Whether the glossary or plain English has a word, in the singular or the plural."""
    return bool({word, word.removesuffix("s"), word + "s"} & (WORDS | PLAIN))


def test_every_public_class_of_the_pure_rooms_is_made_of_known_words() -> None:
    """Given the public classes of the pure rooms, when their names are split into words, then each is in the glossary or plain English."""
    unknown = {
        f"{path}: {name} ({word})"
        for path, name in classes()
        for word in map(str.lower, re.findall(r"[A-Z][a-z0-9]+|[A-Z]+(?![a-z])", name))
        if not is_known(word)
    }
    assert not sorted(unknown)


def test_each_word_stands_once_with_the_module_it_lives_in() -> None:
    """Given the glossary, when read, then no word has two rows, each has a meaning and the field's term, and its module is there."""
    names = [row[0].lower() for row in ROWS]
    assert len(names) > 40
    assert len(set(names)) == len(names)
    for word, meaning, term, module in ROWS:
        assert meaning, word
        assert term, word
        assert (REPOSITORY / module.strip("`")).exists(), f"{word}: {module}"
