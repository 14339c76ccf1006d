"""The notifier's settings, `COACH_NOTIFY_*`: the lender, the contacts, and the channels of letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.headerregistry import Address
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from stream.runtime.settings import Settings, readable_file, topic_name
from stream.runtime.settings_reader import About, read_settings_class, refuse

PART: Final = "NOTIFY_"
SUBJECT_REF: Final = "{subject_ref}"  # where a look-up's URL takes the pseudonym

SmtpSecurity: TypeAlias = Literal["starttls", "tls", "none"]
Channel: TypeAlias = Literal["email", "webhook", "files", "print"]  # the symbols of Channel in schemas/notice.avsc


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRules:
    """What one channel depends on.

    `switch`: the setting that turns it on, none where it is always on; `requires`: the setting that one then needs.
    `folder`: the setting that names the folder it writes to. `refused_why`: the reason that the notice gives when the
    recipient's address is refused and the letter is printed.
    """

    is_electronic: bool = True
    switch: str = ""
    requires: str = ""
    folder: str = ""
    needs_address: bool = False
    refused_why: str = "refused_by_receiver"


CHANNELS: Final[Mapping[Channel, ChannelRules]] = {
    "email": ChannelRules(
        switch="notify_smtp_host", requires="notify_smtp_from", needs_address=True, refused_why="bounced"
    ),
    "webhook": ChannelRules(switch="notify_webhook_url", requires="notify_webhook_secret"),
    "files": ChannelRules(folder="notify_files"),
    "print": ChannelRules(is_electronic=False, folder="notify_outbox"),
}


def electronic_channels(text: str) -> tuple[Channel, ...]:
    """Read a list such as `email,files`. Raises: ValueError."""
    electronic = tuple(channel for channel, rules in CHANNELS.items() if rules.is_electronic)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not set(names) <= set(electronic):
        message = f"must be some of {', '.join(electronic)}, with commas between them"
        raise ValueError(message)
    return tuple(channel for channel in electronic if channel in names)


def _http_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        message = "must begin with http:// or https:// and name a host"
        raise ValueError(message)


def _contacts(text: str) -> None:
    if text.startswith(("http://", "https://")):
        _http_url(text.replace(SUBJECT_REF, "s-1"))
        if text.count(SUBJECT_REF) != 1 or SUBJECT_REF in urlsplit(text).netloc:
            message = f"must hold {SUBJECT_REF} once, in its path or query"
            raise ValueError(message)
    elif Path(text).suffix not in (".csv", ".sqlite", ".sqlite3", ".db"):
        message = f"must be a .csv, .sqlite, .sqlite3 or .db file, or a URL with {SUBJECT_REF} in it"
        raise ValueError(message)


def one_line(text: str) -> None:
    """Refuse text that would break a header or heading. Raises: ValueError."""
    if not text.isprintable():
        message = "must be one line of printable characters"
        raise ValueError(message)


def email_address(text: str) -> None:
    """Refuse text that is not an e-mail address. Raises: ValueError."""
    message = "must be an e-mail address such as letters@lender.example"
    try:
        parsed = Address(addr_spec=text)
    except Exception:  # noqa: BLE001 - the parser of the standard library raises IndexError and others, too
        raise ValueError(message) from None
    if not (text.isprintable() and parsed.username and "." in parsed.domain.strip(".") and " " not in text):
        raise ValueError(message)


def _time_zone(text: str) -> None:
    if text == "UTC":
        return
    try:
        ZoneInfo(text)
    except (ValueError, OSError, LookupError):
        message = "must be a time zone such as UTC or America/New_York that this host knows (its package is tzdata)"
        raise ValueError(message) from None


def _folder(text: str) -> None:
    if not Path(text).is_dir():
        message = "is not a folder"
        raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Settings of the notifier beside those of the service."""

    notify_group: Annotated[str, About("consumer group of the notifiers", check=topic_name)] = "coach-notify"
    notify_state: Annotated[
        Path, About("SQLite file that indexes the notices topic; one for each notifier, may be deleted at any time")
    ] = Path("~/.cache/coach-stream/notify/state.sqlite")

    notify_lender_name: Annotated[str, About("the creditor, as letters name it; required", check=one_line)] = ""
    notify_lender_address: Annotated[str, About("its postal address, in one line with commas", check=one_line)] = ""
    notify_lender_contact: Annotated[
        str, About("how an applicant reaches the lender with questions: phone, e-mail, page; required", check=one_line)
    ] = ""
    notify_lender_notice: Annotated[
        str, About("further text that the law wants in each letter, such as the ECOA notice", check=one_line)
    ] = ""
    notify_time_zone: Annotated[str, About("the time zone of the dates in letters", check=_time_zone)] = "UTC"

    notify_templates: Annotated[
        str, About("folder with a folder of templates a locale; none: those that are shipped", check=_folder)
    ] = ""
    notify_locale: Annotated[str, About("locale where the applicant's has no templates", check=topic_name)] = "en"

    notify_contacts: Annotated[
        str,
        About(
            f"contacts: a .csv or SQLite file, or a URL with {SUBJECT_REF} in it; none: all letters are printed",
            check=_contacts,
            address=True,
        ),
    ] = ""
    notify_contacts_token: Annotated[str, About("bearer token of that URL", secret=True, check=one_line)] = ""
    notify_contacts_timeout_s: Annotated[float, About("longest wait for one answer of it", low=0.1, high=60)] = 5.0
    notify_contacts_tries: Annotated[
        int, About("tries of a look-up before it counts as an outage, which is waited out", low=1, high=10)
    ] = 3
    notify_address_key: Annotated[
        str, About("key of the hash of the address in a notice; none: no hash", secret=True)
    ] = ""

    notify_channels: Annotated[
        str,
        About(
            "electronic channels that may be used: email, webhook, files; print always is", check=electronic_channels
        ),
    ] = "email,webhook,files"
    notify_outbox: Annotated[Path, About("folder of print-ready letters")] = Path("letters")
    notify_files: Annotated[Path, About("folder of the channel files")] = Path("letters/files")

    notify_smtp_host: Annotated[str, About("mail server; none: no e-mail", check=one_line)] = ""
    notify_smtp_port: Annotated[int, About("its port", low=1, high=65_535)] = 587
    notify_smtp_security: Annotated[
        SmtpSecurity, About("starttls, tls (from the first byte), or none for a relay on this host")
    ] = "starttls"
    notify_smtp_username: Annotated[str, About("user name at the mail server; none: no login", check=one_line)] = ""
    notify_smtp_password: Annotated[str, About("its password", secret=True)] = ""
    notify_smtp_ca_file: Annotated[
        str,
        About(
            "PEM file of the authorities behind the mail server's certificate; none: the system's", check=readable_file
        ),
    ] = ""
    notify_smtp_timeout_s: Annotated[
        float, About("longest wait for one answer of it; a whole letter may take three times as long", low=0.1, high=60)
    ] = 20.0
    notify_smtp_from: Annotated[str, About("sender's address; needed for e-mail", check=email_address)] = ""
    notify_smtp_reply_to: Annotated[str, About("where answers go; none: to the sender", check=email_address)] = ""

    notify_webhook_url: Annotated[
        str, About("receiver of the channel webhook; none: no webhook", check=_http_url, address=True)
    ] = ""
    notify_webhook_secret: Annotated[str, About("key of its signatures; needed for the webhook", secret=True)] = ""
    notify_webhook_timeout_s: Annotated[float, About("longest wait for its answer", low=0.1, high=60)] = 10.0

    notify_retry_first_s: Annotated[
        float, About("pause after the first refusal for the time being; each next is twice as long", low=0.05, high=600)
    ] = 5.0
    notify_retry_max_s: Annotated[float, About("longest such pause", low=0.05, high=3_600)] = 300.0
    notify_give_up_s: Annotated[
        float, About("after so long a letter that is still refused becomes a dead letter", low=1, high=172_800)
    ] = 14_400.0
    notify_waiting_max: Annotated[
        int, About("most letters that wait for their next try; beyond, no more are read", low=1, high=100_000)
    ] = 1_000
    notify_urgent_s: Annotated[
        float, About("so long before notice_due_at a letter that waits counts as urgent", low=0, high=2_592_000)
    ] = 86_400.0
    notify_metrics_port: Annotated[int, About("port of /metrics and /health; 0: none", low=0, high=65_535)] = 0

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The electronic channels that are on and set up."""
        listed = electronic_channels(self.notify_channels)
        return tuple(one for one in listed if not CHANNELS[one].switch or getattr(self, CHANNELS[one].switch))


def read_notify_settings(environment: Mapping[str, str] | None = None, **flags: object) -> NotifySettings:
    """Read the notifier's settings, as `read_settings_class` does.

    Raises: ConfigurationError that names every wrong setting and the accepted values.
    """
    settings, wrong = read_settings_class(NotifySettings, environment, flags, part=PART)
    refuse([*wrong, *_contradictions(settings)])
    return settings


def check_runnable(settings: NotifySettings, service: Settings) -> None:
    """Check what sending letters needs and previewing them does not. Raises: ConfigurationError."""
    wrong = [
        f"COACH_{name.upper()}: must be set, for every letter says it"
        for name in ("notify_lender_name", "notify_lender_contact")
        if not getattr(settings, name)
    ]
    if settings.notify_group == service.group:
        wrong.append(
            f"COACH_NOTIFY_GROUP={settings.notify_group}: is the workers' group (COACH_GROUP); name another one"
        )
    refuse(wrong)


def _contradictions(settings: NotifySettings) -> list[str]:
    rules = [CHANNELS[channel] for channel in settings.channels]
    wrong = [
        f"COACH_{one.requires.upper()}: must be set for COACH_{one.switch.upper()}"
        for one in rules
        if one.requires and not getattr(settings, one.requires)
    ]
    if bool(settings.notify_smtp_username) != bool(settings.notify_smtp_password):
        wrong.append("COACH_NOTIFY_SMTP_USERNAME and COACH_NOTIFY_SMTP_PASSWORD: set both or neither")
    if settings.notify_smtp_username and settings.notify_smtp_security == "none":
        wrong.append("COACH_NOTIFY_SMTP_SECURITY=none: would send the password in the clear; take starttls or tls")
    if settings.notify_retry_first_s > settings.notify_retry_max_s:
        wrong.append("COACH_NOTIFY_RETRY_FIRST_S: must not be longer than COACH_NOTIFY_RETRY_MAX_S")
    return wrong
