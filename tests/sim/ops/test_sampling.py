"""Operators that sample, take parts of a tensor or sum neighbours, against NumPy."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def floats(*shape: int) -> Array:
    return np.random.default_rng(zlib.crc32(repr(shape).encode())).standard_normal(shape).astype(np.float32)


def run(kind: str, inputs: list[Array], opset: int = 20, **attributes: Any) -> Array:
    b = Builder(opset)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=["y"], **attributes)
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        return model(*inputs)[0]


# --- GridSample ------------------------------------------------------------------------------------


def pixel(image: Array, y: int, x: int, padding: str, corners: bool) -> Array:
    """Return a pixel of an image [c, h, w]; outside the image as the padding mode says."""
    places = []
    for at, size in ((y, image.shape[1]), (x, image.shape[2])):
        if padding == "zeros" and not 0 <= at < size:
            return np.zeros(image.shape[0])
        if padding == "reflection":
            at = int(mirrored(at, size, corners))
        places.append(min(max(at, 0), size - 1))
    return image[:, places[0], places[1]].astype(np.float64)


def mirrored(at: float, size: int, corners: bool) -> float:
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    while not low <= at <= high:
        at = 2 * low - at if at < low else 2 * high - at
    return at


def weights(mode: str, part: float) -> list[float]:
    if mode != "cubic":
        return [1.0] if mode == "nearest" else [1 - part, part]
    a, made = -0.75, []
    for x in (1 + part, part, 1 - part, 2 - part):
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        made.append(near if x <= 1 else ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)
    return made


def sampled(image: Array, gx: float, gy: float, mode: str, padding: str, corners: bool) -> Array:
    taps, firsts = [], []
    for normal, size in ((gy, image.shape[1]), (gx, image.shape[2])):
        at = (normal + 1) / 2 * (size - 1) if corners else ((normal + 1) * size - 1) / 2
        at = float(np.rint(at)) if mode == "nearest" else at
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        if not low <= at <= high and padding != "zeros" and mode != "cubic":
            at = min(max(at, 0.0), size - 1.0) if padding == "border" else mirrored(at, size, corners)
        taps.append(weights(mode, at - math.floor(at)))
        firsts.append(math.floor(at) - (mode == "cubic"))
    return sum(
        wy * wx * pixel(image, firsts[0] + i, firsts[1] + j, padding, corners)
        for i, wy in enumerate(taps[0]) for j, wx in enumerate(taps[1])
    )


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_equals_its_definition(mode: str, padding: str, corners: int) -> None:
    x, grid = floats(2, 3, 5, 4), floats(2, 6, 7, 2)
    got = run("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=corners)
    expected = np.empty((2, 3, 6, 7))
    for n, i, j in np.ndindex(2, 6, 7):
        gx, gy = grid[n, i, j].astype(np.float64)
        expected[n, :, i, j] = sampled(x[n], gx, gy, mode, padding, bool(corners))
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


def test_grid_positions_that_are_nan_are_outside_the_image() -> None:
    grid = np.array([np.nan, 0, np.inf, -np.inf, 1e30, 0], np.float32).reshape(1, 1, 3, 2)
    np.testing.assert_array_equal(run("GridSample", [floats(1, 2, 3, 3), grid]), np.zeros((1, 2, 1, 3)))


# --- RoiAlign --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "mode"), [(2, "half_pixel"), (0, "half_pixel"), (0, "output_half_pixel")])
def test_roi_align_averages(ratio: int, mode: str) -> None:
    x, images = floats(2, 3, 8, 9), np.array([0, 1, 1], np.int64)
    rois = np.array([[0.5, 1, 14, 13], [3, 3, 4, 4.5], [-4, -3, 30, 6]], np.float32)
    got = run("RoiAlign", [x, rois, images], output_height=2, output_width=3, sampling_ratio=ratio,
              spatial_scale=0.5, coordinate_transformation_mode=mode)
    half = mode == "half_pixel"
    for r, i, j in np.ndindex(3, 2, 3):
        left, top, right, bottom = rois[r] * 0.5 - (0.5 if half else 0)
        height, width = (side if half else max(side, 1.0) for side in (bottom - top, right - left))
        down, over = (ratio or math.ceil(side) for side in (height / 2, width / 3))
        total = np.zeros(3)
        for a, b in np.ndindex(down, over):
            y, z = top + (i + (a + 0.5) / down) * height / 2, left + (j + (b + 0.5) / over) * width / 3
            if -1 <= y <= 8 and -1 <= z <= 9:
                y, z = min(max(y, 0.0), 7.0), min(max(z, 0.0), 8.0)
                total += sampled(x[images[r]], z / 8 * 2 - 1, y / 7 * 2 - 1, "linear", "border", True)
        np.testing.assert_allclose(got[r, :, i, j], total / (down * over), rtol=1e-4, atol=1e-4)


def test_roi_align_of_a_missing_image_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"507015.*no image 2"):
        run("RoiAlign", [floats(2, 1, 4, 4), np.zeros((1, 4), np.float32), np.array([2], np.int64)])


# --- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_compress_selects_along_an_axis(axis: int | None) -> None:
    x = floats(3, 4, 5)
    condition = np.array([False, True, True])
    attributes = {} if axis is None else {"axis": axis}
    np.testing.assert_array_equal(
        run("Compress", [x, condition], **attributes), np.compress(condition, x, axis)
    )


@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence_reverses_each_batch_up_to_its_length(time: int) -> None:
    x, lengths = floats(4, 4, 3), np.array([1, 4, 0, 2], np.int64)
    expected = x.copy()
    for b, length in enumerate(lengths):
        where = (slice(0, length), b) if time == 0 else (b, slice(0, length))
        expected[where] = x[where][::-1]
    got = run("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)
    np.testing.assert_array_equal(got, expected)


def test_reverse_sequence_refuses_a_length_that_passes_the_end() -> None:
    with pytest.raises(AssertionError, match=r"507015.*length 5 of 4 steps"):
        run("ReverseSequence", [floats(4, 2), np.array([5, 1], np.int64)])


@pytest.mark.parametrize(
    ("axes", "sizes", "take", "pad"),
    [
        ([0, 1], [2, 7], (slice(1, 3), slice(None)), ((0, 0), (1, 1))),
        ([1], [8], (slice(None), slice(None)), ((0, 0), (1, 2))),
        ([-2], [3], (slice(1, 4), slice(None)), ((0, 0), (0, 0))),
    ],
)
def test_center_crop_pad_crops_or_pads_around_the_center(
    axes: list[int], sizes: list[int], take: Any, pad: Any
) -> None:
    x = floats(5, 5)
    got = run("CenterCropPad", [x, np.array(sizes, np.int64)], axes=axes)
    np.testing.assert_array_equal(got, np.pad(x[take], pad))


def test_hardmax_takes_the_first_of_equals() -> None:
    x = np.array([[1, 3, 3], [2, 2, 0]], np.float32)
    np.testing.assert_array_equal(run("Hardmax", [x]), [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(run("Hardmax", [x], axis=0), [[0, 1, 1], [1, 0, 0]])


# --- neighbourhoods --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response_normalization_equals_its_definition(size: int) -> None:
    x = floats(2, 6, 3, 2)
    expected = np.empty(x.shape)
    for c in range(6):
        near = x[:, max(c - (size - 1) // 2, 0) : c + size // 2 + 1].astype(np.float64)
        expected[:, c] = x[:, c] / (2 + 0.3 / size * (near**2).sum(1)) ** 0.5
    np.testing.assert_allclose(run("LRN", [x], size=size, alpha=0.3, beta=0.5, bias=2.0), expected, rtol=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pooling_equals_its_definition(p: int) -> None:
    x = floats(2, 3, 6, 5)
    wide = np.pad(np.abs(x.astype(np.float64)), ((0, 0), (0, 0), (1, 0), (0, 1))) ** p
    expected = [[wide[:, :, 2 * i : 2 * i + 3, j : j + 2].sum((2, 3)) for j in range(5)] for i in range(3)]
    got = run("LpPool", [x], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1], p=p)
    np.testing.assert_allclose(got, np.array(expected).transpose(2, 3, 0, 1) ** (1 / p), rtol=1e-5)
    whole = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(run("GlobalLpPool", [x], p=p), whole, rtol=1e-5)


def test_col2im_adds_what_overlaps() -> None:
    columns = floats(2, 3 * 4, 4 * 3)
    got = run("Col2Im", [columns, np.array([5, 4], np.int64), np.array([2, 2], np.int64)])
    expected = np.zeros((2, 3, 5, 4))
    for c, a, b, i, j in np.ndindex(3, 2, 2, 4, 3):
        expected[:, c, i + a, j + b] += columns[:, c * 4 + a * 2 + b, i * 3 + j]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_shrink_operator_equals_its_definition() -> None:
    x = np.array([-2, -1, 0.5, 1.5], np.float32)
    np.testing.assert_array_equal(run("Shrink", [x], lambd=1.0, bias=0.25), [-1.75, 0, 0, 1.25])


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_bit_shift_operators_equal_numpy(dtype: str) -> None:
    top = np.iinfo(dtype).max
    x, y = np.array([top, 1, 5, top], dtype), np.array([1, 3, 0, 7], dtype)
    np.testing.assert_array_equal(run("BitShift", [x, y], direction="LEFT"), x << y)
    np.testing.assert_array_equal(run("BitShift", [x, y], direction="RIGHT"), x >> y)
    with pytest.raises(AssertionError, match="expected an unsigned type"):
        run("BitShift", [x.astype(np.int32), y.astype(np.int32)], direction="LEFT")


def test_recurrent_network_with_relu_equals_its_definition() -> None:
    x, w, r = floats(5, 2, 3), floats(1, 4, 3), floats(1, 4, 4) * np.float32(0.3)
    state, steps = np.zeros((2, 4)), []
    for step in x:
        state = np.maximum(step @ w[0].T + state @ r[0].T, 0)
        steps.append(state)
    got = run("RNN", [x, w, r], hidden_size=4, activations=["Relu"])
    np.testing.assert_allclose(got[:, 0], np.stack(steps), rtol=1e-5, atol=1e-6)


def test_size_of_folded_constants_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b = Builder()
    b.add("ConstantOfShape", b.constant(np.array([1 << 31], np.int64)), outputs=["y"])
    b.output("y")
    with pytest.raises(AssertionError, match=r"100013.*ConstantOfShape.*8589934592 bytes"):
        SimModel(b.to_bytes())
