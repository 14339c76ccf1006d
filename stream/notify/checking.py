"""`coach notify check`: all that can be found out before the first letter goes out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from stream.errors import ConfigurationError
from stream.events import Action, Recommendation, RecommendedTier, TierName
from stream.notify.contacts.contact_lookup import contacts_of
from stream.notify.letters.preview import EXPECTED, RECIPIENT, previews, with_placeholders
from stream.notify.letters.preview_folder import Totals
from stream.notify.letters.templates import Letter, LetterTemplates
from stream.notify.letters.view import creditor_of, view_of
from stream.notify.notices.notice import KIND
from stream.notify.run import loaded_templates
from stream.notify.settings import NotifySettings
from stream.notify.transports.mail import Mail
from stream.notify.transports.outbox import refuse_preview
from stream.notify.warnings import missing_by_law
from stream.times import rfc3339

DAY_MS: Final = 86_400_000


def findings(settings: NotifySettings, *, offline: bool, answers: Path | None = None) -> list[str]:
    """Say what was found, a line each; ask nobody outside this host when `offline`.

    `answers`: of `coach recommend`, to look for features without a label in their letters.

    Raises: ConfigurationError, ContactsUnavailable, MailUnavailable, DiskUnavailable.
    """
    refuse_preview(settings.notify_outbox, "COACH_NOTIFY_OUTBOX")
    if "files" in settings.channels:
        refuse_preview(settings.notify_files, "COACH_NOTIFY_FILES")
    templates = loaded_templates(settings)
    told = [f"templates: {one.locale}, version {one.version[:16]}" for one in templates.of.values()]
    is_remote = settings.notify_contacts.startswith(("http://", "https://"))
    contacts = contacts_of(settings)
    try:
        told.append("the contact look-up was not asked" if is_remote and offline else contacts.check())
    finally:
        contacts.close()
    told.append(f"channels: {', '.join((*settings.channels, 'print'))}")
    if "email" in settings.channels:
        told.append("the mail server was not asked" if offline else Mail(settings).check())
    missing = [name for name in ("notify_lender_name", "notify_lender_contact") if not getattr(settings, name)]
    told += [f"COACH_{name.upper()} is not set, and `coach notify` will ask for it" for name in missing]
    told += [f"WARNING: {name} is not set: {why}" for name, why in missing_by_law(settings).items()]
    if answers is not None:
        told += _of_answers(answers, settings, templates.find(KIND, settings.notify_locale))
    return told


def _of_answers(source: Path, settings: NotifySettings, templates: LetterTemplates) -> list[str]:
    totals = Totals()
    for one in previews(source, settings, templates, time.time_ns() // 1_000_000):
        totals.add(one)
    if totals.no_answers and totals.no_answers == totals.letters + totals.without:
        message = f"--input {source}: none of its {totals.no_answers} lines is an answer; give {EXPECTED}"
        raise ConfigurationError(message)
    told = [f"{source}: {totals.letters} letters, {totals.without} answers without one, {totals.wrong} of them wrong"]
    if totals.unlabelled:
        return [*told, f"WARNING: {totals.unlabelled_summary()}"]
    return [*told, "each feature that these letters name has a label"]


def sample(settings: NotifySettings, locale: str) -> Letter:
    """Write a letter to a made-up applicant with the lender's own settings. Raises: ConfigurationError."""
    templates = loaded_templates(settings).find(KIND, locale)
    now_ms = time.time_ns() // 1_000_000
    return templates.letter(
        view_of(
            sample_recommendation(now_ms),
            creditor=creditor_of(with_placeholders(settings)),
            recipient=RECIPIENT,
            words=templates.words,
            now_ms=now_ms,
        )
    )


def sample_recommendation(now_ms: int) -> Recommendation:
    """A made-up answer with two ways to an approval, of which the second takes more and scores better."""

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
