"""The fused operators (com.microsoft) that ONNX Runtime's optimiser creates in transformers, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]
ORT = "com.microsoft"

pytestmark = pytest.mark.usefixtures("device")


def run(
    kind: str, inputs: list[Array | None], outputs: int = 1, domain: str = ORT, opset: int = 17, **attributes: Any
) -> list[Array]:
    """Return the operator's outputs; each input is dynamic in all dimensions, and None is one that is left out."""
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    with SimModel(b.to_bytes()) as model:
        return model(*[x for x in inputs if x is not None])


def normal(*shape: int, seed: int = 7) -> Array:
    print("seed", seed)
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def close(got: Array, expected: Array, tolerance: float = 2e-5) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


# --- activations ---------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gelu_is_right_in_all_its_forms(dtype: str) -> None:
    x, bias = normal(2, 3, 8).astype(dtype), normal(8).astype(dtype)
    wide, summed = x.astype(np.float64), x.astype(np.float64) + bias
    tolerance = 2e-3 if dtype == "float16" else 2e-6
    close(run("Gelu", [x])[0], gelu(wide), tolerance)
    close(run("BiasGelu", [x, bias])[0], gelu(summed), tolerance)
    close(run("FastGelu", [x])[0], gelu_tanh(wide), tolerance)
    close(run("FastGelu", [x, bias])[0], gelu_tanh(summed), tolerance)
    close(run("QuickGelu", [x], alpha=1.5)[0], wide / (1 + np.exp(-1.5 * wide)), tolerance)


def test_a_bias_of_another_length_is_refused() -> None:
    with pytest.raises(AssertionError, match="input 1: expected 8 numbers"):
        run("BiasGelu", [normal(2, 8), normal(7)])


# --- normalised sums -----------------------------------------------------------------------------


def layer(x: Array, gamma: Array, beta: Array | float = 0.0, epsilon: float = 1e-5) -> Array:
    x = x.astype(np.float64)
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta)


def rms(x: Array, gamma: Array, epsilon: float = 1e-5) -> Array:
    x = x.astype(np.float64)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gamma)


@pytest.mark.parametrize("skip", [(2, 3, 8), (3, 8), (1, 3, 8)])
def test_skip_layer_normalization_normalises_the_sum(skip: tuple[int, ...]) -> None:
    x, s, gamma, beta, bias = normal(2, 3, 8), normal(*skip, seed=1), normal(8), normal(8, seed=2), normal(8, seed=3)
    got = run("SkipLayerNormalization", [x, s, gamma, beta, bias], outputs=4, epsilon=1e-3)
    total = x + s + bias
    close(got[0], layer(total, gamma, beta, 1e-3))
    close(got[1], total.mean(-1, keepdims=True))
    close(got[2], 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-3))
    close(got[3], total)
    close(run("SkipLayerNormalization", [x, s, gamma])[0], layer(x + s, gamma))


def test_a_sum_is_normalised_without_its_mean() -> None:
    x, s, gamma, bias = normal(2, 3, 8), normal(2, 3, 8, seed=1), normal(8), normal(8, seed=2)
    got = run("SkipSimplifiedLayerNormalization", [x, s, gamma, bias], outputs=4)
    close(got[0], rms(x + s + bias, gamma))
    close(got[3], x + s + bias)
    for domain in ("", ORT):
        close(run("SimplifiedLayerNormalization", [x, gamma], domain=domain, epsilon=1e-5)[0], rms(x, gamma))


