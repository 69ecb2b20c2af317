"""acl.serving: which request is served first, and requests that wait for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.serving import HeldTask, engine_of, outcome

from acl.serving import Engine, Refused
from acl.serving._queue import Job, Queue
from acl.serving._tally import Costs

VERSION: Any = SimpleNamespace(costs=Costs())


def ids(number: int) -> Any:
    return np.array([number])


@pytest.fixture
def held() -> Iterator[tuple[Engine, HeldTask]]:
    """Yield an engine whose only lane is held inside a request, so that further requests stay in its queue of three."""
    task = HeldTask(held=True)
    with engine_of(task, batch=1, queue=3) as service:
        first = service.submit(ids(0))
        assert task.inside.wait(300)
        yield service, task
        task.gate.set()
        first.result(300)


def test_queue_orders_by_priority_then_deadline_then_arrival() -> None:
    queue = Queue()
    for name, priority, deadline in (
        ("a", 0, None), ("b", 0, 9.0), ("c", 1, None), ("d", 0, 5.0), ("e", 0, None), ("f", -1, 1.0), ("g", 1, 99.0),
    ):
        queue.add(Job(VERSION, name, 1, priority, deadline))
    assert [job.item for job in queue] == ["g", "c", "d", "b", "a", "e", "f"]
    assert queue.next_due() == 1.0
    last = queue.last_below(0)
    assert last is not None and last.item == "f" and queue.last_below(-1) is None
    assert [job.item for job in queue.take(lambda job: job.priority == 1)] == ["g", "c"]
    assert len(queue) == 5 and queue.first().item == "d"


def test_job_waits_for_a_fuller_batch_at_most_half_of_its_time() -> None:
    job = Job(VERSION, None, 1, arrived=100.0)
    assert job.linger_until(7.0) == 107.0
    job.expires = 110.0
    assert job.linger_until(7.0) == 105.0
    job.deadline = 104.0
    assert job.linger_until(7.0) == 102.0 and job.linger_until(1.0) == 101.0
    slow: Any = SimpleNamespace(costs=Costs())
    slow.costs.took(1.5)
    job.version = slow
    assert job.linger_until(7.0) == 101.0


def test_requests_of_a_higher_priority_are_served_first(held: tuple[Engine, HeldTask]) -> None:
    service, task = held
    futures = [service.submit(ids(1)), service.submit(ids(2), deadline_s=500), service.submit(ids(3), priority=5)]
    task.gate.set()
    assert [future.result(300).value for future in futures] == [1, 2, 3]
    assert task.seen == [[0], [3], [2], [1]]


def test_request_whose_deadline_passes_is_refused_while_the_lane_is_busy(held: tuple[Engine, HeldTask]) -> None:
    service, task = held
    late = service.submit(ids(1), deadline_s=0.01)
    with pytest.raises(Refused, match="its deadline passed while it waited") as raised:
        late.result(300)
    assert (raised.value.status, raised.value.after) == (504, None)
    assert not task.gate.is_set() and len(service.queue) == 0
    assert (service.counts["expired"], service.models["table"].jobs) == (1, 1)


def test_request_that_waits_beyond_the_queue_timeout_is_refused() -> None:
    task = HeldTask(held=True)
    with engine_of(task, batch=1, queue_timeout_s=0.01) as service:
        while not task.inside.wait(0.05):       # the request may expire before the lane begins it
            service.submit(ids(0))
        with pytest.raises(Refused, match=r"it waited for more than 0\.01 s") as raised:
            service.submit(ids(1)).result(300)
        assert (raised.value.status, raised.value.after) == (503, 1.0)
        task.gate.set()
    assert [1] not in task.seen


def test_request_with_a_deadline_that_has_passed_does_not_run(
    held: tuple[Engine, HeldTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, task = held
    with monkeypatch.context() as patch:
        patch.setattr(service.timed, "notify", lambda: None)        # the clock does not wake: the lane finds `late`
        late = service.submit(ids(1), deadline_s=0)
        future = service.submit(ids(2))
        task.gate.set()
        assert outcome(future) == "answered"
    with service.timed:
        service.timed.notify()
    assert outcome(late) == "Refused"
    assert [1] not in task.seen


def test_full_queue_refuses_requests_of_lower_priority(held: tuple[Engine, HeldTask]) -> None:
    service, task = held
    low, middle, high = (service.submit(ids(1 + n), priority=n) for n in range(3))
    with pytest.raises(Refused, match="3 requests wait already"):
        service.submit(ids(4), priority=0)
    urgent = service.submit(ids(5), priority=1)
    with pytest.raises(Refused, match="a higher priority") as raised:
        low.result(300)
    assert (raised.value.status, raised.value.after) == (429, 0.1)
    task.gate.set()
    assert [outcome(one) for one in (middle, high, urgent)] == ["answered"] * 3
    counts = service.counts
    assert (counts["displaced"], counts["refused_queue"], counts["accepted"]) == (1, 1, 5)


def test_request_is_not_tried_again_after_its_deadline(sim: Any) -> None:
    with engine_of(HeldTask(), patience_s=600) as service:
        service.submit(ids(1)).result(300)
        with sim.device_lost(0):
            late = service.submit(ids(1), deadline_s=1)
            assert outcome(late) in ("AclError", "DeviceLostError", "Refused")
        assert outcome(service.submit(ids(1))) == "answered"


def test_each_accepted_request_is_counted_with_exactly_one_outcome(held: tuple[Engine, HeldTask]) -> None:
    service, task = held
    futures = [service.submit(ids(1)), service.submit(ids(2), deadline_s=0.01), service.submit(ids(3))]
    assert outcome(futures[1]) == "Refused" and futures[2].cancel()
    bad = service.submit(ids(99))
    task.gate.set()
    assert (outcome(futures[0]), outcome(bad)) == ("answered", "AclError")
    end = time.monotonic() + 60
    while service.models["table"].jobs:
        assert time.monotonic() < end, service.counts
        time.sleep(0.01)
    counts = service.counts
    ends = [counts[event] for event in ("answered", "failed", "cancelled", "expired", "displaced")]
    assert ends == [2, 1, 1, 1, 0] and counts["accepted"] == sum(ends)


@pytest.mark.parametrize(("how", "text"), [
    ({"priority": 1.5}, "priority must be an int"), ({"deadline_s": -1}, "deadline_s must be a number of at least 0"),
    ({"deadline_s": "1"}, "deadline_s must be a number"),
])
def test_submit_refuses_arguments_that_make_no_sense(how: dict[str, Any], text: str) -> None:
    with engine_of(HeldTask()) as service, pytest.raises(ValueError, match=text):
        service.submit(ids(1), **how)


@pytest.mark.parametrize("deadline_s", [1e12, float("inf")])
def test_deadline_longer_than_any_wait_does_not_stop_other_deadlines(
    held: tuple[Engine, HeldTask], deadline_s: float
) -> None:
    service, task = held
    patient = service.submit(ids(1), deadline_s=deadline_s)
    hasty = service.submit(ids(2), deadline_s=0.05)
    assert outcome(hasty) == "Refused"
    task.gate.set()
    assert outcome(patient) == "answered"


def test_lane_with_an_infinite_linger_time_waits_at_most_the_longest_possible_wait(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    task, waits = HeldTask(held=True), list[float]()
    with engine_of(task, batch=2, linger_ms=float("inf")) as service:
        futures = [service.submit(ids(n)) for n in range(2)]
        assert task.inside.wait(300)
        futures.append(service.submit(ids(2)))
        with monkeypatch.context() as patch, service.changed:
            patch.setattr(service.changed, "wait", lambda timeout: waits.append(timeout) or service.drain())
            service.linger()
        task.gate.set()
        assert [outcome(one) for one in futures] == ["answered"] * 3
    assert len(waits) == 1 and 0 < waits[0] <= threading.TIMEOUT_MAX


def test_request_with_a_deadline_ends_the_wait_of_earlier_requests() -> None:
    with engine_of(HeldTask(), batch=8, linger_ms=600_000) as service:
        patient = service.submit(ids(1))
        time.sleep(0.1)                       # now the lane should wait for a fuller batch; if not, the test passes too
        assert outcome(service.submit(ids(2), deadline_s=2)) == "answered"
        assert outcome(patient) == "answered"


def test_task_that_exits_while_it_joins_requests_leaves_the_lanes_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(first: Any, other: Any) -> bool:
        raise SystemExit(1)

    task = HeldTask(held=True)
    monkeypatch.setattr(task, "goes_with", leave)
    with engine_of(task, batch=3) as service:
        futures = [service.submit(ids(0))]
        assert task.inside.wait(300)
        futures += [service.submit(ids(n)) for n in range(1, 4)]
        task.gate.set()
        assert [outcome(one) for one in futures] == ["answered"] * 4 and service.healthy
