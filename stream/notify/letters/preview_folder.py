"""Writes previews to a folder with a page that lists them, and counts them."""

from __future__ import annotations

import html
from collections import Counter
from pathlib import Path
from typing import Final

from stream.errors import ConfigurationError
from stream.notify.letters.preview import EXPECTED, Preview
from stream.notify.notices.notice import KIND, notice_id
from stream.notify.transports.outbox import INDEX, claim_for_previews, file_name, write_letter, write_whole

HEADINGS: Final = ("Reference", "Letter", "Status", "Ways", "Steps of each", "Reasons", "Features without a label")
FEATURES_LISTED_MAX: Final = 20
STYLE: Final = (
    "body{font:15px/1.45 sans-serif;margin:2rem;color:#1c2329}table{border-collapse:collapse}"
    "th{text-align:left;position:sticky;top:0;background:#fff;border-bottom:2px solid #1f4e5f}"
    "th,td{padding:.25rem 1.2rem .25rem 0;vertical-align:top}td{border-bottom:1px solid #dbe2e5}"
    "tr:hover td{background:#f2f6f7}td:nth-child(-n+5){white-space:nowrap}"
)


class PreviewFolder:
    """A folder of previews: HTML and text of each letter, and a page that lists them.

    Raises: ConfigurationError where the folder holds letters to applicants, DiskUnavailable.
    """

    def __init__(self, folder: Path) -> None:
        claim_for_previews(folder)
        self._folder = folder
        self._rows: list[str] = []

    def write(self, one: Preview) -> None:
        """Write one letter. Raises: DiskUnavailable."""
        decision = html.escape(one.decision_id)
        if one.letter is None:
            cells = [decision, "none", html.escape(one.status), html.escape(one.why)]
            self._rows.append(f'<tr>{_cells(cells[:3])}<td colspan="{len(HEADINGS) - 3}">{cells[3]}</td></tr>')
            return
        name = file_name(one.decision_id, notice_id(one.decision_id, KIND))
        write_letter(self._folder, name, one.letter)
        links = f'<a href="{name}.html">letter</a> &middot; <a href="{name}.txt">as text</a>'
        steps = ", ".join(map(str, one.steps))
        reasons = html.escape("; ".join(one.reasons))
        cells = [
            decision,
            links,
            one.status,
            str(len(one.steps)),
            steps,
            reasons,
            html.escape(", ".join(one.unlabelled)),
        ]
        self._rows.append(f"<tr>{_cells(cells)}</tr>")

    def finish(self) -> None:
        """Write the list. Raises: DiskUnavailable."""
        rows = "\n".join(self._rows)
        heads = "".join(f'<th scope="col">{one}</th>' for one in HEADINGS)
        page = (
            '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Letters</title>\n'
            f"<style>{STYLE}</style>\n<h1>Letters to a made-up person</h1>\n"
            f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
        )
        write_whole(self._folder / INDEX, page)


class Totals:
    """Counts of previews."""

    def __init__(self) -> None:
        self.letters = self.without = self.wrong = self.no_answers = 0
        self.unlabelled_letters = 0
        self._features: Counter[str] = Counter()

    def add(self, one: Preview) -> None:
        """Count one preview."""
        self.letters += one.letter is not None
        self.without += one.letter is None
        self.wrong += one.is_wrong
        self.no_answers += not one.is_answer
        self.unlabelled_letters += bool(one.unlabelled)
        self._features.update(one.unlabelled)

    def check_answers(self, source: Path) -> None:
        """Refuse a file without a single answer in it. Raises: ConfigurationError."""
        if self.no_answers and self.no_answers == self.letters + self.without:
            message = f"--input {source}: none of its {self.no_answers} lines is an answer; give {EXPECTED}"
            raise ConfigurationError(message)

    @property
    def unlabelled(self) -> list[str]:
        """The features without a label, most frequent first."""
        return [name for name, _ in sorted(self._features.items(), key=lambda one: (-one[1], one[0]))]

    def unlabelled_summary(self) -> str:
        """Say how many letters name features without a label, and which; empty where none does."""
        names = self.unlabelled
        if not names:
            return ""
        more = f" and {len(names) - FEATURES_LISTED_MAX} more" if len(names) > FEATURES_LISTED_MAX else ""
        return (
            f"{self.unlabelled_letters} of {self.letters} letters call a feature by the model's name, for features.toml "
            f"gives it no label: {', '.join(names[:FEATURES_LISTED_MAX])}{more}"
        )


def _cells(texts: list[str]) -> str:
    return "".join(f"<td>{text}</td>" for text in texts)
