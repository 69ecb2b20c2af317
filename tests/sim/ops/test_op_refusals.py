"""Models that operators refuse, because of unknown attributes, missing inputs, types and shapes that do not match,
or too much work.
"""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import SimModel

import acl
from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]
SOURCES = Path(__file__).resolve().parents[3] / "acl/sim"
X = np.arange(6, dtype=np.float32).reshape(2, 3)

pytestmark = pytest.mark.usefixtures("device")


def model_of(kind: str, inputs: list[Array | None], opset: int = 18, outputs: int = 1, **attributes: Any) -> bytes:
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    return b.to_bytes()


def run(kind: str, inputs: list[Array | None], opset: int = 18, outputs: int = 1, **attributes: Any) -> list[Array]:
    with SimModel(model_of(kind, inputs, opset, outputs, **attributes)) as model:
        return model(*[x for x in inputs if x is not None])


def refused(
    words: str, kind: str, inputs: list[Array | None], *, opset: int = 18, outputs: int = 1, **attributes: Any
) -> None:
    with pytest.raises(AssertionError, match=words):
        run(kind, inputs, opset, outputs, **attributes)


def forms() -> list[tuple[str, str, str]]:
    """Return the rows of the table of attributes: name, domain, list of attributes."""
    text = (SOURCES / "ops/opform.c").read_text()
    table = text[text.index("forms[] = {") : text.index("static int form_compare")]
    found = re.findall(r'\{"(\w+)", (OP_\w+),\s*((?:"[^"]*"\s*)+),', table)
    return [(name, domain, "".join(re.findall(r'"([^"]*)"', words))) for name, domain, words in found]


# --- attributes ------------------------------------------------------------------------------------


def test_table_of_operator_attributes_is_sorted() -> None:
    """The table must be sorted because it is searched by bisection."""
    order = {"OP_ONNX": 1, "OP_ACL": 2, "OP_ORT": 4}
    keys = [(name, order[domain]) for name, domain, _ in forms()]
    assert len(keys) > 180
    assert keys == sorted(set(keys))


def test_operator_attributes_that_are_read_are_in_the_table() -> None:
    known = {item.split(":")[0] for _, _, words in forms() for item in words.split()}
    pattern = re.compile(r'(?:attr_(?:int|float|string|find)|op_ints|list_read)\(\s*(?:call|w)?,?\s*"(\w+)"')
    read = {name for path in SOURCES.glob("*/op_*.c") for name in pattern.findall(path.read_text())}
    assert len(read) > 80
    # The rest are inputs: op_ints gets their names for its messages, or for attributes that became inputs.
    assert read - known <= {"image_shape", "block_shape", "stride", "sizes", "steps", "storage_offset"}


@pytest.mark.parametrize(
    ("kind", "attributes", "words"),
    [
        ("Relu", {"slope": 0.5}, "attribute slope: Relu has no such attribute, and no other"),
        ("Softmax", {"axes": [1]}, "attribute axes: Softmax has no such attribute; it has axis:i"),
        ("LeakyRelu", {"alpha": "0.5"}, "attribute alpha: expected a number"),
        ("Transpose", {"perm": 0.5}, "attribute perm: expected a list of integers"),
        ("BatchNormalization", {"spatial": 0}, "attribute spatial: only 1 is supported, got 0"),
    ],
)
def test_unknown_attribute_of_a_node_is_refused(kind: str, attributes: dict[str, Any], words: str) -> None:
    one = np.ones(3, np.float32)
    refused(words, kind, [X, one, one, one, one] if kind == "BatchNormalization" else [X], **attributes)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Relu", {"base": 2.0}),
        ("Sigmoid", {"scale": 2.0}),
        ("SoftmaxV2", {"half_to_float": True}),
        ("Round", {"decimals": 2}),
    ],
)
def test_unknown_attribute_of_a_single_operator_is_refused(kind: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(acl.AclError, match=f"attribute {next(iter(attributes))}"):
        acl.Op(kind, **attributes)(X)


def test_attribute_with_its_only_value_and_private_ones_are_accepted() -> None:
    (got,) = acl.Op("Round", decimals=0, _note="x")(X + np.float32(0.25))
    np.testing.assert_array_equal(got.numpy(), X)


def single(kind: str, **attributes: Any) -> Array:
    return acl.Op(kind, **attributes)(X)[0].numpy()


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("HardSigmoid", {}, np.clip(X * 0.16666666 + 0.5, 0, 1)),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.1}, np.clip(X * 0.5 + 0.1, 0, 1)),
        ("Exp", {}, np.exp(X)),
        ("Exp", {"base": 2.0}, 2.0**X),
        ("Exp", {"base": 2.0, "scale": 0.5, "shift": 1.0}, 2.0 ** (0.5 * X + 1)),
        ("Exp", {"scale": -1.0, "shift": 0.5}, np.exp(0.5 - X)),
        ("Log", {"shift": 1.0}, np.log(X + 1)),
        ("Log", {"base": 10.0, "scale": 2.0, "shift": 3.0}, np.log10(2 * X + 3)),
        ("Elu", {"scale": 2.0}, 2 * X),
    ],
)
def test_single_operator_has_its_own_defaults_and_attributes(
    kind: str, attributes: dict[str, Any], expected: Array
) -> None:
    np.testing.assert_allclose(single(kind, **attributes), expected, rtol=2e-6, atol=1e-7)


