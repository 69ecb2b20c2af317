"""DLPack and array interfaces: buffers given to NumPy and others, or taken from a producer, and their stream order."""

import ctypes
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import acl
import acl.pool._dlpack

DTYPES = ["float32", "float16", "int8", "uint16", "int64", "bool", "complex64", "float64"]


class Header(ctypes.Structure):
    """The fields of DLManagedTensorVersioned up to the strides of the tensor."""

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
    """Forwards the DLPack methods of another object, and keeps the arguments of each call."""

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
    """Wraps a capsule of host memory in an object that NumPy accepts."""

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
    acl.pool._dlpack.marks_drop()
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


def test_host_buffer_has_the_array_interface(no_leaks: None) -> None:
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


def test_capsule_of_device_memory_has_the_fields_of_its_array(pool: acl.Pool) -> None:
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


def test_capsule_keeps_the_memory_of_a_dropped_array(pool: acl.Pool) -> None:
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
def test_from_dlpack_tells_the_producer_our_stream(pool: acl.Pool, legacy: bool) -> None:
    producer = Producer(pool.empty((3,), "float16"), legacy)
    with acl.Stream(0) as stream:
        taken = acl.from_dlpack(producer, stream=stream)
        assert producer.asked[-1]["stream"] == stream.handle
        assert (taken.shape, taken.dtype, taken.buffer.stream) == ((3,), "float16", stream)
        taken.close()
        del taken
    assert len(producer.asked) == 1 + legacy


def test_imported_memory_is_returned_after_the_work_of_our_stream(pool: acl.Pool) -> None:
    """When memory is returned, its producer may use it on other streams at once, so our queued work must be done."""
    with acl.Stream(0) as stream:
        gate, done = threading.Event(), []
        array = pool.empty((1000,), "int8")
        taken = acl.from_dlpack(array.__dlpack__(stream=-1), stream=stream)
        del array
        stream.launch(lambda: (gate.wait(30), done.append(1)))
        assert not done
        address = taken.address
        taken.close()
        other = pool.empty((1000,), "int8")
        assert other.address != address         # `close` did not wait, and the memory is not used again yet
        gate.set()
        stream.synchronize()
        assert done


def test_imported_array_keeps_the_device_of_its_producer(no_leaks: None) -> None:
    with acl.Pool(1) as second, second.empty((4,), "int8") as array:
        acl.Device(0).use()
        with acl.from_dlpack(array) as taken:
            assert taken.buffer.device == 1
            assert taken.__dlpack_device__() == (12, 1)
            assert taken.__npu_array_interface__["device"] == 1


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (7, 7)])
def test_tensor_without_elements_is_imported_with_any_strides(pool: acl.Pool, strides: tuple[int, int]) -> None:
    capsule = pool.empty((3, 2), "int8").__dlpack__(max_version=(1, 0))
    told = header(capsule)
    told.shape[1] = 0
    told.strides[0], told.strides[1] = strides
    taken = acl.from_dlpack(capsule)
    assert (taken.shape, taken.nbytes) == ((3, 0), 0)
    taken.close()


def test_import_refuses_a_tensor_that_is_not_in_row_order(pool: acl.Pool) -> None:
    capsule = pool.empty((3, 2), "int8").__dlpack__(max_version=(1, 0))
    told = header(capsule)
    told.strides[0], told.strides[1] = 1, 3
    with pytest.raises(BufferError, match="must be contiguous, in C's order"):
        acl.from_dlpack(capsule)


@pytest.mark.parametrize(("code", "bits", "lanes"), [(7, 8, 1), (2, 24, 1), (2, 32, 4), (6, 16, 1), (200, 8, 1)])
def test_import_refuses_unknown_element_types(pool: acl.Pool, code: int, bits: int, lanes: int) -> None:
    capsule = pool.empty((3,), "int8").__dlpack__(max_version=(1, 0))
    told = header(capsule)
    told.code, told.bits, told.lanes = code, bits, lanes
    with pytest.raises(BufferError, match=f"code {code}, {bits} bits and {lanes} lanes, must be one of float32"):
        acl.from_dlpack(capsule)


def test_import_refuses_a_read_only_tensor_and_a_later_major_version(pool: acl.Pool) -> None:
    for field, value, text in (("flags", 1, "read-only"), ("major", 2, "DLPack 2 is not known here")):
        capsule = pool.empty((3,), "int8").__dlpack__(max_version=(1, 0))
        setattr(header(capsule), field, value)
        with pytest.raises(BufferError, match=text):
            acl.from_dlpack(capsule)
    assert pool.stats().allocated == 0          # the refused tensors were freed


