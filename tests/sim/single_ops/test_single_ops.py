"""Single operators through aclopExecuteV2: those of the library, and user-defined kernels."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.memory import DEVICE, GRANULE, Location, PhysicalProp
from support.models import ACL_TYPES, CountingAllocator, device_array, device_memory, sim_message, tensor_desc

import acl.sim

INCLUDE = Path(__file__).parents[3] / "acl/include"
Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def attributes(**values: Any) -> int:
    attr: int = api.aclopCreateAttr()
    for name, value in values.items():
        key = name.encode()
        if isinstance(value, bool):
            assert api.aclopSetAttrBool(attr, key, value) == 0
        elif isinstance(value, int):
            assert api.aclopSetAttrInt(attr, key, value) == 0
        elif isinstance(value, float):
            assert api.aclopSetAttrFloat(attr, key, value) == 0
        else:
            assert api.aclopSetAttrListInt(attr, key, len(value), (ctypes.c_int64 * len(value))(*value)) == 0
    return attr


class Op:
    """The arguments of one call; `constants` are inputs that the description carries."""

    def __init__(
        self, inputs: list[Array], outputs: list[tuple[str, tuple[int, ...]]], constants: tuple[int, ...] = ()
    ) -> None:
        self.shapes = outputs
        self.memory = [device_array(x) for x in inputs]
        self.results = [
            device_memory(int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize) for kind, shape in outputs
        ]
        self.in_descs = [tensor_desc(x) for x in inputs]
        for index in constants:
            x = inputs[index]
            assert api.aclSetTensorConst(self.in_descs[index], x.ctypes.data, x.nbytes) == 0
        self.out_descs = [tensor_desc(np.empty(shape, kind)) for kind, shape in outputs]
        self.in_buffers = [api.aclCreateDataBuffer(m, x.nbytes) for m, x in zip(self.memory, inputs, strict=True)]
        sizes = [int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize for kind, shape in outputs]
        self.out_buffers = [api.aclCreateDataBuffer(m, n) for m, n in zip(self.results, sizes, strict=True)]

    def _arrays(self) -> tuple[Any, ...]:
        return tuple(
            (ctypes.c_void_p * max(1, len(v)))(*v)
            for v in (self.in_descs, self.in_buffers, self.out_descs, self.out_buffers)
        )

    def execute(self, name: str, stream: int, attr: int = 0) -> int:
        a = self._arrays()
        status: int = api.aclopExecuteV2(
            name.encode(), len(self.in_descs), a[0], a[1], len(self.out_descs), a[2], a[3], attr, stream
        )
        return status

    def update(self, name: str) -> int:
        a = self._arrays()
        status: int = api.aclopUpdateParams(name.encode(), len(self.in_descs), a[0], len(self.out_descs), a[2], None)
        return status

    def result(self, index: int = 0) -> Array:
        kind, shape = self.shapes[index]
        array = np.empty(shape, kind)
        if array.nbytes:
            assert api.aclrtMemcpy(array.ctypes.data, array.nbytes, self.results[index], array.nbytes, 2) == 0
        return array


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, Y = floats(3, 4), floats(3, 4, seed=1)
Row = tuple[str, list[Array], tuple[int, ...], dict[str, Any], Callable[[], Any]]
OPS: list[Row] = [
    ("Add", [X, Y], (), {}, lambda: X + Y),
    ("Sub", [X, Y[0]], (), {}, lambda: X - Y[0]),
    ("Mul", [X.astype(np.float16), Y.astype(np.float16)], (), {}, lambda: X.astype(np.float16) * Y.astype(np.float16)),
    ("Div", [X, Y], (), {}, lambda: X / Y),
    ("RealDiv", [X, Y], (), {}, lambda: X / Y),
    ("MatMul", [X, Y], (), {"transpose_x1": False, "transpose_x2": True}, lambda: X @ Y.T),
    (
        "BatchMatMul",
        [floats(2, 3, 4), floats(2, 5, 4)],
        (),
        {"adj_x1": False, "adj_x2": True},
        lambda: floats(2, 3, 4) @ floats(2, 5, 4).transpose(0, 2, 1),
    ),
    ("Cast", [X], (), {"dst_type": ACL_TYPES["int32"]}, lambda: X.astype(np.int32)),
    (
        "Fill",
        [np.array([2, 3], np.int64), np.array(2.5, np.float32)],
        (0,),
        {},
        lambda: np.full((2, 3), 2.5, np.float32),
    ),
    ("Identity", [X], (), {}, lambda: X),
    ("Transpose", [X, np.array([1, 0], np.int32)], (1,), {}, lambda: X.T),
    ("TransposeD", [X], (), {"perm": [1, 0]}, lambda: X.T),
    ("Permute", [floats(2, 3, 4)], (), {"order": [2, 0, 1]}, lambda: floats(2, 3, 4).transpose(2, 0, 1)),
    ("Permute", [X[0]], (), {}, lambda: X[0]),
    ("ArgMaxV2", [X, np.array(1, np.int32)], (1,), {"keep_dims": True},
     lambda: X.argmax(1).astype(np.int32)[:, None]),
    ("ArgMaxD", [X], (), {"dimension": 1}, lambda: X.argmax(1).astype(np.int32)),
    ("ArgMaxD", [X], (), {"dimension": -2}, lambda: X.argmax(0).astype(np.int32)),
    ("ArgMinD", [X], (), {"dimension": 0}, lambda: X.argmin(0).astype(np.int32)),
    ("Relu", [X], (), {}, lambda: np.maximum(X, 0)),
    ("SoftmaxV2", [X], (), {"axes": [-1]}, lambda: np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
    ("ReduceSum", [X, np.array([1], np.int64)], (1,), {"keep_dims": False}, lambda: X.sum(1)),
    ("ReduceMean", [X, np.array([0], np.int32)], (1,), {"keep_dims": True}, lambda: X.mean(0, keepdims=True)),
    ("ReduceMaxD", [X], (), {"axes": [0], "keep_dims": False}, lambda: X.max(0)),
    ("ConcatD", [X, Y], (), {"concat_dim": 1, "N": 2}, lambda: np.concatenate([X, Y], 1)),
    ("Slice", [X, np.array([1, 0], np.int64), np.array([2, -1], np.int64)], (1, 2), {}, lambda: X[1:]),
    (
        "StridedSlice",
        [X, *(np.array(v, np.int64) for v in ([0, 3], [3, 0], [2, -1]))],
        (1, 2, 3),
        {"end_mask": 1},
        lambda: X[0::2, 3:0:-1],
    ),
    ("GatherV2", [X, np.array([2, 0], np.int64), np.array([0], np.int64)], (2,), {}, lambda: X[[2, 0]]),
    ("AsStrided", [X, *(np.array(v, np.int64) for v in ([2, 2], [4, 2], [1]))], (1, 2, 3), {}, lambda: X[:2, 1::2]),
    ("MaskedFill", [X, X > 0, np.array(-1, np.float32)], (), {}, lambda: np.where(X > 0, np.float32(-1), X)),
    ("Equal", [X, X], (), {}, lambda: X == X),
]


@pytest.mark.parametrize(("name", "inputs", "constants", "attrs", "expected"), OPS, ids=[row[0] for row in OPS])
def test_single_operator_gives_the_expected_result(
    name: str,
    inputs: list[Array],
    constants: tuple[int, ...],
    attrs: dict[str, Any],
    expected: Callable[[], Any],
    raw_stream: int,
) -> None:
    wanted = np.asarray(expected())
    op, attr = Op(inputs, [(wanted.dtype.name, wanted.shape)], constants), attributes(**attrs)
    assert op.execute(name, raw_stream, attr) == 0, sim_message()
    api.aclopDestroyAttr(attr)  # the call has its own copy
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    np.testing.assert_allclose(op.result().astype(np.float64), wanted.astype(np.float64), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize(("attrs", "order"), [
    ({"k": 2}, -np.sort(-X, 1)[:, :2]), ({"k": 3, "largest": False}, np.sort(X, 1)[:, :3]),
    ({"k": 1, "dim": 0}, -np.sort(-X, 0)[:1]),
], ids=["largest", "smallest", "first axis"])
def test_topkd_needs_no_tensor_for_k(attrs: dict[str, Any], order: Array, raw_stream: int) -> None:
    """The simulator ignores the second input, which devices need."""
    assist = np.arange(8, dtype=np.float16)
    op = Op([X, assist], [("float32", order.shape), ("int32", order.shape)])
    attr = attributes(**attrs)
    assert op.execute("TopKD", raw_stream, attr) == 0, sim_message()
    api.aclopDestroyAttr(attr)
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    np.testing.assert_array_equal(op.result(), order)
    np.testing.assert_array_equal(np.take_along_axis(X, op.result(1).astype(np.int64), attrs.get("dim", 1)), order)


@pytest.mark.parametrize(("name", "word"), [("Permute", "order"), ("ArgMaxD", "axis"), ("TopKD", "k = -1")])
def test_missing_attribute_without_a_default_is_named(name: str, word: str, raw_stream: int) -> None:
    op = Op([X], [("float32", X.shape)])
    assert op.execute(name, raw_stream) == 100021
    assert word in sim_message()


def view(size: list[int], stride: list[int], offset: int) -> list[Array]:
    return [np.array(size, np.int64), np.array(stride, np.int64), np.array(offset, np.int64)]


def test_viewcopy_writes_a_view_that_is_described_by_its_storage(raw_stream: int) -> None:
    """torch_npu's `c[:, 7] = x` passes the storage's shape, the view's address, and the output described as the view.

    The mapped memory ends with the storage, so the description covers addresses behind it that are not mapped.
    """
    storage, column = np.zeros((16, 8), np.float32), np.arange(16, dtype=np.float32)
    prop, range_, physical = PhysicalProp(attribute=4, location=Location(0, DEVICE)), out(), out()
    assert api.aclrtReserveMemAddress(ctypes.byref(range_), 2 * GRANULE, 0, None, 1) == 0
    assert api.aclrtMallocPhysical(ctypes.byref(physical), GRANULE, ctypes.byref(prop), 0) == 0
    assert api.aclrtMapMem(range_, GRANULE, 0, physical, 0) == 0
    assert range_.value is not None
    base = ctypes.c_void_p(range_.value + GRANULE - storage.nbytes)
    assert base.value is not None
    assert api.aclrtMemcpy(base, storage.nbytes, storage.ctypes.data, storage.nbytes, 1) == 0
    op = Op([storage, *view([16], [8], 0), column, *view([16], [1], 0)], [("float32", (16,))], (1, 2, 3, 5, 6, 7))
    for buffers in (op.in_buffers, op.out_buffers):
        assert api.aclUpdateDataBuffer(buffers[0], base.value + 28, storage.nbytes) == 0
    assert api.aclrtMemset(base.value, storage.nbytes, 0, storage.nbytes) == 0
    assert op.execute("ViewCopy", raw_stream) == 0, sim_message()
    assert api.aclrtSynchronizeStream(raw_stream) == 0, sim_message()
    assert api.aclrtMemcpy(storage.ctypes.data, storage.nbytes, base, storage.nbytes, 2) == 0
    expected = np.zeros((16, 8), np.float32)
    expected[:, 7] = column
    np.testing.assert_array_equal(storage, expected)
    assert api.aclrtUnmapMem(range_) == 0
    assert api.aclrtFreePhysical(physical) == 0
    assert api.aclrtReleaseMemAddress(range_) == 0


def test_viewcopy_into_other_memory_also_copies_the_bytes_outside_the_view(raw_stream: int) -> None:
    op = Op([X, *view([3], [4], 1), Y, *view([3], [4], 2)], [("float32", X.shape)], (1, 2, 3, 5, 6, 7))
    assert op.execute("ViewCopy", raw_stream) == 0, sim_message()
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    expected = X.copy()
    expected[:, 1] = Y[:, 2]
    np.testing.assert_array_equal(op.result(), expected)


def test_viewcopy_out_of_its_storage_is_refused(raw_stream: int) -> None:
    op = Op([X, *view([4], [4], 1), Y, *view([4], [1], 0)], [("float32", X.shape)], (1, 2, 3, 5, 6, 7))
    assert op.execute("ViewCopy", raw_stream) == 100021
    assert "the view reaches [1, 13] of 12 elements" in sim_message()


def test_layer_norm_gives_mean_and_variance(raw_stream: int) -> None:
    scale, shift = floats(4, seed=2), floats(4, seed=3)
    op = Op([X, scale, shift], [("float32", (3, 4)), ("float32", (3, 1)), ("float32", (3, 1))])
    attr = attributes(begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)
    assert op.execute("LayerNorm", raw_stream, attr) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    mean, variance = X.mean(1, keepdims=True), X.var(1, keepdims=True)
    np.testing.assert_allclose(
        op.result(0), (X - mean) / np.sqrt(variance + 1e-5) * scale + shift, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(op.result(1), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(op.result(2), variance, rtol=1e-5)


def test_unknown_dimensions_of_an_output_are_written_to_its_description(raw_stream: int) -> None:
    op = Op([X, Y], [("float32", (3, 4))])
    dims = (ctypes.c_int64 * 2)(-1, -1)
    op.out_descs = [api.aclCreateTensorDesc(0, 2, dims, 2)]
    assert op.execute("Add", raw_stream) == 0
    assert [api.aclGetTensorDescDim(op.out_descs[0], d) for d in range(2)] == [3, 4]
    assert api.aclrtSynchronizeStream(raw_stream) == 0


def test_workspace_comes_from_the_registered_allocator(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    op = Op([floats(30, 40), floats(40, 50)], [("float32", (30, 50))])
    assert op.execute("MatMul", raw_stream) == 0
    assert [what for what, _ in allocator.events] == ["alloc", "free"]
    assert allocator.sizes[0] % 512 == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    np.testing.assert_allclose(op.result(), floats(30, 40) @ floats(40, 50), rtol=1e-3, atol=1e-4)
    allocator.close()


def test_default_allocator_is_sticky(raw_stream: int) -> None:
    op = Op([floats(30, 40), floats(40, 50)], [("float32", (30, 50))])
    assert op.execute("MatMul", raw_stream) == 0
    allocator = CountingAllocator(raw_stream)
    assert op.execute("MatMul", raw_stream) == 0
    assert not allocator.events, "the stream had made its own allocator"
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    allocator.close()


def test_memory_of_the_default_allocator_is_freed_with_the_stream() -> None:
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    op = Op([floats(30, 40), floats(40, 50)], [("float32", (30, 50))])
    before = acl.sim.physical_bytes()
    assert op.execute("MatMul", stream.value) == 0
    assert acl.sim.physical_bytes() > before
    assert api.aclrtDestroyStream(stream) == 0
    assert acl.sim.physical_bytes() == before


def test_failing_allocator_fails_the_call(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    allocator.fail_at = 0
    op = Op([floats(30, 40), floats(40, 50)], [("float32", (30, 50))])
    assert op.execute("MatMul", raw_stream) == 245000
    assert not allocator.live
    allocator.close()


def test_handles_run_again_with_other_buffers(raw_stream: int) -> None:
    first, second, handle = Op([X, Y], [("float32", (3, 4))]), Op([Y, Y], [("float32", (3, 4))]), out()
    a = first._arrays()
    assert api.aclopCreateHandle(b"Mul", 2, a[0], 1, a[2], None, ctypes.byref(handle)) == 0
    for op in (first, second):
        arrays = op._arrays()
        assert api.aclopExecWithHandle(handle, 2, arrays[1], 1, arrays[3], raw_stream) == 0
    assert api.aclopExecWithHandle(handle, 1, a[1], 1, a[3], raw_stream) == 100021
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    np.testing.assert_allclose(first.result(), X * Y)
    np.testing.assert_allclose(second.result(), Y * Y)
    api.aclopDestroyHandle(handle)


def test_infer_shape_fills_in_the_output_description() -> None:
    op = Op([X, Y], [("float32", (1,))])
    a = op._arrays()
    attr = attributes(concat_dim=0)
    assert api.aclopInferShape(b"ConcatD", 2, a[0], a[1], 1, a[2], attr) == 0
    assert [api.aclGetTensorDescDim(op.out_descs[0], d) for d in range(2)] == [6, 4]


@pytest.mark.parametrize(
    ("name", "inputs", "shape", "code", "words"),
    [
        ("Frobnicate", [X], (3, 4), 100024, "no operator Frobnicate"),
        ("Add", [X, floats(3, 5)], (3, 4), 100021, "broadcast"),
        ("Add", [X, Y], (3, 5), 100022, "output 0"),
        ("Add", [X], (3, 4), 100021, "expected 2 inputs"),
    ],
)
def test_unknown_operators_and_wrong_shapes_are_refused(
    name: str, inputs: list[Array], shape: tuple[int, ...], code: int, words: str, raw_stream: int
) -> None:
    op = Op(inputs, [("float32", shape)])
    assert op.execute(name, raw_stream) == code
    assert words in sim_message()


def test_an_operator_without_outputs_is_refused(raw_stream: int) -> None:
    assert Op([X], []).execute("Relu", raw_stream) == 100021
    assert "expected 1 to 1 outputs, got 0" in sim_message()


def test_values_at_null_or_in_unmapped_memory_are_an_error_of_the_call(raw_stream: int) -> None:
    op, hole = Op([X, np.array([1, 0], np.int64)], [("float32", (4, 3))]), out()
    assert api.aclrtReserveMemAddress(ctypes.byref(hole), 2 << 20, 0, None, 0) == 0
    for address, words in ((hole.value, f"{hole.value:#x}"), (None, "input 1")):
        assert api.aclUpdateDataBuffer(op.in_buffers[1], address, 16) == 0
        assert op.execute("Transpose", raw_stream) == 100021
        assert words in sim_message()
        a = op._arrays()
        assert api.aclopInferShape(b"Transpose", 2, a[0], a[1], 1, a[2], None) == 100021
        assert words in sim_message()
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    assert api.aclrtReleaseMemAddress(hole) == 0


def test_null_type_is_refused(raw_stream: int) -> None:
    assert api.aclopExecuteV2(None, 0, None, None, 0, None, None, None, raw_stream) == 100000


# --- user-defined operators ------------------------------------------------------------------------

SOURCE = """
#include <string.h>
#include "acl_sim_kernel.h"
/* inputs a, b; output c; workspaces u, v; then the compile function's bytes */
struct Scaled { const float *a, *b; float *c; float *u, *v; uint32_t count; float factor; };
ACL_SIM_KERNEL(nothing) {}
ACL_SIM_KERNEL(scaled)
{
    const struct Scaled *p = args;
    for (uint32_t i = 0; i < p->count; i++) { p->u[i] = p->a[i] * p->factor; p->v[i] = p->b[i]; }
    for (uint32_t i = 0; i < p->count; i++) { p->c[i] = p->u[i] + p->v[i]; }
    if (p->count == 12) { p->c[0] = (float)((char *)p->v - (char *)p->u); }
}
"""
COMPILE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_void_p,
)


@pytest.fixture(scope="session")
def scaled_kernel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.c").write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", folder / "own.so", folder / "own.c"], check=True)
    return (folder / "own.so").read_bytes()


class OwnOp:
    """An operator `name` whose compile function appends the given workspaces."""

    def __init__(self, name: str, binary: bytes, kernel: bytes = b"scaled") -> None:
        self.name, self.sizes, self.result, self.kernel_id = name, [[48], [48]], 0, b"id"
        self.keep = [COMPILE(self._compile), ctypes.create_string_buffer(binary)]
        assert api.aclopRegisterCompileFunc(name.encode(), ctypes.cast(self.keep[0], ctypes.c_void_p)) == 0
        self.create = lambda kernel_id: api.aclopCreateKernel(
            name.encode(), kernel_id, kernel, self.keep[1], len(binary), 1, None
        )

    def _compile(self, inputs: int, in_descs: Any, outputs: int, out_descs: Any, attr: int, desc: int) -> int:
        count = api.aclGetTensorDescElementCount(in_descs[0])
        args = struct.pack("If", count, 2.0)
        assert api.aclopSetKernelArgs(desc, self.kernel_id, 1, args, len(args)) == 0
        for sizes in self.sizes:
            assert api.aclopSetKernelWorkspaceSizes(desc, len(sizes), (ctypes.c_size_t * len(sizes))(*sizes)) == 0
        assert api.aclopSetKernelWorkspaceSizes(desc, -1, None) == 100000
        assert api.aclopSetKernelWorkspaceSizes(desc, 1, None) == 100000
        assert api.aclopSetKernelWorkspaceSizes(desc, 0, None) == 0
        self.desc = desc
        return self.result

    def close(self) -> None:
        assert api.aclopUnregisterCompileFunc(self.name.encode()) == 0


def test_own_kernel_gets_inputs_outputs_workspaces_and_arguments(scaled_kernel: bytes, raw_stream: int) -> None:
    own, allocator = OwnOp("ScaledAdd", scaled_kernel), CountingAllocator(raw_stream)
    op = Op([X, Y], [("float32", (3, 4))])
    assert op.execute("ScaledAdd", raw_stream) == 100024, "nothing was chosen yet"
    assert op.update("ScaledAdd") == 100029, "the kernel does not exist yet"
    assert own.create(b"id") == 0
    assert own.create(b"id") == 100031
    assert op.update("ScaledAdd") == 0
    assert api.aclopSetKernelWorkspaceSizes(own.desc, 0, None) == 100000, "valid inside the function only"
    assert op.execute("ScaledAdd", raw_stream) == 0, sim_message()
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    got = op.result()
    np.testing.assert_allclose(got.ravel()[1:], (2 * X + Y).ravel()[1:], rtol=1e-6)
    assert got.ravel()[0] == 2 * (64 + 32), "slots lie two padded sizes apart"
    assert not allocator.events, "its workspace never comes from the registered allocator"
    allocator.close()
    own.close()


def test_own_kernel_refuses_more_than_sixteen_workspaces(scaled_kernel: bytes, raw_stream: int) -> None:
    own = OwnOp("ScaledMany", scaled_kernel, b"nothing")
    assert own.create(b"id") == 0
    op = Op([X, Y], [("float32", (3, 4))])
    own.sizes = [[48] * 10, [48] * 7]
    assert op.update("ScaledMany") == 0
    assert op.execute("ScaledMany", raw_stream) == 100000
    own.sizes = [[48] * 10, [48] * 6]
    assert op.update("ScaledMany") == 0
    assert op.execute("ScaledMany", raw_stream) == 0
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    own.close()


@pytest.mark.parametrize("size", [2**64 - 1, 2**64 - 32, 2**63, 2**62 + 1, 2**61])
def test_own_kernel_whose_workspace_sum_overflows_is_refused(size: int, scaled_kernel: bytes, raw_stream: int) -> None:
    own = OwnOp("ScaledHuge", scaled_kernel, b"nothing")
    assert own.create(f"{size}".encode()) == 0
    own.kernel_id, own.sizes = f"{size}".encode(), [[size] * 4]
    op = Op([X, Y], [("float32", (3, 4))])
    assert op.update("ScaledHuge") == 0
    assert op.execute("ScaledHuge", raw_stream) == 100000
    assert "too large" in sim_message()
    own.close()


def test_own_kernel_that_runs_leaves_no_message(scaled_kernel: bytes, raw_stream: int) -> None:
    own, context, messages = OwnOp("ScaledQuiet", scaled_kernel), out(), []
    assert own.create(b"id") == 0
    assert api.aclrtGetCurrentContext(ctypes.byref(context)) == 0
    op = Op([X, Y], [("float32", (3, 4))])
    assert op.update("ScaledQuiet") == 0

    def execute() -> None:
        assert api.aclrtSetCurrentContext(context) == 0
        assert op.execute("ScaledQuiet", raw_stream) == 0
        messages.append(sim_message())

    thread = threading.Thread(target=execute)
    thread.start()
    thread.join()
    assert messages == [""]
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    own.close()


def test_one_streams_workspace_grows_under_several_threads(scaled_kernel: bytes, device: None) -> None:
    own, context, stream = OwnOp("ScaledGrowing", scaled_kernel), out(), out()
    assert own.create(b"id") == 0
    assert api.aclrtGetCurrentContext(ctypes.byref(context)) == 0
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    op, failed = Op([X, Y], [("float32", (3, 4))]), []
    before = acl.sim.physical_bytes()

    def execute(first: int) -> None:
        assert api.aclrtSetCurrentContext(context) == 0
        for step in range(first, 100, 4):
            own.sizes = [[4096 * (1 + step)] * 2]
            failed.extend(filter(None, [op.update("ScaledGrowing"), op.execute("ScaledGrowing", stream.value)]))

    acl.sim.configure(latency="memory")  # so that growing takes a while
    threads = [threading.Thread(target=execute, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    acl.sim.configure(latency="off")
    assert not failed
    assert api.aclrtDestroyStream(stream) == 0
    assert acl.sim.physical_bytes() == before, "what was outgrown has gone back, once"
    own.close()


def test_error_of_a_compile_function_is_returned_unchanged(scaled_kernel: bytes) -> None:
    own = OwnOp("ScaledFailing", scaled_kernel)
    assert own.create(b"id") == 0
    own.result = 4711
    assert Op([X, Y], [("float32", (3, 4))]).update("ScaledFailing") == 4711
    own.close()


def test_second_registration_and_unknown_operator_types_are_refused() -> None:
    nothing = ctypes.cast(COMPILE(lambda *_: 0), ctypes.c_void_p)
    assert api.aclopRegisterCompileFunc(b"Twice", nothing) == 0
    assert api.aclopRegisterCompileFunc(b"Twice", nothing) == 100030
    assert api.aclopUnregisterCompileFunc(b"Twice") == 0
    assert api.aclopUnregisterCompileFunc(b"Twice") == 100028
    assert Op([X], [("float32", (3, 4))]).update("Twice") == 100028


def test_a_described_output_with_more_elements_than_64_bits_count_is_refused(raw_stream: int) -> None:
    """2**32 times 2**32 elements must not be counted as 0, the size of the operator's result."""
    op = Op([np.empty((0, 2), np.float32)], [("float32", (0, 2))])
    op.out_descs = [tensor_desc(np.empty((0, 2), np.float32))]
    assert op.execute("Relu", raw_stream) == 0, sim_message()
    op.out_descs = [api.aclCreateTensorDesc(0, 2, (ctypes.c_int64 * 2)(1 << 32, 1 << 32), 2)]
    assert op.execute("Relu", raw_stream) != 0
    assert "described as" in sim_message()
