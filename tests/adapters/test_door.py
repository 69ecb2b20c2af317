"""The C functions that frameworks are given: bytes, devices, streams, threads, and the task queue.

A pool that was attached to the adapter stays attached, so each test runs in its own process.
"""

from __future__ import annotations

import textwrap

import pytest
from support.child import run_python

pytestmark = pytest.mark.subprocess_heavy

START = """
import ctypes, random, sys, threading
import acl
from acl import sim
from acl.adapters.pluggable import _door
from support.calls import api
from support.core import MIB, Slow
from support.framework import Framework
acl.Device(0).use()
"""


def program(code: str, **environment: str) -> str:
    """Run a program, check that it exits cleanly, and return its output."""
    done = run_python(START + textwrap.dedent(code), **environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


# ---- bytes


def test_framework_blocks_are_padded_and_do_not_overlap() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        sizes = [1, 16, 308, 480, 481, 512, 4000, 5 * MIB + 3]
        blocks = sorted((framework.malloc(size, stream), size) for size in sizes)
        ends = [address + (size + 31) // 32 * 32 + 32 for address, size in blocks]
        assert all(end <= after for end, (after, _) in zip(ends, blocks[1:]))
        assert all(address % 512 == 0 for address, _ in blocks)
        stats = _door.stats(0)
        assert stats["requested"][0]["current"] == sum(sizes)
        assert stats["bytes"][0]["current"] == sum((size + 63) // 32 * 32 + 511 & ~511 for size in sizes)
        for address, size in blocks:
            framework.free(address, size, stream)
        stats = _door.stats(0)
        assert [stats[name][0]["current"] for name in ("blocks", "bytes", "requested")] == [0, 0, 0]
        assert stats["blocks"][0]["peak"] == stats["blocks"][0]["freed"] == len(sizes)
        assert stats["blocks"][1]["peak"] == len(sizes) - 1 and stats["blocks"][2]["peak"] == 1
    """)


@pytest.mark.parametrize(("soc", "bytes_"), [("Ascend910B1", 1024), ("Ascend950PR_9599", 512)])
def test_padding_follows_the_chip(soc: str, bytes_: int) -> None:
    out = program("""
        Framework().malloc(512, acl.Stream())
        print(_door.stats(0)["bytes"][0]["current"])
    """, ACL_SIM_SOC=soc)
    assert int(out) == bytes_


def test_framework_allocation_of_0_bytes_returns_null() -> None:
    program("""
        framework = Framework()
        assert framework.malloc(0) == 0
        framework.free(0)
        assert _door.refused() == 0 and _door.stats(0) is None
    """)


@pytest.mark.parametrize("size", [1 << 46, (1 << 64) - 1])
def test_an_absurd_size_is_refused(size: int) -> None:
    program(f"""
        framework = Framework()
        assert framework.malloc({size}) == 0
        assert _door.stats(0)["ooms"] == 1
        assert framework.malloc(100) != 0
    """)


def test_free_of_an_address_that_is_not_live_is_refused() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        block = framework.malloc(1000, stream)
        framework.free(block, 1000, stream)
        framework.free(block, 1000, stream)
        framework.free(0x1234567, 1000, stream)
        assert _door.refused() == 2
        one, other = framework.malloc(1000, stream), framework.malloc(1000, stream)
        assert one != other
        assert _door.pools()[0].check() == 0
    """)


def test_many_live_blocks_are_found_again() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        numbers = random.Random(7)
        live = {}
        for step in range(60_000):
            if live and numbers.random() < 0.45:
                address = numbers.choice(list(live)[:64])
                framework.free(address, live.pop(address), stream)
            else:
                size = numbers.randrange(1, 3000)
                address = framework.malloc(size, stream)
                assert address and address not in live
                live[address] = size
        assert _door.stats(0)["requested"][0]["current"] == sum(live.values())
        for address in live:
            framework.free(address)
        assert _door.refused() == 0 and _door.stats(0)["blocks"][0]["current"] == 0
        assert _door.pools()[0].check() == 0
    """)


# ---- devices, streams, threads


def test_each_device_has_a_pool_of_its_own() -> None:
    program("""
        framework = Framework()
        first = framework.malloc(3 * MIB, device=0)
        second = framework.malloc(5 * MIB, device=1)
        pools = _door.pools()
        assert {number: pool.stats().requested for number, pool in pools.items()} == {
            0: 3 * MIB + 32, 1: 5 * MIB + 32}
        assert acl.Device.current().ordinal == 0
        framework.free(second)
        assert _door.stats(1)["blocks"][0]["current"] == 0
        assert framework.malloc(100, device=2) == framework.malloc(100, device=-1) == 0
        assert framework.malloc(100, device=64) == framework.malloc(100, device=1 << 30) == 0
    """)


def test_framework_uses_a_pool_that_the_program_attached() -> None:
    program("""
        pool = acl.Pool(1, limit="8MiB")
        assert _door.attach(pool, early=True) == 0
        framework = Framework()
        assert framework.malloc(6 * MIB, device=1) and not framework.malloc(6 * MIB, device=1)
        assert _door.pools() == {1: pool}
        try:
            _door.attach(acl.Pool(1), early=True)
        except ValueError as error:
            print(error)
    """)


def test_default_stream_has_an_arena_of_its_own() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        one = framework.malloc(1000, None)
        framework.free(one)
        other = framework.malloc(1000, stream)
        assert other != one and framework.malloc(1000, None) == one
        kinds = {part.stream: part.kind for part in _door.pools()[0].stats().streams}
        assert kinds == {0: "framework", stream.handle: "framework"}
    """)


def test_framework_block_can_be_freed_after_its_stream_is_destroyed() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        block = framework.malloc(5 * MIB, stream)
        handle = stream.handle
        stream.close()
        framework.free(block)
        assert _door.stats(0)["blocks"][0]["current"] == 0
        with acl.Stream() as other:
            assert framework.malloc(5 * MIB, other)
        assert _door.pools()[0].check() == 0
    """)


def test_threads_without_a_device_can_allocate_and_free() -> None:
    program("""
        framework, streams = Framework(), [acl.Stream() for _ in range(3)]
        handed, wrong = [], []
        def work(seed):
            numbers = random.Random(seed)
            try:
                for _ in range(800):
                    stream = numbers.choice(streams)
                    size = numbers.choice([100, 5000, 700_000, 3 * MIB])
                    handed.append((framework.malloc(size, stream), size))
                    if len(handed) > 20:
                        framework.free(*handed.pop(numbers.randrange(10)))
            except BaseException as error:
                wrong.append(error)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not wrong and all(address for address, _ in handed)
        for block in handed:
            framework.free(*block)
        assert _door.refused() == 0 and _door.stats(0)["blocks"][0]["current"] == 0
        assert _door.pools()[0].check() == 0
    """)


def test_current_device_of_a_thread_is_not_changed_by_the_framework_adapter() -> None:
    program("""
        framework = Framework()
        mine = acl.Context(0)
        mine.use()
        assert framework.malloc(30 * MIB, device=1)
        assert acl.Context.current().handle == mine.handle
    """)


# ---- the task queue


QUEUE = """
def load(framework, pool, seed, steps):
    '''Blocks that go back before the work on them is submitted, on two streams; trims and misses between.'''
    numbers = random.Random(seed)
    streams = [acl.Stream(), acl.Stream()]
    served = acl.Stream()
    pool.register(served)
    own = []
    for step in range(steps):
        stream = streams[step // 3 % 2]
        size = numbers.choice([300 * 1024, MIB, 3 * MIB, 5 * MIB])
        if not (address := framework.malloc(size, stream)):
            framework.submit()
            continue
        framework.fill(address, size, step % 251, stream)
        framework.free(address, size, stream)
        what = numbers.randrange(8)
        if what == 0:
            pool.trim()
        elif what == 1:
            pool.trim(idle=True)
        elif what == 2:
            pool.decay_tick()
        elif what == 3:
            try:
                own.append(pool.alloc(numbers.choice([MIB, 4 * MIB]), served))
            except acl.OutOfMemoryError:
                own.clear()
        elif what == 4:
            own.clear()
        if framework.queued > 6:
            framework.submit(numbers.randrange(4))
    own.clear()
    return framework.finish()
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("early", [False, True], ids=["a pool of ACL's streams too", "a pool of its own"])
def test_block_freed_before_its_task_is_launched_keeps_its_pages(seed: int, early: bool) -> None:
    """Slow allocations, trims, decay steps and other streams take no page that work in the queue still uses."""
    program(QUEUE + f"""
pool = acl.Pool(0, limit="24MiB", early_frees={early})
_door.attach(pool, early=True)
wrong = load(Framework(), pool, {seed}, 300)
assert not wrong, wrong[:3]
assert pool.check() == 0
""")


def test_allocation_takes_no_free_page_of_a_stream_with_queued_tasks() -> None:
    """While a task of stream one waits in the queue, stream two does not get stream one's free page."""
    program("""
        pool = acl.Pool(0, limit="8MiB")
        _door.attach(pool, early=True)
        framework, one, two = Framework(), acl.Stream(), acl.Stream()
        with Slow(one):
            block = framework.malloc(4 * MIB - 64, one)
            framework.fill(block, 4 * MIB - 64, 7, one)
            framework.free(block)
            assert framework.malloc(6 * MIB, two) == 0      # two pages are left; those of `one` are not taken
            assert pool.trim() == 0
            again = framework.malloc(4 * MIB - 64, one)
            assert again == block                           # on its own stream the queue orders it
            framework.submit()
        assert framework.finish() == []
        assert sum(part.donated + part.syncs for part in pool.stats().streams) == 0
        assert pool.stats().driver_calls["aclrtUnmapMem"] == 0
        assert pool.stats().driver_calls["aclrtEvent"] == 0
    """)


def test_framework_free_calls_no_runtime_function() -> None:
    program("""
        framework, stream, other = Framework(), acl.Stream(), acl.Stream()
        blocks = [framework.malloc(size, stream) for size in (100, 100_000, 9 * MIB)]
        assert _door.share(blocks[1], other.handle)
        sim.reset_counters()
        for block in blocks:
            framework.free(block)
        assert sim.counters() == {}
    """)


def test_pages_are_released_only_after_the_task_queue_is_drained() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        block = framework.malloc(9 * MIB, stream)
        framework.fill(block, 9 * MIB, 3, stream)
        framework.free(block)
        pool = _door.pools()[0]
        assert pool.trim() == 0 and pool.decay_tick() == 0
        framework.can_drain()
        assert pool.trim(drained=True) == 10 * MIB
        assert framework.drains > 0 and framework.queued == 0
        assert framework.finish() == []
    """)


def test_emptying_the_cache_drains_the_queue_of_each_device() -> None:
    program("""
        framework = Framework()
        framework.can_drain()
        streams = [acl.Stream(0), acl.Stream(1)]
        for stream in streams:
            block = framework.malloc(9 * MIB, stream, stream.device)
            acl.Device(stream.device).use()
            framework.fill(block, MIB, 3, stream)
            framework.submit()
            framework.free(block)
        acl.Device(0).use()
        _door.empty()
        assert [_door.stats(device)["reserved"][0]["current"] for device in (0, 1)] == [0, 0]
        assert acl.Device.current().ordinal == 0
    """)


def test_allocation_short_of_memory_drains_the_queue_before_it_fails() -> None:
    """When the queue is empty, free pages of another stream are used; live blocks keep their pages."""
    program("""
        pool = acl.Pool(0, limit="16MiB")
        _door.attach(pool, early=True)
        framework, one, two = Framework(), acl.Stream(), acl.Stream()
        keep = framework.malloc(1 * MIB, one)
        framework.fill(keep, 1 * MIB, 9, one)
        block = framework.malloc(11 * MIB, one)
        framework.fill(block, 11 * MIB, 5, one)
        framework.free(block)
        framework.can_drain()
        found = framework.malloc(10 * MIB, two)
        assert found
        framework.fill(found, 10 * MIB, 6, two)
        assert _door.stats(0)["retries"] == 1 and _door.stats(0)["ooms"] == 0
        assert framework.malloc(10 * MIB, two) == 0
        assert _door.stats(0)["ooms"] == 1
        assert framework.finish() == []
        assert pool.check() == 0
    """)


def test_queue_drain_waits_in_the_context_of_the_work() -> None:
    """A synchronisation of the device covers only the streams of the current context."""
    program("""
        pool = acl.Pool(0, sync_timeout_ms=50)
        _door.attach(pool, early=True)
        framework = Framework()
        context, notify = acl.Context(0), ctypes.c_void_p()
        context.use()
        stream, signal = acl.Stream(), acl.Stream()
        assert api.aclrtCreateNotify(ctypes.byref(notify), 0) == 0
        assert api.aclrtWaitAndResetNotify(notify, stream.handle, 0) == 0
        block = framework.malloc(9 * MIB, stream)
        framework.free(block)
        acl.Device(0).use()
        early = pool.trim(drained=True)
        context.use()
        assert api.aclrtRecordNotify(notify, signal.handle) == 0
        stream.synchronize()
        acl.Device(0).use()
        assert (early, pool.trim(drained=True)) == (0, 10 * MIB)
        assert api.aclrtDestroyNotify(notify) == 0
    """)


def test_block_freed_while_the_queue_drains_keeps_its_pages() -> None:
    """The pages to return are chosen before the drain.  So a block that is freed during the drain keeps its pages."""
    program("""
        framework, stream = Framework(), acl.Stream()
        late = framework.malloc(6 * MIB, stream)
        early = framework.malloc(6 * MIB, stream)
        framework.free(early)
        pool = _door.pools()[0]
        def during():
            framework.fill(late, 6 * MIB, 8, stream)        # not yet submitted, and freed
            framework.free(late)
        class Once(Framework):
            def submit(self, count=None):
                if not self.drains == 2:
                    super().submit(count)
        Once.can_drain(framework)
        original = framework.submit
        def submit(count=None):
            if framework.drains == 2:
                return during()
            original(count)
        framework.submit = submit
        pool.trim(drained=True)
        del framework.submit
        assert framework.finish() == []
    """)


def test_failed_queue_drain_releases_no_page() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        block = framework.malloc(9 * MIB, stream)
        framework.free(block)
        made = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_bool)(lambda check: False)
        _door.hook(drain=ctypes.cast(made, ctypes.c_void_p).value)
        pool = _door.pools()[0]
        assert pool.trim(drained=True) == 0
        _door.hook(drain=0)
        assert pool.trim(drained=True) == 10 * MIB
    """)


# ---- other streams


def test_block_used_by_another_stream_is_released_only_after_the_queue_drain() -> None:
    program("""
        framework, one, two = Framework(), acl.Stream(), acl.Stream()
        framework.can_drain()
        block = framework.malloc(4 * MIB, one)
        assert _door.share(block, two.handle) and not _door.share(block + 512, two.handle)
        framework.fill(block, 4 * MIB, 4, two)
        framework.free(block)
        other = framework.malloc(4 * MIB, one)
        assert other != block
        waiting = [b for _, _, run in _door.segments(0) for b in run if b[2] == "waiting"]
        assert [b[0] for b in waiting] == [block]
        pool = _door.pools()[0]
        # Another arena's shortage synchronises the device; that says nothing of the queue.
        served = acl.Stream()
        pool.unload_begin(); pool.unload_end()
        assert framework.malloc(4 * MIB, one) not in (0, block)     # a miss looks at what waits
        assert [b[2] for _, _, run in _door.segments(0) for b in run if b[0] == block] == ["waiting"]
        _door.empty()
        assert not [b for _, _, run in _door.segments(0) for b in run if b[2] == "waiting"]
        assert framework.finish() == []
    """)


def test_queue_marker_releases_a_block_that_another_stream_used() -> None:
    """The queue marker is set at the first slow allocation after the free.

    The block is released when the stream has reached the marker.
    """
    program("""
        framework, one, two = Framework(), acl.Stream(), acl.Stream()
        framework.can_mark()
        with Slow(two):
            block = framework.malloc(4 * MIB, one)
            _door.share(block, two.handle)
            framework.fill(block, 4 * MIB, 4, two)
            framework.free(block)
            assert framework.marks == 0                         # nothing inside a free
            others = [framework.malloc(4 * MIB, one)]
            assert framework.marks == 1 and framework.queued == 2
            others.append(framework.malloc(4 * MIB, one))       # not submitted yet
            framework.submit()
            others.append(framework.malloc(4 * MIB, one))       # submitted, not done
            assert block not in others and framework.marks == 1
        two.synchronize()
        assert framework.malloc(4 * MIB, one) == block
        assert framework.finish() == [] and _door.pools()[0].check() == 0
    """)


def test_a_block_that_its_own_stream_uses_does_not_wait() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        block = framework.malloc(1000, stream)
        assert _door.share(block, stream.handle)
        framework.free(block)
        assert framework.malloc(1000, stream) == block
    """)


# ---- out of memory, hooks


def test_error_hook_gets_the_reason_of_a_failed_allocation() -> None:
    out = program("""
        pool = acl.Pool(0, limit="8MiB")
        _door.attach(pool, early=True)
        framework, told = Framework(), []
        framework.throws(told)
        framework.malloc(4 * MIB)
        framework.malloc(40 * MIB)
        framework.malloc(40 * MIB, device=7)
        framework.malloc(0)
        framework.library.aclpool_refuse_capture(0)
        print("\\n".join(told))
    """)
    lines = out.splitlines()
    assert len(lines) == 3
    assert "Tried to allocate 40.00 MiB on device 0" in lines[0]
    assert "limit is 8.00 MiB" in lines[0]
    assert "4.00 MiB are in use" in lines[0]
    assert "no pool for device 7" in lines[1]
    assert "MemPool" in lines[2]


def test_allocation_from_a_closed_pool_gets_an_error_that_says_so() -> None:
    out = program("""
        pool = acl.Pool(0)
        _door.attach(pool, early=True)
        framework, told = Framework(), []
        framework.throws(told)
        framework.malloc(4 * MIB)
        pool.close()
        framework.malloc(4 * MIB)
        framework.malloc(4 * MIB, acl.Stream(0))
        print("\\n".join(told))
    """)
    lines = out.splitlines()
    assert len(lines) == 2 and all("the pool of device 0 is closed" in line for line in lines), out


@pytest.mark.parametrize("call", ["aclrtMallocPhysical", "aclrtMapMem", "aclrtReserveMemAddress"])
def test_driver_failure_makes_only_one_allocation_fail(call: str) -> None:
    program(f"""
        framework, stream = Framework(), acl.Stream()
        assert framework.malloc(100, stream)
        with sim.fault("{call}", code=207001):
            assert framework.malloc(9 * MIB, stream) == 0 or "{call}" == "aclrtReserveMemAddress"
        assert framework.malloc(9 * MIB, stream)
        assert _door.pools()[0].check() == 0
    """)


def test_framework_statistics_reset_peaks_and_totals() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        blocks = [framework.malloc(MIB, stream) for _ in range(5)]
        for block in blocks[1:]:
            framework.free(block)
        _door.reset(0, peaks=True)
        stats = _door.stats(0)
        assert stats["blocks"][0]["peak"] == 1 and stats["blocks"][0]["allocated"] == 5
        assert stats["reserved"][0]["peak"] == stats["reserved"][0]["current"]
        _door.reset(0, peaks=False)
        assert _door.stats(0)["blocks"][0] == {"current": 1, "peak": 1, "allocated": 0, "freed": 0}
    """)


