"""Compare each operator of the simulator's built-in engine with ONNX Runtime, on one thread, at ordinary sizes.

    python bench/ops.py [--json FILE] [--only Operator] [--rounds 5] [--most 5]

Needs the packages onnx and onnxruntime.  Both engines run a model of one node.  Printed is the shortest time of an
execution in microseconds: the simulator's by aclmdlExecute with inputs and outputs on the device, ONNX Runtime's by
session.run.  The first row is an execution with almost no work: its time (threads, streams, calls) is subtracted from
both times before the ratio is computed.  Exit status 1 if a ratio exceeds --most, or if no row was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ.update(ACL_BACKEND="sim", ACL_SIM_ENGINE="builtin")

import numpy as np

import acl

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)


class Case(NamedTuple):
    kind: str
    inputs: list[Array | None]
    attributes: dict[str, Any] = {}
    outputs: int = 1
    opset: int = 18
    constants: tuple[int, ...] = ()
    note: str = ""


def f(*shape: int, dtype: str = "float32") -> Array:
    return np.asarray(RNG.standard_normal(shape)).astype(dtype)


def whole(*shape: int, most: int = 9, dtype: str = "int64") -> Array:
    return np.asarray(RNG.integers(0, most, shape)).astype(dtype)


def i(*values: int) -> Array:
    return np.array(values, np.int64)


FLAT = (64, 4096)
IMAGE = (1, 32, 56, 56)
UNARY = [
    "Abs",
    "Neg",
    "Sign",
    "Exp",
    "Sqrt",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Round",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Gelu",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "Softplus",
    "Softsign",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "ThresholdedRelu",
    "Shrink",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "IsNaN",
    "IsInf",
    "Log",
]
OPSETS = {"Gelu": 20}


def cases() -> list[Case]:
    made = [Case(kind, [np.abs(f(*FLAT)) + np.float32(0.1)], opset=OPSETS.get(kind, 18)) for kind in UNARY]
    made += [Case(kind, [np.clip(f(*FLAT), -0.9, 0.9)]) for kind in ("Asin", "Acos", "Atanh")]
    made += [Case("Acosh", [np.abs(f(*FLAT)) + np.float32(1)])]
    made += [
        Case(kind, [f(*FLAT), f(*FLAT)])
        for kind in (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Min",
            "Max",
            "Less",
            "Greater",
            "Equal",
            "LessOrEqual",
            "GreaterOrEqual",
            "Sum",
            "Mean",
        )
    ]
    made += [
        Case("Add", [f(*FLAT), f(4096)], note="row"),
        Case("Add", [f(*IMAGE), f(1, 32, 1, 1)], note="channel"),
        Case("Add", [whole(*FLAT), whole(*FLAT)], note="int64"),
        Case("PRelu", [f(*IMAGE), f(32, 1, 1)]),
        Case("Pow", [np.abs(f(*FLAT)), np.array(2.0, np.float32)]),
        Case("Pow", [np.abs(f(*FLAT)), f(*FLAT)], note="any"),
        Case("Mod", [f(*FLAT), np.abs(f(*FLAT)) + np.float32(1)], {"fmod": 1}),
        Case("And", [f(*FLAT) > 0, f(*FLAT) > 0]),
        Case("Not", [f(*FLAT) > 0]),
        Case("Xor", [f(*FLAT) > 0, f(*FLAT) > 0]),
        Case("BitwiseAnd", [whole(*FLAT, dtype="int32"), whole(*FLAT, dtype="int32")]),
        Case("Where", [f(*FLAT) > 0, f(*FLAT), f(*FLAT)]),
        Case("Clip", [f(*FLAT), np.array(-1, np.float32), np.array(1, np.float32)]),
        Case("Cast", [f(*FLAT)], {"to": 7}, note="int64"),
        Case("Cast", [f(*FLAT)], {"to": 10}, note="float16"),
        Case("Cast", [f(*FLAT, dtype="float16")], {"to": 1}, note="from float16"),
        Case("Cast", [whole(*FLAT)], {"to": 1}, note="from int64"),
        Case("Cast", [f(*FLAT)], {"to": 11}, note="float64"),
        Case("Cast", [f(*FLAT)], {"to": 2}, note="uint8"),
        Case("Cast", [whole(*FLAT, dtype="uint8")], {"to": 1}, note="from uint8"),
    ]
    for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp", "LogSum"):
        x = np.abs(f(8, 64, 512)) + np.float32(0.1)
        made += [
            Case("Reduce" + kind, [x], {"axes": [axis]} if kind != "Sum" else {}, opset=13, note=f"axis {axis}")
            if kind != "Sum"
            else Case("ReduceSum", [x, i(axis)], constants=(1,), note=f"axis {axis}")
            for axis in (0, 1, 2)
        ]
    made += [
        Case("ReduceMean", [f(4, 32, 28, 28)], {"axes": [2, 3]}, opset=13, note="image"),
        Case("ReduceMean", [f(4, 28, 28, 32)], {"axes": [1, 2]}, opset=13, note="middle"),
        Case("ReduceSum", [f(256, 64, 8), i(1)], constants=(1,), note="few behind"),
        Case("ReduceMax", [whole(8, 64, 512)], {"axes": [1]}, opset=13, note="int64"),
    ]
    for axis in (0, 1, 2):
        x = f(8, 64, 512)
        made += [
            Case(kind, [x], {"axis": axis}, note=f"axis {axis}")
            for kind in ("ArgMax", "ArgMin", "Softmax", "LogSoftmax")
        ]
        made += [Case("CumSum", [x, np.array(axis)], constants=(1,), note=f"axis {axis}")]
    made += [
        Case("TopK", [f(64, 1000), i(10)], {}, 2, constants=(1,)),
        Case("Hardmax", [f(64, 1000)]),
        Case("TopK", [f(8, 64, 64), i(5)], {"axis": 1}, 2, constants=(1,), note="axis 1"),
        Case("LpNormalization", [f(64, 1000)]),
        Case("LayerNormalization", [f(128, 768), f(768), f(768)], {}, 1, 17),
        Case("InstanceNormalization", [f(*IMAGE), f(32), f(32)]),
        Case("GroupNormalization", [f(*IMAGE), f(32), f(32)], {"num_groups": 8}, opset=21),
        Case("BatchNormalization", [f(*IMAGE), f(32), f(32), f(32), np.abs(f(32)) + np.float32(1)], opset=15),
        Case(
            "BatchNormalization",
            [f(256, 512), f(512), f(512), f(512), np.abs(f(512)) + np.float32(1)],
            opset=15,
            note="flat",
        ),
        Case("LRN", [f(*IMAGE)], {"size": 5}),
    ]
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    made += [Case(kind, [f(*IMAGE)], window) for kind in ("MaxPool", "AveragePool", "LpPool")]
    made += [
        Case("MaxPool", [f(*IMAGE)], {"kernel_shape": [2, 2], "strides": [2, 2]}, note="2x2"),
        Case("MaxPool", [f(*IMAGE)], {**window, "strides": [1, 1]}, note="stride 1"),
        Case("MaxPool", [f(*IMAGE)], window, 2, note="with places"),
        Case("MaxPool", [whole(*IMAGE, dtype="uint8")], window, note="uint8"),
        *[Case(kind, [f(*IMAGE)]) for kind in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")],
    ]
    conv = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    made += [
        Case("Conv", [f(*IMAGE), f(64, 32, 3, 3), f(64)], conv, note="3x3"),
        Case("Conv", [f(*IMAGE), f(64, 32, 1, 1)], note="1x1"),
        Case("Conv", [f(*IMAGE), f(32, 1, 3, 3)], {**conv, "group": 32}, note="depthwise"),
        Case("ConvTranspose", [f(1, 32, 28, 28), f(32, 16, 2, 2)], {"strides": [2, 2]}),
        Case("ConvInteger", [whole(1, 16, 28, 28, dtype="uint8"), whole(32, 16, 3, 3, dtype="uint8")]),
        Case("MatMul", [f(256, 256), f(256, 256)]),
        Case("MatMul", [f(1, 768), f(768, 768)], note="one row"),
        Case("MatMul", [f(8, 64, 64), f(8, 64, 64)], note="batch"),
        Case("MatMul", [f(1024, 512), f(512)], note="one column"),
        Case("MatMul", [f(1024, 512), f(512, 3)], note="three columns"),
        Case("Gemm", [f(512, 1024), f(512, 2)], {"transA": 1}, note="two columns"),
        Case("MatMul", [f(128, 128, dtype="float64"), f(128, 128, dtype="float64")], note="float64"),
        Case("MatMul", [whole(128, 128), whole(128, 128)], note="int64"),
        Case("MatMul", [whole(128, 128, dtype="int32"), whole(128, 128, dtype="int32")], note="int32"),
        Case("Gemm", [f(64, 256), f(512, 256), f(512)], {"transB": 1}),
        Case("MatMulInteger", [whole(64, 256, dtype="uint8"), whole(256, 256, dtype="uint8")]),
        Case("Einsum", [f(8, 64, 64), f(8, 64, 64)], {"equation": "bij,bkj->bik"}),
        Case("Einsum", [f(256, 256)], {"equation": "ij->ji"}, note="transpose"),
        Case("Einsum", [f(256, 256)], {"equation": "ij->j"}, note="sum"),
    ]
    scale, zero = np.array(0.02, np.float32), np.array(128, np.uint8)
    made += [
        Case("QuantizeLinear", [f(*FLAT), scale, zero]),
        Case("DequantizeLinear", [whole(*FLAT, dtype="uint8"), scale, zero]),
        Case("DynamicQuantizeLinear", [f(*FLAT)], {}, 3),
    ]
    made += [
        Case("Gather", [f(1000, 256), whole(512, most=1000)]),
        Case("Gather", [f(256, 1000), whole(64, most=1000)], {"axis": 1}, note="axis 1"),
        Case("GatherElements", [f(256, 512), whole(256, 512, most=256)]),
        Case("ScatterElements", [f(256, 512), whole(64, 512, most=256), f(64, 512)]),
        Case("GatherND", [f(64, 64, 64), whole(512, 2, most=64)]),
        Case("ScatterND", [f(64, 64, 64), whole(512, 2, most=64), f(512, 64)]),
        Case("OneHot", [whole(1024, most=100), np.array(100), np.array([0, 1], np.float32)]),
        Case("NonZero", [f(*FLAT) > 1]),
        Case("Compress", [f(512, 256), f(512) > 0], {"axis": 0}),
        Case("Transpose", [f(8, 128, 256)], {"perm": [0, 2, 1]}),
        Case("Transpose", [f(8, 64, 8, 64)], {"perm": [0, 2, 1, 3]}, note="heads"),
        Case("Transpose", [f(*IMAGE)], {"perm": [0, 2, 3, 1]}, note="image"),
        Case("Concat", [f(64, 1024), f(64, 1024)], {"axis": 1}),
        Case("Split", [f(64, 2048), i(1024, 1024)], {"axis": 1}, 2, constants=(1,)),
        Case("Slice", [f(64, 4096), i(0, 1), i(64, 4000), i(0, 1), i(1, 3)], constants=(1, 2, 3, 4)),
        Case("Pad", [f(*IMAGE), i(0, 0, 1, 1, 0, 0, 1, 1)], constants=(1,)),
        Case("Pad", [f(*IMAGE), i(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "reflect"}, constants=(1,), note="reflect"),
        Case("Expand", [f(1, 4096), i(64, 4096)], constants=(1,)),
        Case("Tile", [f(64, 256), i(1, 8)], constants=(1,)),
        Case("Trilu", [f(512, 512)]),
        Case("Range", [np.array(0), np.array(100000), np.array(1)]),
        Case("ConstantOfShape", [i(64, 4096)]),
        Case("EyeLike", [f(512, 512)]),
        Case("DepthToSpace", [f(1, 64, 56, 56)], {"blocksize": 2}),
        Case("SpaceToDepth", [f(1, 16, 112, 112)], {"blocksize": 2}),
        Case("ReverseSequence", [f(64, 32, 64), whole(32, most=64)]),
    ]
    for mode in ("nearest", "linear", "cubic"):
        made.append(
            Case(
                "Resize",
                [f(*IMAGE), None, np.array([1, 1, 2, 2], np.float32)],
                {"mode": mode},
                constants=(2,),
                note=mode,
            )
        )
    grid = np.clip(f(1, 56, 56, 2), -1, 1)
    made += [
        Case("GridSample", [f(*IMAGE), grid], {"mode": mode}, opset=20, note=mode)
        for mode in ("linear", "nearest", "cubic")
    ]
    corner = np.abs(f(32, 2)) * 10
    made += [
        Case(
            "RoiAlign",
            [f(*IMAGE), np.concatenate([corner, corner + 20], 1), whole(32, most=1)],
            {"output_height": 7, "output_width": 7, "sampling_ratio": 2},
        ),
        Case("LSTM", [f(20, 4, 64), f(1, 256, 64), f(1, 256, 64)], {"hidden_size": 64}, 2, 14),
        Case("GRU", [f(20, 4, 64), f(1, 192, 64), f(1, 192, 64)], {"hidden_size": 64}, 2, 14),
        Case("RNN", [f(20, 4, 64), f(1, 64, 64), f(1, 64, 64)], {"hidden_size": 64}, 2, 14),
        Case("Attention", [f(1, 8, 64, 64), f(1, 8, 64, 64), f(1, 8, 64, 64)], opset=23),
        Case("RotaryEmbedding", [f(1, 8, 64, 64), f(64, 32), f(64, 32), whole(1, 64, most=64)], opset=23),
        Case("SoftmaxCrossEntropyLoss", [f(256, 1000), whole(256, most=1000)], opset=13),
        Case("NegativeLogLikelihoodLoss", [f(256, 1000), whole(256, most=1000)], opset=13),
        Case("DFT", [f(16, 512, 1), None, np.array(1)], opset=20, constants=(2,)),
        Case("HannWindow", [np.array(4096)], opset=17),
    ]
    bytes_image, byte = whole(*IMAGE, most=255, dtype="uint8"), np.array(128, np.uint8)
    step = np.array(0.02, np.float32)
    made += [
        Case("QLinearConv", [bytes_image, step, byte, whole(32, 32, 3, 3, most=255, dtype="uint8"),
                             step, byte, step, byte], conv, constants=(3,)),
        Case("QLinearMatMul", [whole(64, 256, dtype="uint8"), step, byte, whole(256, 256, dtype="uint8"), step, byte,
                               step, byte]),
        Case("RMSNormalization", [f(128, 768), f(768)], opset=23),
        Case("Swish", [f(*FLAT)], opset=24),
        Case("Col2Im", [f(1, 288, 784), i(28, 28), i(3, 3)], {"pads": [1, 1, 1, 1]}, constants=(1, 2)),
        Case("CenterCropPad", [f(*IMAGE), i(1, 32, 40, 64)], constants=(1,)),
        Case("Upsample", [f(*IMAGE), np.array([1, 1, 2, 2], np.float32)], opset=9, constants=(1,)),
        Case("Scatter", [f(256, 512), whole(64, 512, most=256), f(64, 512)], opset=10),
        Case("ScatterElements", [f(256, 512), whole(64, 512, most=256), f(64, 512)], {"reduction": "add"}, note="add"),
        Case("ScatterND", [f(64, 64, 64), whole(512, 2, most=64), f(512, 64)], {"reduction": "add"}, note="add"),
        Case("Gather", [f(1000, 256, dtype="float16"), whole(512, most=1000)], note="float16"),
        Case("STFT", [f(1, 8192, 1), np.array(128), np.hanning(512).astype(np.float32), np.array(512)], opset=17,
             constants=(1, 3)),
        Case("BitShift", [whole(*FLAT, dtype="uint32"), whole(*FLAT, dtype="uint32")], {"direction": "LEFT"}),
        Case("BitwiseNot", [whole(*FLAT, dtype="int32")]),
        Case("BitwiseOr", [whole(*FLAT, dtype="int32"), whole(*FLAT, dtype="int32")]),
        Case("Or", [f(*FLAT) > 0, f(*FLAT) > 0]),
        Case("Mod", [whole(*FLAT), whole(*FLAT) + 1], note="int64"),
        Case("Div", [whole(*FLAT), whole(*FLAT) + 1], note="int64"),
        Case("Mul", [whole(*FLAT, dtype="int32"), whole(*FLAT, dtype="int32")], note="int32"),
        Case("Less", [whole(*FLAT), whole(*FLAT)], note="int64"),
        Case("Where", [f(*FLAT) > 0, whole(*FLAT), whole(*FLAT)], note="int64"),
        Case("Clip", [whole(*FLAT), np.array(1), np.array(5)], note="int64"),
        Case("Equal", [f(*IMAGE), f(1, 32, 1, 1)], note="channel"),
        Case("Mul", [f(64, 64, 64), f(64, 64, 1)], note="column"),
        Case("Cast", [f(*FLAT, dtype="float16")], {"to": 6}, note="float16 to int32"),
        Case("Cast", [whole(*FLAT)], {"to": 6}, note="int64 to int32"),
        Case("Cast", [whole(*FLAT)], {"to": 9}, note="int64 to bool"),
        Case("Cast", [f(*FLAT) > 0], {"to": 7}, note="bool to int64"),
        Case("Cast", [f(*FLAT, dtype="float64")], {"to": 7}, note="float64 to int64"),
        Case("ReduceSum", [whole(8, 64, 512), i(2)], constants=(1,), note="int64"),
        Case("ReduceSum", [f(8, 64, 512, dtype="float64"), i(2)], constants=(1,), note="float64"),
        Case("ReduceMax", [whole(8, 64, 512, dtype="int32")], {"axes": [2]}, opset=13, note="int32"),
        Case("ArgMax", [whole(8, 64, 512, dtype="int32")], {"axis": 2}, note="int32"),
        Case("CumSum", [whole(8, 64, 512), np.array(2)], constants=(1,), note="int64"),
        Case("TopK", [f(1, 50000), i(50)], {}, 2, constants=(1,), note="of many"),
        Case("TopK", [f(1, 5000), i(5000)], {}, 2, constants=(1,), note="all"),
        Case("GlobalAveragePool", [f(1, 512, 7, 7)], note="7x7"),
        Case("Softmax", [f(1, 8, 128, 128)], note="attention"),
        Case("Softmax", [f(8, 64, 512, dtype="float64")], note="float64"),
        Case("LayerNormalization", [f(128, 768, dtype="float64"), f(768, dtype="float64"), f(768, dtype="float64")],
             {}, 1, 17, note="float64"),
        Case("Conv", [f(1, 3, 224, 224), f(32, 3, 7, 7)], {"strides": [2, 2], "pads": [3, 3, 3, 3]}, note="7x7"),
        Case("Conv", [f(1, 64, 512), f(64, 64, 3)], {"pads": [1, 1]}, note="1 dimension"),
        Case("ConvTranspose", [f(1, 64, 28, 28), f(64, 32, 4, 4)], {"strides": [2, 2], "pads": [1, 1, 1, 1]},
             note="4x4"),
        Case("DequantizeLinear", [whole(256, 1024, dtype="int8"), np.abs(f(256)), np.zeros(256, np.int8)], {"axis": 0},
             note="rows"),
        Case("QuantizeLinear", [f(256, 1024), np.abs(f(1024)) + step, np.zeros(1024, np.int8)], {"axis": 1},
             note="columns"),
        Case("Split", [f(64, 2048)], {"axis": 1, "num_outputs": 4}, 4, note="four"),
        Case("Concat", [f(4, 64, 28, 28), f(4, 64, 28, 28)], {"axis": 1}, note="channels"),
        Case("Expand", [f(64, 1, 64), i(64, 64, 64)], constants=(1,), note="middle"),
        Case("Tile", [f(64, 64, 16), i(1, 4, 1)], constants=(1,), note="middle"),
        Case("Slice", [f(64, 4096), i(4095), i(-5000), i(1), i(-1)], constants=(1, 2, 3, 4), note="backwards"),
        Case("Transpose", [f(16, 16, 16, 64)], {"perm": [3, 2, 1, 0]}, note="all"),
        Case("OneHot", [whole(1024, most=100), np.array(100), np.array([0, 1])], note="int64"),
        Case("NegativeLogLikelihoodLoss", [f(16, 20, 64, 64), whole(16, 64, 64, most=20)], opset=13, note="pixels"),
        Case("SoftmaxCrossEntropyLoss", [f(4, 20, 64, 64), whole(4, 64, 64, most=20)], opset=13, note="pixels"),
        Case("LogSoftmax", [f(4, 20, 64, 64)], {"axis": 1}, note="pixels"),
    ]
    boxes = np.abs(f(1, 200, 2))
    made.append(
        Case(
            "NonMaxSuppression",
            [np.concatenate([boxes, boxes + 1], 2), np.abs(f(1, 4, 200)), i(50), np.array([0.5], np.float32)],
            opset=11,
        )
    )
    return made


def model_of(case: Case) -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    names = ["" if x is None else f"x{k}" for k, x in enumerate(case.inputs)]
    node = helper.make_node(case.kind, names, [f"y{k}" for k in range(case.outputs)], **case.attributes)
    shown = [(k, x) for k, x in enumerate(case.inputs) if x is not None]
    given = [
        helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
        for k, x in shown
        if k not in case.constants
    ]
    fixed = [numpy_helper.from_array(x, f"x{k}") for k, x in shown if k in case.constants]
    results = [onnx.ValueInfoProto(name=f"y{k}") for k in range(case.outputs)]
    graph = helper.make_graph([node], "one", given, results, fixed)
    data: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10
    ).SerializeToString()
    return data


def seconds_of(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def best(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """Return the least time of one execution of each function in `runs`, in microseconds.

    The functions are called in turn, so that other work of the machine affects all of them.  Each execution is timed
    alone; the least time is that of an undisturbed execution.
    """
    once = max(seconds_of(run) + seconds_of(run) for run in runs)
    turns = rounds * max(4, min(40, int(0.004 / once)))
    found = [min(seconds_of(run), seconds_of(run)) for run in runs]
    for _ in range(turns):
        found = [min(least, seconds_of(run)) for least, run in zip(found, runs, strict=True)]
    return [least * 1e6 for least in found]


def call(status: Any) -> Any:
    """Return the result of a pyACL call, and raise an error for a status that is not 0."""
    code = status[-1] if isinstance(status, tuple) else status
    if code != 0:
        raise RuntimeError(f"{code}: {acl.get_recent_err_msg()}")
    return status[0] if isinstance(status, tuple) else None


@contextlib.contextmanager
def simulator(case: Case, data: bytes, results: list[Array]) -> Iterator[Callable[[], object]]:
    """Yield a function that executes on the simulator, with inputs and outputs on the device."""
    number = call(acl.mdl.load_from_mem(acl.util.bytes_to_ptr(data), len(data)))
    ins, outs, memory = acl.mdl.create_dataset(), acl.mdl.create_dataset(), []
    given = [x for k, x in enumerate(case.inputs) if x is not None and k not in case.constants]
    for dataset, arrays in ((ins, given), (outs, results)):
        for array in arrays:
            address = call(acl.rt.malloc(max(array.nbytes, 1), 0))
            memory.append(address)
            if dataset is ins and array.nbytes:
                kept = np.asarray(array, order="C")
                call(acl.rt.memcpy(address, array.nbytes, kept.ctypes.data, array.nbytes, 1))
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, array.nbytes))
    try:
        yield lambda: call(acl.mdl.execute(number, ins, outs))
    finally:
        call(acl.mdl.unload(number))
        for address in memory:
            call(acl.rt.free(address))


def measure(case: Case, rounds: int, empty: tuple[float, float] = (0.0, 0.0)) -> dict[str, Any]:
    import onnxruntime as ort

    data = model_of(case)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {f"x{k}": x for k, x in enumerate(case.inputs) if x is not None and k not in case.constants}
    results = session.run(None, feeds)
    with simulator(case, data, results) as run:
        ours, theirs = best([run, lambda: session.run(None, feeds)], rounds)
    name = f"{case.kind} ({case.note})" if case.note else case.kind
    return {
        "operator": name,
        "simulator_us": round(ours, 1),
        "onnxruntime_us": round(theirs, 1),
        "ratio": round(max(ours - empty[0], 0.0) / max(theirs - empty[1], 1.0), 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", default="", metavar="FILE")
    parser.add_argument("--only", default="", metavar="OPERATOR")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=float, default=5.0, metavar="RATIO")
    asked = parser.parse_args()
    call(acl.init())
    call(acl.rt.set_device(0))
    rows: list[dict[str, Any]] = []
    print(f"{'operator':40} {'simulator':>12} {'ONNX Runtime':>13} {'ratio':>7}")
    nothing = measure(Case("Neg", [f(1)]), 20)
    empty = (nothing["simulator_us"], nothing["onnxruntime_us"])
    print(f"{'an execution of next to nothing':40} {empty[0]:9} us {empty[1]:10} us")
    for case in cases():
        if asked.only not in ("", case.kind):
            continue
        try:
            row = measure(case, asked.rounds, empty)
        except Exception as error:
            print(f"{case.kind:40} {' '.join(str(error).split())[:90]}")
            continue
        rows.append(row)
        mark = "  *" if row["ratio"] > asked.most else ""
        print(
            f"{row['operator']:40} {row['simulator_us']:9} us {row['onnxruntime_us']:10} us {row['ratio']:7}{mark}",
            flush=True,
        )
    slow = [row["operator"] for row in rows if row["ratio"] > asked.most]
    print(f"{len(rows)} rows, {len(slow)} above {asked.most}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if slow or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
