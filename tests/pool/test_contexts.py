"""Pools and contexts: each context has its own default stream, and a device can have several contexts.

In these tests, a default stream waits for a notify, so that it is certainly not idle.
"""

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from support.calls import api
from support.core import MIB, Door, Slow, physical, physical_base  # noqa: F401

import acl
from acl.pool._findings import reports

pytestmark = pytest.mark.usefixtures("no_leaks")

Elsewhere = Callable[[], AbstractContextManager[None]]
EIGHT = 8 * MIB - 64             # bytes; with the padding, four pages


@contextmanager
def default_stream_at_work() -> Iterator[Callable[[], None]]:
    """Hold the current context's default stream until the yielded function is called, or to the end of the block."""
    here = acl.Context.current()
    assert here is not None
    signal, notify, held = acl.Stream(), ctypes.c_void_p(), [True]
    assert api.aclrtCreateNotify(ctypes.byref(notify), 0) == 0
    assert api.aclrtWaitAndResetNotify(notify, None, 0) == 0

    def go_on() -> None:
        if held:
            held.clear()
            here.use()
            assert api.aclrtRecordNotify(notify, signal.handle) == 0

    try:
        yield go_on
    finally:
        here.use()
        go_on()
        acl.Stream.default().synchronize()
        signal.close()
        assert api.aclrtDestroyNotify(notify) == 0


@contextmanager
def another_device() -> Iterator[None]:
    with acl.Device(0):
        yield


@contextmanager
def another_context() -> Iterator[None]:
    with acl.Device(1), acl.Context(1) as context:
        yield
        acl.Device(1).use()
    context.close()


@pytest.fixture(params=[another_device, another_context])
def elsewhere(request: pytest.FixtureRequest) -> Elsewhere:
    made: Elsewhere = request.param
    return made


def test_trim_in_another_context_takes_no_page_that_the_default_stream_uses(elsewhere: Elsewhere) -> None:
    acl.Device(1).use()
    with acl.Pool(1, sync_timeout_ms=50) as pool:
        with default_stream_at_work():
            pool.alloc(EIGHT).close()
            with elsewhere():
                assert pool.trim(idle=True) == 0
                assert pool.trim() == 0
            assert pool.stats().reserved == 8 * MIB
        with elsewhere():
            assert pool.trim() == 8 * MIB


def test_unload_in_another_context_waits_for_the_device_of_the_pool(elsewhere: Elsewhere) -> None:
    acl.Device(1).use()
    with acl.Pool(1, sync_timeout_ms=50) as pool:
        with default_stream_at_work():
            buffer = pool.alloc(EIGHT)
            with elsewhere():
                pool.unload_begin()
                buffer.close()
                assert not pool.unload_end()
            assert pool.stats().streams[0].waiting == 8 * MIB
        with elsewhere():
            pool.unload_begin()
            assert pool.unload_end()
        assert pool.stats().streams[0].waiting == 0


def test_guard_fills_freed_blocks_in_the_order_of_the_default_stream(elsewhere: Elsewhere) -> None:
    """A buffer is closed while another context is current and queued work of its own stream still reads it."""
    acl.Device(1).use()
    with acl.Pool(1, debug=True, sync_timeout_ms=50) as pool, acl.HostBuffer(4096) as host:
        buffer = pool.alloc(4096)
        acl.fill(buffer, 3)
        address, size = ctypes.c_void_p(buffer.address), ctypes.c_size_t(4096)
        with default_stream_at_work():
            assert api.aclrtMemcpyAsync(ctypes.c_void_p(host.address), size, address, size, 2, None) == 0
            with elsewhere():
                buffer.close()
        assert bytes(host) == b"\3" * 4096


def test_blocks_in_quarantine_are_checked_in_the_context_of_their_stream(elsewhere: Elsewhere) -> None:
    home = acl.Context(1)
    home.use()
    before = reports()["use after free"]
    pool = acl.Pool(1, debug="sample:2")
    first, second = pool.alloc(4096), pool.alloc(4096)
    address = ctypes.c_void_p(second.address)
    second.close()
    with default_stream_at_work() as go_on:
        assert api.aclrtMemsetAsync(address, ctypes.c_size_t(4096), 7, ctypes.c_size_t(64), None) == 0
        timer = threading.Timer(0.2, go_on)
        timer.start()
        with elsewhere():
            first.close()
            pool.close()
        timer.join()
    acl.Device(1).use()
    home.close()
    assert reports()["use after free"] == before + 1


def test_the_headroom_is_that_of_the_pool_s_device() -> None:
    acl.Device(1).use()
    with acl.Stream(1) as stream, acl.Pool(1, headroom="16GiB") as pool, acl.Pool(0) as other, other.alloc("24GiB"):
        acl.Device(0).use()
        with pool.alloc(EIGHT, stream):
            assert pool.stats().reserved == 8 * MIB


def test_trim_does_not_wait_for_a_destroyed_context() -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool:
        with acl.Context(0):
            pool.alloc(EIGHT).close()
        acl.Device(0).use()
        gc.collect()
        assert pool.trim() == 8 * MIB


