"""Random models of one operator each, for differential.py: shapes, types, attributes and values.

A recipe is a function that takes a `Dice` and returns a Case; RECIPES has the recipes by operator.  A case depends only
on its `Dice`, which depends only on two numbers (seed and index), so a case can be repeated.
"""

from __future__ import annotations

import numpy as np
from sim.ops.operator_dice import ALL, FLOATS, INTEGERS, NUMBERS, Array, Case, Dice, Recipe
from sim.ops.operator_recipes import (
    arg,
    binary,
    cast,
    channel_normal,
    clip,
    col2im,
    conv,
    cumsum,
    dynamic_quantize,
    einsum,
    gemm,
    hardmax,
    layer_normal,
    lp_normal,
    lrn,
    many,
    matmul,
    matmul_integer,
    pool,
    power,
    prelu,
    quantize,
    reduction,
    softmax,
    topk,
    unary,
    where,
)
from sim.ops.operator_recipes_shapes import (
    arange,
    attention,
    blocks,
    center,
    compress,
    concat,
    dft,
    expand,
    eye,
    filled,
    flatten,
    fused_gelu,
    fused_matmul,
    fused_norm,
    gather,
    gather_elements,
    gather_nd,
    grid_sample,
    loss,
    nonzero,
    onehot,
    pad,
    recurrent,
    reshape,
    resize,
    reverse,
    roi_align,
    rotary,
    scatter_elements,
    scatter_nd,
    scatter_tensor,
    shape_of,
    slices,
    split,
    squeeze,
    suppress,
    tile,
    transpose,
    trilu,
    unsqueeze,
    windows,
)

__all__ = ["RECIPES", "Array", "Case", "Dice", "make_case"]

RECIPES: dict[str, Recipe] = {
    "Abs": unary(NUMBERS),
    "Neg": unary([*FLOATS, "int32", "int64", "int8"]),
    "Sign": unary(NUMBERS),
    "Exp": unary(),
    "Log": unary(low=1e-3),
    "Sqrt": unary(low=0),
    "Reciprocal": unary(),
    "Floor": unary(),
    "Ceil": unary(),
    "Round": unary(opset=11),
    "Sigmoid": unary(),
    "Tanh": unary(),
    "Erf": unary(),
    "Gelu": unary(["float32", "float64"], opset=20, approximate=["none", "tanh"]),
    "Relu": unary([*FLOATS, "int32"], opset=14),
    "LeakyRelu": unary(alpha=[0.2, 1.5, -0.5]),
    "Elu": unary(["float32"], alpha=[0.5, 2.0]),
    "Selu": unary(["float32"], alpha=[1.5], gamma=[0.5]),
    "Celu": unary(["float32"], opset=12, alpha=[0.5, 2.0]),
    "Softplus": unary(["float32", "float64"]),
    "Softsign": unary(["float32", "float64"]),
    "HardSigmoid": unary(["float32", "float64"], alpha=[0.3], beta=[0.4]),
    "HardSwish": unary(["float32", "float64"], opset=14),
    "Swish": unary(["float32", "float64"], opset=24, alpha=[0.5, 2.0]),
    "Mish": unary(["float32", "float64"], opset=18),
    "ThresholdedRelu": unary(["float32"], opset=10, alpha=[0.5, -1.0]),
    "Shrink": unary(["float32", "float64"], opset=9, lambd=[0.7], bias=[0.2]),
    "Sin": unary(["float32", "float64"]),
    "Cos": unary(["float32", "float64"]),
    "Tan": unary(["float32"], opset=7),
    "Asin": unary(["float32"], -1, 1, 7),
    "Acos": unary(["float32"], -1, 1, 7),
    "Atan": unary(["float32"], opset=7),
    "Sinh": unary(["float32"], opset=9),
    "Cosh": unary(["float32"], opset=9),
    "Asinh": unary(["float32"], opset=9),
    "Acosh": unary(["float32"], 1, opset=9),
    "Atanh": unary(["float32"], -0.99, 0.99, 9),
    "Not": unary(["bool"], opset=7),
    "BitwiseNot": unary(INTEGERS, opset=18),
    "IsNaN": unary(opset=13),
    "IsInf": unary(["float32", "float64"], opset=10, detect_negative=[0, 1], detect_positive=[0, 1]),
    "Identity": unary(ALL),
    "Dropout": unary(["float32", "float64"]),
    **{kind: binary() for kind in ("Add", "Sub", "Mul", "Div", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")},
    "Equal": binary(ALL),
    "Mod": binary(),
    "Pow": power,
    "PRelu": prelu,
    **{kind: binary(INTEGERS, 18) for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitShift": binary(["uint8", "uint16", "uint32", "uint64"]),
    **{kind: binary(["bool"], 7) for kind in ("And", "Or", "Xor")},
    **dict.fromkeys(("Min", "Max", "Sum", "Mean"), many),
    "Clip": clip,
    "Cast": cast,
    "CastLike": cast,
    "Where": where,
    **{
        "Reduce" + kind: reduction
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    "ArgMax": arg,
    "ArgMin": arg,
    "CumSum": cumsum,
    "TopK": topk,
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "Hardmax": hardmax,
    "LpNormalization": lp_normal,
    "LayerNormalization": layer_normal,
    "RMSNormalization": layer_normal,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), channel_normal),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), pool),
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"), conv),
    "LRN": lrn,
    "Col2Im": col2im,
    "MatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": matmul_integer,
    "QuantizeLinear": quantize,
    "DequantizeLinear": quantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Gather": gather,
    "GatherElements": gather_elements,
    "ScatterElements": scatter_elements,
    "GatherND": gather_nd,
    "ScatterND": scatter_nd,
    "OneHot": onehot,
    "Compress": compress,
    "NonZero": nonzero,
    "ReverseSequence": reverse,
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Slice": slices,
    "Pad": pad,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "Shape": shape_of,
    "Size": shape_of,
    "ConstantOfShape": filled,
    "Range": arange,
    "EyeLike": eye,
    "Trilu": trilu,
    "DepthToSpace": blocks,
    "SpaceToDepth": blocks,
    "CenterCropPad": center,
    "Resize": resize,
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
    "RNN": recurrent,
    "GRU": recurrent,
    "LSTM": recurrent,
    "Attention": attention,
    "RotaryEmbedding": rotary,
    "NegativeLogLikelihoodLoss": loss,
    "SoftmaxCrossEntropyLoss": loss,
    "NonMaxSuppression": suppress,
    "DFT": dft,
    "TensorScatter": scatter_tensor,
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), windows),
    **dict.fromkeys(("BiasGelu", "FastGelu", "QuickGelu"), fused_gelu),
    "SkipLayerNormalization": fused_norm,
    "SkipSimplifiedLayerNormalization": fused_norm,
    "FusedMatMul": fused_matmul,
}


