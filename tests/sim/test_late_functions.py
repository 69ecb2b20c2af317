"""Functions that few programs call: chip numbers, layouts, code sizes, symbols, addresses of the chip."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.child import run_python
from support.rules import code_in_new_thread

from acl import include_dir
from acl.tools.onnx_writer import Builder

P, RT, NO_CONTEXT, DEAD, NO_SYMBOL, UNSUPPORTED = 100000, 107000, 107002, 107017, 107043, 207000
NO_FORMAT, NO_FILE = 145020, 145002
NCHW, NHWC, ND, NC1HWC0, FRACTAL_NZ = 0, 1, 2, 3, 29
FLOAT16, INT8 = 1, 2

pytestmark = pytest.mark.usefixtures("device")


# --- chip numbers ---------------------------------------------------------------------------------


def told(key: int, room: int = 64) -> tuple[int, str]:
    text = ctypes.create_string_buffer(room)
    return api.aclplatformGetDeviceInfo(key, ctypes.addressof(text), room), text.value.decode()


@pytest.mark.parametrize(
    ("key", "value"),
    [(0, "24"), (1, "196608"), (2, "24"), (3, "48"), (4, "201326592"), (5, "68719476736"), (6, "1850"), (8, "1024"),
     (9, "65536"), (10, "65536"), (11, "131072"), (12, "524288"), (13, "Ascend910B1"), (14, "AIC-C-220"),
     (15, "2201")],
)
def test_device_attributes_have_the_values_of_the_chip(key: int, value: str) -> None:
    assert told(key) == (0, value)


def test_device_attributes_that_the_chip_lacks_are_refused() -> None:
    for key in (7, 16):
        assert told(key)[0] == P


def test_device_attribute_query_with_wrong_arguments_is_refused() -> None:
    text = ctypes.create_string_buffer(8)
    assert api.aclplatformGetDeviceInfo(0, None, 8) == P
    assert api.aclplatformGetDeviceInfo(0, ctypes.addressof(text), 0) == P
    assert told(17)[0] == P
    assert told(-1)[0] == P
    assert told(13, 11)[0] == P
    assert told(13, 12) == (0, "Ascend910B1")


def test_device_attributes_of_another_chip_are_those_that_are_known() -> None:
    done = run_python(
        """
        import ctypes
        from support.calls import api
        text = ctypes.create_string_buffer(64)
        for key in (0, 2, 6, 13, 15):
            print(api.aclplatformGetDeviceInfo(key, ctypes.addressof(text), 64), text.value.decode())
        """, ACL_SIM_SOC="Ascend310P3")
    assert done.stdout.splitlines() == ["0 8", "100000 8", "100000 8", "0 Ascend310P3", "0 2002"], done.stderr


# --- descriptions ---------------------------------------------------------------------------------


def described(dims: tuple[int, ...], layout: int, kind: int = FLOAT16) -> int:
    made: int = api.aclCreateTensorDesc(kind, len(dims), (ctypes.c_int64 * len(dims))(*dims), layout)
    return made


def shape(desc: int) -> tuple[int, ...]:
    dims = []
    for i in range(api.aclGetTensorDescNumDims(desc)):
        value = out(ctypes.c_int64)
        assert api.aclGetTensorDescDimV2(desc, i, ctypes.byref(value)) == 0
        dims.append(value.value)
    return tuple(dims)


@pytest.mark.parametrize(
    ("dims", "layout", "kind", "wanted", "result"),
    [((2, 17, 5, 6), NCHW, FLOAT16, NC1HWC0, (2, 2, 5, 6, 16)),
     ((2, 5, 6, 17), NHWC, FLOAT16, NC1HWC0, (2, 2, 5, 6, 16)),
     ((2, 33, 5, 6), NCHW, INT8, NC1HWC0, (2, 2, 5, 6, 32)),
     ((2, 3, 5, 6), NCHW, FLOAT16, NHWC, (2, 5, 6, 3)),
     ((2, 5, 6, 3), NHWC, FLOAT16, NCHW, (2, 3, 5, 6)),
     ((2, 3, 5, 6), NCHW, FLOAT16, NCHW, (2, 3, 5, 6)),
     ((20, 40), ND, FLOAT16, FRACTAL_NZ, (3, 2, 16, 16)),
     ((7, 20, 40), ND, INT8, FRACTAL_NZ, (7, 2, 2, 16, 32))],
)
def test_tensor_shape_is_converted_to_another_layout(
    dims: tuple[int, ...], layout: int, kind: int, wanted: int, result: tuple[int, ...]
) -> None:
    source, made = described(dims, layout, kind), out()
    assert api.aclTransTensorDescFormat(source, wanted, ctypes.byref(made)) == 0
    assert shape(made.value) == result
    assert api.aclGetTensorDescFormat(made) == wanted
    assert api.aclGetTensorDescType(made) == kind
    assert (shape(source), api.aclGetTensorDescFormat(source)) == (dims, layout)
    for desc in (source, made):
        api.aclDestroyTensorDesc(desc)


def test_tensor_layouts_without_a_conversion_are_refused() -> None:
    made = out()
    for dims, layout, wanted in [((4,), ND, FRACTAL_NZ), ((2, 3), NCHW, NC1HWC0), ((2, 3, 4, 5), ND, NC1HWC0),
                                 ((2, 3), ND, 4)]:
        source = described(dims, layout)
        assert api.aclTransTensorDescFormat(source, wanted, ctypes.byref(made)) == NO_FORMAT
        api.aclDestroyTensorDesc(source)
    source = described((2, 3), ND)
    assert api.aclTransTensorDescFormat(None, FRACTAL_NZ, ctypes.byref(made)) == P
    assert api.aclTransTensorDescFormat(source, FRACTAL_NZ, None) == P
    api.aclDestroyTensorDesc(source)


def test_value_ranges_and_the_first_of_a_row() -> None:
    desc, ranges = described((2,), ND), (ctypes.c_int64 * 4)(1, 16, 1, 128)
    assert api.aclSetTensorValueRange(desc, 2, ranges) == 0
    assert api.aclSetTensorValueRange(desc, 0, None) == 0
    assert api.aclSetTensorValueRange(desc, 2, None) == P
    assert api.aclSetTensorValueRange(None, 2, ranges) == P
    assert api.aclGetTensorDescByIndex(desc, 0) == desc
    assert api.aclGetTensorDescByIndex(desc, 1) is None
    assert api.aclGetTensorDescByIndex(None, 0) is None
    api.aclDestroyTensorDesc(desc)


# --- code -----------------------------------------------------------------------------------------


@pytest.fixture
def function(tmp_path: Path) -> Iterator[tuple[int, int, Path]]:
    """Compile and load a kernel. Yield its handle, the handle of its binary, and the file."""
    (tmp_path / "k.c").write_text('#include "acl_sim_kernel.h"\nACL_SIM_KERNEL(small) { (void)args; }\n')
    library = tmp_path / "k.so"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{include_dir()}", "-o", library, tmp_path / "k.c"], check=True)
    data, binary, made = library.read_bytes(), out(), out()
    assert api.aclrtBinaryLoadFromData(data, len(data), None, ctypes.byref(binary)) == 0
    assert api.aclrtBinaryGetFunction(binary, b"small", ctypes.byref(made)) == 0
    yield made.value, binary.value, library
    api.aclrtBinaryUnLoad(binary)


def test_the_size_of_a_functions_code(function: tuple[int, int, Path]) -> None:
    handle, binary, library = function
    aic, aiv = out(ctypes.c_size_t), out(ctypes.c_size_t)
    assert api.aclrtGetFunctionSize(handle, ctypes.byref(aic), ctypes.byref(aiv)) == 0
    listed = subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout
    sizes = [int(line.split()[1], 16) for line in listed.splitlines() if line.endswith(" small")]
    assert [aic.value] == sizes
    assert aiv.value == 0
    assert api.aclrtGetFunctionSize(None, ctypes.byref(aic), ctypes.byref(aiv)) == RT
    assert api.aclrtGetFunctionSize(handle, None, ctypes.byref(aiv)) == RT
    assert api.aclrtGetFunctionSize(handle, ctypes.byref(aic), None) == RT
    assert api.aclrtBinaryUnLoad(binary) == 0
    assert api.aclrtGetFunctionSize(handle, ctypes.byref(aic), ctypes.byref(aiv)) == DEAD


# --- symbols --------------------------------------------------------------------------------------

Z = ctypes.create_string_buffer(64)
AT = ctypes.addressof(Z)
SYMBOLS: list[tuple[str, list[Any], int]] = [
    ("aclrtMemcpyToSymbol", [None, AT, 8, 0, 1], P),
    ("aclrtMemcpyToSymbol", [AT, None, 8, 0, 1], P),
    ("aclrtMemcpyToSymbol", [AT, AT, 8, 0, 1], NO_SYMBOL),
    ("aclrtMemcpyToSymbolAsync", [None, AT, 8, 0, 1, None], P),
    ("aclrtMemcpyToSymbolAsync", [AT, None, 8, 0, 1, None], P),
    ("aclrtMemcpyToSymbolAsync", [AT, AT, 8, 0, 1, None], NO_SYMBOL),
    ("aclrtMemcpyFromSymbol", [None, 8, AT, 8, 0, 2], P),
    ("aclrtMemcpyFromSymbol", [AT, 8, None, 8, 0, 2], P),
    ("aclrtMemcpyFromSymbol", [AT, 8, AT, 8, 0, 2], NO_SYMBOL),
    ("aclrtMemcpyFromSymbolAsync", [None, 8, AT, 8, 0, 2, None], P),
    ("aclrtMemcpyFromSymbolAsync", [AT, 8, None, 8, 0, 2, None], P),
    ("aclrtMemcpyFromSymbolAsync", [AT, 8, AT, 8, 0, 2, None], NO_SYMBOL),
]


@pytest.mark.parametrize(("name", "arguments", "code"), SYMBOLS)
def test_copies_by_symbol(name: str, arguments: list[Any], code: int) -> None:
    assert getattr(api, name)(*arguments) == code


# --- addresses of the chip ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aclrtCtxGetFloatOverflowAddr", "aclrtGetHardwareSyncAddr"])
def test_addresses_of_the_chip(name: str) -> None:
    first, second, other = out(), out(), out()
    assert getattr(api, name)(None) == P
    assert getattr(api, name)(ctypes.byref(first)) == 0
    assert getattr(api, name)(ctypes.byref(second)) == 0
    assert first.value == second.value
    assert first.value % 512 == 0
    assert code_in_new_thread(None, name, [ctypes.addressof(other)]) == NO_CONTEXT
    assert api.aclrtSetDevice(1) == 0
    assert getattr(api, name)(ctypes.byref(other)) == 0
    assert other.value != first.value
    assert api.aclrtResetDevice(1) == 0
    assert api.aclrtSetDevice(0) == 0


def test_overflow_status_reports_no_overflow() -> None:
    address, note = out(), np.ones(16, np.uint32)
    assert api.aclrtCtxGetFloatOverflowAddr(ctypes.byref(address)) == 0
    assert api.aclrtMemcpy(note.ctypes.data, note.nbytes, address, note.nbytes, 2) == 0
    assert not note.any()


def test_chips_without_separate_cores_do_not_synchronise_them() -> None:
    done = run_python(
        """
        import ctypes
        from support.calls import api
        api.aclInit(None), api.aclrtSetDevice(0)
        print(api.aclrtGetHardwareSyncAddr(ctypes.byref(ctypes.c_void_p())))
        """, ACL_SIM_SOC="Ascend310P3")
    assert done.stdout.split() == [str(UNSUPPORTED)], done.stderr


# --- a model's parts ------------------------------------------------------------------------------


def test_sizes_of_a_models_parts(tmp_path: Path) -> None:
    made = Builder()
    x = made.input("x", "float32", [2, 300])
    made.output(made.add("MatMul", x, made.constant(np.ones((300, 4), np.float32))), "float32", [2, 4])
    path = str(tmp_path / "model.om").encode()
    Path(path.decode()).write_bytes(made.to_bytes())
    work, weight, parts = out(ctypes.c_size_t), out(ctypes.c_size_t), (ctypes.c_size_t * 16)(*[7] * 16)
    assert api.aclmdlQuerySize(path, ctypes.byref(work), ctypes.byref(weight)) == 0
    assert api.aclmdlQueryExeOMDesc(path, ctypes.addressof(parts)) == 0
    assert list(parts) == [work.value, weight.value, *[0] * 14]
    assert weight.value >= 4800
    assert api.aclmdlQueryExeOMDesc(None, ctypes.addressof(parts)) == P
    assert api.aclmdlQueryExeOMDesc(path, None) == P
    assert api.aclmdlQueryExeOMDesc(b"/nowhere", ctypes.addressof(parts)) == NO_FILE
