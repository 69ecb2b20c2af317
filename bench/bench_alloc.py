"""The workloads of `aclpool bench` as pytest-benchmark cases, so that a regression is seen.

    pytest bench/bench_alloc.py                                run and print
    pytest bench/bench_alloc.py --benchmark-save=NAME          keep the numbers
    pytest bench/bench_alloc.py --benchmark-compare --benchmark-compare-fail=median:10%

A case's time is thread CPU time of one pair (alloc, the address read, free, through the function
pointers that ACL got): the clock that pytest-benchmark reads counts the seconds of a run over its pairs.
The floor is the same loop with empty callbacks; the difference is the allocator's. Not measured: a
device, percentiles, several threads (`aclpool bench` does those, in a process for each row).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, Subject, run_here
from acl.tools.bench_subjects import Opened, Unavailable, candidate_of

PAIRS = 100_000
NAMES = ("floor", "aclpool", "glibc", "ctypes")
LOADS: dict[str, Callable[[Subject, int], Load]] = {
    "W1": lambda subject, count: Load.pairs(subject, workloads.HOT_SIZE, count),
    "W2": workloads.mixed,
    "W3": workloads.random_sizes,
    "W5": lambda subject, count: Load.events([subject], workloads.inference(steps=16)[0]),
    "live": lambda subject, count: workloads.live_blocks(subject, 10_000, count),
    "sizes": lambda subject, count: workloads.distinct_sizes(subject, 1_000, 64, count),
}


class PairClock:
    """A clock that each run of a load moves by the seconds of one of its pairs."""

    seconds = 0.0

    def now(self) -> float:
        """Seconds so far."""
        return self.seconds

    def run(self, load: Load) -> None:
        """Run the load once."""
        self.seconds += run_here(load, 1)[0][0] / load.allocations / 1e9


CLOCK = PairClock()


@pytest.fixture(params=NAMES)
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """An allocator, open."""
    try:
        found = candidate_of(request.param).open()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    found.close()


@pytest.mark.benchmark(timer=CLOCK.now)
@pytest.mark.parametrize("workload", LOADS)
def bench_workload(benchmark: Any, opened: Opened, workload: str) -> None:
    load = LOADS[workload](opened.subject, PAIRS)
    benchmark.group = workload
    benchmark.extra_info["pairs"] = load.allocations
    benchmark.pedantic(CLOCK.run, args=(load,), rounds=7, warmup_rounds=2)
    assert load.failures == 0
    load.close()


@pytest.mark.benchmark(timer=CLOCK.now)
@pytest.mark.parametrize("live", [100, 10_000, 1_000_000])
def bench_hot_pair_beside_live_blocks(benchmark: Any, live: int) -> None:
    with candidate_of("aclpool").open() as ours:
        others = workloads.live_blocks(ours.subject, live, 1)
        load = Load.pairs(ours.subject, workloads.HOT_SIZE, PAIRS)
        benchmark.group = "hot pair beside live blocks"
        benchmark.extra_info["pairs"] = PAIRS
        benchmark.pedantic(CLOCK.run, args=(load,), rounds=7, warmup_rounds=2)
        others.close()
