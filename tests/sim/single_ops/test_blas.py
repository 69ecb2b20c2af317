"""aclblas: products of matrices and vectors, their layouts, handles, and a table of argument rules."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.calls import api, out
from support.models import device_array
from support.rules import code_of

P, NOT_FOUND, DEAD_STREAM = 100000, 100024, 107017
N, T, NZ, NZ_T = 0, 1, 2, 3
FLOAT, HALF, INT8, INT32 = 0, 1, 2, 3
TYPES = {np.dtype(np.float32): FLOAT, np.dtype(np.float16): HALF, np.dtype(np.int8): INT8, np.dtype(np.int32): INT32}
Array = npt.NDArray[Any]
COMBINATIONS = [(np.float16, np.float16), (np.float16, np.float32), (np.int8, np.int32), (np.int8, np.float32)]

pytestmark = pytest.mark.usefixtures("device")


def host(address: int, like: Array) -> Array:
    """Copy an array of the type and shape of `like` from a device address."""
    made = np.empty_like(like)
    assert api.aclrtMemcpy(made.ctypes.data, made.nbytes, address, made.nbytes, 2) == 0
    return made


def tiled(matrix: Array, width: int) -> Array:
    """Return the matrix in FRACTAL_NZ: columns of tiles of 16 rows and `width` columns, padded with zeros."""
    rows, columns = (-(-matrix.shape[0] // 16) * 16, -(-matrix.shape[1] // width) * width)
    full = np.zeros((rows, columns), matrix.dtype)
    full[: matrix.shape[0], : matrix.shape[1]] = matrix
    return np.ascontiguousarray(full.reshape(rows // 16, 16, columns // width, width).transpose(2, 0, 1, 3))


def untiled(tiles: Array, rows: int, columns: int) -> Array:
    whole: Array = tiles.transpose(1, 2, 0, 3).reshape(tiles.shape[1] * 16, -1)
    return whole[:rows, :columns]


def laid_out(matrix: Array, trans: int, is_b: bool = False) -> Array:
    """Return the matrix in the memory layout that its flag says."""
    if trans == T:
        return np.ascontiguousarray(matrix.T)
    if trans == NZ and matrix.dtype == np.int8:
        return tiled(matrix.T if is_b else matrix, 32)  # FRACTAL_Z for B
    return tiled(matrix, 16) if trans == NZ else np.ascontiguousarray(matrix)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128 if dtype is np.int8 else -(1 << 20), 127, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def expected(a: Array, b: Array, c: Array, alpha: Any, beta: Any) -> Array:
    wide = np.int64 if c.dtype == np.int32 else np.float64
    with np.errstate(over="ignore"):
        made: Array = alpha.astype(wide) * (a.astype(wide) @ b.astype(wide)) + beta.astype(wide) * c.astype(wide)
        return made.astype(c.dtype)


def assert_product(found: Array, wanted: Array) -> None:
    if wanted.dtype == np.int32:
        np.testing.assert_array_equal(found, wanted)
    else:
        loose = 3e-3 if wanted.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(found, wanted, rtol=loose, atol=loose * 4)


class Operands:
    """Three matrices on the device, and two factors on the host."""

    def __init__(self, sizes: tuple[int, int, int], types: tuple[Any, Any], trans: tuple[int, int, int] = (N, N, N),
                 factors: tuple[float, float] = (2, 3)) -> None:
        rng = np.random.default_rng(sum(sizes))
        self.sizes, self.trans = sizes, trans
        m, n, k = sizes
        self.a, self.b = numbers(rng, (m, k), types[0]), numbers(rng, (k, n), types[0])
        self.c = numbers(rng, (m, n), types[1])
        self.alpha, self.beta = np.array(factors[0], types[1]), np.array(factors[1], types[1])
        self.kinds = (TYPES[np.dtype(types[0])], TYPES[np.dtype(types[0])], TYPES[np.dtype(types[1])])
        placed = [laid_out(self.a, trans[0]), laid_out(self.b, trans[1], True)]
        self.c_placed = tiled(self.c, 16) if trans[2] == NZ else self.c
        self.memory = [device_array(x) for x in [*placed, self.c_placed]]

    def multiply(self, stream: int, factors: tuple[int, int] | None = None) -> int:
        """Call aclblasGemmEx and return its code."""
        m, n, k = self.sizes
        alpha, beta = factors or (self.alpha.ctypes.data, self.beta.ctypes.data)
        code: int = api.aclblasGemmEx(
            *self.trans, m, n, k, alpha, self.memory[0], -1, self.kinds[0], self.memory[1], -1, self.kinds[1],
            beta, self.memory[2], -1, self.kinds[2], 0, stream)
        return code

    def check(self, alpha: Any = None, beta: Any = None) -> None:
        found = host(self.memory[2], self.c_placed)
        found = untiled(found, *self.c.shape) if self.trans[2] == NZ else found
        assert_product(found, expected(self.a, self.b, self.c, self.alpha if alpha is None else alpha,
                                       self.beta if beta is None else beta))

    def close(self) -> None:
        for address in self.memory:
            assert api.aclrtFree(address) == 0


@pytest.mark.parametrize("types", COMBINATIONS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (16, 16, 32), (33, 70, 129), (4, 300, 17)])
def test_blas_products_equal_numpy_for_all_types_and_sizes(
    raw_stream: int, sizes: tuple[int, int, int], types: tuple[Any, Any]
) -> None:
    operands = Operands(sizes, types)
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    operands.close()


@pytest.mark.parametrize("types", COMBINATIONS)
@pytest.mark.parametrize("trans", [(T, N, N), (N, T, N), (T, T, N), (NZ, N, N), (N, NZ, N), (T, NZ, N), (NZ, T, NZ),
                                   (NZ, NZ, N), (N, N, NZ)])
def test_blas_products_equal_numpy_for_all_layouts(
    raw_stream: int, trans: tuple[int, int, int], types: tuple[Any, Any]
) -> None:
    operands = Operands((19, 37, 45), types, trans)
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    operands.close()


def test_product_with_all_operands_in_tiles_is_right(raw_stream: int) -> None:
    operands = Operands((32, 48, 64), (np.float16, np.float32), (NZ, NZ, NZ))
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    operands.close()


def test_tiles_are_zero_beyond_the_matrix(raw_stream: int) -> None:
    operands = Operands((5, 6, 7), (np.float16, np.float16), (N, N, NZ))
    dirty = np.full_like(operands.c_placed, 9)
    assert api.aclrtMemcpy(operands.memory[2], dirty.nbytes, dirty.ctypes.data, dirty.nbytes, 1) == 0
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    found = host(operands.memory[2], dirty)
    whole = untiled(found, 16, 16)
    assert not whole[5:].any()
    assert not whole[:, 6:].any()
    operands.close()


def test_with_beta_0_the_old_matrix_is_not_read(raw_stream: int) -> None:
    operands = Operands((3, 4, 5), (np.float16, np.float32), factors=(1, 0))
    bad = np.full_like(operands.c, np.nan)
    assert api.aclrtMemcpy(operands.memory[2], bad.nbytes, bad.ctypes.data, bad.nbytes, 1) == 0
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    operands.close()


def test_factors_on_the_host_are_read_before_the_call_returns(raw_stream: int) -> None:
    operands = Operands((3, 4, 5), (np.int8, np.int32))
    alpha, beta = operands.alpha.copy(), operands.beta.copy()
    assert operands.multiply(raw_stream) == 0
    operands.alpha[...] = operands.beta[...] = 77
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check(alpha, beta)
    operands.close()


def test_blas_factors_may_be_in_device_memory(raw_stream: int) -> None:
    operands = Operands((3, 4, 5), (np.float16, np.float16))
    factors = (device_array(operands.alpha), device_array(operands.beta))
    assert operands.multiply(raw_stream, factors) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    for address in factors:
        assert api.aclrtFree(address) == 0
    operands.close()


def test_sums_of_int32_wrap(raw_stream: int) -> None:
    operands = Operands((2, 2, 2), (np.int8, np.int32), factors=(1 << 30, 1 << 20))
    assert operands.multiply(raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    operands.close()


@pytest.mark.parametrize(("name", "types"), [("H", (np.float16, np.float16)), ("S8", (np.int8, np.int32))])
def test_blas_calls_with_types_in_their_names_work(raw_stream: int, name: str, types: tuple[Any, Any]) -> None:
    matrix, vector = Operands((5, 6, 7), types), Operands((5, 1, 7), types)
    m, v = matrix, vector
    assert getattr(api, f"aclblas{name}gemm")(
        N, N, N, 5, 6, 7, m.alpha.ctypes.data, m.memory[0], -1, m.memory[1], -1, m.beta.ctypes.data, m.memory[2], -1,
        0, raw_stream) == 0
    assert getattr(api, f"aclblas{name}gemv")(
        N, 5, 7, v.alpha.ctypes.data, v.memory[0], -1, v.memory[1], -1, v.beta.ctypes.data, v.memory[2], -1,
        0, raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    for operands in (matrix, vector):
        operands.check()
        operands.close()


@pytest.mark.parametrize("trans", [N, T])
def test_blas_product_of_a_matrix_and_a_vector_equals_numpy(raw_stream: int, trans: int) -> None:
    v = Operands((9, 1, 4), (np.float16, np.float32), (trans, N, N))
    assert api.aclblasGemvEx(trans, 9, 4, v.alpha.ctypes.data, v.memory[0], -1, HALF, v.memory[1], -1, HALF,
                             v.beta.ctypes.data, v.memory[2], -1, FLOAT, 0, raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    v.check()
    v.close()


HANDLES: list[tuple[str, tuple[int, ...], tuple[int, int, int], tuple[Any, Any]]] = [
    ("aclblasCreateHandleForGemmEx", (N, T, N, 6, 7, 8, INT8, INT8, FLOAT, 0), (6, 7, 8), (np.int8, np.float32)),
    ("aclblasCreateHandleForHgemm", (N, T, N, 6, 7, 8, 0), (6, 7, 8), (np.float16, np.float16)),
    ("aclblasCreateHandleForS8gemm", (N, T, N, 6, 7, 8, 0), (6, 7, 8), (np.int8, np.int32)),
    ("aclblasCreateHandleForGemvEx", (N, 6, 8, HALF, HALF, FLOAT, 0), (6, 1, 8), (np.float16, np.float32)),
    ("aclblasCreateHandleForHgemv", (N, 6, 8, 0), (6, 1, 8), (np.float16, np.float16)),
    ("aclblasCreateHandleForS8gemv", (N, 6, 8, 0), (6, 1, 8), (np.int8, np.int32)),
]


@pytest.mark.parametrize(("function", "arguments", "sizes", "types"), HANDLES)
def test_blas_handle_multiplies(raw_stream: int, function: str, arguments: tuple[int, ...], sizes: tuple[int, int, int],
                 types: tuple[Any, Any]) -> None:
    handle = out()
    assert getattr(api, function)(*arguments, ctypes.byref(handle)) == 0
    operands = Operands(sizes, types, (N, T if "mm" in function else N, N))
    factors = [device_array(operands.alpha), device_array(operands.beta)]
    ends = [*operands.memory, *factors]
    buffers = [api.aclCreateDataBuffer(address, 1 << 12) for address in ends]
    inputs = (ctypes.c_void_p * 5)(*buffers)
    outputs = (ctypes.c_void_p * 1)(buffers[2])
    assert api.aclopExecWithHandle(handle, 5, inputs, 1, outputs, raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    operands.check()
    api.aclopDestroyHandle(handle)
    for buffer in buffers:
        assert api.aclDestroyDataBuffer(buffer) == 0
    for address in factors:
        assert api.aclrtFree(address) == 0
    operands.close()


class Scene:
    """The objects that stand for the names in GOOD and WRONG: `a`, `one`, `stream`, `dead` and others."""

    def __init__(self, stream: int) -> None:
        self.operands = Operands((2, 2, 2), (np.float16, np.float16))
        self.a, self.b, self.c = self.operands.memory
        self.one = self.operands.alpha.ctypes.data
        self.stream = stream
        dead = out()
        assert api.aclrtCreateStream(ctypes.byref(dead)) == 0
        assert api.aclrtDestroyStream(dead) == 0
        self.dead = dead.value
        self.out = ctypes.addressof(ctypes.c_void_p())


@pytest.fixture
def scene(raw_stream: int) -> Iterator[Scene]:
    made = Scene(raw_stream)
    yield made
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    made.operands.close()


GOOD: dict[str, Any] = {
    "transA": N, "transB": N, "transC": N, "m": 2, "n": 2, "k": 2, "alpha": "one", "matrixA": "a", "lda": -1,
    "dataTypeA": HALF, "matrixB": "b", "ldb": -1, "dataTypeB": HALF, "beta": "one", "matrixC": "c", "ldc": -1,
    "dataTypeC": HALF, "type": 0, "stream": "stream",
}
WRONG: list[tuple[str, Any, int]] = [
    ("alpha", None, P), ("beta", None, P), ("matrixA", None, P), ("matrixB", None, P), ("matrixC", None, P),
    ("m", 0, P), ("n", 0, P), ("k", 0, P), ("m", -1, P), ("transA", NZ_T, P), ("transA", -1, P), ("transB", NZ_T, P),
    ("transB", -1, P), ("transC", T, P), ("transC", NZ_T, P), ("lda", 2, P), ("ldb", 0, P), ("ldc", 2, P),
    ("type", 1, P), ("dataTypeA", INT8, NOT_FOUND), ("dataTypeB", FLOAT, NOT_FOUND), ("dataTypeC", INT32, NOT_FOUND),
    ("dataTypeC", INT8, NOT_FOUND), ("stream", "dead", DEAD_STREAM), ("stream", None, 0), ("m", 2, 0),
]


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_blas_call_with_a_wrong_argument_returns_the_documented_code(
    scene: Scene, name: str, value: Any, code: int
) -> None:
    assert code_of(scene, "aclblasGemmEx", list({**GOOD, name: value}.values())) == code
    assert api.aclrtSynchronizeDevice() == 0


@pytest.mark.parametrize(("name", "value", "code"), [w for w in WRONG if w[0] in (
    "m", "n", "k", "transA", "transB", "transC", "type", "dataTypeA", "dataTypeB", "dataTypeC") and w[2] != 0])
def test_blas_handle_with_a_wrong_argument_is_refused(scene: Scene, name: str, value: Any, code: int) -> None:
    names = ["transA", "transB", "transC", "m", "n", "k", "dataTypeA", "dataTypeB", "dataTypeC", "type"]
    assert code_of(scene, "aclblasCreateHandleForGemmEx", [
        *[{**GOOD, name: value}[n] for n in names], "out"]) == code


@pytest.mark.parametrize(("function", "arguments"), [(row[0], row[1]) for row in HANDLES])
def test_blas_handle_without_an_output_pointer_is_refused(function: str, arguments: tuple[int, ...]) -> None:
    assert getattr(api, function)(*arguments, None) == P


def test_blas_operator_message_says_how_many_bytes_an_operand_needs(raw_stream: int) -> None:
    handle = out()
    assert api.aclblasCreateHandleForGemmEx(N, N, N, 2, 2, 2, HALF, HALF, HALF, 0, ctypes.byref(handle)) == 0
    small = api.aclCreateDataBuffer(device_array(np.zeros(1, np.float16)), 2)
    buffers = (ctypes.c_void_p * 5)(*[small] * 5)
    assert api.aclopExecWithHandle(handle, 5, buffers, 1, (ctypes.c_void_p * 1)(small), raw_stream) != 0
    assert api.aclopExecWithHandle(handle, 4, buffers, 1, (ctypes.c_void_p * 1)(small), raw_stream) != 0
    assert b"needs 8 bytes" in api.aclGetRecentErrMsg()
    api.aclopDestroyHandle(handle)