def test_default_stream_of_another_device_is_refused_without_leaving_an_arena() -> None:
    acl.Device(1).use()
    with acl.Pool(1) as pool, acl.Device(0):
        with pytest.raises(ValueError, match="the pool is for device 1, the current device is 0"):
            pool.alloc(512)
        with pytest.raises(ValueError, match="the pool is for device 1"):
            pool.tag_stream(None, "model")
        assert pool.stats().streams == ()


def test_pool_dropped_in_a_thread_without_a_context_returns_all_memory() -> None:
    acl.Device(0).use()
    pools = [acl.Pool(0)]
    pools[0].alloc(EIGHT).close()
    assert physical() == 8 * MIB
    thread = threading.Thread(target=pools.clear)
    thread.start()
    thread.join()
    assert physical() == 0


def test_pool_dropped_with_a_pending_free_returns_all_memory() -> None:
    acl.Device(0).use()
    pool = acl.Pool(0)
    with acl.Stream(0) as one, acl.Stream(0) as two:
        buffer = pool.alloc(EIGHT, one)
        pool.record_stream(buffer, two)
        del buffer
        assert pool.stats().streams[0].waiting == 8 * MIB
        del pool
        assert physical() == 0


@pytest.mark.parametrize("dropped", [False, True])
def test_a_pool_is_not_kept_for_a_stream_that_ended(dropped: bool) -> None:
    acl.Device(0).use()
    pool, stream = acl.Pool(0), acl.Stream(0)
    pool.register(stream)
    handle = stream.handle
    pool.alloc(EIGHT, stream).close()
    if not dropped:
        stream.close()
    del stream
    assert acl.allocator_of(handle) is None
    del pool
    assert physical() == 0


def test_closed_pool_is_not_found_for_a_stream_that_foreign_code_destroyed() -> None:
    from acl.pool._registry import registered

    acl.Device(0).use()
    raw = ctypes.c_void_p()
    assert api.aclrtCreateStream(ctypes.byref(raw)) == 0
    with acl.Pool(0) as pool:
        pool.register(raw.value or 0)
        assert api.aclrtDestroyStream(raw) == 0
        assert pool.streams == ()
    assert raw.value not in registered


def elsewhere_closed(buffer: acl.Buffer, device: int | None) -> None:
    """Close a buffer in a thread without a context, or with one of `device`: a finalizer may run in such a thread."""

    def close() -> None:
        if device is not None:
            acl.Device(device).use()
        buffer.close()

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()


@pytest.mark.parametrize("device", [None, 1])
def test_thread_that_frees_a_buffer_needs_no_context_of_its_streams(device: int | None) -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool, acl.Stream(0) as stream, acl.Stream(0) as second:
        for _ in range(8):
            buffer = pool.alloc(EIGHT, stream)
            with Slow(second):
                buffer.record_stream(second)
                elsewhere_closed(buffer, device)
                assert pool.stats().streams[0].waiting == 8 * MIB
                pool.alloc(64 * MIB, stream).close()            # slow: it polls the pending frees
                assert pool.stats().streams[0].waiting == 8 * MIB
            pool.trim()
            assert pool.stats().streams[0].waiting == 0
        assert not any(pool.stats().driver_failures.values())


@pytest.mark.parametrize("device", [None, 1])
def test_default_stream_is_waited_for_in_the_context_in_which_it_was_named(device: int | None) -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool, acl.Stream(0) as stream:
        buffer = pool.alloc(EIGHT, stream)
        buffer.record_stream(acl.Stream.default())
        with default_stream_at_work():
            elsewhere_closed(buffer, device)
            pool.alloc(64 * MIB, stream).close()
            assert pool.stats().streams[0].waiting == 8 * MIB


def test_unload_end_also_waits_for_a_stream_use_in_another_context() -> None:
    acl.Device(0).use()
    pool, stream = acl.Pool(0, sync_timeout_ms=50), acl.Stream(0)
    buffers = [pool.alloc(EIGHT, stream) for _ in range(2)]
    with acl.Context(0) as context:
        foreign, gate = acl.Stream(), threading.Event()
        for buffer in buffers:
            buffer.record_stream(foreign)
        foreign.launch(gate.wait)
        buffers[0].close()
        acl.Device(0).use()
        pool.unload_begin()
        assert not pool.unload_end()                            # it waits for the streams of that context too
        assert pool.stats().streams[0].waiting == 8 * MIB
        gate.set()
        context.use()
        foreign.close()
    acl.Device(0).use()
    buffers[1].close()
    pool.trim()
    assert pool.stats().reserved == 0
    pool.close()
    stream.close()


def test_a_thread_without_a_context_takes_pages_of_another_stream() -> None:
    acl.Device(0).use()
    with acl.Pool(0, 16 * MIB) as pool, acl.Stream(0) as stream, acl.Stream(0) as second:
        pool.register(second)
        door = Door(second)
        pool.alloc(12 * MIB, stream).close()
        blocks: list[int] = []
        thread = threading.Thread(target=lambda: blocks.append(door.alloc(12 * MIB)))
        thread.start()
        thread.join()
        assert blocks[0] != 0
        door.free(blocks[0])
