"""Measure one load: number of pairs, warm-up, samples, percentiles, memory.

A *pair* is an allocation and a free.  A load is run until three consecutive runs agree; then it is warm.  It is run
some more times, and each of these runs gives a sample: the thread CPU time or the wall time of a pair.  Percentiles
are measured in separate runs, because they read a clock around each call; the clock's own cost is subtracted.
"""

from __future__ import annotations

import ctypes
import gc
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from acl.tools.bench import _meter
from acl.tools.bench._loops import Load, run_here, run_together, ticks_per_ns

__all__ = ["Effort", "Sampled", "fitting_count", "fitting_passes", "give_back_heap", "latencies", "sample_alone",
           "sample_together", "timed_pass", "touched_peak", "warm_up"]

TIMED_PART = 2048
EMPTY_PARTS = 16
SETTLED = 1.05          # a load is warm if three consecutive runs differ by at most this factor
LONG_RUN = 20           # if a run takes at least this many times `run_ns`, each process takes one sample
TOGETHER = 0.9          # smallest share of a run's time in which all its threads must run
SHARES = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999, "p9999_ns": 0.9999, "worst_ns": 1.0}


@dataclass(frozen=True)
class Effort:
    """How long and how often a row is measured."""

    rounds: int = 4                 # processes for each row; `aclpool compare` needs four
    samples: int = 3                # timed runs in each process
    run_ns: int = 10_000_000        # time that one run should take
    least: int = 200                # least number of pairs in a run
    warm_runs: int = 30             # most runs of the warm-up
    warm_ns: int = 300_000_000      # most processor time of the warm-up
    touch_bytes: int = 32 << 30     # most bytes written to measure the resident memory of a row

    @classmethod
    def quick(cls) -> Effort:
        """Return the effort of a quick run, for CI."""
        return cls(run_ns=2_000_000, least=50, warm_runs=20, warm_ns=60_000_000, touch_bytes=1 << 30)


@dataclass
class Sampled:
    """The samples of a load, or of several that ran together: nanoseconds of a pair in each run."""

    cpu_ns: list[float]
    wall_ns: list[float]
    instructions: list[float]
    overlap: list[float] | None = None      # for each run, the share of its time in which all threads ran
    warm: dict[str, Any] | None = None


def warm_up(once: Callable[[], float], effort: Effort) -> dict[str, Any]:
    """Repeat `once` until three consecutive times agree, or the warm-up has taken as long as `effort` allows.

    Return the number of runs, the milliseconds of wall time, and True (`stable`) if the times agreed.
    """
    times: list[float] = []
    begun, worked = time.monotonic_ns(), time.process_time_ns()
    stable = False
    while not stable and len(times) < effort.warm_runs:
        if len(times) > 1 and time.process_time_ns() - worked > effort.warm_ns:
            break
        times.append(once())
        last = times[-3:]
        stable = len(last) == 3 and max(last) <= SETTLED * min(last)
    return {"warm_up_runs": len(times), "warm_up_ms": round((time.monotonic_ns() - begun) / 1e6, 1), "stable": stable}


def fitting_count(make: Callable[[int], Load], effort: Effort, most: int) -> int:
    """Return the number of pairs with which a run takes about `run_ns`: at least `effort.least`, at most `most`."""
    probe = make(effort.least)
    runs = run_here(probe, 1)
    if runs[0][1] < effort.run_ns:
        runs += run_here(probe, 2)
    cpu, wall, _ = min(runs, key=lambda sample: sample[1])
    each = max(cpu, wall, 1) / probe.allocations            # the probe may have more than `least` pairs
    probe.close()
    return max(effort.least, min(most, int(effort.run_ns / each)))


