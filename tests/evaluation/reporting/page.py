"""A report as sections of text, tables and plots, and the two forms it is written in: one HTML page, and Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

Mark: TypeAlias = Literal["", "met", "partly", "missed", "ours", "better", "worse", "faint", "paper"]
NO_VALUE: Final = "-"
TEMPLATE: Final = Path(__file__).with_name("page.html")


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a place of a table, and what it means."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. `rows` of as many cells as `header`; a row of one cell is a heading inside the table."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot: the name of its file, its SVG, and what it shows."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report."""

    title: str
    text: Sequence[str] = ()
    parts: Sequence[Table | Plot] = field(default_factory=list)


def number(value: float | None, digits: int = 3, mark: Mark = "") -> Cell:
    """A number in a cell, a dash where there is none."""
    if value is None or value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
        return Cell(NO_VALUE, mark)
    return Cell(f"{value:.{digits}f}", mark)


def as_html(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """The page, whole: style and plots are in it."""
    links = "".join(f'<a href="#{_anchor(s.title)}">{html.escape(s.title)}</a>' for s in sections)
    body = "".join(_section_html(section) for section in sections)
    page = TEMPLATE.read_text("utf-8")
    for mark, content in (
        ("TITLE", html.escape(title)),
        ("LEAD", "".join(f"<p>{_inline_html(line)}</p>" for line in lead)),
        ("LINKS", links),
        ("BODY", body),
    ):
        page = page.replace(f"<!-- {mark} -->", content)
    return page


def as_markdown(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """The same as Markdown; plots are links to the files beside it."""
    lines = [f"# {title}", "", *(part for line in lead for part in (line, ""))]
    for section in sections:
        lines += [f"## {section.title}", ""]
        lines += [part for line in section.text for part in (line, "")]
        for part in section.parts:
            lines += _table_markdown(part) if isinstance(part, Table) else _plot_markdown(part)
    return "\n".join(lines).rstrip() + "\n"


def _section_html(section: Section) -> str:
    text = "".join(f"<p>{_inline_html(line)}</p>" for line in section.text)
    parts = "".join(_table_html(part) if isinstance(part, Table) else _plot_html(part) for part in section.parts)
    return f'<section id="{_anchor(section.title)}"><h2>{html.escape(section.title)}</h2>{text}{parts}</section>\n'


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.header)
    rows = "".join(_row_html(row, len(table.header)) for row in table.rows)
    note = f'<p class="note">{_inline_html(table.note)}</p>' if table.note else ""
    caption = f"<h3>{html.escape(table.title)}</h3>" if table.title else ""
    return (
        f'{caption}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}\n'
    )


def _row_html(row: Sequence[Cell], width: int) -> str:
    if len(row) == 1:
        return f'<tr class="heading"><th colspan="{width}">{_inline_html(row[0].text)}</th></tr>'
    cells = "".join(f'<td class="{cell.mark}">{_inline_html(cell.text)}</td>' for cell in row)
    return f'<tr class="{"own" if row[0].mark == "ours" else ""}">{cells}</tr>'


def _plot_html(plot: Plot) -> str:
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{plot.name}-", plot.svg)  # several plots share one page's names
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)
    return f"<figure>{svg}<figcaption>{_inline_html(plot.caption)}</figcaption></figure>\n"


def _table_markdown(table: Table) -> list[str]:
    rule = ["---", *("---:" for _ in table.header[1:])]
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [f"| {' | '.join(table.header)} |", f"|{'|'.join(rule)}|"]
    for row in table.rows:
        heading = [f"*{row[0].text}*", *[""] * (len(table.header) - 1)]
        texts = heading if len(row) == 1 else [_marked(cell) for cell in row]
        lines.append(f"| {' | '.join(texts)} |")
    return [*lines, "", *([table.note, ""] if table.note else [])]


def _marked(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.mark in ("ours", "partly", "missed") and cell.text != NO_VALUE else cell.text


def _plot_markdown(plot: Plot) -> list[str]:
    return [f"![{plot.caption.split('.')[0]}]({plot.name}.svg)", "", f"*{plot.caption}*", ""]


def _inline_html(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escaped)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
