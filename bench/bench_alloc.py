"""The workloads of `aclpool bench` as pytest-benchmark cases, so that a regression is seen.

    pytest bench/bench_alloc.py                                run and print
    pytest bench/bench_alloc.py --benchmark-autosave           keep the numbers
    pytest bench/bench_alloc.py --benchmark-compare --benchmark-compare-fail=median:10%

A case is one run of a compiled loop over PAIRS pairs (`extra_info` has the number): alloc, the
address read, free, through the function pointers that ACL got. The floor is the same loop with empty
callbacks; the difference is the allocator's. Not measured: a device, percentiles, several threads
(`aclpool bench` does those).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, Subject, run_here
from acl.tools.bench_subjects import Opened, Unavailable, choose

PAIRS = 100_000
NAMES = ("floor", "aclpool", "glibc", "mimalloc", "ctypes")


@pytest.fixture(params=NAMES)
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """An allocator, open."""
    candidate = next(each for each in choose(",".join(NAMES)) if each.name == request.param)
    try:
        found = candidate.open()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    found.close()


def load_of(workload: str, subject: Subject) -> Load:
    """The load, warm."""
    if workload == "W1":
        return Load.pairs(subject, workloads.HOT_SIZE, PAIRS)
    if workload == "W5":
        load = Load.events([subject], workloads.inference(steps=16)[0])
    else:
        work = workloads.mixed() if workload == "W2" else workloads.random_sizes(steps=PAIRS)
        load = Load.replace(subject, work.events, PAIRS)
        load.fill()
    run_here(load, 1)
    return load


@pytest.mark.parametrize("workload", ["W1", "W2", "W3", "W5"])
def bench_workload(benchmark: Any, opened: Opened, workload: str) -> None:
    load = load_of(workload, opened.subject)
    benchmark.group = workload
    benchmark.extra_info["pairs"] = load.allocations
    benchmark.pedantic(run_here, args=(load, 1), rounds=7, warmup_rounds=1)
    assert load.failures == 0
    load.close()


@pytest.mark.parametrize("live", [100, 10_000, 1_000_000])
def bench_hot_pair_beside_live_blocks(benchmark: Any, live: int) -> None:
    with next(each for each in choose("none") if each.name == "aclpool").open() as ours:
        others = Load.replace(ours.subject, workloads.live_blocks(live).events, 1)
        others.fill()
        load = Load.pairs(ours.subject, workloads.HOT_SIZE, PAIRS)
        benchmark.group = "live"
        benchmark.extra_info["pairs"] = PAIRS
        benchmark.pedantic(run_here, args=(load, 1), rounds=7, warmup_rounds=1)
        others.close()
