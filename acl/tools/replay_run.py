"""Replaying a trace against the pool on the simulator, and against the other policies' bookkeeping.

Each gives a dict of the same keys. The time is taken in passes of their own, with nothing in the loop but
the allocator; slow allocations and the curve of reserved bytes come from one more pass. Driver
calls are counted and timed by `_meter`, reserved bytes by the simulator's physical books, so that nothing
here rests on the pool's own word but the number of steals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acl.tools import _meter
from acl.tools._loops import Load, Subject, run_here
from acl.tools._policies import Ledger, Policy
from acl.tools.bench_measure import timed_pass
from acl.tools.replay_price import priced_ms
from acl.tools.replay_trace import Trace

__all__ = ["Replay", "replay_policy", "replay_pool"]

POINTS = 400
Calls = dict[str, tuple[int, int]]


@dataclass
class Replay:
    """What one replay gave: numbers, and the curve of reserved bytes."""

    numbers: dict[str, Any]
    at: list[int] = field(default_factory=list)         # events done
    reserved: list[int] = field(default_factory=list)   # bytes reserved by then


def numbers_of(trace: Trace, passes: int, calls: Calls, prices: Mapping[str, tuple[float, float]],
               reserved_peak: int, slow: int, steals: int, failures: int) -> dict[str, Any]:
    """What all replays have in common."""
    live_peak = trace.live_peak()
    used = {name: count for name, (count, _) in calls.items() if count}
    return {
        "events": len(trace) * passes,
        "driver_ms_modelled": round(priced_ms(calls, prices), 3),
        "live_peak": live_peak,
        "joint_live_peak": trace.joint_live_peak(),
        "reserved_peak": reserved_peak,
        "ratio": round(reserved_peak / max(live_peak, 1), 4),
        "ratio_joint": round(reserved_peak / max(trace.joint_live_peak(), 1), 4),
        "steals": steals,
        "slow_allocations": slow,
        "slow_path_share": round(slow / max(trace.allocations * passes, 1), 6),
        "driver_calls": sum(used.values()),
        "driver_calls_by_name": used,
        "failures": failures,
        "streams": trace.streams,
    }


def sampled(load: Load, counter: int, events: int, reserved: Callable[[], int]) -> tuple[int, list[int], list[int]]:
    """One pass in parts: slow allocations, and after each part how many bytes are reserved."""
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
    """A policy's bookkeeping under the trace, one pool a stream; `limit` bytes in all, 0 for none."""
    events = trace.events()
    ledger = Ledger(limit)
    pools = [Policy(name, ledger) for _ in range(trace.streams)]
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
    fresh = Ledger(limit)
    timed = Load.events([Policy(name, fresh).subject() for _ in pools], events)
    host = min(cpu for cpu, _, _ in run_here(timed, 3)) / len(trace)
    numbers["ns_per_event"] = numbers["ns_per_event_host"] = round(host, 2)
    if limit:
        numbers["limit"] = limit
    return Replay(numbers, at, curve)


def difference(before: Calls, after: Calls) -> Calls:
    """Calls made between two readings."""
    none = (0, 0)
    return {name: (count - before.get(name, none)[0], size - before.get(name, none)[1])
            for name, (count, size) in after.items()}


def pass_numbers(calls: Calls, slow: int, trace: Trace, prices: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """One pass of several, for the steady state."""
    return {
        "driver_calls": sum(count for count, _ in calls.values()),
        "driver_ms_modelled": round(priced_ms(calls, prices), 3),
        "slow_path_share": round(slow / max(trace.allocations, 1), 6),
    }


# ---- ours ----

class PoolReplay:
    """A fresh pool with a registered stream for each of the trace's."""

    def __init__(self, trace: Trace, events: bytes, options: Mapping[str, Any]) -> None:
        from acl.tools.bench_subjects import PoolUnderTest

        self.under_test = PoolUnderTest(**options)
        self.subjects: Sequence[Subject] = [self.under_test.subject() for _ in range(trace.streams)]
        self.load = Load.events(self.subjects, events)
        self.before = calls_so_far()

    def calls(self) -> Calls:
        """Driver calls since the pool was made."""
        return difference(self.before, calls_so_far())

    def close(self) -> None:
        """Give everything back."""
        self.load.close()
        self.under_test.close()


def calls_so_far() -> Calls:
    return {name: (count, size) for name, (count, _, size) in _meter.readings().items()}


Parts = list[tuple[float, float]]


def timed_passes(trace: Trace, events: bytes, passes: int, options: Mapping[str, Any]) -> list[Parts]:
    """For each pass over a fresh pool what its parts took, in driver calls and outside them."""
    replay = PoolReplay(trace, events, options)
    timings = [timed_pass(replay.load, len(trace)) for _ in range(passes)]
    replay.close()
    return timings


def best_of(runs: Sequence[Parts], events: int) -> tuple[float, float]:
    """Of one pass in several runs: ns per event, and the same without the driver calls.

    Each part of a pass does the same in each run. So its best run counts: what another took more is
    other programs on this machine.
    """
    parts = [min(part, key=lambda times: times[1]) for part in zip(*runs, strict=True)]
    outside = sum(outside for _, outside in parts)
    return (sum(driver for driver, _ in parts) + outside) / events, outside / events


def replay_pool(trace: Trace, prices: Mapping[str, tuple[float, float]], *, passes: int = 1, runs: int = 3,
                options: Mapping[str, Any] | None = None) -> Replay:
    """The pool under the trace: `runs` fresh pools for the time, one more for everything else."""
    options = options or {}
    events = trace.events()
    timings = [timed_passes(trace, events, passes, options) for _ in range(runs)]
    best = [best_of([run[number] for run in timings], len(trace)) for number in range(passes)]
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
        detail["ratio"] = round(books.reserved_peak() / max(trace.live_peak(), 1), 4)
        detail["ns_per_event"], detail["ns_per_event_host"] = (round(each, 2) for each in best[number])
        details.append(detail)
    numbers = numbers_of(trace, passes, replay.calls(), prices, books.reserved_peak(), slow,
                         replay.under_test.steals(), replay.load.failures)
    numbers["ns_per_event"] = round(sum(every for every, _ in best) / passes, 2)
    numbers["ns_per_event_host"] = round(sum(host for _, host in best) / passes, 2)
    numbers["passes"] = details
    replay.close()
    return Replay(numbers, at, curve)
