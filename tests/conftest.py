"""What every test shares: how hypothesis searches, where the datasets are, one Kafka and Redis, and two lenders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.service.lender import Lender, heloc_lender, toy_lender
from tests.service.redis_fixtures import client, no_redis, redis_url
from tests.service.stack import each_stack, embedded_stack, loud, real_stack_or_none, stack

__all__ = ["client", "each_stack", "embedded_stack", "no_redis", "real_stack_or_none", "redis_url", "stack"]

NEEDS_SERVICES = frozenset({"stack", "each_stack"})
COMPILING = pytest.StashKey[subprocess.Popen[bytes]]()
SHORT_FOR_EACH_LONG = 4  # files; some are left for the end, when the long ones are done
REPOSITORY = Path(__file__).resolve().parents[1]

settings.register_profile("here", deadline=None, max_examples=examples(100))
settings.register_profile(  # CI must say the same of the same commit, and has two slow cores
    "ci",
    deadline=None,
    max_examples=examples(100),
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to compile what answers need, once: several processes would do so side by side, and their workers start late."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.option.loadscopereorder = False  # else xdist begins with the files that have the most tests
        both = (
            "from tests.recourse.lenders import lender; [lender(name).answers(1) for name in ('xgboost', 'lightgbm')]"
        )
        config.stash[COMPILING] = subprocess.Popen([sys.executable, "-c", both], cwd=REPOSITORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Hand out no test before that is done; processes collect meanwhile."""
    compiling = node.config.stash.get(COMPILING, None)
    if compiling is not None and compiling.wait():
        message = f"compiling what answers need ended with {compiling.returncode}; what it said is above"
        raise pytest.UsageError(message)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one file in one process, which then makes what they share once.

    Files that wait for services alternate with such as compute, so that no processor waits; the long ones begin first.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.relative_to(REPOSITORY).as_posix()))
    long = {item.path for item in items if _is_long(item)}
    turns = dict.fromkeys((item.path for item in items), 0)
    for n, path in enumerate(path for path in turns if path in long):
        turns[path] = n * (1 + SHORT_FOR_EACH_LONG)
    for n, path in enumerate(path for path in turns if path not in long):
        turns[path] = n + n // SHORT_FOR_EACH_LONG + 1
    items.sort(key=lambda item: turns[item.path])


def _is_long(item: pytest.Item) -> bool:
    marked = item.get_closest_marker("service") or item.get_closest_marker("judge")
    return bool(marked or NEEDS_SERVICES & set(getattr(item, "fixturenames", ())))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to go on where the groups are lost: each test process would start the services of each file anew.

    pytest-xdist marks a group in a test's id, which pytest 9.2 no longer lets it do, and nothing tells.
    """
    if getattr(session.config.option, "loadgroup", False):
        lost = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        if lost:
            message = f"pytest {pytest.__version__} and pytest-xdist lose the group of {lost[0]}; install what the lock files name"
            raise pytest.UsageError(message)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - xdist's signature
    """Say what a test process found loud."""
    for line in getattr(node, "workeroutput", {}).get("loud", ()):
        loud(node.config, line)


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
