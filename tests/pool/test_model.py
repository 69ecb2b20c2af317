"""Random steps compare the pool with a simple model: `check()` runs after each step, and contents are compared.

Each live block has its own pattern, which copies on its stream write and compare.  If two blocks overlap, or the page
of a live block moves, a pattern is wrong.  `ACLPOOL_LONG=1` runs hundreds of thousands of steps (marker `long`).
Hypothesis prints how to repeat a failure.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from bisect import bisect_left, insort
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from support.core import MIB, Door

import acl

LONG = os.environ.get("ACLPOOL_LONG") == "1"
FAULTS = ("aclrtMallocPhysical", "aclrtMapMem", "aclrtUnmapMem", "aclrtSynchronizeStreamWithTimeout",
          "aclrtReserveMemAddress", "aclrtFreePhysical", "aclrtStreamQuery", "aclrtRecordEvent")
FAULTS_MOST = 64        # the simulator keeps at most this many faults at a time
SIZES = st.one_of(
    st.integers(0, 4096), st.integers(1, 1024).map(lambda units: units * 512), st.integers(1, 6 * MIB),
    st.sampled_from([524288, 524289, 2 * MIB, 2 * MIB + 1, 4 * MIB, 8 * MIB]))


@dataclass(eq=False)
class Held:
    """A live block, in the model."""

    lane: int
    block: int          # from the callbacks; 0 if the block belongs to `buffer`
    address: int
    size: int
    pattern: int
    buffer: acl.Buffer | None = None


def mark(held: Held, write: bool) -> None:
    """Write or compare both ends of a block.  If two blocks overlap, one of these ends lies in the other block."""
    want = held.pattern.to_bytes(8, "little") * 16
    length = held.size if held.size < 128 else 64
    for at in {held.address, held.address + held.size - length}:
        if write:
            ctypes.memmove(at, want, length)
        else:
            assert ctypes.string_at(at, length) == want[:length], f"block {held} was overwritten"


class PoolMachine(RuleBasedStateMachine):
    """Two pools on two devices, with two streams each."""

    blocks: Bundle[Held] = Bundle("blocks")

    def __init__(self) -> None:
        super().__init__()
        gc.collect()            # a failed run may have left pools
        acl.sim.reset()
        self.found = [acl.sim.physical_bytes(device) for device in (0, 1)]
        self.pools = [acl.Pool(device, "48MiB", sync_timeout_ms=2000) for device in (0, 1)]
        self.lanes = [acl.Stream(device) for device in (0, 0, 1, 1)]
        self.doors = []
        for lane, stream in enumerate(self.lanes):
            self.pool(lane).register(stream)
            self.doors.append(Door(stream))
        self.live: list[Held] = []
        self.spans: list[tuple[int, int]] = []
        self.count = 0
        self.armed = 0
        self.refusals = 0

    def pool(self, lane: int) -> acl.Pool:
        return self.pools[lane // 2]

    def hold(self, lane: int, block: int, address: int, size: int, buffer: acl.Buffer | None = None) -> Held:
        self.count += 1
        held = Held(lane, block, address, max(size, 1), self.count * 0x9E3779B97F4A7C15 % 2**64, buffer)
        at = bisect_left(self.spans, (address, 0))
        assert at == len(self.spans) or address + held.size <= self.spans[at][0], "overlaps the next block"
        assert at == 0 or self.spans[at - 1][1] <= address, "overlaps the block before"
        assert address % 512 == 0
        insort(self.spans, (address, address + held.size))
        self.live.append(held)
        mark(held, write=True)
        return held

    def drop(self, held: Held) -> None:
        self.forget(held)
        self.give(held)

    def forget(self, held: Held) -> None:
        mark(held, write=False)
        self.live.remove(held)
        self.spans.remove((held.address, held.address + held.size))

    def give(self, held: Held) -> None:
        if held.buffer is not None:
            held.buffer.close()
        else:
            self.doors[held.lane].free(held.block)

    @initialize()
    def start(self) -> None:
        acl.Device(0).use()

    @rule(target=blocks, lane=st.integers(0, 3), size=SIZES)
    def alloc(self, lane: int, size: int) -> object:
        acl.Device(lane // 2).use()
        block = self.doors[lane].alloc(size)
        if not block:
            report = self.pool(lane).last_oom()
            assert report is not None
            assert report.size == size
            return multiple()
        return self.hold(lane, block, self.doors[lane].address(block), size)

    @rule(target=blocks, lane=st.integers(0, 3), sizes=st.lists(SIZES, min_size=2, max_size=12))
    def burst(self, lane: int, sizes: list[int]) -> object:
        acl.Device(lane // 2).use()
        taken = [(size, self.doors[lane].alloc(size)) for size in sizes]
        return multiple(*(self.hold(lane, block, self.doors[lane].address(block), size)
                          for size, block in taken if block))

    @rule(target=blocks, lane=st.integers(0, 3), size=SIZES, tag=st.sampled_from([None, "a", "b"]))
    def alloc_buffer(self, lane: int, size: int, tag: str | None) -> object:
        acl.Device(lane // 2).use()
        try:
            buffer = self.pool(lane).alloc(size, self.lanes[lane], tag=tag)
        except acl.OutOfMemoryError:
            return multiple()
        return self.hold(lane, 0, buffer.address, size, buffer)

    @rule(target=blocks, lane=st.integers(0, 3), size=SIZES, near=st.integers(0, 1 << 14))
    def advise(self, lane: int, size: int, near: int) -> object:
        acl.Device(lane // 2).use()
        block = self.doors[lane].advise(size, near * 512)
        return self.hold(lane, block, self.doors[lane].address(block), size) if block else multiple()

    @rule(held=consumes(blocks))
    def free(self, held: Held) -> None:
        acl.Device(held.lane // 2).use()
        self.drop(held)

    @rule(held=consumes(blocks))
    def free_elsewhere(self, held: Held) -> None:
        self.forget(held)
        thread = threading.Thread(target=self.give, args=(held,))
        thread.start()
        thread.join()

    @rule(held=consumes(blocks))
    def free_twice(self, held: Held) -> None:
        if held.buffer is None:
            pool = self.pool(held.lane)
            before = pool.stats().total("refused")
            self.drop(held)
            self.doors[held.lane].free(held.block)
            assert pool.stats().total("refused") == before + 1
        else:
            self.drop(held)

    @rule(held=blocks)
    def record(self, held: Held) -> None:
        if held in self.live and held.buffer is not None:
            acl.Device(held.lane // 2).use()
            self.pool(held.lane).record_stream(held.buffer, self.lanes[held.lane ^ 1])

    @rule(lane=st.integers(0, 3))
    def synchronize(self, lane: int) -> None:
        acl.Device(lane // 2).use()
        try:
            self.lanes[lane].synchronize()
        except acl.AclError:
            assert self.armed, "a wait failed without a fault"

    @rule(which=st.integers(0, 1), to=st.sampled_from([0, 8 * MIB, 24 * MIB]), idle=st.booleans())
    def trim(self, which: int, to: int, idle: bool) -> None:
        acl.Device(which).use()
        self.pools[which].trim(to, idle=idle)

    @rule(which=st.integers(0, 1))
    def decay(self, which: int) -> None:
        acl.Device(which).use()
        self.pools[which].decay_tick()

    @rule(which=st.integers(0, 1))
    def unload(self, which: int) -> None:
        acl.Device(which).use()
        with self.pools[which].unloading():
            for held in [h for h in self.live if h.lane // 2 == which and h.buffer is None][:3]:
                self.doors[held.lane].free(self.doors[held.lane].alloc(held.size))

    @rule(name=st.sampled_from(FAULTS), nth=st.integers(1, 4))
    def fail_soon(self, name: str, nth: int) -> None:
        if self.armed == FAULTS_MOST:
            self.faults_end()
        self.armed += 1
        self.refusals += name == "aclrtUnmapMem"
        acl.sim.fault(name, nth=nth)

    @rule()
    def faults_end(self) -> None:
        self.armed = 0
        acl.sim.reset()

    @invariant()
    def whole(self) -> None:
        for which, pool in enumerate(self.pools):
            assert pool.check() == 0
            stats = pool.stats()
            mine = [held for held in self.live if held.lane // 2 == which]
            rounded = sum((self.asked(held) + 511) // 512 * 512 for held in mine)
            assert stats.allocated == rounded
            assert sum(one.live_blocks for one in stats.streams) == len(mine)
            assert acl.sim.physical_bytes(which) - self.found[which] == stats.reserved
            assert stats.reserved <= 48 * MIB

    @staticmethod
    def asked(held: Held) -> int:
        if held.buffer is None:
            return held.size
        return max((held.buffer.size + 31) // 32 * 32 + 32, 1)

    def teardown(self) -> None:
        acl.sim.reset()
        for held in self.live:
            acl.Device(held.lane // 2).use()
            self.give(held)
        for lane, stream in enumerate(self.lanes):
            acl.Device(lane // 2).use()
            self.pool(lane).unregister(stream)
            stream.close()
        for which, pool in enumerate(self.pools):
            acl.Device(which).use()
            assert pool.unload_end()    # completes frees that were deferred to a device sync by a failed event
            pool.trim()
            assert pool.stats().reserved == 0
            assert acl.sim.physical_bytes(which) == self.found[which]
            pool.close()
        self.pools.clear()
        gc.collect()


COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=True)


@pytest.mark.usefixtures("no_leaks")
class TestPoolModel(PoolMachine.TestCase):
    """Runs thousands of steps; Hypothesis shortens a failing sequence."""

    settings = settings(COMMON, max_examples=180, stateful_step_count=60)


if LONG:
    FIRST = int(os.environ.get("ACLPOOL_SEED", time.time_ns() % 10**9))

    @pytest.mark.long
    @pytest.mark.usefixtures("no_leaks")
    @pytest.mark.parametrize("part", range(60))
    def test_pool_agrees_with_its_model_over_hundreds_of_thousands_of_steps(part: int) -> None:
        """Run the steps in parts, and exclude existing objects from garbage collections before each part.

        Hypothesis keeps all examples that it has tried, and each example begins and ends with a garbage collection.
        In one run of 3,000 examples, the speed fell from ten examples per second to one in two seconds after 600.
        """
        print("ACLPOOL_SEED", FIRST, "and", part)
        machine = seed(FIRST + part)(type("PoolMachine", (PoolMachine,), {}))
        gc.freeze()
        try:
            run_state_machine_as_test(machine, settings=settings(COMMON, max_examples=50, stateful_step_count=120))
        finally:
            gc.unfreeze()
