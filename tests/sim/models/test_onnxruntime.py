"""ONNX Runtime, as the reference for the built-in engine, and as the second engine.

These tests are not collected if the package is not installed (conftest.py); the extra `aclpool[onnx]` installs it.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from support.calls import api, out
from support.control_models import branching, power_loop
from support.models import CountingAllocator, SimModel, cnn_detector, gpt_decoder, lstm_tagger, resnet, sim_message
from support.models import transformer_encoder as encoder

from acl.tools.onnx_writer import Builder

Inputs = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    library = glob.glob(os.path.join(os.path.dirname(ort.__file__), "capi", "libonnxruntime.so*"))
    monkeypatch.setenv("ACL_SIM_ONNXRUNTIME", library[0])
    assert api.aclInit(None) in (0, 100002)
    assert api.aclrtSetDevice(0) == 0
    yield


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def encoder_inputs(rng: np.random.Generator) -> Inputs:
    batch, tokens = rng.integers(1, 4), rng.integers(1, 60)
    return [floats(rng, batch, tokens, 32), (rng.random((batch, tokens)) < 0.8).astype(np.float32)]


def decoder_inputs(rng: np.random.Generator) -> Inputs:
    batch, tokens, past = rng.integers(1, 3), rng.integers(1, 9), rng.integers(0, 30)
    return [rng.integers(0, 50, (batch, tokens)), floats(rng, batch, 4, past, 8), floats(rng, batch, 4, past, 8)]


def image_inputs(rng: np.random.Generator) -> Inputs:
    return [floats(rng, rng.integers(1, 3), 3, 8 * rng.integers(3, 10), 8 * rng.integers(3, 10))]


def tagger_inputs(rng: np.random.Generator) -> Inputs:
    return [floats(rng, rng.integers(1, 30), rng.integers(1, 6), 12)]


ARCHITECTURES: list[tuple[Callable[[], Builder], Callable[[np.random.Generator], Inputs]]] = [
    (encoder, encoder_inputs),
    (gpt_decoder, decoder_inputs),
    (resnet, image_inputs),
    (cnn_detector, image_inputs),
    (lstm_tagger, tagger_inputs),
]


@pytest.mark.parametrize("engine", ["builtin", "onnxruntime"])
@pytest.mark.parametrize(("build", "make"), ARCHITECTURES, ids=lambda f: f.__name__)
def test_model_architectures_give_the_results_of_onnx_runtime(
    build: Callable[[], Builder],
    make: Callable[[np.random.Generator], Inputs],
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", engine)
    model, rng = build(), np.random.default_rng(5)
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    with SimModel(model.to_bytes()) as loaded:
        for _ in range(30):
            inputs = make(rng)
            expected = session.run(None, dict(zip(model.inputs, inputs, strict=True)))
            for got, wanted in zip(loaded(*inputs), expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def strange_model() -> Builder:
    """Return a model with an operator that the built-in engine does not have."""
    b = Builder()
    b.add("Neg", b.add("Hardmax", b.add("Exp", b.input("x", "float32", ["n", 5]))), outputs=["y"])
    b.output("y")
    return b


def test_second_engine_runs_models_that_the_first_engine_cannot() -> None:
    x = floats(np.random.default_rng(1), 4, 5)
    with SimModel(strange_model().to_bytes()) as loaded:
        got = loaded(x)[0]
    np.testing.assert_array_equal(got, -(x == x.max(1, keepdims=True)).astype(np.float32))


def test_tensors_of_the_second_engine_come_from_the_registered_allocator() -> None:
    stream, x = out(), floats(np.random.default_rng(1), 4, 5)
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    allocator = CountingAllocator(stream.value)
    with SimModel(strange_model().to_bytes()) as loaded:
        assert not allocator.events, "weights and session never come from it"
        call = loaded.queue(stream.value, [x], [80])
        assert len(allocator.sizes) >= 2
        assert not allocator.live
        assert api.aclrtSynchronizeStream(stream) == 0
        np.testing.assert_array_equal(call.result(0).sum(1), -np.ones(4))
        call.close()
        allocator.fail_at = len(allocator.sizes)
        refused = loaded_fails(loaded, stream.value, x)
        assert refused == 245000
    allocator.close()
    assert api.aclrtDestroyStream(stream) == 0


def loaded_fails(loaded: SimModel, stream: int, x: np.ndarray[Any, Any]) -> int:
    from support.models import Call

    call = Call([x], 1, [80])
    code: int = api.aclmdlExecuteAsync(loaded.id, call.input, call.output, stream)
    call.close()
    return code


def test_operator_that_neither_engine_has_is_refused() -> None:
    b = Builder()
    b.add("Frobnicate", b.input("x", "float32", [1]), name="strange", outputs=["y"])
    b.output("y")
    data, number = b.to_bytes(), out(ctypes.c_uint32)
    assert api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number)) == 100013
    assert sim_message().count("Frobnicate") >= 2, "both engines say so"


# --- what the built-in engine runs itself ----------------------------------------------------------


def loop_inputs(rng: np.random.Generator) -> Inputs:
    return [np.array(rng.integers(0, 9)), floats(rng, rng.integers(1, 20))]


def branch_inputs(rng: np.random.Generator) -> Inputs:
    return [np.array(rng.random() < 0.5), floats(rng, rng.integers(1, 5), 4)]


def qdq_net() -> Builder:
    """Return a convolution and a product, each between Q and DQ, with weights quantised by channel."""
    rng, b = np.random.default_rng(3), Builder(17)

    def fake(x: str, scale: float, zero: int) -> str:
        pair = b.constant(np.array(scale, np.float32)), b.constant(np.array(zero, np.uint8))
        made: str = b.add("DequantizeLinear", b.add("QuantizeLinear", x, *pair), *pair)
        return made

    def weight(axis: int, *shape: int) -> str:
        scales = rng.uniform(0.002, 0.01, shape[axis]).astype(np.float32)
        small = rng.integers(-127, 128, shape).astype(np.int8)
        made: str = b.add("DequantizeLinear", b.constant(small), b.constant(scales), axis=axis)
        return made

    x = fake(b.input("x", "float32", ["n", 3, "h", "w"]), 0.031, 121)
    y = fake(b.add("Relu", b.add("Conv", x, weight(0, 8, 3, 3, 3), kernel_shape=[3, 3])), 0.017, 0)
    b.add("MatMul", b.add("Flatten", b.add("GlobalAveragePool", y)), weight(1, 8, 5), outputs=["y"])
    b.output("y")
    return b


def qdq_inputs(rng: np.random.Generator) -> Inputs:
    return [floats(rng, rng.integers(1, 4), 3, rng.integers(5, 12), rng.integers(5, 12))]


@pytest.mark.parametrize(
    ("build", "make"), [(power_loop, loop_inputs), (branching, branch_inputs), (qdq_net, qdq_inputs)],
    ids=lambda f: f.__name__,
)
def test_control_flow_and_quantised_models_give_the_results_of_onnx_runtime(
    build: Callable[[], Builder], make: Callable[[np.random.Generator], Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    model, rng = build(), np.random.default_rng(6)
    options = ort.SessionOptions()  # without fusions, which change how values between two quantised numbers are rounded
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.to_bytes(), options, providers=["CPUExecutionProvider"])
    with SimModel(model.to_bytes()) as loaded:
        for _ in range(20):
            inputs = make(rng)
            expected = session.run(None, dict(zip(model.inputs, inputs, strict=True)))
            for got, wanted in zip(loaded(*inputs), expected, strict=True):
                if wanted.size:  # the shape of an output that no iteration collected is undefined
                    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=5e-3)
