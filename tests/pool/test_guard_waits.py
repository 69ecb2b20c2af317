"""Guards queue no work during a capture; guards of sampled blocks never wait."""

import ctypes

import pytest
from support.calls import api, out
from support.core import MIB, Slow

import acl
import acl.sim

pytestmark = pytest.mark.usefixtures("no_leaks")

RELAXED = 2
WAITS = ("aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtSynchronizeDeviceWithTimeout",
         "aclrtSynchronizeEvent")


def test_guard_under_capture_adds_no_check_to_the_graph() -> None:
    before = acl.guard_findings()
    with acl.Pool(0, limit="16MiB", debug="sample:2") as pool, acl.Stream() as stream:
        for _ in range(4):
            pool.alloc(3 * MIB, stream).close()             # two of the four blocks go to the quarantine
        stream.synchronize()
        graph = out()
        with pool.capture(stream) as capture:
            assert api.aclmdlRICaptureBegin(stream.handle, RELAXED) == 0
            with pytest.raises(acl.OutOfMemoryError):       # the attempt empties the quarantine
                pool.alloc(11 * MIB, stream)
            with pool.alloc(MIB, stream) as buffer:
                assert api.aclrtMemsetAsync(buffer.address, MIB, 1, MIB, stream.handle) == 0
            assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        pool.trim()                                         # unmaps the pages of these blocks
        assert api.aclmdlRIExecuteAsync(graph, stream.handle) == 0
        stream.synchronize()
        assert api.aclmdlRIDestroy(graph) == 0
        pool.release_capture(capture)
        assert acl.guard_findings() == before


@pytest.mark.parametrize("sample", ["sample:2", "sample:10"])
def test_sampling_guard_with_a_busy_stream_never_waits(sample: str) -> None:
    """More blocks are sampled than the guard has slots, while the stream has run none of its work."""
    before = acl.guard_findings()
    with acl.Pool(0, debug=sample, sync_timeout_ms=1) as pool, acl.Stream() as stream:
        pool.alloc(100, stream).close()
        with Slow(stream):
            acl.sim.reset_counters()
            for _ in range(3000):
                pool.alloc(100, stream).close()
            calls = acl.sim.counters()
            assert not {name: calls[name] for name in WAITS if name in calls}
            assert pool.stats().total("syncs") == 0
        stream.synchronize()
        for _ in range(300):
            pool.alloc(100, stream).close()
        assert pool.check() == 0
        assert acl.guard_findings() == before


def test_watched_stream_gets_no_memory_if_its_capture_state_cannot_be_queried() -> None:
    """The allocation fails: a block that is given out during an unnoticed capture could become part of the graph."""
    with acl.Pool(0, watch_captures=True) as pool, acl.Stream() as stream:
        graph = out()
        pool.alloc(1000, stream).close()
        assert api.aclmdlRICaptureBegin(stream.handle, RELAXED) == 0
        with acl.sim.fault("aclmdlRICaptureGetInfo", nth=1, times=1), pytest.raises(acl.OutOfMemoryError):
            pool.alloc(1000, stream)
        with pool.alloc(1000, stream) as buffer:
            kept = buffer.address
            assert api.aclrtMemsetAsync(kept, 1000, 1, 1000, stream.handle) == 0
            assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        pool.alloc(1000, stream).close()
        with pool.alloc(1000, stream) as buffer:
            assert buffer.address != kept
        assert api.aclmdlRIDestroy(graph) == 0
