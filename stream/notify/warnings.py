"""Warnings that do not stop letters: settings that the law requires, missing languages, letters without an address."""

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
REQUIRED_BY_LAW: Final = {
    "notify_lender_address": "letters give no address of the lender; US Reg B, 12 CFR 1002.9(a)(2), requires it",
    "notify_lender_notice": "letters hold no ECOA notice; US Reg B, 12 CFR 1002.9(b)(1), requires it and gives its words",
}
LOCALE: Final = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}")
NO_LOCALE: Final = "other"  # a contact's locale that is none may hold anything, and is not repeated
LOCALES_WARNED_MAX: Final = 50


def missing_by_law(settings: NotifySettings) -> dict[str, str]:
    """The unset settings that the law of some countries requires in each letter, with the reason."""
    return {f"COACH_{name.upper()}": why for name, why in REQUIRED_BY_LAW.items() if not getattr(settings, name)}


def warn_of_missing(settings: NotifySettings) -> None:
    """Log a warning for each setting of `missing_by_law`."""
    for name, why in missing_by_law(settings).items():
        log.warning("notify.setting_missing", extra={"setting": name, "why": why})


def warn_of_missing_addresses(outbox: Path) -> None:
    """Log a warning while printed letters wait for an address."""
    count = count_without_address(outbox)
    if count:
        what_next = "find out the addresses, send these letters, and take them out of the folder"
        log.warning("notify.by_hand", extra={"count": count, "folder": "by-hand", "what_next": what_next})


class LocaleFallbacks:
    """Counts letters in the default locale to applicants of another language; warns once a locale."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._warned: set[str] = set()

    def record(self, *, wanted: str, taken: str) -> None:
        """Record a letter: the locale of its contact, and that of its templates."""
        if _language(wanted) == _language(taken):
            return
        name = wanted if LOCALE.fullmatch(wanted) else NO_LOCALE
        self._counters.add("notices_locale_fallback_total", wanted=name)
        if name not in self._warned and len(self._warned) < LOCALES_WARNED_MAX:
            self._warned.add(name)
            what_next = f"make a folder of templates for {name}, if its readers should get letters in their language"
            log.warning("notify.locale_fallback", extra={"wanted": name, "taken": taken, "what_next": what_next})


def _language(locale: str) -> str:
    return locale.replace("_", "-").partition("-")[0].lower()
