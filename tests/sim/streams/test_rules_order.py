"""In which order arguments are checked, and which codes become the thread's last error.

The runtime first checks in its outer layer for NULL, then whether handles are live, then sizes and flags, and
then whether a context is current and owns the stream.  A code that is only the answer to a query ("which
device is current", "is this supported for this event") does not become the last error.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.calls import api, out

RT, NO_CONTEXT, MEMORY_TYPE, HANDLE, UNSUPPORTED = 107000, 107002, 107016, 107017, 207000

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: None)


def made(function: str, *arguments: Any) -> int:
    """Return a handle that `function` creates."""
    handle = out()
    assert getattr(api, function)(ctypes.byref(handle), *arguments) == 0, function
    assert handle.value is not None
    return handle.value


class Scene:
    """The objects that the rows' calls use."""

    def __init__(self) -> None:
        self.buffer = (ctypes.c_ubyte * 8192)()
        self.a = ctypes.addressof(self.buffer)
        self.b = self.a + 4096
        self.function = ctypes.cast(HOST_FUNCTION, ctypes.c_void_p).value
        self.stream = made("aclrtCreateStream")
        self.stopping = made("aclrtCreateStream")
        assert api.aclrtSetStreamFailureMode(self.stopping, 1) == 0
        self.timed = made("aclrtCreateEventWithFlag", 8)
        self.ex = made("aclrtCreateEventExWithFlag", 1)
        self.external = made("aclrtCreateEventWithFlag", 0x20)

    def close(self) -> None:
        for stream in (self.stream, self.stopping):
            assert api.aclrtDestroyStream(stream) == 0
        for event in (self.timed, self.ex, self.external):
            assert api.aclrtDestroyEvent(event) == 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    scene = Scene()
    yield scene
    scene.close()
    assert api.aclrtResetDevice(0) == 0


def in_a_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread that never set a device and return its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


# Calls without a current context.  A text is the name of a field of the scene; other values are passed unchanged.
WITHOUT_CONTEXT: list[tuple[str, list[Any], int]] = [
    ("aclrtMemcpy", ["a", 63, "b", 64, 1], RT),
    ("aclrtMemcpyAsync", ["a", 63, "b", 64, 1, None], RT),
    ("aclrtMemcpyAsync", ["a", 63, "b", 64, 1, "stream"], RT),
    ("aclrtMemcpyAsync", ["a", 63, "b", 64, 1, "b"], HANDLE),
    ("aclrtMemcpyAsync", ["a", 64, "b", 64, 1, None], NO_CONTEXT),
    ("aclrtMemsetAsync", ["a", 63, 0, 64, None], RT),
    ("aclrtMemsetAsync", ["a", 63, 0, 64, "b"], HANDLE),
    ("aclrtMemset", ["a", 63, 0, 64], NO_CONTEXT),
    ("aclrtMemcpy2d", ["a", 64, "b", 64, 32, 1 << 30, 1], RT),
    ("aclrtReduceAsync", ["a", "b", 16, 99, 0, None, None], RT),
    ("aclrtLaunchHostFunc", [None, None, None], RT),
    ("aclrtLaunchHostFunc", [None, "function", None], NO_CONTEXT),
    ("aclrtLaunchCallback", [None, None, 1, None], RT),
    ("aclrtGetMemInfo", [18, "a", "b"], MEMORY_TYPE),
    ("aclrtGetMemInfo", [1, "a", "b"], NO_CONTEXT),
    ("aclrtResetEvent", ["timed", "stream"], UNSUPPORTED),
    ("aclrtStreamWaitEvent", ["stream", "timed"], UNSUPPORTED),
    ("aclrtStreamWaitEvent", ["b", "timed"], HANDLE),
]


@pytest.mark.parametrize(("function", "arguments", "code"), WITHOUT_CONTEXT, ids=lambda value: str(value)[:60])
def test_sizes_and_flags_are_checked_before_the_context(
    scene: Scene, function: str, arguments: list[Any], code: int
) -> None:
    values = [getattr(scene, a) if isinstance(a, str) else a for a in arguments]
    assert in_a_thread(lambda: getattr(api, function)(*values)) == code


def code_and_last_error(function: str, values: list[Any]) -> tuple[int, int]:
    api.aclrtGetLastError(0)
    return getattr(api, function)(*values), api.aclrtGetLastError(0)


ANSWERS_ONLY: list[tuple[str, list[Any], int]] = [
    ("aclrtGetDevice", ["a"], NO_CONTEXT),
    ("aclrtGetCurrentContext", ["a"], NO_CONTEXT),
    ("aclrtCreateNotify", ["a", 0], NO_CONTEXT),
    ("aclrtDeviceEnablePeerAccess", [1, 0], NO_CONTEXT),
    ("aclrtDeviceDisablePeerAccess", [1], NO_CONTEXT),
]


@pytest.mark.parametrize(("function", "arguments", "code"), ANSWERS_ONLY, ids=lambda value: str(value)[:60])
def test_missing_context_is_not_remembered_as_an_error_by_queries(
    scene: Scene, function: str, arguments: list[Any], code: int
) -> None:
    values = [getattr(scene, a) if isinstance(a, str) else a for a in arguments]
    assert in_a_thread(lambda: code_and_last_error(function, values)) == (code, 0)


