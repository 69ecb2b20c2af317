"""Measure the cost of recording: one load on one pool with recording off, tracked and recorded in turn.

    python bench/bench_record.py

An event is an allocation or a free. Its cost is half of what a pair (an allocation and a free) takes more than with
recording off. The bar is 30 ns without stacks, also while the ring is filled for the first time ("fresh"). Each round
measures all ways; the least time of the ROUNDS counts, because other programs can only make a time longer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

from acl.tools.bench import workloads
from acl.tools.bench._loops import Load, Subject, run_here
from acl.tools.bench.subjects import Opened, choose

PAIRS = 100_000
ROUNDS = 9
CAPACITY = 1 << 18
WARM = CAPACITY // 2        # pairs that fill the ring once, so that the system backs it with pages
BAR_NS = 30.0


@contextmanager
def noted(pool: Any, how: str) -> Iterator[None]:
    """Switch the pool's recording: off, tracked, or recorded with these stacks."""
    made = nullcontext() if how == "off" else pool.track(stacks=False) if how == "tracked" else pool.record(
        capacity=CAPACITY, stacks=False if how in ("recorded", "fresh") else how)
    with made:
        yield


def load_of(workload: str, subject: Subject) -> Load:
    """Return the load of a workload."""
    if workload == "W1":
        return Load.pairs(subject, workloads.HOT_SIZE, PAIRS)
    if workload == "W5":
        return Load.events([subject], workloads.inference(steps=16)[0])
    return (workloads.mixed if workload == "W2" else workloads.random_sizes)(subject, PAIRS)


def measure(opened: Opened, workload: str, hows: tuple[str, ...]) -> dict[str, float]:
    """Return the nanoseconds of a pair in each way."""
    load = load_of(workload, opened.subject)
    best = dict.fromkeys(hows, float("inf"))
    assert opened.under_test is not None
    for _ in range(ROUNDS):
        for how in hows:
            with noted(opened.under_test.pool, how):
                if how == "fresh":
                    best[how] = min(best[how], run_here(load, 1)[0][0] / load.allocations)
                    continue
                run_here(load, 1 + WARM // load.allocations)
                cpu = min(sample[0] for sample in run_here(load, 2))
            best[how] = min(best[how], cpu / load.allocations)
    load.close()
    return best


def main() -> int:
    """Print the table. Return 1 if an event without stacks costs more than the bar."""
    hows = ("off", "tracked", "fresh", "recorded")
    print(f"{'':<4}" + "".join(f"{how:>12}" for how in hows) + "   ns/pair;  fresh and recorded, ns/event")
    worst = 0.0
    for workload in ("W1", "W2", "W3", "W5"):
        with next(each for each in choose("none") if each.name == "aclpool").open() as opened:
            best = measure(opened, workload, hows)
        fresh, event = ((best[how] - best["off"]) / 2 for how in ("fresh", "recorded"))
        worst = max(worst, fresh, event) if workload in ("W1", "W5") else worst
        print(f"{workload:<4}" + "".join(f"{best[how]:12.1f}" for how in hows) + f"{fresh:12.1f}{event:8.1f}")
    return 1 if worst > BAR_NS else 0


def bench_recorded(benchmark: Any) -> None:
    """Measure the hot pair, recorded; for `pytest bench`."""
    with next(each for each in choose("none") if each.name == "aclpool").open() as opened:
        load = load_of("W1", opened.subject)
        assert opened.under_test is not None
        with noted(opened.under_test.pool, "recorded"):
            benchmark.extra_info["pairs"] = load.allocations
            benchmark.pedantic(run_here, args=(load, 1), rounds=7, warmup_rounds=1)
        load.close()


if __name__ == "__main__":
    sys.exit(main())
