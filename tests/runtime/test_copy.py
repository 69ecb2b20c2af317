"""Copies and fills: every pair of source and target, the order on streams, the bounds."""

import array
import ctypes
import threading
from types import ModuleType

import numpy as np
import pytest
from support.calls import api
from support.core import Slow

import acl

PATTERN = bytes(range(256))


def device(content: bytes) -> acl.Buffer:
    buffer = acl.Buffer(len(content))
    acl.copy(buffer, content)
    return buffer


def pinned(content: bytes) -> acl.HostBuffer:
    host = acl.HostBuffer(len(content))
    memoryview(host)[:] = content
    return host


SOURCES = {
    "buffer": device,
    "pinned": pinned,
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "array": lambda content: array.array("B", content),
    "numpy": lambda content: np.frombuffer(content, "u1"),
    "pinned numpy": lambda content: pinned(content).numpy(),
}
TARGETS = {
    "buffer": acl.Buffer,
    "pinned": acl.HostBuffer,
    "bytearray": bytearray,
    "numpy": lambda size: np.zeros(size, "u1"),
    "pinned numpy": lambda size: acl.HostBuffer(size).numpy(),
}


def content(thing: object) -> bytes:
    return acl.to_bytes(thing) if isinstance(thing, acl.Buffer) else bytes(memoryview(thing))  # type: ignore[arg-type]


@pytest.mark.parametrize("on_stream", [False, True])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_copy_works_between_every_pair_of_memory_kinds(
    source: str, target: str, on_stream: bool, stream: acl.Stream, no_leaks: None
) -> None:
    there = TARGETS[target](256)
    acl.copy(there, SOURCES[source](PATTERN), stream=stream if on_stream else None)
    assert content(there) == PATTERN


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_asynchronous_copy_works_between_every_pair_of_memory_kinds(
    source: str, target: str, stream: acl.Stream, no_leaks: None
) -> None:
    there, here = TARGETS[target](256), SOURCES[source](PATTERN)
    acl.copy_async(there, here, stream)
    stream.synchronize()
    assert content(there) == PATTERN


def test_copy_of_a_part_uses_both_offsets(no_leaks: None) -> None:
    buffer = device(bytes(16))
    acl.copy(buffer, PATTERN, target_offset=3, source_offset=10, nbytes=4)
    assert acl.to_bytes(buffer) == bytes([0, 0, 0, 10, 11, 12, 13]) + bytes(9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nbytes": 257}, "nbytes must be at most the source's 256, not 257"),
        ({}, "the target must have room for 256 bytes, not 100"),
        ({"target_offset": 101}, "target_offset must be at most 100, not 101"),
        ({"source_offset": 257}, "source_offset must be at most 256, not 257"),
        ({"target_offset": 90, "nbytes": 11}, "the target must have room for 11 bytes, not 10"),
    ],
)
@pytest.mark.parametrize("function", [acl.copy, acl.copy_async])
def test_copy_beyond_the_bounds_of_a_side_is_refused(
    function: object, arguments: dict[str, int], message: str, no_leaks: None
) -> None:
    with acl.Buffer(100) as buffer, pytest.raises(ValueError, match=message):
        function(buffer, PATTERN, **arguments)  # type: ignore[operator]


def test_copy_refuses_a_side_that_is_not_memory() -> None:
    with acl.Buffer(8) as buffer:
        with pytest.raises(TypeError, match=r"source must be a Buffer, .* not str"):
            acl.copy(buffer, "text")
        with pytest.raises(ValueError, match="target must be writable and contiguous"):
            acl.copy(b"12345678", buffer)
        with pytest.raises(ValueError, match="source must be contiguous"):
            acl.copy(buffer, np.zeros((8, 8), "u1")[:, 0])


def test_arrays_of_any_type_and_order(no_leaks: None) -> None:
    for made in (
        np.arange(12, dtype="float64").reshape(3, 4),
        np.asfortranarray(np.ones((3, 4), "int16")),
    ):
        buffer = acl.Buffer(made.nbytes)
        acl.copy(buffer, made)
        assert acl.to_bytes(buffer) == made.tobytes("A")


