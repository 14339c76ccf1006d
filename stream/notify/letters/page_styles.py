"""What the style of a letter's HTML may be: properties that cannot hide a text, with values that do not.

It is a list of what is allowed: what hides a text is found by no list of tricks. Text is dark and its backgrounds are light,
so that no text has the colour of what is behind it, whichever rules of the page meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FETCHES: Final = re.compile(r"@import|url\(\s*['\"]?(?!data:)", re.IGNORECASE)
CONTRAST_MIN: Final = 4.5  # WCAG 2.2, level AA
FONT_PX_MIN, FONT_SHARE_MIN = 8.0, 0.7
LENGTH_PX_MAX: Final = 1_000.0
SHIFT_PX_MAX, SHIFT_SHARE_MAX = 200.0, 0.25  # of a margin or padding; the share is of the line's width
SPACING_PX_MAX: Final = 8.0
LINE_HEIGHT_MIN: Final = 1.0
PX: Final = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0, "rem": 16.0, "em": 16.0}
SHARES: Final = {"%": 0.01, "vw": 0.01, "vh": 0.01}

SHIFTS: Final = ("margin", "padding", "border-spacing")
ALLOWED: Final = re.compile(
    r"(margin|padding)(-(top|right|bottom|left))?|border(-(top|right|bottom|left))?(-(color|style|width))?"
    r"|border-(collapse|spacing|radius)|outline|box-sizing|color|background|background-color"
    r"|font(-(family|size|style|weight|variant|variant-numeric|kerning))?|line-height|letter-spacing|text-align"
    r"|text-decoration|text-transform|vertical-align|white-space|word-break|overflow-wrap|hyphens|tab-size"
    r"|(min-|max-)?(width|height)|size|display|list-style(-(type|position))?|caption-side|table-layout|float|clear"
    r"|(page-)?break-(before|after|inside)|orphans|widows|quotes"
)
WORDS: Final = {
    "display": re.compile(r"block|inline|inline-block|flow-root|list-item|flex|inline-flex|grid|inline-grid|table(-[a-z-]+)?"),
    "text-decoration": re.compile(r"none|underline"),
    "float": re.compile(r"none|left|right"),
}  # fmt: skip
AT_RULES: Final = ("@page", "@media")
COLORS: Final = {"white": "#fff", "black": "#000"}
NO_COLOR: Final = ("none", "transparent")
NUMBER: Final = re.compile(r"(?<![\w#.])([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]+|%)?", re.IGNORECASE)
HEX: Final = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", re.IGNORECASE)
COMMENT: Final = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)
QUOTED: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")


@dataclass(frozen=True, slots=True)
class Declared:
    """One declaration of a page: its line in the page, its property and its value, both in small letters."""

    line: int
    name: str
    value: str


def declarations(style: str, line: int, *, sheet: bool) -> Iterator[Declared]:
    """Take a style apart; what is no declaration comes as one without a name, its value the fault.

    `line`: where it begins in its page. `sheet`: a <style> element's content, and no attribute's.
    """
    style = COMMENT.sub(lambda found: "\n" * found.group().count("\n") + " ", style)
    if "\\" in style:
        yield Declared(line, "", "its style holds a backslash, which can disguise what hides a text")
        return
    if not sheet:
        style = "{" + style + "}"
    start = 0
    for found in re.finditer(r"[{};]", style):
        part = style[start : found.start()]
        at = line + style.count("\n", 0, start + len(part) - len(part.lstrip()))
        start = found.end()
        if not part.strip():
            continue
        if found.group() == "{":
            yield from _at_rule(part.strip().lower(), at)
        else:
            name, _, value = part.partition(":")
            value = " ".join(value.split()).lower().removesuffix("!important").rstrip()
            yield Declared(at, name.strip().lower() or "?", value)
    if style[start:].strip():
        yield Declared(line, "", "its style breaks off")


def _at_rule(head: str, line: int) -> Iterator[Declared]:
    if head.startswith("@") and not head.startswith(AT_RULES):
        yield Declared(
            line, "", f"{head.split(maxsplit=1)[0]} is not allowed in a letter's style; there are {', '.join(AT_RULES)}"
        )


def faults_of(declared: Declared) -> str:  # noqa: PLR0911 - one answer a rule
    """Say what is wrong with one declaration, or nothing."""
    name, value = declared.name, declared.value
    if not name:
        return value
    said = f"`{name}: {value}`"
    if FETCHES.search(name + value):
        return f"its style would fetch something when the letter is opened: {said}"
    if not ALLOWED.fullmatch(name):
        return f"{said} hides what a letter says, or could: `{name}` is none of the properties that a letter may use"
    if name in WORDS and not WORDS[name].fullmatch(value):
        return f"{said} hides what a letter says, or could"
    if "(" in value or value.startswith("--"):
        return f"{said}: functions are not allowed in a letter's style; write numbers, and colours as #rrggbb"
    if name in ("color", "background", "background-color"):
        plain = value == "inherit" or (value in NO_COLOR and name != "color")
        return "" if plain or color_of(value) else f"{said}: write colours as #rgb or #rrggbb"
    return f"{said} hides what a letter says, or could: {fault}" if (fault := _sizes(name, value)) else ""


def _sizes(name: str, value: str) -> str:
    """What is wrong with the numbers of a value."""
    value = QUOTED.sub("", value)
    if name == "font-family":
        return ""
    numbers = [(float(number), unit.lower()) for number, unit in NUMBER.findall(value)]
    if any(number < 0 for number, _ in numbers):
        return "it is below 0"
    if any(number * PX.get(unit, 0) > LENGTH_PX_MAX for number, unit in numbers):
        return f"it is longer than {LENGTH_PX_MAX:g} px"
    if any(unit and unit not in PX and unit not in SHARES for _, unit in numbers):
        return f"there are the units {', '.join((*PX, *SHARES))}"
    if name.startswith(SHIFTS) and any(
        number * PX.get(unit, 0) > SHIFT_PX_MAX or number * SHARES.get(unit, 0) > SHIFT_SHARE_MAX
        for number, unit in numbers
    ):
        return f"it is more than {SHIFT_PX_MAX:g} px or {SHIFT_SHARE_MAX:.0%}"
    return _of_text(name, value, numbers)


def _of_text(name: str, value: str, numbers: list[tuple[float, str]]) -> str:
    if name in ("font", "font-size"):
        return _of_font(name, value, numbers)
    if name == "line-height" and numbers and _too_low(*numbers[0]):
        return f"lines would lie on each other; it is at least {LINE_HEIGHT_MIN:g}"
    if name == "letter-spacing" and any(number * PX.get(unit, 1e9) > SPACING_PX_MAX for number, unit in numbers):
        return f"it is more than {SPACING_PX_MAX:g} px"
    return ""


def _of_font(name: str, value: str, numbers: list[tuple[float, str]]) -> str:
    if value == "inherit":
        return ""
    sizes = [one for one in numbers if one[1] or not one[0]]
    if not sizes:
        return f"give `{name}` a size with a unit"
    number, unit = sizes[0]
    smallest = FONT_SHARE_MIN if unit in ("em", "rem", "%") else FONT_PX_MIN
    size = number * (SHARES.get(unit, 1.0) if unit in ("em", "rem", "%") else PX.get(unit, 0.0))
    if size < smallest:
        return f"letters are at least {FONT_PX_MIN:g} px, or {FONT_SHARE_MIN:.0%} of those around them"
    height = re.search(r"/\s*([\d.]+)([a-z%]*)", value)
    if height and _too_low(float(height.group(1)), height.group(2)):
        return f"lines would lie on each other; their height is at least {LINE_HEIGHT_MIN:g}"
    return ""


def _too_low(number: float, unit: str) -> bool:
    if unit in PX and unit not in ("em", "rem"):
        return number * PX[unit] < FONT_PX_MIN
    return number * SHARES.get(unit, 1.0) < LINE_HEIGHT_MIN


def color_of(value: str) -> tuple[float, float, float] | None:
    """Read a colour as red, green and blue from 0 to 1; None for what is none, or is not written as #rgb or #rrggbb."""
    value = COLORS.get(value, value)
    if not HEX.fullmatch(value):
        return None
    digits = "".join(2 * digit for digit in value[1:]) if len(value) == len("#rgb") else value[1:]
    red, green, blue = (int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))
    return red, green, blue


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted(
        sum(
            share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)  # noqa: PLR2004 - sRGB's
            for share, part in zip((0.2126, 0.7152, 0.0722), color, strict=True)
        )
        for color in (one, other)
    )
    return (light + 0.05) / (dark + 0.05)


def pale(declared: list[Declared]) -> Iterator[tuple[int, str]]:
    """List the colours of a page's text that could not be read on one of its backgrounds, or on white, as (line, fault)."""
    behind = {"#fff": (1.0, 1.0, 1.0)}
    for one in declared:
        color = color_of(one.value) if one.name.startswith("background") else None
        if color and contrast(color, (0.0, 0.0, 0.0)) < CONTRAST_MIN:
            yield one.line, f"`{one.name}: {one.value}` is too dark for black text; backgrounds are light in a letter"
        elif color:
            behind[one.value] = color
    for one in declared:
        color = color_of(one.value) if one.name == "color" else None
        if color is None:
            continue
        worst = min(behind, key=lambda name: contrast(color, behind[name]))
        if contrast(color, behind[worst]) < CONTRAST_MIN:
            fault = f"`color: {one.value}` hides what a letter says on a background of {worst}"
            yield (
                one.line,
                f"{fault}: the contrast is {contrast(color, behind[worst]):.1f} and must be {CONTRAST_MIN:g}",
            )
