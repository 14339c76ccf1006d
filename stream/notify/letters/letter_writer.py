"""Where one letter is made: who it goes to, by which way, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stream.events import Recommendation
from stream.notify.contacts.contact import Contact, Contacts, address_hmac
from stream.notify.letters.contract import check_contract
from stream.notify.letters.templates import Templates
from stream.notify.letters.view import creditor_of, recipient_of, view_of
from stream.notify.notices.notice import KIND, Rendered, Route, notice_id
from stream.notify.notices.record import Channel
from stream.notify.settings import NotifySettings
from stream.notify.transports.transport import Package


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A letter that is ready to go: what is handed over, what is kept, and the way. `wanted`: the locale asked for."""

    package: Package
    rendered: Rendered
    route: Route
    wanted: str


class LetterWriter:
    """Makes drafts. Asks the contacts once a draft."""

    def __init__(self, settings: NotifySettings, *, contacts: Contacts, templates: Templates) -> None:
        """Nothing is asked yet."""
        self._settings = settings
        self._contacts = contacts
        self._templates = templates
        self._creditor = creditor_of(settings)

    def draft(self, recommendation: Recommendation, at_ms: int) -> Draft:
        """Write the letter of a recommendation, as of a time in Unix milliseconds.

        Raises: RecommendationRefused, ContactRefused, LetterRefused; ContactsUnavailable, DiskUnavailable.
        """
        check_contract(recommendation)
        subject_ref = recommendation["subject_ref"]
        contact = None if not subject_ref else self._contacts.find(subject_ref)
        channel, why = choose_channel(contact, subject_ref, self._settings.channels)
        return self._written(recommendation, contact, at_ms, channel=channel, why=why)

    def by_post(self, recommendation: Recommendation, draft: Draft, at_ms: int, why: str) -> Draft:
        """Write the same letter for print, after its electronic way was refused. Raises: LetterRefused."""
        return self._written(recommendation, draft.package.contact, at_ms, channel="print", why=why)

    def _written(
        self, recommendation: Recommendation, contact: Contact | None, at_ms: int, *, channel: Channel, why: str
    ) -> Draft:
        wanted = contact.locale if contact is not None and contact.locale else self._settings.notify_locale
        templates = self._templates.find(KIND, wanted)
        recipient = recipient_of(contact, by_post=channel == "print")
        sent, kept = (
            templates.letter(
                view_of(recommendation, creditor=self._creditor, recipient=one, words=templates.words, now_ms=at_ms)
            )
            for one in (recipient, recipient.kept)
        )
        return Draft(
            wanted=wanted,
            package=Package(
                notice_id=notice_id(recommendation["decision_id"], KIND),
                decision_id=recommendation["decision_id"],
                subject_ref=recommendation["subject_ref"],
                kind=KIND,
                locale=templates.locale,
                letter=sent,
                contact=contact,
                needs_address=channel == "print" and not recipient.address,
            ),
            rendered=Rendered(letter=kept, locale=templates.locale, template_version=templates.version),
            route=Route(
                channel=channel, why=why, address_hmac=address_hmac(self._settings.notify_address_key, contact)
            ),
        )


def choose_channel(
    contact: Contact | None, subject_ref: str | None, channels: tuple[Channel, ...]
) -> tuple[Channel, str]:
    """Choose the way of a letter, and say why. Electronic only with consent (US E-SIGN) and an address that works."""
    if contact is None:
        return "print", "unknown_subject" if subject_ref else "no_subject_ref"
    faults: Mapping[str, bool] = {
        "as_asked": contact.channel == "print",
        "no_consent": not contact.consent,
        "bounced": contact.bounced,
        "channel_off": contact.channel not in channels,
        "no_address": contact.channel == "email" and not contact.address,
    }
    for why, is_so in faults.items():
        if is_so:
            return "print", why
    return contact.channel, "as_asked"
