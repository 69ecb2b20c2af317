"""Kernels in shared objects for the host run block by block; a fault of a kernel makes only its stream fail.

The argument rules for which the real runtime's answers are known are in the probes (test_probes.py).  These
tests check results, layouts, and kernels that crash or do not end.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.child import run_child, run_python
from support.models import device_array, sim_message

from acl import sim

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "acl/include"
EXTRA = """
#include <string.h>
#include "acl_sim_kernel.h"

ACL_SIM_KERNEL(mark) { ((uint32_t **)args)[0][block] = blocks * 1000 + block; }
ACL_SIM_KERNEL(add_one) { ++*((uint64_t **)args)[0]; }
ACL_SIM_KERNEL(layout) { memcpy(*(void **)args, args, 40); }
ACL_SIM_KERNEL_PARAMS(layout, 8, 1, 4, 2, 8);
ACL_SIM_KERNEL(crash) { *(volatile int *)(uintptr_t)16 = 1; }
ACL_SIM_KERNEL(spin) { for (;;) { __asm__ volatile(""); } }
ACL_SIM_KERNEL(divide) { volatile int zero = 0, one = 1; *(volatile int *)args = one / zero; }
const uint32_t table[4] = {1, 2, 3, 4};
"""


P = ctypes.c_void_p


class Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint32) for axis in "xyz"]


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("value", ctypes.c_uint32 * 4)]


class Config(ctypes.Structure):
    _fields_ = [("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_size_t)]


def timeout_us(value: int) -> Config:
    attribute = Attribute(8, (ctypes.c_uint32 * 4)(value, 0, 0, 0))
    return Config(ctypes.pointer(attribute), 1)


@pytest.fixture(scope="session")
def shared_object(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "extra.c").write_text(textwrap.dedent(EXTRA))
    sources = [folder / "extra.c", *(ROOT / "examples/kernels").glob("*.c")]
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wno-div-by-zero", f"-I{INCLUDE}", "-o", folder / "k.so"]
    subprocess.run([*map(str, [*command, *sources])], check=True)
    return (folder / "k.so").read_bytes()


class Kernels:
    """A loaded kernel binary and a stream."""

    def __init__(self, data: bytes) -> None:
        self.binary, self.stream = out(), out()
        assert api.aclrtBinaryLoadFromData(data, len(data), None, ctypes.byref(self.binary)) == 0, sim_message()
        assert api.aclrtCreateStream(ctypes.byref(self.stream)) == 0

    def __getitem__(self, name: str) -> int:
        function = out()
        assert api.aclrtBinaryGetFunction(self.binary, name.encode(), ctypes.byref(function)) == 0, sim_message()
        value: int = function.value
        return value

    def host(self, name: str, blocks: int, args: bytes, config: Config | None = None) -> int:
        """Launch a kernel with host arguments and wait. Return the status of the wait."""
        cfg = ctypes.byref(config) if config is not None else None
        status: int = api.aclrtLaunchKernelWithHostArgs(self[name], blocks, self.stream, cfg, args, len(args), None, 0)
        assert status == 0, sim_message()
        waited: int = api.aclrtSynchronizeStream(self.stream)
        return waited


@pytest.fixture
def kernels(shared_object: bytes) -> Iterator[Kernels]:
    assert api.aclInit(None) in (0, 100002)
    assert api.aclrtSetDevice(0) == 0
    made = Kernels(shared_object)
    yield made
    assert api.aclrtDestroyStream(made.stream) == 0
    api.aclrtBinaryUnLoad(made.binary)


def fetch(address: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    array = np.empty(count, dtype)
    assert api.aclrtMemcpy(array.ctypes.data, array.nbytes, address, array.nbytes, 2) == 0
    return array


def test_kernel_binaries_are_loaded_as_separate_libraries(kernels: Kernels, shared_object: bytes) -> None:
    other = Kernels(shared_object)
    places = []
    for binary in (kernels.binary, other.binary):
        address = out()
        assert api.aclrtBinaryGetGlobal(binary, b"table", ctypes.byref(address), None) == 0
        places.append(address.value)
    assert places[0] != places[1], "each has variables of its own"
    assert api.aclrtBinaryUnLoad(other.binary) == 0
    assert api.aclrtDestroyStream(other.stream) == 0


def test_kernel_blocks_each_run_once(kernels: Kernels) -> None:
    marks = device_array(np.zeros(300, np.uint32))
    assert kernels.host("mark", 300, struct.pack("Q", marks)) == 0
    np.testing.assert_array_equal(fetch(marks, 300, "uint32"), 300 * 1000 + np.arange(300))


def test_kernel_blocks_each_run_once_with_four_threads(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_THREADS", "4")
    test_kernel_blocks_each_run_once(kernels)


def test_kernel_launch_of_no_blocks_is_refused(kernels: Kernels) -> None:
    """A launch of no blocks is refused before anything is queued: by the runtime, or by ACL if ACL checks first."""
    marks = device_array(np.zeros(1, np.uint32))
    args = struct.pack("Q", marks)
    device, function, stream = device_array(np.frombuffer(args, np.uint8)), kernels["mark"], kernels.stream
    value = ctypes.c_uint64(marks)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    codes = [
        api.aclrtLaunchKernel(function, 0, device, 8, stream),
        api.aclrtLaunchKernelV2(function, 0, device, 8, None, stream),
        api.aclrtLaunchKernelWithHostArgs(function, 0, stream, None, args, 8, None, 0),
        api.aclrtLaunchKernelWithArgsArray(function, 0, stream, None, pointers),
    ]
    assert codes == [107000, 107000, 107000, 100000]
    assert api.aclrtSynchronizeStream(stream) == 0
    assert fetch(marks, 1, "uint32")[0] == 0


def test_vector_add_kernel_takes_arguments_from_device_memory(kernels: Kernels) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.random(5001).astype(np.float32) for _ in range(2))
    result = device_array(np.zeros(5001, np.float32))
    packed = np.frombuffer(struct.pack("QQQI", device_array(a), device_array(b), result, 5001), np.uint8)
    args = device_array(packed)
    for launch in (
        lambda: api.aclrtLaunchKernel(kernels["vector_add"], 4, args, packed.nbytes, kernels.stream),
        lambda: api.aclrtLaunchKernelV2(kernels["vector_add"], 7, args, packed.nbytes, None, kernels.stream),
    ):
        assert api.aclrtMemset(result, 5001 * 4, 0, 5001 * 4) == 0
        assert launch() == 0
        assert api.aclrtSynchronizeStream(kernels.stream) == 0
        np.testing.assert_array_equal(fetch(result, 5001, "float32"), a + b)


def test_tiled_matmul_kernel_takes_an_array_of_arguments(kernels: Kernels) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((70, 33)).astype(np.float32), rng.random((33, 45)).astype(np.float32)
    result = device_array(np.zeros((70, 45), np.float32))
    values = [ctypes.c_uint64(device_array(a)), ctypes.c_uint64(device_array(b)), ctypes.c_uint64(result)]
    sizes = [ctypes.c_uint32(n) for n in (70, 45, 33)]
    array = (ctypes.c_void_p * 6)(*(ctypes.addressof(v) for v in (*values, *sizes)))
    assert api.aclrtLaunchKernelWithArgsArray(kernels["tiled_matmul"], 3, kernels.stream, None, array) == 0, (
        sim_message()
    )
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    np.testing.assert_allclose(fetch(result, 70 * 45, "float32").reshape(70, 45), a @ b, rtol=1e-5)


def test_kernel_launches_keep_the_order_of_the_stream(kernels: Kernels) -> None:
    counter, copy = device_array(np.zeros(1, np.uint64)), device_array(np.zeros(100, np.uint64))
    args = struct.pack("Q", counter)
    for i in range(100):
        status = api.aclrtLaunchKernelWithHostArgs(kernels["add_one"], 1, kernels.stream, None, args, 8, None, 0)
        assert status == 0
        assert api.aclrtMemcpyAsync(copy + 8 * i, 8, counter, 8, 3, kernels.stream) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    np.testing.assert_array_equal(fetch(copy, 100, "uint64"), np.arange(1, 101))


def test_host_arguments_are_copied_and_placeholders_filled(kernels: Kernels) -> None:
    result = device_array(np.zeros(5, np.uint64))
    args = (ctypes.c_uint64 * 5)(result, 11, 0, 33, 44)
    place = (ctypes.c_uint32 * 2)(16, 24)  # in bytes: the third word is a pointer to the fourth
    launched = api.aclrtLaunchKernelWithHostArgs(kernels["layout"], 1, kernels.stream, None, args, 40, place, 1)
    args[1] = 99
    assert launched == 0 and api.aclrtSynchronizeStream(kernels.stream) == 0
    seen = fetch(result, 5, "uint64")
    assert list(seen[[0, 1, 3, 4]]) == [result, 11, 33, 44]
    assert seen[2] != 0


def test_appended_arguments_lie_as_in_a_struct(kernels: Kernels) -> None:
    result, handle = device_array(np.zeros(40, np.uint8)), out()
    function = kernels["layout"]
    assert api.aclrtKernelArgsInit(function, ctypes.byref(handle)) == 0
    params = []
    for value in (
        ctypes.c_uint64(result),
        ctypes.c_uint8(5),
        ctypes.c_uint32(6),
        ctypes.c_uint16(7),
        ctypes.c_uint64(8),
    ):
        param = out()
        assert api.aclrtKernelArgsAppend(handle, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(param)) == 0
        params.append(param)
    assert api.aclrtKernelArgsFinalize(handle) == 0
    assert api.aclrtLaunchKernelWithConfig(function, 1, kernels.stream, None, handle, None) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert fetch(result, 32, "uint8").tobytes() == struct.pack("QB3xIH6xQ", result, 5, 6, 7, 8)
    changed = ctypes.c_uint32(60)
    assert api.aclrtKernelArgsParaUpdate(handle, params[2], ctypes.byref(changed), 4) == 0
    assert api.aclrtKernelArgsAppend(handle, ctypes.byref(changed), 4, ctypes.byref(param)) == 207000, "fixed"
    unfinalized = api.aclrtLaunchKernelWithConfig(function, 1, kernels.stream, None, handle, None)
    assert unfinalized == 107000, "an update wants Finalize again"
    assert api.aclrtKernelArgsFinalize(handle) == 0
    assert api.aclrtLaunchKernelWithConfig(function, 1, kernels.stream, None, handle, None) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert fetch(result, 32, "uint8").tobytes() == struct.pack("QB3xIH6xQ", result, 5, 60, 7, 8)


def test_finalized_arguments_take_no_buffer(kernels: Kernels) -> None:
    handle, place, plain, buffer = out(), out(), out(), out()
    value = ctypes.c_uint64(1)
    assert api.aclrtKernelArgsInit(kernels["layout"], ctypes.byref(handle)) == 0
    assert api.aclrtKernelArgsAppend(handle, ctypes.byref(value), 8, ctypes.byref(plain)) == 0
    assert api.aclrtKernelArgsAppendPlaceHolder(handle, ctypes.byref(place)) == 0
    assert api.aclrtKernelArgsFinalize(handle) == 0
    assert api.aclrtKernelArgsGetPlaceHolderBuffer(handle, place, 8, ctypes.byref(buffer)) == 207000
    assert api.aclrtKernelArgsGetPlaceHolderBuffer(handle, plain, 8, ctypes.byref(buffer)) == 107000
    garbage = ctypes.create_string_buffer(256)
    assert api.aclrtKernelArgsParaUpdate(handle, garbage, ctypes.byref(value), 8) == 107017
    assert api.aclrtKernelArgsParaUpdate(handle, place, ctypes.byref(value), 8) == 107000


def test_a_thread_has_one_handle_of_arguments(kernels: Kernels) -> None:
    """A second Init, even for another function, returns the same handle without arguments; each thread has one."""
    first, second, param, buffer = out(), out(), out(), out()
    elsewhere: list[int | None] = []
    function = kernels["mark"]

    def work() -> None:
        handle = out()
        assert api.aclrtKernelArgsInit(function, ctypes.byref(handle)) == 0
        elsewhere.append(handle.value)

    result = device_array(np.zeros(4, np.uint32))
    value = ctypes.c_uint64(result)
    assert api.aclrtKernelArgsInit(kernels["layout"], ctypes.byref(first)) == 0
    assert api.aclrtKernelArgsAppend(first, ctypes.byref(value), 8, ctypes.byref(param)) == 0
    assert api.aclrtKernelArgsFinalize(first) == 0
    assert api.aclrtKernelArgsInit(kernels["mark"], ctypes.byref(second)) == 0
    assert second.value == first.value
    assert api.aclrtKernelArgsGetPlaceHolderBuffer(first, param, 8, ctypes.byref(buffer)) == 107017, "it is gone"
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert elsewhere[0] not in (None, first.value)
    assert api.aclrtKernelArgsAppend(second, ctypes.byref(value), 8, ctypes.byref(param)) == 0
    assert api.aclrtKernelArgsFinalize(second) == 0
    assert api.aclrtLaunchKernelWithConfig(kernels["mark"], 4, kernels.stream, None, second, None) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert list(fetch(result, 4, "uint32")) == [4000, 4001, 4002, 4003]


def test_a_handle_that_died_with_its_binary_is_followed_by_a_new_one(
    kernels: Kernels, shared_object: bytes
) -> None:
    other, handle = Kernels(shared_object), out()
    assert api.aclrtKernelArgsInit(other["mark"], ctypes.byref(handle)) == 0
    assert api.aclrtDestroyStream(other.stream) == 0
    assert api.aclrtBinaryUnLoad(other.binary) == 0
    assert api.aclrtKernelArgsFinalize(handle) == 107017
    assert api.aclrtKernelArgsInit(kernels["mark"], ctypes.byref(handle)) == 0
    assert api.aclrtKernelArgsFinalize(handle) == 0


@pytest.mark.parametrize("option", [(2, 0x43554245), (3, 0), (3, 1), (3, 2)])
def test_kernel_binary_from_a_file_refuses_options_for_binaries_from_memory(
    option: tuple[int, int], shared_object: bytes, tmp_path: Path
) -> None:
    class Option(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("value", ctypes.c_uint32 * 4)]

    class Options(ctypes.Structure):
        _fields_ = [("options", ctypes.POINTER(Option)), ("count", ctypes.c_size_t)]

    (tmp_path / "kernels.so").write_bytes(shared_object)
    path, handle = str(tmp_path / "kernels.so").encode(), out()
    for (kind, value), code in ((option, 107000), ((1, 0), 0)):
        one = Option(kind, (ctypes.c_uint32 * 4)(value))
        options = Options(ctypes.pointer(one), 1)
        assert api.aclrtBinaryLoadFromFile(path, ctypes.byref(options), ctypes.byref(handle)) == code
    assert api.aclrtBinaryUnLoad(handle) == 0


def test_kernels_of_threads_are_checked_and_refused(kernels: Kernels) -> None:
    one, args, function = Dim3(1, 1, 1), (ctypes.c_void_p * 1)(), kernels["mark"]
    library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    array, host = library.aclrtLaunchSIMTKernelWithArgsArray, library.aclrtLaunchSIMTKernelWithHostArgs
    array.argtypes = [P, Dim3, Dim3, ctypes.c_size_t, P, P, P]
    host.argtypes = [*array.argtypes, ctypes.c_size_t, P, ctypes.c_size_t]
    assert array(None, one, one, 0, kernels.stream, None, args) == 100000
    assert array(function, one, one, 0, kernels.stream, None, None) == 100000
    assert array(4096, one, one, 0, kernels.stream, None, args) == 107017
    assert array(function, one, one, 0, 4096, None, args) == 107017
    assert array(function, one, one, 0, kernels.stream, None, args) == 107000
    assert host(None, one, one, 0, kernels.stream, None, args, 8, None, 0) == 100000
    assert host(function, one, one, 0, kernels.stream, None, None, 8, None, 0) == 100000
    assert host(function, one, one, 0, kernels.stream, None, args, 0, None, 0) == 100000
    assert host(function, one, one, 0, kernels.stream, None, args, 8, None, 1) == 100000
    assert host(function, one, one, 0, kernels.stream, None, args, 8, None, 0) == 107000


def test_the_users_memory_serves_functions_of_one_binary_after_another(
    kernels: Kernels, shared_object: bytes
) -> None:
    other, result, param = Kernels(shared_object), device_array(np.zeros(4, np.uint32)), out()
    size, room = out(ctypes.c_size_t), out(ctypes.c_size_t)
    assert api.aclrtKernelArgsGetHandleMemSize(kernels["mark"], ctypes.byref(size)) == 0
    assert api.aclrtKernelArgsGetMemSize(kernels["mark"], 8, ctypes.byref(room)) == 0
    handle, memory = ctypes.create_string_buffer(size.value), ctypes.create_string_buffer(room.value)
    value = ctypes.c_uint64(result)
    for function in (other["mark"], kernels["mark"]):
        assert api.aclrtKernelArgsInitByUserMem(function, handle, memory, room) == 0
        assert api.aclrtKernelArgsAppend(handle, ctypes.byref(value), 8, ctypes.byref(param)) == 0
        assert api.aclrtKernelArgsFinalize(handle) == 0
    assert api.aclrtDestroyStream(other.stream) == 0
    assert api.aclrtBinaryUnLoad(other.binary) == 0
    assert api.aclrtLaunchKernelWithConfig(kernels["mark"], 4, kernels.stream, None, handle, None) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert list(fetch(result, 4, "uint32")) == [4000, 4001, 4002, 4003]


def test_handles_are_looked_at_before_the_configuration(kernels: Kernels) -> None:
    bad, function, dead = Config(None, 1), kernels["mark"], ctypes.c_void_p(0x1234)
    launch = api.aclrtLaunchKernelWithConfig
    assert launch(function, 1, kernels.stream, ctypes.byref(bad), dead, None) == 107017
    handle = out()
    assert api.aclrtKernelArgsInit(function, ctypes.byref(handle)) == 0
    assert launch(function, 1, kernels.stream, ctypes.byref(bad), handle, None) == 107000


def test_kernel_functions_report_their_parameters(kernels: Kernels) -> None:
    count, offset, size = (out(ctypes.c_size_t) for _ in range(3))
    assert api.aclrtFunctionGetParamCount(kernels["layout"], ctypes.byref(count)) == 0
    places = []
    for i in range(count.value):
        assert api.aclrtFunctionGetParamInfo(kernels["layout"], i, ctypes.byref(offset), ctypes.byref(size)) == 0
        places.append((offset.value, size.value))
    assert places == [(0, 8), (8, 1), (12, 4), (16, 2), (24, 8)]
    assert api.aclrtFunctionGetParamCount(kernels["mark"], ctypes.byref(count)) == 107000, "it does not say"


def test_globals_are_found_with_their_size(kernels: Kernels) -> None:
    address, size = out(), out(ctypes.c_size_t)
    assert api.aclrtBinaryGetGlobal(kernels.binary, b"table", ctypes.byref(address), ctypes.byref(size)) == 0
    assert size.value == 16
    assert list((ctypes.c_uint32 * 4).from_address(address.value)) == [1, 2, 3, 4]


@pytest.mark.parametrize(("name", "limit_us", "code", "words"), [
    ("crash", 60_000_000, 507015, "ended by signal 11"), ("divide", 60_000_000, 507015, "ended by signal 8"),
    ("spin", 30_000, 507014, "did not end in 30000 us"),
])
def test_crash_or_timeout_of_a_kernel_is_an_error_of_its_stream_only(
    kernels: Kernels, name: str, limit_us: int, code: int, words: str
) -> None:
    assert kernels.host(name, 2, bytes(16), timeout_us(limit_us)) == code
    assert words in sim_message().splitlines()[0], "whoever waits is told why"
    marks, other = device_array(np.zeros(4, np.uint32)), out()
    assert api.aclrtCreateStream(ctypes.byref(other)) == 0
    args = struct.pack("Q", marks)
    assert api.aclrtLaunchKernelWithHostArgs(kernels["mark"], 4, other, None, args, 8, None, 0) == 0
    assert api.aclrtSynchronizeStream(other) == 0
    assert fetch(marks, 1, "uint32")[0] == 4000
    assert api.aclrtDestroyStream(other) == 0


RING = """
    import ctypes, os, sys
    from support.calls import api, out
    libc = ctypes.CDLL(None)
    api.aclInit(None)
    api.aclrtSetDevice(0)
    data = open(os.environ["KERNELS"], "rb").read()
    binary, stream, function = out(), out(), out()
    assert api.aclrtBinaryLoadFromData(data, len(data), None, ctypes.byref(binary)) == 0
    assert api.aclrtBinaryGetFunction(binary, b"mark", ctypes.byref(function)) == 0
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    memory = out()
    assert api.aclrtMalloc(ctypes.byref(memory), 64, 0) == 0

    def launch():
        words = memory.value.to_bytes(8, "little")
        assert api.aclrtLaunchKernelWithHostArgs(function, 1, stream, None, words, 8, None, 0) == 0
        assert api.aclrtSynchronizeStream(stream) == 0

    def action():
        found = (ctypes.c_char * 256)()
        assert libc.sigaction(11, None, found) == 0
        return bytes(found)[:8]

    before = action()
    launch()
    print(action() == before)
    import faulthandler
    faulthandler.enable()
    launch()
    launch()
    sys.stdout.flush()
    ctypes.string_at(8)
