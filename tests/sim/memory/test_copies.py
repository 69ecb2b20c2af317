"""The results of copies, fills, reductions and cache operations, and their order."""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api, out
from support.memory import BatchAttr, Location, MemoryScene, read, write
from support.models import sim_message

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
H2D, D2H, D2D, INNER = 1, 2, 3, 6
SIZE_MAX = 2**64 - 1


class Scene(MemoryScene):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self._hold = HOST_FUNCTION(lambda _: self.gate.wait(20) and None)

    def hold(self) -> None:
        """Let the stream wait until `release` or `close` is called, but for 20 s at most."""
        self.gate.clear()
        assert api.aclrtLaunchHostFunc(self.stream, ctypes.cast(self._hold, ctypes.c_void_p), None) == 0

    def release(self) -> int:
        self.gate.set()
        return int(api.aclrtSynchronizeStream(self.stream))

    def close(self) -> None:
        self.gate.set()
        super().close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def array(kind: Any, values: list[int]) -> Any:
    return (kind * len(values))(*values)


# ---- host memory that ends early ----

PAGE = mmap.PAGESIZE


@pytest.fixture
def short() -> Iterator[int]:
    """Yield the address of two pages of host memory; the page behind them cannot be accessed."""
    area = mmap.mmap(-1, 4 * PAGE)
    area.write(b"x" * 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(address + 2 * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    yield address
    assert libc.mprotect(ctypes.c_void_p(address + 2 * PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ) == 0


def refusal(argument: str, count: int, word: str) -> str:
    return f"{argument} = 0x[0-9a-f]+: {3 * PAGE} bytes of host memory expected there, but only {count} are {word}"


@pytest.mark.parametrize("kind", [H2D, 4, 5])
@pytest.mark.parametrize("skip", [0, 100])
def test_a_source_on_the_host_that_is_too_short_is_a_status(scene: Scene, short: int, kind: int, skip: int) -> None:
    calls = [lambda: api.aclrtMemcpy(scene.device, 3 * PAGE, short + skip, 3 * PAGE, kind),
             lambda: api.aclrtMemcpyAsync(scene.device, 3 * PAGE, short + skip, 3 * PAGE, kind, scene.stream)]
    for call in calls:
        assert call() == 107000
        assert re.search(refusal("src", 2 * PAGE - skip, "readable"), sim_message())
    assert api.aclrtMemcpy(scene.device, 3 * PAGE, short + skip, 2 * PAGE - skip, H2D) == 0
    assert read(scene.device, 2 * PAGE - skip) == b"x" * (2 * PAGE - skip)
    assert api.aclrtSynchronizeStream(scene.stream) == 0


def test_a_destination_on_the_host_that_is_too_short_is_a_status(scene: Scene, short: int) -> None:
    assert api.aclrtMemcpy(short, 3 * PAGE, scene.device, 3 * PAGE, D2H) == 107000
    assert re.search(refusal("dst", 2 * PAGE, "writable"), sim_message())
    assert api.aclrtMemset(short, 3 * PAGE, 1, 3 * PAGE) == 107000
    assert ctypes.string_at(short, 2 * PAGE) == b"x" * 2 * PAGE
    assert api.aclrtMemcpy(short, 2 * PAGE, scene.device, 2 * PAGE, D2H) == 0


def test_rows_that_leave_the_hosts_memory_are_a_status(scene: Scene, short: int) -> None:
    assert api.aclrtMemcpy2d(scene.device, PAGE, short, PAGE, PAGE, 3, H2D) == 107000
    assert re.search(refusal("src", 2 * PAGE, "readable"), sim_message())
    assert api.aclrtMemcpy2d(scene.device, PAGE, short, PAGE, PAGE, 2, H2D) == 0


@pytest.mark.parametrize("address", [8, 2**64 - 64, 2**64 - 1])
def test_an_address_that_nothing_is_at_is_a_status(scene: Scene, address: int) -> None:
    assert api.aclrtMemcpy(scene.device, 64, address, 64, H2D) == 107000
    assert api.aclrtMemcpy(address, 64, scene.device, 64, D2H) == 107000
    assert "64 bytes of host memory expected there, but only 0 are writable" in sim_message().split("\n")[0]


def test_a_read_only_page_is_a_source_and_no_destination(scene: Scene, short: int) -> None:
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(short + 2 * PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ) == 0
    assert api.aclrtMemcpy(scene.device, 3 * PAGE, short, 3 * PAGE, H2D) == 0
    assert api.aclrtMemcpy(short, 3 * PAGE, scene.device, 3 * PAGE, D2H) == 107000
    assert re.search(refusal("dst", 2 * PAGE, "writable"), sim_message())


# ---- one piece ----


@pytest.mark.parametrize("offset", [0, 1, 4093])
def test_there_and_back(scene: Scene, offset: int) -> None:
    data = bytes(range(256)) * 16
    write(scene.device + offset, data)
    assert read(scene.device + offset, len(data)) == data


def test_memory_of_a_device_can_be_read_on_the_host_unless_strict(scene: Scene) -> None:
    write(scene.device, b"abc")
    assert ctypes.string_at(scene.device, 3) == b"abc"


def test_copy_between_devices_moves_the_bytes(scene: Scene) -> None:
    assert api.aclrtSetDevice(1) == 0
    there = out()
    assert api.aclrtMalloc(ctypes.byref(there), 64, 0) == 0
    write(scene.device, b"x" * 64)
    assert api.aclrtMemcpy(there, 64, scene.device, 64, D2D) == 0
    assert read(there.value, 64) == b"x" * 64
    assert api.aclrtFree(there) == 0
    assert api.aclrtSetDevice(0) == 0


def test_tasks_keep_the_streams_order(scene: Scene) -> None:
    ctypes.memset(scene.pinned, 1, 64)
    scene.hold()
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.pinned, 64, H2D, scene.stream) == 0
    assert api.aclrtMemsetAsync(scene.device, 64, 7, 32, scene.stream) == 0
    assert api.aclrtMemcpyAsync(scene.other, 64, scene.device, 64, D2D, scene.stream) == 0
    assert api.aclrtMemcpyAsync(scene.pinned + 64, 64, scene.other, 64, D2H, scene.stream) == 0
    ctypes.memset(scene.pinned, 9, 64)  # before the first copy runs
    assert scene.release() == 0
    assert ctypes.string_at(scene.pinned + 64, 64) == b"\7" * 32 + b"\x09" * 32


def test_a_staged_copy_takes_its_bytes_at_once(scene: Scene) -> None:
    ctypes.memset(scene.pinned, 1, 64)
    scene.hold()
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.pinned, 64, 5, scene.stream) == 0
    ctypes.memset(scene.pinned, 2, 64)
    assert scene.release() == 0
    assert read(scene.device, 64) == b"\1" * 64


def test_synchronous_copies_wait_for_no_stream(scene: Scene) -> None:
    scene.hold()
    write(scene.device, b"q")
    assert api.aclrtMemset(scene.device, 64, 0, 64) == 0
    assert scene.release() == 0


@pytest.mark.parametrize("register", [False, True])
def test_pageable_memory_is_copied_in_step(scene: Scene, register: bool) -> None:
    """If host memory is neither pinned nor registered, the call waits for the stream and then copies."""
    if register:
        assert api.aclrtHostRegister(scene.page, 8192, 0, scene.out) == 0
    scene.hold()
    if not register:
        threading.Timer(0.1, scene.gate.set).start()
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.page, 64, H2D, scene.stream) == 0
    assert scene.gate.is_set() == (not register)
    assert scene.release() == 0
    if register:
        assert api.aclrtHostUnregister(scene.page) == 0


