"""`coach notify check`: checks settings, templates and contacts before the first letter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from stream.events import Action, Recommendation, RecommendedTier, TierName
from stream.notify.contacts.contact_lookup import contacts_of
from stream.notify.letters.letter_writer import LetterWriter
from stream.notify.letters.preview import RECIPIENT, PreviewTotals, previews, with_placeholders
from stream.notify.letters.templates import Templates
from stream.notify.notices.notice import Letter
from stream.notify.run import loaded_templates
from stream.notify.settings import CHANNELS, Channel, NotifySettings
from stream.notify.transports.outbox import refuse_preview
from stream.notify.transports.table import TRANSPORTS
from stream.notify.warnings import missing_by_law
from stream.times import rfc3339

DAY_MS: Final = 86_400_000


def findings(settings: NotifySettings, *, offline: bool, answers: Path | None = None) -> list[str]:
    """Check everything, and return a line for each finding. `offline`: contact no other host.

    `answers`: JSONL of `coach recommend`, whose letters are searched for features without a label.

    Raises: ConfigurationError, ContactsUnavailable, MailUnavailable, DiskUnavailable.
    """
    channels: tuple[Channel, ...] = (*settings.channels, "print")
    for folder in filter(None, (CHANNELS[channel].folder for channel in channels)):
        refuse_preview(getattr(settings, folder), f"COACH_{folder.upper()}")
    templates = loaded_templates(settings)
    lines = [f"templates: {one.locale}, version {one.version[:16]}" for one in templates.of.values()]
    is_remote = settings.notify_contacts.startswith(("http://", "https://"))
    contacts = contacts_of(settings)
    try:
        lines.append("the contact look-up was not asked" if is_remote and offline else contacts.check())
    finally:
        contacts.close()
    lines.append(f"channels: {', '.join(channels)}")
    for channel in channels:
        receiver, check = TRANSPORTS[channel].receiver, TRANSPORTS[channel].check
        if check is not None:
            lines.append(f"{receiver} was not asked" if offline else check(settings))
    missing = [name for name in ("notify_lender_name", "notify_lender_contact") if not getattr(settings, name)]
    lines += [f"COACH_{name.upper()} is not set, and `coach notify` requires it" for name in missing]
    lines += [f"WARNING: {name} is not set: {why}" for name, why in missing_by_law(settings).items()]
    if answers is not None:
        lines += _findings_in(answers, settings, templates)
    return lines


def _findings_in(source: Path, settings: NotifySettings, templates: Templates) -> list[str]:
    totals = PreviewTotals()
    for one in previews(source, settings, templates, time.time_ns() // 1_000_000):
        totals.add(one)
    totals.check_answers(source)
    counts = f"{source}: {totals.letters} letters, {totals.without} answers without one, {totals.wrong} of them wrong"
    if totals.unlabelled:
        return [counts, f"WARNING: {totals.unlabelled_summary()}"]
    return [counts, "each feature that these letters name has a label"]


def sample(settings: NotifySettings, locale: str) -> Letter:
    """Write a letter to a made-up applicant with the lender's own settings. Raises: ConfigurationError."""
    writer = LetterWriter(with_placeholders(settings), templates=loaded_templates(settings))
    now_ms = time.time_ns() // 1_000_000
    return writer.letter(sample_recommendation(now_ms), RECIPIENT, locale, now_ms)


def sample_recommendation(now_ms: int) -> Recommendation:
    """A made-up answer with two tiers; the second takes more effort and scores better."""

    def action(feature: str, label: str, start: float, end: float, unit: str) -> Action:
        direction = "increase" if end > start else "decrease"
        return {
            "feature": feature, "label": label, "direction": direction, "from": start, "to": end, "unit": unit,
            "binding_threshold": end, "contribution": "1",
        }  # fmt: skip

    term = action("duration", "Term of the loan", 48.0, 36.0, "months")
    amount = action("amount", "Amount of the loan", 12_500.0, 9_800.0, "$")
    debt = action("debt", "Other debt that you owe", 7_420.5, 5_100.0, "$")
    return {
        "recommendation_id": "sample", "decision_id": "d-4711", "subject_ref": "s-09ae", "model_id": "sample",
        "model_version": "1", "revision": 1, "status": "ok", "proven": None,
        "tiers": [
            _tier("near", [term, amount], effort=1.0, margin=0.1),
            _tier("mid", [term, debt], effort=2.0, margin=0.4),
        ],
        "reasons": [
            {"code": "A", "text": "You asked for a long term", "feature": "duration"},
            {"code": "B", "text": "You owe much to other lenders", "feature": "debt"},
            {"code": "C", "text": "How earlier credits were repaid", "feature": "history"},
        ],
        "disclosures": {"credit_bureau": "We used a report of Example Bureau, 1 Bureau Road, Springfield. It did not decide."},
        "expires_at": rfc3339(now_ms + 60 * DAY_MS), "notice_due_at": rfc3339(now_ms + 30 * DAY_MS),
        "replay": False, "run_id": None,
    }  # fmt: skip


def _tier(name: TierName, actions: list[Action], *, effort: float, margin: float) -> RecommendedTier:
    return {
        "tier": name, "actions": actions, "margin": margin, "probability": 0.52, "effort": effort, "robust_share": None,
        "withheld": [],
    }  # fmt: skip
