"""Quantised operators against their definitions in NumPy: QDQ, dynamic, integer products."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import TYPES, Builder

Array = np.ndarray[Any, Any]
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}

pytestmark = pytest.mark.usefixtures("device")


def rng(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def whole(generator: np.random.Generator, dtype: str, *shape: int) -> Array:
    low, high = LIMITS[dtype]
    return generator.integers(low, high + 1, shape).astype(dtype)


def run(kind: str, inputs: list[Array | None], opset: int = 21, outputs: int = 1, **attributes: Any) -> list[Array]:
    """Return the operator's outputs; None is an input that is left out."""
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    made = b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for name in made if isinstance(made, tuple) else (made,):
        b.output(name)
    with SimModel(b.to_bytes()) as model:
        return model(*(x for x in inputs if x is not None))


def quantised(x: Array, scale: Array, zero: Array | int, dtype: str) -> Array:
    low, high = LIMITS[dtype]
    value = np.rint(x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64) + zero
    return np.clip(value, low, high).astype(dtype)


# --- QuantizeLinear, DequantizeLinear ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("origin", ["float32", "float16"])
def test_quantize_rounds_to_even_and_saturates(origin: str, dtype: str) -> None:
    x = np.array([0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e3, -1e3, 6e4, -6e4, np.inf, -np.inf], origin)
    x = np.concatenate([x, (rng(origin, dtype).standard_normal(700) * 40).astype(origin)])
    scale, zero = np.array(0.5, origin), whole(rng(dtype), dtype)
    np.testing.assert_array_equal(run("QuantizeLinear", [x, scale, zero])[0], quantised(x, scale, int(zero), dtype))


def test_nan_quantises_to_the_lowest_number() -> None:
    x, scale = np.array([np.nan, 1.0], np.float32), np.array(0.0, np.float32)
    np.testing.assert_array_equal(run("QuantizeLinear", [x, scale, np.array(3, np.int8)])[0], [-128, 127])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_values_along_an_axis_are_dequantised_again(dtype: str, axis: int) -> None:
    generator = rng(dtype, axis)
    x = (generator.standard_normal((3, 5, 4)) * 30).astype(np.float32)
    shape = [1, 1, 1]
    shape[axis] = x.shape[axis]
    scale = generator.uniform(0.1, 1, x.shape[axis]).astype(np.float32)
    zero = whole(generator, dtype, x.shape[axis])
    made = run("QuantizeLinear", [x, scale, zero], axis=axis)[0]
    wide = zero.reshape(shape).astype(np.int32)
    np.testing.assert_array_equal(made, quantised(x, scale.reshape(shape), wide, dtype))
    back = run("DequantizeLinear", [made, scale, zero], axis=axis)[0]
    np.testing.assert_array_equal(back, (made.astype(np.int32) - wide).astype(np.float32) * scale.reshape(shape))


@pytest.mark.parametrize("axis", [0, 1])
def test_quantised_axis_has_a_scale_for_each_block(axis: int) -> None:
    generator = rng("blocks", axis)
    shape = [7, 300]
    parts = [*shape]
    parts[axis] = -(-shape[axis] // 3)
    x = whole(generator, "int8", *shape)
    scale = generator.uniform(0.1, 1, parts).astype(np.float32)
    zero = whole(generator, "int8", *parts)
    where = np.arange(shape[axis]) // 3
    expected = (x.astype(np.int32) - zero.take(where, axis)).astype(np.float32) * scale.take(where, axis)
    got = run("DequantizeLinear", [x, scale, zero], axis=axis, block_size=3)[0]
    np.testing.assert_array_equal(got, expected)
    again = run("QuantizeLinear", [expected, scale, zero], axis=axis, block_size=3)[0]
    np.testing.assert_array_equal(again, x)


def test_zero_point_of_quantisation_may_be_left_out() -> None:
    x, scale = np.array([-1.0, 3.0], np.float32), np.array(0.1, np.float32)
    got = run("QuantizeLinear", [x, scale])[0]
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, [0, 30])
    got = run("QuantizeLinear", [x, scale], output_dtype=TYPES["int16"])[0]
    assert got.dtype == np.int16
    np.testing.assert_array_equal(got, [-10, 30])
    sums = np.array([7, -2**31], np.int32)
    np.testing.assert_array_equal(run("DequantizeLinear", [sums, scale])[0], sums.astype(np.float32) * scale)


