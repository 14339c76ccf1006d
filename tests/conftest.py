"""What every test shares: how hypothesis searches, and where the datasets are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile("here", deadline=None)
settings.register_profile(  # CI must say the same of the same commit, and has two slow cores
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder of real datasets, which are never part of the repository; without it the test is skipped, in CI it fails."""
    folder = Path(os.environ.get("COACH_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        absent = f"no datasets at {folder}: set COACH_DATA to the folder that holds heloc.csv.gz and the others"
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        pytest.skip(absent)
    return folder
