"""The view that templates render: the parts of a recommendation that are meant for applicants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from stream.events import Action, Recommendation, RecommendedTier
from stream.notify.letters.number_words import Words, before_and_after, last_whole_day
from stream.notify.letters.tier_choice import choose_tiers
from stream.notify.settings import NotifySettings
from stream.times import time_ms

View: TypeAlias = dict[str, Any]

# All names that a template may use: variables, and their fields.
VARIABLES: Final = frozenset(
    {
        "date", "reference", "recipient", "lender", "reasons", "options", "searched_all", "expires_on", "expired",
        "disclosures",
    }
)  # fmt: skip
FIELDS: Final = frozenset(
    {
        "name", "address", "contact", "notice", "number", "title", "tier", "steps", "label", "before", "after", "unit",
        "text",
    }
)  # fmt: skip
NAME_KEPT: Final = "[name]"
ADDRESS_KEPT: Final = "[address]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """The recipient as printed on a letter."""

    name: str = ""
    address: tuple[str, ...] = ()

    @property
    def kept(self) -> Recipient:
        """Placeholders for name and address, for the notice."""
        return Recipient(name=NAME_KEPT * bool(self.name), address=(ADDRESS_KEPT,) * bool(self.address))


def view_of(
    recommendation: Recommendation, settings: NotifySettings, *, recipient: Recipient, words: Words, now_ms: int
) -> View:
    """Build the view of a recommendation that passed `check_contract`. `now_ms`: Unix milliseconds."""
    zone = UTC if settings.notify_time_zone == "UTC" else ZoneInfo(settings.notify_time_zone)
    expires_at = recommendation["expires_at"]
    ends = None if expires_at is None else _moment(time_ms(expires_at), zone)
    now = _moment(now_ms, zone)
    return {
        "date": words.day(now.date()),
        "reference": recommendation["decision_id"],
        "recipient": {"name": recipient.name, "address": list(recipient.address)},
        "lender": {
            "name": settings.notify_lender_name,
            "address": [part.strip() for part in settings.notify_lender_address.split(",") if part.strip()],
            "contact": settings.notify_lender_contact,
            "notice": settings.notify_lender_notice,
        },
        "reasons": [reason["text"] for reason in recommendation["reasons"]],
        "options": _options(recommendation["tiers"], words),
        "searched_all": recommendation["proven"] is True,
        "expires_on": "" if ends is None else words.day(last_whole_day(ends)),
        "expired": ends is not None and now.date() > last_whole_day(ends),
        "disclosures": [
            {"name": name.replace("_", " ").strip().capitalize() or name, "text": text}
            for name, text in sorted(recommendation["disclosures"].items())
        ],
    }


def _options(tiers: Sequence[RecommendedTier], words: Words) -> list[View]:
    """The tiers to show, without those that read like an earlier one; titles compare them."""
    chosen, is_further = choose_tiers(tiers)
    options: list[View] = []
    seen = []
    for tier in chosen:
        steps = [_step(action, words) for action in tier["actions"]]
        shown = sorted((step["label"], step["before"], step["after"]) for step in steps)
        if shown in seen:
            continue
        seen.append(shown)
        number = len(options) + 1
        title = words.ways[min(number, len(words.ways)) - 1] if is_further else ""
        options.append({"number": number, "title": title, "tier": tier["tier"], "steps": steps})
    if len(options) == 1:
        options[0]["title"] = ""
    return options


def _step(action: Action, words: Words) -> View:
    before, after = before_and_after(action, words)
    return {"label": action["label"], "before": before, "after": after, "unit": action["unit"] or ""}


def _moment(at_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone)
