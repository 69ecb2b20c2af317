"""Which streams a wait covers: streams of other contexts, with reused handles, of captures; and the common deadline.

Each test keeps a stream busy, frees memory that its queued work still uses, and checks that it is not used again.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from support.calls import api
from support.child import run_python
from support.core import MIB, Slow, blocks_at, physical_base  # noqa: F401

import acl

pytestmark = pytest.mark.usefixtures("no_leaks")

SIZE = 8 * MIB - 64             # bytes; with the padding, four pages

OLD_HANDLE = """
import acl
from support.core import MIB, Slow
pool = acl.Pool(0, sync_timeout_ms=50)
first = acl.Stream()
handle = first.handle
buffer = pool.alloc(8 * MIB - 64, first)
first.close()
second = acl.Stream()
assert second.handle == handle, "the simulator gives handles again in this mode"
pool.record_stream(buffer, second)
with Slow(second):
    buffer.close()
    print(pool.trim())
second.synchronize()
print(pool.trim())
"""


def fill(address: int, value: int, stream: acl.Stream | None) -> None:
    """Queue a fill on a stream; None means the default stream."""
    handle = None if stream is None else stream.handle
    assert api.aclrtMemsetAsync(
        ctypes.c_void_p(address), ctypes.c_size_t(SIZE), value, ctypes.c_size_t(SIZE), handle) == 0


@contextmanager
def at_work(stream: acl.Stream | None) -> Iterator[None]:
    """Keep a stream of the current context (None: its default stream) busy inside the `with` block.

    Then make that context current again.
    """
    here = acl.Context.current()
    assert here is not None
    notify, signal = ctypes.c_void_p(), acl.Stream()
    handle = None if stream is None else stream.handle
    assert api.aclrtCreateNotify(ctypes.byref(notify), 0) == 0
    assert api.aclrtWaitAndResetNotify(notify, handle, 0) == 0
    try:
        yield
    finally:
        here.use()
        assert api.aclrtRecordNotify(notify, signal.handle) == 0
        (acl.Stream.default() if stream is None else stream).synchronize()
        signal.close()
        assert api.aclrtDestroyNotify(notify) == 0


@contextmanager
def away() -> Iterator[tuple[acl.Context, Callable[[], None]]]:
    """Make another context of device 0 current. Yield it, and a function that makes the first context current again."""
    acl.Device(0).use()
    home = acl.Context.current()
    assert home is not None
    context = acl.Context(0)
    context.use()
    try:
        yield context, home.use
    finally:
        home.use()
        context.close()


def test_stream_with_the_handle_of_a_destroyed_stream_is_a_different_stream() -> None:
    child = run_python(OLD_HANDLE, ACL_SIM_REUSE_HANDLES="1")
    assert (child.stdout.split(), child.stderr) == (["0", str(8 * MIB)], "")


def test_default_streams_of_two_contexts_are_different_streams() -> None:
    acl.Device(0).use()
    with acl.Pool(0, sync_timeout_ms=50) as pool:
        buffer = pool.alloc(SIZE)
        with away() as (_, back):
            with at_work(None):
                fill(buffer.address, 0x55, None)
                pool.record_stream(buffer, None)
                back()
                address = buffer.address
                buffer.close()
                again = pool.alloc(SIZE)
                assert again.address != address
                assert pool.trim() == 0
            back()
            assert pool.trim() == 8 * MIB
            again.close()


def test_each_context_has_a_default_stream_with_memory_of_its_own() -> None:
    """An arena exists longer than its context.

    Memory is ordered by the default stream of the context that was current.
    """
    with acl.Pool(0, sync_timeout_ms=50) as pool:
        with away():
            pool.alloc(SIZE).close()
        buffer = pool.alloc(SIZE)
        with at_work(None):
            fill(buffer.address, 0x55, None)
            buffer.close()
            assert pool.trim() == 8 * MIB                   # the memory of the context that was destroyed
            assert pool.trim() == 0                         # if it unmapped the pages in use, the stream would fail
        assert pool.trim() == 8 * MIB


@pytest.mark.parametrize("how", ["unload", "sleep", "no event"])
def test_stream_use_in_another_context_is_waited_for(sim: ModuleType, how: str) -> None:
    acl.Device(0).use()
    with acl.Pool(0, sync_timeout_ms=50, limit=8 * MIB) as pool, acl.Stream(0) as own:
        buffer = pool.alloc(SIZE, own)
        with away() as (_, back):
            other = acl.Stream()
            pool.record_stream(buffer, other)
            with at_work(other):
                fill(buffer.address, 0x55, other)
                back()
                if how == "sleep":
                    with pytest.raises(acl.TimeoutError):
                        pool.sleep()
                elif how == "unload":
                    with pool.unloading():
                        buffer.close()
                else:
                    with sim.fault("aclrtRecordEvent", nth=1):
                        buffer.close()
                with pytest.raises(acl.OutOfMemoryError):
                    pool.alloc(SIZE, own)
                assert pool.trim() == 0
            other.close()
            back()
        buffer.close()
        assert pool.trim() == 8 * MIB


def test_an_unload_waits_in_the_context_of_the_stream() -> None:
    """The thread that creates the arena has a current context that is not the one of the arena's stream."""
    acl.Device(0).use()
    with acl.Pool(0, sync_timeout_ms=50) as pool, away() as (context, back):
        own, models = acl.Stream(), acl.Stream()
        back()
        buffer = pool.alloc(SIZE, own)
        address = buffer.address
        context.use()
        with at_work(models):
            fill(address, 0x55, models)
            back()
            with pool.unloading():
                buffer.close()
            with pool.alloc(SIZE, own) as again:
                assert again.address != address
        models.close()
        own.close()
        back()
        pool.trim()
        assert pool.stats().reserved == 0


