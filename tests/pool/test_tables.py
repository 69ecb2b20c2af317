"""Tables of a pool grow: it serves many streams, captures and slabs, and has addresses for all of them."""

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator

import pytest
from support.calls import api, out
from support.core import MIB, Slow

import acl
import acl.sim

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def pool() -> Iterator[acl.Pool]:
    with acl.Pool(0) as made:
        yield made


def addresses_taken() -> int:
    """Return the bytes of addresses that this process has reserved."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def resident_bytes() -> int:
    """Return the resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def mappings() -> int:
    """Return the number of memory mappings of this process."""
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


def test_a_pool_serves_2000_streams_with_large_blocks(pool: acl.Pool) -> None:
    pool.alloc(MIB).close()             # the first block of a process reserves the addresses of all descriptors
    before = addresses_taken()
    streams = [acl.Stream() for _ in range(2000)]
    buffers = [pool.alloc(MIB, stream) for stream in streams]
    assert len(pool.stats().streams) == 2001
    assert addresses_taken() - before < 32 << 40        # bytes; a process has 128 TiB
    mmap.mmap(-1, 1 << 30).close()
    for buffer in buffers:
        buffer.close()
    assert pool.check() == 0
    for stream in streams:
        stream.close()


def test_small_limit_reserves_fewer_addresses() -> None:
    taken = []
    for limit in (None, "64MiB"):
        before = addresses_taken()
        with acl.Pool(0, limit=limit) as pool:
            pool.alloc(MIB).close()
            taken.append(addresses_taken() - before)
    assert taken[1] < taken[0] // 4, taken


def test_a_pinned_pool_has_more_than_4096_slabs() -> None:
    with acl.PinnedPool() as pool:
        buffers = [pool.alloc(520 * 1024) for _ in range(4200)]
        assert pool.check() == 0
        for buffer in buffers:
            buffer.close()


def test_a_stream_is_found_as_fast_among_400_as_among_2(pool: acl.Pool) -> None:
    streams = [acl.Stream() for _ in range(400)]
    for stream in streams:
        pool.alloc(1000, stream).close()

    def pair_ns(first: acl.Stream, second: acl.Stream) -> int:
        best = 1 << 60
        for _ in range(7):
            began = time.thread_time_ns()
            for _ in range(1000):
                pool.alloc(1000, first).close()
                pool.alloc(1000, second).close()
            best = min(best, time.thread_time_ns() - began)
        return best

    last, first = pair_ns(*streams[-2:]), pair_ns(*streams[:2])
    for stream in streams:
        stream.close()
    assert last < 3 * first


def captured(stream: acl.Stream, pool: acl.Pool) -> None:
    """Capture one allocation on a stream, then destroy the graph."""
    graph = out()
    assert api.aclmdlRICaptureBegin(stream.handle, 2) == 0
    with pool.alloc(1000, stream) as buffer:
        assert api.aclrtMemsetAsync(buffer.address, 1000, 1, 1000, stream.handle) == 0
        assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
    pool.alloc(1000, stream).close()            # here the pool notices the end of the capture
    assert api.aclmdlRIDestroy(graph) == 0


def test_arenas_of_watched_captures_are_reused_when_their_graphs_end() -> None:
    with acl.Pool(0, watch_captures=True) as pool, acl.Stream() as stream:
        for _ in range(50):
            captured(stream, pool)
        assert len(pool.stats().streams) == 2
        assert pool.check() == 0


def test_a_graph_keeps_its_memory_while_a_capture_follows() -> None:
    with acl.Pool(0, watch_captures=True) as pool, acl.Stream() as stream:
        graph = out()
        assert api.aclmdlRICaptureBegin(stream.handle, 2) == 0
        buffer = pool.alloc(1000, stream)
        kept = buffer.address
        assert api.aclrtMemsetAsync(kept, 1000, 1, 1000, stream.handle) == 0
        assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        buffer.close()
        pool.alloc(1000, stream).close()
        second = out()
        assert api.aclmdlRICaptureBegin(stream.handle, 2) == 0
        with pool.alloc(1000, stream) as buffer:
            assert buffer.address != kept
            assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(second)) == 0
        assert api.aclmdlRIDestroy(graph) == 0 == api.aclmdlRIDestroy(second)
        pool.alloc(1000, stream).close()


def test_arenas_of_captures_on_streams_that_end_are_reused(pool: acl.Pool) -> None:
    for _ in range(50):
        with acl.Stream() as stream:
            with pool.capture(stream) as capture:
                pool.alloc(1000, stream).close()
            pool.release_capture(capture)
    assert [one.kind for one in pool.stats().streams] == ["stream", "capture"]
    assert pool.check() == 0


