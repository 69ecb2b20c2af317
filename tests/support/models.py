"""Models for tests: classes that run one through aclmdl*, and small models of real architectures.

`SimModel` calls the C API through ctypes: it copies inputs to the device, executes, and copies outputs back.  The
architectures are built with the project's own ONNX writer, so that most tests do not need the package onnx.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acl import sim
from acl.tools.onnx_writer import Builder
from support.calls import api, out

__all__ = [
    "ACL_TYPES",
    "Call",
    "CountingAllocator",
    "SimModel",
    "cnn_detector",
    "device_array",
    "gpt_decoder",
    "lstm_tagger",
    "resnet",
    "sim_message",
    "transformer_encoder",
]

ACL_TYPES = {
    "float32": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "float64": 11,
    "bool": 12,
}
_NAMES = {number: name for name, number in ACL_TYPES.items()}


def sim_message() -> str:
    """Return the simulator's newest message in this thread."""
    library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    library.acl_sim_message.restype = ctypes.c_char_p
    return (library.acl_sim_message() or b"").decode()


def check(status: int) -> None:
    assert status == 0, f"{status}: {sim_message()}"


def device_memory(size: int) -> int:
    """Allocate device memory, at least one byte, and return its address."""
    address = out()
    check(api.aclrtMalloc(ctypes.byref(address), max(size, 1), 0))
    value: int = address.value
    return value


def device_array(array: np.ndarray[Any, Any]) -> int:
    """Copy an array to the device and return the address of the copy."""
    address = device_memory(array.nbytes)
    if array.nbytes:
        check(api.aclrtMemcpy(address, array.nbytes, array.ctypes.data, array.nbytes, 1))
    return address


def tensor_desc(array: np.ndarray[Any, Any]) -> int:
    """Create an aclTensorDesc of the array's type and shape."""
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    desc: int = api.aclCreateTensorDesc(ACL_TYPES[array.dtype.name], array.ndim, dims, 2)
    return desc


class Call:
    """The input and output datasets of one execution; `close` frees them."""

    def __init__(
        self, inputs: Sequence[np.ndarray[Any, Any]], outputs: int, sizes: Sequence[int] | None = None
    ) -> None:
        self.input, self.output = api.aclmdlCreateDataset(), api.aclmdlCreateDataset()
        self.memory: list[int] = []
        self.descs: list[int] = []
        self.buffers: list[int] = []
        for index, array in enumerate(inputs):
            array = np.ascontiguousarray(array) if array.ndim else array
            self._add(self.input, device_array(array), array.nbytes)
            self.descs.append(tensor_desc(array))
            check(api.aclmdlSetDatasetTensorDesc(self.input, self.descs[-1], index))
        for index in range(outputs):
            size = 0 if sizes is None else sizes[index]
            self._add(self.output, device_memory(size) if size else 0, size)

    def _add(self, dataset: int, address: int, size: int) -> None:
        buffer = api.aclCreateDataBuffer(address, size)
        if address:
            self.memory.append(address)
        self.buffers.append(buffer)
        check(api.aclmdlAddDatasetBuffer(dataset, buffer))

    def shape(self, index: int) -> tuple[str, tuple[int, ...]]:
        """Return the type and the shape that the execution set for an output."""
        desc = api.aclmdlGetDatasetTensorDesc(self.output, index)
        dims = []
        for d in range(api.aclGetTensorDescNumDims(desc)):
            value = out(ctypes.c_int64)
            check(api.aclGetTensorDescDimV2(desc, d, ctypes.byref(value)))
            dims.append(value.value)
        return _NAMES[api.aclGetTensorDescType(desc)], tuple(dims)

    def result(self, index: int) -> np.ndarray[Any, Any]:
        """Copy an output to the host and return it."""
        dtype, dims = self.shape(index)
        array = np.empty(dims, dtype)
        buffer = api.aclmdlGetDatasetBuffer(self.output, index)
        address = api.aclGetDataBufferAddr(buffer)
        if array.nbytes:
            check(api.aclrtMemcpy(array.ctypes.data, array.nbytes, address, array.nbytes, 2))
        if address not in self.memory and address:
            self.memory.append(address)
        return array

    def close(self) -> None:
        for desc in self.descs:
            api.aclDestroyTensorDesc(desc)
        for buffer in self.buffers:
            api.aclDestroyDataBuffer(buffer)
        for dataset in (self.input, self.output):
            check(api.aclmdlDestroyDataset(dataset))
        for address in self.memory:
            check(api.aclrtFree(address))


