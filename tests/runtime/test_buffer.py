"""Buffer and HostBuffer: ownership, lifetimes, views, the buffer protocol."""

import gc
import threading
from types import ModuleType

import numpy as np
import pytest

import acl


def test_a_buffer_is_device_memory(no_leaks: None, sim: ModuleType) -> None:
    before = sim.physical_bytes()
    with acl.Buffer(1000) as buffer:
        assert buffer.size == len(buffer) == 1000
        assert buffer.address > 0
        assert buffer.device == 0
        assert buffer.stream is None
        assert sim.physical_bytes() > before
        assert repr(buffer) == f"<Buffer 1000 bytes at {buffer.address:#x}>"


@pytest.mark.parametrize(("policy", "small", "large"), [
    ("huge_first", False, True), ("huge_only", True, True), ("normal_only", False, False),
])
def test_buffer_policy_chooses_huge_or_normal_pages(
    policy: str, small: bool, large: bool, no_leaks: None, sim: ModuleType
) -> None:
    """The bytes that a buffer takes from the device show the page size: a multiple of 2 MiB, or less."""
    for size, huge in ((64 << 10, small), (3 << 20, large)):
        before = sim.physical_bytes()
        with acl.Buffer(size, policy=policy):
            taken = sim.physical_bytes() - before
        assert (taken % (2 << 20) == 0) == huge, (size, taken)
        assert size < taken < size + ((2 << 20) if huge else (16 << 10))


def test_wrong_buffer_policy_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="policy must be one of huge_first, huge_only, normal_only, not 'big'"
    ):
        acl.Buffer(1, policy="big")


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
@pytest.mark.parametrize("size", [0, -1])
def test_buffer_sizes_out_of_range_are_refused(kind: type, size: int) -> None:
    with pytest.raises(ValueError, match=f"size must be at least 1 byte, not {size}"):
        kind(size)


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
@pytest.mark.parametrize("size", ["1", None, 1.5])
def test_buffer_sizes_of_a_wrong_type_are_refused(kind: type, size: object) -> None:
    with pytest.raises(TypeError):
        kind(size)


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_buffer_size_beyond_size_t_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match=r"size must be .* below 2\*\*63"):
        kind(1 << 70)


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_closed_buffer_can_be_closed_again_and_refuses_use(kind: type, no_leaks: None) -> None:
    buffer = kind(64)
    assert not buffer.closed
    buffer.close()
    buffer.close()
    assert buffer.closed
    assert repr(buffer) == f"<{kind.__name__} closed>"
    other = kind(64)
    for use in (
        lambda: buffer.address,
        lambda: acl.copy(buffer, other),
        lambda: acl.copy(other, buffer),
    ):
        with pytest.raises(ValueError, match=f"the {kind.__name__} is closed"):
            use()


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_dropping_a_buffer_frees_its_memory(kind: type, no_leaks: None) -> None:
    for _ in range(10):
        kind(1 << 20)


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_second_init_of_a_buffer_is_refused(kind: type, no_leaks: None) -> None:
    buffer = kind(64)
    with pytest.raises(ValueError, match="exists already"):
        buffer.__init__(64)


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_buffer_without_init_is_closed_and_can_be_closed(kind: type) -> None:
    buffer = kind.__new__(kind)
    assert buffer.closed
    buffer.close()


