"""What somebody should see to although letters go out: settings that the law wants, other languages, letters by hand."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from stream.notify.settings import NotifySettings
from stream.notify.transports.outbox import count_without_address
from stream.runtime.counters import Counters

log = logging.getLogger(__name__)

# Both by US Regulation B, 12 CFR 1002.9: (a)(2) the creditor's name and address, (b)(1) the notice, in its words.
WANTED_BY_LAW: Final = {
    "notify_lender_address": "letters give no address of the lender; US Reg B, 12 CFR 1002.9(a)(2), asks for it",
    "notify_lender_notice": "letters hold no ECOA notice; US Reg B, 12 CFR 1002.9(b)(1), asks for it and words it",
}
LOCALE: Final = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}")
NO_LOCALE: Final = "other"  # what stands in a contact's locale and is none may be anything, and is not repeated
LOCALES_TOLD_MAX: Final = 50


def missing_by_law(settings: NotifySettings) -> dict[str, str]:
    """Give the settings that are not made and that the law of some countries wants in each letter, with why."""
    return {f"COACH_{name.upper()}": why for name, why in WANTED_BY_LAW.items() if not getattr(settings, name)}


def warn_of_missing(settings: NotifySettings) -> None:
    """Log a warning for each of them."""
    for name, why in missing_by_law(settings).items():
        log.warning("notify.setting_missing", extra={"setting": name, "why": why})


def warn_of_missing_addresses(outbox: Path) -> None:
    """Log a warning where letters wait for somebody to find out their address."""
    count = count_without_address(outbox)
    if count:
        what_next = "find out the addresses, send these letters, and take them out of the folder"
        log.warning("notify.by_hand", extra={"count": count, "folder": "by-hand", "what_next": what_next})


class LocaleFallbacks:
    """Counts letters in the default locale to applicants of another language, and warns once a locale."""

    def __init__(self, counters: Counters) -> None:
        """Nobody was warned yet."""
        self._counters = counters
        self._told: set[str] = set()

    def went_out(self, *, wanted: str, taken: str) -> None:
        """Take note of a letter: the locale of its contact, and that of its templates."""
        if _language(wanted) == _language(taken):
            return
        name = wanted if LOCALE.fullmatch(wanted) else NO_LOCALE
        self._counters.add("notices_locale_fallback_total", wanted=name)
        if name not in self._told and len(self._told) < LOCALES_TOLD_MAX:
            self._told.add(name)
            what_next = f"make a folder of templates for {name}, if its readers should get letters in their language"
            log.warning("notify.locale_fallback", extra={"wanted": name, "taken": taken, "what_next": what_next})


def _language(locale: str) -> str:
    return locale.replace("_", "-").partition("-")[0].lower()
