"""Pinned host memory from a pool, and NumPy arrays in such memory."""

import asyncio
import gc
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from support.child import run_python
from support.core import Slow

import acl
from acl.pool._nep49 import HANDLER_NAME

try:
    from numpy._core.multiarray import get_handler_name
except ImportError:
    from numpy.core.multiarray import get_handler_name


@pytest.fixture
def pinned(no_leaks: None) -> Iterator[acl.PinnedPool]:
    with acl.PinnedPool() as made:
        yield made
        gc.collect()
        assert made.check() == 0
    del made
    gc.collect()


def is_ours(array: Any) -> bool:
    while array.base is not None:
        array = array.base
    return get_handler_name(array) == HANDLER_NAME


@pytest.fixture
def gate(stream: acl.Stream) -> Iterator[threading.Event]:
    """Yield an event for which functions on the stream wait.  It is set at the end, even if the test fails."""
    made = threading.Event()
    yield made
    made.set()


# ---- the pool -----------------------------------------------------------------------------------

def test_closed_pinned_buffer_is_reused_at_its_address(pinned: acl.PinnedPool) -> None:
    first = pinned.alloc(100_000)
    address = first.address
    first.close()
    with pinned.alloc(100_000) as second:
        assert second.address == address
    assert (pinned.stats().pinned, pinned.stats().hits) == (1, 1)


@pytest.mark.parametrize("size", [1, 513, 65_537, 1_048_577, 5_000_000, 33_554_433])
def test_pinned_sizes_are_not_rounded_to_powers_of_two(pinned: acl.PinnedPool, size: int) -> None:
    buffers = [pinned.alloc(size) for _ in range(4)]
    stats = pinned.stats()
    assert stats.requested == 4 * size
    assert stats.allocated - stats.requested < 4 * 512
    assert stats.reserved <= stats.allocated + (2 << 20)
    for buffer in buffers:
        buffer.close()
    assert pinned.stats().allocated == 0


def test_pinned_buffer_can_be_written_and_copied_to_the_device_and_back(
    pinned: acl.PinnedPool, stream: acl.Stream
) -> None:
    with pinned.alloc(64) as source, pinned.alloc(64) as back, acl.Buffer(64) as device:
        memoryview(source)[:] = bytes(range(64))
        acl.copy_async(device, source, stream)
        acl.copy_async(back, device, stream)
        stream.synchronize()
        assert bytes(back) == bytes(range(64))


def test_dropping_a_pinned_buffer_does_not_wait_for_its_copy(
    pinned: acl.PinnedPool, stream: acl.Stream, gate: threading.Event
) -> None:
    buffer, device = pinned.alloc(4096), acl.Buffer(4096)
    address = buffer.address
    stream.launch(lambda: gate.wait(60))    # bounded: a test that fails must end
    acl.copy_async(device, buffer, stream)
    del buffer
    assert pinned.stats().waiting == 4096
    with pinned.alloc(4096) as other:
        assert other.address != address
    gate.set()
    stream.synchronize()
    device.close()
    held = [pinned.alloc(4096) for _ in range(1 << 9)]
    assert address in [one.address for one in held]
    assert pinned.stats().pinned == 1


def test_pinned_buffer_dropped_in_the_context_of_another_device_is_freed_later(pinned: acl.PinnedPool) -> None:
    acl.Device(0).use()
    with acl.Stream(0) as stream, acl.Buffer(4096) as device:
        buffer = pinned.alloc(4096)
        done: list[int] = []
        stream.launch(lambda: (time.sleep(0.1), done.append(1)))
        acl.copy_async(device, buffer, stream)
        acl.Device(1).use()
        del buffer
        assert not done
        assert pinned.stats().live_blocks == 1
        assert acl.Device.current().ordinal == 1
        acl.Device(0).use()
        stream.synchronize()
        assert done
        assert pinned.stats().live_blocks == 0


