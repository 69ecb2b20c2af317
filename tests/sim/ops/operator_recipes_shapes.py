"""Recipes of operators that move elements, work on images, are layers of networks, or belong to com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
from sim.ops.operator_dice import ALL, Array, Case, Dice, axes_given
from sim.ops.operator_recipes import matmul, positive

# --- places ----------------------------------------------------------------------------------------


def indices_for(d: Dice, length: int, shape: tuple[int, ...]) -> Array:
    return np.asarray(d.rng.integers(-length, length, shape) if length else np.zeros(shape)).astype(
        d.one(np.int32, np.int64)
    )


def gather(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(1, 4))
    axis = d.axis(x.ndim)
    places = indices_for(d, x.shape[axis], d.shape(0, 2) if x.shape[axis] else (0,))
    return Case(kind, [x, places], d.maybe({"axis": axis}, 1.0), opset=13)


def gather_elements(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(1, 4))
    axis = d.axis(x.ndim)
    shape = tuple(d.whole(0, n) if i != axis % x.ndim else d.whole(0, 5) * bool(n) for i, n in enumerate(x.shape))
    return Case(kind, [x, indices_for(d, x.shape[axis], shape)], {"axis": axis}, opset=13)


def scatter_elements(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float64", "int32", "int64"), d.shape(1, 4))
    axis = d.axis(x.ndim)
    shape = tuple(d.whole(0, n) for n in x.shape)
    length = x.shape[axis]
    how = d.one("none", "add", "mul", "max", "min")
    places = indices_for(d, length, shape)
    if how == "none":  # write each place once, because the result of several writes is undefined
        order = d.rng.random(shape).argsort(axis) if shape[axis] else np.zeros(shape)
        places = np.asarray(order).astype(places.dtype)
    return Case(
        kind, [x, places, d.plain(x.dtype.name, shape)], {"axis": axis, "reduction": how}, opset=18, tolerance=4
    )


def gather_nd(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64", "bool"), tuple(max(1, n) for n in d.shape(1, 4)))
    batch = d.whole(0, x.ndim - 1) if d.chance(0.4) else 0
    depth = d.whole(1, x.ndim - batch)
    lead = (*x.shape[:batch], *(d.whole(1, 3) for _ in range(d.whole(0, 1))))
    places = np.stack([d.rng.integers(-n, n, lead) for n in x.shape[batch : batch + depth]], -1)
    return Case(kind, [x, places.astype(np.int64)], {"batch_dims": batch}, opset=13)


def scatter_nd(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float64", "int32", "int64"), tuple(max(1, n) for n in d.shape(1, 3)))
    depth = d.whole(1, x.ndim)
    how = d.one("none", "add", "mul", "max", "min")
    every = int(np.prod(x.shape[:depth]))
    flat = d.rng.permutation(every)[: d.whole(1, every)] if how == "none" else d.rng.integers(0, every, d.whole(1, 6))
    places = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
    updates = d.plain(x.dtype.name, (len(flat), *x.shape[depth:]))
    return Case(kind, [x, places, updates], {"reduction": how}, opset=18, tolerance=4)


def onehot(d: Dice, kind: str) -> Case:
    x = d.plain("int64", d.shape(0, 3))
    axis = d.axis(x.ndim + 1)
    return Case(kind, [x, np.array(d.whole(1, 12)), d.plain("float32", (2,))], {"axis": axis}, opset=11)


def compress(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64"), d.shape(1, 3))
    axis = d.axis(x.ndim)
    if d.chance(0.3):
        return Case(kind, [x, d.values("bool", (d.whole(0, x.size),))], opset=11)
    return Case(kind, [x, d.values("bool", (d.whole(0, x.shape[axis]),))], {"axis": axis}, opset=11)


def nonzero(d: Dice, kind: str) -> Case:
    return Case(kind, [d.values(d.one("float32", "int32", "int64", "bool", "uint8"), d.shape(1, 4))], opset=13)


def reverse(d: Dice, kind: str) -> Case:
    x = d.values("float32", (d.whole(1, 6), d.whole(1, 6), *d.shape(0, 2)))
    time = d.whole(0, 1)
    lengths = d.rng.integers(1, x.shape[time] + 1, x.shape[1 - time]).astype(np.int64)
    return Case(kind, [x, lengths], {"time_axis": time, "batch_axis": 1 - time}, opset=10)


# --- shapes ----------------------------------------------------------------------------------------


def transpose(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(0, 6))
    return Case(kind, [x], d.maybe({"perm": [int(p) for p in d.rng.permutation(x.ndim)]}) if x.ndim else {})


def concat(d: Dice, kind: str) -> Case:
    shape, dtype = d.shape(1, 4), d.of(ALL)
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.whole(1, 4)):
        dims = list(shape)
        dims[axis] = d.whole(0, 5)
        parts.append(d.values(dtype, tuple(dims)))
    return Case(kind, list(parts), {"axis": axis}, opset=13)


def split(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64", "int32", "uint8"), tuple(max(1, n) for n in d.shape(1, 4)))
    axis = d.axis(x.ndim)
    length = x.shape[axis]
    parts = d.whole(1, min(4, length))
    if d.chance(0.5):
        cuts = sorted(int(c) for c in d.rng.integers(0, length + 1, parts - 1))
        sizes = np.diff([0, *cuts, length])
        return Case(kind, [x, sizes.astype(np.int64)], {"axis": axis}, parts, 18)
    sized = -(-length // parts)
    parts = -(-length // sized)
    return Case(kind, [x], {"axis": axis, "num_outputs": parts}, parts, 18)


def slices(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(1, 4))
    axes = axes_given(d, x.ndim)
    steps = [d.one(1, 1, 2, -1, -2, 3) for _ in axes]
    starts = [d.whole(-x.shape[a] - 2, x.shape[a] + 2) for a in axes]
    ends = [
        d.one(d.whole(-x.shape[a] - 2, x.shape[a] + 2), 2**31 if s > 0 else -(2**31))
        for a, s in zip(axes, steps, strict=True)
    ]
    kept = frozenset({1, 2, 3, 4}) if d.chance(0.5) else frozenset()
    return Case(kind, [x, *(np.array(v, np.int64) for v in (starts, ends, axes, steps))], opset=13, constants=kept)


def pad(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "float64", "int32", "int64"), d.shape(1, 4))
    mode = d.one("constant", "constant", "edge", "reflect", "wrap")
    lowest = -1 if mode == "constant" else 0
    pads = [d.whole(max(lowest, -n), 2 if mode == "constant" else max(0, min(3, n - 1))) for n in (*x.shape, *x.shape)]
    pads = [max(p, -(n // 2)) for p, n in zip(pads, (*x.shape, *x.shape), strict=True)]
    inputs = [
        x,
        np.array(pads, np.int64),
        *([d.plain(x.dtype.name, ())] if mode == "constant" and d.chance(0.5) else []),
    ]
    return Case(kind, list(inputs), {"mode": mode}, opset=19 if mode == "wrap" else 18)


def reshape(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(0, 5))
    target = [int(n) for n in d.rng.permutation(x.shape)] if x.ndim else [1]
    if x.size and d.chance(0.5) and target:
        target[d.whole(0, len(target) - 1)] = -1
    return Case(kind, [x, np.array(target, np.int64)], {"allowzero": 1} if 0 in target else {}, opset=14)


def flatten(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(0, 4))
    return Case(kind, [x], d.maybe({"axis": d.whole(-x.ndim, x.ndim)}) if x.ndim else {"axis": 0}, opset=13)


def squeeze(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), tuple(1 if d.chance(0.5) else n for n in d.shape(1, 5)))
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    axes = np.array([a - x.ndim if d.chance(0.3) else a for a in ones if d.chance(0.6)], np.int64)
    return Case(kind, [x, axes] if axes.size else [x], opset=13)


def unsqueeze(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(0, 4))
    more = d.whole(1, 2)
    axes = d.rng.permutation(x.ndim + more)[:more]
    return Case(kind, [x, np.array([a - x.ndim - more if d.chance(0.3) else a for a in axes], np.int64)], opset=13)


def expand(d: Dice, kind: str) -> Case:
    shape = d.shape(0, 4)
    return Case(kind, [d.values(d.of(ALL), d.partner(shape)), np.array(shape, np.int64)], opset=13)


def tile(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64", "bool", "uint8"), d.shape(1, 4))
    return Case(kind, [x, np.array([d.whole(0, 3) if d.empty else d.whole(1, 3) for _ in x.shape], np.int64)], opset=13)


def shape_of(d: Dice, kind: str) -> Case:
    x = d.values(d.of(ALL), d.shape(0, 6))
    bounds = d.maybe({"start": d.whole(-x.ndim - 1, x.ndim + 1), "end": d.whole(-x.ndim - 1, x.ndim + 1)}, 0.4)
    return Case(kind, [x], bounds if kind == "Shape" else {}, opset=15)


def filled(d: Dice, kind: str) -> Case:
    value = d.plain(d.of(ALL), (1,))
    return Case(kind, [np.array(d.shape(0, 4), np.int64)], d.maybe({"value": value}), opset=9)


def arange(d: Dice, kind: str) -> Case:
    dtype = d.one("float32", "float64", "int32", "int64", "int16")
    start, step = d.whole(-20, 20), d.one(1, 2, -1, -3, 7)
    return Case(
        kind, [np.array(v, dtype) for v in (start, start + step * d.whole(-2, 30) + d.whole(0, 1), step)], opset=11
    )


def eye(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64", "bool"), (d.dim(), d.dim()))
    return Case(kind, [x], {"dtype": d.one(1, 7, 11), **d.maybe({"k": d.whole(-4, 4)})}, opset=9)


def trilu(d: Dice, kind: str) -> Case:
    x = d.values(d.one("float32", "int64", "float64", "bool"), d.shape(2, 4))
    return Case(
        kind, [x, *([np.array(d.whole(-9, 9))] if d.chance(0.6) else [])], d.maybe({"upper": d.whole(0, 1)}), opset=14
    )


def blocks(d: Dice, kind: str) -> Case:
    b = d.whole(1, 3)
    if kind == "DepthToSpace":
        x = d.values("float32", (d.whole(1, 2), b * b * d.whole(1, 3), d.whole(1, 5), d.whole(1, 5)))
        return Case(kind, [x], {"blocksize": b, **d.maybe({"mode": d.one("DCR", "CRD")})}, opset=13)
    x = d.values("float32", (d.whole(1, 2), d.whole(1, 3), b * d.whole(1, 5), b * d.whole(1, 5)))
    return Case(kind, [x], {"blocksize": b}, opset=13)


def center(d: Dice, kind: str) -> Case:
    x = d.values("float32", tuple(max(1, n) for n in d.shape(1, 4)))
    return Case(kind, [x, np.array([d.whole(1, 9) for _ in x.shape], np.int64)], opset=18)


# --- pictures --------------------------------------------------------------------------------------


def resize(d: Dice, kind: str) -> Case:
    mode = d.one("nearest", "linear", "cubic")
    spatial = 2 if mode == "cubic" else d.whole(1, 2)
    x = d.plain(
        d.one("float32", "float32", "float64", "uint8", "int8", "int32") if mode != "cubic" else "float32",
        (1, d.whole(1, 2), *(d.whole(2, 9) for _ in range(spatial))),
    )
    attributes = {
        "mode": mode,
        **d.maybe(
            {"coordinate_transformation_mode": d.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}
        ),
    }
    if mode == "nearest":
        attributes |= d.maybe({"nearest_mode": d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")})
    sure = mode != "nearest" and x.dtype.kind == "f"
    if d.chance(0.5):
        sizes = np.array([*x.shape[:2], *(d.whole(1, 20) for _ in range(spatial))], np.int64)
        return Case(
            kind, [x, None, None, sizes], attributes, opset=18, tolerance=10, orders=sure, constants=frozenset({3})
        )
    scales = np.array([1, 1, *(d.one(0.5, 0.6, 1.5, 2, 2.7, 3) for _ in range(spatial))], np.float32)
    return Case(kind, [x, None, scales], attributes, opset=18, tolerance=10, orders=sure, constants=frozenset({2}))


def grid_sample(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float32", "float64"), (d.whole(1, 2), d.whole(1, 3), d.whole(1, 7), d.whole(1, 7)))
    grid = (d.rng.random((x.shape[0], d.whole(1, 5), d.whole(1, 5), 2)) * 2.6 - 1.3).astype(x.dtype)
    attributes = {
        "mode": d.one("linear", "nearest", "cubic"),
        **d.maybe({"padding_mode": d.one("zeros", "border", "reflection"), "align_corners": d.whole(0, 1)}),
    }
    return Case(kind, [x, grid], attributes, opset=20, tolerance=30)


def roi_align(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float32", "float64"), (d.whole(1, 2), d.whole(1, 3), d.whole(3, 9), d.whole(3, 9)))
    corner = d.rng.random((3, 2)) * 6
    rois = np.concatenate([corner, corner + d.rng.random((3, 2)) * 8], 1).astype(x.dtype)
    attributes = d.maybe(
        {
            "output_height": d.whole(1, 4),
            "output_width": d.whole(1, 4),
            "sampling_ratio": d.whole(0, 3),
            "spatial_scale": 0.5,
            "coordinate_transformation_mode": d.one("half_pixel", "output_half_pixel"),
        }
    )
    return Case(kind, [x, rois, d.rng.integers(0, x.shape[0], 3)], attributes, opset=16, tolerance=30)


# --- nets ------------------------------------------------------------------------------------------


def recurrent(d: Dice, kind: str) -> Case:
    steps, batch, width, hidden = d.whole(1, 5), d.whole(1, 3), d.whole(1, 6), d.whole(1, 6)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    way = d.one("forward", "reverse", "bidirectional")
    n = 2 if way == "bidirectional" else 1
    f = "float32"
    inputs: list[Array | None] = [
        d.plain(f, (steps, batch, width)),
        d.plain(f, (n, gates * hidden, width)),
        np.clip(d.plain(f, (n, gates * hidden, hidden)), -2, 2),  # larger ones amplify the rounding of each step
    ]
    inputs.append(d.plain(f, (n, 2 * gates * hidden)) if d.chance(0.6) else None)
    inputs.append(d.rng.integers(1, steps + 1, batch).astype(np.int32) if d.chance(0.4) else None)
    inputs.append(d.plain(f, (n, batch, hidden)) if d.chance(0.5) else None)
    if kind == "LSTM":
        inputs.append(d.plain(f, (n, batch, hidden)) if d.chance(0.5) else None)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if kind == "GRU":
        attributes |= d.maybe({"linear_before_reset": d.whole(0, 1)})
    return Case(kind, inputs, attributes, 3 if kind == "LSTM" else 2, 14, tolerance=20)


def attention(d: Dice, kind: str) -> Case:
    batch, kv, queries, keys, size = d.whole(1, 2), d.whole(1, 2), d.whole(1, 5), d.whole(1, 6), d.one(2, 4, 8)
    heads = kv * d.whole(1, 2)
    f = d.one("float32", "float32", "float64")
    inputs: list[Array | None] = [
        d.plain(f, (batch, heads, queries, size)),
        d.plain(f, (batch, kv, keys, size)),
        d.plain(f, (batch, kv, keys, size)),
    ]
    if d.chance(0.4):
        inputs.append(d.plain("bool", (queries, keys)) if d.chance(0.5) else d.plain(f, (queries, keys)))
    return Case(
        kind, inputs, d.maybe({"is_causal": d.whole(0, 1), "scale": 0.3, "softcap": 2.0}, 0.4), opset=23, tolerance=20
    )


def rotary(d: Dice, kind: str) -> Case:
    batch, heads, rows, size = d.whole(1, 2), d.whole(1, 3), d.whole(1, 5), d.one(2, 4, 8)
    x = d.plain(d.one("float32", "float64"), (batch, heads, rows, size))
    table = d.plain(x.dtype.name, (9, size // 2)), d.plain(x.dtype.name, (9, size // 2))
    return Case(
        kind, [x, *table, d.rng.integers(0, 9, (batch, rows))], d.maybe({"interleaved": d.whole(0, 1)}), opset=23
    )


def loss(d: Dice, kind: str) -> Case:
    x = d.plain("float32", (d.whole(1, 4), d.whole(2, 5), *d.shape(0, 2)))
    x = x[..., :0] if 0 in x.shape[2:] else x
    labels = d.rng.integers(0, x.shape[1], (x.shape[0], *x.shape[2:]))
    inputs = [x, labels, *([positive(d, "float32", (x.shape[1],))] if d.chance(0.5) else [])]
    return Case(
        kind,
        list(inputs),
        d.maybe({"reduction": d.one("none", "mean", "sum"), "ignore_index": 1}),
        opset=13,
        tolerance=10,
    )


def suppress(d: Dice, kind: str) -> Case:
    n = d.whole(1, 12)
    corner = d.rng.random((1, n, 2))
    boxes = np.concatenate([corner, corner + d.rng.random((1, n, 2))], 2).astype(np.float32)
    scores = d.rng.random((1, d.whole(1, 3), n)).astype(np.float32)
    limits = [np.array([d.whole(0, 5)]), np.array([0.4], np.float32), np.array([0.2], np.float32)]
    return Case(kind, [boxes, scores, *limits], d.maybe({"center_point_box": d.whole(0, 1)}), opset=11)


def dft(d: Dice, kind: str) -> Case:
    x = d.plain(d.one("float32", "float64"), (d.whole(1, 2), d.whole(1, 24), d.one(1, 2)))
    attributes = {"inverse": d.whole(0, 1)} if x.shape[2] == 2 else d.maybe({"onesided": d.whole(0, 1)})
    return Case(kind, [x, None, np.array(1)], attributes, opset=20, tolerance=30)


def windows(d: Dice, kind: str) -> Case:
    return Case(
        kind,
        [np.array(d.whole(1, 40), np.int64)],
        d.maybe({"periodic": d.whole(0, 1), "output_datatype": d.one(1, 11)}),
        opset=17,
    )


def scatter_tensor(d: Dice, kind: str) -> Case:
    past = d.plain("float32", (d.whole(1, 3), d.whole(1, 2), d.whole(3, 8), d.whole(1, 4)))
    fresh = d.plain("float32", (*past.shape[:2], d.whole(1, 3), past.shape[3]))
    at = d.rng.integers(0, past.shape[2] - fresh.shape[2] + 1, past.shape[0])
    return Case(kind, [past, fresh, at], {"axis": -2}, opset=24)


# --- of com.microsoft ------------------------------------------------------------------------------


def fused_gelu(d: Dice, kind: str) -> Case:
    x = d.plain("float32", d.shape(1, 3))
    bias = [d.plain("float32", x.shape[-1:])] if kind == "BiasGelu" or (kind == "FastGelu" and d.chance(0.5)) else []
    return Case(
        kind, [x, *bias], d.maybe({"alpha": 1.5}) if kind == "QuickGelu" else {}, domain="com.microsoft", tolerance=4
    )


def fused_norm(d: Dice, kind: str) -> Case:
    shape = (d.whole(1, 3), d.whole(1, 4), d.whole(1, 16))
    x, skip = d.plain("float32", shape), d.plain("float32", shape)
    gamma, beta = d.plain("float32", shape[-1:]), d.plain("float32", shape[-1:])
    simple = kind.startswith("SkipSimplified")
    return Case(
        kind,
        [x, skip, gamma] if simple else [x, skip, gamma, beta],
        {"epsilon": 1e-3},
        domain="com.microsoft",
        tolerance=10,
    )


def fused_matmul(d: Dice, kind: str) -> Case:
    a = matmul(d, kind)
    a.inputs = [np.asarray(x, np.float32) for x in a.inputs if x is not None]
    a.domain, a.attributes = "com.microsoft", d.maybe({"alpha": 0.5})
    return a
