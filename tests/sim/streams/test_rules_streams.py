"""Argument rules of streams, events, callbacks, notifies, values, labels and captures.

Each row is a call, its arguments, and the code that it returns.  The codes are those that the real runtime returned
(shared/probes) or that its sources state.  All rows of a scene are called in one process.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api, out
from support.memory import made
from support.rules import code_of

P, RT, NO_CONTEXT, OTHER_CONTEXT, MODEL, PENDING = 100000, 107000, 107002, 107003, 107005, 107006
SUBSCRIBED, THREAD, NO_CALLBACK, HANDLE = 107011, 107012, 107015, 107017
CAPTURED, NOT_CAPTURED, UNSUPPORTED, INTERNAL = 107027, 107029, 207000, 507000
NULL = None

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda argument: None)


class Scene:
    """The objects that the rows' arguments name, made anew for each row."""

    def __init__(self) -> None:
        self.buffer = (ctypes.c_ubyte * 8192)()
        self.out = ctypes.addressof(self.buffer)
        self.garbage = ctypes.addressof((ctypes.c_ubyte * 4096).from_buffer(self.buffer, 4096))
        self.function = ctypes.cast(HOST_FUNCTION, ctypes.c_void_p).value
        self.made: list[tuple[str, int]] = []
        self.stream = self.own("Stream", "aclrtCreateStream")
        self.second = self.own("Stream", "aclrtCreateStream")
        self.persistent = self.own("Stream", "aclrtCreateStreamWithConfig", 0, 4)
        self.event = self.own("Event", "aclrtCreateEvent")
        self.flagged = self.own("Event", "aclrtCreateEventWithFlag", 1)
        self.timed = self.own("Event", "aclrtCreateEventWithFlag", 8)
        self.ex = self.own("Event", "aclrtCreateEventExWithFlag", 1)
        self.recorded = self.own("Event", "aclrtCreateEvent")
        assert api.aclrtRecordEvent(self.recorded, self.stream) == 0
        self.notify = self.own("Notify", "aclrtCreateNotify", 0)
        self.label = self.own("Label", "aclrtCreateLabel")
        self.labels = ctypes.addressof((ctypes.c_void_p * 1).from_buffer(self.buffer, 2048))
        ctypes.c_void_p.from_address(self.labels).value = self.label
        self.eight = ctypes.addressof(ctypes.c_uint32.from_buffer(self.buffer, 3072))
        ctypes.c_uint32.from_address(self.eight).value = 8
        self.config = api.aclrtCreateStreamConfigHandle()
        self.memory = made("aclrtMalloc", 4096, 0)
        self.dead = made("aclrtCreateStream")
        assert api.aclrtDestroyStream(self.dead) == 0
        self.dead_event = made("aclrtCreateEvent")
        assert api.aclrtDestroyEvent(self.dead_event) == 0
        self.elsewhere, self.foreign = self.foreign_stream()

    def own(self, sort: str, function: str, *arguments: Any) -> int:
        handle = made(function, *arguments)
        self.made.append((f"aclrtDestroy{sort}", handle))
        return handle

    @staticmethod
    def foreign_stream() -> tuple[int, int]:
        """Return a context that is not current, and a stream of it."""
        here = made("aclrtGetCurrentContext")
        context = made("aclrtCreateContext", 0)
        stream = made("aclrtCreateStream")
        assert api.aclrtSetCurrentContext(here) == 0
        return context, stream

    def close(self) -> None:
        assert api.aclrtSynchronizeDevice() == 0
        assert api.aclrtDestroyContext(self.elsewhere) == 0
        assert api.aclrtDestroyStreamConfigHandle(self.config) == 0
        for destroy, handle in self.made:
            assert getattr(api, destroy)(handle) in (0, HANDLE)
        assert api.aclrtFree(self.memory) == 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    scene = Scene()
    yield scene
    scene.close()
    assert api.aclrtResetDevice(0) == 0


