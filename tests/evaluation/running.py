"""Runs units of work in a few processes, each on a core of its own, so that nobody's threads fall into another's timings."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Final, TypeAlias

from tests.evaluation.judging.judged import Case, run_case
from tests.evaluation.protocol import Unit, run_unit
from tests.evaluation.results import Results
from tests.evaluation.sizes import Size

Work: TypeAlias = Case | Unit
ONE_THREAD: Final = {  # read by the libraries when a process loads them
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}


def run_all(work: Sequence[Work], size: Size, folder: Path, processes: int) -> list[str]:
    """Run what is not done yet, and print each unit as it ends; the names of those that failed.

    Results go to `folder`. A unit that fails does not stop the others.
    """
    os.environ.update(ONE_THREAD)
    context = mp.get_context("spawn")
    cores: Queue[int] = context.Queue()
    for core in _cores(processes):
        cores.put(core)
    began, failed = time.monotonic(), []
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_take_a_core, initargs=(cores,)) as pool:
        waiting = {pool.submit(_run, one, size, folder): one for one in work}
        for count, done in enumerate(as_completed(waiting), 1):
            one, fault = waiting[done], done.result()
            minutes = (time.monotonic() - began) / 60
            print(f"[{minutes:5.1f} min] {count}/{len(work)} {one.name}{' FAILED' if fault else ''}", flush=True)
            if fault:
                failed.append(one.name)
                print(fault, flush=True)
    return failed


def _run(one: Work, size: Size, folder: Path) -> str | None:
    """Run one unit in a process; what went wrong, if anything did."""
    results = Results(folder)
    try:
        if isinstance(one, Case):
            run_case(one, size, results, folder / "scratch")
        else:
            run_unit(one, size, results)
    except Exception:  # noqa: BLE001 - it is told at once, and again at the end; the other units go on
        return traceback.format_exc()
    return None


def _cores(processes: int) -> list[int]:
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    return [known[k % len(known)] for k in range(processes)]


def _take_a_core(cores: Queue[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores.get()})
