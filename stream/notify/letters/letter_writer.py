"""Writes letters: who one goes to, by which channel, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream.events import Recommendation
from stream.notify.contacts.contact import Contact, Contacts, address_hmac
from stream.notify.letters.contract import check_contract
from stream.notify.letters.templates import LetterTemplates, Templates
from stream.notify.letters.view import Recipient, View, view_of
from stream.notify.notices.notice import KIND, KeptLetter, Letter, notice_id
from stream.notify.settings import CHANNELS, Channel, NotifySettings
from stream.notify.transports.transport import Package


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A letter ready to send, and the copy for its notice. `wanted`: the locale that the contact asks for."""

    package: Package
    kept: KeptLetter
    wanted: str


class LetterWriter:
    """Writes the letters of one lender. Without `contacts` it writes previews only."""

    def __init__(self, settings: NotifySettings, *, templates: Templates, contacts: Contacts | None = None) -> None:
        self._settings = settings
        self._contacts = contacts
        self._templates = templates

    def templates(self, locale: str) -> LetterTemplates:
        """The templates of a locale, of its language, or of the default locale."""
        return self._templates.find(locale or self._settings.notify_locale)

    def view(self, recommendation: Recommendation, recipient: Recipient, locale: str, at_ms: int) -> View:
        """What the templates may say, as of `at_ms` (Unix milliseconds)."""
        words = self.templates(locale).words
        return view_of(recommendation, self._settings, recipient=recipient, words=words, now_ms=at_ms)

    def letter(self, recommendation: Recommendation, recipient: Recipient, locale: str, at_ms: int) -> Letter:
        """Write one letter. Raises: LetterRefused."""
        return self.templates(locale).letter(self.view(recommendation, recipient, locale, at_ms))

    def draft(self, recommendation: Recommendation, at_ms: int) -> Draft:
        """Write the letter of a recommendation, dated `at_ms` (Unix milliseconds). Looks the contact up once.

        Raises: RecommendationRefused, ContactRefused, LetterRefused; ContactsUnavailable, DiskUnavailable.
        """
        check_contract(recommendation)
        subject_ref = recommendation["subject_ref"]
        contact = self._contacts.find(subject_ref) if subject_ref and self._contacts is not None else None
        channel, why = choose_channel(contact, subject_ref, self._settings.channels)
        return self._draft(recommendation, contact, at_ms, channel=channel, why=why)

    def printed(self, recommendation: Recommendation, draft: Draft, at_ms: int, why: str) -> Draft:
        """Write the same letter for print, after its address was refused. Raises: LetterRefused."""
        return self._draft(recommendation, draft.package.contact, at_ms, channel="print", why=why)

    def _draft(
        self, recommendation: Recommendation, contact: Contact | None, at_ms: int, *, channel: Channel, why: str
    ) -> Draft:
        wanted = contact.locale if contact is not None and contact.locale else self._settings.notify_locale
        templates = self.templates(wanted)
        recipient = Recipient()
        if contact is not None:
            recipient = Recipient(name=contact.name, address=contact.postal_address if channel == "print" else ())
        sent, kept = (self.letter(recommendation, one, wanted, at_ms) for one in (recipient, recipient.kept))
        return Draft(
            wanted=wanted,
            package=Package(
                notice_id=notice_id(recommendation["decision_id"], KIND),
                decision_id=recommendation["decision_id"],
                subject_ref=recommendation["subject_ref"],
                locale=templates.locale,
                letter=sent,
                contact=contact,
                needs_address=channel == "print" and not recipient.address,
            ),
            kept=KeptLetter(
                letter=kept,
                locale=templates.locale,
                template_version=templates.version,
                channel=channel,
                channel_why=why,
                address_hmac=address_hmac(self._settings.notify_address_key, contact),
            ),
        )


def choose_channel(
    contact: Contact | None, subject_ref: str | None, channels: tuple[Channel, ...]
) -> tuple[Channel, str]:
    """Choose a letter's channel, and say why. Electronic needs consent (US E-SIGN) and an address that works."""
    if contact is None:
        return "print", "unknown_subject" if subject_ref else "no_subject_ref"
    obstacles: Mapping[str, bool] = {
        "as_asked": contact.channel == "print",
        "no_consent": not contact.consent,
        "bounced": contact.bounced,
        "channel_off": contact.channel not in channels,
        "no_address": CHANNELS[contact.channel].needs_address and not contact.address,
    }
    why = next((name for name, holds in obstacles.items() if holds), None)
    return ("print", why) if why is not None else (contact.channel, "as_asked")