# A text is the name of a field of the scene; other values are passed unchanged.
ROWS: list[tuple[str, list[Any], int]] = [
    # The next rows test calls that create and destroy streams.
    ("aclrtCreateStream", [NULL], P),
    ("aclrtCreateStream", ["out"], 0),
    ("aclrtCreateStreamWithConfig", [NULL, 0, 0], P),
    ("aclrtCreateStreamWithConfig", ["out", 0, 3], 0),
    ("aclrtCreateStreamWithConfig", ["out", 7, 8], 0),
    ("aclrtCreateStreamWithConfig", ["out", 8, 0], 0),
    ("aclrtCreateStreamWithConfig", ["out", 0, 0x80], 0),
    ("aclrtCreateStreamWithConfig", ["out", 0, 0x24], RT),
    ("aclrtCreateStreamWithConfig", ["out", 0, 0x30], RT),
    ("aclrtCreateStreamWithConfig", ["out", 0, 0xFFFF], RT),
    ("aclrtCreateStreamV2", [NULL, "config"], P),
    ("aclrtCreateStreamV2", ["out", NULL], 0),
    ("aclrtCreateStreamV2", ["out", "garbage"], P),
    ("aclrtCreateStreamV2", ["out", "config"], 0),
    ("aclrtSetStreamConfigOpt", [NULL, 2, "out", 8], P),
    ("aclrtSetStreamConfigOpt", ["config", 2, NULL, 8], P),
    ("aclrtSetStreamConfigOpt", ["config", 2, "out", 4], P),
    ("aclrtSetStreamConfigOpt", ["config", 9, "out", 8], P),
    ("aclrtSetStreamConfigOpt", ["config", 2, "out", 8], 0),
    ("aclrtSetStreamConfigOpt", ["config", 3, "out", 4], 0),
    ("aclrtSetStreamConfigOpt", ["config", 3, "eight", 4], P),
    ("aclrtDestroyStreamConfigHandle", [NULL], P),
    ("aclrtDestroyStreamConfigHandle", ["garbage"], P),
    ("aclrtDestroyStream", [NULL], P),
    ("aclrtDestroyStream", ["garbage"], HANDLE),
    ("aclrtDestroyStream", ["dead"], HANDLE),
    ("aclrtDestroyStream", ["event"], HANDLE),
    ("aclrtDestroyStream", ["foreign"], OTHER_CONTEXT),
    ("aclrtDestroyStream", ["second"], 0),
    ("aclrtDestroyStreamForce", [NULL], P),
    ("aclrtDestroyStreamForce", ["dead"], HANDLE),
    ("aclrtDestroyStreamForce", ["foreign"], OTHER_CONTEXT),
    ("aclrtDestroyStreamForce", ["second"], 0),
    # The next rows test calls that wait for streams or query whether they are done.
    ("aclrtSynchronizeStream", [NULL], 0),
    ("aclrtSynchronizeStream", ["garbage"], HANDLE),
    ("aclrtSynchronizeStream", ["dead"], HANDLE),
    ("aclrtSynchronizeStream", ["event"], HANDLE),
    ("aclrtSynchronizeStream", ["foreign"], 0),
    ("aclrtSynchronizeStreamWithTimeout", ["stream", -2], RT),
    ("aclrtSynchronizeStreamWithTimeout", ["stream", 0], RT),
    ("aclrtSynchronizeStreamWithTimeout", ["stream", -1], 0),
    ("aclrtSynchronizeStreamWithTimeout", [NULL, 100], 0),
    ("aclrtSynchronizeStreamWithTimeout", ["dead", -2], RT),
    ("aclrtSynchronizeStreamWithTimeout", ["dead", 0], HANDLE),
    ("aclrtSynchronizeDeviceWithTimeout", [-2], RT),
    ("aclrtSynchronizeDeviceWithTimeout", [0], RT),
    ("aclrtSynchronizeDeviceWithTimeout", [-1], 0),
    ("aclrtStreamQuery", ["stream", NULL], P),
    ("aclrtStreamQuery", [NULL, "out"], 0),
    ("aclrtStreamQuery", ["garbage", "out"], HANDLE),
    ("aclrtStreamQuery", ["dead", "out"], HANDLE),
    ("aclrtStreamQuery", ["foreign", "out"], 0),
    # The next rows test queries of a stream's properties.
    ("aclrtStreamGetId", ["stream", NULL], P),
    ("aclrtStreamGetId", [NULL, "out"], 0),
    ("aclrtStreamGetId", ["dead", "out"], HANDLE),
    ("aclrtStreamGetPriority", ["stream", NULL], P),
    ("aclrtStreamGetPriority", [NULL, "out"], 0),
    ("aclrtStreamGetPriority", ["garbage", "out"], HANDLE),
    ("aclrtStreamGetFlags", ["stream", NULL], P),
    ("aclrtStreamGetFlags", [NULL, "out"], 0),
    ("aclrtStreamGetFlags", ["dead", "out"], HANDLE),
    ("aclrtDeviceGetStreamPriorityRange", [NULL, NULL], 0),
    ("aclrtGetStreamAvailableNum", [NULL], P),
    ("aclrtGetStreamAvailableNum", ["out"], 0),
    ("aclrtGetThreadLastTaskId", [NULL], P),
    ("aclrtGetThreadLastTaskId", ["out"], 0),
    ("aclrtCtxGetCurrentDefaultStream", [NULL], P),
    # The next rows test the failure mode, attributes, and calls that stop a stream.
    ("aclrtSetStreamFailureMode", [NULL, 1], RT),
    ("aclrtSetStreamFailureMode", ["dead", 1], HANDLE),
    ("aclrtSetStreamFailureMode", ["stream", 99], 0),
    ("aclrtSetStreamFailureMode", ["foreign", 1], 0),
    ("aclrtSetStreamAttribute", ["stream", 1, NULL], P),
    ("aclrtSetStreamAttribute", ["stream", 0, "out"], RT),
    ("aclrtSetStreamAttribute", ["stream", 6, "out"], RT),
    ("aclrtSetStreamAttribute", ["dead", 1, "out"], HANDLE),
    ("aclrtGetStreamAttribute", ["stream", 1, NULL], P),
    ("aclrtGetStreamAttribute", ["stream", 6, "out"], RT),
    ("aclrtGetStreamAttribute", ["stream", 5, "out"], 0),
    ("aclrtStreamAbort", [NULL], RT),
    ("aclrtStreamAbort", ["garbage"], HANDLE),
    ("aclrtStreamAbort", ["stream"], 0),
    ("aclrtStreamStop", [NULL], RT),
    ("aclrtStreamStop", ["garbage"], HANDLE),
    ("aclrtStreamStop", ["stream"], 0),
    ("aclrtPersistentTaskClean", [NULL], RT),
    ("aclrtPersistentTaskClean", ["stream"], UNSUPPORTED),
    ("aclrtPersistentTaskClean", ["garbage"], HANDLE),
    ("aclrtPersistentTaskClean", ["persistent"], 0),
    ("aclrtDeviceTaskAbort", [99, 100], 107001),
    ("aclrtDeviceTaskAbort", [0, 1000], 0),
    # The next rows test calls that create and destroy events.
    ("aclrtCreateEvent", [NULL], P),
    ("aclrtCreateEventWithFlag", [NULL, 1], P),
    ("aclrtCreateEventWithFlag", ["out", 0], RT),
    ("aclrtCreateEventWithFlag", ["out", 0xB], 0),
    ("aclrtCreateEventWithFlag", ["out", 0x20], 0),
    ("aclrtCreateEventWithFlag", ["out", 0x40], RT),
    ("aclrtCreateEventWithFlag", ["out", 0x80], RT),
    ("aclrtCreateEventWithFlag", ["out", 0x80000000], RT),
    ("aclrtCreateEventExWithFlag", [NULL, 1], P),
    ("aclrtCreateEventExWithFlag", ["out", 0], RT),
    ("aclrtCreateEventExWithFlag", ["out", 9], 0),
    ("aclrtCreateEventExWithFlag", ["out", 0x10], RT),
    ("aclrtCreateEventExWithFlag", ["out", 0x20], RT),
    ("aclrtDestroyEvent", [NULL], P),
    ("aclrtDestroyEvent", ["garbage"], HANDLE),
    ("aclrtDestroyEvent", ["dead_event"], HANDLE),
    ("aclrtDestroyEvent", ["stream"], HANDLE),
    ("aclrtGetEventAvailNum", [NULL], P),
    # The next rows test calls that record, reset and wait for events.
    ("aclrtRecordEvent", [NULL, "stream"], P),
    ("aclrtRecordEvent", ["garbage", "stream"], HANDLE),
    ("aclrtRecordEvent", ["notify", "stream"], HANDLE),
    ("aclrtRecordEvent", ["event", "dead"], HANDLE),
    ("aclrtRecordEvent", ["event", "foreign"], OTHER_CONTEXT),
    ("aclrtRecordEvent", ["event", NULL], 0),
    ("aclrtRecordEventWithFlag", [NULL, "stream", 0], P),
    ("aclrtRecordEventWithFlag", ["ex", "stream", 2], P),
    ("aclrtRecordEventWithFlag", ["ex", "stream", 1], NOT_CAPTURED),
    ("aclrtRecordEventWithFlag", ["event", "stream", 1], UNSUPPORTED),
    ("aclrtRecordEventWithFlag", ["event", "stream", 0], 0),
    ("aclrtResetEvent", [NULL, "stream"], P),
    ("aclrtResetEvent", ["garbage", "stream"], HANDLE),
    ("aclrtResetEvent", ["event", "foreign"], OTHER_CONTEXT),
    ("aclrtResetEvent", ["timed", "stream"], UNSUPPORTED),
    ("aclrtResetEvent", ["ex", "stream"], UNSUPPORTED),
    ("aclrtResetEvent", ["flagged", NULL], 0),
    ("aclrtStreamWaitEvent", ["stream", NULL], P),
    ("aclrtStreamWaitEvent", ["stream", "garbage"], HANDLE),
    ("aclrtStreamWaitEvent", ["dead", "recorded"], HANDLE),
    ("aclrtStreamWaitEvent", ["foreign", "recorded"], OTHER_CONTEXT),
    ("aclrtStreamWaitEvent", ["stream", "event"], RT),
    ("aclrtStreamWaitEvent", ["stream", "timed"], UNSUPPORTED),
    ("aclrtStreamWaitEvent", ["stream", "ex"], 0),
    ("aclrtStreamWaitEvent", [NULL, "recorded"], 0),
    ("aclrtStreamWaitEventWithTimeout", ["stream", NULL, 0], RT),
    ("aclrtStreamWaitEventWithTimeout", ["stream", NULL, -1], RT),
    ("aclrtStreamWaitEventWithTimeout", ["stream", "recorded", -1], RT),
    ("aclrtStreamWaitEventWithTimeout", ["stream", "recorded", 0], 0),
    ("aclrtStreamWaitEventWithFlag", ["stream", NULL, 0, 0], P),
    ("aclrtStreamWaitEventWithFlag", ["stream", "recorded", 0, 2], P),
    ("aclrtStreamWaitEventWithFlag", ["stream", "recorded", 5, 1], P),
    ("aclrtStreamWaitEventWithFlag", ["stream", "recorded", 0, 0], 0),
    # The next rows test queries of events, and waits of the host for them.
    ("aclrtQueryEventStatus", [NULL, "out"], P),
    ("aclrtQueryEventStatus", ["event", NULL], P),
    ("aclrtQueryEventStatus", ["garbage", "out"], HANDLE),
    ("aclrtQueryEvent", [NULL, "out"], P),
    ("aclrtQueryEvent", ["event", NULL], P),
    ("aclrtQueryEvent", ["ex", "out"], UNSUPPORTED),
    ("aclrtQueryEvent", ["garbage", "out"], HANDLE),
    ("aclrtQueryEventWaitStatus", ["event", NULL], P),
    ("aclrtQueryEventWaitStatus", ["ex", "out"], UNSUPPORTED),
    ("aclrtQueryEventWaitStatus", ["event", "out"], 0),
    ("aclrtSynchronizeEvent", [NULL], P),
    ("aclrtSynchronizeEvent", ["garbage"], HANDLE),
    ("aclrtSynchronizeEvent", ["event"], 0),
    ("aclrtSynchronizeEventWithTimeout", [NULL, 100], P),
    ("aclrtSynchronizeEventWithTimeout", [NULL, -2], RT),
    ("aclrtSynchronizeEventWithTimeout", ["event", 0], RT),
    ("aclrtSynchronizeEventWithTimeout", ["event", -2], RT),
    ("aclrtSynchronizeEventWithTimeout", ["event", -1], 0),
    ("aclrtEventElapsedTime", [NULL, "event", "event"], P),
    ("aclrtEventElapsedTime", ["out", NULL, "event"], P),
    ("aclrtEventElapsedTime", ["out", "event", NULL], P),
    ("aclrtEventElapsedTime", ["out", "garbage", "event"], HANDLE),
    ("aclrtEventElapsedTime", ["out", "event", "event"], INTERNAL),
    ("aclrtEventGetTimestamp", [NULL, "out"], P),
    ("aclrtEventGetTimestamp", ["event", NULL], P),
    ("aclrtEventGetTimestamp", ["event", "out"], INTERNAL),
    ("aclrtGetEventId", ["garbage", "out"], HANDLE),
    ("aclrtGetEventId", ["event", NULL], P),
    ("aclrtGetEventId", ["event", "out"], INTERNAL),
    ("aclrtGetEventId", ["ex", "out"], INTERNAL),
    ("aclrtGetEventId", ["flagged", "out"], 0),
    ("aclrtGetEventId", ["recorded", "out"], 0),
    # The next rows test callbacks.
    ("aclrtLaunchHostFunc", ["stream", NULL, NULL], RT),
    ("aclrtLaunchHostFunc", ["garbage", NULL, NULL], HANDLE),
    ("aclrtLaunchHostFunc", ["foreign", "function", NULL], OTHER_CONTEXT),
    ("aclrtLaunchHostFunc", [NULL, "function", NULL], 0),
    ("aclrtLaunchCallback", [NULL, NULL, 1, "stream"], RT),
    ("aclrtLaunchCallback", ["function", NULL, 7, "stream"], P),
    ("aclrtLaunchCallback", ["function", NULL, 1, "garbage"], HANDLE),
    ("aclrtLaunchCallback", ["function", NULL, 1, "stream"], NO_CALLBACK),
    ("aclrtSubscribeReport", [5, "garbage"], HANDLE),
    ("aclrtUnSubscribeReport", [987654321, "stream"], THREAD),
    ("aclrtProcessReport", [0], P),
    ("aclrtProcessReport", [-2], P),
    ("aclrtProcessReport", [10], THREAD),
    ("aclrtSubscribeHostFunc", [5, "dead"], HANDLE),
    ("aclrtUnSubscribeHostFunc", [987654321, "stream"], THREAD),
    ("aclrtProcessHostFunc", [0], P),
    ("aclrtProcessHostFunc", [10], THREAD),
    ("aclrtExceptionInfoCallbackRegister", [NULL], RT),
    ("aclrtExceptionInfoCallbackUnregister", [NULL], RT),
    ("aclrtExceptionInfoCallbackUnregister", ["function"], 0),
    ("aclrtSetExceptionInfoCallback", [NULL], 0),
    ("aclrtGetArgsFromExceptionInfo", [NULL, "out", "out"], -1),
    ("aclrtGetFuncHandleFromExceptionInfo", [NULL, "out"], -1),
    ("aclrtRegStreamStateCallback", [NULL, "function", NULL], P),
    ("aclrtRegStreamStateCallback", [b"nobody", NULL, NULL], 0),
    ("aclrtRegDeviceStateCallback", [NULL, "function", NULL], P),
    ("aclrtRegDeviceStateCallback", [b"nobody", NULL, NULL], 0),
    ("aclrtSetDeviceTaskAbortCallback", [NULL, "function", NULL], P),
    ("aclrtSetDeviceTaskAbortCallback", [b"nobody", NULL, NULL], 0),
    # The next rows test notifies.
    ("aclrtCreateNotify", [NULL, 0], P),
    ("aclrtCreateNotify", ["out", 2], RT),
    ("aclrtCreateNotify", ["out", 1 << 40], RT),
    ("aclrtDestroyNotify", [NULL], P),
    ("aclrtDestroyNotify", ["event"], HANDLE),
    ("aclrtGetNotifyId", ["notify", NULL], P),
    ("aclrtGetNotifyId", ["garbage", "out"], HANDLE),
    ("aclrtRecordNotify", [NULL, "stream"], P),
    ("aclrtRecordNotify", ["garbage", "stream"], HANDLE),
    ("aclrtRecordNotify", ["notify", "garbage"], HANDLE),
    ("aclrtRecordNotify", ["notify", "foreign"], OTHER_CONTEXT),
    ("aclrtRecordNotify", ["notify", NULL], 0),
    ("aclrtWaitAndResetNotify", [NULL, "stream", 0], P),
    ("aclrtWaitAndResetNotify", ["notify", "garbage", 0], HANDLE),
    ("aclrtNotifyBatchReset", [NULL, 1], P),
    ("aclrtNotifyBatchReset", ["out", 0], RT),
    ("aclrtNotifyGetExportKey", [NULL, "out", 65, 0], P),
    ("aclrtNotifyGetExportKey", ["notify", NULL, 65, 0], P),
    ("aclrtNotifyGetExportKey", ["notify", "out", 0, 0], RT),
    ("aclrtNotifyGetExportKey", ["garbage", "out", 65, 9], HANDLE),
    ("aclrtNotifyGetExportKey", ["notify", "out", 64, 0], RT),
    ("aclrtNotifyGetExportKey", ["notify", "out", 65, 9], RT),
    ("aclrtNotifyGetExportKey", ["notify", "out", 65, 0], 0),
    ("aclrtNotifyImportByKey", [NULL, b"k", 0], P),
    ("aclrtNotifyImportByKey", ["out", NULL, 0], P),
    ("aclrtNotifyImportByKey", ["out", b"k", 0], RT),
    ("aclrtNotifySetImportPid", [NULL, "out", 1], P),
    ("aclrtNotifySetImportPid", ["notify", NULL, 1], P),
    ("aclrtNotifySetImportPid", ["notify", "out", 0], RT),
    ("aclrtCntNotifyCreate", [NULL, 0], RT),
    ("aclrtCntNotifyCreate", ["out", 5], RT),
    ("aclrtCntNotifyDestroy", [NULL], RT),
    ("aclrtCntNotifyRecord", [NULL, "stream", "out"], RT),
    ("aclrtCntNotifyRecord", [NULL, "stream", NULL], P),
    ("aclrtCntNotifyRecord", ["garbage", "stream", NULL], P),
    ("aclrtCntNotifyRecord", ["garbage", "stream", "out"], HANDLE),
    ("aclrtCntNotifyWaitWithTimeout", ["garbage", "stream", NULL], P),
    ("aclrtCntNotifyReset", [NULL, "stream"], RT),
    ("aclrtCntNotifyGetId", [NULL, "out"], RT),
    # The next rows test values in memory that streams write and wait for.
    ("aclrtValueWrite", [NULL, 1, 0, "stream"], P),
    ("aclrtValueWrite", ["memory", 1, 1, "stream"], RT),
    ("aclrtValueWrite", ["memory", 1, 0, "garbage"], HANDLE),
    ("aclrtValueWrite", ["memory", 1, 0, NULL], 0),
    ("aclrtValueWait", [NULL, 1, 0, "stream"], P),
    ("aclrtValueWait", ["memory", 1, 4, "stream"], RT),
    ("aclrtValueWait", ["memory", 1, 0, "foreign"], OTHER_CONTEXT),
    # The next rows test labels and switches.
    ("aclrtCreateLabel", [NULL], P),
    ("aclrtSetLabel", [NULL, "stream"], P),
    ("aclrtSetLabel", ["label", NULL], P),
    ("aclrtSetLabel", ["label", "stream"], MODEL),
    ("aclrtDestroyLabel", [NULL], P),
    ("aclrtDestroyLabel", ["stream"], HANDLE),
    ("aclrtCreateLabelList", [NULL, 2, "out"], P),
    ("aclrtCreateLabelList", ["labels", 1, NULL], P),
    ("aclrtCreateLabelList", ["labels", 0, "out"], RT),
    ("aclrtCreateLabelList", ["labels", 1, "out"], 0),
    ("aclrtDestroyLabelList", [NULL], P),
    ("aclrtSwitchLabelByIndex", [NULL, 2, "garbage", "stream"], P),
    ("aclrtSwitchLabelByIndex", ["memory", 2, NULL, "stream"], P),
    ("aclrtSwitchLabelByIndex", ["memory", 2, "garbage", NULL], P),
    ("aclrtSwitchLabelByIndex", ["memory", 0, "garbage", "stream"], MODEL),
    ("aclrtActiveStream", ["second", "stream"], MODEL),
    ("aclrtActiveStream", [NULL, "stream"], P),
    ("aclrtActiveStream", ["second", NULL], P),
    ("aclrtSwitchStream", ["memory", 0, "memory", 0, "second", NULL, NULL], P),
    ("aclrtSwitchStream", ["memory", 0, "memory", 0, NULL, NULL, "stream"], P),
    ("aclrtSwitchStream", ["memory", 0, "memory", 0, "second", "stream", "stream"], P),
    ("aclrtSwitchStream", ["memory", 0, "memory", 0, "second", NULL, "stream"], MODEL),
    ("aclrtSwitchStream", ["memory", 6, "memory", 0, "second", NULL, "stream"], RT),
    ("aclrtSwitchStream", ["memory", 0, "memory", 2, "second", NULL, "stream"], RT),
    # The next rows test captures and graphs.
    ("aclmdlRICaptureBegin", [NULL, 0], P),
    ("aclmdlRICaptureBegin", ["stream", 3], RT),
    ("aclmdlRICaptureBegin", ["garbage", 0], HANDLE),
    ("aclmdlRICaptureBegin", ["foreign", 0], OTHER_CONTEXT),
    ("aclmdlRICaptureEnd", [NULL, "out"], P),
    ("aclmdlRICaptureEnd", ["stream", NULL], RT),
    ("aclmdlRICaptureEnd", ["stream", "out"], NOT_CAPTURED),
    ("aclmdlRICaptureGetInfo", [NULL, "out", "out"], P),
    ("aclmdlRICaptureGetInfo", ["stream", NULL, NULL], P),
    ("aclmdlRICaptureGetInfo", ["stream", "out", NULL], 0),
    ("aclmdlRICaptureGetInfo", ["stream", NULL, "out"], 0),
    ("aclmdlRICaptureThreadExchangeMode", [NULL], P),
    ("aclmdlRIExecuteAsync", [NULL, "stream"], P),
    ("aclmdlRIExecuteAsync", ["garbage", "stream"], HANDLE),
    ("aclmdlRIExecute", [NULL, -1], P),
    ("aclmdlRIDestroy", [NULL], P),
    ("aclmdlRIDestroy", ["garbage"], HANDLE),
    ("aclmdlRIBuildBegin", [NULL, 0], P),
    ("aclmdlRIBindStream", [NULL, "stream", 0], P),
    ("aclmdlRISetName", [NULL, b"x"], P),
    ("aclmdlRIGetName", ["garbage", 4, "out"], HANDLE),
    ("aclmdlRIGetId", ["garbage", "out"], HANDLE),
]