ODD_WHOLE = [-1, 0, 1, 2, 7, 9, -9, 2**20, 2**40, -(2**40), 2**63 - 1, -(2**63)]


def spoil_attribute(d: Dice, case: Case) -> None:
    """Change one attribute: to a value out of range, to another type, or to an unknown name."""
    if not case.attributes or d.chance(0.1):
        case.attributes[d.one("axis", "axes", "foo", "alpha")] = d.one(1, [1, 0], 0.5, "x")
        return
    name = d.of(sorted(case.attributes))
    value = case.attributes[name]
    if isinstance(value, list):
        kept = [d.of(ODD_WHOLE) if d.chance(0.4) else v for v in value]
        case.attributes[name] = kept[:-1] if d.chance(0.3) and len(kept) > 1 else kept * d.one(1, 1, 2)
    elif isinstance(value, float):
        case.attributes[name] = float(d.one(0.0, -1.0, 1e30, float("nan"), float("inf")))
    elif isinstance(value, str):
        case.attributes[name] = d.one("", value[:1], value + "x", "none")
    elif isinstance(value, int):
        case.attributes[name] = d.of(ODD_WHOLE)


def spoil_input(d: Dice, case: Case) -> None:
    """Leave out one input, or change its type, its shape or its values' range."""
    at = d.whole(0, len(case.inputs) - 1)
    x = case.inputs[at]
    how = d.whole(0, 4)
    if how == 0 or x is None:
        case.inputs[at] = None
    elif how == 1:
        case.inputs[at] = d.values(d.of(ALL), x.shape)
    elif how == 2:
        dims = list(x.shape)
        if dims and d.chance(0.6):
            dims[d.whole(0, len(dims) - 1)] = d.one(0, 1, 2, 5)
        else:
            dims = dims[1:] if d.chance(0.5) else [d.one(1, 2), *dims]
        case.inputs[at] = d.values(x.dtype.name, tuple(dims))
    elif how == 3 and x.dtype.kind == "i":
        case.inputs[at] = np.where(d.rng.random(x.shape) < 0.5, x, d.rng.choice(ODD_WHOLE, x.shape)).astype(x.dtype)
    else:
        case.inputs.append(d.values("float32", (2,)))


def spoil(d: Dice, case: Case) -> None:
    case.wild = True
    for _ in range(d.whole(1, 2)):
        if d.chance(0.5):
            spoil_attribute(d, case)
        else:
            spoil_input(d, case)
    if d.chance(0.1):
        case.outputs += 1


def make_case(seed: int, index: int, only: str = "") -> Case:
    """Return the case of a seed and an index; if `only` is given, its operator is `only`."""
    dice = Dice(seed, index)
    kind = only or dice.of(sorted(RECIPES))
    case = RECIPES[kind](dice, kind)
    case.inputs = [None if x is None else np.asarray(x) for x in case.inputs]
    if dice.chance(0.15):
        spoil(dice, case)
    return case
