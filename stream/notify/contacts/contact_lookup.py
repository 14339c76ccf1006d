"""Contacts from an HTTP service: GET the lender's URL with the pseudonym in it; 200 with a JSON object, or 404."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpx2
import orjson

from stream.errors import ContactRefused, ContactsUnavailable
from stream.notify.contacts.contact import Contact, Contacts, NoContacts, read_contact
from stream.notify.contacts.contact_files import CsvContacts, SqliteContacts
from stream.notify.deadlines import Deadlines
from stream.notify.http_exchange import HttpClient
from stream.notify.settings import SUBJECT_REF, NotifySettings

FOUND: Final = 200
UNKNOWN: Final = 404
ANSWER_BYTES_MAX: Final = 64 * 1024
SUBJECT_REF_CHARACTERS_MAX: Final = 500
DOTS: Final = frozenset({".", ".."})  # path segments that clients, proxies and servers resolve
PAUSE_S: Final = 0.2  # before the second try; twice that before the third


class HttpContacts(Contacts):
    """Looks applicants up over a connection that stays open."""

    def __init__(
        self,
        settings: NotifySettings,
        deadlines: Deadlines | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = settings.notify_contacts
        self._tries = settings.notify_contacts_tries
        self._sleep = sleep
        # No compression: a small body could expand to any size.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "coach-stream"}
        if settings.notify_contacts_token:
            headers["Authorization"] = f"Bearer {settings.notify_contacts_token}"
        self._deadlines = deadlines or Deadlines()
        self._http = HttpClient(self._deadlines, timeout_s=settings.notify_contacts_timeout_s, headers=headers)

    def find(self, subject_ref: str) -> Contact | None:
        """See `Contacts`."""
        address = _address(self._url, subject_ref)
        why = ""
        for number in range(self._tries):
            if number and self._deadlines.is_over:
                break
            if number:
                self._sleep(PAUSE_S * 2 ** (number - 1))
            try:
                status, body = self._get(address)
            except httpx2.HTTPError as error:
                why = type(error).__name__  # its text may hold the URL, and with it the pseudonym or a secret
                continue
            if status == FOUND:
                return _contact(body)
            if status == UNKNOWN:
                return None
            why = f"HTTP status {status}"
            if status < 500 and status not in (408, 425, 429):  # noqa: PLR2004 - HTTP's own numbers
                break  # a retry does not fix a token or a URL
        message = f"the contact look-up at {urlsplit(self._url).hostname} does not answer: {why}"
        raise ContactsUnavailable(message)

    def check(self) -> str:
        """Look up an unknown pseudonym, to test URL and token."""
        self.find("coach-check")
        return f"the contact look-up at {urlsplit(self._url).hostname} answers"

    def close(self) -> None:
        """See `Contacts`."""
        self._http.close()

    def _get(self, address: str) -> tuple[int, bytes]:
        with self._http.exchange("GET", address) as response:
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    break
            return response.status_code, body


def contacts_of(settings: NotifySettings, deadlines: Deadlines | None = None) -> Contacts:
    """Open the contacts that the settings name. Raises: ConfigurationError."""
    where = settings.notify_contacts
    if not where:
        return NoContacts()
    if where.startswith(("http://", "https://")):
        return HttpContacts(settings, deadlines)
    path = Path(where).expanduser()
    return CsvContacts(path) if path.suffix == ".csv" else SqliteContacts(path)


def _address(url: str, subject_ref: str) -> str:
    """Put the pseudonym into the URL, as one path segment or a part of one. Raises: ContactRefused."""
    try:
        quoted = "" if len(subject_ref) > SUBJECT_REF_CHARACTERS_MAX else quote(subject_ref, safe="")
    except UnicodeEncodeError:
        quoted = ""
    address = url.replace(SUBJECT_REF, quoted)
    own = url.partition("?")[0].partition("#")[0]
    segment = next((part for part in own.split("/") if SUBJECT_REF in part), "")
    steps = [step for part in re.split(r"[/\\]", subject_ref) for step in (part, segment.replace(SUBJECT_REF, part))]
    if not quoted or (segment and not DOTS.isdisjoint(map(unquote, steps))):
        message = (
            "the contact look-up's URL cannot take this pseudonym: it is empty or too long, or a step to another path"
        )
        raise ContactRefused(message)
    return address


def _contact(body: bytes) -> Contact:
    try:
        if len(body) > ANSWER_BYTES_MAX:
            message = f"it is longer than {ANSWER_BYTES_MAX} bytes"
            raise ValueError(message)  # noqa: TRY301 - as other faults
        fields = orjson.loads(body)
        if not isinstance(fields, dict):
            message = "it is no JSON object"
            raise ValueError(message)  # noqa: TRY004, TRY301 - as above
        return read_contact(fields)
    except orjson.JSONDecodeError:
        message = "the contact look-up's answer for this applicant is unusable: it is no JSON"
    except ValueError as wrong:
        message = f"the contact look-up's answer for this applicant is unusable: {wrong}"
    raise ContactRefused(message)