def test_memory_fraction_sets_the_limit_of_the_pool() -> None:
    program("""
        framework = Framework()
        framework.library.aclpool_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
        framework.library.aclpool_fraction(0.25, 0)
        assert _door.pools()[0].stats().limit == 256 * MIB
        assert framework.malloc(250 * MIB) and not framework.malloc(10 * MIB)
    """, ACL_SIM_MEMORY=str(1 << 30))


# ---- seats of single pools


def test_framework_instance_allocates_from_its_own_pool() -> None:
    program("""
        first, second = acl.Pool(0, limit="8MiB"), acl.Pool(0, limit="32MiB")
        seats = [_door.attach(pool, early=False, own=True) for pool in (first, second)]
        assert seats == [1, 2] and _door.attach(first, early=False, own=True) == 1
        small, large = Framework(1), Framework(2)
        assert not small.malloc(20 * MIB) and large.malloc(20 * MIB)
        assert first.stats().requested == 0 and second.stats().requested == 20 * MIB + 32
        assert small.malloc(100, device=1) == 0             # the seat is device 0's
        assert Framework(15).malloc(100) == 0               # nobody sits there
    """)


def test_framework_instance_releases_pages_of_blocks_freed_after_their_work() -> None:
    """An instance with `early=False` moves pages as the pool itself does.

    The framework frees a block only when the work on it is complete, so its pages may leave at once.
    """
    program("""
        pool = acl.Pool(0)
        framework = Framework(_door.attach(pool, early=False, own=True))
        block = framework.malloc(9 * MIB)
        framework.free(block)
        assert pool.trim() == 10 * MIB
    """)


