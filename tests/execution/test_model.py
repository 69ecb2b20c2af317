"""acl.Model: correct results for any shapes and streams, memory from the pool, clear errors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.child import run_python
from support.models import CountingAllocator, transformer_encoder
from support.requests import ARCHITECTURES, assert_close, floats, small_model

import acl
from acl.pool._pinned import default_pool
from acl.tools.demo._watch import Tally, Watch
from acl.tools.numpy_ops import evaluate
from acl.tools.onnx_writer import Builder

DEVICE_CALLS = ("aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocPhysical", "aclrtMapMem", "aclrtReserveMemAddress")


@pytest.fixture
def pool() -> Iterator[acl.Pool]:
    with acl.Pool(0) as made:
        yield made
        assert made.check() == 0


@pytest.fixture
def pooled(pool: acl.Pool, stream: acl.Stream) -> Iterator[acl.Stream]:
    """Register the pool for the stream, and return the stream."""
    pool.register(stream)
    yield stream
    stream.synchronize()
    pool.unregister(stream)


@pytest.fixture
def model() -> Iterator[acl.Model]:
    with acl.Model(small_model().to_bytes()) as loaded:
        yield loaded


def right(x: np.ndarray) -> np.ndarray:
    """Return the correct result of `small_model`."""
    return np.maximum(x, 0) + 1


def random(seed: int) -> np.random.Generator:
    print("seed", seed)
    return np.random.default_rng(seed)


class Gate:
    """Stops a stream's work until `open` is called, but for 30 s at most."""

    def __init__(self, stream: acl.Stream) -> None:
        self.event = threading.Event()
        self.over = False
        stream.launch(self._hold)

    def _hold(self) -> None:
        self.event.wait(30)
        self.over = True

    def open(self) -> None:
        """Let the stream continue.  Check that no call has waited for it, which would have taken 30 s."""
        assert not self.over
        self.event.set()


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_model_architectures_give_right_results_for_any_shapes(sim, pool, name, streams):
    build, make = ARCHITECTURES[name]
    rng, built = random(21), build()
    sim.configure(latency="memory")
    lanes = [acl.Stream(0) for _ in range(streams)]
    for lane in lanes:
        pool.register(lane)
    with acl.Model(built.to_bytes()) as loaded:
        queued = []
        for i in range(24):
            inputs = make(rng)
            queued.append((inputs, loaded.run_async(inputs, lanes[i % streams])))
        for inputs, results in queued:
            assert_close([result.numpy() for result in results], evaluate(built, *inputs))
    for lane in lanes:
        lane.close()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_model_call_waits_and_returns_numpy_arrays(name):
    build, make = ARCHITECTURES[name]
    rng, built = random(22), build()
    with acl.Model(built.to_bytes()) as loaded:
        for _ in range(3):
            inputs = make(rng)
            assert_close(loaded(*inputs), evaluate(built, *inputs))


