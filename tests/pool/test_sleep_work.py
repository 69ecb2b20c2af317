"""Sleep and wake while work runs: blocks that are freed during it, waits that time out, wakes that fail, graphs."""

import ctypes
import threading
import time

import pytest
from support.calls import api, out
from support.core import MIB, Slow, physical_base  # noqa: F401

import acl

pytestmark = pytest.mark.usefixtures("no_leaks")

SIZE = 8 * MIB - 64             # bytes; with the padding, four pages
KIB = 1 << 10


class Sleeping:
    """A sleep in another thread, which has begun its sleep batch and waits for a busy stream."""

    def __init__(self, pool: acl.Pool, tags: str | None = None) -> None:
        self.error: acl.AclError | None = None
        self._thread = threading.Thread(target=self._run, args=(pool, tags))
        self._thread.start()
        limit = time.monotonic() + 300
        while pool.stats().asleep == 0 and self._thread.is_alive():
            assert time.monotonic() < limit, "the sleep has taken no block in hand"
            time.sleep(0.001)

    def _run(self, pool: acl.Pool, tags: str | None) -> None:
        acl.Device(0).use()
        try:
            pool.sleep(tags)
        except acl.AclError as error:
            self.error = error

    def end(self) -> None:
        self._thread.join()


def fill(address: int, size: int, stream: acl.Stream) -> None:
    assert api.aclrtMemsetAsync(
        ctypes.c_void_p(address), ctypes.c_size_t(size), 7, ctypes.c_size_t(size), stream.handle) == 0


def test_block_freed_during_a_sleep_that_times_out_still_waits_for_its_other_stream() -> None:
    with acl.Pool(0, sync_timeout_ms=500) as pool, acl.Stream() as own, acl.Stream() as other:
        buffer = pool.alloc(SIZE, own)
        pool.record_stream(buffer, other)
        address = buffer.address
        with Slow(other):
            fill(address, SIZE, other)
            sleep = Sleeping(pool)
            buffer.close()
            sleep.end()
            assert isinstance(sleep.error, acl.TimeoutError)
            assert "aclrtSynchronize" in str(sleep.error)
            with pool.alloc(SIZE, own) as again:
                assert again.address != address
        pool.trim()
        assert pool.stats().reserved == 0
        assert pool.check() == 0


def test_new_blocks_get_no_part_of_a_page_that_is_being_put_to_sleep() -> None:
    """If a new block got a part of that page, the page would be unmapped under the work queued on the block."""
    with acl.Pool(0) as pool, acl.Stream() as own, acl.Stream() as other:
        small = pool.alloc(600 * KIB, own, tag="sleeps")
        with Slow(other):
            sleep = Sleeping(pool, "sleeps")
            late = pool.alloc(700 * KIB, own)
            assert late.address // (2 * MIB) != small.address // (2 * MIB)
            with Slow(own):
                fill(late.address, 700 * KIB, own)
                late.close()
        sleep.end()
        assert sleep.error is None
        own.synchronize()
        pool.wake()
        with pool.alloc(700 * KIB, own) as again:
            assert again.address // (2 * MIB) == small.address // (2 * MIB)
        small.close()
        assert pool.check() == 0


def test_failed_wake_unmaps_no_page_that_was_mapped_before() -> None:
    with acl.Pool(0, limit="26MiB") as pool, acl.Stream() as stream:
        small = pool.alloc(300 * KIB, stream, tag="sleeps")
        neighbour = pool.alloc(300 * KIB, stream)
        large = pool.alloc(20 * MIB, stream, tag="sleeps")
        pool.sleep("sleeps")                                # the page stays mapped: the neighbour in it is awake
        with pool.alloc(20 * MIB, stream), Slow(stream):
            fill(neighbour.address, 300 * KIB, stream)
            neighbour.close()                               # now, while its last use is queued but has not run
            with pytest.raises(acl.OutOfMemoryError):
                pool.wake("sleeps")
        stream.synchronize()                                # raises if the page was unmapped
        pool.trim()
        pool.wake("sleeps")
        small.close()
        large.close()
        assert pool.check() == 0


@pytest.mark.parametrize("asleep", [False, True])
def test_a_graphs_block_that_is_freed_keeps_its_memory(asleep: bool) -> None:
    with acl.Pool(0) as pool, acl.Stream() as stream:
        graph, handle = ctypes.c_void_p(), ctypes.c_void_p(stream.handle)
        with pool.capture(stream) as capture:
            assert api.aclmdlRICaptureBegin(handle, 2) == 0
            buffer = pool.alloc(SIZE, stream)
            fill(buffer.address, SIZE, stream)
            assert api.aclmdlRICaptureEnd(handle, ctypes.byref(graph)) == 0
        if asleep:
            pool.sleep()
            assert capture.reserved == 0
        buffer.close()
        if asleep:
            assert pool.check() == 0
            pool.wake()
        assert capture.reserved == 8 * MIB
        assert api.aclmdlRIExecuteAsync(graph, handle) == 0
        stream.synchronize()
        assert api.aclmdlRIDestroy(graph) == 0
        capture.release()
        assert pool.check() == 0
        pool.trim()
        assert pool.stats().reserved == 0


def test_block_freed_asleep_is_released_when_its_capture_is_released() -> None:
    with acl.Pool(0) as pool, acl.Stream() as stream:
        with pool.capture(stream) as capture:
            buffer = pool.alloc(SIZE, stream)
        pool.sleep()
        buffer.close()
        capture.release()
        assert pool.check() == 0
        assert pool.stats().reserved == 0
        with pool.capture(stream) as again, pool.alloc(SIZE, stream):
            assert again.reserved == 8 * MIB
        again.release()


def test_graph_that_uses_a_page_at_two_addresses_can_run_after_sleep_and_wake() -> None:
    """The next run of the graph needs both addresses, but a wake would map memory at one of them only."""
    with acl.Pool(0, limit="8MiB") as pool, acl.Stream() as stream:
        graph = out()
        with pool.capture(stream) as capture:
            assert api.aclmdlRICaptureBegin(stream.handle, 2) == 0
            with pool.alloc(5 * MIB, stream, tag="large") as large:
                assert api.aclrtMemsetAsync(large.address, 5 * MIB, 1, 5 * MIB, stream.handle) == 0
            small = pool.alloc(3 * KIB, stream, tag="small")      # in a page of `large`, mapped at another address
            assert api.aclrtMemsetAsync(small.address, 3 * KIB, 2, 3 * KIB, stream.handle) == 0
            assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        assert pool.stats().reserved == 6 * MIB
        pool.sleep("small")
        pool.wake("small")
        assert pool.check() == 0
        assert api.aclmdlRIExecuteAsync(graph, stream.handle) == 0
        stream.synchronize()
        small.close()
        assert api.aclmdlRIDestroy(graph) == 0
        pool.release_capture(capture)