class SimModel:
    """A loaded model; as a context manager it unloads the model at the end."""

    def __init__(self, data: bytes) -> None:
        number = out(ctypes.c_uint32)
        check(api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number)))
        self.id = number.value
        desc = api.aclmdlCreateDesc()
        check(api.aclmdlGetDesc(desc, self.id))
        self.outputs = api.aclmdlGetNumOutputs(desc)
        check(api.aclmdlDestroyDesc(desc))

    def __enter__(self) -> SimModel:
        return self

    def __exit__(self, *_: object) -> None:
        check(api.aclmdlUnload(self.id))

    def __call__(self, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Execute, wait, and return the outputs; the execution allocates their memory."""
        call = Call(inputs, self.outputs)
        try:
            check(api.aclmdlExecute(self.id, call.input, call.output))
            return [call.result(i) for i in range(self.outputs)]
        finally:
            call.close()

    def queue(self, stream: int, inputs: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> Call:
        """Execute on a stream with output buffers of these sizes; the caller waits, and closes the returned `Call`."""
        call = Call(inputs, self.outputs, sizes)
        check(api.aclmdlExecuteAsync(self.id, call.input, call.output, stream))
        return call


ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
ADVISE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class CountingAllocator:
    """An allocator in Python, registered for a stream, that records each call.

    Blocks are addresses from aclrtMalloc.  Freed blocks are cached by size, so that they are used again as early as
    possible.
    """

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.events: list[tuple[str, int]] = []
        self.live: dict[int, int] = {}
        self.idle: dict[int, list[int]] = {}
        self.fail_at = -1
        self.on_alloc: Callable[[int], None] = lambda size: None
        self._functions = (
            ALLOC(self._alloc),
            FREE(self._free),
            ADVISE(lambda o, n, a: self._alloc(o, n)),
            ADDRESS(lambda b: b),
        )
        desc = api.aclrtAllocatorCreateDesc()
        check(api.aclrtAllocatorSetObjToDesc(desc, 1))
        check(api.aclrtAllocatorSetAllocFuncToDesc(desc, self._functions[0]))
        check(api.aclrtAllocatorSetFreeFuncToDesc(desc, self._functions[1]))
        check(api.aclrtAllocatorSetAllocAdviseFuncToDesc(desc, self._functions[2]))
        check(api.aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, self._functions[3]))
        check(api.aclrtAllocatorRegister(stream, desc))
        check(api.aclrtAllocatorDestroyDesc(desc))

    def _alloc(self, _: int, size: int) -> int | None:
        self.on_alloc(size)
        if len([e for e in self.events if e[0] == "alloc"]) == self.fail_at:
            self.events.append(("alloc", -size))
            return None
        self.events.append(("alloc", size))
        block = self.idle[size].pop() if self.idle.get(size) else device_memory(size)
        self.live[block] = size
        return block

    def _free(self, _: int, block: int) -> None:
        size = self.live.pop(block)
        self.events.append(("free", size))
        self.idle.setdefault(size, []).append(block)

    @property
    def sizes(self) -> list[int]:
        """Return the bytes of each allocation, in order."""
        return [size for what, size in self.events if what == "alloc"]

    def close(self) -> None:
        check(api.aclrtAllocatorUnregister(self.stream))
        for blocks in self.idle.values():
            for block in blocks:
                check(api.aclrtFree(block))


# --- architectures ---------------------------------------------------------------------------------


def _weights(builder: Builder, rng: np.random.Generator, *shape: int) -> str:
    return builder.constant((rng.standard_normal(shape) * 0.1).astype(np.float32))


def _ints(builder: Builder, *values: int) -> str:
    return builder.constant(np.array(values, np.int64))


def _linear(b: Builder, rng: np.random.Generator, x: str, width: int, out_width: int) -> str:
    made: str = b.add("Add", b.add("MatMul", x, _weights(b, rng, width, out_width)), _weights(b, rng, out_width))
    return made


def _heads(b: Builder, x: str, heads: int, depth: int, order: Sequence[int]) -> str:
    made: str = b.add("Transpose", b.add("Reshape", x, _ints(b, 0, 0, heads, depth)), perm=order)
    return made


def _norm(b: Builder, rng: np.random.Generator, x: str, width: int) -> str:
    made: str = b.add("LayerNormalization", x, _weights(b, rng, width), _weights(b, rng, width), axis=-1)
    return made


def transformer_encoder(seed: int = 0, width: int = 32, heads: int = 4, layers: int = 2) -> Builder:
    """Return a model with encoder layers on [batch, tokens, width] and an attention mask [batch, tokens]."""
    rng, b, depth = np.random.default_rng(seed), Builder(), width // heads
    x = b.input("x", "float32", ["batch", "tokens", width])
    mask = b.input("mask", "float32", ["batch", "tokens"])
    bias = b.add(
        "Mul",
        b.add("Sub", b.constant(np.float32(1)), b.add("Unsqueeze", mask, _ints(b, 1, 2))),
        b.constant(np.float32(-1e4)),
    )
    for _ in range(layers):
        q, k, v = (_linear(b, rng, x, width, width) for _ in range(3))
        scores = b.add("MatMul", _heads(b, q, heads, depth, [0, 2, 1, 3]), _heads(b, k, heads, depth, [0, 2, 3, 1]))
        scores = b.add("Add", b.add("Div", scores, b.constant(np.float32(depth**0.5))), bias)
        mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), _heads(b, v, heads, depth, [0, 2, 1, 3]))
        shape = b.add("Concat", b.add("Shape", x, start=0, end=2), _ints(b, width), axis=0)
        mixed = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), shape)
        x = _norm(b, rng, b.add("Add", x, _linear(b, rng, mixed, width, width)), width)
        inner = _linear(b, rng, x, width, 2 * width)
        half = b.add("Mul", inner, b.constant(np.float32(0.5)))
        inner = b.add(
            "Mul",
            half,
            b.add(
                "Add", b.add("Erf", b.add("Mul", inner, b.constant(np.float32(0.70710678)))), b.constant(np.float32(1))
            ),
        )
        x = _norm(b, rng, b.add("Add", x, _linear(b, rng, inner, 2 * width, width)), width)
    b.add("Identity", x, outputs=["y"])
    b.output("y")
    return b


def gpt_decoder(seed: int = 0, width: int = 32, heads: int = 4, vocabulary: int = 50) -> Builder:
    """Return a model with one decoder layer, a key and value cache as inputs and outputs, and a causal mask."""
    rng, b, depth = np.random.default_rng(seed), Builder(), width // heads
    ids = b.input("ids", "int64", ["batch", "tokens"])
    past = [b.input(f"past_{name}", "float32", ["batch", heads, "past", depth]) for name in "kv"]
    table = _weights(b, rng, vocabulary, width)
    x = b.add("Gather", table, ids)
    normed = _norm(b, rng, x, width)
    q, k, v = (_heads(b, _linear(b, rng, normed, width, width), heads, depth, [0, 2, 1, 3]) for _ in range(3))
    keys = b.add("Concat", past[0], k, axis=2, outputs=["new_k"])
    values = b.add("Concat", past[1], v, axis=2, outputs=["new_v"])
    scores = b.add(
        "Mul", b.add("MatMul", q, b.add("Transpose", keys, perm=[0, 1, 3, 2])), b.constant(np.float32(depth**-0.5))
    )
    total = b.add("Gather", b.add("Shape", keys), b.constant(np.int64(2)))
    fresh = b.add("Gather", b.add("Shape", ids), b.constant(np.int64(1)))
    one, zero = b.constant(np.int64(1)), b.constant(np.int64(0))
    columns = b.add("Unsqueeze", b.add("Range", zero, total, one), _ints(b, 0))
    rows = b.add("Unsqueeze", b.add("Add", b.add("Range", zero, fresh, one), b.add("Sub", total, fresh)), _ints(b, 1))
    scores = b.add("Where", b.add("LessOrEqual", columns, rows), scores, b.constant(np.float32(-1e9)))
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), values)
    mixed = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), _ints(b, 0, 0, width))
    x = b.add("Add", x, _linear(b, rng, mixed, width, width))
    x = b.add(
        "Add",
        x,
        _linear(b, rng, b.add("Relu", _linear(b, rng, _norm(b, rng, x, width), width, 4 * width)), 4 * width, width),
    )
    last = b.add("Gather", _norm(b, rng, x, width), b.constant(np.int64(-1)), axis=1)
    b.add("Gemm", last, table, transB=1, outputs=["logits"])
    for name in ("logits", "new_k", "new_v"):
        b.output(name)
    return b


def _conv(
    b: Builder, rng: np.random.Generator, x: str, channels: int, filters: int, kernel: int = 3, **attributes: Any
) -> str:
    weight = _weights(b, rng, filters, channels // int(attributes.get("group", 1)), kernel, kernel)
    pad = kernel // 2
    made: str = b.add(
        "Conv", x, weight, _weights(b, rng, filters), kernel_shape=[kernel, kernel], pads=[pad] * 4, **attributes
    )
    return made


def _batch_norm(b: Builder, rng: np.random.Generator, x: str, channels: int) -> str:
    spread = b.constant(rng.uniform(0.5, 1.5, channels).astype(np.float32))
    made: str = b.add("BatchNormalization", x, *(_weights(b, rng, channels) for _ in range(3)), spread)
    return made


def resnet(seed: int = 0) -> Builder:
    """Return a model with residual blocks, one with depthwise convolutions, and class scores; any batch and size."""
    rng, b = np.random.default_rng(seed), Builder()
    x = b.input("image", "float32", ["batch", 3, "height", "width"])
    x = b.add("Relu", _batch_norm(b, rng, _conv(b, rng, x, 3, 16, 7, strides=[2, 2]), 16))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = b.add("Relu", _batch_norm(b, rng, _conv(b, rng, x, 16, 16), 16))
    x = b.add("Relu", b.add("Add", x, _conv(b, rng, y, 16, 16)))
    y = _conv(b, rng, b.add("HardSwish", _conv(b, rng, x, 16, 16, group=16)), 16, 32, 1)
    x = b.add("Relu", b.add("Add", y, _conv(b, rng, x, 16, 32, 1)))
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    b.add("Gemm", x, _weights(b, rng, 10, 32), _weights(b, rng, 10), transB=1, outputs=["scores"])
    b.output("scores")
    return b


def cnn_detector(seed: int = 0, classes: int = 3) -> Builder:
    """Return a detector: features that are upsampled and joined, boxes and scores, and non-maximum suppression."""
    rng, b = np.random.default_rng(seed), Builder()
    x = b.input("image", "float32", ["batch", 3, "height", "width"])
    fine = b.add("Relu", _conv(b, rng, x, 3, 8, strides=[4, 4]))
    coarse = b.add("LeakyRelu", _conv(b, rng, fine, 8, 16, strides=[2, 2]), alpha=0.1)
    size = b.add("Concat", b.add("Shape", coarse, start=0, end=2), b.add("Shape", fine, start=2, end=4), axis=0)
    up = b.add(
        "Resize",
        coarse,
        "",
        "",
        size,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    features = b.add("Concat", fine, up, axis=1)
    head = _conv(b, rng, features, 24, 4 + classes, 1)
    head = b.add("Transpose", b.add("Reshape", head, _ints(b, 0, 4 + classes, -1)), perm=[0, 2, 1])
    boxes, scores = b.add("Split", head, _ints(b, 4, classes), axis=2, outputs=2)
    boxes = b.add("Sigmoid", boxes)
    scores = b.add("Transpose", b.add("Sigmoid", b.add("Mul", scores, b.constant(np.float32(8)))), perm=[0, 2, 1])
    limits = (
        b.constant(np.array([20], np.int64)),
        b.constant(np.array([0.5], np.float32)),
        b.constant(np.array([0.4], np.float32)),
    )
    chosen = b.add("NonMaxSuppression", boxes, scores, *limits, outputs=["chosen"])
    places = b.add("Gather", chosen, _ints(b, 0, 2), axis=1)
    b.add("GatherND", boxes, places, outputs=["found"])
    b.output("chosen", "int64")
    b.output("found")
    return b


def lstm_tagger(seed: int = 0, width: int = 12, hidden: int = 16) -> Builder:
    """Return a model with a bidirectional LSTM over [tokens, batch, width] and a linear layer."""
    rng, b = np.random.default_rng(seed), Builder()
    x = b.input("x", "float32", ["tokens", "batch", width])
    parts = (
        _weights(b, rng, 2, 4 * hidden, width),
        _weights(b, rng, 2, 4 * hidden, hidden),
        _weights(b, rng, 2, 8 * hidden),
    )
    y, last = b.add("LSTM", x, *parts, outputs=2, hidden_size=hidden, direction="bidirectional")
    y = b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 1, 3]), _ints(b, 0, 0, 2 * hidden))
    y = _linear(b, rng, y, 2 * hidden, 5)
    b.add("LogSoftmax", y, axis=-1, outputs=["tags"])
    b.add("Identity", last, outputs=["last"])
    b.output("tags")
    b.output("last")
    return b
