"""IPC events: one event, two processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.calls import api, out
from support.child import run_python

IPC, SYNC = 0x40, 0x1
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

OTHER = Path(__file__).parents[2] / "support/ipc_event_peer.py"


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


class Scene:
    def __init__(self) -> None:
        api.aclInit(None)
        assert api.aclrtSetDevice(0) == 0
        self.stream, self.event, self.handle = out(), out(), Handle()
        assert api.aclrtCreateStream(ctypes.byref(self.stream)) == 0
        assert api.aclrtCreateEventExWithFlag(ctypes.byref(self.event), IPC) == 0
        assert api.aclrtIpcGetEventHandle(self.event, ctypes.addressof(self.handle)) == 0
        self.gate = threading.Event()
        self.keep = HOST_FUNCTION(lambda _: self.gate.wait(30) and None)

    def record_late(self) -> None:
        """Queue a record of the event behind a host function that waits for the gate."""
        assert api.aclrtLaunchHostFunc(self.stream, ctypes.cast(self.keep, ctypes.c_void_p), None) == 0
        assert api.aclrtRecordEvent(self.event, self.stream) == 0

    def peer(self, *steps: str) -> subprocess.Popen[str]:
        line = [sys.executable, str(OTHER), bytes(self.handle).hex(), *steps]
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def status(self) -> int:
        found = ctypes.c_int(-1)
        assert api.aclrtQueryEventStatus(self.event, ctypes.byref(found)) == 0
        return found.value


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.gate.set()
    assert api.aclrtSynchronizeStream(made.stream) == 0
    assert api.aclrtDestroyEvent(made.event) == 0
    assert api.aclrtDestroyStream(made.stream) == 0


def answers(peer: subprocess.Popen[str]) -> list[str]:
    text, _ = peer.communicate(timeout=300)
    return text.split()


def test_ipc_event_recorded_here_is_waited_for_by_another_process(scene: Scene) -> None:
    scene.record_late()
    peer = scene.peer("open", "wait", "status")
    assert peer.stdout is not None and peer.stdout.readline() == "open:0\n"
    threading.Timer(0.2, scene.gate.set).start()
    assert answers(peer) == ["wait:0", "status:1"]
    assert scene.status() == 1


def test_ipc_event_recorded_by_another_process_is_waited_for_here(scene: Scene) -> None:
    peer = scene.peer("open", "record-late", "sync")
    assert peer.stdin is not None and peer.stdout is not None
    assert [peer.stdout.readline().strip() for _ in range(2)] == ["open:0", "record-late:0"]
    assert scene.status() == 0
    assert api.aclrtStreamWaitEvent(scene.stream, scene.event) == 0
    assert api.aclrtSynchronizeStreamWithTimeout(scene.stream, 50) == 507046
    print(file=peer.stdin, flush=True)
    assert api.aclrtSynchronizeStreamWithTimeout(scene.stream, 20000) == 0
    assert scene.status() == 1
    assert answers(peer) == ["sync:0"]


def test_wait_for_an_ipc_event_times_out(scene: Scene) -> None:
    scene.record_late()
    assert api.aclrtSynchronizeEventWithTimeout(scene.event, 50) == 507047
    scene.gate.set()
    assert api.aclrtSynchronizeEvent(scene.event) == 0


def test_ipc_event_of_a_process_that_dies_ends_all_waits(scene: Scene) -> None:
    peer = scene.peer("open", "record-late", "die")
    assert peer.wait(60) == 3
    assert answers(peer) == ["open:0", "record-late:0"]
    assert api.aclrtSynchronizeEventWithTimeout(scene.event, 20000) == 0


def test_ipc_event_of_a_zombie_process_ends_all_waits(scene: Scene) -> None:
    with scene.peer("open", "record-late", "sync") as peer:
        assert peer.stdout is not None
        assert [peer.stdout.readline() for _ in range(2)] == ["open:0\n", "record-late:0\n"]
        assert api.aclrtStreamWaitEvent(scene.stream, scene.event) == 0
        os.kill(peer.pid, signal.SIGKILL)
        os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOWAIT)
        assert api.aclrtSynchronizeStreamWithTimeout(scene.stream, 20000) == 0
        assert scene.status() == 1


def test_ipc_handle_of_a_destroyed_event_is_refused(scene: Scene) -> None:
    other, handle = out(), Handle()
    assert api.aclrtCreateEventExWithFlag(ctypes.byref(other), IPC) == 0
    assert api.aclrtIpcGetEventHandle(other, ctypes.addressof(handle)) == 0
    assert api.aclrtDestroyEvent(other) == 0
    mine, scene.handle = scene.handle, handle
    assert answers(scene.peer("open")) == ["open:107000"]
    scene.handle = mine


def test_ipc_event_refuses_unsupported_flags_and_calls(scene: Scene) -> None:
    plain, handle = out(), Handle()
    assert api.aclrtResetEvent(scene.event, scene.stream) == 207000
    assert api.aclrtCreateEventExWithFlag(ctypes.byref(plain), IPC | SYNC) == 107000
    assert api.aclrtCreateEventExWithFlag(ctypes.byref(plain), SYNC) == 0
    assert api.aclrtIpcGetEventHandle(plain, ctypes.addressof(handle)) == 107000
    assert api.aclrtDestroyEvent(plain) == 0
    assert api.aclrtIpcGetEventHandle(plain, ctypes.addressof(handle)) == 107017


def test_ipc_events_are_refused_on_a_chip_without_them() -> None:
    done = run_python("""
        import ctypes
        from acl import sim
        lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        lib.aclInit(None); lib.aclrtSetDevice(0)
        event = ctypes.c_void_p()
        print(lib.aclrtCreateEventExWithFlag(ctypes.byref(event), 0x40))
    """, ACL_SIM_SOC="Ascend310P3")
    assert done.stdout.split() == ["207000"], done.stderr