def test_the_kind_follows_the_addresses(scene: Scene) -> None:
    write(scene.device, b"d" * 64)
    assert api.aclrtMemcpyAsync(scene.pinned, 64, scene.device, 64, H2D, scene.stream) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert ctypes.string_at(scene.pinned, 64) == b"d" * 64


def test_memory_unmapped_while_its_copy_waits_fails_the_stream(scene: Scene) -> None:
    handle = out()
    assert api.aclrtMallocPhysical(ctypes.byref(handle), 2 << 20, ctypes.byref(scene.prop), 0) == 0
    assert api.aclrtMapMem(scene.free_place, 2 << 20, 0, handle, 0) == 0
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    gate = threading.Event()
    wait = HOST_FUNCTION(lambda _: gate.wait(20) and None)
    assert api.aclrtLaunchHostFunc(stream, ctypes.cast(wait, ctypes.c_void_p), None) == 0
    assert api.aclrtMemcpyAsync(scene.free_place, 64, scene.pinned, 64, H2D, stream) == 0
    assert api.aclrtUnmapMem(scene.free_place) == 0
    gate.set()
    assert api.aclrtSynchronizeStream(stream) == 507013
    api.aclrtDestroyStreamForce(stream)
    assert api.aclrtFreePhysical(handle) == 0


