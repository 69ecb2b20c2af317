"""aclrtRandomNumAsync: distributions, repeatability, and its order in the stream."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from support.calls import api, out

COUNT = 40000
FLOAT, HALF, INT32, UINT32, INT64, UINT64, BF16 = 0, 1, 3, 8, 9, 10, 27
DROPOUT, UNIFORM, NORMAL, TRUNCATED = range(4)
FORMATS = {FLOAT: "<f", HALF: "<e", INT32: "<i", UINT32: "<I", INT64: "<q", UINT64: "<Q"}
ARRAYS = {FLOAT: np.float32, HALF: np.float16, INT32: np.int32, UINT32: np.uint32, INT64: np.int64, UINT64: np.uint64}


class Parameter(ctypes.Structure):
    _fields_ = [("is_address", ctypes.c_uint8), ("value", ctypes.c_uint8 * 8), ("size", ctypes.c_uint8),
                ("rest", ctypes.c_uint8 * 6)]


class Function(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("first", Parameter), ("second", Parameter)]


class Task(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("function", Function), ("workspace", ctypes.c_void_p),
                ("result", ctypes.c_void_p), ("counter", ctypes.c_void_p), ("seed", Parameter), ("count", Parameter),
                ("rest", ctypes.c_uint8 * 8)]


def parameter(data: bytes) -> Parameter:
    made = Parameter(size=len(data))
    ctypes.memmove(made.value, data, len(data))
    return made


class Device:
    """A stream and device memory for a result and a counter."""

    def __init__(self) -> None:
        api.aclInit(None)
        assert api.aclrtSetDevice(0) == 0
        self.stream, self.result, self.counter = out(), out(), out()
        assert api.aclrtCreateStream(ctypes.byref(self.stream)) == 0
        assert api.aclrtMalloc(ctypes.byref(self.result), COUNT * 8, 0) == 0
        assert api.aclrtMalloc(ctypes.byref(self.counter), 16, 0) == 0
        self.rewind()

    def rewind(self) -> None:
        assert api.aclrtMemset(self.counter, 16, 0, 16) == 0

    def task(self, kind: int, type_: int, first: bytes, second: bytes = b"", seed: int = 1, count: int = COUNT) -> Task:
        function = Function(kind, parameter(first), parameter(second))
        return Task(type_, function, None, self.result, self.counter, parameter(struct.pack("<Q", seed)),
                    parameter(struct.pack("<Q", count)))

    def run(self, task: Task) -> np.ndarray:
        assert api.aclrtRandomNumAsync(ctypes.addressof(task), self.stream, None) == 0
        assert api.aclrtSynchronizeStream(self.stream) == 0
        kind = np.uint8 if task.function.kind == DROPOUT else ARRAYS.get(task.type, np.uint16)
        count = struct.unpack("<Q", bytes(task.count.value))[0]
        host = np.zeros(count // 8 if kind is np.uint8 else count, kind)
        assert api.aclrtMemcpy(host.ctypes.data, host.nbytes, self.result, host.nbytes, 2) == 0
        return host

    def close(self) -> None:
        assert api.aclrtDestroyStream(self.stream) == 0
        assert api.aclrtFree(self.result) == 0
        assert api.aclrtFree(self.counter) == 0


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.close()


@pytest.mark.parametrize("type_", [FLOAT, HALF])
def test_uniform_real_numbers_have_the_right_range_and_mean(device: Device, type_: int) -> None:
    pack = FORMATS[type_]
    got = device.run(device.task(UNIFORM, type_, struct.pack(pack, -1), struct.pack(pack, 3))).astype(np.float64)
    assert got.min() >= -1 and got.max() <= 3
    assert abs(got.mean() - 1) < 0.05
    assert abs(got.std() - 4 / 12**0.5) < 0.05


@pytest.mark.parametrize("type_", [INT32, UINT32, INT64, UINT64])
def test_uniform_integers_have_the_right_range(device: Device, type_: int) -> None:
    pack = FORMATS[type_]
    low = -5 if type_ in (INT32, INT64) else 3
    got = device.run(device.task(UNIFORM, type_, struct.pack(pack, low), struct.pack(pack, low + 10)))
    values, counts = np.unique(got, return_counts=True)
    assert list(values) == list(range(low, low + 10))
    assert counts.min() > 0.9 * COUNT / 10


def test_uniform_numbers_of_an_empty_range_are_its_lower_end(device: Device) -> None:
    got = device.run(device.task(UNIFORM, INT32, struct.pack("<i", 7), struct.pack("<i", 7)))
    assert set(got) == {7}


def test_normal_and_truncated_numbers_have_the_right_distribution(device: Device) -> None:
    five, two = struct.pack("<f", 5), struct.pack("<f", 2)
    free = device.run(device.task(NORMAL, FLOAT, five, two))
    assert abs(free.mean() - 5) < 0.05 and abs(free.std() - 2) < 0.05
    assert abs(free - 5).max() > 4
    cut = device.run(device.task(TRUNCATED, FLOAT, five, two))
    assert abs(cut - 5).max() < 4
    assert abs(cut.std() - 2 * 0.8796) < 0.05


def test_bfloat16_is_rounded_to_nearest(device: Device) -> None:
    one, half = b"\x80\x3f", b"\x00\x3f"
    got = device.run(device.task(NORMAL, BF16, one, half)).astype(np.uint32) << 16
    assert abs(got.view(np.float32).astype(np.float64).mean() - 1) < 0.02


def test_dropout_mask_has_the_expected_share_of_set_bits(device: Device) -> None:
    got = device.run(device.task(DROPOUT, FLOAT, struct.pack("<f", 0.4)))
    assert abs(np.unpackbits(got).mean() - 0.6) < 0.02


def test_equal_seed_and_counter_give_equal_random_numbers(device: Device) -> None:
    task = device.task(UNIFORM, FLOAT, struct.pack("<f", 0), struct.pack("<f", 1))
    first = device.run(task)
    onwards = device.run(task)
    device.rewind()
    again = device.run(task)
    assert (first == again).all()
    assert (first != onwards).mean() > 0.99
    device.rewind()
    other = device.run(device.task(UNIFORM, FLOAT, struct.pack("<f", 0), struct.pack("<f", 1), seed=2))
    assert (first != other).mean() > 0.99


def test_parameters_in_device_memory_are_read_in_stream_order(device: Device) -> None:
    where = out()
    assert api.aclrtMalloc(ctypes.byref(where), 64, 0) == 0
    assert api.aclrtMemset(where, 64, 0, 64) == 0
    task = device.task(UNIFORM, INT32, struct.pack("<i", 0), struct.pack("<i", 0))
    for part, offset in ((task.function.first, 0), (task.function.second, 4)):
        part.is_address = 1
        part.size = 8
        ctypes.memmove(part.value, struct.pack("<Q", where.value + offset), 8)
    assert api.aclrtMemsetAsync(where, 4, 1, 4, device.stream) == 0
    got = device.run(task)  # the range 0x01010101 .. 0 is empty, so every number is its lower end
    assert set(got) == {0x01010101}
    assert api.aclrtFree(where) == 0


@pytest.mark.parametrize(
    ("kind", "type_"), [(NORMAL, INT32), (TRUNCATED, UINT64), (DROPOUT, INT32), (UNIFORM, 2), (UNIFORM, 11), (4, FLOAT)]
)
def test_random_numbers_of_an_unsuitable_type_are_refused(device: Device, kind: int, type_: int) -> None:
    task = device.task(kind, type_, b"\0" * 8, b"\0" * 8)
    assert api.aclrtRandomNumAsync(ctypes.addressof(task), device.stream, None) == 107000


@pytest.mark.parametrize("missing", ["result", "counter"])
def test_random_numbers_without_result_or_counter_memory_are_refused(device: Device, missing: str) -> None:
    task = device.task(UNIFORM, FLOAT, b"\0" * 4, b"\0" * 4)
    setattr(task, missing, None)
    assert api.aclrtRandomNumAsync(ctypes.addressof(task), device.stream, None) == 107000
