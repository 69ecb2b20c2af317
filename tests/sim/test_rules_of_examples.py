"""Rules of the API that CANN's published examples rely on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from support.calls import api, out
from support.memory import made, read, write

from acl import sim

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
SYNC, EXTERNAL, MAPPED, PINNED, D2D = 1, 0x20, 2, 0x10000000, 3


@pytest.fixture
def stream() -> Iterator[int]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    handle = made("aclrtCreateStream")
    yield handle
    assert api.aclrtDestroyStream(handle) == 0
    assert api.aclrtResetDevice(0) == 0


class Gate:
    """A host function that stops a stream until the event `open` is set, but for 60 s at most."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._function = HOST_FUNCTION(lambda _: self.open.wait(60) and None)
        self.function = ctypes.cast(self._function, ctypes.c_void_p)


def captured(stream: int) -> int:
    graph = out()
    assert api.aclmdlRICaptureEnd(stream, ctypes.byref(graph)) == 0, api.aclGetRecentErrMsg()
    assert graph.value is not None
    return int(graph.value)


def test_a_graph_destroyed_at_work_is_waited_for(stream: int) -> None:
    gate, source, target = Gate(), made("aclrtMalloc", 64, 0), made("aclrtMalloc", 64, 0)
    write(source, b"x" * 64)
    write(target, b"-" * 64)
    assert api.aclmdlRICaptureBegin(stream, 2) == 0
    assert api.aclrtLaunchHostFunc(stream, gate.function, None) == 0
    assert api.aclrtMemcpyAsync(target, 64, source, 64, D2D, stream) == 0
    graph = captured(stream)
    assert api.aclmdlRIExecuteAsync(graph, stream) == 0
    threading.Timer(0.1, gate.open.set).start()
    assert api.aclmdlRIDestroy(graph) == 0
    assert read(target, 64) == b"x" * 64
    assert api.aclrtSynchronizeStream(stream) == 0
    for address in (source, target):
        assert api.aclrtFree(address) == 0


def test_a_graph_waits_for_an_external_event_of_the_outside(stream: int) -> None:
    event, other = made("aclrtCreateEventWithFlag", EXTERNAL), made("aclrtCreateStream")
    gate, source, target = Gate(), made("aclrtMalloc", 64, 0), made("aclrtMalloc", 64, 0)
    write(source, b"x" * 64)
    write(target, b"-" * 64)
    assert api.aclmdlRICaptureBegin(stream, 2) == 0
    assert api.aclrtStreamWaitEvent(stream, event) == 0, api.aclGetRecentErrMsg()
    assert api.aclrtMemcpyAsync(target, 64, source, 64, D2D, stream) == 0
    graph = captured(stream)
    assert api.aclrtLaunchHostFunc(other, gate.function, None) == 0
    assert api.aclrtRecordEvent(event, other) == 0
    assert api.aclmdlRIExecuteAsync(graph, stream) == 0
    assert api.aclrtSynchronizeStreamWithTimeout(stream, 50) == 507046
    assert read(target, 64) == b"-" * 64
    gate.open.set()
    assert api.aclrtSynchronizeStream(stream) == 0
    assert read(target, 64) == b"x" * 64
    assert api.aclmdlRIDestroy(graph) == 0
    assert api.aclrtDestroyStream(other) == 0
    assert api.aclrtDestroyEvent(event) == 0
    for address in (source, target):
        assert api.aclrtFree(address) == 0


def test_a_graph_records_an_external_event_for_the_outside(stream: int) -> None:
    event, other, gate = made("aclrtCreateEventWithFlag", EXTERNAL), made("aclrtCreateStream"), Gate()
    assert api.aclmdlRICaptureBegin(stream, 2) == 0
    assert api.aclrtLaunchHostFunc(stream, gate.function, None) == 0
    assert api.aclrtRecordEvent(event, stream) == 0, api.aclGetRecentErrMsg()
    graph = captured(stream)
    assert api.aclmdlRIExecuteAsync(graph, stream) == 0
    assert api.aclrtStreamWaitEvent(other, event) == 0
    assert api.aclrtSynchronizeStreamWithTimeout(other, 50) == 507046
    gate.open.set()
    assert api.aclrtSynchronizeStream(other) == 0
    assert api.aclmdlRIDestroy(graph) == 0
    assert api.aclrtDestroyStream(other) == 0
    assert api.aclrtDestroyEvent(event) == 0