@pytest.mark.parametrize(("function", "arguments", "code"), ROWS, ids=lambda value: str(value)[:60])
def test_stream_call_returns_the_documented_code(scene: Scene, function: str, arguments: list[Any], code: int) -> None:
    assert code_of(scene, function, arguments) == code


@pytest.mark.parametrize("function", sorted({row[0] for row in ROWS}))
def test_each_stream_function_has_a_test_row_with_a_failure(function: str) -> None:
    trivial = {"aclrtDeviceGetStreamPriorityRange", "aclrtSetExceptionInfoCallback"}
    assert function in trivial or any(code != 0 for name, _, code in ROWS if name == function)


def test_flags_that_are_unknown_are_not_kept(scene: Scene) -> None:
    flags = out(ctypes.c_uint32)
    for asked, kept in ((0, 0), (1, 1), (2, 2), (3, 3), (8, 8), (11, 11), (0x40, 0), (0x80, 0)):
        stream = made("aclrtCreateStreamWithConfig", 0, asked)
        assert api.aclrtStreamGetFlags(stream, ctypes.byref(flags)) == 0
        assert flags.value == kept
        assert api.aclrtDestroyStream(stream) == 0


def test_stop_on_failure_of_a_stream_cannot_be_switched_off(scene: Scene) -> None:
    assert api.aclrtSetStreamFailureMode(scene.stream, 2) == 0
    assert api.aclrtSetStreamFailureMode(scene.stream, 3) == 0
    assert api.aclrtSetStreamFailureMode(scene.stream, 0) == UNSUPPORTED
    assert api.aclrtSetStreamFailureMode(scene.stream, 1) == 0


