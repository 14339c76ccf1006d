"""Previews: the letters of a file of answers, to a made-up recipient, in a folder with a list. Nothing is sent."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import orjson

from stream.errors import ConfigurationError, CorruptionError, MalformedRecord, PoisonError
from stream.events import Recommendation
from stream.notify.letters.contract import check_contract
from stream.notify.letters.letter_writer import LetterWriter
from stream.notify.letters.templates import Templates
from stream.notify.letters.tier_choice import choose_tiers
from stream.notify.letters.view import Recipient
from stream.notify.notices.notice import KIND, Letter, notice_id
from stream.notify.settings import NotifySettings
from stream.notify.transports.outbox import INDEX, claim_for_previews, file_name, write_letter, write_whole
from stream.wire.avro_records import decode, encode

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
EXPECTED: Final = "the JSON lines that `coach recommend --output` or `coach topics read recommendations` writes"
SAMPLE_TIME: Final = "2100-01-01T00:00:00.000Z"
LENDER: Final = ("notify_lender_name", "notify_lender_address", "notify_lender_contact", "notify_lender_notice")
HEADINGS: Final = ("Reference", "Letter", "Status", "Ways", "Steps of each", "Reasons", "Features without a label")
FEATURES_LISTED_MAX: Final = 20
STYLE: Final = (
    "body{font:15px/1.45 sans-serif;margin:2rem;color:#1c2329}table{border-collapse:collapse}"
    "th{text-align:left;position:sticky;top:0;background:#fff;border-bottom:2px solid #1f4e5f}"
    "th,td{padding:.25rem 1.2rem .25rem 0;vertical-align:top}td{border-bottom:1px solid #dbe2e5}"
    "tr:hover td{background:#f2f6f7}td:nth-child(-n+5){white-space:nowrap}"
)
RECIPIENT: Final = Recipient(name="Alex Sample", address=("12 Example Street", "Springfield, IL 62701"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One line of the input: its letter, or why there is none.

    `steps`: how many each tier in the letter has. `unlabelled`: the features without a label that the letter names.
    """

    decision_id: str
    letter: Letter | None
    why: str
    is_wrong: bool = False
    is_answer: bool = True
    status: str = ""
    steps: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()


def with_placeholders(settings: NotifySettings) -> NotifySettings:
    """The settings, where each that is not set yet holds its own name."""
    missing: dict[str, Any] = {name: f"[COACH_{name.upper()}]" for name in LENDER if not getattr(settings, name)}
    return replace(settings, **missing)


def previews(source: Path, settings: NotifySettings, templates: Templates, now_ms: int) -> Iterator[Preview]:
    """Read the JSONL of `coach recommend`, and write each letter as it would be sent.

    Raises: ConfigurationError where the file cannot be read.
    """
    writer, locale = LetterWriter(with_placeholders(settings), templates=templates), settings.notify_locale
    for number, line in _lines(source):
        try:
            recommendation = _recommendation(line)
        except PoisonError as error:
            why = f"{error.reason}: {error}"
            yield Preview(decision_id=f"line {number}", letter=None, why=why, is_wrong=True, is_answer=False)
            continue
        one, status = recommendation["decision_id"], recommendation["status"]
        if status == "not_model_decline":
            why = "the model did not decline this: no letter goes out"
            yield Preview(decision_id=one, letter=None, why=why, status=status)
            continue
        try:
            dated = dict(recommendation) | ({} if recommendation["expires_at"] else {"expires_at": SAMPLE_TIME})
            check_contract(cast("Recommendation", dated))
            view = writer.view(recommendation, RECIPIENT, locale, now_ms)
            if not view["expires_on"]:
                view["expires_on"] = "[no day: these rows have no event_time]"
            yield Preview(
                decision_id=one,
                letter=writer.templates(locale).letter(view),
                why="",
                status=status,
                steps=tuple(len(option["steps"]) for option in view["options"]),
                reasons=tuple(view["reasons"]),
                unlabelled=unlabelled(recommendation),
            )
        except PoisonError as error:
            yield Preview(decision_id=one, letter=None, why=f"{error.reason}: {error}", is_wrong=True, status=status)


def unlabelled(recommendation: Recommendation) -> tuple[str, ...]:
    """The features that a letter calls by the model's name because features.toml gives them no label."""
    steps = [action for tier in choose_tiers(recommendation["tiers"])[0] for action in tier["actions"]]
    found = {action["feature"] for action in steps if action["label"] == action["feature"]}
    found |= {
        reason["feature"]
        for reason in recommendation["reasons"]
        if reason["text"].startswith(f"{reason['feature']}: ")  # the start of a reason that has no text of its own
    }
    return tuple(sorted(found))


def _lines(source: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with source.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        message = f"--input {source}: cannot be read: {error.strerror or error}"
        raise ConfigurationError(message) from error


def _recommendation(line: bytes) -> Recommendation:
    """Read a line, and check it against the schema. Raises: MalformedRecord."""
    try:
        given: Any = orjson.loads(line)
        wrapped = given.get("record", given) if isinstance(given, dict) else None  # a line of `coach topics read`
        found = wrapped.get("recommendation", wrapped) if isinstance(wrapped, dict) else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        message = f"is none of {EXPECTED}"
        raise MalformedRecord(message)
    try:
        return cast("Recommendation", decode(encode("Recommendation", found))[1])
    except (CorruptionError, KeyError, TypeError, AttributeError) as error:
        message = f"the recommendation does not fit its schema: {error}"
        raise MalformedRecord(message) from None


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


class PreviewTotals:
    """How many letters, answers without one and wrong lines there are, and which features lack a label."""

    def __init__(self) -> None:
        self.letters = self.without = self.wrong = self.no_answers = 0
        self.unlabelled_letters = 0
        self._features: Counter[str] = Counter()

    def add(self, one: Preview) -> None:
        """Count a preview, and the features in it that lack a label."""
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
