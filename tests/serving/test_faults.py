"""acl.serving: which failed requests are tried again, and how often; and the engine after a run that hangs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from support.serving import HeldTask, engine_of, outcome

import acl
from acl.serving import Task
from acl.serving._attempts import is_fault
from acl.serving._lane import Lane, Streams


@pytest.mark.parametrize(("error", "fault"), [
    (acl.AclError(507015, "f"), True), (acl.DeviceLostError(507899, "f"), True), (acl.TimeoutError(507046, "f"), True),
    (acl.OutOfMemoryError(207001, "f"), False), (acl.InvalidArgumentError(100000, "f"), False),
    (acl.AclError(145003, "f"), False), (ValueError(), False),
])
def test_faults_of_the_device_are_told_from_other_errors(error: Exception, fault: bool) -> None:
    assert is_fault(error) is fault


def test_poison_request_in_a_batch_fails_alone() -> None:
    task = HeldTask()
    with engine_of(task, linger_ms=60_000, batch=8, tries=2) as service:
        futures = [service.submit(np.array([99 if number == 5 else number])) for number in range(8)]
        assert [outcome(future) for future in futures] == ["answered"] * 5 + ["AclError"] + ["answered"] * 2
        with pytest.raises(acl.AclError, match="index 99 is outside a dimension of 10"):
            futures[5].result()
        assert [len(batch) for batch in task.seen] == [8, 4, 4, 2, 1, 1, 1, 2]
        assert [batch for batch in task.seen if batch == [99]] == [[99]] * 2
        assert service.healthy and service.promised == 0


@pytest.mark.parametrize("code", [145003, 100000])
def test_error_that_is_no_fault_is_not_tried_again(code: int, sim: Any) -> None:
    task = HeldTask()
    with engine_of(task) as service:
        service.submit(np.array([1])).result(300)
        with sim.fault("aclmdlExecuteAsync", every=1, code=code):
            assert outcome(service.submit(np.array([2]))) in ("AclError", "InvalidArgumentError")
        assert task.seen.count([2]) == 1 and service.counts["faults"] == 0
        assert outcome(service.submit(np.array([3]))) == "answered"


def test_run_that_hangs_is_aborted_and_tried_on_a_new_stream(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    with engine_of(HeldTask(), run_timeout_s=0.1) as service:
        service.submit(np.array([1])).result(300)
        hung = service.lanes[0].stream
        assert hung is not None
        hung.launch(release.wait)
        assert service.submit(np.array([2])).result(300).value == 2.0
        assert service.lanes[0].stream is not hung and service.streams.stuck == [hung]
        assert service.counts["faults"] == 1 and "SYNC_TIMEOUT" in (service.lanes[0].error or "")
        (model,) = service.models["table"].models
        monkeypatch.setattr("acl.serving._engine.STUCK_S", 0.01)
        service.close()                         # neither waits for the hung work nor unloads the model that it may use
        assert service.streams.stuck == [hung] and not model.closed
        release.set()
        monkeypatch.undo()
    assert service.streams.stuck == [] and hung.closed and model.closed
    assert service.pool is not None and service.pool.closed


def test_default_task_stacks_arrays_and_gives_rows() -> None:
    task = Task(b"model")
    assert task.goes_with(np.zeros(3), np.ones(3)) and not task.goes_with(np.zeros(3), np.zeros(4))
    assert not task.goes_with({"a": np.zeros(3, "f4")}, {"a": np.zeros(3, "f8")})
    items = [{"a": np.float32([n, 1]), "b": n} for n in range(3)]
    assert {name: array.shape for name, array in task.collate(items).items()} == {"a": (3, 2), "b": (3,)}
    assert task.padded_bytes([np.zeros(3, "f4")] * 2) == 24
    rows = task.split([np.arange(4).reshape(2, 2), np.arange(2)], [0, 0])
    assert [tuple(map(np.ndarray.tolist, map(np.asarray, row))) for row in rows] == [([0, 1], 0), ([2, 3], 1)]


def test_stream_that_is_destroyed_with_an_error_of_its_work_is_not_destroyed_again(sim: Any, no_leaks: None) -> None:
    streams = Streams(0, None)
    stream = streams.make()
    sim.fail_stream(stream.handle)
    streams.destroy(stream)
    assert stream.closed and streams.lost == []     # a new stream may have the same handle
    kept = streams.make()
    with sim.fault("aclrtDestroyStream", nth=1, code=507899):
        streams.destroy(kept)
    assert len(streams.lost) == 1
    streams.sweep()
    assert streams.lost == []
    broken = streams.make()
    with sim.fault("aclrtSynchronizeStreamWithTimeout", nth=1, code=507899) as fault:
        streams.destroy(broken)
    assert fault.hits == 1 and streams.lost == []   # the stream was destroyed although its work did not end


def test_stream_of_a_device_that_stays_lost_is_destroyed_at_last(sim: Any, no_leaks: None) -> None:
    streams = Streams(0, None)
    stream = streams.make()
    with sim.device_lost(0):
        streams.destroy(stream)
        streams.sweep()
        assert len(streams.lost) == 1
    streams.sweep()
    assert streams.lost == []


def test_stream_of_a_lane_has_the_name_of_the_lane_also_after_it_was_replaced(no_leaks: None) -> None:
    streams = Streams(0, None)
    lane = Lane(streams, 2, None)
    first = lane.open()
    assert first.name == "lane-2"
    streams.destroy(first)
    lane.stream = None
    second = lane.open()
    assert second is not first and second.name == "lane-2"
    streams.destroy(second)
