"""Order on the simulator: no two blocks use one piece of memory at a time, while work is queued.

A Python function that waits stops the streams.  So all copies and fills of a test are still queued while blocks are
freed, used again, shared, or moved.
"""

import ctypes
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

import acl
import acl.sim
from acl.tools.bench import _peers

MIB = 1 << 20


@contextmanager
def held(stream: acl.Stream) -> Iterator[threading.Event]:
    """Stop the work of a stream until the yielded event is set, or to the end of the `with` block."""
    gate = threading.Event()
    stream.launch(gate.wait)
    try:
        yield gate
    finally:
        gate.set()
        stream.synchronize()


def fill_async(buffer: acl.Buffer, value: int, stream: acl.Stream) -> None:
    assert acl.rt.memset_async(buffer.address, buffer.size, value, buffer.size, stream.handle) == 0


def read_async(host: acl.HostBuffer, buffer: acl.Buffer, stream: acl.Stream) -> None:
    assert acl.rt.memcpy_async(host.address, host.size, buffer.address, host.size, 2, stream.handle) == 0


@pytest.mark.parametrize("seed", range(3))
def test_every_live_block_keeps_its_pattern(sim: ModuleType, seed: int) -> None:
    """Fills and reads are queued on two stopped streams; blocks are freed before they run.

    Pages move between arenas.
    """
    print("seed", seed)
    choose = random.Random(seed)
    acl.Device(0).use()
    with acl.Pool(0, "48MiB", sync_timeout_ms=60_000) as pool, acl.Stream(0) as one, acl.Stream(0) as two:
        for _ in range(6):
            expected: list[tuple[acl.HostBuffer, int]] = []
            gates = [threading.Event() for _ in (one, two)]
            for stream, gate in zip((one, two), gates, strict=True):
                stream.launch(gate.wait, 0.2)
            for _ in range(40):
                stream = choose.choice((one, two))
                value = choose.randrange(256)
                buffer = pool.alloc(choose.choice((700, 5000, 300_000, 2 * MIB, 5 * MIB, 9 * MIB)), stream)
                fill_async(buffer, value, stream)
                host = acl.HostBuffer(min(buffer.size, 4096))
                read_async(host, buffer, stream)
                expected.append((host, value))
                buffer.close()                                  # its work is still queued
            for gate in gates:
                gate.set()
            one.synchronize()
            two.synchronize()
            for host, value in expected:
                assert set(bytes(host)) == {value}
            assert pool.check() == 0


def test_block_used_on_a_stream_that_was_not_recorded_is_overwritten(sim: ModuleType) -> None:
    """Break the rule on purpose: use a block on a second stream without telling the pool."""
    acl.Device(0).use()
    results = []
    for told in (False, True):
        with acl.Pool(0) as pool, acl.Stream(0) as one, acl.Stream(0) as two, acl.HostBuffer(4096) as host:
            with held(two):
                buffer = pool.alloc(1 * MIB, one)
                fill_async(buffer, 1, one)
                one.synchronize()
                if told:
                    pool.record_stream(buffer, two)
                read_async(host, buffer, two)                   # the copy stays queued, because the stream is stopped
                buffer.close()
                again = pool.alloc(1 * MIB, one)
                fill_async(again, 2, one)
                one.synchronize()
            results.append(set(bytes(host)))
            again.close()
    assert results == [{2}, {1}]


def test_pages_used_by_queued_work_are_not_moved(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, "40MiB", sync_timeout_ms=100) as pool, acl.Stream(0) as one, acl.Stream(0) as two:
        with acl.HostBuffer(4096) as host, held(one):
            buffer = pool.alloc(30 * MIB, one)
            fill_async(buffer, 5, one)
            read_async(host, buffer, one)
            buffer.close()
            with pytest.raises(acl.OutOfMemoryError, match="other streams of the pool hold memory"):
                pool.alloc(30 * MIB, two)                       # stream one does not become idle
        with pool.alloc(30 * MIB, two):
            assert pool.stats().streams[0].donated >= 10


@pytest.mark.parametrize("timeout_ms", [25_000, -1])
def test_allocation_by_a_caller_that_holds_the_gil_does_not_deadlock(sim: ModuleType, timeout_ms: int) -> None:
    """CANN's own module can cause this: the caller holds the GIL, and the stream needs it for a Python callback."""
    acl.Device(0).use()
    with acl.Pool(0, "40MiB", sync_timeout_ms=timeout_ms, views=False) as pool, acl.Stream(0) as stream:
        pool.register(stream)
        found = acl.allocator_of(stream)
        assert found is not None
        first, keep, last = (pool.alloc(size * MIB, stream) for size in (19, 1, 15))
        first.close()
        last.close()
        alloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(found.alloc)
        free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(found.free)
        started, allocated = threading.Event(), threading.Event()
        ran = []

        def callback() -> None:
            started.set()
            ran.append(allocated.wait(30))

        stream.launch(callback)
        assert started.wait(60)                                 # the Python callback now needs the GIL to return
        waits = sim.counters().get("aclrtSynchronizeStreamWithTimeout", 0)
        block = alloc(found.object, 30 * MIB)                   # must move pages, so it waits for the stream
        assert not block and sim.counters()["aclrtSynchronizeStreamWithTimeout"] == waits + 1
        allocated.set()
        stream.synchronize()
        assert ran == [True]
        block = alloc(found.object, 30 * MIB)
        assert block
        free(found.object, block)
        keep.close()
        assert pool.check() == 0


def test_captured_work_gets_memory_of_its_own(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, watch_captures=True) as pool, acl.Stream(0) as stream:
        pool.alloc(5000, stream).close()
        assert acl.mdl.ri_capture_begin(stream.handle, 2) == 0
        inside = pool.alloc(5000, stream)
        fill_async(inside, 3, stream)
        graph, ret = acl.mdl.ri_capture_end(stream.handle)
        assert ret == 0
        outside = pool.alloc(5000, stream)
        assert outside.address != inside.address
        assert len(pool.stats().streams) == 2
        for buffer in (inside, outside):
            buffer.close()
        assert acl.mdl.ri_destroy(graph) == 0


def test_blocks_freed_during_an_unload_are_reused_only_after_a_device_wait(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool, acl.Stream(0) as stream:
        buffer = pool.alloc(3 * MIB, stream)
        address = buffer.address
        with pool.unloading():
            buffer.close()
            with pool.alloc(3 * MIB, stream) as other:
                assert other.address != address
        assert pool.stats().streams[0].waiting == 0
        with pool.alloc(3 * MIB, stream):
            pass
        assert pool.check() == 0


def test_blocks_of_acl_callbacks_and_of_python_come_from_one_arena(sim: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        pool.register(stream)
        subject = _peers.registered("pool", stream.handle, pool)
        block = subject.take(5000)
        address = subject.address_of(block)
        subject.give(block)
        buffer = pool.alloc(4950, stream)               # with its padding, the same size
        assert buffer.address == address
        buffer.close()
