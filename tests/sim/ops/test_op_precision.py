"""Values that a conversion to another type would change: 64-bit integers, float64, sums of weights, NaN;
and reductions of no elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(kind: str, *inputs: Array | None, opset: int = 18, outputs: int = 1, **attributes: Any) -> Any:
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    with SimModel(b.to_bytes()) as model:
        made = model(*[x for x in inputs if x is not None])
    return made[0] if outputs == 1 else made


def exactly(got: Array, expected: Any) -> None:
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


# --- 64-bit integers -------------------------------------------------------------------------------

U = np.array([2**64 - 1, 3, 2**63], np.uint64)
V = np.array([2, 2**64 - 2, 5], np.uint64)
B = 2**53
W = np.array([B, B + 1, B], np.int64)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.floor_divide),
        ("Mod", np.mod),
        ("Max", np.maximum),
        ("Min", np.minimum),
        ("Greater", np.greater),
        ("Less", np.less),
        ("Equal", np.equal),
        ("GreaterOrEqual", np.greater_equal),
        ("LessOrEqual", np.less_equal),
        ("BitwiseAnd", np.bitwise_and),
        ("BitwiseOr", np.bitwise_or),
        ("BitwiseXor", np.bitwise_xor),
    ],
)
def test_uint64_of_two_operands_is_unsigned(kind: str, function: Callable[[Array, Array], Array]) -> None:
    exactly(run(kind, U, V), function(U, V))


def test_uint64_of_one_operand_is_unsigned() -> None:
    exactly(run("Abs", U), U)
    exactly(run("Sign", U), np.ones(3, np.uint64))
    exactly(run("BitwiseNot", U), ~U)
    exactly(run("Clip", U, np.array(4, np.uint64), np.array(2**63, np.uint64)), np.array([2**63, 4, 2**63], np.uint64))
    exactly(run("Clip", U), U)
    exactly(run("Pow", V, np.array([3, 2, 2], np.uint64)), V ** np.array([3, 2, 2], np.uint64))
    exactly(run("BitShift", U, np.ones(3, np.uint64), direction="RIGHT"), U >> np.uint64(1))


@pytest.mark.parametrize(("number", "dtype"), [(1, np.float32), (11, np.float64), (7, np.int64)])
def test_uint64_is_cast_unsigned(number: int, dtype: Any) -> None:
    exactly(run("Cast", U, to=number), U.astype(dtype))


def test_float_is_cast_to_uint64_unsigned() -> None:
    exactly(run("Cast", np.array([2.0**63, 1.5e19, 3.7]), to=13), np.array([2**63, int(1.5e19), 3], np.uint64))


@pytest.mark.parametrize("x", [U, W, -W])
def test_extremes_of_64_bits_are_found(x: Array) -> None:
    exactly(run("ReduceMax", x, keepdims=0), x.max())
    exactly(run("ReduceMin", x, keepdims=0), x.min())
    exactly(run("ArgMax", x, axis=0, keepdims=0), np.asarray(x.argmax()))
    exactly(run("ArgMin", x, axis=0, keepdims=0), np.asarray(x.argmin()))
    square = np.stack([x, x[::-1], x])
    exactly(run("ArgMax", square, axis=0, keepdims=0), square.argmax(0))
    for largest in (0, 1):
        values, places = run("TopK", x, np.array([3]), outputs=2, largest=largest)
        order = sorted(range(3), key=lambda i: (-int(x[i]) if largest else int(x[i]), i))
        exactly(values, x[order])
        exactly(places, np.array(order))


def test_sums_of_int64_are_exact() -> None:
    one = np.array([[1, 1, 1]], np.int64)
    exactly(run("Einsum", W, one[0], equation="i,i->i"), W)
    exactly(run("Einsum", W, equation="i->"), np.asarray(W.sum()))
    exactly(run("Einsum", W, one[0], one[0], equation="i,i,i->"), np.asarray(W.sum()))
    exactly(run("MatMul", one, W.reshape(3, 1)), np.array([[3 * B + 1]]))
    exactly(run("Gemm", one, W.reshape(3, 1), np.array([[B]]), alpha=3.0, beta=-1.0), np.array([[8 * B + 3]]))
    exactly(run("CumSum", W, np.array(0)), W.cumsum())


def test_range_may_span_more_than_63_bits() -> None:
    start, limit, step = np.array(-(2**62)), np.array(2**62), np.array(2**61)
    exactly(run("Range", start, limit, step), np.arange(-(2**62), 2**62, 2**61))
    exactly(
        run("Range", np.array(2**63 - 1), np.array(-(2**63)), np.array(-(2**62))),
        np.array([2**63 - 1, 2**62 - 1, -1, -(2**62) - 1]),
    )


# --- factors, float64 ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_gemm_has_its_factors_in_every_type(dtype: str) -> None:
    a, b, c = (np.arange(n).reshape(shape).astype(dtype) for n, shape in ((6, (2, 3)), (12, (3, 4)), (4, (4,))))
    expected = (-2 * (a @ b) + 3 * c).astype(dtype)
    exactly(run("Gemm", a, b, c, alpha=-2.0, beta=3.0), expected)
    exactly(run("Gemm", a, b, alpha=-2.0), (-2 * (a @ b)).astype(dtype))
    exactly(run("Gemm", a.T.copy(), b.T.copy(), c, alpha=-2.0, beta=3.0, transA=1, transB=1), expected)


LARGE = np.array([[[1e300, -2.0, 1 / 3, -1e300, 7.0]]])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def normal(x: Array, axes: int | tuple[int, ...], epsilon: float = 0.0) -> Array:
    variance = x.var(axes, keepdims=True)
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(variance + epsilon))


def test_float64_is_pooled_in_double_precision() -> None:
    exactly(run("MaxPool", LARGE, kernel_shape=[1]), LARGE)
    exactly(run("MaxPool", LARGE, kernel_shape=[3], strides=[2]), np.array([[[1e300, 7.0]]]))
    exactly(run("GlobalMaxPool", LARGE), LARGE.max(2, keepdims=True))
    np.testing.assert_allclose(run("GlobalAveragePool", np.abs(LARGE)), np.abs(LARGE).mean(2, keepdims=True))
    np.testing.assert_allclose(run("AveragePool", LARGE[..., :3], kernel_shape=[2]), [[[5e299, (1 / 3 - 2) / 2]]])
    values, places = run("MaxPool", LARGE, kernel_shape=[2], outputs=2)
    exactly(places, np.array([[[0, 2, 2, 4]]]))
    exactly(values, np.array([[[1e300, 1 / 3, 1 / 3, 7.0]]]))


def test_float64_is_normalised_in_double_precision() -> None:
    third, one, zero = np.array([[1 / 3, 2 / 3, 1e-9]]), np.ones(3), np.zeros(3)
    small = 1e-30
    np.testing.assert_allclose(run("Softmax", third), softmax(third), rtol=1e-14)
    np.testing.assert_allclose(run("LogSoftmax", third), np.log(softmax(third)), rtol=1e-14)
    exactly(run("Softmax", np.array([[1e39, 0.0]])), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(run("LayerNormalization", third, one, epsilon=small), normal(third, 1), rtol=1e-12)
    rms = third / np.sqrt((third**2).mean())
    np.testing.assert_allclose(run("RMSNormalization", third, one, opset=23, epsilon=small), rms, rtol=1e-12)
    np.testing.assert_allclose(run("LpNormalization", 1e200 * third, p=1), third / third.sum(), rtol=1e-14)
    x = np.array([[1e10 + 1, 1e10, 1e10 - 1]])
    exactly(run("BatchNormalization", x, one, zero, zero + 1e10, one, epsilon=0.0), np.array([[1.0, 0.0, -1.0]]))
    image = 1e10 + np.arange(12.0).reshape(1, 3, 4)
    got = run("InstanceNormalization", image, one, zero, epsilon=small)
    np.testing.assert_allclose(got, normal(image, 2), rtol=1e-9)
    got = run("GroupNormalization", image, one, zero, opset=21, num_groups=1, epsilon=small)
    np.testing.assert_allclose(got, normal(image, (1, 2)), rtol=1e-9)


def test_float64_products_and_reductions_have_double_precision() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((7, 301)), rng.standard_normal((301, 270))
    np.testing.assert_allclose(run("MatMul", a, b), a @ b, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(run("Einsum", a, b, equation="ij,jk->ki"), (a @ b).T, rtol=1e-11, atol=1e-11)
    for axes in ([0], [1], None):
        given = None if axes is None else np.array(axes)
        along = None if axes is None else tuple(axes)
        got = run("ReduceSum", 1e300 * a, given, keepdims=0)
        np.testing.assert_allclose(got, 1e300 * a.sum(along), rtol=1e-11, atol=1e286)
        got = run("ReduceLogSumExp", 700 + a, given, keepdims=0)
        np.testing.assert_allclose(got, 700 + np.log(np.exp(a).sum(along)), rtol=1e-14)


def test_float64_is_sampled_and_resized_in_double_precision() -> None:
    x = np.array([[1e300, 3e300], [1e300, 3e300]]).reshape(1, 1, 2, 2)
    grid = np.zeros((1, 1, 1, 2))
    np.testing.assert_allclose(run("GridSample", x, grid, mode="bilinear"), [[[[2e300]]]], rtol=1e-14)
    scales = np.array([1, 1, 1, 2], np.float32)
    got = run("Resize", x, None, scales, mode="linear", coordinate_transformation_mode="align_corners")
    np.testing.assert_allclose(got[0, 0, 0], np.linspace(1e300, 3e300, 4), rtol=1e-14)


@pytest.mark.parametrize(("number", "dtype"), [(10, "float16"), (1, "float32")])
def test_float64_is_rounded_once(number: int, dtype: str) -> None:
    x = np.array(
        [
            2049.0000000001,
            1.0004882812500002,
            1.00048828125,
            -2049.0000000001,
            65519.99999999,
            65520.0,
            2.0**-25,
            2.0**-25 * (1 + 1e-12),
            1 + 2.0**-24,
            1 + 2.0**-24 + 1e-15,
            np.nan,
            np.inf,
            1e300,
        ]
    )
    with np.errstate(over="ignore"):
        exactly(run("Cast", x, to=number), x.astype(dtype))


# --- weights that sum to one -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("value", [2, 137, 200, 255])
def test_resized_picture_of_one_value_keeps_the_value(value: int, mode: str) -> None:
    for size in (3, 5, 10):
        x = np.full((1, 1, size, size), value, np.uint8)
        for target in (1, 3, 7, 64):
            sizes = np.array([1, 1, target, target])
            got = run("Resize", x, None, None, sizes, opset=19, mode=mode)
            exactly(got, np.full((1, 1, target, target), value, np.uint8))


def test_a_cubic_at_the_border_takes_the_border_for_each_pixel() -> None:
    """The expected numbers are from torch.nn.functional.grid_sample of torch 2.13."""
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    grid = np.array([[[[-1.3, -1.2], [1.4, 0.2], [0.9, 1.3]]]], np.float32)
    got = run("GridSample", x, grid, mode="bicubic", padding_mode="border", align_corners=1, opset=16)
    np.testing.assert_allclose(got.ravel(), [-0.4860938, 8.1600056, 11.3276596], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_signed_integers_are_shifted_with_their_sign(dtype: str) -> None:
    bits, info = np.dtype(dtype).itemsize * 8, np.iinfo(dtype)
    x = np.array([info.min, -5, -1, 0, 1, 6, info.max], dtype)
    for shift in (0, 1, bits - 1, bits, bits + 1, -1, info.min, info.max):
        y = np.full(x.shape, shift, dtype)
        whole = shift if 0 <= shift < bits else bits
        right = [int(v) >> whole for v in x]
        left = [(((int(v) << whole) + 2 ** (bits - 1)) % 2**bits) - 2 ** (bits - 1) for v in x]
        exactly(run("BitShift", x, y, opset=28, direction="RIGHT"), np.array(right, dtype))
        exactly(run("BitShift", x, y, opset=28, direction="LEFT"), np.array(left, dtype))


# --- functions of angles, and runs of every length -----------------------------------------------


@pytest.mark.parametrize(
    ("kind", "function"),
    [("Sin", np.sin), ("Cos", np.cos), ("Atan", np.arctan), ("Asin", np.arcsin), ("Acos", np.arccos)],
)
def test_functions_of_angles_are_rounded_once(kind: str, function: Callable[[Array], Array]) -> None:
    rng = np.random.default_rng(5)
    tiny = 10.0 ** rng.uniform(-38, 0, 3000) * rng.choice([-1, 1], 3000)
    wide = np.concatenate([rng.uniform(-9, 9, 3000), rng.uniform(-3e6, 3e6, 3000), 1 / tiny, [2**20, 1e30]])
    near = np.concatenate([rng.uniform(-1, 1, 3000), 1 - np.abs(tiny)])
    x = np.concatenate([tiny, near if kind in ("Asin", "Acos") else wide, [0.0, -0.0]]).astype(np.float32)
    x = x[np.isfinite(x)]
    exact = function(x.astype(np.float64))
    got = run(kind, x)
    assert (np.abs(got - exact) <= 0.6 * np.spacing(np.abs(exact).astype(np.float32))).all()
    np.testing.assert_array_equal(np.signbit(got), np.signbit(exact))
    for odd in (np.nan, np.inf, -np.inf):
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(run(kind, np.array([1.0, odd], np.float32))[1], function(np.float32(odd)))


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "GlobalMaxPool"])
def test_extreme_value_is_found_at_every_position(kind: str) -> None:
    sign = np.float32(-1 if kind == "ReduceMin" else 1)
    for value in (np.float32(2), np.float32(np.inf), np.float32(np.nan)):
        x = np.full((1, 70, 70), -sign, np.float32)
        np.einsum("...ii->...i", x)[...] = sign * value
        got = run(kind, x) if kind == "GlobalMaxPool" else run(kind, x, opset=13, axes=[2])
        exactly(got.ravel(), np.full(70, sign * value))
    x = np.full((1, 70, 70), -np.inf, np.float32) * sign
    got = run(kind, x) if kind == "GlobalMaxPool" else run(kind, x, opset=13, axes=[2])
    exactly(got.ravel(), np.full(70, -np.inf * sign, np.float32))


def test_local_responses_equal_those_of_the_definition() -> None:
    x = np.random.default_rng(6).standard_normal((2, 5, 300)).astype(np.float32)
    for size, beta in ((1, 0.75), (2, 0.75), (3, 0.5), (4, 1.0), (9, 0.75)):
        want = np.empty(x.shape, np.float64)
        for c in range(5):
            around = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].astype(np.float64)
            want[:, c] = x[:, c] / (2.0 + 0.5 / size * (around**2).sum(1)) ** beta
        got = run("LRN", x, size=size, alpha=0.5, beta=beta, bias=2.0)
        np.testing.assert_allclose(got, want, rtol=1e-6)


# --- NaN, nothing, and logarithms of integers ------------------------------------------------------


def test_nan_values_are_kept_by_operators() -> None:
    x = np.array([np.nan, 1.0], np.float32)
    for kind in ("HardSigmoid", "HardSwish", "Clip", "Relu", "Sign"):
        assert np.isnan(run(kind, x)[0]), kind
        assert not np.isnan(run(kind, x)[1]), kind
    for kind in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        assert np.isnan(run(kind, x, keepdims=0)), kind
        assert np.isnan(run(kind, x.reshape(2, 1).repeat(3, 1), np.array([0]), keepdims=0)).all(), kind
    assert np.isnan(run("GlobalMaxPool", np.tile(x, 20).reshape(1, 1, 40))).all()
    exactly(run("ArgMax", x[::-1].copy(), axis=0, keepdims=0), np.asarray(1))


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("ReduceMax", "int32", -(2**31)),
        ("ReduceMin", "int32", 2**31 - 1),
        ("ReduceMax", "uint64", 0),
        ("ReduceMin", "uint64", 2**64 - 1),
        ("ReduceMax", "int8", -128),
        ("ReduceMin", "uint8", 255),
        ("ReduceMax", "bool", False),
        ("ReduceMin", "bool", True),
        ("ReduceMax", "float32", -np.inf),
        ("ReduceMin", "float64", np.inf),
        ("ReduceSum", "int64", 0),
        ("ReduceProd", "int32", 1),
        ("ReduceProd", "float32", 1),
        ("ReduceL2", "float32", 0),
        ("ReduceLogSum", "float32", -np.inf),
        ("ReduceLogSumExp", "float32", -np.inf),
        ("ReduceMean", "float32", np.nan),
    ],
)
def test_reduction_over_no_elements_gives_the_neutral_value(kind: str, dtype: str, expected: Any) -> None:
    exactly(run(kind, np.zeros((0, 2), dtype), np.array([0]), opset=20, keepdims=0), np.full(2, expected, dtype))
    exactly(run(kind, np.zeros((2, 0), dtype), np.array([1]), opset=20, keepdims=0), np.full(2, expected, dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_logarithms_of_integers_are_taken(dtype: str) -> None:
    x = np.arange(1, 13).reshape(3, 4).astype(dtype)
    exactly(run("ReduceLogSum", x, keepdims=0), np.asarray(np.log(x.sum())).astype(dtype))
    exactly(run("ReduceLogSumExp", x, keepdims=0), np.asarray(np.log(np.exp(x).sum())).astype(dtype))
    exactly(run("ReduceL2", x, keepdims=0), np.asarray(np.sqrt((x**2).sum())).astype(dtype))
