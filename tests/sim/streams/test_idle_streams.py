"""Idle streams cost nothing: the work of one stream wakes no thread of another."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType

from support.calls import api, out

STREAMS, TASKS = 300, 2000


def wakes(name: str) -> int:
    """Return how often the threads whose names begin with `name` went to sleep."""
    total = 0
    for status in Path("/proc/self/task").glob("*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        if fields["Name"].startswith(name):
            total += int(fields["voluntary_ctxt_switches"])
    return total


def test_busy_stream_does_not_wake_the_threads_of_idle_streams(sim: ModuleType) -> None:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    memory, streams = out(), [out() for _ in range(STREAMS)]
    assert api.aclrtMalloc(ctypes.byref(memory), 64, 0) == 0

    def use(stream: ctypes.c_void_p) -> None:
        assert api.aclrtMemsetAsync(memory, 64, 0, 64, stream) == 0
        assert api.aclrtSynchronizeStream(stream) == 0

    for stream in streams:
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
        use(stream)
    number = ctypes.c_int32()
    assert api.aclrtStreamGetId(streams[0], ctypes.byref(number)) == 0
    busy = f"acl-stream-{number.value % 10000}"
    before, own = wakes("acl-stream-"), wakes(busy)
    for _ in range(TASKS):
        use(streams[0])
    others = wakes("acl-stream-") - before - (wakes(busy) - own)
    for stream in streams:
        assert api.aclrtDestroyStream(stream) == 0
    assert api.aclrtFree(memory) == 0
    assert others <= 2 * STREAMS, "each fell asleep after its own task, perhaps late"
