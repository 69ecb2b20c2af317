"""Recipes of operators that compute element by element, along axes, in windows, as products, or with quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from sim.ops.operator_dice import ALL, FLOATS, NUMBERS, Array, Case, Dice, Recipe, axes_given

from acl.tools.onnx_writer import TYPES

# --- element by element ----------------------------------------------------------------------------


def unary(
    types: list[str] = FLOATS, low: float | None = None, high: float | None = None, opset: int = 13, **pools: list[Any]
) -> Recipe:
    def recipe(d: Dice, kind: str) -> Case:
        x = d.values(d.of(types), d.shape())
        if low is not None and not d.strange:
            x = np.clip(x, low, high if high is not None else np.inf).astype(x.dtype)
        attributes = d.maybe({key: d.of(pool) for key, pool in pools.items()})
        return Case(kind, [x], attributes, opset=d.whole(opset, max(opset, 22)))

    return recipe


def binary(types: list[str] = NUMBERS, opset: int = 13) -> Recipe:
    def recipe(d: Dice, kind: str) -> Case:
        shape, dtype = d.shape(), d.of(types)
        x, y = d.values(dtype, shape), d.values(dtype, d.partner(shape))
        if kind in ("Div", "Mod") and not dtype.startswith("float"):
            y = np.where(y == 0, np.asarray(3, dtype), y)
            x = np.where(x == np.iinfo(dtype).min, np.asarray(1, dtype), x) if dtype[0] == "i" else x
        if d.chance(0.3) and kind not in ("Div", "Mod"):
            x, y = y, x
        attributes = {"fmod": 1} if kind == "Mod" and (dtype.startswith("float") or d.chance(0.3)) else {}
        if kind == "BitShift":
            attributes = {"direction": d.one("LEFT", "RIGHT")}
            y = np.asarray(y % 8).astype(dtype)
        return Case(kind, [np.asarray(x, dtype), np.asarray(y, dtype)], attributes, opset=d.whole(opset, 22))

    return recipe


def power(d: Dice, kind: str) -> Case:
    shape = d.shape()
    x = np.abs(d.plain(d.one("float32", "float64", "int32", "int64"), shape)) + 1
    y = np.clip(d.plain(d.one("float32", "float64", "int32", "int64"), d.partner(shape)), -3, 3)
    y = np.abs(y) if x.dtype.kind == "i" else y
    return Case(kind, [x, y], opset=15)


def many(d: Dice, kind: str) -> Case:
    shape, dtype = d.shape(), d.of(FLOATS if kind in ("Sum", "Mean") else NUMBERS)
    return Case(kind, [d.values(dtype, d.partner(shape) if i else shape) for i in range(d.whole(1, 4))])


def clip(d: Dice, kind: str) -> Case:
    dtype = d.of(NUMBERS)
    bounds = sorted([d.plain(dtype, ()), d.plain(dtype, ())], key=float)
    low = None if d.chance(0.3) else bounds[0]
    high = None if d.chance(0.3) else bounds[1]
    return Case(kind, [d.values(dtype, d.shape()), low, high])


def cast(d: Dice, kind: str) -> Case:
    origin, target = d.of(ALL), d.of(ALL)
    x = d.values(origin, d.shape())
    if x.dtype.kind == "f" and target not in ("bool", *FLOATS):
        # A value outside the range of the target type gives an undefined result.
        x = np.nan_to_num(np.clip(x.astype(np.float64), 0, 100)).astype(origin)
    if kind == "CastLike":
        return Case(kind, [x, d.plain(target, (1,))], opset=19)
    return Case(kind, [x], {"to": TYPES[target]}, opset=d.whole(13, 22))


def where(d: Dice, kind: str) -> Case:
    shape, dtype = d.shape(), d.of(ALL)
    return Case(kind, [d.values("bool", d.partner(shape)), d.values(dtype, shape), d.values(dtype, d.partner(shape))])


# --- along axes ------------------------------------------------------------------------------------


def reduction(d: Dice, kind: str) -> Case:
    types = ["float32", "float32", "float64", "int32", "int64"]
    if kind in ("ReduceMax", "ReduceMin"):
        types = [*types, "int8", "uint8"]
    x = d.values(d.of(types), d.shape(0, 5))
    if kind in ("ReduceLogSum",):
        x = np.abs(x)
    if kind in ("ReduceLogSumExp", "ReduceProd") and x.dtype.kind == "f" and not d.strange:
        x = np.clip(x, -3, 3)
    if x.dtype.kind == "i" and kind not in ("ReduceMax", "ReduceMin"):
        x = np.clip(x, 1, 3) if kind in ("ReduceLogSumExp", "ReduceProd", "ReduceLogSum") else np.clip(x, -9, 9)
    attributes = d.maybe({"keepdims": d.whole(0, 1)})
    axes = axes_given(d, x.ndim) if x.ndim and d.chance(0.8) else None
    if kind == "ReduceSum" or d.chance(0.5):
        if axes is None and d.chance(0.5):
            attributes["noop_with_empty_axes"] = d.whole(0, 1)
        given = None if axes is None else np.array(axes, np.int64)
        kept = frozenset({1}) if d.chance(0.5) else frozenset()
        return Case(kind, [x, given], attributes, opset=20, constants=kept, tolerance=4)
    if axes is not None:
        attributes["axes"] = axes
    return Case(kind, [x], attributes, opset=13, tolerance=4)


def arg(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "float64", "int32", "int64", "int8", "uint8"), d.shape(1, 4))
    attributes = d.maybe({"axis": d.axis(x.ndim), "keepdims": d.whole(0, 1), "select_last_index": d.whole(0, 1)})
    return Case(kind, [x], attributes, opset=13)


def cumsum(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "float64", "int32", "int64"), d.shape(1, 4))
    attributes = d.maybe({"exclusive": d.whole(0, 1), "reverse": d.whole(0, 1)})
    return Case(kind, [x, np.array(d.axis(x.ndim), d.one(np.int32, np.int64))], attributes, opset=14, tolerance=4)


def topk(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "float64", "int32", "int64"), d.shape(1, 4))
    axis = d.axis(x.ndim)
    k = d.whole(0, x.shape[axis])
    attributes = {"axis": axis, **d.maybe({"largest": d.whole(0, 1), "sorted": 1})}
    return Case(kind, [x, np.array([k])], attributes, outputs=2, opset=d.one(11, 18))


def softmax(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "float32", "float64"), d.shape(1, 4))
    return Case(kind, [x], d.maybe({"axis": d.axis(x.ndim)}), opset=d.one(11, 13, 18))


def hardmax(d: Dice, kind: str) -> Case:
    x = d.plain("float32", d.shape(1, 4))
    return Case(kind, [x], d.maybe({"axis": d.axis(x.ndim)}), opset=13)


def lp_normal(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float64"), d.shape(1, 4))
    return Case(kind, [x], d.maybe({"axis": d.axis(x.ndim), "p": d.one(1, 2)}))


def positive(d: Dice, dtype: str, shape: tuple[int, ...]) -> Array:
    return np.abs(d.plain(dtype, shape)) + np.asarray(0.1, dtype)


def layer_normal(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float64"), d.shape(1, 4))
    axis = d.axis(x.ndim)
    tail = x.shape[axis:]
    inputs: list[Array | None] = [x, d.plain(x.dtype.name, tail)]
    attributes = {"axis": axis, **d.maybe({"epsilon": 1e-3})}
    if kind == "RMSNormalization":
        return Case(kind, inputs, attributes, opset=23, tolerance=4)
    outputs = d.one(1, 1, 3) if x.dtype == np.float32 else 1
    return Case(
        kind, [*inputs, *([d.plain(x.dtype.name, tail)] if d.chance(0.6) else [])], attributes, outputs, 17, tolerance=4
    )


def channel_normal(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float32", "float64"), d.shape(2 if kind[0] == "B" else 3, 5))
    c = (x.shape[1],)
    dtype = x.dtype.name
    attributes = d.maybe({"epsilon": 1e-3})
    if kind == "BatchNormalization":
        extra = [d.plain(dtype, c), d.plain(dtype, c), d.plain(dtype, c), positive(d, dtype, c)]
        return Case(kind, [x, *extra], attributes, opset=15, tolerance=4)
    if kind == "GroupNormalization":
        groups = d.of([g for g in range(1, c[0] + 1) if c[0] % g == 0] or [1])
        attributes["num_groups"] = groups
        return Case(kind, [x, d.plain(dtype, c), d.plain(dtype, c)], attributes, opset=21, tolerance=100)
    return Case(kind, [x, d.plain(dtype, c), d.plain(dtype, c)], attributes, opset=17, tolerance=100)


# --- windows ---------------------------------------------------------------------------------------


def window_attributes(d: Dice, spatial: int, kernel: list[int], dilates: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = d.maybe({"strides": [d.whole(1, 3) for _ in range(spatial)]})
    if dilates:
        attributes |= d.maybe({"dilations": [d.whole(1, 2) for _ in range(spatial)]}, 0.3)
    if d.chance(0.3):
        attributes["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
        if attributes["auto_pad"] != "VALID":
            attributes.pop("dilations", None)
    elif d.chance(0.6):
        attributes["pads"] = [d.whole(0, k - 1) for k in kernel] + [d.whole(0, k - 1) for k in kernel]
    return attributes


def image(d: Dice, dtype: str, spatial: int, channels: int, least: int = 6) -> Array:
    return d.values(dtype, (d.whole(1, 2), channels, *(d.whole(least, 20 // spatial + least) for _ in range(spatial))))


def pool(d: Dice, kind: str) -> Case:
    spatial = d.whole(1, 3)
    types = {"MaxPool": ["float32", "float32", "float64", "int8", "uint8"]}.get(kind, ["float32", "float32", "float64"])
    x = image(d, d.of(types), spatial, d.whole(1, 3))
    if x.dtype.kind == "f" and kind == "MaxPool":
        x = np.nan_to_num(x, nan=1.0, posinf=9.0, neginf=-9.0)
    if kind.startswith("Global"):
        attributes = d.maybe({"p": d.whole(1, 3)}) if kind == "GlobalLpPool" else {}
        x = np.clip(np.nan_to_num(x, nan=1.0, posinf=9.0, neginf=-9.0), -1e3, 1e3)
        return Case(kind, [x], attributes, opset=13, tolerance=4)
    kernel = [d.whole(1, 4) for _ in range(spatial)]
    attributes = {"kernel_shape": kernel, **window_attributes(d, spatial, kernel, kind != "LpPool")}
    outputs = 1
    if kind == "MaxPool":
        attributes |= d.maybe({"ceil_mode": d.whole(0, 1), "storage_order": 0}, 0.4)
        outputs = d.one(1, 1, 2)
    elif kind == "AveragePool":
        attributes |= d.maybe({"count_include_pad": d.whole(0, 1), "ceil_mode": d.whole(0, 1)}, 0.4)
    else:
        attributes |= d.maybe({"p": d.whole(1, 3)})
    return Case(kind, [x], attributes, outputs, opset={"LpPool": 18, "AveragePool": 19}.get(kind, 12), tolerance=4)


def conv(d: Dice, kind: str) -> Case:
    spatial, groups = d.whole(1, 3), d.one(1, 1, 2, 3)
    deep, wide = groups * d.whole(1, 3), groups * d.whole(1, 3)
    whole = kind in ("ConvInteger", "QLinearConv")
    x = image(d, d.one("uint8", "int8") if whole else "float32", spatial, deep)
    x = x if whole else np.nan_to_num(x, nan=1.0, posinf=3.0, neginf=-3.0).clip(-1e3, 1e3)
    kernel = [d.whole(1, 3) for _ in range(spatial)]
    attributes = {"group": groups, **d.maybe({"kernel_shape": kernel}), **window_attributes(d, spatial, kernel, True)}
    if kind == "ConvTranspose":
        w = d.plain("float32", (deep, wide // groups, *kernel))
        if d.chance(0.3) and "strides" in attributes:
            attributes["output_padding"] = [d.whole(0, s - 1) for s in attributes["strides"]]
        return Case(
            kind, [x, w, *([d.plain("float32", (wide,))] if d.chance(0.5) else [])], attributes, opset=11, tolerance=8
        )
    w = d.plain(x.dtype.name if whole else "float32", (wide, deep // groups, *kernel))
    if kind == "ConvInteger":
        zero = [np.array(d.whole(0, 9), x.dtype), np.array(0, w.dtype)] if d.chance(0.6) else []
        return Case(kind, [x, w, *zero], attributes, opset=10)
    if kind == "QLinearConv":
        numbers = [
            np.array(0.05, np.float32),
            np.array(d.whole(0, 9), x.dtype),
            w,
            np.array(0.04, np.float32),
            np.array(0, w.dtype),
            np.array(0.3, np.float32),
            np.array(d.whole(0, 9), x.dtype),
        ]
        return Case(kind, [x, *numbers], attributes, opset=10, orders=False)
    return Case(
        kind, [x, w, *([d.plain("float32", (wide,))] if d.chance(0.5) else [])], attributes, opset=11, tolerance=8
    )


def lrn(d: Dice, kind: str) -> Case:
    x = d.plain("float32", d.shape(3, 4))
    return Case(kind, [x], {"size": d.one(1, 3, 5), **d.maybe({"alpha": 1e-2, "beta": 0.5, "bias": 2.0})}, opset=13)


def col2im(d: Dice, kind: str) -> Case:
    block = [d.whole(1, 3), d.whole(1, 3)]
    strides, pads = [d.whole(1, 2), d.whole(1, 2)], [d.whole(0, 1), d.whole(0, 1)] * 2
    size = [d.whole(4, 8), d.whole(4, 8)]
    places = [(size[i] + pads[i] + pads[i + 2] - block[i]) // strides[i] + 1 for i in range(2)]
    x = d.plain("float32", (d.whole(1, 2), d.whole(1, 2) * block[0] * block[1], places[0] * places[1]))
    return Case(kind, [x, np.array(size), np.array(block)], {"strides": strides, "pads": pads}, opset=18, tolerance=4)


# --- products --------------------------------------------------------------------------------------


def matmul(d: Dice, kind: str) -> Case:
    dtype = d.one("float32", "float32", "float64", "int32", "int64", "uint32", "uint64")
    m, k, n = d.dim(), d.dim(), d.dim()
    lead = d.shape(0, 2) if m * k + k * n + m * n < 100_000 else ()
    a, b = (*lead, m, k), (*d.partner(lead), k, n)
    if d.chance(0.1):
        a = (k,)
    if d.chance(0.1):
        b = (k,)
    return Case(kind, [d.plain(dtype, a), d.plain(dtype, b)], opset=13, tolerance=20)


def gemm(d: Dice, kind: str) -> Case:
    dtype = d.one("float32", "float32", "float64", "int32", "int64")
    m, k, n = d.dim(), d.dim(), d.dim()
    ta, tb = d.whole(0, 1), d.whole(0, 1)
    inputs = [d.plain(dtype, (k, m) if ta else (m, k)), d.plain(dtype, (n, k) if tb else (k, n))]
    if d.chance(0.6):
        inputs.append(d.plain(dtype, d.one((m, n), (n,), (1, n), (m, 1), (), (1, 1))))
    factors = [2.0, -1.0, 3.0] if dtype.startswith("int") else [0.5, -2.0, 0.0]
    return Case(
        kind,
        list(inputs),
        {"transA": ta, "transB": tb, **d.maybe({"alpha": d.of(factors), "beta": d.of(factors)})},
        opset=13,
        tolerance=20,
    )


EQUATIONS = [
    "ij,jk->ik",
    "bij,bjk->bik",
    "ij->ji",
    "ii->i",
    "ij->",
    "i,j->ij",
    "ij,ij->ij",
    "...ij,...jk->...ik",
    "bhqd,bhkd->bhqk",
    "ij,jk",
    "ij,kj->",
    "ijk->kj",
    "i,i,i->",
    "ij,jk,kl->il",
    "abc,cd->abd",
    "ij,ik,il->jkl",
]


def einsum(d: Dice, kind: str) -> Case:
    equation = d.of(EQUATIONS)
    sizes = {letter: max(1, min(d.dim(), 8)) for letter in "abcdefghijklmnopqrstuvwxyz"}
    terms = equation.split("->")[0].split(",")
    lead = d.shape(1, 2) if "..." in equation else ()
    dtype = d.one("float32", "float32", "float64", "int32", "int64")
    inputs = [d.plain(dtype, (*(lead if "..." in t else ()), *(sizes[c] for c in t.replace("...", "")))) for t in terms]
    return Case(kind, list(inputs), {"equation": equation}, opset=12, tolerance=10)


def matmul_integer(d: Dice, kind: str) -> Case:
    m, k, n = d.whole(1, 9), d.whole(1, 40), d.whole(1, 9)
    ta, tb = d.one("uint8", "int8"), d.one("uint8", "int8")
    a, b = d.values(ta, (m, k)), d.values(tb, (k, n))
    zeros = [np.array(d.whole(0, 9), ta), np.array(d.whole(0, 9), tb)]
    if kind == "MatMulInteger":
        return Case(kind, [a, b, *(zeros if d.chance(0.6) else [])], opset=10)
    scale = [np.array(s, np.float32) for s in (0.1, 0.05, 0.7)]
    return Case(
        kind,
        [a, scale[0], zeros[0], b, scale[1], zeros[1], scale[2], np.array(d.whole(0, 9), ta)],
        opset=10,
        orders=False,
    )


# --- quantised -------------------------------------------------------------------------------------


def quantize(d: Dice, kind: str) -> Case:
    x = d.plain("float32", d.shape(1, 4))
    axis = d.axis(x.ndim)
    shape = (x.shape[axis],) if d.chance(0.4) else ()
    target = d.one("int8", "uint8", "int16", "uint16")
    scale, zero = positive(d, "float32", shape), np.asarray(d.plain("uint8", shape)).astype(target)
    attributes = {"axis": axis} if shape else {}
    if kind == "QuantizeLinear":
        return Case(kind, [x, scale, zero], attributes, opset=21, orders=False)
    return Case(kind, [d.values(target, x.shape), scale, zero], attributes, opset=21)


def dynamic_quantize(d: Dice, kind: str) -> Case:
    return Case(kind, [d.plain("float32", d.shape(1, 3))], outputs=3, opset=11, orders=False)


def prelu(d: Dice, kind: str) -> Case:
    shape, dtype = d.shape(), d.one("float32", "float32", "float64", "int32", "uint64")
    slope = d.partner(shape)
    return Case(kind, [d.values(dtype, shape), d.values(dtype, slope)], opset=16)