def test_a_thread_without_a_context_gets_107002(scene: Scene) -> None:
    answers: list[int] = []

    def ask() -> None:
        status = out(ctypes.c_int)
        answers.extend([
            api.aclrtSynchronizeStream(scene.stream),
            api.aclrtSynchronizeStream(None),
            api.aclrtSynchronizeDevice(),
            api.aclrtStreamQuery(scene.stream, ctypes.byref(status)),
            api.aclrtCreateEvent(ctypes.byref(out())),
            api.aclrtRecordEvent(scene.event, scene.stream),
            api.aclrtSynchronizeEvent(scene.event),
            api.aclrtQueryEventStatus(scene.event, ctypes.byref(status)),
            api.aclrtSynchronizeStream(scene.dead),
        ])

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [NO_CONTEXT] * 6 + [0, 0, HANDLE]


def test_time_of_a_pending_event_and_of_an_unrecorded_event_give_different_codes(scene: Scene) -> None:
    begin, end = made("aclrtCreateEventWithFlag", 8), made("aclrtCreateEventWithFlag", 8)
    ms, stamp = out(ctypes.c_float), out(ctypes.c_uint64)
    gate = threading.Event()
    hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(60) and None)
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), begin, end) == INTERNAL
    assert api.aclrtLaunchHostFunc(scene.stream, ctypes.cast(hold, ctypes.c_void_p), None) == 0
    assert api.aclrtRecordEvent(begin, scene.stream) == 0
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), begin, end) == INTERNAL, "whichever was not recorded"
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), end, begin) == INTERNAL
    assert api.aclrtRecordEvent(end, scene.stream) == 0
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), begin, end) == PENDING
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), end, begin) == PENDING
    assert api.aclrtEventGetTimestamp(end, ctypes.byref(stamp)) == PENDING
    gate.set()
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    assert api.aclrtEventElapsedTime(ctypes.byref(ms), begin, end) == 0
    for event in (begin, end):
        assert api.aclrtDestroyEvent(event) == 0