class Step:
    """A host function of a graph: each run waits until `passes` is given one more pass."""

    def __init__(self) -> None:
        self.begun, self.passes = threading.Semaphore(0), threading.Semaphore(0)
        self._function = HOST_FUNCTION(self._run)
        self.function = ctypes.cast(self._function, ctypes.c_void_p)

    def _run(self, _: object) -> None:
        self.begun.release()
        self.passes.acquire(timeout=60)


class Handshake:
    """A graph on one stream that records an event for the outside after a step, and another stream."""

    def __init__(self, stream: int) -> None:
        self.stream, self.other, self.step = stream, made("aclrtCreateStream"), Step()
        self.event = made("aclrtCreateEventExWithFlag", SYNC)
        assert api.aclmdlRICaptureBegin(stream, 2) == 0
        assert api.aclrtLaunchHostFunc(stream, self.step.function, None) == 0
        assert api.aclrtRecordEventWithFlag(self.event, stream, 1) == 0, api.aclGetRecentErrMsg()
        self.graph = captured(stream)

    def launch(self) -> None:
        assert api.aclmdlRIExecuteAsync(self.graph, self.stream) == 0

    def close(self) -> None:
        self.step.passes.release(8)
        assert api.aclrtSynchronizeStream(self.stream) == 0
        assert api.aclrtSynchronizeStream(self.other) == 0
        assert api.aclmdlRIDestroy(self.graph) == 0
        assert api.aclrtDestroyStream(self.other) == 0
        assert api.aclrtDestroyEvent(self.event) == 0


@pytest.fixture
def handshake(stream: int) -> Iterator[Handshake]:
    two = Handshake(stream)
    yield two
    two.close()


def is_done(stream: int) -> bool:
    status = out(ctypes.c_int)
    assert api.aclrtStreamQuery(stream, ctypes.byref(status)) == 0
    return status.value == 0


def test_wait_after_a_graphs_launch_is_for_its_external_record(handshake: Handshake) -> None:
    handshake.launch()
    assert api.aclrtStreamWaitEvent(handshake.other, handshake.event) == 0
    assert not is_done(handshake.other)
    handshake.step.passes.release()
    assert api.aclrtSynchronizeStreamWithTimeout(handshake.other, 20000) == 0


def test_external_wait_in_a_graph_is_for_the_record_before_its_launch(handshake: Handshake) -> None:
    """The waiting graph begins, after a notify, when the event's last record is a later one that is not reached."""
    notify, third = made("aclrtCreateNotify", 0), made("aclrtCreateStream")
    assert api.aclmdlRICaptureBegin(handshake.other, 2) == 0
    assert api.aclrtStreamWaitEventWithFlag(handshake.other, handshake.event, 0, 1) == 0, api.aclGetRecentErrMsg()
    waits = captured(handshake.other)
    assert api.aclrtWaitAndResetNotify(notify, handshake.other, 0) == 0
    handshake.launch()
    assert api.aclmdlRIExecuteAsync(waits, handshake.other) == 0
    handshake.launch()
    assert api.aclrtRecordNotify(notify, third) == 0
    handshake.step.passes.release()                 # the second execution stays at its step
    code = api.aclrtSynchronizeStreamWithTimeout(handshake.other, 20000)
    handshake.step.passes.release()
    assert api.aclrtSynchronizeStream(handshake.other) == 0
    assert api.aclmdlRIDestroy(waits) == 0
    assert api.aclrtDestroyStream(third) == 0
    assert api.aclrtDestroyNotify(notify) == 0
    assert code == 0


def test_wait_ends_if_the_graph_is_aborted_before_its_external_record(handshake: Handshake) -> None:
    handshake.launch()
    assert api.aclrtStreamWaitEvent(handshake.other, handshake.event) == 0
    assert handshake.step.begun.acquire(timeout=60)
    assert api.aclmdlRIAbort(handshake.graph) == 0
    handshake.step.passes.release()
    assert api.aclrtSynchronizeStreamWithTimeout(handshake.other, 20000) == 0