def test_memory_freed_while_its_copy_waits_does_not(scene: Scene) -> None:
    block = out()
    assert api.aclrtMalloc(ctypes.byref(block), 64, 0) == 0
    scene.hold()
    assert api.aclrtMemcpyAsync(block, 64, scene.pinned, 64, H2D, scene.stream) == 0
    assert api.aclrtFree(block) == 0
    assert scene.release() == 0


def test_during_a_capture(scene: Scene) -> None:
    graph = out()
    assert api.aclmdlRICaptureBegin(scene.stream, 0) == 0
    assert api.aclrtMemcpy(scene.device, 64, scene.host, 64, H2D) == 107030
    assert api.aclrtMemset(scene.device, 64, 0, 64) == 107030
    assert api.aclrtMemcpy2d(scene.device, 64, scene.host, 64, 32, 2, H2D) == 107030
    assert api.aclrtMemsetD32(scene.device, 64, 0, 4) == 107030
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.host, 64, H2D, None) == 107041  # pageable memory
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.pinned, 64, H2D, scene.stream) == 0
    api.aclmdlRICaptureEnd(scene.stream, ctypes.byref(graph))
    if graph.value:
        api.aclmdlRIDestroy(graph)


def test_a_captured_copy_runs_with_its_graph(scene: Scene) -> None:
    graph = out()
    ctypes.memset(scene.pinned, 5, 64)
    write(scene.device, b"\0" * 64)
    assert api.aclmdlRICaptureBegin(scene.stream, 2) == 0
    assert api.aclrtMemcpyAsync(scene.device, 64, scene.pinned, 64, H2D, scene.stream) == 0
    assert api.aclmdlRICaptureEnd(scene.stream, ctypes.byref(graph)) == 0
    assert read(scene.device, 64) == b"\0" * 64
    assert api.aclmdlRIExecuteAsync(graph, scene.stream) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert read(scene.device, 64) == b"\5" * 64
    assert api.aclmdlRIDestroy(graph) == 0


# ---- rows, words, batches ----


@pytest.mark.parametrize("asynchronous", [False, True])
def test_rows(scene: Scene, asynchronous: bool) -> None:
    data = bytes(range(256))
    ctypes.memmove(scene.pinned, data, 256)
    ctypes.memset(scene.pinned + 4096, 255, 256)
    tail = ([scene.stream] if asynchronous else [])
    copy = api.aclrtMemcpy2dAsync if asynchronous else api.aclrtMemcpy2d
    assert copy(scene.device, 64, scene.pinned, 32, 16, 8, H2D, *tail) == 0
    assert copy(scene.pinned + 4096, 16, scene.device, 64, 16, 8, D2H, *tail) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    rows = b"".join(data[i * 32: i * 32 + 16] for i in range(8))
    assert ctypes.string_at(scene.pinned + 4096, 256) == rows + b"\xff" * 128


@pytest.mark.parametrize("asynchronous", [False, True])
def test_words(scene: Scene, asynchronous: bool) -> None:
    if asynchronous:
        assert api.aclrtMemsetD32Async(scene.device, 64, 0x12345678, 5, scene.stream) == 0
        assert api.aclrtSynchronizeStream(scene.stream) == 0
    else:
        assert api.aclrtMemsetD32(scene.device, 64, 0x12345678, 5) == 0
    assert read(scene.device, 20) == struct.pack("<5I", *[0x12345678] * 5)


