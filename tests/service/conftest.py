from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.lender import Lender, heloc_lender, toy_lender
from tests.service.stack import each_stack, embedded_stack, real_stack_or_none, stack

__all__ = ["each_stack", "embedded_stack", "real_stack_or_none", "stack"]


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Lender:
    """The small lender."""
    return toy_lender(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def heloc(tmp_path_factory: pytest.TempPathFactory, datasets: Path) -> Lender:
    """The HELOC lender."""
    return heloc_lender(tmp_path_factory.mktemp("heloc"), datasets)
