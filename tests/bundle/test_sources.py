"""From where, and how large, a bundle may be: whoever can publish reaches nothing that an operator did not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.bundle.sources import FILES_MAX, check_size, check_source
from stream.errors import BundleUnavailable

ALLOWED = ["s3://bank/bundles", "file:///srv/bundles", "gs://other"]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bank/bundles",
        "s3://bank/bundles/credit/7",
        "s3://bank//bundles/./credit",
        "gs://other/anything",
        "/srv/bundles/credit",
        "file:///srv/bundles/credit",
        "local:///srv/bundles/credit",
        "/srv/other/../bundles/credit",
    ],
)
def test_what_lies_below_an_allowed_prefix_may_be_fetched(uri: str) -> None:
    """Given folders and prefixes, then what lies below one of them, however it is written, is allowed."""
    check_source(uri, ALLOWED)


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://bank/bundles",
        "s3://bank/bundles-of-others",
        "s3://bank",
        "s3://bank.evil/bundles/x",
        "s3://bank@evil/bundles/x",
        "s3://bank/bundles/../secrets",
        "s3://bank/bundles/%2e%2e/secrets",
        "s3://bank/bundles/%2E%2e/secrets",
        "s3://bank/bundles/..\\secrets",
        "simplecache::s3://bank/bundles/x",
        "s3://bank/bundles/x::http://evil",
        "zip://inner::/srv/bundles/x.zip",
        "/srv/bundles/../../etc",
        "/srv/bundlesmore",
        "file:///etc",
        "~/bundles",
        "",
        "memory://x",
        "file://evil/srv/bundles/x",
    ],
)
def test_all_else_is_refused_with_what_to_do(uri: str) -> None:
    """Given any other URI, those that climb out of a prefix or hide another address among them, then it is refused, and the message names the setting."""
    with pytest.raises(BundleUnavailable, match="COACH_BUNDLE_SOURCES"):
        check_source(uri, ALLOWED)


def test_a_link_out_of_an_allowed_folder_leads_nowhere(tmp_path: Path) -> None:
    """Given an allowed folder with a symbolic link to another, then what lies behind the link is refused, and the rest is not."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "bundle").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path)
    check_source(str(tmp_path / "allowed" / "bundle"), [str(tmp_path / "allowed")])
    with pytest.raises(BundleUnavailable):
        check_source(str(tmp_path / "allowed" / "link" / "other"), [str(tmp_path / "allowed")])


def test_a_message_repeats_no_secret_of_a_uri() -> None:
    """Given a URI with a user, a password and a signature, when refused, then none of them is in the message."""
    with pytest.raises(BundleUnavailable) as refused:
        check_source("s3://user:hunter2@bucket/x?X-Amz-Signature=abcdef", ALLOWED)
    assert "hunter2" not in str(refused.value)
    assert "abcdef" not in str(refused.value)


def test_nothing_is_allowed_where_nothing_is_named(tmp_path: Path) -> None:
    """Given no source, and a source that is no address, then every URI is refused."""
    for allowed in ([], ["simplecache::s3://bank"], ["s3://bank/../x"]):
        for uri in (str(tmp_path), "s3://bank/x", "simplecache::s3://bank/x"):
            with pytest.raises(BundleUnavailable):
                check_source(uri, allowed)


@pytest.mark.parametrize(
    ("count", "size", "bytes_max", "fits"),
    [
        (1, 1_000, 1_000, True),
        (1, 1_001, 1_000, False),
        (2, 501, 1_000, False),
        (1, 10 << 30, 1 << 40, False),  # ten gigabytes where five are free
        (FILES_MAX, 0, 1_000, True),
        (FILES_MAX + 1, 0, 1_000, False),
    ],
)
def test_a_manifest_that_says_too_much_is_refused_before_a_byte_is_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, size: int, bytes_max: int, *, fits: bool
) -> None:
    """Given a manifest with so many files of such a size, and a disk with five free gigabytes, then it is taken if it fits the bound, the disk and the number of files, and else refused with all three."""
    usage = type("Usage", (), {"free": 5 << 30})
    monkeypatch.setattr("stream.bundle.sources.shutil.disk_usage", lambda _folder: usage)
    files = {f"f{n}": {"sha256": "0" * 64, "bytes": size} for n in range(count)}
    if fits:
        check_size(files, tmp_path / "bundle", bytes_max)  # type: ignore[arg-type]  # as read from a manifest
        return
    with pytest.raises(BundleUnavailable, match=f"holds {count * size} bytes in {count} files") as refused:
        check_size(files, tmp_path / "bundle", bytes_max)  # type: ignore[arg-type]  # as above
    assert f"COACH_BUNDLE_BYTES_MAX={bytes_max}" in str(refused.value)