BATCHES = ["aclrtMemcpyBatch", "aclrtMemcpyBatchV2", "aclrtMemcpyBatchAsync", "aclrtMemcpyBatchAsyncV2"]


class Batch:
    """Three copies to the device; the first attribute is for the first copy, the second for the other two."""

    def __init__(self, scene: Scene) -> None:
        self.stream = scene.stream
        self.dsts = array(ctypes.c_void_p, [scene.device, scene.device + 64, scene.other])
        self.srcs = array(ctypes.c_void_p, [scene.pinned, scene.pinned + 64, scene.pinned + 128])
        self.maxs = array(ctypes.c_size_t, [64, 64, 64])
        self.sizes = array(ctypes.c_size_t, [64, 32, 16])
        self.attrs = (BatchAttr * 4)()
        for attr in self.attrs:
            attr.dst, attr.src = Location(0, 1), Location(0, 0)
        self.indexes = array(ctypes.c_size_t, [0, 1, 2, 3])
        self.count, self.attr_count = 3, 2
        self.failed = ctypes.c_size_t(77)

    def run(self, function: str, **change: Any) -> int:
        arguments: dict[str, Any] = {
            "dsts": self.dsts, "maxs": self.maxs, "srcs": self.srcs, "sizes": self.sizes, "count": self.count,
            "attrs": self.attrs, "indexes": self.indexes, "attr_count": self.attr_count,
        }
        if "V2" not in function:
            arguments["failed"] = ctypes.byref(self.failed)
        if "Async" in function:
            arguments["stream"] = self.stream
        arguments.update({name: value for name, value in change.items() if name in arguments})
        return int(getattr(api, function)(*arguments.values()))


@pytest.mark.parametrize("function", BATCHES)
def test_batch_copies(scene: Scene, function: str) -> None:
    ctypes.memmove(scene.pinned, bytes(range(192)), 192)
    batch = Batch(scene)
    assert batch.run(function) == 0, api.aclGetRecentErrMsg()
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert read(scene.device, 96) == bytes(range(96))
    assert read(scene.other, 16) == bytes(range(128, 144))
    assert batch.failed.value == (77 if "V2" in function else SIZE_MAX)


@pytest.mark.parametrize("function", BATCHES)
def test_batch_rules(scene: Scene, function: str) -> None:
    batch = Batch(scene)
    nothing = array(ctypes.c_size_t, [0, 0, 0])
    for name in ("dsts", "maxs", "srcs", "sizes", "attrs", "indexes", "failed"):
        if name != "failed" or "V2" not in function:
            assert batch.run(function, **{name: None}) == 100000, name
    assert batch.run(function, count=0) == 100000
    assert batch.run(function, sizes=nothing, dsts=None, srcs=None, attrs=None, indexes=None) == 0
    assert batch.run(function, maxs=array(ctypes.c_size_t, [64, 31, 64])) == 100000
    assert batch.run(function, attr_count=0) == 107000
    assert batch.run(function, attr_count=4) == 107000
    assert batch.run(function, indexes=array(ctypes.c_size_t, [1, 2])) == 107000
    assert batch.run(function, indexes=array(ctypes.c_size_t, [0, 0])) == 107000
    batch.attrs[1].reserved[15] = 1
    assert batch.run(function) == 100000


@pytest.mark.parametrize("function", BATCHES)
@pytest.mark.parametrize("wrong", ["device", "place", "direction", "past", "null"])
def test_batch_names_the_copy_that_does_not_fit(scene: Scene, function: str, wrong: str) -> None:
    batch = Batch(scene)
    if wrong == "device":
        batch.attrs[1].dst = Location(1, 1)
    elif wrong == "place":
        batch.attrs[1].src = Location(0, 1)
    elif wrong == "direction":
        batch.srcs[1], batch.attrs[1].src = scene.device + 4096, Location(0, 1)
    elif wrong == "past":
        batch.sizes[1] = batch.maxs[1] = 1 << 20
    else:
        batch.dsts[1] = None
    assert batch.run(function) == 107000
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert batch.failed.value == (77 if "V2" in function else 1)


# ---- by pointers, by descriptor ----


