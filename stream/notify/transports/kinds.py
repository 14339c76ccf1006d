"""The kinds of transport, one record each: when it is set up, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stream.notify.deadlines import Deadlines
from stream.notify.notices.record import PRINT, Channel
from stream.notify.settings import NotifySettings, electronic_channels
from stream.notify.transports.mail import Mail
from stream.notify.transports.outbox import Files, Outbox
from stream.notify.transports.transport import Transport
from stream.notify.transports.webhook import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportKind:
    """`make` raises ConfigurationError, or DiskUnavailable where the transport writes files."""

    is_set_up: Callable[[NotifySettings], bool]
    make: Callable[[NotifySettings, Deadlines], Transport]


TRANSPORTS: Final[Mapping[Channel, TransportKind]] = {
    "email": TransportKind(is_set_up=lambda settings: bool(settings.notify_smtp_host), make=Mail),
    "webhook": TransportKind(is_set_up=lambda settings: bool(settings.notify_webhook_url), make=Webhook),
    "files": TransportKind(is_set_up=lambda _settings: True, make=lambda settings, _: Files(settings.notify_files)),
    PRINT: TransportKind(is_set_up=lambda _settings: True, make=lambda settings, _: Outbox(settings.notify_outbox)),
}


def channels_on(settings: NotifySettings) -> tuple[Channel, ...]:
    """List the electronic channels that are asked for and set up; print always is."""
    asked = electronic_channels(settings.notify_channels)
    return tuple(channel for channel in asked if TRANSPORTS[channel].is_set_up(settings))


def transports_of(settings: NotifySettings, deadlines: Deadlines) -> dict[Channel, Transport]:
    """Make the transports that are on. Raises: ConfigurationError, DiskUnavailable."""
    return {channel: TRANSPORTS[channel].make(settings, deadlines) for channel in (PRINT, *channels_on(settings))}
