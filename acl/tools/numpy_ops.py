"""Compute a model with NumPy, as an independent reference for the simulator's results.

`evaluate` runs the nodes of an `onnx_writer.Builder` one after another.  It computes in float64 where the model has
float32, so that a difference comes from the simulator's rounding.  The code is written for clarity, not for speed, and
has only the operators that the demo and the tests use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from acl.tools.onnx_writer import Builder, Node

__all__ = ["evaluate"]

# `Any`, because in NumPy the result of arithmetic may be an array or a number.
Array = Any
Attributes = Mapping[str, Any]
Operator = Callable[..., Any]

OPERATORS: dict[str, Operator] = {}


def _operator(name: str) -> Callable[[Operator], Operator]:
    def keep(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return keep


def _elementwise() -> None:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    simple: dict[str, Callable[..., Any]] = {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Relu": lambda x: np.maximum(x, 0),
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Tanh": np.tanh,
        "Exp": np.exp,
        "Sqrt": np.sqrt,
        "Erf": erf,
        "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "Identity": lambda x: x,
        "Neg": np.negative,
        "Where": np.where,
        "LessOrEqual": np.less_equal,
        "Less": np.less,
        "Equal": np.equal,
        "Not": np.logical_not,
        "Div": lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype),
        "Gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    }
    for name, function in simple.items():
        OPERATORS[name] = lambda attributes, *inputs, function=function: function(*inputs)


_elementwise()


@_operator("LeakyRelu")
def _leaky(attributes: Attributes, x: Array) -> Array:
    return np.where(x < 0, x * attributes.get("alpha", 0.01), x)


@_operator("MatMul")
def _matmul(attributes: Attributes, a: Array, b: Array) -> Array:
    return np.matmul(a, b)


@_operator("Gemm")
def _gemm(attributes: Attributes, a: Array, b: Array, c: Array | float = 0.0) -> Array:
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * c


@_operator("Softmax")
def _softmax(attributes: Attributes, x: Array) -> Array:
    axis = attributes.get("axis", -1)
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@_operator("LogSoftmax")
def _log_softmax(attributes: Attributes, x: Array) -> Array:
    return np.log(_softmax(attributes, x))


@_operator("LayerNormalization")
def _layer_norm(attributes: Attributes, x: Array, scale: Array, bias: Array | float = 0.0) -> Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + attributes.get("epsilon", 1e-5)) * scale + bias


@_operator("BatchNormalization")
def _batch_norm(attributes: Attributes, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    return x * scale.reshape(shape) + (bias - mean * scale).reshape(shape)


# --- shapes ----------------------------------------------------------------------------------------


@_operator("Shape")
def _shape(attributes: Attributes, x: Array) -> Array:
    return np.array(x.shape[attributes.get("start", 0) : attributes.get("end", x.ndim)], np.int64)


@_operator("Reshape")
def _reshape(attributes: Attributes, x: Array, shape: Array) -> Array:
    return x.reshape([x.shape[i] if dim == 0 else int(dim) for i, dim in enumerate(shape)])


@_operator("Transpose")
def _transpose(attributes: Attributes, x: Array) -> Array:
    return x.transpose(attributes.get("perm"))


@_operator("Concat")
def _concat(attributes: Attributes, *inputs: Array) -> Array:
    return np.concatenate(inputs, attributes["axis"])


@_operator("Split")
def _split(attributes: Attributes, x: Array, sizes: Array) -> list[Array]:
    return np.split(x, np.cumsum(sizes)[:-1], attributes.get("axis", 0))


@_operator("Unsqueeze")
def _unsqueeze(attributes: Attributes, x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(a) for a in axes))


@_operator("Flatten")
def _flatten(attributes: Attributes, x: Array) -> Array:
    return x.reshape(x.shape[0], -1)


@_operator("Range")
def _range(attributes: Attributes, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start, limit, delta)


@_operator("Gather")
def _gather(attributes: Attributes, x: Array, indices: Array) -> Array:
    return np.take(x, indices, attributes.get("axis", 0))


@_operator("GatherND")
def _gather_nd(attributes: Attributes, x: Array, indices: Array) -> Array:
    return x[tuple(np.moveaxis(indices, -1, 0))]


@_operator("Cast")
def _cast(attributes: Attributes, x: Array) -> Array:
    return x.astype({1: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}[attributes["to"]])


@_operator("ReduceMean")
def _mean(attributes: Attributes, x: Array) -> Array:
    return x.mean(tuple(attributes["axes"]), keepdims=bool(attributes.get("keepdims", 1)))


# --- images ----------------------------------------------------------------------------------------


def _windows(x: Array, kernel: tuple[int, int], attributes: Attributes, fill: float) -> Array:
    """Return all windows of [n, c, h, w] as [n, c, oh, ow, kh, kw]."""
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    down, across = attributes.get("strides", [1, 1])
    return np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))[:, :, ::down, ::across]


@_operator("Conv")
def _conv(attributes: Attributes, x: Array, weight: Array, bias: Array) -> Array:
    windows = _windows(x, weight.shape[2:], attributes, 0.0)
    groups = attributes.get("group", 1)
    parts = [
        np.einsum("nchwij,fcij->nfhw", w, f)
        for w, f in zip(np.split(windows, groups, 1), np.split(weight, groups, 0), strict=True)
    ]
    return np.concatenate(parts, 1) + bias.reshape(1, -1, 1, 1)


@_operator("MaxPool")
def _max_pool(attributes: Attributes, x: Array) -> Array:
    made: Array = _windows(x, tuple(attributes["kernel_shape"]), attributes, -np.inf).max((4, 5))
    return made


@_operator("GlobalAveragePool")
def _global_pool(attributes: Attributes, x: Array) -> Array:
    return x.mean((2, 3), keepdims=True)


@_operator("Resize")
def _resize(attributes: Attributes, x: Array, roi: Any, scales: Any, sizes: Array) -> Array:
    """Resize in the only mode that the demo's detector uses: nearest, asymmetric, floor."""
    for axis, size in enumerate(sizes):
        x = np.take(x, np.arange(size) * x.shape[axis] // size, axis)
    return x


@_operator("NonMaxSuppression")
def _suppress(attributes: Attributes, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array) -> Array:
    chosen = []
    for n, c in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for i in np.argsort(-scores[n, c], kind="stable"):
            if (
                scores[n, c, i] > least[0]
                and len(kept) < most[0]
                and all(_overlap(boxes[n, i], boxes[n, j]) <= overlap[0] for j in kept)
            ):
                kept.append(int(i))
        chosen += [(n, c, i) for i in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _overlap(a: Array, b: Array) -> float:
    (ay, by), (ax, bx) = [[sorted((box[i], box[i + 2])) for box in (a, b)] for i in (0, 1)]
    height, width = min(ay[1], by[1]) - max(ay[0], by[0]), min(ax[1], bx[1]) - max(ax[0], bx[0])
    if height <= 0 or width <= 0:
        return 0.0
    areas = (ay[1] - ay[0]) * (ax[1] - ax[0]) + (by[1] - by[0]) * (bx[1] - bx[0])
    return float(height * width / (areas - height * width))


# --- recurrence ------------------------------------------------------------------------------------


@_operator("LSTM")
def _lstm(attributes: Attributes, x: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array]:
    outputs, lasts = [], []
    for d in range(w.shape[0]):
        h = c = np.zeros((x.shape[1], r.shape[2]))
        bias = b[d].reshape(2, -1).sum(0)
        steps: list[Array] = []
        for t in x[::-1] if d else x:
            i, o, f, g = np.split(t @ w[d].T + h @ r[d].T + bias, 4, 1)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
            steps.append(h)
        outputs.append(np.stack(steps[::-1] if d else steps))
        lasts.append(h)
    return np.stack(outputs, 1), np.stack(lasts)


def _run(node: Node, values: dict[str, Array]) -> None:
    inputs = [values[name] if name else None for name in node.inputs]
    made = OPERATORS[node.kind](node.attributes, *inputs)
    results = made if isinstance(made, tuple | list) else [made]
    values.update(zip(node.outputs, results, strict=False))


def evaluate(model: Builder, *inputs: Array) -> list[Array]:
    """Return the model's outputs for these inputs.

    Raises
    ------
    KeyError
        The model has an operator that is not in this file.
    """
    values = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in [*model.constants.items(), *zip(model.inputs, inputs, strict=True)]
    }
    for node in model.nodes:
        _run(node, values)
    return [values[name] for name in model.outputs]