def test_to_numpy_returns_an_array_of_the_given_type_and_shape(no_leaks: None) -> None:
    buffer = device(np.arange(6, dtype="int32").tobytes() + b"xy")
    assert acl.to_numpy(buffer, "int32").tolist() == [0, 1, 2, 3, 4, 5]
    assert acl.to_numpy(buffer, "int32", (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert acl.to_numpy(buffer, "int32", 1).tolist() == [0]
    with pytest.raises(ValueError, match="nbytes must be at most"):
        acl.to_numpy(buffer, "int32", (3, 3))


def test_arrays_are_copied_as_their_bytes(stream: acl.Stream, no_leaks: None) -> None:
    values = np.arange(6, dtype="float32").reshape(2, 3)
    with acl.Pool(0) as pool, pool.empty((2, 3), stream=stream) as array, pool.empty((2, 3)) as other:
        acl.copy(array, values)
        acl.copy_async(other, array, stream)
        stream.synchronize()
        assert other.numpy().tolist() == values.tolist()
        acl.fill(array, 0)
        back = np.ones((2, 3), "float32")
        acl.copy(back, array)
        assert not back.any()
        with pytest.raises(ValueError, match="must have room for 32 bytes, not 24"):
            acl.copy(array, bytes(32))
    with acl.Buffer(64) as buffer:
        part = acl.Array.of(buffer, (4,), "uint8")
        acl.fill(buffer, 7)
        acl.fill(part, 1)
        assert acl.to_bytes(buffer) == b"\1" * 4 + b"\7" * 60


def test_copy_and_fill_of_0_bytes_change_nothing(no_leaks: None) -> None:
    with acl.Buffer(8) as buffer:
        acl.fill(buffer, 7)
        acl.copy(buffer, b"")
        acl.fill(buffer, 1, nbytes=0)
        acl.copy_2d(buffer, 8, b"", 8, 0, 3)
        assert acl.to_bytes(buffer) == b"\7" * 8


def test_asynchronous_copy_returns_before_the_copy_is_done(stream: acl.Stream, no_leaks: None) -> None:
    gate = threading.Event()
    buffer, host = device(bytes(16)), pinned(b"sixteen bytes ok")
    stream.launch(gate.wait, 30)
    acl.copy_async(buffer, host, stream)
    assert stream.query() is False
    gate.set()
    stream.synchronize()
    assert acl.to_bytes(buffer) == b"sixteen bytes ok"


def test_a_synchronous_copy_waits_for_copies_still_queued(
    stream: acl.Stream, no_leaks: None
) -> None:
    gate = threading.Event()
    buffer, host = device(bytes(4)), pinned(b"late")
    stream.launch(gate.wait, 30)
    acl.copy_async(buffer, host, stream)
    threading.Timer(0.05, gate.set).start()
    assert acl.to_bytes(buffer) == b"late"


def test_copy_to_pageable_memory_waits_for_work_queued_by_c_code_on_its_stream(stream: acl.Stream) -> None:
    """Without a wait, the runtime would copy at once; this package does not know the work that C code queued."""
    with acl.Pool(0) as pool, pool.alloc(256, stream) as buffer:
        acl.fill(buffer, 0)
        with Slow(stream) as slow:
            assert api.aclrtMemsetAsync(ctypes.c_void_p(buffer.address), 256, 7, 256, stream.handle) == 0
            threading.Timer(0.05, slow.go_on).start()
            assert acl.to_bytes(buffer) == b"\7" * 256


def test_synchronous_copies_run_in_the_order_of_the_stream_of_the_buffer(stream: acl.Stream, no_leaks: None) -> None:
    # The fill is queued behind a callback that waits; the copy must not run before the fill.
    gate = threading.Event()
    buffer = acl.Buffer(8, stream=stream)
    stream.launch(gate.wait, 30)
    acl.fill(buffer, 7, wait=False)
    threading.Timer(0.05, gate.set).start()
    assert acl.to_bytes(buffer) == bytes([7] * 8)
    stream.launch(gate.wait, 30)
    acl.copy(buffer, b"ordered!")
    assert acl.to_bytes(buffer) == b"ordered!"
    buffer.close()


@pytest.mark.parametrize("first", ["buffer", "host"])
def test_closing_a_buffer_waits_for_a_copy_whose_wait_failed(
    first: str, stream: acl.Stream, sim: ModuleType, no_leaks: None
) -> None:
    gate, order = threading.Event(), []
    sides = {"buffer": acl.Buffer(64, stream=stream), "host": pinned(bytes(64))}
    stream.launch(gate.wait, 30)
    with sim.fault("aclrtSynchronizeStreamWithTimeout", nth=1), pytest.raises(acl.AclError):
        acl.copy(sides["buffer"], sides["host"])
    stream.launch(order.append, "copied")
    threading.Timer(0.05, gate.set).start()
    sides.pop(first).close()
    order.append("closed")
    sides.popitem()[1].close()
    stream.synchronize()
    assert order == ["copied", "closed"]


def test_copy_between_buffers_of_two_streams_waits_for_both(stream: acl.Stream, no_leaks: None) -> None:
    gate = threading.Event()
    with (
        acl.Stream() as other,
        acl.Buffer(8, stream=stream) as here,
        acl.Buffer(8, stream=other) as there,
    ):
        stream.launch(gate.wait, 30)
        acl.fill(here, 5, wait=False)
        threading.Timer(0.05, gate.set).start()
        acl.copy(there, here)
        assert acl.to_bytes(there) == bytes([5] * 8)


def test_fill_sets_bytes_at_an_offset(no_leaks: None) -> None:
    buffer = device(bytes(8))
    acl.fill(buffer, 255, offset=2, nbytes=3)
    assert acl.to_bytes(buffer) == bytes([0, 0, 255, 255, 255, 0, 0, 0])
    acl.fill(buffer)
    assert acl.to_bytes(buffer) == bytes(8)


@pytest.mark.parametrize("value", [-1, 256])
def test_fill_refuses_values_outside_0_to_255(value: int, no_leaks: None) -> None:
    with (
        acl.Buffer(8) as buffer,
        pytest.raises(ValueError, match=f"value must be 0 to 255, not {value}"),
    ):
        acl.fill(buffer, value)


def test_fill_beyond_the_end_of_a_buffer_is_refused(no_leaks: None) -> None:
    with acl.Buffer(8) as buffer:
        with pytest.raises(ValueError, match="nbytes must be at most 6, not 7"):
            acl.fill(buffer, offset=2, nbytes=7)
        with pytest.raises(TypeError):
            acl.fill(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_stream", [False, True])
def test_copy_2d_copies_rows_with_both_pitches(on_stream: bool, stream: acl.Stream, no_leaks: None) -> None:
    queue = stream if on_stream else None
    grid = np.arange(48, dtype="u1").reshape(6, 8)
    buffer = device(bytes(6 * 5))
    acl.copy_2d(buffer, 5, grid, 8, 3, 6, stream=queue)
    there = acl.to_numpy(buffer, "u1", (6, 5))
    assert (there[:, :3] == grid[:, :3]).all()
    assert not there[:, 3:].any()
    back = np.zeros((6, 4), "u1")
    acl.copy_2d(back, 4, buffer, 5, 3, 6, stream=queue)
    assert (back[:, :3] == grid[:, :3]).all()


def test_copy_2d_without_wait_returns_before_the_copy_is_done(stream: acl.Stream, no_leaks: None) -> None:
    gate = threading.Event()
    buffer, host = device(bytes(8)), pinned(b"abcdefgh")
    stream.launch(gate.wait, 30)
    acl.copy_2d(buffer, 4, host, 4, 2, 2, stream=stream, wait=False)
    assert stream.query() is False
    gate.set()
    assert acl.to_bytes(buffer) == b"ab\0\0ef\0\0"


@pytest.mark.parametrize(
    ("pitch", "width", "height", "message"),
    [
        (4, 5, 1, "target_pitch must be at least the width 5, not 4"),
        (4, 4, 3, "target must have room for 3 rows of 4 bytes 4 apart, not 8 bytes"),
        (2**63 - 1, 4, 2, "target must have room"),
        (4, 4, 2**63 - 1, "target must have room"),
    ],
)
def test_copy_2d_beyond_the_bounds_of_a_side_is_refused(
    pitch: int, width: int, height: int, message: str, no_leaks: None
) -> None:
    with acl.Buffer(8) as buffer, pytest.raises(ValueError, match=message):
        acl.copy_2d(buffer, pitch, bytes(64), 64, width, height)


def test_copies_work_in_a_thread_without_a_device(
    stream: acl.Stream, sim: ModuleType, no_leaks: None
) -> None:
    with acl.Device(1), acl.Stream(1) as other, acl.Buffer(8, stream=other) as there:
        thread = threading.Thread(target=acl.copy, args=(there, b"threaded"))
        thread.start()
        thread.join()
        assert acl.to_bytes(there) == b"threaded"


def test_failed_fill_does_not_forget_earlier_asynchronous_copies(sim: ModuleType, stream: acl.Stream) -> None:
    with acl.HostBuffer(64) as host, acl.Buffer(64, stream=stream) as buffer:
        acl.copy_async(buffer, host)
        with sim.fault("aclrtMemsetAsync", nth=1, code=507899), pytest.raises(acl.AclError):
            acl.fill(buffer, 1, wait=False)
        sim.reset_counters()
        buffer.close()
        assert sim.counters()["aclrtSynchronizeStreamWithTimeout"] == 1


def test_closing_does_not_wait_again_for_a_synchronised_copy(sim: ModuleType, stream: acl.Stream) -> None:
    with acl.HostBuffer(64) as host, acl.Buffer(64, stream=stream) as buffer:
        acl.copy_async(buffer, host)
        acl.fill(buffer, 1)
        sim.reset_counters()
        buffer.close()
        host.close()
        assert sim.counters().get("aclrtSynchronizeStreamWithTimeout", 0) == 0
