"""What a refusal of the brokers says: the password, or the certificate, and the setting to look at; and that the right ones work."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import Result

from tests.kafka.brokers import Brokers, NoBrokers, free_ports
from tests.service.room import invoked
from tests.service.stack import REQUIRED

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]

USER, PASSWORD = "coach", "right-horse-battery"


class SecuredBrokers(Brokers):
    """One broker with two listeners more: a user with a password, and TLS by the certificate in `pem`."""

    def __init__(self, directory: Path, ports: list[int], pem: Path) -> None:
        super().__init__(directory, ports[:1])
        self.sasl, self.tls = (f"127.0.0.1:{port}" for port in ports[1:])
        self._pem = pem

    def _properties(self, number: int) -> str:
        text = super()._properties(number)
        listeners = f",SASL_PLAINTEXT://{self.sasl},SSL://{self.tls}"
        text = re.sub(r"(?m)^((?:advertised\.)?listeners=.*)$", rf"\1{listeners}", text)
        text = re.sub(
            r"(?m)^(listener\.security\.protocol\.map=.*)$", r"\1,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL", text
        )
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return text + (
            "sasl.enabled.mechanisms=PLAIN\n"
            f'listener.name.sasl_plaintext.plain.sasl.jaas.config={login} required user_{USER}="{PASSWORD}";\n'
            f"ssl.keystore.type=PEM\nssl.keystore.location={self._pem}\n"
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredBrokers, Path]]:
    """A broker, and the certificate that it shows."""
    folder = tmp_path_factory.mktemp("secured")
    key, certificate, pem = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    pem.write_text(key.read_text() + certificate.read_text())
    with ExitStack() as stack:
        try:
            brokers = stack.enter_context(SecuredBrokers(folder / "kafka", free_ports(3), pem))
        except NoBrokers as why:
            if REQUIRED:
                pytest.fail(str(why))
            pytest.skip(str(why))
        yield brokers, certificate


def asked(brokers: str, **settings: str) -> Result:
    """Ask for the topics, with these settings."""
    environment = {"COACH_KAFKA_BROKERS": brokers, "COACH_START_WAIT_S": "5"}
    return invoked(
        "topics", "apply", "--dry-run", **environment, **{f"COACH_KAFKA_{n}": v for n, v in settings.items()}
    )


def test_a_wrong_password_is_called_so_and_the_right_one_works(secured: tuple[SecuredBrokers, Path]) -> None:
    """Given brokers that ask for a password, when it is wrong, then one line says that the user is not accepted and names the settings and no secret, with exit code 3; with the right one the topics are listed."""
    own = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_MECHANISM": "PLAIN", "SASL_USERNAME": USER}
    refused = asked(secured[0].sasl, **own, SASL_PASSWORD="wrong-horse")  # noqa: S106 - a wrong one
    assert refused.exit_code == 3
    assert "do not accept this user: check COACH_KAFKA_SASL_USERNAME" in refused.stderr
    assert "wrong-horse" not in refused.output
    assert asked(secured[0].sasl, **own, SASL_PASSWORD=PASSWORD).exit_code == 1  # topics are missing


def test_an_unknown_authority_is_called_so_and_the_right_one_works(secured: tuple[SecuredBrokers, Path]) -> None:
    """Given brokers behind TLS, when their authority is not known, then one line says that TLS does not come about and names the settings, with exit code 3; with it the topics are listed."""
    brokers, certificate = secured
    refused = asked(brokers.tls, SECURITY_PROTOCOL="SSL")
    assert refused.exit_code == 3
    assert "TLS does not come about: check COACH_KAFKA_CA_FILE" in refused.stderr
    assert asked(brokers.tls, SECURITY_PROTOCOL="SSL", CA_FILE=str(certificate)).exit_code == 1
