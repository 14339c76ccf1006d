"""What every test shares: how hypothesis searches, where the datasets are, one Kafka and Redis, and two lenders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.service.lender import Lender, heloc_lender, toy_lender
from tests.service.stack import each_stack, embedded_stack, real_stack_or_none, stack

__all__ = ["each_stack", "embedded_stack", "real_stack_or_none", "stack"]

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


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Lender:
    """The small lender."""
    return toy_lender(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def heloc(tmp_path_factory: pytest.TempPathFactory, datasets: Path) -> Lender:
    """The HELOC lender."""
    return heloc_lender(tmp_path_factory.mktemp("heloc"), datasets)
