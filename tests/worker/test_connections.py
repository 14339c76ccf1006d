from __future__ import annotations

import dataclasses

import faust
import pytest
from faust.types.auth import AuthProtocol

from stream.errors import ConfigurationError
from stream.runtime.connections import connect_redis, kafka_properties
from stream.runtime.settings import Settings
from stream.worker.app import faust_credentials

PLAIN = Settings(kafka_brokers="kafka:9092")
SASL = dataclasses.replace(
    PLAIN,
    kafka_security_protocol="SASL_SSL",
    kafka_sasl_username="coach",
    kafka_sasl_password="p",  # noqa: S106 - no secret
)


def test_both_clients_are_told_the_same() -> None:
    """Given SASL over TLS, when the clients are configured, then librdkafka and Faust get the same user, mechanism and protocol; a plain connection carries none of it."""
    properties = kafka_properties(SASL)
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (properties["sasl.username"], properties["sasl.password"]) == ("coach", "p")
    credentials = faust_credentials(SASL)
    assert isinstance(credentials, faust.SASLCredentials)
    assert credentials.protocol is AuthProtocol.SASL_SSL
    assert (credentials.username, credentials.password, credentials.mechanism.value) == ("coach", "p", "SCRAM-SHA-512")
    assert credentials.ssl_context is not None
    assert not [name for name in kafka_properties(PLAIN) if name.startswith(("sasl.", "ssl."))]
    assert faust_credentials(PLAIN) is None


def test_tls_without_sasl_and_without_verification_gaps() -> None:
    """Given TLS alone, when Faust is configured, then it verifies certificate and host name."""
    credentials = faust_credentials(dataclasses.replace(PLAIN, kafka_security_protocol="SSL"))
    assert isinstance(credentials, faust.SSLCredentials)
    assert credentials.context.check_hostname


def test_a_certificate_file_that_is_none_is_named() -> None:
    """Given a file that holds no certificate, when Faust is configured, then the error names the settings."""
    with pytest.raises(ConfigurationError, match="COACH_KAFKA_CA_FILE"):
        faust_credentials(dataclasses.replace(PLAIN, kafka_security_protocol="SSL", kafka_ca_file=__file__))


def test_redis_over_tls_takes_its_authorities() -> None:
    """Given rediss:// and a CA file, when the client is made, then it uses both, and nothing is connected yet."""
    client = connect_redis(dataclasses.replace(PLAIN, redis_url="rediss://cache:6380/2", redis_ca_file=__file__))
    options = client.connection_pool.connection_kwargs
    assert (options["host"], options["port"], options["db"], options["ssl_ca_certs"]) == ("cache", 6380, 2, __file__)
