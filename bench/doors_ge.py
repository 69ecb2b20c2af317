"""Compare GE's allocators in Python with the pool's C functions: `python bench/doors_ge.py [--json FILE]`.

The load is what GE requests for 32 decoder layers, hidden size 4096, with outputs, workspaces, keys and values, and
prompts of 1 to 2048 tokens (W5 of `aclpool bench`).  Each row replays it twice, and only the second replay is timed.
The rows:

1. GE's own policy, as bookkeeping: it has no time, because GE's C++ code is available only with CANN.
2. A subclass of `ge.allocator.Allocator` as in GE's documentation, with `aclrtMalloc` and `aclrtFree` for each block.
   It waits for the stream before each free, because nothing else orders the free after the work.
3. `acl.ge.Allocator`.
4. The C functions that ACL calls for a stream with a pool.

Time is the thread's CPU time for an allocation and its free together, driver calls included.  It does not contain
what GE adds to call Python (ctypes and the GIL): several microseconds on top of each Python row.

The package `ge` is part of CANN only; here a stand-in with the published signatures replaces it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

from doors import CALLS, COLUMNS, Row, main

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import acl
import acl.ge
import acl.sim as sim
from acl.tools.bench.workloads import LONGEST, Inference
from acl.tools.replay.measure import replay_policy, replay_pool
from acl.tools.replay.price import PRICES
from acl.tools.replay.trace import ALLOC, FREE, Trace, trace_of_rows

__all__ = ["measure"]

WORK = "W5"


class MemBlock:
    """A stand-in for GE's class, with the published signatures."""

    def __init__(self, addr: int, size: int) -> None:
        self.addr, self.size = addr, size


class Plain:
    """An allocator as in GE's documentation: a driver call for each block."""

    def __init__(self, stream: acl.Stream) -> None:
        self.stream = stream

    def malloc(self, size: int) -> MemBlock:
        address, status = acl.rt.malloc(size, 0)
        if status:
            raise MemoryError(f"aclrtMalloc gave {status}")
        return MemBlock(address, size)

    def free(self, block: MemBlock) -> None:
        self.stream.synchronize()
        acl.rt.free(block.addr)


def load(steps: int, seed: int = 5) -> Trace:
    """Return the workload W5 as a trace."""
    lengths, model = random.Random(seed), Inference()
    for _ in range(steps):
        model.step(lengths.randint(1, LONGEST))
    rows, holds, sizes = [], dict[int, int](), list[int]()
    for size, slot in model.rows:
        if size:
            holds[slot] = len(sizes)
            sizes.append(size)
            rows.append((ALLOC, holds[slot], size, 0))
        else:
            rows.append((FREE, holds[slot], sizes[holds[slot]], 0))
    return trace_of_rows(WORK, rows)


def driver_calls() -> int:
    counts = sim.counters()
    return sum(counts.get(name, 0) for name in CALLS)


def in_python(trace: Trace, allocator: Any, rounds: int) -> Row:
    """Replay the trace through the two methods that GE calls, once untimed and then `rounds` times.

    Return the peak of the reserved bytes, the driver calls of the last replay, and the least nanoseconds of a pair.
    """
    events = list(zip(trace.op.tolist(), trace.id.tolist(), trace.size.tolist(), strict=True))
    blocks: list[Any] = [None] * (max(trace.id.tolist()) + 1)
    base = sim.physical_bytes()
    sim.reset_physical_peak()
    seconds, calls, malloc, free = [], 0, allocator.malloc, allocator.free
    for _ in range(rounds + 1):
        before, started = driver_calls(), time.thread_time()
        for kind, number, size in events:
            if kind == ALLOC:
                blocks[number] = malloc(size)
            else:
                free(blocks[number])
        seconds.append(time.thread_time() - started)
        calls = driver_calls() - before
    return {"reserved": sim.physical_peak() - base, "calls": calls, "ns": min(seconds[1:]) / trace.allocations * 1e9}


def stand_in() -> None:
    """Install a package `ge` with the names that `acl.ge` uses."""
    package, module = ModuleType("ge"), ModuleType("ge.allocator")
    package.__path__ = []
    module.__dict__.update(Allocator=type("Allocator", (), {}), MemBlock=MemBlock)
    sys.modules.update({"ge": package, "ge.allocator": module})


def measure(options: argparse.Namespace) -> list[Row]:
    trace = load(options.steps)
    stand_in()
    acl.Device(0).use()
    policy = replay_policy("ge", trace, PRICES, passes=2).numbers
    rows: list[Row] = [{"allocator": "GE's policy (bookkeeping)", "reserved": policy["reserved_peak"]}]
    with acl.Stream(0) as stream:
        rows.append({"allocator": "Python: aclrtMalloc for each", **in_python(trace, Plain(stream), options.rounds)})
        with acl.Pool(0) as pool:
            found = in_python(trace, acl.ge.Allocator(pool, stream), options.rounds)
            rows.append({"allocator": "`acl.ge.Allocator`", **found})
    ours = SimpleNamespace(**replay_pool(trace, PRICES, passes=2, runs=options.rounds).numbers)
    second = ours.passes[1]
    rows.append({"allocator": "the pool's C functions", "reserved": ours.reserved_peak, "calls": second["driver_calls"],
                 "ns": second["ns_per_event"] * 2})
    return [{"work": WORK, "live": trace.live_peak(), **row} for row in rows]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=16, help="runs of the net")


if __name__ == "__main__":
    columns = [*COLUMNS, ("ns for a pair", lambda row: f"{row['ns']:.0f}" if "ns" in row else "-"),
               ("driver calls", lambda row: f"{row['calls']}" if "calls" in row else "-")]
    sys.exit(main(__doc__, measure, columns, arguments))
