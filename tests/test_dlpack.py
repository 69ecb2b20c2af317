"""DLPack and array interfaces: out to NumPy and others, in from a producer, and in whose order."""

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import acl
import acl._dlpack

DTYPES = ["float32", "float16", "int8", "uint16", "int64", "bool", "complex64", "float64"]


class Header(ctypes.Structure):
    """DLManagedTensorVersioned up to the tensor's strides."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


def header(capsule: Any, name: bytes = b"dltensor_versioned") -> Header:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Header.from_address(get(capsule, name))


class Producer:
    """Forwards another object's DLPack methods, and notes what it was asked."""

    def __init__(self, source: Any, legacy: bool = False) -> None:
        self.source, self.legacy = source, legacy
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.source.__dlpack_device__()

    def __dlpack__(self, **given: Any) -> Any:
        self.asked.append(given)
        if self.legacy and "max_version" in given:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.source.__dlpack__(**given)


class Once:
    """A capsule of host memory, as an object that NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **given: Any) -> Any:
        return self.capsule


@pytest.fixture
def pool(no_leaks: None) -> Iterator[acl.Pool]:
    with acl.Pool(0, limit="64MiB") as made:
        yield made
    del made
    acl._dlpack.marks_drop()
    gc.collect()


def test_numpy_takes_host_memory_without_a_copy(no_leaks: None) -> None:
    host = acl.HostBuffer(64)
    array = numpy.from_dlpack(host)
    array[:] = range(64)
    assert bytes(host) == bytes(range(64))
    assert array.ctypes.data == host.address
    with pytest.raises(BufferError):
        host.close()
    del array
    host.close()


def test_host_memory_is_an_array_to_others(no_leaks: None) -> None:
    with acl.HostBuffer(16) as host:
        interface = host.__array_interface__
        assert (interface["shape"], interface["typestr"]) == ((16,), "|u1")
        assert interface["data"] == (host.address, False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_a_copy_of_device_memory(pool: acl.Pool, dtype: str) -> None:
    content = numpy.arange(24).reshape(2, 3, 4).astype(dtype)
    with pool.empty(content.shape, dtype) as array:
        acl.copy(array.buffer, content)
        capsule = array.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
        assert header(capsule).flags == 2
        taken = numpy.from_dlpack(Once(capsule))
        assert taken.dtype == content.dtype
        assert (taken == content).all()
        del taken, capsule


def test_what_a_device_capsule_says(pool: acl.Pool) -> None:
    with pool.empty((2, 3, 4), "bfloat16") as array:
        assert array.__dlpack_device__() == (12, 0)
        capsule = array.__dlpack__(max_version=(1, 2))
        told = header(capsule)
        assert (told.major, told.flags, told.data) == (1, 0, array.address)
        assert (told.device_type, told.device_id, told.ndim) == (12, 0, 3)
        assert (told.code, told.bits, told.lanes) == (4, 16, 1)
        assert (told.shape[:3], told.strides[:3]) == ([2, 3, 4], [12, 4, 1])
        assert (told.offset, 'name "dltensor"' in repr(capsule)) == (0, False)
        del capsule


def test_a_consumer_of_before_1_0_gets_its_capsule(pool: acl.Pool) -> None:
    buffer = pool.alloc(100)
    for given in ({}, {"max_version": (0, 8)}):
        assert '"dltensor"' in repr(buffer.__dlpack__(**given))
    assert '"dltensor_versioned"' in repr(buffer.__dlpack__(max_version=(1, 0)))


def test_a_capsule_keeps_the_memory(pool: acl.Pool) -> None:
    array = pool.empty((4, 4), "int32")
    content = numpy.arange(16, dtype="int32").reshape(4, 4)
    acl.copy(array.buffer, content)
    taken = acl.from_dlpack(array)
    del array
    gc.collect()
    assert (taken.numpy() == content).all()
    assert pool.stats().allocated > 0
    taken.close()
    assert pool.stats().allocated == 0


@pytest.mark.parametrize("legacy", [False, True])
def test_taking_asks_for_our_stream(pool: acl.Pool, legacy: bool) -> None:
    producer = Producer(pool.empty((3,), "float16"), legacy)
    with acl.Stream(0) as stream:
        taken = acl.from_dlpack(producer, stream=stream)
        assert producer.asked[-1]["stream"] == stream.handle
        assert (taken.shape, taken.dtype, taken.buffer.stream) == ((3,), "float16", stream)
        taken.close()
        del taken
    assert len(producer.asked) == 1 + legacy


def test_taking_refuses_what_is_not_an_npus(no_leaks: None) -> None:
    with pytest.raises(BufferError, match=r"must be an NPU's .device type 12., not of type 1"):
        acl.from_dlpack(numpy.arange(3))


def test_a_capsule_is_taken_once(pool: acl.Pool) -> None:
    with pool.empty((5,), "int32") as array:
        capsule = array.__dlpack__()
        taken = acl.from_dlpack(capsule)
        assert (taken.address, taken.shape) == (array.address, (5,))
        with pytest.raises(TypeError, match="a capsule with an unused tensor"):
            acl.from_dlpack(capsule)
        taken.close()
        del capsule, taken


def test_the_consumers_stream_waits_for_ours(pool: acl.Pool, sim: Any) -> None:
    with acl.Stream(0) as ours, acl.Stream(0) as theirs:
        gate, ready = threading.Event(), []
        ours.launch(lambda: (gate.wait(30), ready.append(1)))
        buffer = pool.alloc(1000, ours)
        capsule = buffer.__dlpack__(stream=theirs.handle)
        assert not ready and not theirs.query()
        gate.set()
        theirs.synchronize()
        assert ready
        del capsule, buffer
        ours.synchronize()


def test_memory_waits_for_the_consumers_stream(pool: acl.Pool) -> None:
    with acl.Stream(0) as ours, acl.Stream(0) as theirs:
        buffer = pool.alloc(1000, ours)
        address = buffer.address
        capsule = buffer.__dlpack__(stream=theirs.handle)
        gate = threading.Event()
        theirs.launch(gate.wait, 30)
        del capsule, buffer
        again = pool.alloc(1000, ours)
        assert again.address != address
        gate.set()
        theirs.synchronize()
        again.close()


@pytest.mark.parametrize("part", [False, True])
def test_copies_of_ours_are_waited_for_too(no_leaks: None, part: bool) -> None:
    with acl.Stream(0) as ours, acl.Stream(0) as theirs, acl.HostBuffer(64) as host:
        buffer = acl.Buffer(64)
        given = buffer.view(8, 8) if part else buffer
        for stream in (None, theirs):
            ready: list[int] = []
            ours.launch(lambda: (__import__("time").sleep(0.1), ready.append(1)))   # noqa: B023
            acl.copy_async(buffer, host, ours)
            capsule = given.__dlpack__(stream=stream)
            theirs.synchronize()
            assert ready
            del capsule
        del given
        buffer.close()
    acl._dlpack.marks_drop()


def test_no_stream_means_ready(pool: acl.Pool) -> None:
    with acl.Stream(0) as ours:
        gate, ready = threading.Event(), []
        ours.launch(lambda: (gate.wait(30), ready.append(1)))
        buffer = pool.alloc(1000, ours)
        assert buffer.__dlpack__(stream=-1) and not ready
        threading.Timer(0.1, gate.set).start()
        assert buffer.__dlpack__() and ready
        buffer.close()
        del buffer


def test_what_is_refused(pool: acl.Pool) -> None:
    buffer = pool.alloc(100)
    with pytest.raises(BufferError, match="copy must not be False"):
        buffer.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"dl_device must be \(1, 0\) or \(12, 0\)"):
        buffer.__dlpack__(dl_device=(2, 0))
    with acl.HostBuffer(8) as host, pytest.raises(BufferError, match="stream must be None"):
        host.__dlpack__(stream=5)
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        buffer.__dlpack__()


def test_a_copy_on_the_device(pool: acl.Pool) -> None:
    with pool.alloc(10) as buffer:
        acl.copy(buffer, b"0123456789")
        capsule = buffer.__dlpack__(copy=True, max_version=(1, 0))
        told = header(capsule)
        assert told.data != buffer.address
        assert told.flags == 2
        other = acl.Buffer.from_address(told.data, 10)
        assert acl.to_bytes(other) == b"0123456789"
        del capsule, other


def test_the_npus_interface(pool: acl.Pool) -> None:
    with acl.Stream(0) as stream, pool.empty((2, 5), "float16", stream) as array:
        interface = array.__npu_array_interface__
        assert interface == {
            "shape": (2, 5), "typestr": "<f2", "strides": None, "data": (array.address, False),
            "version": 3, "stream": stream.handle, "device": 0,
        }
        assert array.buffer.__npu_array_interface__["typestr"] == "|u1"
        with array.buffer.view(4, 8) as part:
            assert part.__npu_array_interface__["data"] == (array.address + 4, False)
