"""Random inputs for the architectures of `support.models`, and a comparison of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acl.tools.onnx_writer import Builder
from support.models import cnn_detector, gpt_decoder, lstm_tagger, resnet, transformer_encoder

__all__ = ["ARCHITECTURES", "Inputs", "assert_close", "floats", "small_model"]

Inputs = list[np.ndarray[Any, Any]]


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Return an array of normally distributed float32."""
    return rng.standard_normal(shape).astype(np.float32)


def _encoder(rng: np.random.Generator) -> Inputs:
    batch, tokens = int(rng.integers(1, 4)), int(rng.integers(1, 40))
    return [floats(rng, batch, tokens, 32), (rng.random((batch, tokens)) < 0.8).astype(np.float32)]


def _decoder(rng: np.random.Generator) -> Inputs:
    batch, tokens, past = int(rng.integers(1, 3)), int(rng.integers(1, 8)), int(rng.integers(0, 20))
    ids = rng.integers(0, 50, (batch, tokens))
    return [ids, floats(rng, batch, 4, past, 8), floats(rng, batch, 4, past, 8)]


def _image(rng: np.random.Generator) -> Inputs:
    return [floats(rng, int(rng.integers(1, 3)), 3, int(rng.integers(20, 70)), int(rng.integers(20, 70)))]


def _even_image(rng: np.random.Generator) -> Inputs:
    return [floats(rng, int(rng.integers(1, 3)), 3, 8 * int(rng.integers(3, 9)), 8 * int(rng.integers(3, 9)))]


def _sentence(rng: np.random.Generator) -> Inputs:
    return [floats(rng, int(rng.integers(1, 20)), int(rng.integers(1, 5)), 12)]


#: For each architecture: the function that makes the model, and one that makes inputs of random shapes.
ARCHITECTURES: dict[str, tuple[Callable[[], Builder], Callable[[np.random.Generator], Inputs]]] = {
    "encoder": (transformer_encoder, _encoder),
    "decoder": (gpt_decoder, _decoder),
    "resnet": (resnet, _image),
    "detector": (cnn_detector, _even_image),
    "tagger": (lstm_tagger, _sentence),
}


def small_model() -> Builder:
    """Return a model of y = relu(x) @ identity + 1, for x of [n, 8]."""
    b = Builder()
    h = b.add("MatMul", b.add("Relu", b.input("x", "float32", ["n", 8])), b.constant(np.eye(8, dtype=np.float32)))
    b.add("Add", h, b.constant(np.ones(8, np.float32)), outputs=["y"])
    b.output("y", "float32", ["n", 8])
    return b


def assert_close(got: Any, expected: Any) -> None:
    """Check that each output has the expected shape and, except for rounding, the expected values."""
    assert len(got) == len(expected)
    for mine, right in zip(got, expected, strict=True):
        assert mine.shape == right.shape
        np.testing.assert_allclose(mine, right, rtol=1e-3, atol=1e-4)