def test_elu_scales_its_input_and_its_output() -> None:
    got = acl.Op("Elu", alpha=0.5, scale=2.0, input_scale=3.0)(-X)[0].numpy()
    np.testing.assert_allclose(got, 2 * 0.5 * np.expm1(-3 * X), rtol=2e-6)


# --- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Max", "Min", "Sum", "Mean", "Concat"])
def test_input_left_out_among_many_is_refused(kind: str) -> None:
    refused("input 1 was left out", kind, [X, None, X], **({"axis": 0} if kind == "Concat" else {}))


def test_input_left_out_of_an_einsum_is_refused() -> None:
    refused("input 1 was left out", "Einsum", [X, None, X], equation="ij,ij,ij->i")


@pytest.mark.parametrize("kind", ["Pack", "ConcatD", "AddN", "Max"])
def test_last_input_left_out_of_a_single_operator_is_refused(kind: str, raw_stream: int) -> None:
    """A description without a type is how callers leave out an optional input."""
    memory = out()
    assert api.aclrtMalloc(ctypes.byref(memory), 4096, 0) == 0
    dims = (ctypes.c_int64 * 2)(2, 3)
    descs = (ctypes.c_void_p * 2)(api.aclCreateTensorDesc(0, 2, dims, 2), api.aclCreateTensorDesc(-1, 0, None, -1))
    buffers = (ctypes.c_void_p * 2)(api.aclCreateDataBuffer(memory, 24), api.aclCreateDataBuffer(None, 0))
    made = (ctypes.c_void_p * 1)(api.aclCreateTensorDesc(0, 2, dims, 2))
    results = (ctypes.c_void_p * 1)(api.aclCreateDataBuffer(memory, 4096))
    status = api.aclopExecuteV2(kind.encode(), 2, descs, buffers, 1, made, results, None, raw_stream)
    assert status == 100021
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    for desc in (*descs, *made):
        api.aclDestroyTensorDesc(desc)
    for buffer in (*buffers, *results):
        api.aclDestroyDataBuffer(buffer)
    assert api.aclrtFree(memory) == 0


EMPTY = np.zeros(0, np.int64)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("CumSum", [X, EMPTY]),
        ("OneHot", [np.array([0]), EMPTY, X[0, :2]]),
        ("Trilu", [X, EMPTY]),
        ("TopK", [X, EMPTY]),
        ("Clip", [X, np.zeros(0, np.float32)]),
        ("Range", [EMPTY, EMPTY, EMPTY]),
    ],
)
def test_empty_tensor_where_one_value_is_expected_is_refused(kind: str, inputs: list[Array | None]) -> None:
    refused(r"expected one value, got shape \[0\]", kind, inputs, outputs=2 if kind == "TopK" else 1)


@pytest.mark.parametrize("kind", ["Cumsum", "ArgMaxV2", "TopKV2"])
def test_empty_axis_of_a_single_operator_is_refused(kind: str) -> None:
    with pytest.raises(acl.AclError, match=r"expected one value, got shape \[0\]"):
        acl.Op(kind)(X, EMPTY)