@pytest.mark.parametrize("source", [5, "tensor", None])
def test_import_of_an_object_that_is_not_a_tensor_names_its_type(source: Any) -> None:
    with pytest.raises(TypeError, match=f"source must have __dlpack__.*, not {type(source).__name__}"):
        acl.from_dlpack(source)


def test_import_refuses_a_tensor_that_is_not_in_npu_memory(no_leaks: None) -> None:
    with pytest.raises(BufferError, match=r"must be an NPU's .device type 12., not of type 1"):
        acl.from_dlpack(numpy.arange(3))


def test_capsule_can_be_imported_only_once(pool: acl.Pool) -> None:
    with pool.empty((5,), "int32") as array:
        capsule = array.__dlpack__()
        taken = acl.from_dlpack(capsule)
        assert (taken.address, taken.shape) == (array.address, (5,))
        with pytest.raises(TypeError, match="a capsule with an unused tensor"):
            acl.from_dlpack(capsule)
        taken.close()
        del capsule, taken


def test_consumer_stream_waits_for_the_work_of_the_exporting_stream(pool: acl.Pool, sim: Any) -> None:
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


def test_memory_given_to_a_consumer_waits_for_its_stream(pool: acl.Pool) -> None:
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


@pytest.mark.parametrize("own", [True, False], ids=["the buffer's stream", "another stream"])
def test_memory_of_the_driver_waits_for_the_consumers_later_work(no_leaks: None, sim: Any, own: bool) -> None:
    """The consumer queues work after the export, and calls the deleter before the work is done."""
    with acl.Stream(0) as ours, acl.Stream(0) as theirs:
        stream = ours if own else theirs
        buffer = acl.Buffer(1000, stream=ours)
        capsule = buffer.__dlpack__(stream=stream.handle)
        stream.synchronize()
        gate = threading.Event()
        stream.launch(gate.wait, 30)
        freed = sim.counters().get("aclrtFree", 0)
        del capsule, buffer
        assert sim.counters().get("aclrtFree", 0) == freed
        gate.set()
        stream.synchronize()
        acl.Buffer(64).close()                  # frees what was dropped before
        assert sim.counters()["aclrtFree"] == freed + 2
    acl.pool._dlpack.marks_drop()


def test_a_copys_memory_waits_for_the_consumers_stream(pool: acl.Pool) -> None:
    with acl.Stream(0) as ours, acl.Stream(0) as theirs:
        pool.register(ours)
        buffer = pool.alloc(1000, ours)
        capsule = buffer.__dlpack__(stream=theirs.handle, copy=True, max_version=(1, 0))
        address = header(capsule).data
        assert address != buffer.address
        gate = threading.Event()
        theirs.launch(gate.wait, 30)
        del capsule
        again = pool.alloc(1000, ours)
        gate.set()
        assert again.address != address
        theirs.synchronize()
        again.close()
        buffer.close()
        del again, buffer
        pool.unregister(ours)


def test_export_of_host_memory_waits_for_queued_copies(no_leaks: None) -> None:
    with acl.Stream(0) as stream, acl.Buffer(64) as device, acl.HostBuffer(64) as host:
        for given, ready in (({"stream": -1}, []), ({}, [1])):
            gate, found = threading.Event(), []
            stream.launch(lambda: (gate.wait(30), found.append(1)))       # noqa: B023
            acl.copy_async(host, device, stream)
            if ready:
                threading.Timer(0.1, gate.set).start()
            capsule = host.__dlpack__(**given)
            assert found == ready
            gate.set()
            del capsule
            stream.synchronize()


def test_the_default_stream_has_the_handle_0(pool: acl.Pool) -> None:
    with acl.Stream(0) as ours:
        gate, done = threading.Event(), []
        ours.launch(lambda: (gate.wait(30), done.append(1)))
        buffer = pool.alloc(1000, ours)
        capsule = buffer.__dlpack__(stream=0)
        assert not done
        gate.set()
        acl.Stream.default().synchronize()
        assert done
        del capsule, buffer
        ours.synchronize()


@pytest.mark.parametrize("part", [False, True])
def test_export_of_a_buffer_waits_for_our_queued_copies(no_leaks: None, part: bool) -> None:
    with acl.Stream(0) as ours, acl.Stream(0) as theirs, acl.HostBuffer(64) as host:
        buffer = acl.Buffer(64)
        given = buffer.view(8, 8) if part else buffer
        for stream in (None, theirs):
            ready: list[int] = []
            ours.launch(lambda: (time.sleep(0.1), ready.append(1)))   # noqa: B023
            acl.copy_async(buffer, host, ours)
            capsule = given.__dlpack__(stream=stream)
            theirs.synchronize()
            assert ready
            del capsule
        del given
        buffer.close()
    acl.pool._dlpack.marks_drop()