def test_streams_destroyed_while_busy_do_not_fill_the_pool(pool: acl.Pool) -> None:
    with acl.Buffer(16 * MIB) as scratch, acl.sim.races_muted():     # muted: all streams fill one buffer
        for _ in range(300):
            handle = out()
            assert api.aclrtCreateStream(ctypes.byref(handle)) == 0
            assert handle.value is not None
            pool.alloc(1000, acl.Stream.from_handle(handle.value)).close()
            assert api.aclrtMemsetAsync(scratch.address, 16 * MIB, 1, 16 * MIB, handle) == 0
            assert api.aclrtDestroyStream(handle) == 0      # the stream is busy; the runtime waits for its work
        assert len(pool.stats().streams) <= 80
        acl.Device(0).synchronize()


@pytest.mark.parametrize("named", [False, True])
def test_preallocated_pages_belong_to_the_first_stream(named: bool) -> None:
    with acl.Stream() as stream:
        pool = acl.Pool(0, preallocate="64MiB", stream=stream if named else None)
        pool.register(stream)
        acl.sim.reset_counters()
        pool.alloc("60MiB", stream).close()
        assert not {"aclrtMallocPhysical", "aclrtMapMem", "aclrtUnmapMem"} & set(acl.sim.counters())
        pool.unregister(stream)
        pool.close()


def test_task_failure_seen_by_a_trim_is_raised_by_the_stream(pool: acl.Pool) -> None:
    with acl.Stream() as stream, acl.Buffer(1000) as target:
        pool.alloc(8 * MIB, stream).close()
        acl.sim.fail_stream(stream.handle)
        assert api.aclrtMemsetAsync(target.address, 1000, 1, 1000, stream.handle) == 0
        wait_until(stream.query)
        pool.trim()
        with pytest.raises(acl.AclError, match="507015"):
            stream.synchronize()
        stream.synchronize()                    # no error: it was reported once


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "not done after a minute"
        time.sleep(0.001)


def test_cache_miss_queries_at_most_2_events_of_a_busy_stream(pool: acl.Pool) -> None:
    with acl.Stream() as own, acl.Stream() as other:
        with Slow(other):
            for _ in range(1000):
                with pool.alloc(600, own) as buffer:
                    buffer.record_stream(other)
            acl.sim.reset_counters()
            pool.alloc(3 * MIB, own).close()
            assert acl.sim.counters().get("aclrtQueryEventStatus", 0) <= 2
        assert pool.stats().streams[0].waiting > 0
        pool.trim()
        assert pool.stats().streams[0].waiting == 0


@pytest.mark.release_only      # a sanitizer makes mappings of its own
def test_200_destroyed_pools_leave_fewer_than_50_host_mappings_behind(pool: acl.Pool) -> None:
    """Arenas to which ACL has pointers are kept in one mapping, because a process has a limited number of mappings."""
    def turn() -> None:
        with acl.Stream() as stream:
            other = acl.Pool(0)
            other.register(stream)
            other.alloc(MIB, stream).close()
            other.unregister(stream)
            other.close()

    for _ in range(20):
        turn()
    before = mappings()
    for _ in range(200):
        turn()
    assert mappings() - before < 50


if os.environ.get("ACLPOOL_LONG") == "1":       # the tests above, with many more captures and streams

    @pytest.mark.long
    @pytest.mark.release_only       # because a sanitizer's own memory grows
    @pytest.mark.parametrize("watched", [False, True])
    def test_memory_does_not_grow_over_100000_captures(watched: bool) -> None:
        with acl.Pool(0, watch_captures=watched) as pool, acl.Stream() as stream:
            def turns(count: int) -> None:
                for _ in range(count):
                    if watched:
                        captured(stream, pool)
                    else:
                        with pool.capture(stream) as capture:
                            captured(stream, pool)
                        pool.release_capture(capture)

            turns(1000)
            before = resident_bytes()
            turns(99_000)
            assert len(pool.stats().streams) == 2
            assert pool.check() == 0
            assert resident_bytes() - before < 4 * MIB

    @pytest.mark.long
    @pytest.mark.release_only       # because a sanitizer's own memory grows
    def test_memory_does_not_grow_over_100000_streams_dropped_while_busy(pool: acl.Pool) -> None:
        with acl.Buffer(4 * MIB) as scratch, acl.sim.races_muted():
            def turns(count: int) -> None:
                for number in range(count):
                    stream = acl.Stream()
                    pool.alloc(1000 + number % 7 * MIB, stream).close()
                    assert api.aclrtMemsetAsync(scratch.address, 4 * MIB, 1, 4 * MIB, stream.handle) == 0
                    del stream                          # its fill is still running

            turns(2000)
            before = resident_bytes()
            turns(98_000)
            acl.Device(0).synchronize()
            assert len(pool.stats().streams) <= 80
            assert pool.check() == 0
            assert resident_bytes() - before < 8 * MIB