@pytest.mark.parametrize("kind", [acl.Buffer, acl.HostBuffer])
def test_buffer_can_be_freed_in_a_thread_without_a_device(kind: type, no_leaks: None) -> None:
    held = [kind(1 << 20)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


def test_buffer_that_finds_no_memory_leaves_no_memory_behind(no_leaks: None) -> None:
    with pytest.raises(MemoryError) as raised:
        acl.Buffer(1 << 45)
    assert isinstance(raised.value, acl.OutOfMemoryError)


def test_view_of_a_buffer_is_a_part_of_its_memory(no_leaks: None) -> None:
    with acl.Buffer(100) as buffer:
        acl.copy(buffer, bytes(range(100)))
        part = buffer.view(10, 5)
        assert (part.address, part.size) == (buffer.address + 10, 5)
        assert acl.to_bytes(part) == bytes(range(10, 15))
        assert buffer.view(90).size == 10
        assert part.view(1, 2).address == buffer.address + 11


def test_view_keeps_the_memory_of_its_buffer(no_leaks: None) -> None:
    part = acl.Buffer(100).view(10, 5)
    gc.collect()
    acl.fill(part, 3)
    assert acl.to_bytes(part) == bytes([3] * 5)


@pytest.mark.parametrize(
    ("offset", "size", "message"),
    [
        (101, None, "offset must be at most 100, not 101"),
        (90, 11, "size must be at most 10 at offset 90, not 11"),
    ],
)
def test_views_beyond_the_end_of_a_buffer_are_refused(offset: int, size: int | None, message: str) -> None:
    with acl.Buffer(100) as buffer, pytest.raises(ValueError, match=message):
        buffer.view(offset, size)


def test_borrowed_memory_is_not_freed(no_leaks: None) -> None:
    with acl.Buffer(100) as buffer:
        borrowed = acl.Buffer.from_address(buffer.address, 100, owner=buffer)
        acl.fill(borrowed, 9)
        borrowed.close()
        assert acl.to_bytes(buffer)[:1] == b"\x09"


def test_borrowed_memory_keeps_its_owner(no_leaks: None) -> None:
    buffer = acl.Buffer(100)
    borrowed = acl.Buffer.from_address(buffer.address, 100, owner=buffer)
    del buffer
    gc.collect()
    acl.fill(borrowed, 9)


def test_address_0_is_refused() -> None:
    with pytest.raises(ValueError, match="address must not be 0"):
        acl.Buffer.from_address(0, 100)


def test_closing_a_buffer_waits_for_asynchronous_copies(stream: acl.Stream, sim: ModuleType) -> None:
    gate, order = threading.Event(), []
    buffer, host = acl.Buffer(64), acl.HostBuffer(64)
    stream.launch(gate.wait, 30)
    acl.copy_async(buffer, host, stream)
    stream.launch(order.append, "copied")
    threading.Timer(0.05, gate.set).start()
    buffer.close()
    order.append("closed")
    host.close()
    stream.synchronize()
    assert order == ["copied", "closed"]


def test_closing_a_buffer_waits_for_copies_through_its_views(stream: acl.Stream) -> None:
    gate, order = threading.Event(), []
    buffer, host = acl.Buffer(64), acl.HostBuffer(16)
    part = buffer.view(0, 16)
    stream.launch(gate.wait, 30)
    acl.copy_async(part, host, stream)
    stream.launch(order.append, "copied")
    part.close()
    threading.Timer(0.05, gate.set).start()
    buffer.close()
    order.append("closed")
    assert order == ["copied", "closed"]


def test_host_buffer_has_the_python_buffer_protocol(no_leaks: None) -> None:
    with acl.HostBuffer(16) as host:
        with memoryview(host) as view:
            assert (view.nbytes, view.format, view.readonly, view.contiguous) == (
                16,
                "B",
                False,
                True,
            )
            view[:4] = b"abcd"
        assert bytes(host)[:4] == b"abcd"


def test_numpy_array_shares_the_memory_of_a_host_buffer(no_leaks: None) -> None:
    host = acl.HostBuffer(24)
    array = host.numpy("float32", (2, 3))
    array[:] = np.arange(6).reshape(2, 3)
    assert bytes(host) == np.arange(6, dtype="float32").tobytes()
    assert array.ctypes.data == host.address
    with pytest.raises(BufferError, match="1 views of the HostBuffer are alive"):
        host.close()
    del array
    host.close()


def test_numpy_array_keeps_the_memory_of_a_host_buffer(no_leaks: None) -> None:
    array = acl.HostBuffer(8).numpy()
    gc.collect()
    array[:] = 5
    assert array.sum() == 40


def test_buffer_has_the_attribute_nbytes_like_arrays(sim: ModuleType) -> None:
    with acl.Buffer(1000) as buffer, acl.Pool(0) as pool, pool.alloc("1KiB") as block:
        assert buffer.nbytes == buffer.size == len(buffer) == 1000
        assert block.view(24).nbytes == 1000