def test_an_ex_event_never_recorded_is_complete(scene: Scene) -> None:
    status = out(ctypes.c_int)
    for event, complete in ((scene.ex, 1), (scene.event, 0), (scene.flagged, 0)):
        assert api.aclrtQueryEventStatus(event, ctypes.byref(status)) == 0
        assert status.value == complete


def test_destroying_a_context_waits_for_its_streams(scene: Scene) -> None:
    """One stream of the context waits for an event of another one, which is recorded after a host function."""
    before = made("aclrtGetCurrentContext")
    context, event = made("aclrtCreateContext", 0), made("aclrtCreateEventWithFlag", 1)
    first, second, done = made("aclrtCreateStream"), made("aclrtCreateStream"), []
    gate = threading.Event()
    hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(60) and None)
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: done.append(1))
    assert api.aclrtLaunchHostFunc(second, ctypes.cast(hold, ctypes.c_void_p), None) == 0
    assert api.aclrtRecordEvent(event, second) == 0
    assert api.aclrtStreamWaitEvent(first, event) == 0
    assert api.aclrtLaunchHostFunc(first, ctypes.cast(note, ctypes.c_void_p), None) == 0
    threading.Timer(0.1, gate.set).start()
    assert api.aclrtDestroyContext(context) == 0
    assert done == [1]
    assert api.aclrtDestroyEvent(event) == 0
    assert api.aclrtSetCurrentContext(before) == 0


