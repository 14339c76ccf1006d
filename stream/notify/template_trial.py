"""A trial of each template with made-up letters whose every part must appear: what a look at its syntax cannot show.

Three letters: one with everything in it, one without any change to offer, and one with only what is never missing.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

from stream.errors import ConfigurationError, LetterRefused
from stream.notify.template_rules import MANDATORY_BLOCKS
from stream.notify.templates import LetterTemplates, Templates
from stream.notify.view import View

# Elements that fetch or run something, and attributes that fetch; a letter must need no network and tell nobody it was read.
FORBIDDEN_ELEMENTS: Final = frozenset({"script", "iframe", "object", "embed", "link", "base", "form", "video", "audio"})
FETCHING: Final = frozenset({"src", "srcset", "background", "poster", "data"})
OF_STYLE: Final = re.compile(r"@import|url\(\s*['\"]?(?!data:)", re.IGNORECASE)
HIDING: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0", re.IGNORECASE)
STYLE_OR_COMMENT: Final = re.compile(r"<!--.*?-->|<(style|head|title)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
SPACE: Final = re.compile(r"\s+")
MARK: Final = "<&>"  # in each probe: what is not escaped in HTML shows as another text


def check_by_trial(templates: Templates) -> None:
    """Render each template with made-up letters.

    Raises: ConfigurationError that names file and block of each fault.
    """
    wrong = [fault for one in templates.of.values() for fault in _faults(one)]
    if wrong:
        raise ConfigurationError("; ".join(dict.fromkeys(wrong)))


def full_view() -> View:
    """A letter with everything in it; each text is found nowhere else."""
    options = [
        {
            "number": number,
            "tier": tier,
            "steps": [
                {
                    "label": f"label-{number}-{step}{MARK}",
                    "before": f"before-{number}-{step}{MARK}",
                    "after": f"after-{number}-{step}{MARK}",
                    "unit": "unit",
                }
                for step in (1, 2)
            ],
        }
        for number, tier in enumerate(("near", "mid", "far"), 1)
    ]
    return {
        "date": f"date-of-letter{MARK}",
        "reference": f"reference{MARK}",
        "recipient": {"name": f"recipient-name{MARK}", "address": [f"street{MARK}", f"town{MARK}"]},
        "lender": {
            "name": f"lender-name{MARK}",
            "address": [f"lender-street{MARK}"],
            "contact": f"lender-contact{MARK}",
            "notice": f"lender-notice{MARK}",
        },
        "reasons": [f"reason-{number}{MARK}" for number in range(1, 5)],
        "options": options,
        "searched_all": False,
        "expires_on": f"expires-on{MARK}",
        "expired": False,
        "disclosures": [{"name": f"disclosure-name{MARK}", "text": f"disclosure-text{MARK}"}],
    }


def _views() -> Iterator[tuple[str, View]]:
    full = full_view()
    yield "everything", full
    yield "no change found", full | {"options": [], "reasons": full["reasons"][:1]}
    yield "no change there is", full | {"options": [], "searched_all": True}
    yield "expired", full | {"expired": True}
    bare = {
        "recipient": {"name": "", "address": []},
        "lender": full["lender"] | {"address": [], "notice": ""},
        "options": [full["options"][0]],
        "disclosures": [],
    }
    yield "only what is never missing", full | bare


def _expected(view: View) -> dict[str, list[str]]:
    """The texts that each block must hold."""
    steps = [step for option in view["options"] for step in option["steps"]]
    notice = [view["lender"]["notice"]] if view["lender"]["notice"] else []
    return {
        "decision": [],
        "reasons": list(view["reasons"]),
        "changes": [step[name] for step in steps for name in ("label", "before", "after")],
        "no_offer": [],
        "expiry": [view["expires_on"]],
        "contest": [view["lender"]["contact"]],
        "disclosures": [view["lender"]["name"], *notice]
        + [one[name] for one in view["disclosures"] for name in ("name", "text")],
    }


def _faults(templates: LetterTemplates) -> Iterator[str]:
    for case, view in _views():
        try:
            letter = templates.letter(view)
        except LetterRefused as error:
            yield f"{templates.paths['txt'].parent}: a letter with {case}: {error}"
            continue
        if "reason-" in letter.subject or "label-" in letter.subject:
            yield f"{templates.paths['subject']}: the subject line, which others see, must give no reason and no change"
        for part, whole in (("txt", letter.text), ("html", letter.html)):
            where = f"{templates.paths[part]}"
            yield from (f"{where}: {fault}" for fault in _part(templates, part, whole, view, case))
        yield from (f"{templates.paths['html']}: {fault}" for fault in fetches(letter.html))


def _part(templates: LetterTemplates, part: str, whole: str, view: View, case: str) -> Iterator[str]:
    shown = _shown(whole, part)
    template = templates.parts[part]
    context = template.new_context(view)
    for block in MANDATORY_BLOCKS:
        told = _shown("".join(template.blocks[block](context)), part)
        missing = [text for text in _expected(view)[block] if _squeezed(text) not in told]
        if not told:
            yield f"block {block} is empty in a letter with {case}"
        elif told not in shown:
            yield f"block {block} does not appear in a letter with {case}"
        elif missing:
            yield f"block {block} leaves out {', '.join(missing[:3])} in a letter with {case}"
    for name in ("date", "reference"):
        if _squeezed(view[name]) not in shown:
            yield f"{name} does not appear in a letter with {case}"
    if not view["options"] and case.startswith("no change") and "label-" in shown:
        yield f"a letter with {case} speaks of a change"


def _shown(text: str, part: str) -> str:
    """The words that a person reads, with one space between them."""
    if part == "html":
        text = html.unescape(re.sub(r"<[^>]*>", " ", STYLE_OR_COMMENT.sub(" ", text)))
    return _squeezed(text)


def _squeezed(text: str) -> str:
    return SPACE.sub("", text)


class _Fetches(HTMLParser):
    """Collects what makes a browser ask somebody, or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        if tag in FORBIDDEN_ELEMENTS:
            self.found.append(f"the element <{tag}> is not allowed in a letter")
        for name, value in attrs:
            text = value or ""
            if name.startswith("on") or name == "http-equiv":
                self.found.append(f"the attribute {name} is not allowed in a letter")
            elif (name in FETCHING and not text.startswith("data:")) or (name == "style" and OF_STYLE.search(text)):
                self.found.append(f"<{tag} {name}> would fetch something when the letter is opened")
            if name == "hidden" or (name == "style" and HIDING.search(text)):
                self.found.append(f"<{tag} {name}> hides what a letter says")


def fetches(letter: str) -> list[str]:
    """What in a letter's HTML would fetch, run or hide something."""
    parser = _Fetches()
    parser.feed(letter)
    styles = " ".join(re.findall(r"<style\b[^>]*>(.*?)</style>", letter, re.DOTALL | re.IGNORECASE))
    if OF_STYLE.search(styles):
        parser.found.append("its style would fetch something when the letter is opened")
    if HIDING.search(styles):
        parser.found.append("its style hides what a letter says")
    return parser.found
