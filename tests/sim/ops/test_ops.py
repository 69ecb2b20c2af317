"""The operator library against NumPy, one row for each operator, type and awkward shape.

Each row becomes a model of one node; its inputs depend only on the row's name, so the order of the rows
does not matter.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import SimModel, sim_message

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    ("kind", "attributes", "function"),
    [
        ("Celu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * np.expm1(x / 0.5), x)),
        ("Selu", {"alpha": 0.5, "gamma": 2.0}, lambda x: 2 * np.where(x > 0, x, 0.5 * np.expm1(x))),
        ("Swish", {"alpha": 0.5}, lambda x: x / (1 + np.exp(-0.5 * x))),
        ("ThresholdedRelu", {"alpha": -0.25}, lambda x: np.where(x > -0.25, x, 0)),
        ("Shrink", {"lambd": 0.25, "bias": 0.5}, lambda x: np.where(np.abs(x) > 0.25, x - 0.5 * np.sign(x), 0)),
        ("Elu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * np.expm1(x), x)),
        ("LeakyRelu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * x, x)),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}, lambda x: np.clip(0.5 * x + 0.25, 0, 1)),
    ],
)
def test_activation_takes_its_attributes(
    kind: str, attributes: dict[str, float], function: Callable[[Array], Array]
) -> None:
    x = np.linspace(-3, 3, 61)
    same(run(kind, [x], 24, **attributes)[0], function(x), 1e-12)
    single = x.astype(np.float32)
    same(run(kind, [single], 24, **attributes)[0], function(single.astype(np.float64)).astype(np.float32), 2e-6)


def make(name: str, dtype: str, shape: Shape) -> Array:
    """Return reproducible values; integers are small, so that nothing overflows."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {dtype} {shape}".encode()))
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(-9, 10, shape)).astype(dtype)


def run(kind: str, inputs: list[Array], opset: int = 17, outputs: int = 1, **attributes: Any) -> list[Array]:
    """Return the operator's outputs; each input is dynamic in all dimensions."""
    b = Builder(opset)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    made = b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for name in made if isinstance(made, tuple) else (made,):
        b.output(name)
    with SimModel(b.to_bytes()) as model:
        return model(*inputs)


def run_with(kind: str, inputs: list[Array], constants: list[Array], **attributes: Any) -> list[Array]:
    """Return the operator's outputs as `run` does, with further inputs that are constants of the model."""
    b = Builder(17)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    names += [b.constant(c) for c in constants]
    b.add(kind, *names, outputs=["y"], **attributes)
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        return model(*inputs)


def same(got: Array, expected: Array, tolerance: float = 1e-5) -> None:
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


TOLERANCE = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-12}

