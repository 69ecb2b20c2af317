"""Compare ways to allocate host arrays for copies: pinned each time, from a simple cache, and from the pool.

    python bench/bench_host.py [--rounds 3] [--count 4000]

The load is the same for each way: arrays of changing sizes are made and dropped, as in a server that stages batches.
24 arrays are live at a time, and half of all arrays have one of 32 sizes. Printed are the time of an array (make it,
write its first byte, drop it), the number of calls that pin or unpin, and the peak of the pinned bytes divided by the
peak of the requested bytes. Pinning takes far longer on a real system than on the simulator, so compare the calls.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("ACL_BACKEND", "sim")

import numpy as np

import acl
from acl import sim

ALIVE = 24
SEED = 20260101


def sizes(count: int) -> list[int]:
    """Return the bytes of each array: 4 KiB to 8 MiB; half of the arrays have one of a few sizes."""
    source = random.Random(SEED)
    known = [int(2 ** source.uniform(12, 23)) for _ in range(32)]
    return [source.choice(known) if source.random() < 0.5 else int(2 ** source.uniform(12, 23)) for _ in range(count)]


class PowersOfTwo:
    """A simple cache, as a first attempt would be: free lists of pinned buffers, by the next power of two."""

    def __init__(self) -> None:
        self.idle: dict[int, list[acl.HostBuffer]] = {}
        self.pinned = self.peak = 0

    def take(self, size: int) -> tuple[Any, Callable[[], None]]:
        rounded = 1 << (size - 1).bit_length()
        free = self.idle.setdefault(rounded, [])
        if free:
            buffer = free.pop()
        else:
            buffer = acl.HostBuffer(rounded)
            self.pinned += rounded
            self.peak = max(self.peak, self.pinned)
        return buffer.numpy()[:size], lambda: free.append(buffer)


def ways() -> dict[str, tuple[Callable[[int], Any], Callable[[int], int]]]:
    """Return two functions for each way.

    The first returns an array for a size, or an array and its release. The second returns the peak of pinned bytes.
    """
    powers, pool, numpy_pool = PowersOfTwo(), acl.PinnedPool(), acl.PinnedPool()

    def in_numpy(size: int) -> Any:
        with numpy_pool.numpy():
            return np.empty(size, np.uint8)

    return {
        "numpy.empty (pageable)": (lambda size: np.empty(size, np.uint8), lambda most: 0),
        "HostBuffer (aclrtMallocHost)": (lambda size: acl.HostBuffer(size).numpy(), lambda most: most),
        "powers of two": (powers.take, lambda most: powers.peak),
        "acl.pinned_empty": (lambda size: pool.empty(size, "uint8"), lambda most: pool.stats().reserved_peak),
        "with acl.numpy_pool()": (in_numpy, lambda most: numpy_pool.stats().reserved_peak),
    }


def run(make: Callable[[int], Any], work: list[int]) -> tuple[float, int]:
    """Return the seconds for an array, and the most bytes that were live at one time."""
    source = random.Random(SEED)
    held: list[Any] = []
    live: list[int] = []
    total = most = 0
    started = time.perf_counter()
    for size in work:
        made = make(size)
        (made[0] if isinstance(made, tuple) else made)[0] = 1
        held.append(made)
        live.append(size)
        total += size
        most = max(most, total)
        if len(held) >= ALIVE:
            index = source.randrange(ALIVE)
            gone = held.pop(index)
            total -= live.pop(index)
            if isinstance(gone, tuple):
                gone[1]()
            del gone
    return (time.perf_counter() - started) / len(work), most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=4000)
    given = parser.parse_args()
    acl.Device(0).use()
    work = sizes(given.count)
    print("| host memory | us for an array | pinning calls | pinned peak / asked for |")
    print("|---|---|---|---|")
    for name, (make, peak) in ways().items():
        before = sim.counters()
        times, most = zip(*(run(make, work) for _ in range(given.rounds)), strict=True)
        calls = sum(sim.counters().get(call, 0) - before.get(call, 0) for call in ("aclrtMallocHost", "aclrtFreeHost"))
        ratio = peak(most[0]) / most[0]
        print(f"| {name} | {statistics.median(times) * 1e6:.1f} | {calls} | {f'{ratio:.2f}' if ratio else '-'} |")


if __name__ == "__main__":
    main()
