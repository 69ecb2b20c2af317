"""`acl.serving.Engine`: batches, admission of requests, and failures."""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_python
from task import TextTask

import acl
from acl.inside._oom import OomHold, OomReport
from acl.serving import Engine, Histogram, Options, Refused, _attempts
from acl.serving._attempts import relieve
from acl.serving._lane import Lane
from acl.serving._queue import Job
from acl.serving._tally import Costs
from acl.tools.demo.models import encoder
from acl.tools.numpy_ops import evaluate

TEXT = "the quick brown fox jumps over the lazy dog and does it again until all of it is done " * 3
TASK = TextTask(layers=1)
TEXTS = [TEXT[start : start + length] for start, length in ((0, 9), (3, 40), (5, 41), (8, 90), (1, 160), (2, 17))]


@pytest.fixture(scope="session")
def expected() -> list[Any]:
    """Return each text's embedding, computed by NumPy in a batch of one."""
    model, found = encoder(1), []
    for text in TEXTS:
        inputs = TASK.collate([TASK.item(text)])
        found.append(evaluate(model, inputs["tokens"], inputs["mask"])[0][0].mean(axis=0))
    return found


@pytest.fixture(autouse=True)
def nothing_stays(no_leaks: None) -> Iterator[None]:
    yield
    gc.collect()


def engine(**options: Any) -> Engine:
    return loaded(TASK, **options)


def loaded(task: TextTask, **options: Any) -> Engine:
    """Return an engine with one model."""
    made = Engine(Options(**{"limit": "64MiB", **options}))
    made.load("text", task)
    return made


def ask(service: Engine, count: int) -> list[tuple[int, Future[Any]]]:
    """Submit `count` requests, waiting while the queue is full; return text numbers and futures."""
    made = []
    for number in range(count):
        which = number % len(TEXTS)
        while True:
            try:
                made.append((which, service.submit(TASK.item(TEXTS[which]))))
                break
            except Refused as refused:
                assert refused.after is not None
                time.sleep(0.002)
    return made


def check(asked: list[tuple[int, Future[Any]]], expected: list[Any]) -> set[int]:
    """Check that every answer is right; return the sizes of the batches."""
    sizes = set()
    for which, future in asked:
        vector, shared, _ = future.result(300)
        np.testing.assert_allclose(vector, expected[which], rtol=1e-4, atol=1e-5)
        sizes.add(shared)
    return sizes


def test_batched_answers_equal_those_of_single_runs(expected: list[Any]) -> None:
    with engine() as service:
        with service.changed:                   # no lane begins before all 24 are queued
            asked = ask(service, 24)
        sizes = check(asked + ask(service, 36), expected)
        assert max(sizes) > 1
        assert service.counts["answered"] == service.counts["accepted"] == 60
        assert service.promised == 0
        assert service.pool is not None and service.pool.check() == 0


def test_requests_submitted_one_at_a_time_are_answered_in_batches_of_one(expected: list[Any]) -> None:
    with engine(linger_ms=1, lanes=1) as service:
        for number in range(len(TEXTS)):
            future = service.submit(TASK.item(TEXTS[number]))
            assert check([(number, future)], expected) == {1}


def test_engine_answers_requests_without_a_pool(expected: list[Any]) -> None:
    with engine(pool=False) as service:
        check(ask(service, 20), expected)
        assert service.pool is None


def test_request_to_a_full_queue_is_refused_with_status_429(expected: list[Any]) -> None:
    with engine(queue=3, lanes=1) as service:
        asked, refused = [], []
        with service.changed:                   # while the test holds this lock, the lane cannot take a request
            for number in range(200):
                try:
                    asked.append((number % 6, service.submit(TASK.item(TEXTS[number % 6]))))
                except Refused as error:
                    refused.append(error.status)
        check(asked, expected)
        assert set(refused) == {429}
        assert service.counts["refused_queue"] == len(refused)


