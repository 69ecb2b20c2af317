"""Every driver call of a scenario fails once: the invariants hold, nothing leaks, and the pool still works.

Each scenario first runs without a failing call, to count its calls of the functions in DRIVER.  Then it runs once for
each of these calls (at most the first 40 of a function), with that call failing.
An allocation may then return NULL.  Errors are a broken invariant, a leak, or a pool that cannot serve the next
allocation.
"""

import gc
import random
from collections.abc import Callable, Iterator

import pytest
from support.core import MIB, Door, open_door, physical, physical_base  # noqa: F401

import acl

DRIVER = (
    "aclrtReserveMemAddress", "aclrtReleaseMemAddress", "aclrtMallocPhysical", "aclrtFreePhysical", "aclrtMapMem",
    "aclrtUnmapMem", "aclrtMallocAlign32", "aclrtFree", "aclrtSynchronizeStreamWithTimeout",
    "aclrtSynchronizeDeviceWithTimeout", "aclrtStreamQuery", "aclrtGetMemInfo", "aclmdlRICaptureGetInfo",
    "aclrtCreateEventExWithFlag", "aclrtRecordEvent", "aclrtQueryEventStatus", "aclrtDestroyEvent",
)
Step = Callable[[acl.Pool, Door], None]


def grow(pool: acl.Pool, door: Door) -> None:
    """Allocate large and small blocks from an empty pool, and free them."""
    held = [door.alloc(size) for size in (512, 5 * MIB, 600 << 10, 17 * MIB)]
    for block in filter(None, held):
        door.free(block)


def steal(pool: acl.Pool, door: Door) -> None:
    """Allocate a block that is larger than each free block, so that pages move within the arena."""
    held = [door.alloc(4 * MIB) for _ in range(16)]
    for block in filter(None, held[::2]):
        door.free(block)
    large = door.alloc(24 * MIB)
    for block in filter(None, [large, *held[1::2]]):
        door.free(block)


def rob(pool: acl.Pool, door: Door) -> None:
    """Allocate on a second stream, then on the first, so that the limit makes pages move between the arenas."""
    with acl.Stream() as second:
        pool.register(second)
        other = Door(second)
        block = other.alloc(56 * MIB)
        if block:
            other.free(block)
        mine = door.alloc(40 * MIB)
        if mine:
            door.free(mine)
        pool.unregister(second)


def trim(pool: acl.Pool, door: Door) -> None:
    """Give all memory back to the driver, by trims and decay steps."""
    held = [door.alloc(size) for size in (512, 30 * MIB, MIB)]
    for block in filter(None, held):
        door.free(block)
    pool.trim(8 * MIB)
    pool.decay_tick()
    pool.decay_tick()
    pool.trim()


def share(pool: acl.Pool, door: Door) -> None:
    """Free blocks that another stream uses, and wait until the frees are complete."""
    with acl.Stream() as second, acl.Stream() as third:
        try:
            buffers = [pool.alloc(20 * MIB, second) for _ in range(2)]
        except acl.OutOfMemoryError:
            return
        for buffer in buffers:
            pool.record_stream(buffer, third)
            buffer.close()
        block = door.alloc(48 * MIB)
        if block:
            door.free(block)
        pool.unload_begin()
        block = door.alloc(30 * MIB)
        if block:
            door.free(block)
        pool.unload_end()


def exhaust(pool: acl.Pool, door: Door) -> None:
    """Allocate more than the limit: all fallback steps are tried, then NULL is returned."""
    held = [door.alloc(7 * MIB) for _ in range(12)]
    assert 0 in held
    for block in filter(None, held):
        door.free(block)


STEPS = (grow, steal, rob, trim, share, exhaust)
OPTIONS = {"pages": {}, "segments": {"segments": True}, "headroom": {"headroom": "16MiB"}}


@pytest.fixture
def device(sim: object) -> Iterator[None]:
    yield
    acl.sim.reset()


def books() -> tuple[dict[str, int], int]:
    return acl.sim.live_handles(), acl.sim.physical_bytes()