def test_dequantize_gives_the_scales_type() -> None:
    got = run("DequantizeLinear", [np.array([1, 2], np.uint8), np.array(0.5, np.float16)])[0]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, [0.5, 1.0])


@pytest.mark.parametrize("values", [[0, 2, -3, -2.5, 1.34, 0.5], [-1, -2.1], [1, 2.1, 1.3], [0, 0], []])
def test_dynamic_quantisation_chooses_scale_and_zero_point_by_the_range(values: list[float]) -> None:
    x = np.array(values, np.float32)
    low, high = np.float32(min([0, *values])), np.float32(max([0, *values]))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    y, y_scale, y_zero = run("DynamicQuantizeLinear", [x], outputs=3)
    np.testing.assert_array_equal(y, quantised(x, np.asarray(scale), int(zero), "uint8"))
    assert (y_scale, y_zero) == (scale, zero)


# --- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((70, 900), (900, 40)), ((2, 3, 70), (70, 9)), ((2, 1, 3, 4), (3, 4, 5)), ((7,), (7, 2)),
     ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((1, 1300), (1300, 17))],
)
@pytest.mark.parametrize(("a_type", "b_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_integer_products_are_exact(left: tuple[int, ...], right: tuple[int, ...], a_type: str, b_type: str) -> None:
    generator = rng(left, right, a_type, b_type)
    a, b = whole(generator, a_type, *left), whole(generator, b_type, *right)
    a_zero, b_zero = whole(generator, a_type), whole(generator, b_type)
    expected = (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - int(b_zero))
    got = run("MatMulInteger", [a, b, a_zero, b_zero])[0]
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(run("MatMulInteger", [a, b])[0], a.astype(np.int64) @ b.astype(np.int64))


def test_integer_products_of_extreme_values_are_exact() -> None:
    a, b = np.full((5, 3001), 255, np.uint8), np.full((3001, 6), 255, np.uint8)
    b[::2] = 254
    np.testing.assert_array_equal(run("MatMulInteger", [a, b])[0], a.astype(np.int64) @ b.astype(np.int64))


def test_integer_product_has_a_zero_point_for_each_row_and_column() -> None:
    generator = rng("per row")
    a, b = whole(generator, "uint8", 6, 9), whole(generator, "int8", 9, 4)
    rows, columns = whole(generator, "uint8", 6), whole(generator, "int8", 4)
    expected = (a.astype(np.int64) - rows[:, None].astype(np.int64)) @ (b.astype(np.int64) - columns.astype(np.int64))
    np.testing.assert_array_equal(run("MatMulInteger", [a, b, rows, columns])[0], expected)


@pytest.mark.parametrize("columns", [1, 40])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_matmul_equals_its_definition(dtype: str, columns: int) -> None:
    generator = rng(dtype, columns)
    a, b = whole(generator, dtype, 2, 6, 300), whole(generator, dtype, 300, 40)
    a_zero, y_zero = whole(generator, dtype), whole(generator, dtype)
    b_zero = whole(generator, dtype) if columns == 1 else whole(generator, dtype, columns)
    a_scale, y_scale = np.array(0.02, np.float32), np.array(3.1, np.float32)
    b_scale = generator.uniform(0.01, 0.05, () if columns == 1 else columns).astype(np.float32)
    sums = (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - b_zero.astype(np.int64))
    expected = quantised(sums.astype(np.float32) * (a_scale * b_scale / y_scale), np.float32(1), int(y_zero), dtype)
    given = [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero]
    np.testing.assert_array_equal(run("QLinearMatMul", given)[0], expected)


# --- convolutions ----------------------------------------------------------------------------------


def convolve(x: Array, w: Array, strides: list[int], pads: list[int], groups: int) -> Array:
    """Return the convolution of integers, zero points already subtracted, computed directly from its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    height, width = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:], w.shape[2:], strides, strict=True))
    each, inner = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], height, width), np.int64)
    for f, i, j in np.ndindex(w.shape[0], height, width):
        first, top, left = f // each * inner, i * strides[0], j * strides[1]
        part = x[:, first : first + inner, top : top + w.shape[2], left : left + w.shape[3]]
        y[:, f, i, j] = (part * w[f]).sum((1, 2, 3))
    return y


SHAPES = [
    (3, 4, (3, 3), [1, 1], [1, 1, 1, 1], 1),
    (4, 6, (3, 2), [2, 1], [0, 1, 2, 0], 2),
    (6, 6, (3, 3), [1, 1], [1, 1, 1, 1], 6),
    (40, 5, (3, 3), [1, 1], [0, 0, 0, 0], 1),
    (5, 7, (1, 1), [1, 1], [0, 0, 0, 0], 1),
]


@pytest.mark.parametrize(("channels", "filters", "kernel", "strides", "pads", "groups"), SHAPES)
@pytest.mark.parametrize("w_type", ["int8", "uint8"])
def test_quantised_convolutions_equal_their_definition(
    channels: int, filters: int, kernel: tuple[int, int], strides: list[int], pads: list[int], groups: int, w_type: str
) -> None:
    generator = rng(channels, filters, kernel, w_type)
    x, w = whole(generator, "uint8", 2, channels, 9, 8), whole(generator, w_type, filters, channels // groups, *kernel)
    x_zero, w_zero = whole(generator, "uint8"), whole(generator, w_type, filters)
    wide = w.astype(np.int64) - w_zero.astype(np.int64)[:, None, None, None]
    sums = convolve(x.astype(np.int64) - int(x_zero), wide, strides, pads, groups)
    attributes: dict[str, Any] = {"strides": strides, "pads": pads, "group": groups, "kernel_shape": [*kernel]}
    got = run("ConvInteger", [x, w, x_zero, w_zero], **attributes)[0]
    np.testing.assert_array_equal(got, sums)
    x_scale, y_scale, y_zero = np.array(0.03, np.float32), np.array(2.7, np.float32), np.array(100, np.uint8)
    w_scale = generator.uniform(0.01, 0.1, filters).astype(np.float32)
    bias = generator.integers(-9999, 9999, filters).astype(np.int32)
    scale = (x_scale * w_scale / y_scale)[:, None, None]
    expected = quantised((sums + bias[:, None, None]).astype(np.float32) * scale, np.float32(1), 100, "uint8")
    given = [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias]
    np.testing.assert_array_equal(run("QLinearConv", given, **attributes)[0], expected)


# --- a net in QDQ form ------------------------------------------------------------------------------


def test_model_in_qdq_form_gives_right_results() -> None:
    """Weights and activations pass through Q and DQ pairs, as quantisation tools export them."""
    generator, b = rng("net"), Builder()
    x = b.input("x", "float32", ["n", 16])
    w = (generator.standard_normal((16, 8)) * 0.3).astype(np.float32)
    w_scale, w_zero = (np.abs(w).max(0) / 127).astype(np.float32), np.zeros(8, np.int8)
    w_small = quantised(w, w_scale, 0, "int8")
    x_scale, x_zero = np.array(0.04, np.float32), np.array(128, np.uint8)
    small = b.add("QuantizeLinear", x, b.constant(x_scale), b.constant(x_zero))
    near = b.add("DequantizeLinear", small, b.constant(x_scale), b.constant(x_zero))
    weight = b.add("DequantizeLinear", b.constant(w_small), b.constant(w_scale), b.constant(w_zero), axis=1)
    b.add("MatMul", near, weight, outputs=["y"])
    b.output("y")
    given = generator.standard_normal((5, 16)).astype(np.float32)
    rounded = (quantised(given, x_scale, 128, "uint8").astype(np.float32) - 128) * x_scale
    with SimModel(b.to_bytes()) as model:
        np.testing.assert_allclose(model(given)[0], rounded @ (w_small * w_scale), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_four_bit_weights_are_dequantised(dtype: str) -> None:
    """Weights are quantised in blocks of one axis, as in weight-only quantisation of language models."""
    generator, b = rng(dtype), Builder(21)
    low, high = (-8, 8) if dtype == "int4" else (0, 16)
    w = generator.integers(low, high, (9, 5)).astype(dtype.replace("4", "8"))
    zero = generator.integers(low, high, (3, 5)).astype(w.dtype)
    scale = generator.uniform(0.1, 1, (3, 5)).astype(np.float32)
    names = b.constant(w, narrow=dtype), b.constant(scale), b.constant(zero, narrow=dtype)
    weight = b.add("DequantizeLinear", *names, axis=0, block_size=3)
    b.add("MatMul", b.input("x", "float32", ["n", 9]), weight, outputs=["y"])
    b.output("y")
    given = generator.standard_normal((4, 9)).astype(np.float32)
    wide = (w.astype(np.float32) - zero.repeat(3, 0)) * scale.repeat(3, 0)
    with SimModel(b.to_bytes()) as model:
        np.testing.assert_allclose(model(given)[0], given @ wide, rtol=1e-4, atol=1e-4)


def test_quantising_to_four_bits_is_refused() -> None:
    b = Builder(21)
    zero = b.constant(np.array(0, np.int8), narrow="int4")
    b.add("QuantizeLinear", b.input("x", "float32", ["n"]), b.constant(np.array(1, np.float32)), zero, outputs=["y"])
    b.output("y")
    with SimModel(b.to_bytes()) as model, pytest.raises(AssertionError, match=r"145021.*four bits"):
        model(np.zeros(3, np.float32))


# --- refusals --------------------------------------------------------------------------------------

F, U, ONE = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint8), np.array(1, np.float32)
REFUSED: list[tuple[str, list[Array | None], dict[str, Any], str]] = [
    ("QuantizeLinear", [F, np.ones(2, np.float32)], {}, r"scale of shape \[2\] does not go with \[2, 3\], axis 1"),
    ("QuantizeLinear", [F, ONE, np.array(0, np.int32)], {}, "got int32"),
    ("QuantizeLinear", [F.astype(np.int64), ONE], {}, "not defined for int64"),
    ("DequantizeLinear", [U, ONE, np.array(0, np.int8)], {}, "expected uint8 like input 0, got int8"),
    ("DequantizeLinear", [F, ONE], {}, "not defined for float32"),
    ("DequantizeLinear", [U, np.ones((2, 2), np.float32)], {"block_size": -1}, "block_size -1"),
    ("MatMulInteger", [U, U], {}, "do not multiply"),
    ("MatMulInteger", [F, U], {}, "int8 or uint8, got float32 and uint8"),
    ("MatMulInteger", [U, U.T.copy(), np.zeros(3, np.uint8)], {}, "input 2: expected one value or 2"),
    ("QLinearMatMul", [U, ONE, np.array(0, np.int8), U.T.copy(), ONE, np.array(0, np.uint8), ONE,
                       np.array(0, np.uint8)], {}, "input 2: expected uint8 like input 0, got int8"),
    ("ConvInteger", [np.zeros((1, 2, 4), np.uint8), np.zeros((1, 3, 2), np.uint8)], {}, "has 2 channels"),
    ("ConvInteger", [np.zeros((1, 2, 4), np.uint8), np.zeros((1, 2), np.uint8)], {}, "rank 2"),
]


@pytest.mark.parametrize(("kind", "inputs", "attributes", "words"), REFUSED,
                         ids=[f"{r[0]}-{r[3][:20]}" for r in REFUSED])
def test_quantisation_with_wrong_inputs_is_refused(
    kind: str, inputs: list[Array | None], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        run(kind, inputs, **attributes)