"""


@pytest.mark.release_only      # a sanitizer has its own signal handler
def test_a_handler_of_signals_does_not_outlive_its_kernel(shared_object: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.so").write_bytes(shared_object)
    done = run_python(RING, timeout=60, KERNELS=str(tmp_path / "k.so"))
    assert done.returncode == -11
    assert done.stdout == "True\n"
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1


def test_exception_callback_is_called_for_a_kernel_fault(kernels: Kernels) -> None:
    told: list[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    callback = kind(lambda info, data: told.append(api.aclrtGetErrorCodeFromExceptionInfo(info)))
    as_pointer = ctypes.cast(callback, ctypes.c_void_p)
    assert api.aclrtBinarySetExceptionCallback(kernels.binary, as_pointer, None) == 0
    assert kernels.host("crash", 1, bytes(8)) == 507015
    assert told == [507015]


def test_unloading_a_kernel_binary_does_not_wait_and_queued_launches_still_run(kernels: Kernels) -> None:
    marks = device_array(np.zeros(4, np.uint32))
    opened = threading.Event()
    gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: opened.wait(30) and None)
    assert api.aclrtLaunchHostFunc(kernels.stream, ctypes.cast(gate, ctypes.c_void_p), None) == 0
    args, function = struct.pack("Q", marks), kernels["mark"]
    assert api.aclrtLaunchKernelWithHostArgs(function, 4, kernels.stream, None, args, 8, None, 0) == 0
    assert api.aclrtBinaryUnLoad(kernels.binary) == 0
    assert api.aclrtLaunchKernelWithHostArgs(function, 4, kernels.stream, None, args, 8, None, 0) == 107017
    opened.set()
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert fetch(marks, 4, "uint32")[3] == 4003


def test_python_function_can_be_a_kernel(kernels: Kernels) -> None:
    seen: list[tuple[int, int, int]] = []

    def work(args: int, block: int, blocks: int) -> None:
        seen.append((ctypes.c_uint32.from_address(args).value, block, blocks))

    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
    callback, binary, function = kind(work), out(), out()
    library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    made = library.acl_sim_kernel_make(b"work", callback, None, ctypes.byref(binary), ctypes.byref(function))
    assert made == 0
    args = struct.pack("I", 42)
    assert api.aclrtLaunchKernelWithHostArgs(function, 3, kernels.stream, None, args, 4, None, 0) == 0
    assert api.aclrtSynchronizeStream(kernels.stream) == 0
    assert seen == [(42, block, 3) for block in range(3)]
    assert api.aclrtBinaryUnLoad(binary) == 0


def test_kernel_arguments_freed_before_the_run_are_an_error(kernels: Kernels) -> None:
    args = device_array(np.zeros(2, np.uint64))
    opened = threading.Event()
    gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: opened.wait(30) and None)
    assert api.aclrtLaunchHostFunc(kernels.stream, ctypes.cast(gate, ctypes.c_void_p), None) == 0
    assert api.aclrtLaunchKernel(kernels["add_one"], 1, args, 16, kernels.stream) == 0
    assert api.aclrtFree(args) == 0
    opened.set()
    assert api.aclrtSynchronizeStream(kernels.stream) == 507015
    sim.fail_stream(kernels.stream.value, 507011)
    assert api.aclrtSynchronizeStream(kernels.stream) == 507011
    assert "signal" not in sim_message().splitlines()[0], "each failure has a reason of its own"


DEVICE_LAUNCHES = """
import ctypes, pathlib, sys
from support.calls import api, out
from support.child import run_child

data = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
data[18:20] = b"\\x29\\x10"  # e_machine: not this machine's
assert api.aclInit(None) == 0 and api.aclrtSetDevice(0) == 0
binary, function, stream, device, handle, param = (out() for _ in range(6))
assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
assert api.aclrtBinaryLoadFromData(bytes(data), len(data), None, ctypes.byref(binary)) == 0
assert api.aclrtBinaryGetFunction(binary, b"mark", ctypes.byref(function)) == 0
assert api.aclrtMalloc(ctypes.byref(device), 64, 0) == 0
assert api.aclrtKernelArgsInit(function, ctypes.byref(handle)) == 0
value = ctypes.c_uint64(device.value)
assert api.aclrtKernelArgsAppend(handle, ctypes.byref(value), 8, ctypes.byref(param)) == 0
assert api.aclrtKernelArgsFinalize(handle) == 0
array = (ctypes.c_void_p * 1)(ctypes.addressof(value))
print(api.aclrtLaunchKernel(function, 1, device, 8, stream),
      api.aclrtLaunchKernelV2(function, 1, device, 8, None, stream),
      api.aclrtLaunchKernelWithConfig(function, 1, stream, None, handle, None),
      api.aclrtLaunchKernelWithHostArgs(function, 1, stream, None, ctypes.byref(value), 8, None, 0),
      api.aclrtLaunchKernelWithArgsArray(function, 1, stream, None, array),
      api.aclrtSynchronizeStream(stream))
"""


@pytest.mark.parametrize(("choice", "status"), [("refuse", 207000), ("skip", 0)])
def test_device_code_is_refused_or_taken_as_run(shared_object: bytes, choice: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "k.so").write_bytes(shared_object)
    done = run_child("-c", DEVICE_LAUNCHES, str(tmp_path / "k.so"), ACL_SIM_DEVICE_CODE=choice)
    assert done.stdout.split() == [*[str(status)] * 5, "0"], done.stderr