def test_current_device_of_the_thread_is_used_if_the_framework_names_the_wrong_one() -> None:
    program("""
        pool = acl.Pool(1)
        acl.Device(0).use()
        given, own = (Framework(_door.attach(one, early=True, own=True, blind=True)) for one in (pool, None))
        assert given.malloc(100) == 0                       # the thread uses device 0, the pool is device 1's
        assert own.malloc(5 * MIB, device=1)                # whatever it names
        acl.Device(1).use()
        assert given.malloc(3 * MIB) and own.malloc(7 * MIB)
        assert pool.stats().requested == 3 * MIB + 32 and _door.pools(1) == {1: pool}
        assert {n: one.stats().requested for n, one in _door.pools(2).items()} == {0: 5 * MIB + 32, 1: 7 * MIB + 32}
        found = []
        nowhere = threading.Thread(target=lambda: found.append(own.malloc(9 * MIB, device=1)))
        nowhere.start()
        nowhere.join()                                      # without a device, what is named counts
        assert found[0] and _door.pools(2)[1].stats().requested == 16 * MIB + 64
        try:
            _door.attach(None, early=True)
        except ValueError as error:
            assert "seat 0 is for a pool" in str(error)
    """)


def test_more_pools_than_instances_are_refused() -> None:
    out = program("""
        pools = [acl.Pool(0) for _ in range(_door.SEATS)]
        try:
            for pool in pools:
                _door.attach(pool, early=False, own=True)
        except ValueError as error:
            print(error)
    """)
    assert "at most 15 pools" in out


