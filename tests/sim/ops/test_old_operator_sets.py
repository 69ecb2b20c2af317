"""Operators with the meaning that they had before operator set 13, which old files still use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(kind: str, inputs: list[Array], opset: int, outputs: int = 1, **attributes: Any) -> list[Array]:
    b = Builder(opset)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    with SimModel(b.to_bytes()) as model:
        return model(*inputs)


X = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_softmax_before_set_13_runs_over_all_dimensions_from_the_axis_on(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    rows = int(np.prod(X.shape[: 1 if axis is None else axis % 3]))
    flat = X.reshape(rows, -1)
    np.testing.assert_allclose(run("Softmax", [X], 11, **attributes)[0], softmax(flat).reshape(X.shape), rtol=1e-5)
    log = run("LogSoftmax", [X], 9, **attributes)[0]
    np.testing.assert_allclose(log, np.log(softmax(flat)).reshape(X.shape), rtol=1e-5, atol=1e-6)
    hard = run("Hardmax", [X], 12, **attributes)[0]
    np.testing.assert_array_equal(hard.reshape(rows, -1), np.eye(flat.shape[1])[flat.argmax(1)])


def test_softmax_from_set_13_on_runs_along_the_axis() -> None:
    np.testing.assert_allclose(run("Softmax", [X], 13)[0], softmax(X), rtol=1e-5)


def test_attributes_that_later_became_inputs_are_accepted_in_old_sets() -> None:
    np.testing.assert_array_equal(run("Slice", [X], 9, starts=[1, 0], ends=[3, 2], axes=[1, 2])[0], X[:, 1:3, :2])
    np.testing.assert_array_equal(run("Squeeze", [X[:1]], 11, axes=[0])[0], X[0])
    np.testing.assert_array_equal(run("Unsqueeze", [X], 11, axes=[0, 4])[0], X[None, ..., None])
    np.testing.assert_allclose(run("ReduceSum", [X], 11, axes=[1], keepdims=0)[0], X.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(run("Clip", [X], 10, min=-0.5, max=0.25)[0], np.clip(X, -0.5, 0.25))
    for got, expected in zip(run("Split", [X], 11, outputs=2, axis=2, split=[1, 3]), np.split(X, [1], 2), strict=True):
        np.testing.assert_array_equal(got, expected)
    values, places = run("TopK", [X], 9, outputs=2, k=2)
    np.testing.assert_array_equal(places, np.argsort(-X, -1)[..., :2])
    np.testing.assert_array_equal(values, -np.sort(-X, -1)[..., :2])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pads_may_be_an_attribute_in_old_sets(mode: str) -> None:
    (got,) = run("Pad", [X], 10, pads=[0, 1, 2, 0, 0, 3], mode=mode, value=1.5)
    more = {"constant_values": 1.5} if mode == "constant" else {}
    np.testing.assert_array_equal(got, np.pad(X, [(0, 0), (1, 0), (2, 3)], mode=mode, **more))  # type: ignore[call-overload]


def test_scatter_is_scatter_elements() -> None:
    places = np.array([[[1, 0, 1, 0]]])
    expected = X.copy()
    np.put_along_axis(expected[:1, :, :], places, 9.0, 1)
    updates = np.full((1, 1, 4), 9, np.float32)
    np.testing.assert_array_equal(run("Scatter", [X, places, updates], 9, axis=1)[0], expected)


@pytest.mark.parametrize(("kind", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_enlarging_in_old_sets_does_not_centre_pixels(kind: str, opset: int) -> None:
    x = X[None]
    scales = np.array([1, 1, 2, 3], np.float32)
    inputs = [x] if opset == 7 else [x, scales]
    more = {"scales": scales.tolist()} if opset == 7 else {}
    nearest = run(kind, inputs, opset, mode="nearest", **more)[0]
    np.testing.assert_array_equal(nearest, x.repeat(2, 2).repeat(3, 3))
    linear = run(kind, inputs, opset, mode="linear", **more)[0]
    wide = np.stack([np.interp(np.arange(12) / 3, range(4), row) for row in x.reshape(-1, 4)]).reshape(1, 2, 3, 12)
    tall = np.apply_along_axis(lambda c: np.interp(np.arange(6) / 2, range(3), c), 2, wide)
    np.testing.assert_allclose(linear, tall, rtol=1e-5, atol=1e-6)


def test_an_upsample_without_scales_is_refused() -> None:
    with pytest.raises(AssertionError, match="scales: expected 3 values, got 0"):
        run("Upsample", [X], 8)