def test_pinned_memory_without_an_event_waits_for_the_stream_of_another_device(sim: ModuleType) -> None:
    acl.Device(1).use()
    with acl.PinnedPool(limit="2MiB") as pool, acl.Stream(1) as stream, acl.Buffer(MIB, stream=stream) as target:
        host = pool.alloc(MIB)
        with Slow(stream):
            acl.copy_async(target, host, stream)
            with sim.fault("aclrtCreateEventExWithFlag", nth=1):
                host.close()
            acl.Device(0).use()
            assert pool.stats().waiting == MIB
            pool.trim()
            assert pool.stats().waiting == MIB
            acl.Device(1).use()
        pool.trim()
        assert pool.stats().waiting == 0
        acl.Device(0).use()


def test_buffers_are_reused_although_acl_frees_early() -> None:
    """The program frees buffers after it has queued their work, although ACL frees its own blocks early."""
    with acl.Pool(0, limit="64MiB", early_frees=True) as pool, acl.Stream() as own, acl.Stream() as other:
        for _ in range(20):
            buffer = pool.alloc(SIZE, own)
            buffer.record_stream(other)
            buffer.close()
            own.synchronize()
            other.synchronize()
        assert pool.trim(drained=True) == pool.stats().reserved_peak


@contextmanager
def capturing(stream: acl.Stream) -> Iterator[None]:
    graph = ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.handle)
    assert api.aclmdlRICaptureBegin(handle, 2) == 0
    try:
        yield
    finally:
        assert api.aclmdlRICaptureEnd(handle, ctypes.byref(graph)) == 0
        assert api.aclmdlRIDestroy(graph) == 0


def test_a_use_on_a_captured_stream_leaves_nothing_in_the_capture() -> None:
    with acl.Pool(0) as pool, acl.Stream() as own, acl.Stream() as other:
        buffer = pool.alloc(SIZE, own)
        buffer.record_stream(other)
        with capturing(other):
            buffer.close()
            assert len(blocks_at(pool, own, "waiting")) == 1
        assert pool.trim() == 8 * MIB


def test_captured_stream_is_neither_queried_nor_synchronised() -> None:
    with acl.Pool(0, limit="12MiB", sync_timeout_ms=50) as pool, acl.Stream() as own, acl.Stream() as other:
        pool.alloc(SIZE, other).close()
        with capturing(other):
            with pytest.raises(acl.OutOfMemoryError):
                pool.alloc(SIZE, own)                       # a slow allocation on another stream
            assert pool.trim() == pool.trim(idle=True) == pool.decay_tick() == 0
            assert not any(pool.stats().driver_failures[name] for name in (
                "aclrtStreamQuery", "aclrtSynchronizeStream"))
        with pool.alloc(SIZE, own):
            pass


def test_captured_stream_takes_no_pages_of_other_streams() -> None:
    """To take pages, the pool must query another stream or wait for it, which a capture forbids."""
    with acl.Pool(0, limit="12MiB", sync_timeout_ms=50) as pool, acl.Stream() as own, acl.Stream() as other:
        pool.alloc(SIZE, other).close()
        before = pool.stats().driver_calls
        with capturing(own), pytest.raises(acl.OutOfMemoryError):
            pool.alloc(SIZE, own)
        after = pool.stats().driver_calls
        for name in "aclrtStreamQuery", "aclrtSynchronizeStream", "aclrtUnmapMem":
            assert after[name] == before[name], name


def test_new_stream_keeps_its_registration_if_an_old_stream_with_its_handle_closes() -> None:
    """ACL informs the pool of a stream's end before the handle can be used again."""
    with acl.Pool(0) as pool:
        old, made = acl.Stream(), []
        pool.register(old)
        handle = old.handle

        def another_thread(_: int) -> None:
            for _attempt in range(5000):
                stream = acl.Stream()
                if stream.handle == handle:
                    pool.register(stream)
                    made.append(stream)
                    return
                stream.close()

        old.on_close(another_thread)
        old.close()
        assert pool.serves(made[0])
        assert acl.allocator_of(made[0]) is not None
        made[0].close()


def test_one_allocation_has_one_deadline_for_all_its_waits() -> None:
    with acl.Pool(0, limit="80MiB", sync_timeout_ms=100) as pool, acl.Stream() as own:
        streams = [acl.Stream() for _ in range(8)]
        held = []
        for stream in streams:
            buffer = pool.alloc(SIZE, stream)
            held.append(Slow(stream))
            held[-1].__enter__()
            buffer.close()
        before = pool.stats().driver_failures["aclrtSynchronizeStream"]
        with pytest.raises(acl.OutOfMemoryError):
            pool.alloc(40 * MIB, own)
        # The first wait uses up the time, except perhaps for a millisecond; then a second wait expires too.
        assert 1 <= pool.stats().driver_failures["aclrtSynchronizeStream"] - before <= 2
        for one in held:
            one.__exit__()
        for stream in streams:
            stream.close()


def test_runtime_is_not_called_with_the_handle_of_a_stream_that_ends() -> None:
    with acl.Pool(0) as pool:
        stop = threading.Event()

        def service() -> None:
            acl.Device(0).use()
            while not stop.is_set():
                with acl.Stream() as stream:
                    pool.alloc(3 * MIB, stream).close()

        threads = [threading.Thread(target=service) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(300):
            pool.trim(idle=True)
            pool.trim()
        stop.set()
        for thread in threads:
            thread.join()
        assert not any(pool.stats().driver_failures.values())
        assert pool.check() == 0
