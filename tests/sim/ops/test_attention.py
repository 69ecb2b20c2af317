"""Attention and TensorScatter against NumPy: heads, masks, caches, and causal and windowed attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(kind: str, inputs: list[Array | None], opset: int = 24, outputs: int = 1, **attributes: Any) -> list[Array]:
    """Return the operator's outputs; each input is dynamic in all dimensions, and None is one that is left out."""
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    with SimModel(b.to_bytes()) as model:
        return model(*[x for x in inputs if x is not None])


def normal(*shape: int, seed: int = 5) -> Array:
    print("seed", seed)
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def attend(q: Array, k: Array, v: Array, bias: Array | float = 0.0, scale: float | None = None) -> Array:
    """Return softmax(q k' scale + bias) v over [batch, head, row, size]; a row whose mask allows no key is zero."""
    repeat = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ v)


def close(got: Array, expected: Array, tolerance: float = 2e-5) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (4, 1)])
def test_attention_heads_can_share_keys(dtype: str, heads: tuple[int, int]) -> None:
    q, k, v = normal(2, heads[0], 5, 8), normal(2, heads[1], 7, 8), normal(2, heads[1], 7, 6)
    q, k, v = q.astype(dtype), k.astype(dtype), v.astype(dtype)
    (got,) = run("Attention", [q, k, v], opset=23)
    assert got.dtype == dtype
    close(got, attend(q, k, v), 4e-3 if dtype == "float16" else 2e-5)


def test_attention_input_of_three_dimensions_has_its_heads_side_by_side() -> None:
    q, k, v = normal(2, 5, 12), normal(2, 7, 6), normal(2, 7, 4)
    (got,) = run("Attention", [q, k, v], q_num_heads=4, kv_num_heads=2)
    heads = [x.reshape(2, x.shape[1], n, -1).swapaxes(1, 2) for x, n in ((q, 4), (k, 2), (v, 2))]
    close(got, attend(*heads).swapaxes(1, 2).reshape(2, 5, 8))


@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 5, 7), (4, 5, 1), (2, 1, 5, 7), (2, 4, 1, 7)])
def test_attention_mask_is_broadcast(shape: tuple[int, ...]) -> None:
    q, k, v, mask = normal(2, 4, 5, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 8), normal(*shape)
    close(run("Attention", [q, k, v, mask])[0], attend(q, k, v, mask))
    seen = mask > -0.5
    close(run("Attention", [q, k, v, seen])[0], attend(q, k, v, np.where(seen, 0.0, -np.inf)))


def test_attention_query_without_visible_keys_gives_zero() -> None:
    q, k, v, seen = normal(1, 1, 2, 4), normal(1, 1, 3, 4), normal(1, 1, 3, 4), np.zeros((2, 3), bool)
    seen[1, 2] = True
    (got,) = run("Attention", [q, k, v, seen])
    assert not got[0, 0, 0].any()
    close(got[0, 0, 1], v[0, 0, 2])


def test_causal_attention_counts_positions_from_the_past_keys() -> None:
    q, k, v = normal(2, 2, 3, 4), normal(2, 2, 3, 4), normal(2, 2, 3, 4)
    past_k, past_v = normal(2, 2, 5, 4, seed=9), normal(2, 2, 5, 4, seed=8)
    got, key, value = run("Attention", [q, k, v, None, past_k, past_v], outputs=3, is_causal=1)
    np.testing.assert_array_equal(key, np.concatenate([past_k, k], 2))
    np.testing.assert_array_equal(value, np.concatenate([past_v, v], 2))
    bias = np.where(np.arange(8) <= np.arange(3)[:, None] + 5, 0.0, -np.inf)
    close(got, attend(q, key, value, bias))


