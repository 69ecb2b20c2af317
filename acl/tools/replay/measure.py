"""Replay a trace against the pool on the simulator, and against the other policies' bookkeeping.

All results have the keys of `numbers_of`, and times per event; some keys are only in results of the pool, or only in
those of policies.  Times are measured in separate passes, with only the allocator in the
loop.  Slow allocations and the curve of reserved bytes are from one more pass.  `_meter` counts and times driver
calls.  The reserved bytes are from the simulator's accounting of physical memory.  Only the number of steals is from
the pool's own counters.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acl.inside._histograms import PoolHistograms
from acl.tools.bench import _meter
from acl.tools.bench._loops import Load, Subject, run_here
from acl.tools.bench.measure import timed_pass
from acl.tools.replay.policies import load_policies
from acl.tools.replay.price import priced_ms
from acl.tools.replay.trace import Trace

__all__ = ["Replay", "replay_policy", "replay_pool"]

POINTS = 400
Calls = dict[str, tuple[int, int]]


@dataclass
class Replay:
    """The result of one replay: numbers, and the curve of reserved bytes."""

    numbers: dict[str, Any]
    at: list[int] = field(default_factory=list)         # the curve's points: numbers of events played
    reserved: list[int] = field(default_factory=list)   # for each point, the bytes reserved then


def numbers_of(trace: Trace, passes: int, calls: Calls, prices: Mapping[str, tuple[float, float]],
               reserved_peak: int, slow: int, steals: int, failures: int) -> dict[str, Any]:
    """Return the numbers, other than times, that every replay has."""
    live_peak = trace.joint_live_peak()
    used = {name: count for name, (count, _) in calls.items() if count}
    return {
        "events": len(trace) * passes,
        "driver_ms_modelled": round(priced_ms(calls, prices), 3),
        "live_peak": live_peak,
        "live_peak_sum": trace.live_peak(),
        "reserved_peak": reserved_peak,
        "ratio": round(reserved_peak / max(live_peak, 1), 4),
        "steals": steals,
        "slow_allocations": slow,
        "slow_path_share": round(slow / max(trace.allocations * passes, 1), 6),
        "driver_calls": sum(used.values()),
        "driver_calls_by_name": used,
        "failures": failures,
        "streams": trace.streams,
    }


def sampled(load: Load, counter: int, events: int, reserved: Callable[[], int]) -> tuple[int, list[int], list[int]]:
    """Play one pass in parts; return the number of slow allocations, and the curve: event numbers, reserved bytes."""
    slow = 0
    at, curve = [0], [reserved()]
    part = max(1, events // POINTS)
    for first in range(0, events, part):
        count = min(part, events - first)
        slow += load.watch(counter, first, count)
        at.append(first + count)
        curve.append(reserved())
    return slow, at, curve


# ---- policies ----

def replay_policy(name: str, trace: Trace, prices: Mapping[str, tuple[float, float]], *, limit: int = 0,
                  passes: int = 1) -> Replay:
    """Replay the trace with a policy's bookkeeping, with a pool for each stream.

    `limit` is the most bytes of all pools together; 0: no limit.
    """
    events = trace.events()
    rivals = load_policies()
    ledger = rivals.Ledger(limit)
    pools = [rivals.Policy(name, ledger) for _ in range(trace.streams)]
    load = Load.events([pool.subject() for pool in pools], events)
    slow, at, curve = 0, [0], [0]
    details = []
    for number in range(passes):
        before = ledger.calls()
        moved, more_at, more_curve = sampled(load, ledger.counter, len(trace), lambda: ledger.reserved)
        slow += moved
        at += [number * len(trace) + i for i in more_at[1:]]
        curve += more_curve[1:]
        details.append(pass_numbers(difference(before, ledger.calls()), moved, trace, prices))
    numbers = numbers_of(trace, passes, ledger.calls(), prices, ledger.reserved_peak, slow, 0, load.failures)
    numbers["growths"] = ledger.growths
    numbers["passes"] = details
    fresh = rivals.Ledger(limit)
    timed = Load.events([rivals.Policy(name, fresh).subject() for _ in pools], events)
    _, times = timing_of([[(cpu / len(trace),) * 2] for cpu, _, _ in run_here(timed, 3)])
    numbers.update(times)
    if limit:
        numbers["limit"] = limit
    return Replay(with_total(numbers), at, curve)


def difference(before: Calls, after: Calls) -> Calls:
    """Return the calls made between two readings: name to (count, bytes)."""
    none = (0, 0)
    return {name: (count - before.get(name, none)[0], size - before.get(name, none)[1])
            for name, (count, size) in after.items()}


def pass_numbers(calls: Calls, slow: int, trace: Trace, prices: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the numbers of one pass; if there are several, the later ones show the steady state."""
    return {
        "driver_calls": sum(count for count, _ in calls.values()),
        "driver_ms_modelled": round(priced_ms(calls, prices), 3),
        "slow_path_share": round(slow / max(trace.allocations, 1), 6),
    }


