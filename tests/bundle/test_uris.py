from __future__ import annotations

import pytest

from stream.bundle.uris import MASK, has_secrets, without_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("/srv/bundles/a", "/srv/bundles/a"),
        ("kafka-1:9092,kafka-2:9092", "kafka-1:9092,kafka-2:9092"),
        ("redis://user:S@cache:6379/0", f"redis://{MASK}@cache:6379/0"),
        ("redis://S@cache", f"redis://{MASK}@cache"),
        ("user:S@cache", f"{MASK}@cache"),
        ("redis://user:S@[::1", f"redis://{MASK}@[::1"),
        ("redis://user:a@S?/#S@cache", f"redis://{MASK}@cache"),
        ("redis://cache?password=S", f"redis://cache?{MASK}"),
        ("https://host/bundle?X-Amz-Signature=S#S", f"https://host/bundle?{MASK}"),
        ("unix://:S@/run/redis.sock", f"unix://{MASK}@/run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    """Given an address, well-formed or not, when it is shown, then user, password and query are masked, and the rest stays."""
    assert without_secrets(address) == shown


@pytest.mark.parametrize(
    ("uri", "secret"),
    [
        ("s3://bucket/b", False),
        ("/srv/a@b", False),
        ("s3://bucket/b?versionId=7", False),
        ("s3://user:S@bucket/b", True),
        ("https://host/b?sig=S", True),
        ("https://host/b?a=1&X-Amz-Credential=S", True),
    ],
)
def test_a_uri_with_a_secret_in_it_is_known(uri: str, secret: bool) -> None:  # noqa: FBT001 - a table's column
    """Given a URI, when asked whether it has a secret in it, then user, password and signature count."""
    assert has_secrets(uri) == secret
