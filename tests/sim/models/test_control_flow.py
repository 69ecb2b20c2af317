"""If, Loop, Scan, sequences and functions: right results, and every tensor from the stream's allocator."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from support.calls import api
from support.control_models import appending, branching, power_loop, scalar
from support.models import CountingAllocator, SimModel

from acl.tools.onnx_writer import Builder, Reference

pytestmark = pytest.mark.usefixtures("device")


def padded(size: int) -> int:
    return (size + 31) // 32 * 32 + 32


# --- If --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [True, False])
def test_if_runs_one_branch(flag: bool) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    with SimModel(branching().to_bytes()) as model:
        got = model(np.array(flag), x)[0]
    expected = np.maximum(x, 0) * 2 if flag else np.tanh(-np.maximum(x, 0))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_only_the_branch_that_runs_takes_memory(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    x = np.ones((3, 4), np.float32)
    with SimModel(branching().to_bytes()) as model:
        for flag, tensors in ((True, 2), (False, 3)):
            before = len(allocator.sizes)
            call = model.queue(raw_stream, [np.array(flag), x], [x.nbytes])
            assert api.aclrtSynchronizeStream(raw_stream) == 0
            assert allocator.sizes[before:] == [padded(x.nbytes)] * tensors
            assert not allocator.live
            call.close()
    allocator.close()


def test_if_on_the_result_of_a_kernel_waits_for_the_kernel() -> None:
    b = Builder()
    x = b.input("x", "float32", ["n"])
    total = b.add("ReduceSum", x, keepdims=0)
    flag = b.add("Greater", total, b.constant(scalar(0, "float32")))
    yes, no = Builder(), Builder()
    yes.add("Identity", x, outputs=["a"])
    yes.output("a")
    no.add("Neg", x, outputs=["b"])
    no.output("b")
    b.add("If", flag, outputs=["y"], then_branch=yes, else_branch=no)
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        for values in ([1, 2, -5], [4, -1, 1]):
            given = np.array(values, np.float32)
            np.testing.assert_array_equal(model(given)[0], given if given.sum() > 0 else -given)


def test_nested_if_sees_the_values_of_both_outer_graphs() -> None:
    b = Builder()
    outer, inner = b.input("outer", "bool", []), b.input("inner", "bool", [])
    x = b.input("x", "float32", ["n"])
    deep, other, yes, no = (Builder() for _ in range(4))
    middle = yes.add("Add", x, x, outputs=["middle"])
    deep.add("Mul", middle, x, outputs=["d"])
    deep.output("d")
    other.add("Sub", middle, x, outputs=["o"])
    other.output("o")
    yes.add("If", inner, outputs=["y"], then_branch=deep, else_branch=other)
    yes.output("y")
    no.add("Neg", x, outputs=["n"])
    no.output("n")
    b.add("If", outer, outputs=["z"], then_branch=yes, else_branch=no)
    b.output("z")
    given = np.array([1.5, -2.0], np.float32)
    with SimModel(b.to_bytes()) as model:
        for first, second, expected in (
            (True, True, 2 * given * given), (True, False, given), (False, True, -given),
        ):
            np.testing.assert_array_equal(model(np.array(first), np.array(second), given)[0], expected)


def test_shape_arithmetic_of_both_branches_stays_on_the_host(raw_stream: int) -> None:
    """A branch computes the shape for a Reshape, as in the files that torch.onnx exports for a squeeze."""
    b = Builder()
    x = b.input("x", "float32", ["n", "m"])
    first = b.add("Gather", b.add("Shape", x), b.constant(scalar(0)))
    yes, no = Builder(), Builder()
    yes.output(yes.constant(np.array([-1], np.int64), "flat"), "int64", [1])
    no.add("Shape", x, outputs=["same"])
    no.output("same", "int64", ["r"])
    shape = b.add("If", b.add("Equal", first, b.constant(scalar(1))), then_branch=yes, else_branch=no)
    shape = b.add("Mul", shape, b.constant(np.array([1], np.int64)))
    b.add("Neg", b.add("Reshape", x, shape), outputs=["y"])
    b.output("y")
    allocator = CountingAllocator(raw_stream)
    with SimModel(b.to_bytes()) as model:
        for given in (np.ones((1, 5), np.float32), np.ones((2, 5), np.float32)):
            call = model.queue(raw_stream, [given], [given.nbytes])
            assert api.aclrtSynchronizeStream(raw_stream) == 0
            np.testing.assert_array_equal(call.result(0), -given.ravel() if len(given) == 1 else -given)
            call.close()
    assert allocator.sizes == []
    allocator.close()


# --- Loop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trip", [0, 1, 5])
def test_loop_carries_values_and_collects_outputs(trip: int) -> None:
    x = np.array([0.5, -1.0, 2.0], np.float32)
    state, each = x, []
    for turn in range(trip):
        state = state * x + turn
        each.append(state)
    with SimModel(power_loop().to_bytes()) as model:
        last, collected = model(scalar(trip), x)
    np.testing.assert_allclose(last, state)
    if trip:
        np.testing.assert_allclose(collected, np.stack(each))
    else:
        assert collected.shape == (0, 0) and collected.dtype == np.float32


def test_loop_ends_when_its_condition_is_false() -> None:
    x, state, turns = np.full(4, 2, np.float32), np.full(4, 2, np.float32), 0
    while True:
        state, turns = state * x + turns, turns + 1
        if state.sum() >= 100:
            break
    with SimModel(power_loop(100.0).to_bytes()) as model:
        last, collected = model(scalar(1000), x)
    np.testing.assert_allclose(last, state)
    assert collected.shape == (turns, 4)


def test_blocks_of_a_loop_are_allocated_and_freed_by_the_registered_allocator(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    with SimModel(power_loop().to_bytes()) as model:
        call = model.queue(raw_stream, [scalar(6), x], [160, 960])
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert not allocator.live
        tensors = [size for size in allocator.sizes if size == padded(160)]
        assert len(tensors) == 12, "the product and the sum of each turn"
        state, each = x, []
        for turn in range(6):
            state = state * x + turn
            each.append(state)
        np.testing.assert_allclose(call.result(1), np.stack(each), rtol=1e-6)
        call.close()
    allocator.close()


def test_loop_iteration_without_memory_fails_the_run_and_the_next_run_frees_the_blocks(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    x = np.ones(3, np.float32)
    with SimModel(power_loop().to_bytes()) as model:
        model.queue(raw_stream, [scalar(4), x], [12, 48]).close()
        whole = len(allocator.sizes)
        for nth in range(whole):
            allocator.events.clear()
            allocator.fail_at = nth
            with pytest.raises(AssertionError, match="245000"):
                model.queue(raw_stream, [scalar(4), x], [12, 48])
        allocator.fail_at = -1
        allocator.events.clear()
        call = model.queue(raw_stream, [scalar(4), x], [12, 48])
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert len(allocator.sizes) == whole
        assert not allocator.live
        call.close()
    allocator.close()


def test_a_loop_of_shape_arithmetic_runs_on_the_host(raw_stream: int) -> None:
    """In each iteration Slice gets its bounds without waiting for the device, and they use no block."""
    b, body = Builder(), Builder()
    x = b.input("x", "float32", ["n", 2])
    rows = b.add("Gather", b.add("Shape", x), b.constant(scalar(0)))
    turn, go = body.input("turn", "int64", []), body.input("go", "bool", [])
    begin = body.add("Unsqueeze", turn, body.constant(np.array([0], np.int64)))
    end = body.add("Add", begin, body.constant(np.array([1], np.int64)))
    body.add("Identity", go, outputs=["again"])
    body.add("Neg", body.add("Slice", x, begin, end), outputs=["row"])
    body.output("again", "bool", [])
    body.output("row", "float32", [1, 2])
    b.add("Loop", rows, "", outputs=["rows"], body=body)
    b.output("rows")
    allocator = CountingAllocator(raw_stream)
    given = np.arange(10, dtype=np.float32).reshape(5, 2)
    with SimModel(b.to_bytes()) as model:
        call = model.queue(raw_stream, [given], [given.nbytes])
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        np.testing.assert_array_equal(call.result(0), -given[:, None])
        call.close()
    assert allocator.sizes == [padded(8)] * 10
    allocator.close()


def test_loop_state_that_moves_to_the_device_is_not_read_too_early(raw_stream: int) -> None:
    """The state begins as a constant; after an iteration it is on the device, so the host must not read it."""
    b, body = Builder(), Builder()
    x = b.input("x", "float32", ["n"])
    body.input("turn", "int64", [])
    go = body.input("go", "bool", [])
    state = body.input("state", "float32", None)
    body.add("Identity", go, outputs=["again"])
    body.add("Add", body.add("Add", state, state), x, outputs=["next"])
    body.output("again", "bool", [])
    body.output("next", "float32", None)
    b.add("Loop", b.constant(scalar(3)), "", b.constant(np.ones(1, np.float32)), outputs=["y"], body=body)
    b.output("y")
    gate = threading.Event()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20) and None)
    given = np.array([1, 2], np.float32)
    with SimModel(b.to_bytes()) as model:
        assert api.aclrtLaunchHostFunc(raw_stream, ctypes.cast(callback, ctypes.c_void_p), None) == 0
        call = model.queue(raw_stream, [given], [given.nbytes])
        gate.set()
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        np.testing.assert_array_equal(call.result(0), 8 + 7 * given)
        call.close()


def test_collected_outputs_of_changing_shape_are_refused() -> None:
    b, body = Builder(), Builder()
    x = b.input("x", "float32", ["n"])
    turn, go = body.input("turn", "int64", []), body.input("go", "bool", [])
    body.add("Identity", go, outputs=["again"])
    end = body.add("Unsqueeze", turn, body.constant(np.array([0], np.int64)))
    body.add("Slice", x, body.constant(np.array([0], np.int64)), end, outputs=["part"])
    body.output("again", "bool", [])
    body.output("part")
    b.add("Loop", b.constant(scalar(3)), "", outputs=["parts"], body=body)
    b.output("parts")
    with SimModel(b.to_bytes()) as model, pytest.raises(AssertionError, match=r"145021.*changes its shape"):
        model(np.ones(5, np.float32))


# --- Scan ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [0, 1])
def test_scan_over_the_first_axis(direction: int) -> None:
    b, body = Builder(), Builder()
    start = b.input("start", "float32", [2])
    x = b.input("x", "float32", ["n", 2])
    state, row = body.input("state", "float32", [2]), body.input("row", "float32", [2])
    total = body.add("Add", state, row, outputs=["total"])
    body.add("Mul", total, row, outputs=["each"])
    body.output("total")
    body.output("each")
    b.add(
        "Scan", start, x, outputs=["last", "all"], body=body, num_scan_inputs=1,
        scan_input_directions=[direction], scan_output_directions=[direction],
    )
    b.output("last")
    b.output("all")
    given = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    carried, each = np.array([1, 2], np.float32), []
    for values in given[::-1] if direction else given:
        carried = carried + values
        each.append(carried * values)
    with SimModel(b.to_bytes()) as model:
        last, collected = model(np.array([1, 2], np.float32), given)
    np.testing.assert_array_equal(last, carried)
    np.testing.assert_array_equal(collected, np.stack(each[::-1] if direction else each))


# --- refusals --------------------------------------------------------------------------------------


def test_a_body_that_does_not_fit_its_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b, body = Builder(), Builder()
    body.add("Neg", body.input("only", "float32", [1]), outputs=["y"])
    body.output("y")
    b.add("Loop", b.constant(scalar(3)), "", b.input("x", "float32", [1]), outputs=["z"], body=body)
    b.output("z")
    with pytest.raises(AssertionError, match=r"100013.*Loop.*do not fit it or its subgraphs"):
        SimModel(b.to_bytes())


def test_an_operator_that_is_missing_in_a_branch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    b, yes, no = Builder(), Builder(), Builder()
    x = b.input("x", "float32", [1])
    for body, kind in ((yes, "Neg"), (no, "Teleport")):
        body.add(kind, x, outputs=["y"])
        body.output("y")
    b.add("If", b.input("flag", "bool", []), outputs=["z"], then_branch=yes, else_branch=no)
    b.output("z")
    with pytest.raises(AssertionError, match=r"100013.*Teleport is not one of the built-in engine"):
        SimModel(b.to_bytes())


# --- sequences -------------------------------------------------------------------------------------


def test_loop_can_append_to_a_sequence(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    with SimModel(appending().to_bytes()) as model:
        call = model.queue(raw_stream, [given], [8, 12, 36, 48])
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert not allocator.live
        length, last, joined, stacked = (call.result(i) for i in range(4))
        call.close()
    assert length == 4
    np.testing.assert_array_equal(last, -given[-1])
    np.testing.assert_array_equal(joined, -given[1:].ravel())
    np.testing.assert_array_equal(stacked, -given.T)
    allocator.close()


@pytest.mark.parametrize(
    ("split", "attributes", "parts"),
    [
        (None, {"axis": 1}, [[0], [1], [2], [3], [4]]),
        (scalar(2), {"axis": -1}, [[0, 1], [2, 3], [4]]),
        (np.array([1, 4], np.int64), {"axis": 1, "keepdims": 0}, [[0], [1, 2, 3, 4]]),
        (None, {"axis": 1, "keepdims": 0}, [0, 1, 2, 3, 4]),
    ],
)
def test_split_to_sequence_returns_the_parts_of_a_tensor(
    split: np.ndarray | None, attributes: dict[str, int], parts: list[list[int]]
) -> None:
    b = Builder()
    x = b.input("x", "float32", ["n", "m"])
    made = b.add("SplitToSequence", x, *([] if split is None else [b.constant(split)]), **attributes)
    for i in range(len(parts)):
        b.add("SequenceAt", made, b.constant(scalar(i)), outputs=[f"y{i}"])
        b.output(f"y{i}")
    given = np.arange(10, dtype=np.float32).reshape(2, 5)
    with SimModel(b.to_bytes()) as model:
        for got, columns in zip(model(given), parts, strict=True):
            np.testing.assert_array_equal(got, given[:, columns])


def test_a_sequence_is_refused_where_a_tensor_was_expected() -> None:
    b = Builder()
    x = b.input("x", "float32", ["n"])
    made = b.add("Identity", b.add("SequenceConstruct", x, x))
    b.add("Neg", made, outputs=["y"])
    b.output("y")
    with SimModel(b.to_bytes()) as model, pytest.raises(AssertionError, match=r"145021.*Neg.*is a sequence"):
        model(np.ones(2, np.float32))


@pytest.mark.parametrize("position", [-3, 2])
def test_sequence_position_outside_its_length_is_an_error(position: int) -> None:
    b = Builder()
    x = b.input("x", "float32", ["n"])
    b.add("SequenceAt", b.add("SequenceConstruct", x, x), b.constant(scalar(position)), outputs=["y"])
    b.output("y")
    with SimModel(b.to_bytes()) as model, pytest.raises(AssertionError, match=r"145021.*outside the sequence"):
        model(np.ones(2, np.float32))


def test_sequence_without_memory_fails_the_run_and_the_next_run_frees_the_blocks(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    given = np.arange(12, dtype=np.float32).reshape(4, 3)
    sizes = [8, 12, 36, 48]
    with SimModel(appending().to_bytes()) as model:
        model.queue(raw_stream, [given], sizes).close()
        for nth in range(len(allocator.sizes)):
            allocator.events.clear()
            allocator.fail_at = nth
            with pytest.raises(AssertionError, match="245000"):
                model.queue(raw_stream, [given], sizes)
        allocator.fail_at = -1
        call = model.queue(raw_stream, [given], sizes)
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert not allocator.live
        call.close()
    allocator.close()


# --- functions of the model ------------------------------------------------------------------------


def test_model_function_is_replaced_by_its_nodes() -> None:
    """Functions may be nested, with attributes and an input that is left out; their inner names are local."""
    soft, norm, b = Builder(), Builder(), Builder()
    soft.add("Softmax", soft.input("x", "float32", None), axis=Reference("axis", 2), outputs=["t"])
    soft.add("Clip", "t", "", soft.input("most", "float32", None), outputs=["y"])
    soft.output("y")
    norm.add("Neg", norm.input("x", "float32", None), outputs=["t"])
    norm.add("Soft", "t", norm.input("most", "float32", None), domain="local", axis=Reference("axis", 2), outputs=["y"])
    norm.output("y")
    x = b.input("x", "float32", ["n", "m"])
    t = b.add("Norm", x, "", domain="local", axis=0, outputs=["t"])
    b.add("Norm", t, b.constant(scalar(0.25, "float32")), domain="local", axis=1, outputs=["y"])
    b.output("y")

    def softmax(v: np.ndarray, axis: int) -> np.ndarray:
        e = np.exp(v - v.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    given = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    expected = np.minimum(softmax(-softmax(-given, 0), 1), 0.25)
    with SimModel(b.to_bytes(functions={"Soft": soft, "Norm": norm})) as model:
        np.testing.assert_allclose(model(given)[0], expected, rtol=1e-5)


def test_a_function_that_uses_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    again, b = Builder(), Builder()
    again.add("Again", again.input("x", "float32", None), domain="local", outputs=["y"])
    again.output("y")
    b.add("Again", b.input("x", "float32", [1]), domain="local", outputs=["y"])
    b.output("y")
    data = b.to_bytes(functions={"Again": again})
    with pytest.raises(AssertionError, match=r"100013.*function Again: too deep"):
        SimModel(data)


def test_subgraph_in_a_model_function_sees_the_values_of_the_function() -> None:
    choose, b = Builder(), Builder()
    yes, no = Builder(), Builder()
    choose.input("flag", "bool", None)
    doubled = choose.add("Add", choose.input("x", "float32", None), "x", outputs=["doubled"])
    for body, kind in ((yes, "Identity"), (no, "Neg")):
        body.add(kind, doubled, outputs=["z"])
        body.output("z")
    choose.add("If", "flag", then_branch=yes, else_branch=no, outputs=["y"])
    choose.output("y")
    b.add("Choose", b.input("flag", "bool", []), b.input("x", "float32", ["n"]), domain="local", outputs=["y"])
    b.output("y")
    given = np.array([1, -2], np.float32)
    with SimModel(b.to_bytes(functions={"Choose": choose})) as model:
        np.testing.assert_array_equal(model(np.array(True), given)[0], 2 * given)
        np.testing.assert_array_equal(model(np.array(False), given)[0], -2 * given)