def test_nested_graph_records_its_external_event_each_time(handshake: Handshake) -> None:
    assert api.aclmdlRICaptureBegin(handshake.stream, 2) == 0
    handshake.launch()
    outer = captured(handshake.stream)
    assert api.aclrtStreamWaitEvent(handshake.other, handshake.event) == 0      # nothing is recorded yet
    assert is_done(handshake.other)
    handshake.step.passes.release(2)
    for _ in range(2):
        assert api.aclmdlRIExecuteAsync(outer, handshake.stream) == 0
        assert api.aclrtSynchronizeStream(handshake.stream) == 0
        assert api.aclrtStreamWaitEvent(handshake.other, handshake.event) == 0
        assert api.aclrtSynchronizeStreamWithTimeout(handshake.other, 20000) == 0
    assert api.aclmdlRIDestroy(outer) == 0


class CondParams(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_void_p), ("type", ctypes.c_int), ("size", ctypes.c_uint32),
                ("graphs", ctypes.POINTER(ctypes.c_void_p))]


def add_condition(stream: int, kind: int, graphs: ctypes.Array[ctypes.c_void_p]) -> int:
    """Add a conditional task to the capture on a stream. Return the address of its condition."""
    status, graph, handle, place = out(ctypes.c_int), out(), out(), out()
    assert api.aclmdlRICaptureGetInfo(stream, ctypes.byref(status), ctypes.byref(graph)) == 0
    assert api.aclmdlRICondHandleCreate(graph, 0, 0, ctypes.byref(handle)) == 0
    assert api.aclmdlRICondHandleGetCondPtr(handle, ctypes.byref(place)) == 0
    add = ctypes.CDLL(sim.library_dir() + "/libascendcl.so").aclmdlRIAddCondTask
    add.argtypes = [CondParams, ctypes.c_void_p, ctypes.c_uint32]
    params = CondParams(handle, kind, len(graphs), graphs)
    assert add(params, stream, 0) == 0, api.aclGetRecentErrMsg()
    assert place.value is not None
    return int(place.value)


def test_a_conditional_task_makes_its_graphs(stream: int) -> None:
    """The call creates the graphs of `modelRIArray`; a capture into each graph defines one branch."""
    inner, memory = made("aclrtCreateStream"), made("aclrtMalloc", 64, 0)
    sources = [made("aclrtMalloc", 64, 0) for _ in range(2)]
    for source, text in zip(sources, (b"y", b"n"), strict=True):
        write(source, text * 64)
    graphs = (ctypes.c_void_p * 2)(12345, None)      # the old contents have no effect
    assert api.aclmdlRICaptureBegin(stream, 2) == 0
    place = add_condition(stream, 0, graphs)
    outer = captured(stream)
    branches = list(graphs)
    assert len({None, 12345, outer, *branches}) == 5
    for branch, source in zip(branches, sources, strict=True):
        assert api.aclmdlRICaptureToModelRIBegin(inner, branch, 2) == 0, api.aclGetRecentErrMsg()
        assert api.aclrtMemcpyAsync(memory, 64, source, 64, D2D, inner) == 0
        assert captured(inner) == branch
    for value, text in ((1, b"y"), (0, b"n"), (7, b"y")):
        write(place, value.to_bytes(8, "little"))
        assert api.aclmdlRIExecuteAsync(outer, stream) == 0
        assert api.aclrtSynchronizeStream(stream) == 0
        assert read(memory, 64) == text * 64
    assert api.aclmdlRICaptureBegin(stream, 2) == 0
    add_condition(stream, 0, graphs)
    second = captured(stream)
    assert not set(graphs) & set(branches), "graphs of another task are no input"
    for graph in (outer, second):
        assert api.aclmdlRIDestroy(graph) == 0
    assert [api.aclmdlRIDestroy(branch) for branch in (*branches, *graphs)] == [107017] * 4, "they went with it"
    for address in (memory, *sources):
        assert api.aclrtFree(address) == 0
    assert api.aclrtDestroyStream(inner) == 0