def fitting_passes(load: Load, effort: Effort) -> int:
    """Return the number of passes over a list of events that together take about `run_ns`; at least one."""
    return max(1, effort.run_ns // max(1, *min(run_here(load, 2))[:2]))


def sample_alone(load: Load, effort: Effort, passes: int = 1) -> Sampled:
    """Return samples of a load on this thread, each the mean of `passes` passes of `load.allocations` pairs.

    There are `effort.samples` samples, or only one if it took more than `LONG_RUN` times `run_ns`.
    """
    pairs = load.allocations * passes

    def once() -> tuple[float, ...]:
        return tuple(sum(column) / pairs for column in zip(*run_here(load, passes), strict=True))

    warm = warm_up(lambda: once()[0], effort)
    samples = [once()]
    if samples[0][0] * pairs <= LONG_RUN * effort.run_ns:
        samples += [once() for _ in range(effort.samples - 1)]
    cpu, wall, instructions = (list(column) for column in zip(*samples, strict=True))
    return Sampled(cpu, wall, instructions, warm=warm)


Windows = Sequence[tuple[int, int]]
Run = tuple[float, float, float, float]         # one run: CPU time, wall time, instructions, overlap


def overlap(windows: Windows, of: int | None = None) -> float:
    """Return the share of a run in which all threads ran: the run of thread `of`, or, if None, the longest run."""
    common = min(ended for _, ended in windows) - max(began for began, _ in windows)
    longest = max(ended - began for began, ended in (windows if of is None else [windows[of]]))
    return max(0, common) / max(1, longest)


def sample_together(loads: Sequence[Load], effort: Effort, foreign: bool, context: int,
                    join: Callable[[Sequence[float]], float] = statistics.mean, of: int | None = None) -> Sampled:
    """Return samples of loads that run at the same time, each on its own thread.

    A sample is the time of one allocation and free on thread `of`, or, if None, the result of `join` for the times of
    all threads.  If all threads ran together for a share of a run below `TOGETHER`, more runs are made, up to three
    times as many, and those with the largest shares are kept.  `Sampled.overlap` has these shares.
    """
    def once(repeats: int) -> list[Run]:
        results, windows = run_together(loads, repeats, foreign, context)

        def value(repeat: int, kind: int) -> float:
            each = [runs[repeat][kind] / load.allocations for load, runs in zip(loads, results, strict=True)]
            return join(each) if of is None else each[of]

        return [(value(i, 0), value(i, 1), value(i, 2), overlap(windows[i], of)) for i in range(repeats)]

    warm = warm_up(lambda: once(1)[0][1], effort)
    kept: list[Run] = []
    for _ in range(4):
        kept = sorted(kept + once(effort.samples), key=lambda run: -run[3])[:effort.samples]
        if kept[-1][3] >= TOGETHER:
            break
    cpu, wall, instructions, shares = (list(column) for column in zip(*kept, strict=True))
    return Sampled(cpu, wall, instructions, shares, warm)


def timed_pass(load: Load, events: int, size: int = TIMED_PART) -> list[tuple[float, float]]:
    """Play one pass over the events in parts; return, for each part, the nanoseconds in driver calls and outside them.

    Driver calls may sleep, so their time is subtracted from the wall time.  The result still includes the time of
    other programs; the CPU time does not.  So the smaller of the two is taken as the time outside the driver.  The
    time of a part without events, which is the cost of the clocks, is subtracted.
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


# ---- latency ----

@cache
def clock_scale() -> tuple[float, int]:
    return ticks_per_ns()


def nanoseconds(ticks: int) -> float:
    """Convert ticks to nanoseconds, without the clock's own cost."""
    scale, cost = clock_scale()
    return round(max(0, ticks - cost) / scale, 1)


def percentile(histogram: Sequence[tuple[int, int]], share: float) -> float | None:
    """Return the nanoseconds that the fraction `share` of the calls did not exceed; None if there were no calls."""
    wanted = share * sum(count for _, count in histogram)
    seen = 0
    for ticks, count in histogram:
        seen += count
        if seen >= wanted:
            return nanoseconds(ticks)
    return None


def latencies(load: Load, runs: int = 1) -> dict[str, Any]:
    """Return percentiles and histograms of the calls of some runs: of allocations with their address, and of frees."""
    counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    for _ in range(runs):
        for count, histogram in zip(counts, load.latencies(), strict=True):
            count.update(dict(histogram))
    alloc, free = (sorted(count.items()) for count in counts)
    return {
        **{key: percentile(alloc, share) for key, share in SHARES.items()},
        **{f"free_{key}": percentile(free, share) for key, share in SHARES.items()},
        "histogram_ns": {"alloc": [(nanoseconds(ticks), count) for ticks, count in alloc],
                         "free": [(nanoseconds(ticks), count) for ticks, count in free]},
    }


# ---- resident memory ----

def resident(key: str) -> int:
    """Return VmRSS or VmHWM of this process, in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def available_bytes() -> int:
    """Return the bytes of memory that are available to programs on this machine."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def give_back_heap() -> None:
    """Make the C library's allocator return its free memory, because memory served from it would not raise the peak."""
    gc.collect()
    here = ctypes.CDLL(None)
    for name, arguments in (("malloc_trim", (0,)), ("mi_collect", (1,)), ("MallocExtension_ReleaseFreeMemory", ()),
                            ("mallctl", (b"arena.4096.purge", None, None, None, 0))):      # jemalloc: all arenas
        if hasattr(here, name):
            getattr(here, name)(*arguments)


def touched_peak(load: Load, count: int, base: int) -> int | None:
    """Run `count` pairs or events (0: a whole run) and write to every page of their blocks.

    Return by how many bytes the peak of the resident memory exceeds `base`.

    Return None if the kernel does not allow to reset the peak.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    load.touch(count)
    return max(0, resident("VmHWM") - base)