@pytest.mark.parametrize("dtype", [13, 40, 0])
def test_tensor_type_without_a_size_is_refused(dtype: int) -> None:
    with pytest.raises(acl.AclError, match="attribute dtype"):
        acl.Op("ArgMaxV2", dtype=dtype)(X, np.array(1, np.int32))


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_recurrent_weights_of_another_type_are_refused(kind: str, gates: int, place: int) -> None:
    inputs: list[Array | None] = [
        np.zeros((2, 3, 4), np.float32),
        np.zeros((1, gates * 5, 4), np.float32),
        np.zeros((1, gates * 5, 5), np.float32),
        np.zeros((1, gates * 10), np.float32),
    ]
    weights = inputs[place]
    assert weights is not None
    inputs[place] = weights.astype(np.uint8)
    refused(f"input {place}: expected float32 like input 0, got uint8", kind, inputs, hidden_size=5)


def test_recurrent_size_and_direction_must_fit_the_weights() -> None:
    inputs: list[Array | None] = [np.zeros(shape, np.float32) for shape in ((2, 3, 4), (1, 5, 4), (1, 5, 5))]
    refused("hidden_size is 6, the weights are for 5", "RNN", inputs, hidden_size=6)
    refused("attribute direction: sideways", "RNN", inputs, direction="sideways")


def test_attention_keys_of_another_type_are_refused() -> None:
    q = np.zeros((1, 1, 4, 8), np.float32)
    refused(
        "input 1: expected float32 like input 0, got float16",
        "Attention",
        [q, q.astype(np.float16), q],
        opset=23,
        outputs=3,
    )


@pytest.mark.parametrize(
    ("pads", "mode", "words"),
    [
        ([5, 0], "rx", "attribute mode: rx"),
        ([2, 0], "reflect", "do not fit"),
        ([-1, 1], "reflect", "do not fit"),
        ([-2, 1], "edge", "do not fit"),
        ([-3, 0], "constant", "do not fit"),
        ([2**62, 2**62], "constant", "do not fit"),
    ],
)
def test_pads_that_do_not_fit_are_refused(pads: list[int], mode: str, words: str) -> None:
    refused(words, "Pad", [np.ones(2, np.float32), np.array(pads)], mode=mode)


@pytest.mark.parametrize(
    ("pads", "mode", "expected"),
    [
        ([-2, 3], "edge", [3, 4, 5, 5, 5, 5]),
        ([-2, 2], "reflect", [3, 4, 5, 4, 3]),
        ([4, -1], "wrap", [1, 2, 3, 4, 1, 2, 3, 4]),
        ([-1, 7], "wrap", [2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4]),
        ([2, -4], "edge", [1, 1, 1]),
        ([-2, 1], "constant", [3, 4, 5, 0]),
    ],
)
def test_negative_pads_are_applied_before_positive_pads(pads: list[int], mode: str, expected: list[int]) -> None:
    x = np.arange(1, 6, dtype=np.float32)
    np.testing.assert_array_equal(run("Pad", [x, np.array(pads)], 19, mode=mode)[0], expected)


# --- operators that would run too long -------------------------------------------------------------


def test_large_kernel_over_a_small_picture_does_not_exceed_the_work_limit() -> None:
    x = np.full((1, 1, 4, 4), 2, np.float32)
    got = run("LpPool", [x], kernel_shape=[2**20, 2**20], pads=[2**19] * 4, strides=[2**20, 2**20])[0]
    np.testing.assert_allclose(got, np.full_like(got, 8))
    refused("expected at most 1048576", "LpPool", [x], kernel_shape=[2**40, 2], auto_pad="SAME_UPPER")


def test_samples_beyond_the_work_limit_are_refused() -> None:
    x, rois = np.zeros((1, 1, 8, 8), np.float32), np.array([[0, 0, 7, 7]], np.float32)
    refused("work limit", "RoiAlign", [x, rois, np.array([0])], sampling_ratio=2**40)


def test_abort_interrupts_a_long_operator() -> None:
    """If this operator did not check its stream for an abort, it would run for an hour."""
    x, rois, stream = np.zeros((1, 1, 8, 8), np.float32), np.zeros((40, 4), np.float32), out()
    inputs: list[Array | None] = [x, rois, np.zeros(40, np.int64)]
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    with SimModel(model_of("RoiAlign", inputs, sampling_ratio=2**17)) as model:
        call = model.queue(stream.value, [x for x in inputs if x is not None], [4096])
        assert api.aclrtSynchronizeStreamWithTimeout(stream, 200) != 0, "it is done already"
        assert api.aclrtStreamAbort(stream) == 0
        done = threading.Event()

        def wait() -> None:
            api.aclrtSynchronizeStream(stream)
            done.set()

        threading.Thread(target=wait, daemon=True).start()
        assert done.wait(60), "the operator still runs a minute after the abort"
        assert api.aclrtDestroyStream(stream) == 0
        call.close()


