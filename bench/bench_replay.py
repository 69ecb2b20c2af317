"""Replays as pytest-benchmark cases: time per trace event, cold and warm.

    pytest bench/bench_replay.py

The traces in `../shared/traces`, where they are, and a synthetic one. A case is one pass over the
trace; `extra_info` has the events, the ratio of reserved to live bytes and the driver calls of the
pass. `aclpool replay` says more, and compares policies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, run_here
from acl.tools.bench_subjects import PoolUnderTest
from acl.tools.replay_trace import load_trace

SHARED = Path(__file__).parents[2] / "shared/traces"
NAMES = ("synthetic", *sorted(path.stem for path in SHARED.glob("*.npz")))


def events_of(name: str) -> tuple[bytes, int, int]:
    """The loops' events, the streams, the live peak."""
    if name == "synthetic":
        events, live_peak = workloads.inference(steps=16)
        return events, 1, live_peak
    trace = load_trace(SHARED / f"{name}.npz")
    return trace.events(), trace.streams, trace.live_peak()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", NAMES)
def bench_pass(benchmark: Any, name: str, warm: bool) -> None:
    events, streams, live_peak = events_of(name)
    pools: list[PoolUnderTest] = []

    def fresh() -> tuple[tuple[Load, int], dict[str, Any]]:
        if pools and warm:
            return (loads[-1], 1), {}
        pool = PoolUnderTest()
        pools.append(pool)
        loads.append(Load.events([pool.subject() for _ in range(streams)], events))
        if warm:
            run_here(loads[-1], 1)
        return (loads[-1], 1), {}

    loads: list[Load] = []
    benchmark.group = f"replay {'warm' if warm else 'cold'}"
    benchmark.pedantic(run_here, setup=fresh, rounds=3)
    benchmark.extra_info["events"] = len(events) // 16
    benchmark.extra_info["ratio"] = pools[-1].books.reserved_peak() / live_peak
    assert sum(load.failures for load in loads) == 0
    for pool in pools:
        pool.close()
