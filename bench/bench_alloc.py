"""Workloads of `aclpool bench` as pytest-benchmark cases, so that a regression is noticed.

    pytest bench/bench_alloc.py                             run and print
    pytest bench/bench_alloc.py --benchmark-save=NAME       keep the times
    aclpool compare .benchmarks/*/0001_*.json .benchmarks/*/0002_*.json

Each round runs in its own process, as in `aclpool bench`. The time of a round is that of one pair: alloc, read the
address, free, through the function pointers that ACL gets. pytest-benchmark reads a clock that is advanced by this
time. The floor is the same loop with empty callbacks; the difference is the allocator's time. A device, percentiles,
memory and several threads are not measured here; `aclpool bench` measures percentiles, memory and several threads.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

from acl.tools.bench import Lists, job_of, measure_apart
from acl.tools.bench.cases import HOT_SIZE, Case
from acl.tools.bench.measure import Effort
from acl.tools.bench.subjects import candidate_of

ROUNDS = 5
NAMES = ("floor", "aclpool", "glibc", "ctypes")
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("W1", {"size": HOT_SIZE, "thread": "python"}),
    ("W2", {"thread": "python"}),
    ("W3", {}),
    ("W5", {}),
    ("live", {"live_blocks": 10_000, "what": "random replacement"}),
    ("sizes", {"distinct_sizes": 1_000, "what": "64 slots"}),
)
CASES = [Case(workload, name, parameters) for workload, parameters in ROWS for name in NAMES]
CASES += [Case("live", "aclpool", {"live_blocks": live, "what": "hot pair"}) for live in (100, 10_000, 1_000_000)]


class PairClock:
    """A clock that each round advances by the seconds of one of its pairs."""

    seconds = 0.0

    def now(self) -> float:
        """Return the seconds so far."""
        return self.seconds


CLOCK = PairClock()


@pytest.fixture(scope="module")
def lists() -> Iterator[Lists]:
    """Yield the event lists that W5 plays."""
    with TemporaryDirectory() as folder:
        yield Lists(Path(folder), True, {})


@pytest.mark.benchmark(timer=CLOCK.now)
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def bench_row(benchmark: Any, lists: Lists, case: Case) -> None:
    candidate = candidate_of(case.allocator)
    found: list[dict[str, Any]] = []

    def one_process() -> None:
        answer = measure_apart(candidate, job_of(candidate, case, Effort(), False, lists), lists.folder)
        if "unavailable" in answer:
            pytest.skip(answer["unavailable"])
        assert "rows" in answer, answer["failed"]
        found.extend(answer["rows"])
        CLOCK.seconds += statistics.median(found[-1]["samples"]) / 1e9

    benchmark.group = case.workload
    benchmark.pedantic(one_process, rounds=ROUNDS)
    assert not any(row["failures"] for row in found)
    for key in ("samples", "floor_around_ns"):              # for `aclpool compare`
        benchmark.extra_info[key] = [row[key] for row in found]
    benchmark.extra_info.update(allocator=case.allocator, pairs=found[0]["pairs"], about=found[0]["about"])