def test_a_notify_is_destroyed_within_a_context(scene: Scene) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(api.aclrtDestroyNotify(scene.notify)))
    thread.start()
    thread.join()
    assert codes == [NO_CONTEXT]


def test_asynchronous_free_to_a_memory_pool_refuses_the_default_stream(scene: Scene) -> None:
    assert api.aclrtMemPoolFreeAsync(scene.memory, None) == INTERNAL


def test_batch_reset_stops_at_the_bad_notify(scene: Scene) -> None:
    """The notifies before the bad one are reset; the notifies after it are not."""
    notifies = [scene.own("Notify", "aclrtCreateNotify", 0) for _ in range(2)]
    for notify in notifies:
        assert api.aclrtRecordNotify(notify, scene.stream) == 0
    assert api.aclrtSynchronizeStream(scene.stream) == 0
    batch = (ctypes.c_void_p * 3)(notifies[0], scene.event, notifies[1])
    assert api.aclrtNotifyBatchReset(batch, 3) == HANDLE
    assert api.aclrtWaitAndResetNotify(notifies[1], scene.stream, 0) == 0
    assert api.aclrtSynchronizeStreamWithTimeout(scene.stream, 20000) == 0
    assert api.aclrtWaitAndResetNotify(notifies[0], scene.second, 0) == 0
    assert api.aclrtSynchronizeStreamWithTimeout(scene.second, 20) == 507046
    assert api.aclrtRecordNotify(notifies[0], scene.stream) == 0
