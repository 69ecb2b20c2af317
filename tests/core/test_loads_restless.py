"""Loads with which a pool converges late: they converge, share memory, and waste no more than a simple best fit.

Each pass repeats the requests of the first pass, as a service does.  The pool is compared with a simple allocator
that has one address range, uses best fit, and returns no pages.
"""

from __future__ import annotations

import bisect

import pytest
from support.replays import Replay, made
from support.restless_loads import RESTLESS

from acl.tools._rig import Rig, function_addresses
from acl.tools.bench import _loops
from acl.tools.bench import workloads as bench_workloads
from acl.tools.replay.trace import Trace

PAGE = 2 << 20
SEEDS = (7, 8)


class BestFit:
    """An address range that only grows.  An allocation takes the smallest free piece that fits, the lowest if equal."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []       # free pieces: (size, address)
        self.starts: dict[int, int] = {}            # address of a free piece -> its size
        self.ends: dict[int, int] = {}              # end of a free piece -> its address
        self.top = 0

    def add(self, address: int, size: int) -> None:
        bisect.insort(self.free, (size, address))
        self.starts[address] = size
        self.ends[address + size] = address

    def remove(self, address: int) -> int:
        size = self.starts.pop(address)
        del self.ends[address + size]
        del self.free[bisect.bisect_left(self.free, (size, address))]
        return size

    def alloc(self, size: int) -> int:
        place = bisect.bisect_left(self.free, (size, 0))
        if place < len(self.free):
            address = self.free[place][1]
        else:
            address = self.ends.get(self.top, self.top)
            if address == self.top:
                self.add(address, size)
            else:
                self.add(address, max(self.remove(address), size))
            self.top = max(self.top, address + size)
        whole = self.remove(address)
        if whole > size:
            self.add(address + size, whole - size)
        return address

    def give(self, address: int, size: int) -> None:
        if address + size in self.starts:
            size += self.remove(address + size)
        if address in self.ends:
            lower = self.ends[address]
            address, size = lower, size + self.remove(lower)
        self.add(address, size)


def best_fit_pages(trace: Trace) -> int:
    """Return the number of pages that a plain best fit needs for a trace of one stream."""
    model, blocks = BestFit(), {}
    for op, block, size in zip(trace.op.tolist(), trace.id.tolist(), trace.size.tolist(), strict=True):
        size = max(512, (size + 511) // 512 * 512)
        if op == 0:
            blocks[block] = model.alloc(size)
        else:
            model.give(blocks.pop(block), size)
    return (model.top + PAGE - 1) // PAGE


def test_best_fit_takes_the_smallest_that_holds_the_block() -> None:
    model = BestFit()
    first, _, second, _ = (model.alloc(size) for size in (4096, 512, 2048, 512))
    model.give(first, 4096)
    model.give(second, 2048)
    assert model.alloc(1024) == second and model.alloc(1024) == second + 1024
    assert model.alloc(4096) == first
    assert model.alloc(512) == model.top - 512 == 4096 + 512 + 2048 + 512
    model.give(second, 1024)
    model.give(second + 1024, 1024)
    assert model.free == [(2048, second)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "count"), [
    ("small_net", 200), ("small_text", 100), ("backward", 60), ("proposals", 80), ("subgraphs", 200), ("beams", 60),
    ("adapters", 150), ("shuffled", 100), ("prefix_cache", 600), ("jagged", 150), ("sessions", 800),
    ("concatenating", 300), ("frames", 400),
])
def test_small_load_converges_without_driver_calls_or_waits(name: str, count: int, seed: int) -> None:
    """After enough passes, a pass makes no driver call and no wait, even if the live peak is only a few pages."""
    replay = Replay(made(RESTLESS[name], count, seed))
    calls, waits = [], []
    for _ in range(20):
        before = replay.rig.calls()["sync"]
        calls.append(replay.once()[0])
        waits.append(replay.rig.calls()["sync"] - before)
    assert calls[-2:] == [0, 0], calls
    assert not any(waits[1:]), waits


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "count"), [
    ("speculative", 150), ("three_at_once", 25), ("one_of_three", 40), ("ranking", 100), ("stages", 150)])
def test_driver_calls_of_small_streams_fall_to_a_tenth_within_20_passes(name: str, count: int, seed: int) -> None:
    """Within 20 passes the driver calls of a pass fall to a tenth, because the pool keeps a few MiB more."""
    replay = Replay(made(RESTLESS[name], count, seed))
    calls = [replay.once()[0] for _ in range(20)]
    assert 10 * max(calls[-2:]) < calls[0], calls
    assert replay.ratio() <= 1.6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "count", "pages"), [
    ("prefix_cache", 600, 0), ("jagged", 150, 0), ("concatenating", 300, 2), ("sessions", 800, 2), ("shuffled", 100, 3),
    ("proposals", 80, 1), ("small_text", 100, 2), ("small_net", 200, 1), ("frames", 400, 3), ("adapters", 150, 2),
])
def test_small_peak_wastes_at_most_a_few_pages_more_than_a_best_fit_allocator(
    name: str, count: int, pages: int, seed: int
) -> None:
    """`pages` more pages are allowed, because tiny blocks have their own ranges, and used pages cannot move."""
    replay = Replay(made(RESTLESS[name], count, seed))
    replay.once()
    assert replay.rig.physical()[1] // PAGE <= best_fit_pages(replay.trace) + pages


@pytest.mark.parametrize("name", ["large_in_turn", "large_at_random"])
def test_streams_that_are_never_idle_share_their_memory(name: str) -> None:
    """Even if the host never waits, so that no stream is idle, reserved memory is at most 1.10 of the joint peak."""
    trace = made(RESTLESS[name], 60, 7)
    replay = Replay(trace)
    replay.rig.set(busy=2)
    try:
        for _ in range(3):
            replay.once()
            assert replay.ratio() <= 1.10
        assert trace.live_peak() > 1.3 * trace.joint_live_peak()    # streams that share nothing would need more
    finally:
        replay.rig.set(busy=0)


def test_busy_streams_wait_at_most_twice_for_the_pages_of_a_burst() -> None:
    """One wait gets all pages that a burst lacks, not only the pages of one request."""
    turns = 60
    replay = Replay(made(RESTLESS["large_in_turn"], turns, 7))
    replay.rig.set(busy=2)
    try:
        replay.once()
        before = replay.rig.calls()["sync"]
        replay.once()
        waits = replay.rig.calls()["sync"] - before
        assert waits <= 2 * turns, waits
    finally:
        replay.rig.set(busy=0)


def test_allocations_of_random_sizes_seldom_flush_the_cache() -> None:
    """An allocation of medium size that the cache cannot serve does not flush the cache each time."""
    rig, count = Rig(), 100_000
    load = bench_workloads.random_sizes(_loops.Subject("1", rig.arena(1), *function_addresses()), count)
    _loops.run_here(load, 1)
    flushes = rig.stats(1)["counters"]["flushes"]
    _loops.run_here(load, 1)
    assert load.failures == 0
    assert rig.stats(1)["counters"]["flushes"] - flushes < count // 100