def test_pinned_buffer_dropped_in_a_thread_without_a_context_is_freed_after_its_copy(
    pinned: acl.PinnedPool, stream: acl.Stream
) -> None:
    with acl.Buffer(4096) as device:
        held = [pinned.alloc(4096)]
        done: list[int] = []
        stream.launch(lambda: (time.sleep(0.1), done.append(1)))
        acl.copy_async(device, held[0], stream)
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert not done
        assert pinned.stats().live_blocks == 1
        stream.synchronize()
        assert done
        assert pinned.stats().allocated == 0


def test_pinned_memory_without_an_event_waits_for_the_context(
    pinned: acl.PinnedPool, stream: acl.Stream, sim: Any
) -> None:
    with acl.Buffer(4096) as device:
        buffer, gate = pinned.alloc(4096), threading.Event()
        stream.launch(lambda: gate.wait(60))
        acl.copy_async(device, buffer, stream)
        with sim.fault("aclrtRecordEvent", code=207004):
            del buffer
        assert pinned.stats().waiting == 4096
        gate.set()
        pinned.trim()
        assert pinned.stats().waiting == 0


def test_pinned_allocation_above_the_limit_raises_an_out_of_memory_error(no_leaks: None) -> None:
    with acl.PinnedPool(limit="2MiB") as pool:
        with pytest.raises(acl.OutOfMemoryError, match="3145728 bytes of pinned host memory"):
            pool.alloc("3MiB")
        assert pool.stats().failures == 1
        pool.alloc("1MiB").close()
        assert pool.stats().reserved <= 2 << 20


def test_pinned_pool_can_allocate_again_after_the_host_refused_memory(pinned: acl.PinnedPool, sim: Any) -> None:
    with sim.fault("aclrtMallocHost", code=207001), pytest.raises(acl.OutOfMemoryError):
        pinned.alloc(100)
    pinned.alloc(100).close()


def test_pinned_sizes_that_never_repeat_waste_little_memory(pinned: acl.PinnedPool) -> None:
    for size in range(1 << 20, 40 << 20, 3 << 18):
        pinned.alloc(size).close()
    stats = pinned.stats()
    assert stats.reserved_peak < stats.requested_peak * 1.25 + (8 << 20)


def test_repeated_pinned_sizes_pin_no_new_memory(pinned: acl.PinnedPool) -> None:
    for round in range(5):
        held = [pinned.alloc(size) for size in (1_500_000, 300, 9_000_000, 70_000, 4_000_000)]
        held.pop(2).close()
        held.append(pinned.alloc(8_000_000))
        if round == 1:
            calls = pinned.stats().pinned
        held.clear()
    assert pinned.stats().pinned == calls


def test_trim_of_a_pinned_pool_returns_free_slabs(pinned: acl.PinnedPool) -> None:
    small, large = pinned.alloc(100), pinned.alloc("20MiB")
    large.close()
    assert pinned.trim() == 20 << 20
    assert pinned.stats().reserved == 2 << 20
    small.close()
    assert pinned.trim() == 2 << 20


def test_closing_a_pinned_pool_leaves_its_buffers_valid(no_leaks: None) -> None:
    pool = acl.PinnedPool()
    buffer = pool.alloc(100)
    pool.close()
    memoryview(buffer)[:] = b"x" * 100
    with pytest.raises(ValueError, match="closed"):
        pool.alloc(1)
    buffer.close()
    assert repr(pool) == "<PinnedPool closed>"