def test_export_without_a_consumer_stream_waits_for_our_stream(pool: acl.Pool) -> None:
    with acl.Stream(0) as ours:
        gate, ready = threading.Event(), []
        ours.launch(lambda: (gate.wait(30), ready.append(1)))
        buffer = pool.alloc(1000, ours)
        assert buffer.__dlpack__(stream=-1) and not ready
        threading.Timer(0.1, gate.set).start()
        assert buffer.__dlpack__() and ready
        buffer.close()
        del buffer


def test_export_refuses_other_devices_streams_for_host_memory_and_closed_buffers(pool: acl.Pool) -> None:
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


@pytest.mark.parametrize(("given", "error", "text"), [
    ({"stream": 1}, ValueError, "stream must be a Stream or the handle of one, not 1"),
    ({"stream": 2}, ValueError, "stream must be a Stream or the handle of one, not 2"),
    ({"stream": -2}, ValueError, "stream must be a Stream or the handle of one, not -2"),
    ({"stream": 1 << 64}, ValueError, "stream must be a Stream or the handle of one, not 18446744073709551616"),
    ({"stream": "1"}, TypeError, "stream must be a Stream, a handle or None, not str"),
    ({"stream": True}, TypeError, "stream must be a Stream, a handle or None, not bool"),
    ({"dl_device": 5}, TypeError, "dl_device must be a pair of ints or None, not 5"),
    ({"dl_device": (1, 0, 0)}, TypeError, "dl_device must be a pair of ints or None"),
    ({"max_version": ("1", "0")}, TypeError, r"max_version must be a pair of ints or None, not \('1', '0'\)"),
    ({"copy": "yes"}, TypeError, "copy must be True, False or None, not 'yes'"),
])
def test_export_names_the_argument_that_is_wrong(
    pool: acl.Pool, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pool.alloc(100) as buffer:
        with pytest.raises(error, match=text):
            buffer.__dlpack__(**given)
        with pytest.raises(error, match=text), pool.empty((5,), "int8") as array:
            array.__dlpack__(**given)


def test_export_with_copy_makes_a_copy_in_device_memory(pool: acl.Pool) -> None:
    with pool.alloc(10) as buffer:
        acl.copy(buffer, b"0123456789")
        capsule = buffer.__dlpack__(copy=True, max_version=(1, 0))
        told = header(capsule)
        assert told.data != buffer.address
        assert told.flags == 2
        other = acl.Buffer.from_address(told.data, 10)
        assert acl.to_bytes(other) == b"0123456789"
        del capsule, other


def test_npu_array_interface_describes_arrays_buffers_and_views(pool: acl.Pool) -> None:
    with acl.Stream(0) as stream, pool.empty((2, 5), "float16", stream) as array:
        interface = array.__npu_array_interface__
        assert interface == {
            "shape": (2, 5), "typestr": "<f2", "strides": None, "data": (array.address, False),
            "version": 3, "stream": stream.handle, "device": 0,
        }
        assert array.buffer.__npu_array_interface__["typestr"] == "|u1"
        with array.buffer.view(4, 8) as part:
            assert part.__npu_array_interface__["data"] == (array.address + 4, False)


WRONG_TENSORS = [
    ({"ndim": -1}, "ndim must be from 0 to 64, not -1"),
    ({"ndim": 2**31 - 1}, "ndim must be from 0 to 64"),
    ({"shape": None}, "the tensor must have a shape"),
    ({"shape": (ctypes.c_int64 * 2)(-3, 1)}, r"shape\[0\] must be at least 0, not -3"),
    ({"shape": (ctypes.c_int64 * 2)(1 << 40, 1 << 40)}, r"less than 2\*\*63 bytes"),
    ({"offset": 2**64 - 1}, r"less than 2\*\*63 bytes"),
    ({"device_id": -5}, "device_id must be at least 0, not -5"),
    ({"data": 1}, "data must be the address of device memory, not 0x1"),
    ({"data": None}, "data must be the address of device memory, not 0x0"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG_TENSORS, ids=[text[:24] for _, text in WRONG_TENSORS])
def test_import_refuses_impossible_tensor_headers(pool: acl.Pool, wrong: dict[str, Any], text: str) -> None:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    memory = pool.alloc(16)
    told = Header(major=1, data=memory.address, device_type=12, ndim=2, code=2, bits=32, lanes=1,
                  shape=(ctypes.c_int64 * 2)(2, 2))
    assert acl.from_dlpack(new(ctypes.addressof(told), b"dltensor_versioned", None)).shape == (2, 2)
    for name, value in wrong.items():
        setattr(told, name, value)
    with pytest.raises(BufferError, match=text):
        acl.from_dlpack(new(ctypes.addressof(told), b"dltensor_versioned", None))
