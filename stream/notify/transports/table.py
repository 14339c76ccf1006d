"""The transport of each channel: a new one gets a row here, and one in `settings.CHANNELS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stream.notify.deadlines import Deadlines
from stream.notify.settings import Channel, NotifySettings
from stream.notify.transports.mail import Mail
from stream.notify.transports.outbox import Files, Outbox
from stream.notify.transports.transport import Transport
from stream.notify.transports.webhook import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportKind:
    """How a transport is opened. `check` asks its `receiver` for an answer, where there is one to ask."""

    open: Callable[[NotifySettings, Deadlines], Transport]
    receiver: str = ""
    check: Callable[[NotifySettings], str] | None = None


TRANSPORTS: Final[Mapping[Channel, TransportKind]] = {
    "email": TransportKind(open=Mail, receiver="the mail server", check=lambda settings: Mail(settings).check()),
    "webhook": TransportKind(open=Webhook),
    "files": TransportKind(open=lambda settings, _deadlines: Files(settings.notify_files)),
    "print": TransportKind(open=lambda settings, _deadlines: Outbox(settings.notify_outbox)),
}


def open_transports(settings: NotifySettings, deadlines: Deadlines) -> dict[Channel, Transport]:
    """Open print and the electronic channels that are on. Raises: ConfigurationError, DiskUnavailable."""
    return {channel: TRANSPORTS[channel].open(settings, deadlines) for channel in ("print", *settings.channels)}
