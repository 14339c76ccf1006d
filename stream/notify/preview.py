"""Letters from a file of answers, for who writes templates: nothing is sent, and nobody's contact is needed."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import orjson

from stream.errors import ConfigurationError, CorruptionError, MalformedRecord, PoisonError
from stream.events import Recommendation
from stream.notify.contact import Contact
from stream.notify.contract import check_contract
from stream.notify.notice import KIND, notice_id
from stream.notify.outbox import check_folder, file_name, write_whole
from stream.notify.settings import NotifySettings
from stream.notify.templates import Letter, LetterTemplates
from stream.notify.transport import Package
from stream.notify.view import Recipient, creditor_of, view_of
from stream.wire.avro_records import decode, encode

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
INDEX: Final = "index.html"
SAMPLE_TIME: Final = "2100-01-01T00:00:00.000Z"
SAMPLE: Final[Mapping[str, str]] = {
    "notify_lender_name": "[COACH_NOTIFY_LENDER_NAME]",
    "notify_lender_address": "[COACH_NOTIFY_LENDER_ADDRESS]",
    "notify_lender_contact": "[COACH_NOTIFY_LENDER_CONTACT]",
}
RECIPIENT: Final = Recipient(name="Alex Sample", address=("12 Example Street", "Springfield, IL 62701"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """One line of the input: its letter, or why there is none."""

    decision_id: str
    letter: Letter | None
    why: str
    is_wrong: bool = False


def filled(settings: NotifySettings) -> NotifySettings:
    """The settings, with the names of those that are not set yet in their place."""
    missing: dict[str, Any] = {name: text for name, text in SAMPLE.items() if not getattr(settings, name)}
    return replace(settings, **missing)


def previews(source: Path, settings: NotifySettings, templates: LetterTemplates, now_ms: int) -> Iterator[Previewed]:
    """Read the JSONL of `coach recommend`, and write each letter as it would go out.

    Raises: ConfigurationError where the file cannot be read.
    """
    creditor = creditor_of(filled(settings))
    for number, line in _lines(source):
        try:
            recommendation = _recommendation(line)
        except PoisonError as error:
            yield Previewed(decision_id=f"line {number}", letter=None, why=f"{error.reason}: {error}", is_wrong=True)
            continue
        one = recommendation["decision_id"]
        if recommendation["status"] == "not_model_decline":
            yield Previewed(decision_id=one, letter=None, why="the model did not decline this: no letter goes out")
            continue
        try:
            dated = dict(recommendation) | ({} if recommendation["expires_at"] else {"expires_at": SAMPLE_TIME})
            check_contract(cast("Recommendation", dated))
            view = view_of(recommendation, creditor=creditor, recipient=RECIPIENT, words=templates.words, now_ms=now_ms)
            if not view["expires_on"]:
                view["expires_on"] = "[no day: these rows have no event_time]"
            yield Previewed(decision_id=one, letter=templates.letter(view), why="")
        except PoisonError as error:
            yield Previewed(decision_id=one, letter=None, why=f"{error.reason}: {error}", is_wrong=True)


class PreviewFolder:
    """Where previews are written: HTML and text of each letter, and a page that lists them."""

    def __init__(self, folder: Path, locale: str) -> None:
        """Make the folder. Raises: DiskUnavailable."""
        check_folder(folder)
        self._folder = folder
        self._locale = locale
        self._rows: list[str] = []

    def write(self, one: Previewed) -> None:
        """Write one letter. Raises: DiskUnavailable."""
        told = html.escape(one.decision_id)
        if one.letter is None:
            self._rows.append(f"<tr><td>{told}</td><td>{html.escape(one.why)}</td></tr>")
            return
        name = file_name(package_of(one.decision_id, self._locale, one.letter))
        write_whole(self._folder / f"{name}.html", one.letter.html)
        write_whole(self._folder / f"{name}.txt", f"{one.letter.subject}\n\n{one.letter.text}")
        links = f'<a href="{name}.html">letter</a> &middot; <a href="{name}.txt">as text</a>'
        self._rows.append(f"<tr><td>{told}</td><td>{links}</td></tr>")

    def finish(self) -> None:
        """Write the list. Raises: DiskUnavailable."""
        rows = "\n".join(self._rows)
        page = (
            '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Letters</title>\n'
            "<style>body{font:16px/1.5 sans-serif;margin:2rem}td{padding:.2rem 1.5rem .2rem 0}</style>\n"
            f"<h1>Letters</h1>\n<table>\n{rows}\n</table>\n"
        )
        write_whole(self._folder / INDEX, page)


def package_of(decision_id: str, locale: str, letter: Letter, contact: Contact | None = None) -> Package:
    """Wrap a letter up, for its file's name."""
    one = notice_id(decision_id, KIND)
    return Package(
        notice_id=one,
        decision_id=decision_id,
        subject_ref=None,
        kind=KIND,
        locale=locale,
        letter=letter,
        contact=contact,
    )


def _lines(source: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with source.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        msg = f"--input {source}: cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error


def _recommendation(line: bytes) -> Recommendation:
    """Read one, and hold it against its schema. Raises: MalformedRecord."""
    try:
        given: Any = orjson.loads(line)
        found = given.get("recommendation", given) if isinstance(given, dict) else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        msg = "is no line of `coach recommend`: an object with a recommendation"
        raise MalformedRecord(msg)
    try:
        return cast("Recommendation", decode(encode("Recommendation", found))[1])
    except (CorruptionError, KeyError, TypeError, AttributeError) as error:
        msg = f"the recommendation does not fit its schema: {error}"
        raise MalformedRecord(msg) from None
