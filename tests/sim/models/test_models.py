"""Models on the simulator's node loop: right results, and an allocator used as GE uses it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import (
    Call,
    CountingAllocator,
    SimModel,
    sim_message,
    transformer_encoder,
)
from support.requests import ARCHITECTURES, Inputs, assert_close, floats, small_model

import acl.sim
from acl.tools.numpy_ops import evaluate
from acl.tools.onnx_writer import Builder

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(("build", "make"), ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_architecture_matches_numpy(
    build: Callable[[], Builder], make: Callable[[np.random.Generator], Inputs]
) -> None:
    model, rng = build(), np.random.default_rng(7)
    with SimModel(model.to_bytes()) as loaded:
        for _ in range(10):
            inputs = make(rng)
            assert_close(loaded(*inputs), evaluate(model, *inputs))


def test_model_can_run_on_four_streams_concurrently() -> None:
    build, make = ARCHITECTURES["encoder"]
    model, rng = build(), np.random.default_rng(8)
    jobs = [[make(rng) for _ in range(6)] for _ in range(4)]
    failures: list[BaseException] = []

    def serve(loaded: SimModel, work: list[Inputs]) -> None:
        try:
            assert api.aclrtSetDevice(0) == 0
            stream = out()
            assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
            calls = [loaded.queue(stream.value, inputs, [inputs[0].nbytes]) for inputs in work]
            assert api.aclrtSynchronizeStream(stream) == 0
            for call, inputs in zip(calls, work, strict=True):
                assert_close([call.result(0)], [evaluate(model, *inputs)[0]])
                call.close()
            assert api.aclrtDestroyStream(stream) == 0
        except BaseException as error:
            failures.append(error)

    with SimModel(model.to_bytes()) as loaded:
        threads = [threading.Thread(target=serve, args=(loaded, work)) for work in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]


# --- the allocator ---------------------------------------------------------------------------------


def padded(size: int) -> int:
    return (size + 31) // 32 * 32 + 32


def test_tensors_and_workspaces_come_from_the_registered_allocator(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    with SimModel(small_model().to_bytes()) as loaded:
        call = loaded.queue(raw_stream, [np.ones((5, 8), np.float32)], [160])
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        tensors = [size for size in allocator.sizes if size == padded(160)]
        others = [size for size in allocator.sizes if size != padded(160)]
        assert len(tensors) == 2  # relu and matmul; the last output is the user's
        assert len(others) == 1 and others[0] % 512 == 0  # matmul's workspace
        assert not allocator.live
        call.close()
    allocator.close()


def test_allocator_callbacks_are_called_in_the_order_of_the_nodes(raw_stream: int) -> None:
    b = Builder()
    h = b.add("MatMul", b.add("Relu", b.input("x", "float32", ["n", 8])), b.constant(np.ones((8, 16), np.float32)))
    b.add("Neg", b.add("Sigmoid", h), outputs=["y"])
    b.output("y")
    allocator = CountingAllocator(raw_stream)
    with SimModel(b.to_bytes()) as loaded:
        call = loaded.queue(raw_stream, [np.ones((5, 8), np.float32)], [320])
        narrow, wide, workspace = padded(160), padded(320), allocator.sizes[2]
        assert allocator.events == [
            ("alloc", narrow),  # relu's output
            ("alloc", wide),  # matmul's
            ("alloc", workspace),
            ("free", workspace),
            ("free", narrow),  # matmul was its last reader
            ("alloc", wide),  # sigmoid's
            ("free", wide),
            ("free", wide),
        ]
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        call.close()
    allocator.close()


def test_blocks_are_freed_when_their_work_is_queued_not_when_it_is_done(raw_stream: int) -> None:
    gate = threading.Event()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(20) and None)
    assert api.aclrtLaunchHostFunc(raw_stream, ctypes.cast(callback, ctypes.c_void_p), None) == 0
    allocator, rng = CountingAllocator(raw_stream), np.random.default_rng(3)
    model = small_model()
    with SimModel(model.to_bytes()) as loaded:
        work = [[floats(rng, n, 8)] for n in (5, 5, 9, 2, 9)]
        calls = [loaded.queue(raw_stream, inputs, [inputs[0].nbytes]) for inputs in work]
        assert not allocator.live, "every block is back while the stream has not begun"
        reused = len(allocator.sizes) > sum(len(blocks) for blocks in allocator.idle.values())
        assert reused, "later runs reuse the blocks of earlier ones"
        gate.set()
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        for call, inputs in zip(calls, work, strict=True):
            assert_close([call.result(0)], [evaluate(model, *inputs)[0]])
            call.close()
    allocator.close()


def test_allocator_callbacks_run_on_the_calling_thread(raw_stream: int) -> None:
    allocator, threads = CountingAllocator(raw_stream), set[int]()
    allocator.on_alloc = lambda size: threads.add(threading.get_ident())
    with SimModel(small_model().to_bytes()) as loaded:
        call = loaded.queue(raw_stream, [np.ones((5, 8), np.float32)], [160])
        assert threads == {threading.get_ident()}
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        call.close()
    allocator.close()


def test_null_block_fails_the_call_and_other_blocks_are_freed_later(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    with SimModel(small_model().to_bytes()) as loaded:
        allocator.fail_at = 1
        call = Call([np.ones((5, 8), np.float32)], 1, [160])
        assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, raw_stream) == 245000
        assert "gave no block" in sim_message()
        assert len(allocator.live) == 1, "the failed run keeps what it had"
        allocator.fail_at = -1
        assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, raw_stream) == 0
        assert not allocator.live
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert_close([call.result(0)], [np.full((5, 8), 2.0)])
        call.close()
    allocator.close()


def test_unload_frees_the_blocks_that_a_failed_run_kept(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    with SimModel(small_model().to_bytes()) as loaded:
        allocator.fail_at = 1
        call = Call([np.ones((5, 8), np.float32)], 1, [160])
        assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, raw_stream) == 245000
    assert not allocator.live
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    call.close()
    allocator.close()


def test_synchronous_runs_ignore_the_allocator(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    config = api.aclmdlCreateExecConfigHandle()
    with SimModel(small_model().to_bytes()) as loaded:
        assert loaded(np.ones((5, 8), np.float32))[0].shape == (5, 8)
        call = Call([np.ones((5, 8), np.float32)], 1, [160])
        assert api.aclmdlExecuteV2(loaded.id, call.input, call.output, raw_stream, config) == 0
        assert_close([call.result(0)], [np.full((5, 8), 2.0)])
        call.close()
    assert not allocator.events
    assert api.aclmdlDestroyExecConfigHandle(config) == 0
    allocator.close()


def test_output_without_a_buffer_is_allocated_and_freed_by_the_engine(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    with SimModel(small_model().to_bytes()) as loaded:
        call = loaded.queue(raw_stream, [np.ones((5, 8), np.float32)], [0])
        assert allocator.sizes.count(padded(160)) == 3
        assert not allocator.live
        buffer = api.aclmdlGetDatasetBuffer(call.output, 0)
        assert not api.aclGetDataBufferAddr(buffer)
        assert call.shape(0) == ("float32", (5, 8))
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        call.close()
    allocator.close()


def test_steady_state_makes_no_device_calls(raw_stream: int) -> None:
    allocator, sizes = CountingAllocator(raw_stream), [1, 17, 33]
    with SimModel(transformer_encoder().to_bytes()) as loaded:
        calls = []
        for n in sizes * 2:
            if n == sizes[0]:
                acl.sim.reset_counters()
            inputs = [np.ones((1, n, 32), np.float32), np.ones((1, n), np.float32)]
            before = {k: v for k, v in acl.sim.counters().items() if k in ("aclrtMallocPhysical", "aclrtMapMem")}
            calls.append(loaded.queue(raw_stream, inputs, [inputs[0].nbytes]))
            assert not any(before.values())
        assert acl.sim.counters().get("aclrtMalloc", 0) == len(sizes) * 3, "only this test's own inputs and outputs"
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        for call in calls:
            call.close()
    allocator.close()


@pytest.mark.parametrize("failing", [False, True])
def test_default_memory_of_a_stream_is_freed_with_the_stream(failing: bool, device: None) -> None:
    with SimModel(small_model().to_bytes()) as loaded:
        call, stream = Call([np.ones((5, 8), np.float32)], 1, [160]), out()
        before = acl.sim.physical_bytes()
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
        # The last block is refused even after a wait for the stream: there is too little memory left.
        hog = out()
        if failing:
            first = out()
            assert api.aclrtCreateStream(ctypes.byref(first)) == 0
            assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, first) == 0
            needed = acl.sim.physical_bytes() - before
            assert api.aclrtDestroyStream(first) == 0
            left = int(acl.sim.configuration()["capacity"].split(",")[0]) - before
            assert api.aclrtMalloc(ctypes.byref(hog), left - needed + 512 - 64, 2) == 0
            before = acl.sim.physical_bytes()
        status = api.aclmdlExecuteAsync(loaded.id, call.input, call.output, stream)
        assert status == (245000 if failing else 0)
        assert acl.sim.physical_bytes() > before
        assert api.aclrtDestroyStream(stream) == 0
        assert acl.sim.physical_bytes() == before
        if failing:
            assert api.aclrtFree(hog) == 0
        assert_close(loaded(np.ones((5, 8), np.float32)), [np.full((5, 8), 2.0)])
        call.close()


def test_weights_never_come_from_the_allocator(raw_stream: int) -> None:
    allocator = CountingAllocator(raw_stream)
    with SimModel(transformer_encoder().to_bytes()):
        pass
    assert not allocator.events
    allocator.close()


# --- loading and describing ------------------------------------------------------------------------


def test_model_description_has_sizes_names_and_dimensions() -> None:
    with SimModel(transformer_encoder().to_bytes()) as loaded:
        desc = api.aclmdlCreateDesc()
        assert api.aclmdlGetDesc(desc, loaded.id) == 0
        assert (api.aclmdlGetNumInputs(desc), api.aclmdlGetNumOutputs(desc)) == (2, 1)
        assert api.aclmdlGetInputNameByIndex(desc, 1) == b"mask"
        assert api.aclmdlGetInputSizeByIndex(desc, 0) == 0, "dynamic"
        dims = (ctypes.c_char * 1160)()
        assert api.aclmdlGetInputDims(desc, 0, dims) == 0
        count = int.from_bytes(dims[128:136], "little")
        assert [int.from_bytes(dims[136 + 8 * i : 144 + 8 * i], "little", signed=True) for i in range(count)] == [
            -1,
            -1,
            32,
        ]
        index = out(ctypes.c_size_t)
        assert api.aclmdlGetInputIndexByName(desc, b"mask", ctypes.byref(index)) == 0 and index.value == 1
        assert api.aclmdlDestroyDesc(desc) == 0


def test_model_can_be_loaded_into_weight_memory_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(small_model().to_bytes())
    work, weight, number = out(ctypes.c_size_t), out(ctypes.c_size_t), out(ctypes.c_uint32)
    assert api.aclmdlQuerySize(bytes(path), ctypes.byref(work), ctypes.byref(weight)) == 0
    assert weight.value >= 8 * 8 * 4 + 32
    memory = out()
    assert api.aclrtMalloc(ctypes.byref(memory), weight.value, 0) == 0
    short = api.aclmdlLoadFromFileWithMem(bytes(path), ctypes.byref(number), None, 0, memory, weight.value - 1)
    assert short == 100000 and "weightSize" in sim_message()
    wrong = api.aclmdlLoadFromFileWithMem(bytes(path), ctypes.byref(number), None, 0, 1 << 40, weight.value)
    assert wrong == 100000 and "weightPtr" in sim_message()
    assert api.aclmdlLoadFromFileWithMem(bytes(path), ctypes.byref(number), None, 0, memory, weight.value) == 0
    assert api.aclmdlUnload(number.value) == 0
    assert api.aclrtFree(memory) == 0


def test_model_with_batch_gears_runs_only_in_one_of_its_gears() -> None:
    b = Builder()
    x = b.input("x", "float32", [None, 4])
    b.add("Relu", x, outputs=["y"])
    b.output("y")
    with SimModel(b.to_bytes({"dynamic_batch_size": "1,2,4"})) as loaded:
        desc = api.aclmdlCreateDesc()
        assert api.aclmdlGetDesc(desc, loaded.id) == 0
        index = out(ctypes.c_size_t)
        assert api.aclmdlGetInputIndexByName(desc, b"ascend_mbatch_shape_data", ctypes.byref(index)) == 0
        assert api.aclmdlGetInputSizeByIndex(desc, 0) == 4 * 4 * 4, "of the largest gear"
        gear = np.zeros(1, np.int64)
        call = Call([np.ones((2, 4), np.float32), gear], 1, [64])
        assert api.aclmdlExecute(loaded.id, call.input, call.output) == 145013, "no gear was set"
        assert api.aclmdlSetDynamicBatchSize(loaded.id, call.input, index.value, 3) == 100000, "no such gear"
        assert api.aclmdlSetDynamicHWSize(loaded.id, call.input, index.value, 3, 3) == 100019, "another kind"
        assert api.aclmdlSetDynamicBatchSize(loaded.id, call.input, index.value, 2) == 0
        assert api.aclmdlExecute(loaded.id, call.input, call.output) == 0
        assert_close([call.result(0)], [np.ones((2, 4))])
        call.close()
        assert api.aclmdlDestroyDesc(desc) == 0


# --- refusals --------------------------------------------------------------------------------------


def run_refused(inputs: Inputs, sizes: list[int]) -> tuple[int, str]:
    with SimModel(small_model().to_bytes()) as loaded:
        call = Call(inputs, 1, sizes)
        code = api.aclmdlExecute(loaded.id, call.input, call.output)
        text = sim_message()
        call.close()
    return code, text


@pytest.mark.parametrize(
    ("inputs", "sizes", "code", "word"),
    [
        ([np.ones((2, 9), np.float32)], [0], 145021, "input x: expected shape [-1, 8]"),
        ([np.ones((2, 2, 8), np.float32)], [0], 145021, "input x"),
        ([np.ones((2, 8), np.float32)] * 2, [0], 145000, "1 inputs"),
        ([np.ones((2, 8), np.float32)], [60], 145000, "output y needs 64 bytes"),
    ],
)
def test_wrong_inputs_are_refused_by_name(inputs: Inputs, sizes: list[int], code: int, word: str) -> None:
    got, text = run_refused(inputs, sizes)
    assert got == code
    assert word in text


def test_values_in_unmapped_memory_are_an_error_of_the_run(raw_stream: int) -> None:
    b = Builder()
    b.output(b.add("Reshape", b.input("x", "float32", ["n"]), b.input("shape", "int64", [2])))
    hole = out()
    assert api.aclrtReserveMemAddress(ctypes.byref(hole), 2 << 20, 0, None, 0) == 0
    with SimModel(b.to_bytes()) as loaded:
        call = Call([np.ones(6, np.float32), np.array([2, 3], np.int64)], 1, [24])
        buffer = api.aclmdlGetDatasetBuffer(call.input, 1)
        there = api.aclGetDataBufferAddr(buffer)
        for address, status in ((hole, 145011), (there, 0)):
            assert api.aclUpdateDataBuffer(buffer, address, 16) == 0
            assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, raw_stream) == status, sim_message()
        assert "input 1 was freed or unmapped" in sim_message()
        assert api.aclrtSynchronizeStream(raw_stream) == 0
        assert call.result(0).shape == (2, 3)
        call.close()
    assert api.aclrtReleaseMemAddress(hole) == 0


def test_unknown_operator_names_node_and_extra() -> None:
    b = Builder()
    b.add("Frobnicate", b.input("x", "float32", [1]), name="strange", outputs=["y"])
    b.output("y")
    data, number = b.to_bytes(), out(ctypes.c_uint32)
    assert api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number)) == 100013
    assert "strange" in sim_message() and "Frobnicate" in sim_message() and "aclpool[onnx]" in sim_message()


@pytest.mark.parametrize("cut", [1, 7, 50, 200, -1, -40])
def test_truncated_files_are_refused(cut: int) -> None:
    data, number = transformer_encoder().to_bytes()[:cut], out(ctypes.c_uint32)
    assert api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number)) == 100013


def test_damaged_files_never_crash() -> None:
    seed = 11
    print("seed", seed)
    rng, whole = np.random.default_rng(seed), bytearray(small_model().to_bytes())
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] = int(rng.integers(0, 256))
        number = out(ctypes.c_uint32)
        if api.aclmdlLoadFromMem(bytes(data), len(data), ctypes.byref(number)) == 0:
            assert api.aclmdlUnload(number.value) == 0


def test_unloaded_model_is_no_longer_known() -> None:
    with SimModel(small_model().to_bytes()) as loaded:
        pass
    call = Call([np.ones((2, 8), np.float32)], 1, [64])
    assert api.aclmdlExecute(loaded.id, call.input, call.output) == 145003
    assert api.aclmdlUnload(loaded.id) == 145003
    call.close()


# --- options, and functions that are not supported -------------------------------------------------


def test_model_is_loaded_by_a_configuration_handle() -> None:
    handle, number, data = api.aclmdlCreateConfigHandle(), out(ctypes.c_uint32), small_model().to_bytes()
    keep = ctypes.create_string_buffer(data, len(data))
    options = [(1, ctypes.c_size_t(3)), (3, ctypes.c_void_p(ctypes.addressof(keep))), (4, ctypes.c_size_t(len(data)))]
    assert api.aclmdlLoadWithConfig(handle, ctypes.byref(number)) == 100000, "no load type"
    for attribute, value in options:
        assert api.aclmdlSetConfigOpt(handle, attribute, ctypes.byref(value), ctypes.sizeof(value)) == 0
    assert api.aclmdlSetConfigOpt(handle, 4, ctypes.byref(options[2][1]), 4) == 100000, "a size of 4 bytes"
    assert api.aclmdlSetConfigOpt(handle, 999, ctypes.byref(options[2][1]), 8) == 100000
    assert api.aclmdlLoadWithConfig(handle, ctypes.byref(number)) == 0
    assert api.aclmdlUnload(number.value) == 0
    assert api.aclmdlDestroyConfigHandle(handle) == 0


NULL = None
ROWS: list[tuple[str, tuple[Any, ...], int]] = [
    ("aclmdlLoadFromFile", (NULL, 1), 100000),
    ("aclmdlLoadFromFile", (b"/no/such/model.om", "out"), 145002),
    ("aclmdlLoadFromMem", (NULL, 8, "out"), 100000),
    ("aclmdlLoadFromMem", (b"12345678", 0, "out"), 100000),
    ("aclmdlLoadFromMem", (b"12345678", 8, NULL), 100000),
    ("aclmdlLoadFromMem", (b"12345678", 8, "out"), 100013),
    ("aclmdlUnload", (0,), 145003),
    ("aclmdlUnload", (987654,), 145003),
    ("aclmdlQuerySize", (NULL, "out", "out"), 100000),
    ("aclmdlQuerySize", (b"x", NULL, "out"), 100000),
    ("aclmdlQuerySizeFromMem", (b"x", 1, "out", NULL), 100000),
    ("aclmdlGetDesc", (NULL, 1), 100000),
    ("aclmdlDestroyDesc", (NULL,), 100000),
    ("aclmdlDestroyDataset", (NULL,), 100000),
    ("aclmdlAddDatasetBuffer", (NULL, NULL), 100000),
    ("aclmdlExecute", (1, NULL, NULL), 100000),
    ("aclmdlExecuteAsync", (1, NULL, NULL, NULL), 100000),
    ("aclmdlSetDatasetTensorDesc", (NULL, NULL, 0), 100000),
    ("aclmdlDestroyExecConfigHandle", (NULL,), 100000),
    ("aclGetTensorDescDimV2", (NULL, 0, "out"), 100000),
    ("aclSetTensorFormat", (NULL, 0), 100000),
    ("aclSetTensorConst", (NULL, b"x", 1), 100000),
    ("aclopSetAttrInt", (NULL, b"a", 1), 100000),
    ("aclopSetAttrListInt", (NULL, b"a", 1, NULL), 100000),
    ("aclopSetKernelArgs", (NULL, b"a", 1, b"x", 1), 100000),
    ("aclopSetKernelWorkspaceSizes", (NULL, 0, NULL), 100000),
    ("aclopRegisterCompileFunc", (NULL, 1), 100000),
    ("aclopRegisterCompileFunc", (b"T", NULL), 100000),
    ("aclopUnregisterCompileFunc", (NULL,), 100000),
    ("aclopUnregisterCompileFunc", (b"NeverThere",), 100028),
    ("aclopCreateKernel", (NULL, b"i", b"n", b"x", 1, 1, NULL), 100000),
    ("aclopCreateKernel", (b"T", b"i", b"n", b"x", 0, 1, NULL), 100000),
    ("aclopUpdateParams", (NULL, 0, NULL, 0, NULL, NULL), 100000),
    ("aclopCreateHandle", (b"Nothing", 0, NULL, 0, NULL, NULL, "out"), 100024),
    ("aclopExecWithHandle", (NULL, 0, NULL, 0, NULL, NULL), 100000),
    ("aclopSetModelDir", (b"/no/such/folder",), 100014),
]


@pytest.mark.parametrize(("name", "arguments", "code"), ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)])
def test_model_call_with_a_wrong_argument_returns_the_documented_code(
    name: str, arguments: tuple[Any, ...], code: int
) -> None:
    slots = [out(ctypes.c_uint64) for _ in arguments]
    given = [ctypes.byref(slot) if a == "out" else a for a, slot in zip(arguments, slots, strict=True)]
    assert getattr(api, name)(*given) == code