@pytest.mark.parametrize(
    ("given", "text"),
    [({"slab": 1000}, "slab must be a power of two"), ({"limit": 5}, "limit must be at least")],
)
def test_wrong_options_of_a_pinned_pool_are_refused(given: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        acl.PinnedPool(**given)


@pytest.mark.parametrize("size", [0, -1, 1 << 46])
def test_wrong_pinned_sizes_are_refused(pinned: acl.PinnedPool, size: int) -> None:
    with pytest.raises(ValueError, match="nbytes must be at least"):
        pinned.alloc(size)


def test_threads_that_share_a_pinned_pool_keep_their_bytes_apart(pinned: acl.PinnedPool) -> None:
    faults: list[str] = []

    def work(mark: int) -> None:
        for round in range(200):
            held = [pinned.alloc(1000 + 300 * k) for k in range(8)]
            for buffer in held:
                memoryview(buffer)[:8] = bytes([mark]) * 8
            if any(bytes(memoryview(buffer)[:8]) != bytes([mark]) * 8 for buffer in held):
                faults.append(f"round {round}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# ---- arrays -------------------------------------------------------------------------------------

def test_pinned_empty_is_an_ordinary_array(pinned: acl.PinnedPool, stream: acl.Stream) -> None:
    array = acl.pinned_empty((3, 4), "float32", pool=pinned)
    array[:] = numpy.arange(12).reshape(3, 4)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((3, 4), "float32", True)
    with acl.Buffer(48) as device:
        acl.copy_async(device, array, stream)
        assert acl.to_numpy(device, "float32", (3, 4))[2, 3] == 11
    assert acl.pinned_empty(5, "int16", order="F", pool=pinned).nbytes == 10
    assert acl.pinned_empty((0, 7), pool=pinned).shape == (0, 7)


def test_pinned_empty_without_a_pool_returns_a_writable_array() -> None:
    array = acl.pinned_empty(1000)
    array[:] = 1
    assert array.sum() == 1000


@pytest.mark.parametrize(("shape", "dtype", "error"), [
    ((-1,), "float32", ValueError), ((2,), object, TypeError), ((2.5,), "float32", TypeError),
])
def test_pinned_empty_refuses_wrong_shapes_and_element_types(
    pinned: acl.PinnedPool, shape: Any, dtype: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        acl.pinned_empty(shape, dtype, pool=pinned)


def test_numpy_arrays_made_inside_the_with_block_use_pinned_memory(pinned: acl.PinnedPool) -> None:
    with acl.numpy_pool(pinned) as pool:
        assert pool is pinned
        inside = [numpy.zeros((100, 100)), numpy.arange(5) + 1, numpy.empty(0), numpy.full(3, "ab")]
    outside = numpy.zeros(10)
    assert [is_ours(array) for array in inside] == [True] * 4
    assert not is_ours(outside)
    assert not inside[0].any() and list(inside[1]) == [1, 2, 3, 4, 5]
    assert pinned.stats().live_blocks == 4
    del inside
    assert pinned.stats().live_blocks == 0


def test_pinned_arrays_outlive_their_pool_and_are_freed_in_any_thread(no_leaks: None) -> None:
    pool = acl.PinnedPool()
    with pool.numpy():
        held = [numpy.arange(1000) for _ in range(50)]
    pool.close()
    del pool
    assert held[49].sum() == 499500
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


def test_with_blocks_of_two_pinned_pools_can_be_nested(pinned: acl.PinnedPool, no_leaks: None) -> None:
    with acl.PinnedPool() as other:
        with pinned.numpy(), other.numpy(), pinned.numpy():
            first = numpy.zeros(10)
        assert (pinned.stats().live_blocks, other.stats().live_blocks) == (1, 0)
        del first
        with pytest.raises(RuntimeError), pinned.numpy():
            raise RuntimeError
        assert not is_ours(numpy.zeros(10))


def test_threads_may_share_one_numpy_pool_context_manager(pinned: acl.PinnedPool) -> None:
    """If one thread leaves the block while another is in it, each gets back the memory handler that it had before."""
    shared, found = acl.numpy_pool(pinned), list[bool]()
    inside, left = threading.Event(), threading.Event()

    def other() -> None:
        with shared:
            inside.set()
            left.wait(30)
        found.append(is_ours(numpy.zeros(3)))

    with acl.PinnedPool() as outer, outer.numpy():
        thread = threading.Thread(target=other)
        with shared:
            thread.start()
            inside.wait(30)
        kept = numpy.zeros(3)
        assert outer.stats().live_blocks == 1
        left.set()
        thread.join()
        del kept
    assert found == [False]


def test_threads_can_drop_pinned_arrays_made_by_other_threads(pinned: acl.PinnedPool) -> None:
    shared, faults, table = acl.numpy_pool(pinned), list[str](), dict[int, Any]()

    def work(mark: int) -> None:
        numbers = numpy.random.default_rng(mark)
        for turn in range(300):
            try:
                with shared:
                    made = numpy.full(int(numbers.integers(1, 20_000)), mark, "int64")
                    if turn % 7 == 0:
                        raise KeyError(turn)
                    made.resize(made.size + 1000, refcheck=False)
                    made[-1000:] = mark
            except KeyError:
                if is_ours(numpy.zeros(3)):
                    faults.append(f"thread {mark} is still inside")
            other = table.get(int(numbers.integers(16)))
            if other is not None and (other != other[0]).any():
                faults.append(f"thread {mark}, turn {turn}")
            del other
            table[int(numbers.integers(16))] = made         # frees the array that was there, in this thread

    print("seeds 1 to 4")
    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert pinned.stats().live_blocks == len(table)
    table.clear()
    assert pinned.stats().live_blocks == 0 and pinned.check() == 0


def test_with_block_must_end_in_the_thread_that_began_the_block(pinned: acl.PinnedPool) -> None:
    first, second, told = acl.numpy_pool(pinned), acl.numpy_pool(pinned), list[BaseException]()

    def leave() -> None:
        try:
            first.__exit__(None, None, None)
        except RuntimeError as error:
            told.append(error)

    first.__enter__()
    with second:
        leave()
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert [re.search("must end in the thread or task that began it", str(one)) is not None for one in told] == [
        True, True]
    assert is_ours(numpy.zeros(3))
    first.__exit__(None, None, None)
    assert not is_ours(numpy.zeros(3))


def test_error_within_an_expression_leaks_nothing(pinned: acl.PinnedPool, sim: Any) -> None:
    """In one expression, NumPy gets memory and is then refused further memory; the first memory is freed."""
    with pinned.numpy():
        kept = numpy.arange(1000.0)
        with sim.fault("aclrtMallocHost", code=207001), pytest.raises(MemoryError):
            numpy.concatenate([kept + 1, numpy.zeros(1 << 22)])
        with pytest.raises(ZeroDivisionError):
            numpy.fromiter((1 // (5 - n) for n in range(10)), "int64")
        gc.collect()
        assert pinned.stats().live_blocks == 1
        assert is_ours(kept * 2)
    assert not is_ours(numpy.zeros(3))


def test_with_block_of_a_pinned_pool_does_not_affect_other_threads_and_tasks(pinned: acl.PinnedPool) -> None:
    found: list[bool] = []

    async def task() -> bool:
        await asyncio.sleep(0)
        return is_ours(numpy.zeros(3))

    async def both() -> list[bool]:
        outside = asyncio.create_task(task())
        with pinned.numpy():
            inside = asyncio.create_task(task())
        return [await inside, await outside]

    assert asyncio.run(both()) == [True, False]
    with pinned.numpy():
        thread = threading.Thread(target=lambda: found.append(is_ours(numpy.zeros(3))))
        thread.start()
        thread.join()
    assert found == [False]


def test_resize_of_a_pinned_array_keeps_its_content(pinned: acl.PinnedPool) -> None:
    with pinned.numpy():
        array = numpy.arange(100)
    for count in (101, 10_000, 1_000_000, 50):
        array.resize(count, refcheck=False)
        assert (array[:50] == range(50)).all()
    assert pinned.stats().allocated < 4096


def test_pinned_array_above_the_limit_raises_a_memory_error(no_leaks: None) -> None:
    with acl.PinnedPool(limit="2MiB") as pool:
        with pool.numpy(), pytest.raises(MemoryError):
            numpy.empty(1 << 20)
        with pool.numpy(), pytest.raises((MemoryError, ValueError)):
            numpy.empty(1 << 60, "uint8")


def test_array_made_inside_the_with_block_is_copied_as_pinned_memory(
    pinned: acl.PinnedPool, stream: acl.Stream, gate: threading.Event
) -> None:
    with pinned.numpy():
        array = numpy.arange(1000, dtype="int32")
    with acl.Buffer(4000) as device:
        stream.launch(lambda: gate.wait(60))    # bounded: a test that fails must end
        acl.copy_async(device, array[:], stream)        # with pageable memory this would wait
        address = array.ctypes.data
        del array
        assert pinned.stats().waiting > 0
        with pinned.numpy():
            assert numpy.empty(1000, "int32").ctypes.data != address
        gate.set()
        assert (acl.to_numpy(device, "int32") == range(1000)).all()


def test_read_and_resize_of_a_pinned_array_wait_for_its_queued_copy(
    pinned: acl.PinnedPool, stream: acl.Stream
) -> None:
    with pinned.numpy():
        array = numpy.zeros(1000, "int32")
    with acl.Buffer(4000) as device, acl.Stream(0) as other:
        acl.copy(device, numpy.arange(1000, dtype="int32"))
        stream.launch(lambda: time.sleep(0.1))
        acl.copy_async(array, device, stream)
        acl.copy(device, array, stream=other)           # waits for the other stream's copy first
        assert (acl.to_numpy(device, "int32") == range(1000)).all()
        array[:] = 0
        stream.launch(lambda: time.sleep(0.1))
        acl.copy_async(array, device, stream)
        array.resize(5000, refcheck=False)              # moves the array, so it waits for the copy
        assert (array[:1000] == range(1000)).all()


def test_copy_from_an_ordinary_array_waits_as_for_pageable_memory(pinned: acl.PinnedPool, stream: acl.Stream) -> None:
    array = numpy.arange(1000, dtype="int32")
    done: list[int] = []
    with acl.Buffer(4000) as device:
        stream.launch(lambda: (time.sleep(0.05), done.append(1)))
        acl.copy_async(device, array, stream)
        assert done


def test_slot_of_the_memory_handler_equals_that_in_the_numpy_header() -> None:
    header = Path(numpy.get_include()) / "numpy/__multiarray_api.h"
    slots = re.findall(r"PyDataMem_SetHandler \\\n.*\\\n\s*PyArray_API\[(\d+)\]", header.read_text())
    assert slots == ["304"]


def test_layout_of_the_memory_handler_equals_that_in_the_numpy_header() -> None:
    header = (Path(numpy.get_include()) / "numpy/ndarraytypes.h").read_text()
    struct = re.search(r"typedef struct \{\s*char name\[(\d+)\];.*?PyDataMem_Handler;", header, re.S)
    assert struct is not None and struct[1] == "127"
    order = re.search(r"typedef struct \{\s*void \*ctx;(.*?)PyDataMemAllocator;", header, re.S)
    assert order is not None
    assert re.findall(r"\(\*(\w+)\)", order[1]) == ["malloc", "calloc", "realloc", "free"]


def test_process_exit_with_live_pinned_arrays_and_copies_prints_nothing() -> None:
    done = run_python("""
        import acl, numpy
        keep = acl.numpy_pool()
        with keep:
            array = numpy.ones(1000)
        stream = acl.Stream(0)
        device = acl.Buffer(8000)
        acl.copy_async(device, array, stream)
        buffer = acl.PinnedPool().alloc(10)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_forked_child_cannot_allocate_or_free_pinned_memory_of_its_parent(pinned: acl.PinnedPool) -> None:
    done = run_python("""
        import os, acl, numpy
        pool = acl.PinnedPool()
        with pool.numpy():
            array = numpy.ones(1000)
        child = os.fork()
        if child == 0:
            try:
                pool.alloc(5)
            except RuntimeError as error:
                del array
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), array.sum())
    """)
    assert done.stdout == "7 1000.0\n", done.stderr


def test_numpy_is_not_imported_by_making_a_pinned_pool() -> None:
    done = run_python("""
        import sys, acl
        acl.PinnedPool().alloc(10).close()
        print("numpy" in sys.modules)
    """)
    assert done.stdout == "False\n", done.stderr


def test_trim_waits_for_pinned_memory_without_an_event_and_returns_the_memory(pinned: acl.PinnedPool, sim: Any) -> None:
    with acl.Stream() as stream, acl.Buffer(1 << 20, stream=stream) as target:
        host = pinned.alloc(1 << 20)
        with Slow(stream):
            acl.copy_async(target, host, stream)
            with sim.fault("aclrtCreateEventExWithFlag", nth=1):
                host.close()
        assert pinned.stats().waiting == 1 << 20
        assert pinned.trim() == 1 << 20 and pinned.stats().waiting == 0