def test_missing_context_is_an_error_of_calls_that_need_one(scene: Scene) -> None:
    values = [scene.a, 64, 0]
    assert in_a_thread(lambda: code_and_last_error("aclrtMalloc", values)) == (NO_CONTEXT, NO_CONTEXT)


NOT_REMEMBERED: list[tuple[str, list[Any], int]] = [
    ("aclrtCtxGetSysParamOpt", [2, "a"], 107021),
    ("aclrtResetEvent", ["timed", "stream"], UNSUPPORTED),
    ("aclrtQueryEvent", ["ex", "a"], UNSUPPORTED),
    ("aclrtStreamWaitEvent", ["stream", "timed"], UNSUPPORTED),
    ("aclrtSetStreamFailureMode", ["stopping", 0], UNSUPPORTED),
    ("aclmdlRIBuildBegin", ["a", 5], RT),
    ("aclmdlRIBindStream", ["a", "stream", 5], RT),
]


@pytest.mark.parametrize(("function", "arguments", "code"), NOT_REMEMBERED, ids=lambda value: str(value)[:60])
def test_error_code_of_a_refused_call_is_not_the_last_error(
    scene: Scene, function: str, arguments: list[Any], code: int
) -> None:
    values = [getattr(scene, a) if isinstance(a, str) else a for a in arguments]
    assert code_and_last_error(function, values) == (code, 0)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("aclrtQueryEventStatus", ["external", "a"]),
        ("aclrtQueryEvent", ["external", "a"]),
        ("aclrtQueryEventWaitStatus", ["external", "a"]),
        ("aclrtSynchronizeEvent", ["external"]),
        ("aclrtSynchronizeEventWithTimeout", ["external", 10]),
        ("aclrtEventElapsedTime", ["a", "external", "external"]),
        ("aclrtEventGetTimestamp", ["external", "a"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_external_event_cannot_be_queried_or_waited_for_by_the_host(
    scene: Scene, function: str, arguments: list[Any]
) -> None:
    values = [getattr(scene, a) for a in arguments[:1]] + [
        getattr(scene, a) if isinstance(a, str) else a for a in arguments[1:]
    ]
    assert getattr(api, function)(*values) == UNSUPPORTED


def test_event_refuses_a_default_record_after_an_external_record_was_tried(scene: Scene) -> None:
    external, default = 1, 0
    codes = [api.aclrtRecordEventWithFlag(scene.ex, scene.stream, flag) for flag in (external, default, external)]
    assert codes == [107029, RT, 107029]


def test_event_waited_for_by_default_refuses_an_external_wait(scene: Scene) -> None:
    external, default = 1, 0
    codes = [api.aclrtStreamWaitEventWithFlag(scene.stream, scene.ex, 0, flag) for flag in (default, external, default)]
    assert codes == [0, RT, 0]


def test_binary_data_is_only_read_when_it_is_loaded(scene: Scene) -> None:
    binary = api.aclrtCreateBinary(scene.a, (1 << 64) - 1)
    assert binary
    assert api.aclrtDestroyBinary(binary) == 0


def test_a_persistent_stream_is_never_waited_for(scene: Scene) -> None:
    stream = made("aclrtCreateStreamWithConfig", 0, 4)
    status = ctypes.c_int(-1)
    assert api.aclrtLaunchHostFunc(stream, scene.function, None) == 0
    calls = [
        lambda: api.aclrtSynchronizeStream(stream),
        lambda: api.aclrtSynchronizeStreamWithTimeout(stream, 5),
        lambda: api.aclrtSynchronizeStreamWithTimeout(stream, 0),
        lambda: api.aclrtStreamQuery(stream, ctypes.addressof(status)),
    ]
    assert [call() for call in calls] == [0, 0, RT, 0]
    assert [in_a_thread(call) for call in calls] == [0, 0, RT, 0]
    assert status.value == 0
    assert api.aclrtDestroyStream(stream) == 0


def test_a_stream_that_is_captured_is_not_destroyed(scene: Scene) -> None:
    model = out()
    assert api.aclmdlRICaptureBegin(scene.stream, 2) == 0
    assert api.aclrtDestroyStream(scene.stream) == 107027
    assert api.aclrtDestroyStreamForce(scene.stream) == 107027
    assert in_a_thread(lambda: api.aclrtSynchronizeStream(scene.stream)) == 107027
    assert api.aclmdlRICaptureEnd(scene.stream, ctypes.byref(model)) == 0
    assert api.aclmdlRIDestroy(model) == 0


def test_a_stream_of_host_functions_takes_no_thread(scene: Scene) -> None:
    assert api.aclrtLaunchHostFunc(scene.stream, scene.function, None) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    codes = [
        api.aclrtSubscribeReport(7, scene.stream),
        api.aclrtUnSubscribeReport(7, scene.stream),
        api.aclrtLaunchCallback(scene.function, None, 1, scene.stream),
    ]
    assert codes == [107011, 107011, 107011]
