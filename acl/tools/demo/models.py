"""The demo's models: a transformer encoder and a detector-like CNN, with requests of changing shapes.

They are built with this package's own ONNX writer, so nothing is downloaded or installed.  The weights are random
numbers from a fixed seed.  So the results have no meaning, but can be checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from acl.tools.onnx_writer import Builder

__all__ = ["Request", "detector", "encoder", "expected", "requests"]

Array = np.ndarray[Any, Any]
WIDTH = 64
"""The length of the vector that stands for each token of `encoder`."""
HEADS, CLASSES = 4, 5


class Request(NamedTuple):
    """Inputs for one of the models."""

    model: str
    inputs: tuple[Array, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs."""
        return tuple(array.shape for array in self.inputs)


class _Parts:
    """A builder of layers with random weights."""

    def __init__(self, name: str, seed: int) -> None:
        self.builder = Builder(name=name)
        self.random = np.random.default_rng(seed)
        self.add = self.builder.add

    def weight(self, *shape: int) -> str:
        scale = math.prod(shape[1:] or shape) ** -0.5
        return self.builder.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.builder.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.builder.constant(np.array(value, np.float32))

    def linear(self, x: str, width: int, wide: int) -> str:
        made: str = self.add("Add", self.add("MatMul", x, self.weight(width, wide)), self.weight(wide))
        return made

    def norm(self, x: str) -> str:
        made: str = self.add("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH), axis=-1)
        return made

    def heads(self, x: str, order: Sequence[int]) -> str:
        split = self.add("Reshape", x, self.ints(0, 0, HEADS, WIDTH // HEADS))
        made: str = self.add("Transpose", split, perm=order)
        return made

    def attention(self, x: str, bias: str) -> str:
        q, k, v = (self.linear(x, WIDTH, WIDTH) for _ in range(3))
        scores = self.add("MatMul", self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]))
        scores = self.add("Add", self.add("Mul", scores, self.number((WIDTH // HEADS) ** -0.5)), bias)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), self.heads(v, [0, 2, 1, 3]))
        joined = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(0, 0, WIDTH))
        return self.linear(joined, WIDTH, WIDTH)

    def convolution(self, x: str, channels: int, filters: int, kernel: int = 3, stride: int = 1) -> str:
        made: str = self.add(
            "Conv", x, self.weight(filters, channels, kernel, kernel), self.weight(filters),
            kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2)
        return made


def encoder(layers: int = 2) -> Builder:
    """Build transformer layers on [batch, tokens, width], with a mask of [batch, tokens]."""
    parts = _Parts("encoder", 1)
    b = parts.builder
    x = b.input("tokens", "float32", ["batch", "length", WIDTH])
    mask = b.input("mask", "float32", ["batch", "length"])
    hidden = parts.add("Sub", parts.number(1), parts.add("Unsqueeze", mask, parts.ints(1, 2)))
    bias = parts.add("Mul", hidden, parts.number(-1e4))
    for _ in range(layers):
        x = parts.norm(parts.add("Add", x, parts.attention(x, bias)))
        inner = parts.add("Relu", parts.linear(x, WIDTH, 4 * WIDTH))
        x = parts.norm(parts.add("Add", x, parts.linear(inner, 4 * WIDTH, WIDTH)))
    parts.add("Identity", x, outputs=["encoded"])
    b.output("encoded", "float32", ["batch", "length", WIDTH])
    return b


def detector() -> Builder:
    """Build a detector for images of any size; it joins features of two scales and returns boxes and class scores."""
    parts = _Parts("detector", 2)
    b = parts.builder
    x = b.input("image", "float32", ["batch", 3, "height", "width"])
    fine = parts.add("Relu", parts.convolution(x, 3, 16, stride=4))
    coarse = parts.add("LeakyRelu", parts.convolution(fine, 16, 32, stride=2), alpha=0.1)
    size = parts.add(
        "Concat", parts.add("Shape", coarse, start=0, end=2), parts.add("Shape", fine, start=2, end=4), axis=0)
    up = parts.add("Resize", coarse, "", "", size, mode="nearest",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    head = parts.convolution(parts.add("Concat", fine, up, axis=1), 48, 4 + CLASSES, 1)
    places = parts.add("Transpose", parts.add("Reshape", head, parts.ints(0, 4 + CLASSES, -1)), perm=[0, 2, 1])
    boxes, scores = parts.add("Split", places, parts.ints(4, CLASSES), axis=2, outputs=2)
    parts.add("Sigmoid", boxes, outputs=["boxes"])
    parts.add("Softmax", scores, axis=-1, outputs=["scores"])
    b.output("boxes", "float32", ["batch", "places", 4])
    b.output("scores", "float32", ["batch", "places", CLASSES])
    return b


def requests(count: int, seed: int) -> Iterator[Request]:
    """Yield `count` requests with changing shapes, alternately for the two models."""
    random = np.random.default_rng(seed)
    for number in range(count):
        batch = int(random.integers(1, 5))
        if number % 2:
            height, width = (16 * int(n) for n in random.integers(6, 25, 2))
            image = random.standard_normal((batch, 3, height, width)).astype(np.float32)
            yield Request("detector", (image,))
        else:
            length = int(random.integers(16, 193))
            tokens = random.standard_normal((batch, length, WIDTH)).astype(np.float32)
            mask = (np.arange(length) < random.integers(1, length + 1, (batch, 1))).astype(np.float32)
            yield Request("encoder", (tokens, mask))


def expected(models: dict[str, Builder], work: Sequence[Request]) -> tuple[str, list[list[Array]]]:
    """Return each request's outputs, and before them the name of the program that computed them.

    The program is ONNX Runtime if it is installed, else NumPy.
    """
    try:
        import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        from acl.tools.numpy_ops import evaluate

        return "NumPy", [evaluate(models[r.model], *r.inputs) for r in work]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    sessions = {name: onnxruntime.InferenceSession(model.to_bytes(), options, providers=["CPUExecutionProvider"])
                for name, model in models.items()}
    found = [sessions[r.model].run(None, dict(zip(models[r.model].inputs, r.inputs, strict=True))) for r in work]
    return f"ONNX Runtime {onnxruntime.__version__}", found