def endless_loop() -> bytes:
    body, b = Builder(17), Builder(17)
    body.input("turn", "int64", [])
    more, x = body.input("more", "bool", []), body.input("x", "float32", [2])
    for name in (body.add("Identity", more, outputs=["again"]), body.add("Neg", x, outputs=["next"])):
        body.output(str(name))
    b.add("Loop", "", b.constant(np.array(True)), b.input("start", "float32", [2]), outputs=["y"], body=body)
    b.output("y")
    return b.to_bytes()


def test_loop_without_end_stops_at_the_work_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_LOOP_TURNS", "500")
    with SimModel(endless_loop()) as model, pytest.raises(AssertionError, match="ran 500 turns, which is the work"):
        model(np.ones(2, np.float32))


def test_lists_of_windows_have_a_number_for_each_dimension() -> None:
    x, w = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 3, 3), np.float32)
    refused("pads: expected 4 integers, got 6", "MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1, 1, 1])
    refused("pads: expected 4 integers, got 2", "MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1])
    refused("strides: expected 2 integers, got 3", "AveragePool", [x], kernel_shape=[3, 3], strides=[1, 1, 1])
    refused("dilations: expected 2 integers, got 4", "Conv", [x, w], dilations=[1, 1, 1, 1])
    refused("output_shape: expected 2 integers, got 4", "ConvTranspose", [x, w], output_shape=[1, 1, 7, 7])


def test_sizes_that_overflow_are_refused() -> None:
    x = np.ones((3, 2), np.float32)
    sizes = [2**62] * 3 + [2**62 + 3]
    refused("split: size 0 is 4611686018427387904", "Split", [x, np.array(sizes)], outputs=4, axis=0)
    refused("split: size 0 is -1", "Split", [x, np.array([-1, 4])], outputs=2, axis=0)
    refused("would have the shape", "Expand", [np.ones((1, 1), np.float32), np.array([0, 2**63 - 1])])


@pytest.mark.parametrize("chain", [True, False])
def test_small_model_of_huge_constants_is_refused(chain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b = Builder(17)
    if chain:
        x = b.constant(np.zeros(1 << 16, np.float32))
        for i in range(14):
            x = b.add("Concat", x, x, outputs=[f"c{i}"], axis=0)
        b.add("Identity", x, outputs=["y"])
    else:
        b.add("ConstantOfShape", b.constant(np.array([2**31])), outputs=["y"])
    b.output("y")
    with pytest.raises(AssertionError, match="a constant may have"), SimModel(b.to_bytes()):
        pass


# --- numbers that are not integers -----------------------------------------------------------------


def test_axes_that_are_not_integers_are_refused() -> None:
    refused("expected a vector of at most .* integers, got float", "ReduceSum", [X, np.array([1e30], np.float32)])


@pytest.mark.parametrize("count", [1e30, -1e30, np.nan])
def test_a_count_that_no_integer_holds_is_refused(count: float) -> None:
    refused("does not fit shape", "TopK", [X, np.array([count], np.float32)], outputs=2)


@pytest.mark.parametrize("start", [5, 1 << 62, -(1 << 62)])
def test_start_of_the_shape_operator_is_clamped_to_the_dimensions(start: int) -> None:
    kept = X.shape if start < 0 else ()
    np.testing.assert_array_equal(run("Shape", [X], opset=15, start=start)[0], np.array(kept, np.int64))


# --- work that the attributes or shapes alone make endless ------------------------------------------


def test_a_transform_of_a_long_prime_is_beyond_the_work_limit() -> None:
    """The work of a transform of prime length grows with the square of the length; 2**20 - 3 is prime."""
    line = np.ones((1, 4, 1), np.float32)
    assert run("DFT", [line, np.array(1 << 10)], opset=20)[0].shape == (1, 1 << 10, 2)
    refused("work limit", "DFT", [line, np.array((1 << 20) - 3)], opset=20)


def test_a_transform_that_is_folded_takes_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b = Builder(20)
    b.add("DFT", b.constant(np.ones((1, 4, 1), np.float32)), b.constant(np.array(65537)), outputs=["y"])
    b.output("y")
    with pytest.raises(AssertionError, match="work limit"):
        SimModel(b.to_bytes())
