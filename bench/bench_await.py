"""Coroutines against threads: runs of one model on three streams, and the lag of the event loop meanwhile.

    python bench/bench_await.py [--runs 12] [--rounds 5]

A coroutine sleeps a millisecond at a time; the lag is how much too late it wakes.  In the first row the loop has
nothing else to do, so its lag is the machine's own; the other rows are compared with it, and with a run's time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("ACL_BACKEND", "sim")

import numpy as np

import acl
from acl.tools.demo.models import encoder

STREAMS = 3
BATCH, TOKENS = 4, 192


class Service:
    """A model, three streams and a pool."""

    def __init__(self) -> None:
        self.pool = acl.Pool(0)
        self.streams = [acl.Stream(0) for _ in range(STREAMS)]
        for stream in self.streams:
            self.pool.register(stream)
        self.model = acl.Model(encoder().to_bytes())
        self.inputs = [np.ones((BATCH, TOKENS, *info.shape[2:]), info.dtype) for info in self.model.inputs]
        self.results: list[tuple[Any, ...]] = []
        self.right = self.model(*self.inputs, stream=self.streams[0])

    async def awaited(self, number: int) -> None:
        """Do one run, by `arun`."""
        self.results.append(await self.model.arun(*self.inputs, stream=self.streams[number % STREAMS]))

    async def threaded(self, number: int) -> None:
        """Do one run, in a thread of its own."""
        stream = self.streams[number % STREAMS]
        self.results.append(await asyncio.to_thread(self.model, *self.inputs, stream=stream))

    async def idle(self, number: int) -> None:
        """Wait for as long as a run takes."""
        await asyncio.sleep(0.02)

    def check(self) -> None:
        """Check all results; called after a round, so that the loop does not wait for it."""
        for results in self.results:
            for result, right in zip(results, self.right, strict=True):
                np.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-4)
        self.results.clear()

    def close(self) -> None:
        self.model.close()
        for stream in self.streams:
            stream.close()
        self.pool.close()


async def measured(run: Callable[[int], Awaitable[None]], runs: int) -> tuple[float, list[float]]:
    """Start `runs` runs at once. Return their time in seconds, and the lags of the loop meanwhile."""
    lags: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - before - 0.001)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    start = time.perf_counter()
    await asyncio.gather(*[run(number) for number in range(runs)])
    seconds = time.perf_counter() - start
    ticker.cancel()
    return seconds, lags


def compare(runs: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Return for each way: the median seconds of a round, the 99th percentile of the lag, and the largest lag."""
    service = Service()
    ways = {"idle": service.idle, "arun": service.awaited, "threads": service.threaded}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    lags: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            took, late = asyncio.run(measured(run, runs))
            service.check()
            seconds[way].append(took)
            lags[way] += late
    service.close()
    return {way: (statistics.median(seconds[way]), float(np.percentile(lags[way], 99)), max(lags[way])) for way in ways}


def test_both_ways_give_the_right_results() -> None:
    assert set(compare(4, 1)) == {"idle", "arun", "threads"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12, help="runs under way at once")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    for way, (seconds, late, most) in compare(chosen.runs, chosen.rounds).items():
        print(f"{way:8} {chosen.runs} runs in {1e3 * seconds:7.1f} ms; lag of the loop: 99 % below "
              f"{1e3 * late:5.2f} ms, most {1e3 * most:6.2f} ms")


if __name__ == "__main__":
    main()
