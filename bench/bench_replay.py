"""Measure replays of traces as pytest-benchmark cases: the time of an event on a new pool, and on a warm one.

    pytest bench/bench_replay.py

The traces are those in `traces/`, and a synthetic one. The time of a case is the thread CPU time of a pass over the
trace, driver calls included, divided by its events. `extra_info` has the number of events, and the peak of the
reserved bytes divided by the live peak.
`aclpool replay` prints more, and compares policies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

from acl.tools.bench import workloads
from acl.tools.bench._loops import Load, run_here
from acl.tools.bench.subjects import PoolUnderTest
from acl.tools.replay.trace import load_trace

TRACES = Path(__file__).parent / "traces"
NAMES = ("synthetic", *sorted(path.stem for path in TRACES.glob("*.npz")))


class EventClock:
    """A clock that each pass advances by the seconds of one of its events."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.passes: list[float] = []           # nanoseconds of an event

    def now(self) -> float:
        """Return the seconds so far."""
        return self.seconds

    def run(self, load: Load, events: int) -> None:
        """Play one pass over `events` events, and advance the clock by the seconds of one event."""
        self.passes.append(run_here(load, 1)[0][0] / events)
        self.seconds += self.passes[-1] / 1e9


CLOCK = EventClock()


def events_of(name: str) -> tuple[bytes, int, int]:
    """Return a trace's events as bytes for the loops, its number of streams, and its live peak in bytes."""
    if name == "synthetic":
        events, live_peak = workloads.inference(steps=16)
        return events, 1, live_peak
    trace = load_trace(TRACES / f"{name}.npz")
    return trace.events(), trace.streams, trace.joint_live_peak()


@pytest.mark.benchmark(timer=CLOCK.now)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", NAMES)
def bench_pass(benchmark: Any, name: str, warm: bool) -> None:
    events, streams, live_peak = events_of(name)
    count = len(events) // workloads.EVENT.size
    pools: list[PoolUnderTest] = []
    loads: list[Load] = []

    def fresh() -> tuple[tuple[Load, int], dict[str, Any]]:
        if not (pools and warm):
            pools.append(PoolUnderTest())
            loads.append(Load.events([pools[-1].subject() for _ in range(streams)], events))
        if warm and len(pools) == 1:
            run_here(loads[-1], 1)
        return (loads[-1], count), {}

    benchmark.group = f"replay {'warm' if warm else 'cold'}"
    CLOCK.passes.clear()
    benchmark.pedantic(CLOCK.run, setup=fresh, rounds=5)
    benchmark.extra_info["samples"] = [[each] for each in CLOCK.passes]         # for `aclpool compare`
    benchmark.extra_info["events"] = count
    benchmark.extra_info["ratio"] = pools[-1].books.reserved_peak() / live_peak
    assert sum(load.failures for load in loads) == 0
    for pool in pools:
        pool.close()