def test_threads_can_run_one_model_concurrently(pool):
    built = transformer_encoder()
    make = ARCHITECTURES["encoder"][1]
    failures: list[BaseException] = []

    def serve(loaded: acl.Model, seed: int) -> None:
        try:
            rng = random(seed)
            with acl.Stream(0) as mine:
                pool.register(mine)
                for _ in range(12):
                    inputs = make(rng)
                    assert_close(loaded(*inputs, stream=mine), evaluate(built, *inputs))
        except BaseException as error:
            failures.append(error)

    with acl.Model(built.to_bytes()) as loaded:
        threads = [threading.Thread(target=serve, args=(loaded, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    assert not failures, failures[0]


def test_threads_can_share_the_own_stream_of_a_model(model):
    failures: list[BaseException] = []

    def serve(value: int) -> None:
        try:
            for rows in range(1, 20):
                x = np.full((rows, 8), value, np.float32)
                np.testing.assert_array_equal(model(x)[0], right(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures, failures[0]


def test_output_array_can_be_the_input_of_the_next_run_on_the_device(pooled, model):
    x = floats(random(1), 5, 8)
    first = model.run_async([x], pooled)[0]
    second = model.run_async([first], pooled)[0]
    np.testing.assert_allclose(second.numpy(), right(right(x)), rtol=1e-6)


def test_input_arrays_may_be_changed_as_soon_as_run_async_returns(pooled, model):
    model(np.ones((3, 8), np.float32), stream=pooled)
    gate = Gate(pooled)
    x = np.ones((3, 8), np.float32)
    result = model.run_async([x], pooled)[0]
    x[:] = 7
    gate.open()
    np.testing.assert_array_equal(result.numpy(), np.full((3, 8), 2))


def test_model_inputs_may_be_given_by_name_by_position_or_as_a_dict(model):
    x = np.ones((2, 8), np.float32)
    for results in (model(x), model(x=x), model.run_async({"x": x}), model.run_async(x)):
        got = results[0] if isinstance(results[0], np.ndarray) else results[0].numpy()
        np.testing.assert_array_equal(got, np.full((2, 8), 2))


def test_model_inputs_may_be_lists_or_strided_arrays(model):
    x = floats(random(2), 8, 6).T
    np.testing.assert_allclose(model(x)[0], right(x), rtol=1e-6)
    np.testing.assert_array_equal(model([[1] * 8])[0], np.full((1, 8), 2))


def unary(kind: str, dtype: str, dims: list, opset: int = 17, **attributes) -> Builder:
    b = Builder(opset)
    b.add(kind, b.input("x", dtype, dims), outputs=["y"], **attributes)
    b.output("y", dtype, dims)
    return b


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_model_keeps_the_element_type_of_its_inputs(dtype):
    b = Builder()
    x = b.input("x", dtype, ["n"])
    b.add("Add", x, b.constant(np.array([3], dtype)), outputs=["y"])
    b.output("y", dtype, ["n"])
    with acl.Model(b.to_bytes()) as loaded:
        assert loaded.inputs[0].dtype == loaded.outputs[0].dtype == dtype
        got = loaded(np.arange(5, dtype=dtype))[0]
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.arange(5, dtype=dtype) + 3)


def test_model_accepts_and_returns_bool_arrays():
    with acl.Model(unary("Not", "bool", ["n"]).to_bytes()) as loaded:
        np.testing.assert_array_equal(loaded(np.array([True, False]))[0], [False, True])


def test_bfloat16_arrays_are_passed_as_their_uint16_bits():
    with acl.Model(unary("Neg", "bfloat16", ["n"]).to_bytes()) as loaded:
        assert loaded.inputs[0].dtype == "bfloat16"
        bits = np.array([0x3F80, 0xC000], np.uint16)
        np.testing.assert_array_equal(loaded(bits)[0], bits ^ 0x8000)
        with pytest.raises(acl.InvalidArgumentError, match="'x': expected bfloat16"):
            loaded(np.ones(2, np.float32))


def test_model_accepts_and_returns_scalars():
    with acl.Model(unary("Neg", "float32", []).to_bytes()) as loaded:
        got = loaded(np.float32(3))[0]
        assert got.shape == () and got == -3
        assert loaded(3)[0] == -3


def test_model_accepts_and_returns_arrays_without_elements(model):
    assert model(np.empty((0, 8), np.float32))[0].shape == (0, 8)
    np.testing.assert_array_equal(model(np.ones((2, 8), np.float32))[0], np.full((2, 8), 2))
    assert model(np.empty((0, 8), np.float32))[0].shape == (0, 8)


def test_output_shapes_may_depend_on_the_data():
    b = Builder()
    b.add("NonZero", b.input("x", "float32", ["n"]), outputs=["where"])
    b.output("where", "int64", [1, "found"])
    with acl.Model(b.to_bytes()) as loaded:
        rng = random(5)
        for size in (4, 4, 9, 1, 30, 4):
            for x in (np.zeros(size, np.float32), np.ones(size, np.float32), (rng.random(size) < 0.5).astype("f4")):
                np.testing.assert_array_equal(loaded(x)[0], [np.flatnonzero(x)])


def test_model_returns_outputs_whose_shape_is_not_declared():
    b = Builder()
    b.add("Reshape", b.input("x", "float32", ["a", "b"]), b.constant(np.array([-1], np.int64)), outputs=["y"])
    b.output("y")
    with acl.Model(b.to_bytes()) as loaded:
        for shape in ((2, 3), (7, 1), (4, 4), (1, 50)):
            x = floats(random(6), *shape)
            np.testing.assert_array_equal(loaded(x)[0], x.reshape(-1))


@pytest.mark.parametrize("dims", [None, [4]])
def test_model_returns_outputs_whose_type_is_not_declared(dims):
    b = Builder()
    b.add("Not", b.input("x", "bool", dims or ["n"]), outputs=["y"])
    data = b.to_bytes()
    # Add an output that has only a name: field 12 of the graph, which is field 7 of the model.
    graph = data.index(bytes([7 << 3 | 2])) + 1
    size = data[graph]
    assert size < 128 - 5
    tail = data[graph + 1 + size:]
    output = bytes([12 << 3 | 2, 3, 10, 1, ord("y")])
    data = data[:graph] + bytes([size + 5]) + data[graph + 1:graph + 1 + size] + output + tail
    with acl.Model(data) as loaded:
        np.testing.assert_array_equal(loaded(np.array([True, False] * 2))[0], [False, True] * 2)
        assert loaded.outputs[0].dtype == "bool"


def test_model_loaded_from_a_file_describes_its_inputs_and_outputs(tmp_path):
    path = tmp_path / "encoder.onnx"
    path.write_bytes(transformer_encoder().to_bytes())
    with acl.Model(path) as loaded:
        assert [i.name for i in loaded.inputs] == ["x", "mask"]
        assert loaded.inputs[0].shape == (-1, -1, 32) and loaded.inputs[0].dynamic
        assert str(loaded.inputs[1]) == "float32 [any, any]"
        assert repr(loaded).startswith("<Model (x: float32 [any, any, 32], mask:")
    assert repr(loaded) == "<Model closed>"


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.ones((2, 9), np.float32), r"'x': expected float32 \[any, 8\], got float32 \[2, 9\]"),
        (np.ones(8, np.float32), r"'x': expected float32 \[any, 8\], got float32 \[8\]"),
        (np.ones((2, 8)), r"'x': expected float32 \[any, 8\], got float64 \[2, 8\]"),
        (None, r"'x': expected float32 \[any, 8\], got NoneType"),
        ({"x": np.ones((2, 8))}, r"'x': expected float32 \[any, 8\], got dict"),
        (np.ones((2, 8), np.int32), r"'x': expected float32 \[any, 8\], got int32 \[2, 8\]"),
        ("text", r"'x': expected float32 \[any, 8\], got str"),
    ],
)
def test_wrong_model_input_is_refused_by_name(model, value, text):
    with pytest.raises(acl.InvalidArgumentError, match=text) as raised:
        model(value)
    assert isinstance(raised.value, ValueError) and str(raised.value).startswith("input 'x'")
    np.testing.assert_array_equal(model(np.ones((1, 8), np.float32))[0], np.full((1, 8), 2))


def test_missing_unknown_and_repeated_model_inputs_are_refused_by_name(model):
    x = np.ones((1, 8), np.float32)
    with pytest.raises(acl.InvalidArgumentError, match="inputs are missing: x"):
        model()
    with pytest.raises(acl.InvalidArgumentError, match="no input 'z'; its inputs are x"):
        model(z=x)
    with pytest.raises(acl.InvalidArgumentError, match="'x' is given twice"):
        model(x, x=x)
    with pytest.raises(acl.InvalidArgumentError, match=r"1 inputs \(x\), got 2"):
        model(x, x)


def test_input_array_of_a_wrong_shape_is_refused(pool, model):
    with pytest.raises(ValueError, match=r"'x': expected float32 \[any, 8\], got float32 \[8, 2\]"):
        model.run_async([pool.empty((8, 2))])
    with pytest.raises(ValueError, match="got a Buffer of 64 bytes"):
        model.run_async([pool.alloc(64)])


def test_inputs_with_inconsistent_shapes_are_refused_by_the_run(sim):
    with acl.Model(transformer_encoder().to_bytes()) as loaded:
        with pytest.raises(acl.AclError, match="node"):
            loaded(np.ones((1, 4, 32), np.float32), np.ones((1, 5), np.float32))
        x, mask = np.ones((1, 4, 32), np.float32), np.ones((1, 4), np.float32)
        assert loaded(x, mask)[0].shape == (1, 4, 32)


def test_model_files_that_cannot_be_loaded_are_refused(tmp_path):
    with pytest.raises(acl.AclError, match="aclmdlLoadFromFile"):
        acl.Model(tmp_path / "none.onnx")
    with pytest.raises(acl.AclError, match="aclmdlLoadFromMem"):
        acl.Model(b"this is no model")
    with pytest.raises(TypeError, match="source must be a path or a model's content, not int"):
        acl.Model(3)
    with pytest.raises(ValueError, match="empty"):
        acl.Model(b"")


def test_an_unknown_operator_is_named():
    b = Builder()
    b.add("Frobnicate", b.input("x", "float32", [1]), name="strange", outputs=["y"])
    b.output("y")
    with pytest.raises(acl.AclError, match=r"strange.*Frobnicate"):
        acl.Model(b.to_bytes())


# ---- memory -------------------------------------------------------------------------------------


def test_runs_with_repeated_shapes_make_no_device_memory_calls(sim, pooled):
    build, make = ARCHITECTURES["encoder"]
    rng = random(31)
    work = [make(rng) for _ in range(10)]
    with acl.Model(build().to_bytes()) as loaded:
        for _ in range(2):
            for inputs in work:
                loaded(*inputs, stream=pooled)
        sim.reset_counters()
        for inputs in work:
            loaded(*inputs, stream=pooled)
        counted = sim.counters()
        assert counted["aclmdlExecuteAsync"] == len(work)
        assert {name: counted[name] for name in DEVICE_CALLS if name in counted} == {}


def tensors_of(built: Builder, inputs: list) -> list[int]:
    """Return the block sizes of all inner tensors (not inputs or outputs), computed from the model with NumPy."""
    views = {"Reshape", "Flatten", "Identity", "Unsqueeze", "Squeeze"}
    known = set(built.constants)                # tensors known to the host: constants, and results of shapes
    names = []
    for node in built.nodes:
        if node.kind == "Shape" or all(name in known for name in node.inputs if name):
            known.update(node.outputs)
        elif node.kind not in views:
            names.extend(name for name in node.outputs if name not in built.outputs)
    probe = Builder()
    probe.nodes, probe.constants, probe.inputs, probe.outputs = (
        built.nodes, built.constants, built.inputs, names)
    # Every tensor in between is float32 in these models; `evaluate` computes in float64.
    return sorted((4 * value.size + 31) // 32 * 32 + 32 for value in evaluate(probe, *inputs))


@pytest.mark.parametrize("name", ["encoder", "resnet", "tagger"])
def test_every_tensor_of_a_model_is_allocated_by_the_registered_callbacks(stream, name):
    build, make = ARCHITECTURES[name]
    rng, built = random(32), build()
    allocator = CountingAllocator(stream.handle)
    with acl.Model(built.to_bytes()) as loaded:
        loaded(*make(rng), stream=stream)
        for _ in range(5):
            inputs = make(rng)
            allocator.events.clear()
            loaded(*inputs, stream=stream)
            rest = list(allocator.sizes)
            for size in tensors_of(built, inputs):
                assert size in rest, f"no block of {size} bytes was asked for"
                rest.remove(size)
            assert all(size % 512 == 0 for size in rest), "the others are workspaces"
    allocator.close()


@pytest.mark.parametrize("name", ["encoder", "decoder", "resnet", "tagger"])
def test_runs_on_a_blocked_stream_are_queued_without_a_wait(pool, stream, name):
    build, make = ARCHITECTURES[name]
    rng, built = random(33), build()
    pool.register(stream)
    ours, tally = acl.allocator_of(stream), Tally()
    watch = Watch(stream.handle, ours.object, ours.alloc, ours.free, ours.get_addr, tally)
    with acl.Model(built.to_bytes()) as loaded:
        for _ in range(2 if name != "resnet" else 4):
            loaded(*make(rng), stream=stream)
        work = [make(rng) for _ in range(8)]
        gate = Gate(stream)
        queued, asked = [], 0
        for inputs in work:
            calls = tally.calls
            tally.reset_peak()
            queued.append(loaded.run_async(inputs, stream))
            assert tally.calls > calls and tally.live == 0, "every block came back in the call"
            asked += tally.peak
        assert pool.stats().requested_peak < asked + sum(r.nbytes for results in queued for r in results) + sum(
            a.nbytes for inputs in work for a in inputs), "later runs use the blocks of earlier ones"
        gate.open()
        for inputs, results in zip(work, queued, strict=True):
            assert_close([result.numpy() for result in results], evaluate(built, *inputs))
    pool.unregister(stream)
    del watch


def test_memory_of_results_is_freed_when_the_results_are_dropped(pooled, pool, model):
    results = [model.run_async([np.ones((n, 8), np.float32)], pooled)[0] for n in range(1, 20)]
    for result in results:
        result.close()
    pooled.synchronize()
    assert pool.stats().requested == 0


def test_run_that_finds_no_memory_calls_the_hook_once_and_is_tried_again(sim, stream, model):
    model(np.ones((4, 8), np.float32))
    with acl.Pool(0, limit="64MiB") as pool:
        pool.register(stream)
        hog = [pool.alloc("16MiB", stream) for _ in range(3)]
        told = []

        def make_room(report: acl.OomReport) -> bool:
            told.append(report)
            while hog:
                hog.pop().close()
            return True

        pool.on_oom(make_room)
        # Inputs and outputs take 4.4 MiB each and fit; the tensors between them do not.
        x = np.ones((144_000, 8), np.float32)
        np.testing.assert_array_equal(model(x, stream=stream)[0], np.full(x.shape, 2))
        assert len(told) == 1 and told[0].size > 2**22
        pool.unregister(stream)


def test_run_that_finds_no_memory_raises_a_memory_error_without_a_hook(stream, model):
    model(np.ones((4, 8), np.float32))
    with acl.Pool(0, limit="4MiB") as pool:
        pool.register(stream)
        with pytest.raises(MemoryError):
            model(np.ones((2**16, 8), np.float32), stream=stream)
        np.testing.assert_array_equal(model(np.ones((4, 8), np.float32), stream=stream)[0], np.full((4, 8), 2))
        pool.unregister(stream)


def test_run_succeeds_although_the_predicted_output_size_finds_no_memory(stream):
    b = Builder()
    b.add("Relu", b.input("x", "float32", [None, 4]), outputs=["y"])
    b.output("y")                               # declares no shape: an extent of 4 may also be 2 + 2
    with acl.Pool(0, limit="8MiB") as pool, acl.Model(b.to_bytes()) as model:
        pool.register(stream)
        for rows in (2, 2048):
            x = np.full((rows, 4), rows, np.float32)
            np.testing.assert_array_equal(model(x, stream=stream)[0], x)
        with pytest.raises(acl.OutOfMemoryError):
            model(np.ones((1 << 20, 4), np.float32), stream=stream)
        pool.unregister(stream)


def test_report_names_the_model_whose_failed_run_left_memory(stream, model):
    # The graph engine keeps a failed run's blocks until the model's next run or its unload.
    model(np.ones((4, 8), np.float32))
    with acl.Pool(0, limit="64MiB") as pool, acl.Model(small_model().to_bytes(), name="greedy") as greedy:
        pool.register(stream)
        hogs = [pool.alloc("16MiB", stream, tag="hog") for _ in range(3)]
        with pytest.raises(acl.OutOfMemoryError) as raised:
            greedy(np.ones((144_000, 8), np.float32), stream=stream)
        assert raised.value.report.failed_runs == ()
        with pytest.raises(acl.OutOfMemoryError) as raised:
            pool.alloc("32MiB", stream)
        report = raised.value.report
        assert report.failed_runs == ("greedy",)
        assert set(report.left) == {"greedy"}
        assert "left by failed runs: greedy" in report.details()
        for hog in hogs:
            hog.close()
        greedy(np.ones((4, 8), np.float32), stream=stream)
        with pytest.raises(acl.OutOfMemoryError) as raised:
            pool.alloc("128MiB", stream)
        assert raised.value.report.failed_runs == ()
        pool.unregister(stream)


@pytest.mark.parametrize("function", ["aclrtMalloc", "aclrtMallocPhysical", "aclrtMapMem", "aclrtMemcpyAsync",
                                      "aclrtMallocHost", "aclmdlExecuteAsync"])
def test_runtime_failures_in_a_run_are_raised_and_later_runs_are_right(sim, pool, function):
    build, make = ARCHITECTURES["encoder"]
    rng, built = random(34), build()
    failed = 0
    with acl.Stream(0) as lane, acl.Model(built.to_bytes()) as loaded:
        pool.register(lane)
        for i in range(16):
            inputs = make(rng)
            with sim.fault(function, nth=1 + i % 3):
                try:
                    assert_close(loaded(*inputs, stream=lane), evaluate(built, *inputs))
                except (acl.AclError, MemoryError):
                    failed += 1
                    pool.trim()
            assert_close(loaded(*inputs, stream=lane), evaluate(built, *inputs))
        print(function, "failed", failed, "times")
        lane.synchronize()
        pool.unregister(lane)


def test_model_run_leaves_no_handle_behind(no_leaks):
    with acl.Stream(0) as lane, acl.Pool(0) as pool:
        pool.register(lane)
        with acl.Model(small_model().to_bytes()) as loaded:
            for rows in (3, 60, 5):
                loaded(np.ones((rows, 8), np.float32), stream=lane)
            loaded(np.ones((rows, 8), np.float32))
            with pytest.raises(ValueError, match="expected"):
                loaded(np.ones((rows, 9), np.float32), stream=lane)
        pool.unregister(lane)


# ---- close, drop, exit and fork -----------------------------------------------------------------


def test_closed_model_refuses_use(model):
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(ValueError, match="closed"):
        model(np.ones((1, 8), np.float32))
    with pytest.raises(ValueError, match="closed"):
        model.run_async([np.ones((1, 8), np.float32)])


def test_model_close_waits_for_a_queued_run(pooled, model):
    x = np.ones((6, 8), np.float32)
    model(x, stream=pooled)
    gate = Gate(pooled)
    result = model.run_async([x], pooled)[0]
    threading.Timer(0.1, gate.open).start()
    model.close()
    assert gate.event.is_set(), "it waited"
    np.testing.assert_array_equal(result.numpy(), np.full((6, 8), 2))


def test_pool_may_be_closed_while_a_model_that_uses_it_is_being_closed(stream, model):
    x, pool = np.ones((6, 8), np.float32), acl.Pool(0)
    pool.register(stream)
    model(x, stream=stream)
    gate = Gate(stream)
    result = model.run_async([x], stream)[0]

    def end() -> None:
        threading.Timer(0.1, gate.open).start()
        pool.close()

    threading.Timer(0.1, end).start()
    model.close()                               # waits for the run, while another thread closes the pool
    assert pool.closed and model.closed
    np.testing.assert_array_equal(result.numpy(), np.full((6, 8), 2))


def test_inputs_are_kept_until_copied_if_no_event_can_be_recorded(model, sim):
    shape = (6, 8)
    with acl.Stream() as held, acl.Stream() as free:
        for stream in (held, free):
            model(np.zeros(shape, np.float32), stream=stream)
        gate = Gate(held)
        with sim.fault("aclrtRecordEvent", nth=1, code=507899):
            first = model.run_async(np.ones(shape, np.float32), held)
        for value in (2, 3):                    # these runs return staging memory to the pinned pool
            model(np.full(shape, value, np.float32), stream=free)
        taken = [default_pool().alloc(first[0].nbytes) for _ in range(8)]
        for buffer in taken:
            memoryview(buffer)[:] = bytes([9]) * buffer.size
        gate.open()
        np.testing.assert_array_equal(first[0].numpy(), np.full(shape, 2))


def test_model_close_unloads_only_after_the_queued_runs(stream, model, sim):
    """There is no pool, and the unload fails, so only the first part of `close` can wait for the runs."""
    x = np.ones((6, 8), np.float32)
    model(x, stream=stream)
    gate = Gate(stream)
    model.run_async([x], stream)
    threading.Timer(0.1, gate.open).start()
    with sim.fault("aclmdlUnload", code=500002), pytest.raises(acl.AclError, match="aclmdlUnload"):
        model.close()
    assert gate.event.is_set(), "it waited"


@pytest.mark.parametrize("device", [0, 1])
def test_model_can_be_closed_in_a_thread_without_a_context(device, stream):
    loaded = acl.Model(small_model().to_bytes(), device)
    x = np.ones((2, 8), np.float32)
    loaded(x)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(loaded.close()))
    thread.start()
    thread.join(300)
    assert ended == [None] and loaded.closed


def test_model_close_keeps_the_current_device_of_the_thread():
    loaded = acl.Model(small_model().to_bytes(), 1)
    acl.Device(0).use()
    loaded.close()
    assert acl.Device.current() == acl.Device(0)


def test_a_model_dropped_in_a_thread_without_a_context_is_unloaded(sim, tmp_path):
    held = [acl.Model(small_model().to_bytes())]
    thread = threading.Thread(target=held.clear)
    with sim.trace(tmp_path / "calls") as calls:
        thread.start()
        thread.join(300)
    unloads = [line.split()[2:4] for line in calls.read_text().splitlines() if "aclmdlUnload" in line]
    assert unloads == [["aclmdlUnload", "0"]]


def test_an_unload_that_fails_leaves_the_model_loaded(model, sim):
    x = np.ones((2, 8), np.float32)
    with sim.fault("aclmdlUnload", code=500002), pytest.raises(acl.AclError, match="aclmdlUnload"):
        model.close()
    assert not model.closed
    np.testing.assert_allclose(model(x)[0], right(x), rtol=1e-6)


def test_pinned_memory_of_inputs_is_reused_without_rounding(pooled, model):
    pinned = default_pool()
    x = np.ones((1000, 8), np.float32)
    for _ in range(5):
        model(x, stream=pooled)
    before = pinned.stats()
    for _ in range(20):
        model(x, stream=pooled)
    after = pinned.stats()
    assert after.reserved == before.reserved
    assert after.pinned == before.pinned


def test_a_dropped_stream_is_not_kept_by_the_model(model, sim):
    x = np.ones((6, 8), np.float32)
    model(x)
    before = sim.live_handles()["stream"]
    for _ in range(5):
        dropped = acl.Stream()
        model(x, stream=dropped)
    del dropped
    model(x)                                    # releases the memory that the last copy read
    gc.collect()
    assert sim.live_handles()["stream"] == before


def test_model_close_waits_for_runs_on_borrowed_streams(pooled, model):
    x = np.ones((6, 8), np.float32)
    model(x)
    gate = Gate(pooled)
    result, = model.run_async(x, acl.Stream.from_handle(pooled.handle))
    threading.Timer(0.1, gate.open).start()
    model.close()
    assert gate.event.is_set(), "it waited"
    np.testing.assert_array_equal(result.numpy(), np.full((6, 8), 2))


def test_model_close_waits_for_the_copies_of_a_failed_run(pooled, model, sim):
    x = np.ones((6, 8), np.float32)
    model(x)
    gate = Gate(pooled)
    with sim.fault("aclmdlExecuteAsync", code=207001), pytest.raises(acl.OutOfMemoryError):
        model.run_async(x, pooled)
    threading.Timer(0.1, gate.open).start()
    model.close()
    assert gate.event.is_set(), "it waited"


def test_model_can_be_dropped_while_its_work_is_queued(pooled):
    loaded = acl.Model(small_model().to_bytes())
    x = np.ones((6, 8), np.float32)
    loaded(x, stream=pooled)
    gate = Gate(pooled)
    result = loaded.run_async([x], pooled)[0]
    threading.Timer(0.1, gate.open).start()
    del loaded
    np.testing.assert_array_equal(result.numpy(), np.full((6, 8), 2))


CHILD = """
    import numpy as np, sys, threading, time
    sys.path.insert(0, {path!r})
    import acl
    from support.requests import small_model
    model = acl.Model(small_model().to_bytes())
    stream = acl.Stream(0)
    pool = acl.Pool(0)
    pool.register(stream)
    x = np.ones((3, 8), np.float32)
    assert (model(x, stream=stream)[0] == 2).all()
"""


def child(code: str):
    from pathlib import Path
    from textwrap import dedent

    head = dedent(CHILD).format(path=str(Path(__file__).parents[1]))
    return run_python(head + dedent(code), timeout=300)


def test_process_exit_with_a_queued_model_run_is_clean():
    done = child("""
        stream.launch(time.sleep, 0.2)
        results = [model.run_async([x], stream) for _ in range(5)]
        print("end")
    """)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")


def test_process_exit_with_a_thread_inside_a_model_run_is_clean():
    done = child("""
        def serve():
            while True:
                model(x, stream=stream)
        threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.2)
        print("end")
    """)
    assert done.stdout.strip() == "end" and done.returncode == 0, done.stderr


def test_forked_child_that_runs_a_model_gets_an_error_about_fork():
    done = child("""
        import os, warnings
        warnings.simplefilter("ignore")
        pid = os.fork()
        if pid == 0:
            try:
                model(x)
            except Exception as error:
                print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print((model(x, stream=stream)[0] == 2).all())
    """)
    assert done.returncode == 0, done.stderr
    assert "fork" in done.stdout and done.stdout.strip().endswith("True")