def test_normalised_sums_of_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError, match="inputs 0 and 1: expected one shape"):
        run("SkipLayerNormalization", [normal(2, 3, 8), normal(2, 8), normal(8)])
    with pytest.raises(AssertionError, match="input 2: expected 8 numbers"):
        run("SkipLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(7)])


@pytest.mark.parametrize("segmented", [True, False])
def test_embeddings_are_summed_and_normalised(segmented: bool) -> None:
    words, segments = np.array([[1, 4, 0], [2, 2, 3]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32)
    tables = [normal(5, 8), normal(6, 8, seed=1), normal(2, 8, seed=2)]
    gamma, beta, mask = normal(8), normal(8, seed=3), np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    places = None if segmented else np.array([[2, 0, 1]], np.int32)
    total = tables[0][words] + tables[1][np.arange(3) if places is None else places]
    total = total + tables[2][segments] if segmented else total
    inputs = [words, segments if segmented else None, *tables[:2], tables[2] if segmented else None, gamma, beta]
    got = run("EmbedLayerNormalization", [*inputs, mask, places], outputs=3, epsilon=1e-5)
    close(got[0], layer(total, gamma, beta))
    np.testing.assert_array_equal(got[1], [2, 3])
    close(got[2], total)


def test_a_word_outside_the_table_fails() -> None:
    tables = [normal(5, 8), normal(6, 8), None]
    with pytest.raises(AssertionError):
        run("EmbedLayerNormalization", [np.array([[5]], np.int32), None, *tables, normal(8), normal(8)])


# --- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_fused_matmul_multiplies_transposed_matrices(left: bool, right: bool) -> None:
    a, b = normal(2, 3, 4), normal(2, 4, 5)
    inputs: list[Array | None] = [a.swapaxes(1, 2).copy() if left else a, b.swapaxes(1, 2).copy() if right else b]
    close(run("FusedMatMul", inputs, alpha=0.5, transA=int(left), transB=int(right))[0], 0.5 * a @ b)


@pytest.mark.parametrize(("name", "numbers", "function"), [
    ("", [], lambda x: x),
    ("Relu", [], lambda x: np.maximum(x, 0)),
    ("Tanh", [], np.tanh),
    ("Sigmoid", [], lambda x: 1 / (1 + np.exp(-x))),
    ("LeakyRelu", [0.3], lambda x: np.where(x < 0, 0.3 * x, x)),
    ("Clip", [-0.5, 1.5], lambda x: np.clip(x, -0.5, 1.5)),
    ("HardSigmoid", [0.3, 0.4], lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
])  # fmt: skip
def test_fused_convolution_applies_the_activation_that_follows(
    name: str, numbers: list[float], function: Callable[[Array], Array]
) -> None:
    x, w, bias, add = normal(2, 3, 40), normal(4, 3, 1), normal(4), normal(2, 4, 40)
    more: dict[str, Any] = ({"activation": name} if name else {}) | ({"activation_params": numbers} if numbers else {})
    plain = np.einsum("fck,bcl->bfl", w, x) + bias[:, None]
    close(run("FusedConv", [x, w, bias], **more)[0], function(plain))
    close(run("FusedConv", [x, w, bias, add], **more)[0], function(plain + add))


# --- rotary embeddings ---------------------------------------------------------------------------


def turn(x: Array, cosine: Array, sine: Array, interleaved: bool) -> Array:
    """Rotate the pairs of x [batch, head, row, size] by tables of cosines and sines with one row for each row of x."""
    half, out = cosine.shape[-1], x.copy()
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    out[..., a] = x[..., a] * cosine - x[..., b] * sine
    out[..., b] = x[..., a] * sine + x[..., b] * cosine
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [8, 12])
def test_rotary_embedding_rotates_rows_by_their_positions(interleaved: bool, size: int) -> None:
    x, cosine, sine = normal(2, 3, 5, size), normal(10, 4), normal(10, 4, seed=1)
    places = np.random.default_rng(1).integers(0, 10, (2, 5))
    expected = turn(x, cosine[places][:, None], sine[places][:, None], interleaved)
    more = {"interleaved": int(interleaved)} | ({} if size == 8 else {"rotary_embedding_dim": 8})
    close(run("RotaryEmbedding", [x, cosine, sine, places], domain="", opset=23, **more)[0], expected)
    heads = {} if size == 8 else {"num_heads": 3}
    close(run("RotaryEmbedding", [x, places, cosine, sine], **more, **heads)[0], expected)
    flat = x.swapaxes(1, 2).reshape(2, 5, -1)
    (got,) = run("RotaryEmbedding", [flat, cosine[places], sine[places]], domain="", opset=23, num_heads=3, **more)
    close(got, expected.swapaxes(1, 2).reshape(2, 5, -1))


def test_rotary_embedding_counts_positions_from_the_first_position() -> None:
    x, cosine, sine = normal(2, 5, 24), normal(10, 4), normal(10, 4, seed=1)
    (got,) = run("RotaryEmbedding", [x, np.array([3]), cosine, sine])
    heads = turn(x.reshape(2, 5, 3, 8).swapaxes(1, 2), cosine[3:8], sine[3:8], False)
    close(got, heads.swapaxes(1, 2).reshape(2, 5, 24))
    with pytest.raises(AssertionError):
        run("RotaryEmbedding", [x, np.array([6]), cosine, sine])


# --- attention -----------------------------------------------------------------------------------


def split(x: Array, heads: int) -> Array:
    return np.asarray(x.reshape(x.shape[0], x.shape[1], heads, -1).swapaxes(1, 2))


def attend(q: Array, k: Array, v: Array, bias: Array | float = 0.0, cap: float = 0.0) -> Array:
    """Return attention as [batch, query, heads * size]; there may be fewer heads of keys than of queries."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True) @ v
    return np.asarray(out.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1))


def causal(queries: int, past: int) -> Array:
    return np.where(np.arange(past + queries) <= np.arange(queries)[:, None] + past, 0.0, -1e9)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_projects_its_rows(unidirectional: int) -> None:
    x, w, b, past = normal(2, 3, 8), normal(8, 24), normal(24), normal(2, 2, 2, 5, 4)
    q, k, v = (split(part, 2) for part in np.split(x @ w + b, 3, -1))
    mask = causal(3, 0) if unidirectional else 0.0
    close(run("Attention", [x, w, b], num_heads=2, unidirectional=unidirectional)[0], attend(q, k, v, mask))
    got = run("Attention", [x, w, b, None, past], outputs=2, num_heads=2, unidirectional=unidirectional)
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    close(got[1], np.stack([keys, values]))
    close(got[0], attend(q, keys, values, causal(3, 5) if unidirectional else 0.0))


def test_attention_with_values_of_another_size() -> None:
    x, w, b = normal(2, 3, 8), normal(8, 28), normal(28)
    q, k, v = (split(part, 2) for part in np.split(x @ w + b, [8, 16], -1))
    (got,) = run("Attention", [x, w, b], num_heads=2, qkv_hidden_sizes=[8, 8, 12])
    close(got, attend(q, k, v))


PADDING: dict[str, tuple[Array, Array]] = {
    "lengths": (np.array([2, 3]), np.array([[1, 1, 0], [1, 1, 1]])[:, None, None]),
    "keys": (np.array([[0, 1, 1], [1, 0, 1]]), np.array([[0, 1, 1], [1, 0, 1]])[:, None, None]),
    "pairs": (np.tril(np.ones((2, 3, 3), int)), np.tril(np.ones((2, 1, 3, 3), int))),
}


@pytest.mark.parametrize("form", PADDING)
def test_attention_padding_is_accepted_in_all_its_forms(form: str) -> None:
    x, w, b, add = normal(2, 3, 8), normal(8, 24), normal(24), normal(1, 2, 3, 3)
    mask, seen = PADDING[form]
    q, k, v = (split(part, 2) for part in np.split(x @ w + b, 3, -1))
    bias = np.where(seen != 0, 0.0, -10000.0)
    close(run("Attention", [x, w, b, mask.astype(np.int32)], num_heads=2)[0], attend(q, k, v, bias))
    (got,) = run("Attention", [x, w, b, mask.astype(np.int32), None, add], num_heads=2)
    close(got, attend(q, k, v, bias + add))


def test_multi_head_attention_takes_three_tensors() -> None:
    q, k, v, bias = normal(2, 3, 8), normal(2, 5, 8, seed=1), normal(2, 5, 12), normal(28)
    close(run("MultiHeadAttention", [q, k, v], num_heads=2)[0], attend(split(q, 2), split(k, 2), split(v, 2)))
    parts = [split(x + b, 2) for x, b in zip((q, k, v), np.split(bias, [8, 16]), strict=True)]
    close(run("MultiHeadAttention", [q, k, v, bias], num_heads=2)[0], attend(*parts))
    keys, values = split(k, 2), split(v, 2)
    close(run("MultiHeadAttention", [q, keys, values], num_heads=2)[0], attend(split(q, 2), keys, values))


def test_multi_head_attention_takes_packed_tensors() -> None:
    packed, pair, q = normal(2, 3, 2, 3, 4), normal(2, 5, 2, 2, 4), normal(2, 3, 8)
    parts = [packed[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    close(run("MultiHeadAttention", [packed], num_heads=2)[0], attend(*parts))
    keys, values = (pair[:, :, :, i].swapaxes(1, 2) for i in range(2))
    close(run("MultiHeadAttention", [q, pair], num_heads=2)[0], attend(split(q, 2), keys, values))


def test_multi_head_attention_takes_past_keys_and_values() -> None:
    q, k, v, add = normal(2, 3, 8), normal(2, 3, 8, seed=1), normal(2, 3, 8, seed=2), normal(2, 1, 3, 7)
    past_k, past_v = normal(2, 2, 4, 4), normal(2, 2, 4, 4, seed=1)
    inputs = [q, k, v, None, None, add, past_k, past_v]
    got = run("MultiHeadAttention", inputs, outputs=3, num_heads=2, unidirectional=1)
    keys, values = np.concatenate([past_k, split(k, 2)], 2), np.concatenate([past_v, split(v, 2)], 2)
    close(got[1], keys)
    close(got[2], values)
    close(got[0], attend(split(q, 2), keys, values, causal(3, 4) + add))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention_groups_share_a_cache(turned: bool, packed: bool) -> None:
    """The batch has two sequences, one of which has fewer rows in its cache."""
    q, k, v = normal(2, 1, 32), normal(2, 1, 16), normal(2, 1, 16, seed=1)
    past_k, past_v = normal(2, 2, 6, 8), normal(2, 2, 6, 8, seed=1)
    cosine, sine = normal(9, 4), normal(9, 4, seed=1)
    before = np.array([5, 3], np.int32)
    three = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs = [*three, past_k, past_v, before, np.array(6, np.int32), *([cosine, sine] if turned else [])]
    got = run("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, do_rotary=int(turned), softcap=2.0)
    for batch, rows in enumerate(before):
        new = [split(x[batch : batch + 1], n) for x, n in ((q, 4), (k, 2), (v, 2))]
        if turned:
            new[:2] = [turn(x, cosine[rows : rows + 1], sine[rows : rows + 1], False) for x in new[:2]]
        keys = np.concatenate([past_k[batch : batch + 1, :, :rows], new[1]], 2)
        values = np.concatenate([past_v[batch : batch + 1, :, :rows], new[2]], 2)
        close(got[0][batch : batch + 1], attend(new[0], keys, values, cap=2.0))
        close(got[1][batch : batch + 1, :, : rows + 1], keys)
        close(got[2][batch : batch + 1, :, : rows + 1], values)


def test_group_query_attention_works_without_a_cache() -> None:
    q, k, v = normal(2, 4, 32), normal(2, 4, 16), normal(2, 4, 16, seed=1)
    ends = [np.array([3, 3], np.int32), np.array(4, np.int32)]
    inputs = [q, k, v, None, None, *ends]
    got = run("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, local_window_size=2)
    gap = np.arange(4)[:, None] - np.arange(4)
    bias = np.where((gap >= 0) & (gap < 2), 0.0, -1e9)
    close(got[0], attend(split(q, 4), split(k, 2), split(v, 2), bias))
    close(got[1], split(k, 2))


@pytest.mark.parametrize(("kind", "attributes", "message"), [
    ("GroupQueryAttention", {"num_heads": 4}, "attribute kv_num_heads"),
    ("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}, "attribute smooth_softmax"),
    ("MultiHeadAttention", {}, "attribute num_heads"),
    ("Attention", {"num_heads": 2, "do_rotary": 1}, "attribute do_rotary"),
    ("FusedMatMul", {"transBatchA": 1}, "transBatchA"),
    ("FusedConv", {"activation": "Softplus"}, "activation: Softplus"),
])  # fmt: skip
def test_fused_operator_with_a_missing_or_unsupported_attribute_is_refused_at_load(
    kind: str, attributes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b = Builder(17)
    b.add(kind, b.input("x", "float32", [1]), b.input("w", "float32", [1]), outputs=["y"], domain=ORT, **attributes)
    b.output("y")
    with pytest.raises(AssertionError, match=rf"\({kind}\).*{message}"):
        SimModel(b.to_bytes())
