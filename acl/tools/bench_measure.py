"""Measuring one load: how many rounds, what the clock costs, medians and percentiles.

A load is run some times after a warm-up; each run's thread CPU time is divided by its pairs, and the median
and the least of the runs are kept. Percentiles come from a run of their own, with a cheap clock
around each call, so that they do not disturb the other numbers; the clock's own cost is taken off.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from acl.tools import _meter
from acl.tools._loops import Load, run_foreign, run_here, run_python, ticks_per_ns

__all__ = ["Effort", "Timing", "latencies", "time_load", "time_together", "timed_pass"]

TIMED_PART = 2048
EMPTY_PARTS = 16


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    repeats: int = 7
    run_ns: int = 20_000_000    # what one run should take
    least: int = 200            # pairs in a run

    @classmethod
    def quick(cls) -> Effort:
        """A first impression, for CI."""
        return cls(repeats=3, run_ns=4_000_000, least=50)


@dataclass
class Timing:
    """What some runs took, per pair."""

    pairs: int
    cpu_ns: list[float] = field(default_factory=list)
    wall_ns: list[float] = field(default_factory=list)
    instructions: list[float] = field(default_factory=list)

    def add(self, other: Timing) -> None:
        """Append another timing's runs."""
        self.cpu_ns += other.cpu_ns
        self.wall_ns += other.wall_ns
        self.instructions += other.instructions

    @property
    def median(self) -> float:
        """Thread CPU time of a pair, in the middle run."""
        return statistics.median(self.cpu_ns)

    @property
    def least(self) -> float:
        """Thread CPU time of a pair, in the best run."""
        return min(self.cpu_ns)

    @property
    def instructions_median(self) -> float | None:
        """Instructions of a pair, where the machine counts them."""
        value = statistics.median(self.instructions)
        return value or None


def timing_of(samples: Sequence[tuple[int, int, int]], pairs: int) -> Timing:
    timing = Timing(pairs)
    for cpu, wall, instructions in samples:
        timing.cpu_ns.append(cpu / pairs)
        timing.wall_ns.append(wall / pairs)
        timing.instructions.append(instructions / pairs)
    return timing


def fitting_count(make: Callable[[int], Load], effort: Effort, most: int) -> int:
    """How many pairs take about as long as a run should."""
    probe = make(effort.least)
    cpu, wall, _ = min(run_here(probe, 3), key=lambda sample: sample[1])
    probe.close()
    each = max(cpu, wall, 1) / effort.least
    return max(effort.least, min(most, int(effort.run_ns / each)))


def time_load(load: Load, effort: Effort, warm: int = 1) -> Timing:
    """Time a load on this thread; `load.allocations` are its pairs."""
    run_here(load, warm)
    return timing_of(run_here(load, effort.repeats), load.allocations)


def timed_pass(load: Load, events: int, size: int = TIMED_PART) -> list[tuple[float, float]]:
    """Nanoseconds of the parts of one pass over a load of events: in driver calls, and outside them.

    The driver's share is taken off the time on the wall, as driver calls may sleep; that counts
    other programs too where CPU time does not, so the smaller of the two is what the part took
    outside the driver. What a part without events takes, that is the clocks, is taken off.
    """
    scale = clock_scale()[0]
    empty = [load.timed_step(0, 0) for _ in range(EMPTY_PARTS)]
    cpu_least, wall_least = min(cpu for cpu, _ in empty), min(wall for _, wall in empty)
    parts = []
    for first in range(0, events, size):
        before = _meter.total()[1]
        cpu, wall = load.timed_step(first, min(size, events - first))
        driver = (_meter.total()[1] - before) / scale
        parts.append((driver, max(0.0, min(cpu - cpu_least, wall - wall_least - driver))))
    return parts


def time_together(loads: Sequence[Load], effort: Effort, foreign: bool, context: int) -> list[Timing]:
    """Time loads that run at the same time, one a thread; Python's threads or foreign ones."""
    run = run_foreign if foreign else run_python
    run(loads, 1, context)
    return [timing_of(samples, load.allocations)
            for load, samples in zip(loads, run(loads, effort.repeats, context), strict=True)]


@cache
def clock_scale() -> tuple[float, int]:
    return ticks_per_ns()


def percentile(histogram: Sequence[tuple[int, int]], share: float) -> float | None:
    """Nanoseconds below which `share` of the calls stayed, without the clock's own cost."""
    scale, cost = clock_scale()
    wanted = share * sum(count for _, count in histogram)
    seen = 0
    for ticks, count in histogram:
        seen += count
        if seen >= wanted:
            return round(max(0, ticks - cost) / scale, 1)
    return None


def latencies(load: Load) -> dict[str, float | None]:
    """Percentiles of one run: of alloc with the address read, and of free."""
    alloc, free = load.latencies()
    shares = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}
    return {
        **{key: percentile(alloc, share) for key, share in shares.items()},
        **{f"free_{key}": percentile(free, share) for key, share in shares.items()},
    }