# ---- without Python's side


def test_program_that_only_opens_the_library_gets_an_explaining_error() -> None:
    """The symbols refuse every call until the module is imported."""
    done = run_python("""
        import ctypes, importlib.util, sys
        import acl.pool._pool, acl.core._order, acl.core._arena, acl.core._pages
        library = ctypes.CDLL(importlib.util.find_spec("acl.adapters.pluggable._door").origin)
        library.aclpool_malloc.restype = ctypes.c_void_p
        assert not library.aclpool_malloc(ctypes.c_size_t(100), 0, None)
        assert not library.aclpool_malloc(ctypes.c_size_t(100), 0, None)
        library.aclpool_free(ctypes.c_void_p(4096), ctypes.c_size_t(100), 0, None)
    """)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gives no memory") == 1


def test_process_exit_with_live_framework_blocks_is_silent() -> None:
    done = run_python(START + """
framework, stream = Framework(), acl.Stream()
keep = [framework.malloc(size, stream) for size in (100, 5 * MIB)]
framework.fill(keep[1], 5 * MIB, 1, stream)
framework.submit()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- what Python knows


def test_pool_made_by_a_framework_allocation_is_listed_immediately() -> None:
    out = program("""
        framework, stream = Framework(), acl.Stream()
        framework.malloc(1000, stream)
        print([row.name for row in acl.memory_ledger(0).rows if row.owner == "pool"][0])
        thread = threading.Thread(target=lambda: (acl.Device(1).use(), framework.malloc(1000, acl.Stream(1), device=1)))
        thread.start()
        thread.join()
        assert sorted(pool.device for pool in acl.pool._pool.open_pools()) == [0, 1]
        assert len(_door.pools()) == 2 and len(acl.pool._pool.open_pools()) == 2
    """)
    assert out == "pool-0\n"


def test_a_recording_has_the_python_stacks_of_a_frameworks_blocks() -> None:
    program("""
        framework, stream = Framework(), acl.Stream()
        framework.malloc(1000, stream)
        def layer():
            return framework.malloc(5000, stream)
        with _door.pools()[0].record(stacks="python") as recording:
            layer()
        (event,) = [event for event in recording.events if event.kind == "alloc" and not event.before]
        assert "layer" in [frame[2] for frame in event.stack], event.stack
    """)


def test_a_fraction_of_the_device_never_raises_the_owners_limit() -> None:
    program("""
        framework, total = Framework(), acl.rt.get_mem_info(1)[1]
        pool = acl.Pool(0, limit="200MiB")
        _door.attach(pool, early=True)
        for fraction, expected in ((1.0, 200 * MIB), (64 * MIB / total, 64 * MIB), (0.5, 200 * MIB)):
            framework.library.aclpool_fraction(ctypes.c_double(fraction), 0)
            assert abs(pool.limit - expected) < 2, (fraction, pool.limit)
        pool.limit = "100MiB"
        framework.library.aclpool_fraction(ctypes.c_double(1.0), 0)
        assert pool.limit == 100 * MIB
    """)


def test_a_forked_child_gets_no_memory() -> None:
    program("""
        import os
        framework, stream = Framework(), acl.Stream()
        assert framework.malloc(1000, stream)
        if (child := os.fork()) == 0:
            os._exit(framework.malloc(1000) != 0)
        assert os.waitpid(child, 0)[1] == 0
        assert framework.malloc(1000, stream)
    """)


def test_reason_of_a_failed_instance_allocation_is_reported_once() -> None:
    program("""
        seat = _door.attach(acl.Pool(0, limit="10MiB"), early=False, own=True)
        framework, stream = Framework(seat), acl.Stream()
        assert framework.malloc(1000, stream) and _door.failure() is None
        assert not framework.malloc(20 * MIB + 1, stream)
        where, text = _door.failure()
        assert where == seat and "20.00 MiB" in text and "its limit is 10.00 MiB" in text, text
        assert _door.failure() is None
        assert not framework.malloc(20 * MIB, stream) and framework.malloc(700, stream)
        assert _door.failure() is None
    """)