def test_attention_lengths_limit_the_keys_of_each_batch() -> None:
    q, k, v, lengths = normal(2, 2, 2, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4), np.array([6, 3])
    (got,) = run("Attention", [q, k, v, None, None, None, lengths], is_causal=1)
    ends = lengths[:, None, None, None] - 2 + np.arange(2)[:, None]
    close(got, attend(q, k, v, np.where(np.arange(6) <= ends, 0.0, -np.inf)))


@pytest.mark.parametrize(("left", "right"), [(1, 0), (2, 1), (-1, 1), (0, -1)])
def test_attention_window_limits_the_keys_around_each_query(left: int, right: int) -> None:
    q, k, v = normal(1, 2, 6, 4), normal(1, 2, 6, 4), normal(1, 2, 6, 4)
    (got,) = run("Attention", [q, k, v], opset=25, left_window_size=left, right_window_size=right)
    gap = np.arange(6)[:, None] - np.arange(6)
    seen = ((left < 0) | (gap <= left)) & ((right < 0) | (-gap <= right))
    close(got, attend(q, k, v, np.where(seen, 0.0, -np.inf)))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_attention_scores_can_be_returned_after_each_step(mode: int) -> None:
    q, k, v, mask = normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4), normal(3, 5)
    outputs = run("Attention", [q, k, v, mask], outputs=4, qk_matmul_output_mode=mode, softcap=0.5, scale=0.3)
    raw = q.astype(np.float64) @ k.swapaxes(-1, -2) * 0.3
    capped = 0.5 * np.tanh(raw / 0.5)
    weights = np.exp(capped + mask)
    weights /= weights.sum(-1, keepdims=True)
    close(outputs[3], [raw, capped, capped + mask, weights][mode])
    close(outputs[0], weights @ v)


@pytest.mark.parametrize("queries", [0, 1])
@pytest.mark.parametrize("keys", [0, 1])
def test_attention_over_no_key_gives_zero_and_over_one_key_its_value(queries: int, keys: int) -> None:
    q, k, v = normal(2, 2, queries, 4), normal(2, 2, keys, 4), normal(2, 2, keys, 3)
    (got,) = run("Attention", [q, k, v])
    close(got, np.broadcast_to(v, (2, 2, queries, 3)) if keys else np.zeros((2, 2, queries, 3)))


@pytest.mark.parametrize(("wrong", "message"), [
    ({"shapes": [(2, 5), (2, 5), (2, 5)]}, "three or four dimensions"),
    ({"shapes": [(1, 3, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)]}, "a multiple of that of the keys"),
    ({"shapes": [(1, 2, 5, 4), (1, 2, 5, 3), (1, 2, 5, 4)]}, "heads of the size of input 0"),
    ({"shapes": [(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 6, 4)]}, "as many rows as input 1"),
    ({"shapes": [(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4), (4, 5)]}, "a mask for [batch, heads, queries, keys]"),
    ({"shapes": [(1, 5, 7), (1, 5, 6), (1, 5, 6)], "q_num_heads": 2, "kv_num_heads": 2}, "do not divide"),
])  # fmt: skip
def test_attention_shapes_that_do_not_fit_are_refused_with_the_reason(wrong: dict[str, Any], message: str) -> None:
    inputs: list[Array | None] = [normal(*shape) for shape in wrong.pop("shapes")]
    with pytest.raises(AssertionError, match=message.replace("[", r"\[")):
        run("Attention", inputs, **wrong)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_attention_cache_can_be_updated(mode: str) -> None:
    past, update, at = normal(2, 3, 6, 4), normal(2, 3, 2, 4, seed=1), np.array([1, 4 if mode == "linear" else 5])
    (got,) = run("TensorScatter", [past, update, at], mode=mode)
    for batch, first in enumerate(at):
        for i in range(2):
            past[batch, :, (first + i) % 6] = update[batch, :, i]
    np.testing.assert_array_equal(got, past)


def test_attention_cache_update_past_its_end_fails() -> None:
    with pytest.raises(AssertionError):
        run("TensorScatter", [normal(1, 3, 4), normal(1, 2, 4), np.array([2])])
