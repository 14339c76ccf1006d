from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """In these tests processes die, and no machine: what was written is there without waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream.audit.archive.target.to_disk", lambda _path: None)
        yield
