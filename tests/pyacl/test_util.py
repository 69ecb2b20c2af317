"""`acl.util`: it returns the objects' own addresses, views are not copies, and threads run and end."""

import ctypes
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from support.child import run_python

import acl

# CANN's functions for arrays warn at every call, and so do these.
ARRAYS = pytest.mark.filterwarnings("ignore::Warning")


def test_bytes_to_ptr_returns_the_address_of_the_object() -> None:
    data = bytes(range(16)) * 2
    assert ctypes.string_at(acl.util.bytes_to_ptr(data), 32) == data


def test_bytes_can_be_written_through_their_address() -> None:
    data = bytes(8) + b"tail"
    ctypes.memmove(acl.util.bytes_to_ptr(data), b"written!", 8)
    assert data == b"written!tail"
    assert np.frombuffer(data, np.uint8)[0] == ord("w")


@pytest.mark.parametrize("data", [bytearray(4), memoryview(b"1234"), "text", 7, None])
def test_bytes_to_ptr_takes_only_bytes(data: Any) -> None:
    with pytest.raises(ValueError, match=r"acl\.util\.bytes_to_ptr: expected bytes, got"):
        acl.util.bytes_to_ptr(data)


def test_ptr_to_bytes_copies() -> None:
    array = np.arange(4, dtype=np.uint8)
    copy = acl.util.ptr_to_bytes(array.ctypes.data, 4)
    array[:] = 9
    assert copy == bytes([0, 1, 2, 3])


def test_ptr_to_bytes_of_null_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="expected an address, got 0"):
        acl.util.ptr_to_bytes(0, 4)
    with pytest.raises(ValueError, match="more than an object can hold"):
        acl.util.ptr_to_bytes(1, 2**64 - 1)
    assert acl.util.ptr_to_bytes(0, 0) == b""


@ARRAYS
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32,
                                   np.float64, np.bool_, np.longlong, np.complex64])
def test_ptr_to_numpy_is_a_writable_view(dtype: type) -> None:
    array = np.ones((2, 3), dtype=dtype)
    view = acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (2, 3), np.dtype(dtype).num)
    assert view.dtype == dtype and view.dtype.num == np.dtype(dtype).num
    assert view.shape == (2, 3) and view.flags.writeable and not view.flags.owndata
    view[1, 2] = 0
    assert array[1, 2] == 0


@ARRAYS
def test_numpy_to_ptr_keeps_no_reference() -> None:
    class Array(np.ndarray):
        pass

    array = np.arange(3).view(Array)
    alive = weakref.ref(array)
    assert acl.util.numpy_to_ptr(array) == array.ctypes.data
    del array
    gc.collect()
    assert alive() is None


@ARRAYS
def test_contiguous_arrays_are_not_copied() -> None:
    array = np.arange(6).reshape(2, 3)
    address, same = acl.util.numpy_contiguous_to_ptr(array)
    assert same is array and address == array.ctypes.data
    address, made = acl.util.numpy_contiguous_to_ptr(array.T)
    assert made is not array and made.flags.c_contiguous and address == made.ctypes.data
    assert (made == array.T).all()


def test_array_functions_warn_on_every_call() -> None:
    array = np.arange(4)
    for _ in range(2):
        with pytest.warns(Warning) as caught:
            acl.util.numpy_to_ptr(array)
        assert [w.category for w in caught] == [Warning]
    with pytest.warns(Warning) as caught:
        acl.util.numpy_to_ptr(array[::2])
    assert len(caught) == 2
    with pytest.warns(Warning):
        acl.util.ptr_to_numpy(array.ctypes.data, (4,), 7)
    with pytest.warns(Warning):
        acl.util.numpy_contiguous_to_ptr(array)


@pytest.mark.parametrize("data", [[1, 2], b"12", None, 3])
def test_array_functions_take_only_arrays(data: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a numpy\.ndarray"):
        acl.util.numpy_to_ptr(data)
    with pytest.raises(ValueError, match=r"expected a numpy\.ndarray"):
        acl.util.numpy_contiguous_to_ptr(data)


@pytest.mark.parametrize("arguments", [(64, [2], 1), (64, (2,), 17), (64, (2,), 99), (64, (2,), -1), (0, (2,), 1)])
def test_ptr_to_numpy_refuses_what_is_no_view(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"acl\.util\.ptr_to_numpy"):
        acl.util.ptr_to_numpy(*arguments)


def test_pyacl_thread_runs_its_function_with_the_argument() -> None:
    seen: list[Any] = []
    thread, ret = acl.util.start_thread(lambda given: seen.append((given, threading.get_ident())), [1, "two"])
    assert ret == 0
    assert acl.util.stop_thread(thread) == 0
    assert seen == [([1, "two"], thread)]


def test_a_thread_without_argument_gets_none() -> None:
    seen: list[int] = []
    thread, _ = acl.util.start_thread(lambda: seen.append(1), None)
    assert acl.util.stop_thread(thread) == 0
    assert seen == [1]


def test_stop_thread_raises_what_ended_the_thread() -> None:
    def fail(given: Any) -> None:
        raise KeyError(given)

    thread, _ = acl.util.start_thread(fail, 1)
    with pytest.raises(RuntimeError, match=r"^exception=<class 'KeyError'>,msg=thread call failed;$"):
        acl.util.stop_thread(thread)


def test_stop_thread_called_twice_returns_an_error_code() -> None:
    thread, _ = acl.util.start_thread(lambda: None, None)
    assert acl.util.stop_thread(thread) == 0
    assert acl.util.stop_thread(thread) == 3        # ESRCH


def test_objects_held_by_a_pyacl_thread_are_released() -> None:
    class Given:
        pass

    given = Given()
    alive = weakref.ref(given)
    thread, _ = acl.util.start_thread(lambda g: None, given)
    acl.util.stop_thread(thread)
    del given
    gc.collect()
    assert alive() is None


def test_stop_thread_lets_other_threads_run() -> None:
    gate = threading.Event()
    thread, _ = acl.util.start_thread(lambda: gate.wait(30), None)
    threading.Timer(0.02, gate.set).start()
    assert acl.util.stop_thread(thread) == 0
    assert gate.is_set()


def test_an_abandoned_thread_does_not_keep_the_process() -> None:
    done = run_python("""
        import time, acl
        acl.util.start_thread(lambda given: time.sleep(600), [])
        print("end")
    """, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_ctrl_c_ends_the_wait_for_a_thread() -> None:
    done = run_python("""
        import os, signal, threading, time, acl
        thread, _ = acl.util.start_thread(lambda given: time.sleep(600), [])
        try:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            acl.util.stop_thread(thread)
        except KeyboardInterrupt:
            print("interrupted")
    """, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
