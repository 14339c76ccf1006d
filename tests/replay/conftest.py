from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replay.past import Lived, past
from tests.service.lender import Lender, toy_lender
from tests.service.stack import Stack

DECISIONS, KILLS, CHUNK = 240, 1, 10


@pytest.fixture(scope="session")
def lenders(toy: Lender, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lender, Lender]:
    """Two versions of one model, of the same features, trained on other rows."""
    return toy, toy_lender(tmp_path_factory.mktemp("successor"), version="2026-11", seed=9)


@pytest.fixture(scope="session")
def lived(stack: Stack, lenders: tuple[Lender, Lender], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """A past: 240 decisions of two interleaved versions, answered by two workers of which one is killed."""
    if not stack.real:
        pytest.skip("the embedded Kafka makes no topics on request")
    with past(stack, lenders, tmp_path_factory.mktemp("past"), decisions=DECISIONS, kills=KILLS, chunk=CHUNK) as found:
        yield found