def test_copy_through_pointers_that_are_read_when_it_runs(scene: Scene) -> None:
    write(scene.other, bytes(range(64)))
    pointers = scene.device + 4096
    scene.hold()
    assert api.aclrtMemcpyAsyncWithOffset(pointers, 64, 8, pointers + 8, 16, 4, INNER, scene.stream) == 0
    write(pointers, struct.pack("<2Q", scene.device, scene.other))
    assert scene.release() == 0
    assert read(scene.device + 8, 16) == bytes(range(4, 20))


def test_copy_by_descriptor(scene: Scene) -> None:
    size = out(ctypes.c_size_t)
    assert api.aclrtGetMemcpyDescSize(INNER, ctypes.byref(size)) == 0
    desc = scene.device + 8192
    write(scene.other, b"z" * 64)
    assert api.aclrtSetMemcpyDesc(desc, INNER, scene.other, scene.device, 64, None) == 0
    assert api.aclrtMemcpyAsyncWithDesc(desc, INNER, scene.stream) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert read(scene.device, 64) == b"z" * 64


# ---- reductions ----

FLOAT, HALF, INT8, INT32, INT16, UINT32, BF16 = 0, 1, 2, 3, 6, 8, 27
SUM, MAXIMUM, MINIMUM = 10, 11, 12


def bfloat(*values: float) -> bytes:
    return b"".join(struct.pack("<f", v)[2:] for v in values)


@pytest.mark.parametrize(("kind", "kind_results"), [(SUM, 0), (MAXIMUM, 1), (MINIMUM, 2)])
@pytest.mark.parametrize(("data_type", "a", "b", "results"), [
    (FLOAT, struct.pack("<2f", 1.5, -2), struct.pack("<2f", 2, 3), [(3.5, 1), (2, 3), (1.5, -2)]),
    (HALF, struct.pack("<2e", 1.5, -2), struct.pack("<2e", 2, 3), [(3.5, 1), (2, 3), (1.5, -2)]),
    (BF16, bfloat(1.5, -2), bfloat(2, 3), [(3.5, 1), (2, 3), (1.5, -2)]),
    (INT8, struct.pack("<2b", 100, -5), struct.pack("<2b", 100, 3), [(-56, -2), (100, 3), (100, -5)]),
    (INT16, struct.pack("<2h", 7, -5), struct.pack("<2h", 8, 3), [(15, -2), (8, 3), (7, -5)]),
    (INT32, struct.pack("<2i", 7, -5), struct.pack("<2i", 8, 3), [(15, -2), (8, 3), (7, -5)]),
    (UINT32, struct.pack("<2I", 7, 2**32 - 1), struct.pack("<2I", 8, 3), [(15, 2), (8, 2**32 - 1), (7, 3)]),
])
def test_reduce(scene: Scene, kind: int, kind_results: int, data_type: int, a: bytes, b: bytes,
                results: list[tuple[float, float]]) -> None:
    write(scene.device, a)
    write(scene.other, b)
    assert api.aclrtReduceAsync(scene.device, scene.other, len(a), kind, data_type, scene.stream, None) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    formats = {FLOAT: "<2f", HALF: "<2e", INT8: "<2b", INT16: "<2h", INT32: "<2i", UINT32: "<2I"}
    expected = results[kind_results]
    got = read(scene.device, len(a))
    if data_type == BF16:
        assert got == bfloat(*expected)
    else:
        assert struct.unpack(formats[data_type], got) == expected


# ---- caches ----


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_cache_operations_keep_the_bytes(scene: Scene, kind: int) -> None:
    write(scene.device, b"k" * 64)
    desc, size = scene.device + 4096, out(ctypes.c_size_t)
    assert api.aclrtCmoAsync(scene.device, 64, kind, scene.stream) == 0
    assert api.aclrtCmoAsyncWithBarrier(scene.device, 64, kind, 3, scene.stream) == 0
    assert api.aclrtCmoGetDescSize(ctypes.byref(size)) == 0 and size.value > 0
    assert api.aclrtCmoSetDesc(desc, scene.device, 64) == 0
    assert api.aclrtCmoAsyncWithDesc(desc, kind, scene.stream, None) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert read(scene.device, 64) == b"k" * 64