# ---- the pool of this package ----

class PoolReplay:
    """A fresh pool with a registered stream for each stream of the trace."""

    def __init__(self, trace: Trace, events: bytes, options: Mapping[str, Any]) -> None:
        from acl.tools.bench.subjects import PoolUnderTest

        self.under_test = PoolUnderTest(**options)
        self.subjects: Sequence[Subject] = [self.under_test.subject() for _ in range(trace.streams)]
        self.load = Load.events(self.subjects, events)
        self.before = calls_so_far()

    def calls(self) -> Calls:
        """Return the driver calls since the pool was made."""
        return difference(self.before, calls_so_far())

    def close(self) -> None:
        """Free the blocks and close the pool."""
        self.load.close()
        self.under_test.close()


def calls_so_far() -> Calls:
    return {name: (count, size) for name, (count, _, size) in _meter.readings().items()}


Parts = list[tuple[float, float]]


def timed_passes(trace: Trace, events: bytes, passes: int, options: Mapping[str, Any]) -> list[Parts]:
    """Play the passes on a new pool; return for each part of each pass the nanoseconds in driver calls and outside."""
    replay = PoolReplay(trace, events, options)
    timings = [timed_pass(replay.load, len(trace)) for _ in range(passes)]
    replay.close()
    return timings


def whole_passes(run: Sequence[Parts], events: int) -> list[tuple[float, float]]:
    """Return ns per event of each pass of one run, with and without the driver calls."""
    totals = [(sum(driver for driver, _ in parts), sum(outside for _, outside in parts)) for parts in run]
    return [((driver + outside) / events, outside / events) for driver, outside in totals]


def timing_of(runs: Sequence[Sequence[tuple[float, float]]]) -> tuple[list[tuple[float, float]], dict[str, Any]]:
    """Return the passes of the median run (a real run, not a mean), and the nanoseconds of an event by key.

    `ns_per_event` and `ns_per_event_host` (without driver calls) are of the median run, the other two keys of the best
    run and of all runs.
    """
    host = [statistics.mean(outside for _, outside in run) for run in runs]
    middle = runs[host.index(statistics.median_low(host))]
    return list(middle), {
        "ns_per_event": round(statistics.mean(every for every, _ in middle), 2),
        "ns_per_event_host": round(statistics.median_low(host), 2),
        "ns_per_event_host_best": round(min(host), 2),
        "ns_per_event_host_runs": [round(each, 3) for each in host],
    }


def with_total(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers with the sum of host time and modelled driver time added."""
    host_ms = numbers["ns_per_event_host"] * numbers["events"] / 1e6
    return {**numbers, "total_ms_modelled": round(host_ms + numbers["driver_ms_modelled"], 3)}


def pauses(times: PoolHistograms) -> dict[str, Any]:
    """Return the share of slow allocations and the longest times in microseconds, as the pool itself measured them.

    Here slow allocations include reactivations and flushes of the cache.
    """
    return {
        "slow_path_share": round(times.slow_ns.total / max(times.sizes.total, 1), 6),
        "p999_us": round(times.time_ns(0.999) / 1e3, 1),
        "p9999_us": round(times.time_ns(0.9999) / 1e3, 1),
        "worst_us": round(times.slow_longest_ns / 1e3, 1),
    }


def replay_pool(trace: Trace, prices: Mapping[str, tuple[float, float]], *, passes: int = 1, runs: int = 3,
                options: Mapping[str, Any] | None = None) -> Replay:
    """Replay the trace on `runs` new pools for the times, and on one more pool for all other numbers."""
    options = options or {}
    events = trace.events()
    timings = [timed_passes(trace, events, passes, options) for _ in range(runs)]
    middle, times = timing_of([whole_passes(run, len(trace)) for run in timings])
    replay = PoolReplay(trace, events, options)
    books = replay.under_test.books
    slow, at, curve, details = 0, [0], [books.reserved()], []
    for number in range(passes):
        before, steals = replay.calls(), replay.under_test.steals()
        moved, more_at, more_curve = sampled(replay.load, _meter.counter(), len(trace), books.reserved)
        slow += moved
        at += [number * len(trace) + i for i in more_at[1:]]
        curve += more_curve[1:]
        detail = pass_numbers(difference(before, replay.calls()), moved, trace, prices)
        detail["steals"] = replay.under_test.steals() - steals
        detail["ratio"] = round(books.reserved_peak() / max(trace.joint_live_peak(), 1), 4)
        detail["ns_per_event"], detail["ns_per_event_host"] = (round(each, 2) for each in middle[number])
        details.append(detail)
    numbers = numbers_of(trace, passes, replay.calls(), prices, books.reserved_peak(), slow,
                         replay.under_test.steals(), replay.load.failures)
    numbers.update(pauses(replay.under_test.pool.histograms()))
    numbers.update(times)
    numbers["passes"] = details
    replay.close()
    return Replay(with_total(numbers), at, curve)