def test_queued_requests_promise_no_memory_and_running_batches_fit_the_limit(
    expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(limit="4MiB", queue=10_000, lanes=3) as service:
        most, attend = [], service.attend
        monkeypatch.setattr(service, "attend", lambda *of: (most.append((service.promised, service.room)), attend(*of)))
        with service.changed:                   # while the test holds this lock, no lane can take a request
            asked = [(number % 6, service.submit(TASK.item(TEXTS[number % 6]))) for number in range(300)]
        check(asked, expected)
        assert service.counts["refused_memory"] == 0
        assert all(promised <= room for promised, room in most)
        assert len(most) > 30 and service.pool is not None
        assert service.pool.stats().reserved_peak <= 4 << 20


def test_request_that_can_never_fit_is_refused_with_status_413() -> None:
    with engine(limit="2MiB") as service, pytest.raises(Refused) as raised:
        service.models["text"].costs.ratio = 1000.0
        service.submit(TASK.item(TEXT))
    assert (raised.value.status, raised.value.after) == (413, None)


def test_memory_of_other_programs_reduces_the_memory_of_the_engine(sim: Any) -> None:
    with engine(limit="8GiB", headroom="1GiB") as service:
        before = service.measure()
        free = acl.rt.get_mem_info(1)[0]
        with acl.Buffer(free - (3 << 30)):
            assert service.measure() < min(before, 3 << 30)


def test_memory_freed_by_another_program_can_be_used_by_the_engine(expected: list[Any], sim: Any) -> None:
    with acl.Buffer(acl.rt.get_mem_info(1)[0] - (64 << 20)), engine(limit="8GiB", headroom="1GiB") as service:
        assert service.room == 0
        with pytest.raises(Refused) as raised:
            service.submit(TASK.item(TEXTS[0]))
        assert raised.value.status == 503
        del raised
    with acl.Buffer(acl.rt.get_mem_info(1)[0] - (64 << 20)) as neighbour:
        with engine(limit="8GiB", headroom="1GiB") as service:
            neighbour.close()
            check(ask(service, 6), expected)


def test_draining_engine_refuses_new_requests_and_answers_accepted_ones(expected: list[Any]) -> None:
    service = engine()
    asked = ask(service, 30)
    service.drain()
    with pytest.raises(Refused) as raised:
        service.submit(TASK.item("late"))
    assert raised.value.status == 503
    assert not service.healthy
    service.close()
    check(asked, expected)
    service.close()


def test_requests_are_answered_although_allocations_fail(expected: list[Any], sim: Any) -> None:
    seed = 11
    print(f"seed {seed}")
    with engine() as service, sim.fault("aclrtMallocPhysical", p=0.5, seed=seed) as broken:
        check(ask(service, 80), expected)
        assert broken.hits > 0
        assert service.counts["answered"] == 80
        assert service.counts["failed"] == 0


def test_a_batch_that_is_too_large_is_halved(expected: list[Any]) -> None:
    with engine(limit="2MiB", lanes=1, queue=100) as service:
        service.models["text"].costs.learn = lambda *of, **how: None       # type: ignore[method-assign]
        service.models["text"].costs.ratio = 0.1                  # with this ratio, batches that do not fit are run too
        asked = [(4, service.submit(TASK.item(TEXTS[4]))) for _ in range(24)]
        check(asked, expected)
        assert service.counts["ooms"] > 0
        assert service.counts["failed"] == 0


def test_requests_are_answered_although_streams_fail(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        assert service.pool is not None
        asked = []
        for _ in range(8):
            asked += ask(service, 12)
            asked[-12][1].result(300)            # the lanes are running
            for handle in service.pool.streams[:1]:
                with suppress(ValueError):      # raised if the lane has replaced the stream already
                    sim.fail_stream(handle)
        check(asked, expected)
        assert service.counts["faults"] > 0
        check(ask(service, 4), expected)
        assert service.healthy and service.counts["failed"] == 0
        assert service.pool.check() == 0


def test_requests_are_answered_after_a_temporary_device_loss(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        asked = ask(service, 10)
        with sim.device_lost(0):
            lost = [(0, service.submit(TASK.item(TEXTS[0]))) for _ in range(4)]
            time.sleep(0.2)
            assert not any(future.done() for _, future in lost)
        check(asked + lost, expected)
        check(ask(service, 12), expected)
        assert service.healthy


def test_request_fails_if_the_device_stays_lost_beyond_the_patience(expected: list[Any], sim: Any) -> None:
    with engine(patience_s=0.1, lanes=1) as service:
        check(ask(service, 6), expected)
        with sim.device_lost(0):
            future = service.submit(TASK.item(TEXTS[0]))
            with pytest.raises(acl.AclError):
                future.result(300)
            assert not service.healthy
        assert (service.counts["failed"], service.promised) == (1, 0)
        check(ask(service, 6), expected)
        assert service.healthy


def test_patience_ends_for_each_request_separately(expected: list[Any], sim: Any) -> None:
    with engine(patience_s=60, lanes=1) as service:
        with sim.device_lost(0):
            with service.changed:               # until both are queued, the lane can take neither
                jobs = [service.submit(TASK.item(TEXTS[0])) for _ in range(2)]
                service.queue.first().arrived -= 100
            with pytest.raises(acl.AclError):
                jobs[0].result(300)
        check([(0, jobs[1])], expected)
        assert (service.counts["failed"], service.counts["answered"], service.promised) == (1, 1, 0)


def test_lanes_that_need_all_memory_do_not_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(lanes=2) as service:
        found, wait_for = [], service.changed.wait_for
        monkeypatch.setattr(
            service.changed, "wait_for", lambda met, timeout: found.append(wait_for(met, 60)))
        service.running = 2
        job = Job(service.models["text"], None, 0)

        def wait_alone() -> None:
            relieve(service, job, acl.OutOfMemoryError(207001, "test", "none"))
            with service.changed:               # `work` also calls this after a batch
                service.running -= 1
                service.changed.notify_all()

        threads = [threading.Thread(target=wait_alone) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert found == [True, True]
        assert service.running == 0


def test_programming_error_fails_only_its_batch(expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(lanes=1) as service:
        with monkeypatch.context() as patch:
            patch.setattr(TASK, "collate", lambda items: {"nonsense": items}, raising=False)
            with pytest.raises(acl.InvalidArgumentError, match="no input 'nonsense'"):
                service.submit(TASK.item("a")).result(300)
        check(ask(service, 6), expected)


def test_memory_of_the_engine_does_not_grow_under_load(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        assert service.pool is not None
        for _ in range(10):                     # a delayed lane may allocate its memory only later
            check(ask(service, 200), expected)
            before, taken = service.pool.stats(), sim.physical_bytes()
            for _ in range(3):
                check(ask(service, 200), expected)
            after, last = service.pool.stats(), sim.physical_bytes()
            if after.reserved <= before.reserved + (4 << 20):
                break
        assert after.reserved <= before.reserved + (4 << 20)
        assert last <= taken + (4 << 20)


def test_requests_can_be_submitted_by_several_threads(expected: list[Any]) -> None:
    with engine(lanes=3) as service:
        asked: list[tuple[int, Future[Any]]] = []
        threads = [threading.Thread(target=lambda: asked.extend(ask(service, 25))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(asked, expected)
        assert service.counts["accepted"] == 150


def test_costs_are_learned_by_size() -> None:
    costs = Costs()
    assert costs.estimate(1000) == 32_000 + 4096        # no batch has run
    costs.learn(100_000, 1, 800_000, exact=True)
    assert costs.estimate(100_000) == 1_000_000 + 4096
    costs.learn(100_000, 1, 8_000_000, exact=True)
    assert costs.estimate(100_000) == 10_000_000 + 4096
    costs.learn(100_000, 1, 8_000_000, exact=False)     # an upper bound does not raise the estimate
    assert costs.estimate(100_000) == 10_000_000 + 4096
    costs.learn(100_000, 1, 1_600_000, exact=False)
    assert costs.estimate(100_000) == 2_000_000 + 4096
    costs.learn(100_000, 1, 800_000, exact=True)        # the estimate falls slowly
    assert costs.estimate(100_000) == 1_800_000 + 4096
    assert costs.estimate(1000) == 32_000 + 4096        # nothing is known of small items yet
    assert costs.estimate(800_000, 8) == 8 * 1_800_000 + 4096       # eight times the item that was learned


@pytest.mark.parametrize("name", ["lanes", "batch", "queue"])
def test_engine_options_below_1_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int of at least 1, not 0"):
        Options(**{name: 0})


@pytest.mark.parametrize("text", ["", "x" * 513])
def test_text_that_is_empty_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="input must have 1 to 512 bytes"):
        TASK.item(text)


class Task(TextTask):
    """A user's task with errors.

    `bad` maps the name of a method to first letters: the method raises an error for texts that begin with one of them.
    """

    def __init__(self, **bad: str) -> None:
        super().__init__(layers=1)
        self.bad = bad

    def item(self, text: str) -> Any:
        item = super().item(text).copy()
        item[0, 0] = ord(text[0])               # by this number the other methods recognise the text
        return item

    def look(self, method: str, items: Any) -> None:
        if any(chr(int(item[0, 0])) in self.bad.get(method, "") for item in items):
            raise ZeroDivisionError(method)

    def goes_with(self, first: Any, other: Any) -> bool:
        self.look("goes_with", [first, other])
        return super().goes_with(first, other)

    def padded_bytes(self, items: Any) -> int:
        if len(items) > 1:
            self.look("padded_bytes", items)
        return super().padded_bytes(items)

    def collate(self, items: Any) -> Any:
        self.look("collate", items)
        return super().collate(items)

    def split(self, outputs: Any, items: Any) -> Any:
        self.look("split", items)
        return super().split(outputs, items)


def outcome(future: Future[Any]) -> str:
    """Return "answered", or the name of the exception with which the request failed."""
    try:
        future.result(300)
    except Exception as error:
        return type(error).__name__
    return "answered"


@pytest.mark.parametrize(("method", "fails"), [
    ("goes_with", False), ("padded_bytes", False), ("collate", True), ("split", True)])
def test_exception_of_a_task_fails_only_the_request_that_caused_the_exception(method: str, fails: bool) -> None:
    task = Task(**{method: "x"})
    with loaded(task, lanes=1, linger_ms=50) as service:
        with service.changed:
            futures = [service.submit(task.item(text)) for text in ("aaa", "xxx", "bbb", "ccc", "xyz", "d")]
        bad = "ZeroDivisionError" if fails else "answered"
        found = [outcome(future) for future in futures]
        assert found == ["answered", bad, "answered", "answered", bad, "answered"]
        assert outcome(service.submit(task.item("abc"))) == "answered"
        assert service.healthy and service.promised == 0
        assert service.counts["answered"] + service.counts["failed"] == 7


def test_task_that_returns_too_few_results_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(lanes=1) as service:
        monkeypatch.setattr(TASK, "split", lambda outputs, items: [], raising=False)
        with pytest.raises(ValueError, match="the task gave 0 results for 1 requests"):
            service.submit(TASK.item("a")).result(300)


def test_a_cancelled_request_fails_no_other(expected: list[Any]) -> None:
    with engine(lanes=1) as service:
        for round_ in range(4):
            with service.changed:
                asked = ask(service, 8)
                assert asked[round_][1].cancel()
            del asked[round_]
            check(asked, expected)
        for number in range(8):                 # a request is cancelled before it runs, or not at all
            future = service.submit(TASK.item(TEXTS[number % 6]))
            time.sleep(0.001 * number)
            if not future.cancel():
                check([(number % 6, future)], expected)
        check(ask(service, 3), expected)
        assert service.healthy and service.promised == 0
        counts = service.counts
        assert counts["accepted"] == counts["answered"] + counts["cancelled"] and counts["cancelled"] >= 4


def test_cancelled_requests_leave_a_full_queue(expected: list[Any]) -> None:
    with engine(queue=3, lanes=1) as service:
        with service.changed:
            for _ in range(3):
                service.submit(TASK.item("abc")).cancel()
            asked = ask(service, 3)
        check(asked, expected)
        assert (service.counts["cancelled"], service.counts["refused_queue"]) == (3, 0)


class Poisoned:
    """Make `Lane.run` fail for every batch that contains a certain text."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str, error: Exception) -> None:
        first, run, self.tried = TASK.item(text)[0], Lane.run, 0

        def failing(lane: Lane, version: Any, inputs: dict[str, Any], *of: Any) -> list[Any]:
            if (inputs["tokens"][:, 0] == first).all(axis=1).any():
                self.tried += 1
                raise error
            return run(lane, version, inputs, *of)

        monkeypatch.setattr(Lane, "run", failing)


def test_request_that_breaks_its_stream_fails_no_other_request(
    expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned = Poisoned(monkeypatch, "!", acl.AclError(507015, "test", "vector core exception"))
    with engine(lanes=1, tries=3) as service:
        with service.changed:
            bad = service.submit(TASK.item("!"))
            asked = ask(service, 5)
        assert outcome(bad) == "AclError"
        check(asked, expected)
        assert (service.counts["failed"], service.counts["answered"], service.promised) == (1, 5, 0)
        assert poisoned.tried <= 6 and service.healthy


def test_request_without_memory_fails_no_other_request(expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Poisoned(monkeypatch, "!", acl.OutOfMemoryError(207001, "test", "no memory"))
    with engine(lanes=1, patience_s=0.2) as service:
        with service.changed:
            bad = service.submit(TASK.item("!"))
            asked = ask(service, 5)
        check(asked, expected)
        assert outcome(bad) == "OutOfMemoryError"
        assert (service.counts["failed"], service.counts["answered"], service.promised) == (1, 5, 0)


def test_request_that_needs_more_than_the_limit_is_refused_quickly(expected: list[Any]) -> None:
    with engine(limit="2MiB", lanes=1, patience_s=600) as service:
        service.models["text"].costs.ratio = 1.0               # with this ratio, every batch seems to fit
        large = service.submit(TASK.item("x" * 512))
        with pytest.raises(Refused) as raised:
            large.result(300)
        assert raised.value.status == 413
        assert "2.00 MiB" in raised.value.reason
        check(ask(service, 6), expected)
        assert service.promised == 0


def out_of_memory(report: OomReport | None) -> acl.OutOfMemoryError:
    return acl.OutOfMemoryError(207001, "test", "no memory", report)


def test_request_above_the_limit_is_413_though_its_deadline_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_attempts, "is_late", lambda job: True)
    with engine(limit="2MiB", lanes=1) as service:
        service.models["text"].costs.ratio = 1.0               # with this ratio, every batch seems to fit
        with pytest.raises(Refused) as raised:
            service.submit(TASK.item("x" * 512), deadline_s=300).result(300)
        assert raised.value.status == 413
        assert service.counts["ooms"] == 1


def test_request_without_memory_is_504_once_its_deadline_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned = Poisoned(monkeypatch, "!", out_of_memory(None))
    monkeypatch.setattr(_attempts, "is_late", lambda job: True)
    with engine(lanes=1) as service:
        with pytest.raises(Refused) as raised:
            service.submit(TASK.item("!"), deadline_s=300).result(300)
        assert (raised.value.status, poisoned.tried) == (504, 1)
        assert "its deadline passed after it had run out of memory: " in raised.value.reason


@pytest.mark.parametrize(("own", "beside", "changes", "expected"), [
    (60, None, {"size": 50}, True),                             # more than the limit, with the request's other memory
    (60, None, {"size": 50, "stopped": ("limit", "busy")}, True),
    (60, (20, 0), {"size": 50}, True),
    (10, None, {"size": 50}, True),                             # nothing else is in the pool: pages do not fit better
    (10, (30, 30), {"size": 50}, True),                         # others hold free pages only, which were taken
    (10, (30, 20), {"size": 50}, False),
    (10, None, {"size": 50, "stopped": ("limit", "busy")}, False),
    (10, None, {"size": 50, "stopped": ("driver",), "limit": 0}, False),
    (60, None, {"size": 50, "failed_runs": ("other",), "tags": {"other": 20}}, False),
    (90, None, {"size": 50, "failed_runs": ("other",), "tags": {"other": 20}}, True),
])
def test_report_tells_a_request_that_never_fits(
        own: int, beside: tuple[int, int] | None, changes: dict[str, Any], expected: bool) -> None:
    holds = [OomHold(1, "stream", True, 70, own, 0, 0, 0, 0)]
    if beside is not None:
        reserved, whole = beside
        holds.append(OomHold(2, "stream", True, reserved, reserved - whole, whole, whole, whole, 0))
    report = OomReport(**{
        "size": 0, "stream": 1, "code": 0, "limit": 100, "reserved": 100, "live": own, "free": 0, "largest_free": 0,
        "waiting": 0, "others": 0 if beside is None else beside[0], "device_free": 1 << 30, "capturing": False,
        "moved": True, "stopped": ("limit",), "holds": tuple(holds), **changes})
    assert _attempts.never_fits(report) is expected


def test_memory_error_without_a_report_gives_no_hint() -> None:
    assert not _attempts.never_fits(None)


def test_lane_that_exits_fails_its_requests_and_the_engine_becomes_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda of: None)

    def leave(items: Any) -> Any:
        raise SystemExit

    with engine(lanes=1) as service:
        monkeypatch.setattr(TASK, "collate", leave, raising=False)
        with service.changed:
            futures = [service.submit(TASK.item(text)) for text in TEXTS]
        assert {outcome(future) for future in futures} == {"RuntimeError"}
        assert not service.healthy and service.promised == 0
        with pytest.raises(Refused, match="every lane has ended"):
            service.submit(TASK.item("late"))


def test_programming_error_between_batches_does_not_end_the_lane(
    expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(lanes=1) as service:
        broken, measure = [True], service.measure

        def failing() -> int:
            if broken.pop() if broken else False:
                raise ZeroDivisionError
            return measure()

        monkeypatch.setattr(service, "measure", failing)
        deadline = time.monotonic() + 60
        while service.counts["lane_errors"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        check(ask(service, 3), expected)
        assert service.healthy


def test_engine_whose_grace_period_ends_refuses_its_queued_requests(sim: Any) -> None:
    with engine(lanes=1, batch=1) as service:
        service.submit(TASK.item("abc")).result(300)
        with sim.device_lost(0):
            futures = [service.submit(TASK.item("abc")) for _ in range(3)]
            closer = threading.Thread(target=service.cut_short)
            service.drain()
            closer.start()
            closer.join(300)
            assert not closer.is_alive()
            assert [outcome(future) for future in futures][1:] == ["Refused"] * 2
            assert outcome(futures[0]) in ("AclError", "DeviceLostError", "Refused")
    with engine(lanes=1) as service:
        service.close(grace_s=300)              # returns at once: no request is open


def test_latencies_are_counted(expected: list[Any]) -> None:
    with engine() as service:
        check(ask(service, 20), expected)
        tally = service.models["text"].tally
        assert sum(tally.took.counts) == sum(tally.waited.counts) == 20
        assert tally.took.sum >= tally.waited.sum > 0
    histogram = Histogram()
    for seconds in (0, 1 / 1024, 0.0011, 1, 100):
        histogram.add(seconds)
    assert [n for n, count in enumerate(histogram.counts) for _ in range(count)] == [0, 0, 1, 10, 17]


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("block", [True, False])
def test_program_exit_does_not_wait_for_queued_requests(block: bool) -> None:
    done = run_python(f"""
        import atexit, sys
        sys.path.insert(0, {str(Path(sys.modules["task"].__file__).parent)!r})
        from acl.serving import Engine, Options
        from task import TextTask
        task = TextTask(layers=8)
        service = Engine(Options(limit="64MiB", lanes=1, batch=1, queue=5000))
        service.load("text", task)
        atexit.register(lambda: print(len(asked), service.counts["answered"] < 5000, all(f.done() for f in asked)))
        asked = [service.submit(task.item("x" * 300)) for _ in range(5000)]
        asked[0].result()
        if {block}:
            with service:
                raise SystemExit(3)
        raise SystemExit(3)
        """)
    assert (done.stdout.split(), done.returncode) == (["5000", "True", "True"], 3), done.stderr
