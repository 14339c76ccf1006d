"""A trial rendering of each template: made-up letters, from full to minimal, in which every mandatory part must appear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from stream.errors import ConfigurationError, LetterRefused
from stream.events import TIERS
from stream.notify.letters.page_rules import page_faults, visible
from stream.notify.letters.template_rules import MANDATORY_BLOCKS
from stream.notify.letters.templates import LetterTemplates, Templates
from stream.notify.letters.view import View

SPACE: Final = re.compile(r"\s+")
MARK: Final = "<&>"  # in each text: unescaped, it would read differently in HTML


def check_by_trial(templates: Templates) -> None:
    """Render each template with made-up letters. Raises: ConfigurationError with file and block of each fault."""
    wrong = [fault for one in templates.of.values() for fault in _faults(one)]
    if wrong:
        raise ConfigurationError("; ".join(dict.fromkeys(wrong)))


def full_view() -> View:
    """A letter with everything in it; each text is unique."""
    options = [
        {
            "number": number,
            "title": f"title-{number}{MARK}",
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
        for number, tier in enumerate(TIERS, 1)
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
    yield "two reasons and ways", full | {"options": full["options"][:2], "reasons": full["reasons"][:2]}
    yield "three reasons", full | {"reasons": full["reasons"][:3]}
    yield "expired", full | {"expired": True}
    bare = {
        "recipient": {"name": "", "address": []},
        "lender": full["lender"] | {"address": [], "notice": ""},
        "options": [full["options"][0]],
        "disclosures": [],
    }
    yield "only what is never missing", full | bare


def _expected(view: View) -> dict[str, list[str]]:
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
        yield from (
            f"{templates.paths['html']}: {fault}"
            for fault in dict.fromkeys(fault for _, fault in page_faults(letter.html))
        )


def _part(templates: LetterTemplates, part: str, whole: str, view: View, case: str) -> Iterator[str]:
    shown = _shown(whole, part)
    template = templates.parts[part]
    context = template.new_context(view)
    for block in MANDATORY_BLOCKS:
        rendered = _shown("".join(template.blocks[block](context)), part)
        missing = [text for text in _expected(view)[block] if _squeezed(text) not in rendered]
        if not rendered:
            yield f"block {block} is empty in a letter with {case}"
        elif rendered not in shown:
            yield f"block {block} does not appear in a letter with {case}"
        elif missing:
            yield f"block {block} leaves out {', '.join(missing[:3])} in a letter with {case}"
    for name in ("date", "reference"):
        if _squeezed(view[name]) not in shown:
            yield f"{name} does not appear in a letter with {case}"
    if not view["options"] and case.startswith("no change") and "label-" in shown:
        yield f"a letter with {case} speaks of a change"


def _shown(text: str, part: str) -> str:
    return _squeezed(visible(text) if part == "html" else text)


def _squeezed(text: str) -> str:
    return SPACE.sub("", text)
