"""The second process of tests/sim/streams/test_ipc_event.py: `ipc_event_peer.py HANDLE STEP...`."""

from __future__ import annotations

import ctypes
import os
import sys

from acl import sim

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def main(handle: Handle, steps: list[str]) -> None:
    lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    lib.aclrtIpcOpenEventHandle.argtypes = [Handle, ctypes.c_void_p]
    stream, event, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(-1)
    lib.aclInit(None)
    lib.aclrtSetDevice(1)
    lib.aclrtCreateStream(ctypes.byref(stream))
    gate = HOST_FUNCTION(lambda _: sys.stdin.readline() and None)  # stops the stream until a line is read
    for step in steps:
        if step == "open":
            code = lib.aclrtIpcOpenEventHandle(handle, ctypes.byref(event))
        elif step == "wait":
            code = lib.aclrtStreamWaitEvent(stream, event) or lib.aclrtSynchronizeStream(stream)
        elif step == "record-late":
            code = lib.aclrtLaunchHostFunc(stream, gate, None) or lib.aclrtRecordEvent(event, stream)
        elif step == "sync":
            code = lib.aclrtSynchronizeEvent(event)
        elif step == "status":
            lib.aclrtQueryEventStatus(event, ctypes.byref(status))
            code = status.value
        else:  # the step "die": exit without cleaning up
            sys.stdout.flush()
            os._exit(3)
        print(f"{step}:{code}", flush=True)


if __name__ == "__main__":
    main(Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), sys.argv[2:])
