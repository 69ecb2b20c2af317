"""Stream-ordered pools: order, reuse, thresholds, attributes, destruction; and managed memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from support.calls import api, out
from support.memory import GRANULE, Location, MemoryScene, PoolProps, read

from acl import sim

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
MIB = 1 << 20


class Scene(MemoryScene):
    def __init__(self) -> None:
        super().__init__()
        self.second = self.take("aclrtCreateStream", "aclrtDestroyStream")
        self.gate = threading.Event()
        self._wait = HOST_FUNCTION(lambda _: self.gate.wait(20) and None)

    def hold(self) -> None:
        assert api.aclrtLaunchHostFunc(self.stream, ctypes.cast(self._wait, ctypes.c_void_p), None) == 0

    def finish(self) -> None:
        self.gate.set()
        for stream in (self.stream, self.second):
            assert api.aclrtSynchronizeStream(stream) == 0

    def attribute(self, which: int) -> int:
        value = out(ctypes.c_uint64)
        assert api.aclrtMemPoolGetAttr(self.pool, which, ctypes.byref(value)) == 0
        return int(value.value)

    def set_attribute(self, which: int, number: int) -> int:
        return int(api.aclrtMemPoolSetAttr(self.pool, which, ctypes.byref(ctypes.c_uint64(number))))

    def malloc(self, size: int, stream: int) -> int:
        address = out()
        assert api.aclrtMemPoolMallocAsync(ctypes.byref(address), size, self.pool, stream) == 0
        assert address.value is not None
        return int(address.value)

    def free(self, address: int, stream: int) -> int:
        return int(api.aclrtMemPoolFreeAsync(address, stream))

    def close(self) -> None:
        self.gate.set()
        super().close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_sizes_are_whole_granules_and_counted(scene: Scene) -> None:
    start = sim.physical_bytes()
    a, b = scene.malloc(1, scene.stream), scene.malloc(GRANULE + 1, scene.stream)
    assert a % GRANULE == b % GRANULE == 0
    assert [scene.attribute(k) for k in (RESERVED, RESERVED_HIGH, USED, USED_HIGH)] == [3 * GRANULE] * 4
    assert sim.physical_bytes() == start + 3 * GRANULE
    assert scene.free(a, scene.stream) == scene.free(b, scene.stream) == 0
    scene.finish()
    assert [scene.attribute(k) for k in (RESERVED, USED)] == [0, 0]
    assert [scene.attribute(k) for k in (RESERVED_HIGH, USED_HIGH)] == [3 * GRANULE] * 2
    assert scene.set_attribute(RESERVED_HIGH, 0) == scene.set_attribute(USED_HIGH, 0) == 0
    assert [scene.attribute(k) for k in (RESERVED_HIGH, USED_HIGH)] == [0, 0]
    assert sim.physical_bytes() == start


def test_size_zero_leaves_the_pointer(scene: Scene) -> None:
    address = out(ctypes.c_void_p, 0x55)
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(address), 0, scene.pool, scene.stream) == 0
    assert address.value == 0x55


def test_the_same_stream_reuses_at_once_another_waits(scene: Scene) -> None:
    assert scene.set_attribute(THRESHOLD, 64 * MIB) == 0
    first = scene.malloc(100, scene.stream)
    scene.hold()
    assert scene.free(first, scene.stream) == 0
    other = scene.malloc(100, scene.second)
    assert other != first
    again = scene.malloc(100, scene.stream)
    assert again == first
    assert scene.free(again, scene.stream) == scene.free(other, scene.second) == 0
    scene.finish()
    late = scene.malloc(100, scene.second)  # the stream has reached both frees by now
    assert late in (first, other)
    assert scene.free(late, scene.second) == 0
    scene.finish()


def test_bytes_survive_the_free_until_its_place_in_the_stream(scene: Scene) -> None:
    block = scene.malloc(64, scene.stream)
    scene.hold()
    assert api.aclrtMemsetAsync(block, 64, 3, 64, scene.stream) == 0
    assert api.aclrtMemcpyAsync(scene.pinned, 64, block, 64, 2, scene.stream) == 0
    assert scene.free(block, scene.stream) == 0
    scene.finish()
    assert ctypes.string_at(scene.pinned, 64) == b"\3" * 64


def test_the_threshold_keeps_what_is_freed(scene: Scene) -> None:
    assert scene.set_attribute(THRESHOLD, 2 * GRANULE) == 0
    assert scene.attribute(THRESHOLD) == 2 * GRANULE
    blocks = [scene.malloc(GRANULE, scene.stream) for _ in range(4)]
    for block in blocks:
        assert scene.free(block, scene.stream) == 0
    scene.finish()
    assert scene.attribute(RESERVED) == 2 * GRANULE
    assert api.aclrtMemPoolTrimTo(scene.pool, GRANULE) == 0
    assert scene.attribute(RESERVED) == GRANULE
    assert api.aclrtMemPoolTrimTo(scene.pool, 0) == 0
    assert scene.attribute(RESERVED) == 0


def test_trimming_below_what_is_used_is_refused(scene: Scene) -> None:
    block = scene.malloc(GRANULE, scene.stream)
    assert api.aclrtMemPoolTrimTo(scene.pool, 0) == 507000
    assert scene.free(block, scene.stream) == 0
    scene.finish()


def test_a_pool_is_exhausted_at_its_limit_and_recovers(scene: Scene) -> None:
    props = PoolProps(location=Location(0, 1), max_size=3 * GRANULE - 5)
    pool, address = out(), out()
    assert api.aclrtMemPoolCreate(ctypes.byref(pool), ctypes.byref(props)) == 0
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(address), 4 * GRANULE, pool, scene.stream) == 507000
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(address), 2 * GRANULE, pool, scene.stream) == 0
    more = out()
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(more), 2 * GRANULE, pool, scene.stream) == 507000
    assert "the pool has 4194304 of at most 6291456 bytes" in api.aclGetRecentErrMsg().decode()
    assert api.aclrtMemPoolFreeAsync(address, scene.stream) == 0
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(more), 2 * GRANULE, pool, scene.stream) == 0
    assert api.aclrtMemPoolFreeAsync(more, scene.stream) == 0
    scene.finish()
    assert api.aclrtMemPoolDestroy(pool) == 0
    assert api.aclrtMemPoolDestroy(pool) == 507000


def test_freeing_twice_or_inside_is_refused(scene: Scene) -> None:
    block = scene.malloc(4096, scene.stream)
    scene.hold()
    assert scene.free(block + 512, scene.stream) == 107000
    assert scene.free(block, scene.stream) == 0
    assert scene.free(block, scene.stream) == 107000
    assert api.aclrtFree(block) == 107000
    scene.finish()


def test_aclrt_free_gives_back_at_once(scene: Scene) -> None:
    block = scene.malloc(4096, scene.stream)
    assert api.aclrtFree(block) == 0
    assert scene.attribute(RESERVED) == 0
    assert api.aclrtFree(block) == 107000


def test_free_async_of_plain_memory_frees_in_stream_order(scene: Scene) -> None:
    plain = out()
    assert api.aclrtMalloc(ctypes.byref(plain), 64, 0) == 0
    scene.hold()
    assert scene.free(plain.value, scene.stream) == 0
    assert api.aclrtMemset(plain, 64, 1, 64) == 0  # the stream has not reached the free
    scene.finish()
    assert api.aclrtFree(plain) == 107000


def test_a_pool_that_ends_first(scene: Scene) -> None:
    start, pool, address = sim.physical_bytes(), out(), out()
    assert api.aclrtMemPoolCreate(ctypes.byref(pool), ctypes.byref(scene.pool_props)) == 0
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(address), 64, pool, scene.stream) == 0
    assert api.aclrtMemPoolDestroy(pool) == 0
    assert api.aclrtMemset(address, 64, 4, 64) == 0
    assert read(address.value, 64) == b"\4" * 64
    assert api.aclrtMemPoolMallocAsync(ctypes.byref(out()), 64, pool, scene.stream) == 507000
    assert scene.free(address.value, scene.stream) == 0
    scene.finish()
    assert sim.physical_bytes() == start


# ---- managed memory ----


def location(kind: int, number: int = 0) -> int:
    """Return an aclrtMemManagedLocation as an integer, because it is passed in one register."""
    return kind | (number & 0xFFFFFFFF) << 32


def told(scene: Scene, attribute: int, count: int = 1) -> list[int]:
    values = (ctypes.c_int32 * count)()
    size = ctypes.sizeof(values)
    assert api.aclrtMemManagedGetAttr(attribute, scene.managed + 100, 64, ctypes.addressof(values), size) == 0
    return list(values)


def test_managed_memory_is_of_both_sides(scene: Scene) -> None:
    ctypes.memset(scene.managed, 6, 64)
    assert api.aclrtMemcpy(scene.device, 64, scene.managed, 64, 4) == 0
    assert read(scene.device, 64) == b"\6" * 64
    assert api.aclrtMemsetAsync(scene.managed, 64, 7, 64, scene.stream) == 0
    scene.finish()
    assert ctypes.string_at(scene.managed, 64) == b"\7" * 64


def test_managed_memory_remembers_advice(scene: Scene) -> None:
    def advise(what: int, where: int = location(1)) -> None:
        assert api.aclrtMemManagedAdvise(scene.managed, 4096, what, where) == 0

    assert [told(scene, k)[0] for k in (1, 2, 4, 5, 6, 7, 8)] == [0, -2, 0, -2, -2, 0, -2]
    advise(0)
    advise(2, location(1, 1))
    advise(4, location(2))
    advise(4, location(1, 1))
    assert [told(scene, k)[0] for k in (1, 2, 4, 5)] == [1, 1, 1, 1]
    assert told(scene, 3, 4) == [-1, 1, -2, -2]
    advise(1)
    advise(3)
    advise(5, location(2))
    assert [told(scene, k)[0] for k in (1, 2)] == [0, -2]
    assert told(scene, 3, 2) == [1, -2]


def test_managed_memory_remembers_prefetches_in_stream_order(scene: Scene) -> None:
    scene.hold()
    assert api.aclrtMemManagedPrefetchAsync(scene.managed, 4096, location(1, 1), 0, scene.stream) == 0
    assert told(scene, 6) == [-2]
    scene.finish()
    assert [told(scene, k)[0] for k in (6, 7, 8)] == [1, 1, 1]
    assert api.aclrtMemManagedPrefetchAsync(scene.managed, 4096, location(2), 0, scene.stream) == 0
    scene.finish()
    assert told(scene, 6) == [-1]


def test_managed_batches(scene: Scene) -> None:
    pointers = (ctypes.c_void_p * 2)(scene.managed, scene.managed + 4096)
    sizes, locations, indexes = (ctypes.c_size_t * 2)(64, 64), (ctypes.c_int32 * 2)(1, 1), (ctypes.c_size_t * 1)(0)
    assert api.aclrtMemManagedPrefetchBatchAsync(
        ctypes.addressof(pointers), ctypes.addressof(sizes), 2, ctypes.addressof(locations),
        ctypes.addressof(indexes), 1, 0, scene.stream) == 0
    scene.finish()
    kinds, values = (ctypes.c_int * 2)(6, 7), (ctypes.c_int32 * 2)()
    places = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 4)
    lengths = (ctypes.c_size_t * 2)(4, 4)
    assert api.aclrtMemManagedGetAttrs(ctypes.addressof(kinds), 2, scene.managed, 64, ctypes.addressof(places),
                                       ctypes.addressof(lengths)) == 0
    assert list(values) == [1, 1]


def test_a_long_block_is_split_for_a_short_request(scene: Scene) -> None:
    assert scene.set_attribute(THRESHOLD, 64 * MIB) == 0
    scene.hold()
    long = scene.malloc(64 * MIB, scene.stream)
    assert scene.free(long, scene.stream) == 0
    short = scene.malloc(2 * MIB, scene.stream)
    assert (scene.attribute(USED), scene.attribute(RESERVED)) == (2 * MIB, 64 * MIB)
    rest = scene.malloc(62 * MIB, scene.stream)  # the stream has not reached the free: no other stream may do so
    assert (scene.attribute(USED), scene.attribute(RESERVED)) == (64 * MIB, 64 * MIB)
    assert {short, rest} == {long, long + 2 * MIB}
    assert scene.free(rest, scene.stream) == scene.free(short, scene.stream) == 0
    scene.finish()
    assert (scene.attribute(USED), scene.attribute(RESERVED)) == (0, 64 * MIB)
    assert scene.malloc(62 * MIB, scene.second) == rest
    assert scene.free(rest, scene.second) == 0
    assert api.aclrtSynchronizeStream(scene.second) == 0
    assert api.aclrtMemPoolTrimTo(scene.pool, 0) == 0
    assert scene.attribute(RESERVED) == 0