def attempt(step: Step, options: dict[str, object], rule: tuple[str, int] | None) -> dict[str, int]:
    """Run a scenario on a new pool; if `rule` is (function, n), the nth call of the function fails.

    Check the pool after the scenario.  Return the number of calls by function.
    """
    with open_door(limit="64MiB", **options) as (pool, stream, door):
        acl.sim.reset_counters()
        fault = acl.sim.fault(rule[0], nth=rule[1]) if rule else None
        try:
            step(pool, door)
        except acl.AclError as error:
            assert rule, error
        finally:
            calls = acl.sim.counters()
            if fault is not None:
                assert fault.hits == 1, f"{step.__name__}: {rule} was not called"
                fault.remove()
        where = f"{step.__name__}: {rule}"
        gc.collect()
        assert pool.check() == 0, where
        if options.get("segments"):
            pool.trim()
        block = door.alloc(8 * MIB)
        assert block, f"{where}: the next allocation\n{pool.last_oom()}"
        assert pool.check() == 0, where
        door.free(block)
        stream.synchronize()
        pool.unload_end()
        pool.trim()
        assert pool.stats().allocated == 0, where
        assert pool.stats().reserved == 0 == physical(), where
        assert pool.check() == 0, where
    return calls


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("step", STEPS)
def test_failure_of_any_driver_call_leaves_the_pool_usable(
    device: None, step: Step, options: dict[str, object]
) -> None:
    attempt(step, options, None)
    gc.collect()
    before = books()
    counted = attempt(step, options, None)
    failed = 0
    for name in DRIVER:
        for nth in range(1, min(counted.get(name, 0), 40) + 1):
            attempt(step, options, (name, nth))
            failed += 1
    gc.collect()
    assert failed >= 3
    assert books() == before


@pytest.mark.parametrize("name", ["aclrtMallocPhysical", "aclrtMapMem", "aclrtReserveMemAddress"])
def test_driver_that_always_fails_gives_null_and_a_report(device: None, name: str) -> None:
    with open_door() as (pool, _, door):
        with acl.sim.fault(name, code=207001):
            assert door.alloc(MIB) == 0
            report = pool.last_oom()
            assert report is not None
            assert (report.size, report.code) == (MIB, 207001)
            with pytest.raises(acl.OutOfMemoryError, match="could not be had"):
                pool.alloc(MIB)
        assert pool.check() == 0
        assert pool.stats().ooms == 2
        block = door.alloc(MIB)
        assert block
        door.free(block)


@pytest.mark.parametrize("seed", range(6))
def test_random_driver_failures_leave_the_pool_consistent(device: None, seed: int) -> None:
    print("seed", seed)
    with open_door(limit="64MiB") as (pool, stream, door):
        rules = [acl.sim.fault(name, p=0.2, seed=seed * 100 + i) for i, name in enumerate(DRIVER)]
        for step in (*STEPS[:4], *STEPS[:4]):
            try:
                step(pool, door)
            except acl.AclError:
                pass
            gc.collect()
            assert pool.check() == 0, step.__name__
        for rule in rules:
            rule.remove()
        stream.synchronize()
        pool.trim()
        assert pool.stats().allocated == 0
        assert pool.stats().reserved == 0 == physical()


def test_a_driver_that_refuses_everything_gives_null(device: None) -> None:
    with open_door() as (pool, _, door):
        kept = door.alloc(MIB)
        with acl.sim.fault("*", code=507899):
            assert door.alloc(40 * MIB) == 0
            door.free(kept)
            assert pool.check() == 0
        block = door.alloc(40 * MIB)
        assert block
        door.free(block)


def test_reserved_peak_after_a_refusal_is_what_was_held(device: None) -> None:
    with acl.PinnedPool() as pinned:
        pinned.alloc(MIB).close()
        with pytest.raises(acl.OutOfMemoryError):
            pinned.alloc(1 << 45)
        assert pinned.stats().reserved_peak == MIB
    with acl.Pool(0, segments=True) as pool:
        pool.alloc(MIB).close()
        held = pool.stats().reserved
        with acl.sim.fault("aclrtMallocAlign32", every=1), pytest.raises(acl.OutOfMemoryError):
            pool.alloc(256 * MIB)
        assert pool.stats().reserved_peak == held


def random_sizes(pool: acl.Pool, stream: acl.Stream) -> float:
    """Keep 256 MiB of blocks of 1 to 24 MiB live. Return the ratio of the bytes reserved at the end to 256 MiB."""
    rnd = random.Random(1)
    live: list[acl.Buffer] = []
    total = 0
    for _ in range(1500):
        size = rnd.randint(1, 24) * MIB + rnd.randint(0, MIB)
        while total + size > 256 * MIB:
            leaves = live.pop(rnd.randrange(len(live)))
            total -= leaves.size
            leaves.close()
        live.append(pool.alloc(size, stream))
        total += size
    return pool.stats().reserved / (256 * MIB)


def test_failed_allocation_raises_the_reserved_memory_of_a_later_load_by_less_than_3_percent(device: None) -> None:
    ratios = []
    for fails in (False, True):
        with acl.Pool(0, limit="1GiB") as pool, acl.Stream() as stream:
            if fails:
                with pool.alloc(125 * MIB, stream), pytest.raises(acl.OutOfMemoryError):
                    pool.alloc(925 * MIB, stream)
                pool.trim()
            ratios.append(random_sizes(pool, stream))
    assert ratios[1] < ratios[0] * 1.03, ratios
