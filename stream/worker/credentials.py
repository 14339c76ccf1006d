"""Builds Faust's Kafka credentials from the settings that `connections` uses."""

from __future__ import annotations

import ssl

import faust
from faust.auth import Credentials

from stream.errors import ConfigurationError
from stream.runtime.settings import Settings


def faust_credentials(settings: Settings) -> Credentials | None:
    """Give the credentials; None for a plain connection.

    Raises: ConfigurationError when the certificate files cannot be used.
    """
    context = _tls(settings) if settings.kafka_security_protocol.endswith("SSL") else None
    if "SASL" in settings.kafka_security_protocol:
        return faust.SASLCredentials(
            username=settings.kafka_sasl_username,
            password=settings.kafka_sasl_password,
            ssl_context=context,
            mechanism=settings.kafka_sasl_mechanism,
        )
    return None if context is None else faust.SSLCredentials(context)


def _tls(settings: Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ca_file or None)
        if settings.kafka_certificate_file:
            context.load_cert_chain(
                settings.kafka_certificate_file, settings.kafka_key_file, settings.kafka_key_password or None
            )
    except (ssl.SSLError, OSError) as error:
        message = f"COACH_KAFKA_CA_FILE, COACH_KAFKA_CERTIFICATE_FILE or COACH_KAFKA_KEY_FILE cannot be used: {error}"
        raise ConfigurationError(message) from error
    return context