# --- elementwise -----------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])
UNARY: list[tuple[str, Callable[[Array], Any], str]] = [
    ("Abs", np.abs, "fi"),
    ("Neg", np.negative, "fi"),
    ("Sign", np.sign, "fi"),
    ("Exp", np.exp, "f"),
    ("Log", lambda x: np.log(x), "p"),
    ("Sqrt", np.sqrt, "p"),
    ("Reciprocal", lambda x: 1 / x, "p"),
    ("Floor", np.floor, "f"),
    ("Ceil", np.ceil, "f"),
    ("Round", np.rint, "f"),
    ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), "f"),
    ("Tanh", np.tanh, "f"),
    ("Erf", erf, "f"),
    ("Relu", lambda x: np.maximum(x, 0), "fi"),
    ("LeakyRelu", lambda x: np.where(x < 0, float(np.float32(0.01)) * x, x), "f"),
    ("Elu", lambda x: np.where(x < 0, np.expm1(x), x), "f"),
    ("Softplus", lambda x: np.log1p(np.exp(x)), "f"),
    ("HardSigmoid", lambda x: np.clip(float(np.float32(0.2)) * x + 0.5, 0, 1), "f"),
    ("Sin", np.sin, "f"),
    ("Cos", np.cos, "f"),
    ("Atan", np.arctan, "f"),
    ("Sinh", np.sinh, "f"),
    ("Not", np.logical_not, "b"),
    ("Softsign", lambda x: x / (1 + np.abs(x)), "f"),
    ("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "f"),
    ("Celu", lambda x: np.where(x < 0, np.expm1(x), x), "f"),
    ("Selu", lambda x: np.float32(1.0507010) * np.where(x > 0, x, np.float32(1.6732632) * np.expm1(x)), "f"),
    ("Mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), "f"),
    ("ThresholdedRelu", lambda x: np.where(x > 1, x, 0), "f"),
    ("Swish", lambda x: x / (1 + np.exp(-x)), "f"),
    ("Shrink", lambda x: np.where(np.abs(x) > 0.5, x, 0), "f"),
    ("Tan", np.tan, "f"),
    ("Cosh", np.cosh, "f"),
    ("Asinh", np.arcsinh, "f"),
]
CLASSES = {
    "f": ["float16", "float32", "float64"],
    "p": ["float16", "float32", "float64"],
    "i": ["int32", "int64"],
    "b": ["bool"],
}


@pytest.mark.parametrize(
    ("kind", "function", "dtype"),
    [pytest.param(k, f, d, id=f"{k}-{d}") for k, f, types in UNARY for c in types for d in CLASSES[c]],
)
def test_unary_operators_equal_numpy(kind: str, function: Callable[[Array], Any], dtype: str) -> None:
    positive = "p" in {types for name, _, types in UNARY if name == kind}.pop()
    for shape in [(), (1,), (3, 5, 7), (2, 0, 3), (1030,)]:
        x = make(kind, dtype, shape)
        x = np.asarray(np.abs(x) + np.asarray(0.5, x.dtype)) if positive else x
        wide = x.astype(np.float64) if dtype.startswith("float") else x
        same(run(kind, [x])[0], np.asarray(function(wide)).astype(dtype), TOLERANCE.get(dtype, 0.0))


BINARY: list[tuple[str, Callable[[Array, Array], Any], str]] = [
    ("Add", np.add, "fi"),
    ("Sub", np.subtract, "fi"),
    ("Mul", np.multiply, "fi"),
    ("Div", np.divide, "f"),
    ("Pow", lambda x, y: np.abs(x) ** y, "f"),
    ("Min", np.minimum, "fi"),
    ("Max", np.maximum, "fi"),
    ("Equal", np.equal, "fib"),
    ("Less", np.less, "fi"),
    ("Greater", np.greater, "fi"),
    ("LessOrEqual", np.less_equal, "fi"),
    ("GreaterOrEqual", np.greater_equal, "fi"),
    ("And", np.logical_and, "b"),
    ("Or", np.logical_or, "b"),
    ("Xor", np.logical_xor, "b"),
]
PAIRS: list[tuple[Shape, Shape]] = [
    ((3, 4), (3, 4)),
    ((3, 4), ()),
    ((), (3, 4)),
    ((3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((1, 5), (7, 1)),
    ((0, 3), (3,)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((600,), (1,)),
]


@pytest.mark.parametrize(
    ("kind", "function", "dtype"),
    [pytest.param(k, f, d, id=f"{k}-{d}") for k, f, types in BINARY for c in types for d in CLASSES[c]],
)
def test_binary_broadcasts(kind: str, function: Callable[[Array, Array], Any], dtype: str) -> None:
    for left, right in PAIRS:
        x, y = make(kind + "x", dtype, left), make(kind + "y", dtype, right)
        x = np.asarray(np.clip(np.abs(x), 0.1, 3)).astype(dtype) if kind == "Pow" else x
        wide = [v.astype(np.float64) if dtype.startswith("float") else v for v in (x, y)]
        expected = np.asarray(function(*wide))
        same(
            run(kind, [x, y])[0],
            expected if expected.dtype == bool else expected.astype(dtype),
            TOLERANCE.get(dtype, 0.0) * 4,
        )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_division_truncates_and_survives_zero(dtype: str) -> None:
    x, y = np.array([7, -7, 7, -7, 5, np.iinfo(dtype).min], dtype), np.array([2, 2, -2, -2, 0, -1], dtype)
    same(run("Div", [x, y])[0], np.array([3, -3, -3, 3, 0, np.iinfo(dtype).min], dtype))


def test_mod_has_the_divisors_sign_and_fmod_the_dividends() -> None:
    x, y = np.array([7, -7, 7, -7], np.int64), np.array([3, 3, -3, -3], np.int64)
    same(run("Mod", [x, y])[0], np.mod(x, y))
    same(run("Mod", [x, y], fmod=1)[0], np.fmod(x, y))


def test_nan_and_infinity_pass_through() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -200.0, 200.0], np.float32)
    with np.errstate(over="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(run("Exp", [x])[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(run("Max", [x, np.zeros(5, np.float32)])[0], np.maximum(x, 0))
    np.testing.assert_allclose(run("Softmax", [np.array([0, -np.inf, 1], np.float32)])[0].sum(), 1.0, rtol=1e-6)


def test_incompatible_shapes_name_the_node() -> None:
    with pytest.raises(AssertionError, match=r"145021.*\[2, 3\] and \[2, 4\]"):
        run("Add", [np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)])


# --- casts -----------------------------------------------------------------------------------------

CAST_TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
NUMBERS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


@pytest.mark.parametrize("to", CAST_TYPES)
@pytest.mark.parametrize("origin", CAST_TYPES)
def test_cast_between_types_equals_numpy(origin: str, to: str) -> None:
    x = np.abs(make("cast", origin, (37,)))
    same(run("Cast", [x], to=NUMBERS[to])[0], x.astype(to))


@pytest.mark.parametrize("bits", [range(0, 65536, 7), [0x7C00, 0xFC00, 0x7E01, 0x8000, 1, 0x3FF, 0x400]])
def test_float16_bits_survive_the_way_through_float32(bits: list[int]) -> None:
    halves = np.array(bits, np.uint16).view(np.float16)
    single = run("Cast", [halves], to=1)[0]
    np.testing.assert_array_equal(single, halves.astype(np.float32))
    np.testing.assert_array_equal(run("Cast", [single], to=10)[0], halves)


def test_float32_rounds_to_the_nearest_float16() -> None:
    x = make("round", "float32", (4096,)) * np.float32(300)
    edges = np.array([65504, 65519.9, 65520, 1e-8, 6e-8, 5.96e-8, -0.0, 1.0004883], np.float32)
    for values in (x, edges, x * np.float32(1e-7)):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(run("Cast", [values], to=10)[0], values.astype(np.float16))


# --- reductions and norms --------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [1, 2], [0, 1, 2], None])
@pytest.mark.parametrize(
    ("kind", "function"),
    [("ReduceMean", np.mean), ("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceProd", np.prod)],
)
def test_reduction_operators_equal_numpy(
    kind: str, function: Callable[..., Any], axes: list[int] | None, keep: int
) -> None:
    for dtype in ("float32", "float16"):
        x = make(kind, dtype, (3, 4, 5))
        attributes = {} if axes is None else {"axes": axes}
        expected = function(x.astype(np.float64), axis=None if axes is None else tuple(axes), keepdims=bool(keep))
        same(run(kind, [x], keepdims=keep, **attributes)[0], np.asarray(expected).astype(dtype), TOLERANCE[dtype] * 4)


def test_reduce_sum_takes_axes_as_an_input() -> None:
    x = make("sum", "float32", (3, 700, 5))
    same(
        run_with("ReduceSum", [x], [np.array([1], np.int64)])[0],
        x.astype(np.float64).sum(1, keepdims=True).astype(np.float32),
        1e-4,
    )


def test_long_sums_lose_little() -> None:
    x = np.full((1, 1 << 20), 0.1, np.float32)
    np.testing.assert_allclose(run("ReduceMean", [x], axes=[1], keepdims=0)[0], 0.1, rtol=2e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_softmax_equals_its_definition(dtype: str, axis: int) -> None:
    x = make("softmax", dtype, (3, 33, 17))
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    same(run("Softmax", [x], axis=axis)[0], (e / e.sum(axis, keepdims=True)).astype(dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layer_normalization_equals_its_definition(dtype: str) -> None:
    x, scale, bias = make("ln", dtype, (4, 6, 8)), make("s", dtype, (6, 8)), make("b", dtype, (6, 8))
    wide = x.astype(np.float64)
    mean, variance = wide.mean((1, 2), keepdims=True), wide.var((1, 2), keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * scale + bias
    same(run("LayerNormalization", [x, scale, bias], axis=1)[0], expected.astype(dtype), TOLERANCE[dtype] * 8)


# --- matrix products -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((1, 300), (300, 40)),
        ((70, 33), (33, 100)),
        ((13, 600), (600, 1030)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ],
)
def test_matmul_equals_that_of_numpy(left: Shape, right: Shape, dtype: str) -> None:
    x, y = make("mmx", dtype, left), make("mmy", dtype, right)
    wide = (x.astype(np.float64) @ y.astype(np.float64)) if dtype.startswith("float") else x @ y
    same(run("MatMul", [x, y])[0], np.asarray(wide).astype(dtype), {"float16": 3e-2, "float32": 1e-4}.get(dtype, 0))


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", [(5,), (3, 1), (3, 5), ()])
def test_gemm_equals_its_definition(transposed: tuple[int, int], bias: Shape) -> None:
    a, b, c = make("a", "float32", (3, 4)), make("b", "float32", (4, 5)), make("c", "float32", bias)
    given = [a.T.copy() if transposed[0] else a, b.T.copy() if transposed[1] else b, c]
    got = run("Gemm", given, transA=transposed[0], transB=transposed[1], alpha=0.5, beta=2.0)[0]
    same(got, (0.5 * a @ b + 2 * c).astype(np.float32), 1e-5)


def test_product_by_four_threads_equals_that_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = make("tx", "float32", (200, 300)), make("ty", "float32", (300, 400))
    alone = run("MatMul", [x, y])[0]
    monkeypatch.setenv("ACL_SIM_THREADS", "4")
    np.testing.assert_array_equal(run("MatMul", [x, y])[0], alone)


def test_einsum_of_three_operands() -> None:
    a, b, c = make("ea", "float32", (2, 3)), make("eb", "float32", (3, 4)), make("ec", "float32", (4, 2))
    same(run("Einsum", [a, b, c], equation="ij,jk,ki->i")[0], np.einsum("ij,jk,ki->i", a, b, c), 1e-5)
    same(run("Einsum", [a, b], equation="ij,jk->ki")[0], np.einsum("ij,jk->ki", a, b), 1e-5)


# --- convolution and pooling -----------------------------------------------------------------------


def convolve(x: Array, w: Array, strides: list[int], pads: list[int], dilations: list[int], groups: int) -> Array:
    """Return the convolution, computed directly from its definition."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    height, width = ((n - e) // s + 1 for n, e, s in zip(x.shape[2:], extents, strides, strict=True))
    each, inner = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], height, width))
    for f, i, j in np.ndindex(w.shape[0], height, width):
        g, top, left = f // each, i * strides[0], j * strides[1]
        part = x[
            :,
            g * inner : (g + 1) * inner,
            top : top + extents[0] : dilations[0],
            left : left + extents[1] : dilations[1],
        ]
        y[:, f, i, j] = (part * w[f]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "strides", "pads", "dilations", "groups"),
    [
        (3, 4, (3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 1),
        (4, 6, (3, 2), [2, 1], [0, 1, 2, 0], [1, 2], 2),
        (6, 6, (3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 6),
        (4, 8, (5, 5), [2, 2], [2, 2, 2, 2], [1, 1], 4),
        (5, 7, (1, 1), [1, 1], [0, 0, 0, 0], [1, 1], 1),
        (2, 3, (1, 1), [2, 2], [0, 0, 0, 0], [1, 1], 1),
    ],
)
def test_convolution_equals_its_definition(
    channels: int,
    filters: int,
    kernel: Shape,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
    dtype: str,
) -> None:
    x, w = make("cx", dtype, (2, channels, 9, 8)), make("cw", dtype, (filters, channels // groups, *kernel))
    bias = make("cb", dtype, (filters,))
    got = run("Conv", [x, w, bias], strides=strides, pads=pads, dilations=dilations, group=groups)[0]
    expected = convolve(x, w.astype(np.float64), strides, pads, dilations, groups) + bias.reshape(1, -1, 1, 1)
    same(got, expected.astype(dtype), {"float16": 2e-2, "float32": 1e-4}[dtype])


def test_transposed_convolution_is_the_adjoint_of_convolution() -> None:
    x, y = make("ax", "float32", (1, 4, 9, 8)), make("ay", "float32", (1, 6, 5, 8))
    w = make("aw", "float32", (6, 4, 3, 3))
    forward = run("Conv", [x, w], strides=[2, 1], pads=[1, 1, 1, 1])[0]
    backward = run("ConvTranspose", [y, w], strides=[2, 1], pads=[1, 1, 1, 1])[0]
    assert forward.shape == y.shape and backward.shape == x.shape
    np.testing.assert_allclose((forward * y).sum(), (backward * x).sum(), rtol=1e-3)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("ceil", [0, 1])
def test_pooling_equals_its_definition(kind: str, ceil: int) -> None:
    x = make("pool", "float32", (2, 3, 8, 7))
    got = run(kind, [x], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=ceil)[0]
    height, width = (4 + (1 if ceil else 0)), (3 + (1 if ceil else 0))
    assert got.shape == (2, 3, height, width)
    for i, j in np.ndindex(height, width):
        part = x[:, :, max(0, 2 * i - 1) : 2 * i + 2, 2 * j : 2 * j + 2]
        expected = part.max((2, 3)) if kind == "MaxPool" else part.mean((2, 3))
        np.testing.assert_allclose(got[:, :, i, j], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("order", "flat"), [(0, "C"), (1, "F")])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)])
def test_max_pool_says_where_by_rows_or_by_columns(shape: tuple[int, ...], order: int, flat: str) -> None:
    x = make("where", "float32", (2, 3, *shape))
    _, where = run("MaxPool", [x], outputs=2, kernel_shape=list(shape), storage_order=order)
    planes = x.reshape(6, *shape)
    expected = [i * math.prod(shape) + plane.ravel(order=flat).argmax() for i, plane in enumerate(planes)]
    assert where.ravel().tolist() == expected


# --- moving elements -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "int64"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 0, 3, 2]])
def test_transpose_equals_that_of_numpy(order: list[int], dtype: str) -> None:
    x = make("t", dtype, (2, 3, 4, 5))
    np.testing.assert_array_equal(run("Transpose", [x], perm=order)[0], x.transpose(order))


SLICES = [
    ([1], [3], [0], [1]),
    ([-3], [-1], [1], [1]),
    ([-1], [-100], [1], [-1]),
    ([0], [1 << 62], [-1], [2]),
    ([5], [1], [1], [-2]),
    ([0, 1], [2, 3], [1, 0], [1, 1]),
    ([9], [20], [0], [1]),
    ([3], [1], [0], [1]),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
def test_slice_follows_python(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> None:
    x = make("slice", "float32", (5, 6, 7))
    index: list[slice] = [slice(None)] * 3
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    lists = [np.array(values, np.int64) for values in (starts, ends, axes, steps)]
    np.testing.assert_array_equal(run_with("Slice", [x], lists)[0], x[tuple(index)])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad_operator_equals_that_of_numpy(mode: str) -> None:
    x = make("pad", "float32", (3, 4))
    pads = np.array([1, 2, 2, 0], np.int64)
    expected = np.pad(x, ((1, 2), (2, 0)), mode=mode)  # type: ignore[call-overload]
    got = run_with("Pad", [x], [pads], mode=mode) if mode != "wrap" else _opset19_pad(x, pads)
    np.testing.assert_array_equal(got[0], expected)


def _opset19_pad(x: Array, pads: Array) -> list[Array]:
    b = Builder(19)
    b.add("Pad", b.input("x", "float32", [None, None]), b.constant(pads), mode="wrap", outputs=["y"])
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        return model(x)


def test_gather_and_scatter_operators_equal_numpy() -> None:
    x, rows = make("g", "float32", (5, 6)), np.array([[0, -1], [3, 3]], np.int64)
    np.testing.assert_array_equal(run("Gather", [x, rows])[0], x[rows])
    np.testing.assert_array_equal(run("Gather", [x, rows], axis=1)[0], x[:, rows])
    picks = np.argsort(make("order", "float32", (5, 6)), 1)
    np.testing.assert_array_equal(run("GatherElements", [x, picks], axis=1)[0], np.take_along_axis(x, picks, 1))
    updates = make("u", "float32", (5, 6))
    expected = x.copy()
    np.put_along_axis(expected, picks, updates, 1)
    np.testing.assert_array_equal(run("ScatterElements", [x, picks, updates], axis=1)[0], expected)
    places = np.array([[0, 1], [4, 5]], np.int64)
    np.testing.assert_array_equal(run("GatherND", [x, places])[0], x[places[:, 0], places[:, 1]])
    added = x.copy()
    np.add.at(added, (places[:, 0], places[:, 1]), np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(
        run("ScatterND", [x, places, np.array([1, 2], np.float32)], opset=18, reduction="add")[0], added
    )


def test_index_outside_of_a_tensor_is_an_error_of_the_stream() -> None:
    with pytest.raises(AssertionError, match="507015"):
        run("Gather", [np.zeros((3, 2), np.float32), np.array([3], np.int64)])


def test_where_and_select_broadcast() -> None:
    c, x, y = make("c", "bool", (3, 1)), make("wx", "float16", (4,)), make("wy", "float16", (3, 4))
    np.testing.assert_array_equal(run("Where", [c, x, y])[0], np.where(c, x, y))


@pytest.mark.parametrize("largest", [0, 1])
def test_topk_breaks_ties_by_index(largest: int) -> None:
    x = np.array([[3, 1, 3, 2, 1, 3], [0, 0, 0, 0, 0, 0]], np.float32)
    b = Builder(17)
    b.add(
        "TopK",
        b.input("x", "float32", [None, None]),
        b.constant(np.array([4], np.int64)),
        largest=largest,
        outputs=["v", "i"],
    )
    b.output("v")
    b.output("i", "int64")
    with SimModel(b.to_bytes()) as model:
        values, indices = model(x)
    order = np.argsort(-x if largest else x, 1, kind="stable")[:, :4]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_nonzero_output_has_a_size_that_depends_on_the_data() -> None:
    x = make("nz", "bool", (4, 5, 3))
    np.testing.assert_array_equal(run("NonZero", [x])[0], np.stack(np.nonzero(x)))
    assert run("NonZero", [np.zeros((2, 2), np.float32)])[0].shape == (2, 0)


# --- refusals --------------------------------------------------------------------------------------

Row = tuple[str, list[Array], dict[str, Any], str]
F = np.zeros((2, 3, 4), np.float32)
REFUSED: list[Row] = [
    ("Add", [F, F.astype(np.float64)], {}, "expected float32 like input 0"),
    ("Relu", [F.astype(bool)], {}, "Relu is not defined for bool"),
    ("Not", [F], {}, "Not is not defined for float32"),
    ("MatMul", [F, F], {}, "do not multiply"),
    ("Softmax", [F], {"axis": 3}, "outside the rank 3"),
    ("Transpose", [F], {"perm": [0, 0, 1]}, "not a permutation"),
    ("Concat", [F, F[:1]], {"axis": 2}, "input 1"),
    ("Gather", [F, F], {}, "expected int32 or int64 indices"),
    ("Flatten", [F], {"axis": 4}, "outside the rank"),
    ("Conv", [F, F[:, :2]], {}, "has 3 channels; 1 groups of 2"),
    ("Cast", [F], {"to": 99}, "data type 99"),
    ("MaxPool", [F], {"kernel_shape": [1, 1]}, "kernel_shape"),
    ("BatchNormalization", [F, *[np.zeros(2, np.float32)] * 4], {}, "for each of 3 channels"),
    ("LayerNormalization", [F, np.zeros(3, np.float32)], {}, "expected 4 elements"),
    ("Where", [F, F, F], {}, "expected bool"),
    ("Einsum", [F], {"equation": "ij->i"}, "does not fit the rank"),
    ("Add", [F], {}, "expected 2 inputs"),
]


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "words"), REFUSED, ids=[f"{r[0]}-{r[3][:20]}" for r in REFUSED]
)
def test_refused_operators_say_what_was_expected(
    kind: str, inputs: list[Array], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        run(kind, inputs, **attributes)


VARIANTS: list[tuple[str, int, int, dict[str, Any], str]] = [
    ("Add", 1, 1, {}, "expected 2 inputs, got 1"),
    ("Relu", 1, 2, {}, "expected 1 to 1 outputs, got 2"),
    ("BatchNormalization", 5, 1, {"training_mode": 1}, "training_mode: expected 0"),
    ("LSTM", 3, 1, {"hidden_size": 2, "clip": 1.0}, "clip: only the default"),
    ("GRU", 3, 1, {"hidden_size": 2, "layout": 1}, "layout: only the default"),
    ("Resize", 4, 1, {"mode": "area"}, "mode area"),
]


@pytest.mark.parametrize(("kind", "inputs", "outputs", "attributes", "words"), VARIANTS)
def test_a_variant_that_is_missing_is_refused_at_load(
    kind: str, inputs: int, outputs: int, attributes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is refused at its load and not when it runs, because another engine may support the variant."""
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    with pytest.raises(AssertionError, match=f"100013.*{kind}.*{words}"):
        run(kind, [np.zeros((1, 1, 1), np.float32)] * inputs, outputs=outputs, **attributes)


def test_dropout_keeps_all_values_and_returns_a_full_mask() -> None:
    x = make("dropout", "float32", (3, 5))
    kept, mask = run("Dropout", [x, np.array(0.5, np.float32)], outputs=2)
    np.testing.assert_array_equal(kept, x)
    np.testing.assert_array_equal(mask, np.ones((3, 5), bool))
    np.testing.assert_array_equal(run("Dropout", [x, np.array(0.5, np.float32), np.array(False)])[0], x)


def test_dropout_in_training_is_refused() -> None:
    x = make("dropout", "float32", (3, 5))
    with pytest.raises(AssertionError, match=r"145021.*training_mode false"):
        run("Dropout", [x, np.array(0.5, np.float32), np.array(True)])


def test_refusal_leaves_the_model_usable() -> None:
    b = Builder()
    b.add("Add", b.input("x", "float32", [None]), b.input("y", "float32", [None]), outputs=["z"])
    b.output("z")
    with SimModel(b.to_bytes()) as model:
        with pytest.raises(AssertionError, match="broadcast"):
            model(np.ones(2, np.float32), np.ones(3, np.float32))
        same(model(np.ones(2, np.float32), np.ones(2, np.float32))[0], np.full(2, 2, np.float32))


def test_operator_sets_outside_the_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    for opset in (6, 29):
        b = Builder(opset)
        b.add("Relu", b.input("x", "float32", [1]), outputs=["y"])
        b.output("y")
        data, number = b.to_bytes(), out()
        assert api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number)) == 100013
        assert f"operator set {opset}" in sim_message()