def test_reports_and_host_functions_have_a_thread_each(stream: int) -> None:
    """A stream can have a thread for reports and another for host functions; each runs only its own functions."""
    seen: list[tuple[str, int]] = []
    note = {name: HOST_FUNCTION(lambda _, name=name: seen.append((name, threading.get_ident())))
            for name in ("report", "host")}
    threads: dict[str, int] = {}
    ready, done = threading.Barrier(3), threading.Event()

    def serve(name: str) -> None:
        threads[name] = threading.get_ident()
        ready.wait(60)
        while not done.is_set():
            getattr(api, "aclrtProcessReport" if name == "report" else "aclrtProcessHostFunc")(20)

    workers = [threading.Thread(target=serve, args=(name,)) for name in note]
    for worker in workers:
        worker.start()
    ready.wait(60)
    assert api.aclrtSubscribeReport(threads["report"], stream) == 0
    assert api.aclrtSubscribeHostFunc(threads["host"], stream) == 0
    assert api.aclrtSubscribeHostFunc(threads["report"], stream) == 107011, "it has one already"
    assert api.aclrtLaunchCallback(ctypes.cast(note["report"], ctypes.c_void_p), None, 1, stream) == 0
    assert api.aclrtLaunchHostFunc(stream, ctypes.cast(note["host"], ctypes.c_void_p), None) == 0
    assert api.aclrtSynchronizeStream(stream) == 0
    assert seen == [("report", threads["report"]), ("host", threads["host"])]
    assert api.aclrtUnSubscribeHostFunc(threads["report"], stream) != 0
    assert api.aclrtUnSubscribeHostFunc(threads["host"], stream) == 0
    assert api.aclrtLaunchHostFunc(stream, ctypes.cast(note["host"], ctypes.c_void_p), None) == 107011
    assert api.aclrtUnSubscribeReport(threads["report"], stream) == 0
    done.set()
    for worker in workers:
        worker.join()


def test_pinned_memory_may_be_registered_as_mapped(stream: int) -> None:
    address, seen = made("aclrtMallocHost", 4096), out()
    assert api.aclrtHostUnregister(address) != 0
    assert api.aclrtHostRegisterV2(address, 4096, MAPPED) == 0, api.aclGetRecentErrMsg()
    assert api.aclrtHostRegisterV2(address, 4096, MAPPED) != 0, "twice"
    assert api.aclrtHostGetDevicePointer(address, ctypes.byref(seen), 0) == 0
    assert seen.value == address
    assert api.aclrtHostUnregister(address) == 0
    assert api.aclrtHostUnregister(address) != 0
    assert api.aclrtHostRegisterV2(address, 4096, PINNED) != 0, "it is pinned already"
    assert api.aclrtHostRegisterV2(address, 1 << 20, MAPPED) != 0, "more than there is"
    assert api.aclrtHostRegisterV2(address, 4096, MAPPED) == 0
    assert api.aclrtFreeHost(address) == 0
    assert api.aclrtHostUnregister(address) != 0, "it went with the memory"


def test_a_models_work_size_is_never_0(stream: int) -> None:
    from acl.tools.onnx_writer import Builder

    b = Builder()
    b.output(b.add("Relu", b.input("x", "float32", [2, 2])), "float32")
    data = b.to_bytes({})
    work, weight = out(ctypes.c_size_t), out(ctypes.c_size_t)
    assert api.aclmdlQuerySizeFromMem(data, len(data), ctypes.byref(work), ctypes.byref(weight)) == 0
    assert work.value > 0
    assert api.aclrtFree(made("aclrtMalloc", work.value, 0)) == 0


@pytest.mark.parametrize(("name", "function"), [
    ("libprofapi.so", "MsprofReportApi"), ("libacl_rt_impl.so", "aclrtMalloc"), ("libnnopbase.so", None),
])
def test_libraries_that_link_commands_name_exist(name: str, function: str | None) -> None:
    library = ctypes.CDLL(f"{sim.library_dir()}/{name}")
    assert function is None or getattr(library, function)
