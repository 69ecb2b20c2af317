"""The engine of the example service: batching, admission, and what happens when things fail."""

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from engine import Costs, Engine, Job, Options, Refused
from task import TextTask

import acl
from acl.tools.demo_models import encoder
from acl.tools.numpy_ops import evaluate

TEXT = "the quick brown fox jumps over the lazy dog and does it again until all of it is done " * 3
TASK = TextTask(layers=1)
TEXTS = [TEXT[start : start + length] for start, length in ((0, 9), (3, 40), (5, 41), (8, 90), (1, 160), (2, 17))]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """Each text's embedding, by NumPy, alone in its batch."""
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
    return Engine(TASK, Options(**{"limit": "64MiB", **options}))


def ask(service: Engine, count: int) -> list[tuple[int, Future[Any]]]:
    """That many requests, waiting at the door while it is full."""
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
    """Every answer is right; the sizes of the batches."""
    sizes = set()
    for which, future in asked:
        vector, shared = future.result(300)
        np.testing.assert_allclose(vector, expected[which], rtol=1e-4, atol=1e-5)
        sizes.add(shared)
    return sizes


def test_answers_are_those_of_single_runs(expected: list[Any]) -> None:
    with engine() as service:
        with service.changed:                   # no lane begins before there is company
            asked = ask(service, 24)
        sizes = check(asked + ask(service, 36), expected)
        assert max(sizes) > 1
        assert service.counts["answered"] == service.counts["accepted"] == 60
        assert service.promised == 0
        assert service.pool is not None and service.pool.check() == 0


def test_one_at_a_time_waits_no_longer_than_it_must(expected: list[Any]) -> None:
    with engine(linger_ms=1, lanes=1) as service:
        for number in range(len(TEXTS)):
            future = service.submit(TASK.item(TEXTS[number]))
            assert check([(number, future)], expected) == {1}


def test_without_a_pool(expected: list[Any]) -> None:
    with engine(pool=False) as service:
        check(ask(service, 20), expected)
        assert service.pool is None


def test_a_full_queue_is_429(expected: list[Any]) -> None:
    with engine(queue=3, lanes=1) as service:
        asked, refused = [], []
        with service.changed:                   # the lane takes none meanwhile
            for number in range(200):
                try:
                    asked.append((number % 6, service.submit(TASK.item(TEXTS[number % 6]))))
                except Refused as error:
                    refused.append(error.status)
        check(asked, expected)
        assert set(refused) == {429}
        assert service.counts["refused_queue"] == len(refused)


def test_promised_memory_is_503(expected: list[Any]) -> None:
    with engine(limit="4MiB", queue=10_000) as service:
        asked, refused = [], []
        with service.changed:                   # no lane takes one meanwhile
            for number in range(300):
                try:
                    asked.append((number % 6, service.submit(TASK.item(TEXTS[number % 6]))))
                except Refused as error:
                    refused.append((error.status, error.after is not None))
        check(asked, expected)
        assert set(refused) == {(503, True)}
        assert service.counts["refused_memory"] == len(refused)
        assert service.pool is not None
        assert service.pool.stats().reserved_peak <= 4 << 20


def test_what_never_fits_is_413() -> None:
    with engine(limit="2MiB") as service, pytest.raises(Refused) as raised:
        service.costs.ratio = 1000.0
        service.submit(TASK.item(TEXT))
    assert (raised.value.status, raised.value.after) == (413, None)


def test_neighbours_make_the_room_smaller(sim: Any) -> None:
    with engine(limit="8GiB", headroom="1GiB") as service:
        before = service.measure()
        free = acl.rt.get_mem_info(1)[0]
        with acl.Buffer(free - (3 << 30)):
            assert service.measure() < min(before, 3 << 30)


def test_a_neighbour_that_goes_makes_room_again(expected: list[Any], sim: Any) -> None:
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


def test_draining_refuses_and_answers(expected: list[Any]) -> None:
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


def test_memory_that_runs_out(expected: list[Any], sim: Any) -> None:
    seed = 11
    print(f"seed {seed}")
    with engine() as service, sim.fault("aclrtMallocPhysical", p=0.5, seed=seed) as broken:
        check(ask(service, 80), expected)
        assert broken.hits > 0
        assert service.counts["answered"] == 80
        assert service.counts["failed"] == 0


def test_a_batch_that_is_too_large_is_halved(expected: list[Any]) -> None:
    with engine(limit="2MiB", lanes=1, queue=100) as service:
        service.costs.learn = lambda nbytes, peak: None     # type: ignore[method-assign]
        service.costs.ratio = 0.1                           # admits, and batches, what cannot fit
        asked = [(4, service.submit(TASK.item(TEXTS[4]))) for _ in range(24)]
        check(asked, expected)
        assert service.counts["ooms"] > 0
        assert service.counts["failed"] == 0


def test_streams_that_fail(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        assert service.pool is not None
        asked = []
        for _ in range(8):
            asked += ask(service, 12)
            asked[-12][1].result(300)            # the lanes are at work
            for handle in service.pool.streams[:1]:
                with suppress(ValueError):      # its lane has given it up by now
                    sim.fail_stream(handle)
        check(asked, expected)
        assert service.counts["faults"] > 0
        check(ask(service, 4), expected)
        assert service.healthy and service.counts["failed"] == 0
        assert service.pool.check() == 0


def test_a_device_that_is_gone_for_a_while(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        asked = ask(service, 10)
        with sim.device_lost(0):
            lost = [(0, service.submit(TASK.item(TEXTS[0]))) for _ in range(4)]
            time.sleep(0.2)
            assert not any(future.done() for _, future in lost)
        check(asked + lost, expected)
        check(ask(service, 12), expected)
        assert service.healthy


def test_patience_ends(expected: list[Any], sim: Any) -> None:
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


def test_patience_ends_for_each_by_itself(expected: list[Any], sim: Any) -> None:
    with engine(patience_s=60, lanes=1) as service:
        with sim.device_lost(0):
            with service.changed:               # no lane takes one without the other
                jobs = [service.submit(TASK.item(TEXTS[0])) for _ in range(2)]
                service.queue[0].arrived -= 100
            with pytest.raises(acl.AclError):
                jobs[0].result(300)
        check([(0, jobs[1])], expected)
        assert (service.counts["failed"], service.counts["answered"], service.promised) == (1, 1, 0)


def test_lanes_that_want_the_memory_alone_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(lanes=2) as service:
        found, wait_for = [], service.changed.wait_for
        monkeypatch.setattr(
            service.changed, "wait_for", lambda met, timeout: found.append(wait_for(met, 60)))
        service.running = 2
        job = Job(None, 0)

        def relieve() -> None:
            service.relieve(job, acl.OutOfMemoryError(207001, "test", "none"))
            with service.changed:               # what `work` does after the batch
                service.running -= 1
                service.changed.notify_all()

        threads = [threading.Thread(target=relieve) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert found == [True, True]
        assert service.running == 0


def test_a_mistake_fails_its_batch_only(expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(lanes=1) as service:
        with monkeypatch.context() as patch:
            patch.setattr(TASK, "collate", lambda items: {"nonsense": items}, raising=False)
            with pytest.raises(TypeError, match="no input 'nonsense'"):
                service.submit(TASK.item("a")).result(300)
        check(ask(service, 6), expected)


def test_memory_stays_flat(expected: list[Any], sim: Any) -> None:
    with engine() as service:
        assert service.pool is not None
        for _ in range(10):                     # a lane that the machine stopped takes its share later
            check(ask(service, 200), expected)
            before, taken = service.pool.stats(), sim.physical_bytes()
            for _ in range(3):
                check(ask(service, 200), expected)
            after, last = service.pool.stats(), sim.physical_bytes()
            if after.reserved <= before.reserved + (4 << 20):
                break
        assert after.reserved <= before.reserved + (4 << 20)
        assert last <= taken + (4 << 20)


def test_threads_at_the_door(expected: list[Any]) -> None:
    with engine(lanes=3) as service:
        asked: list[tuple[int, Future[Any]]] = []
        threads = [threading.Thread(target=lambda: asked.extend(ask(service, 25))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(asked, expected)
        assert service.counts["accepted"] == 150


def test_costs_are_learned() -> None:
    costs = Costs()
    for _ in range(60):
        costs.learn(100_000, 800_000)
    assert costs.ratio == pytest.approx(10.0)
    costs.learn(100_000, 8_000_000)
    assert costs.ratio == pytest.approx(100.0)
    costs.learn(10, 8_000_000)                  # a small batch after a large one tells nothing
    assert costs.ratio == pytest.approx(100.0)
    assert costs.estimate(1000) == 104_096


@pytest.mark.parametrize("name", ["lanes", "batch", "queue"])
def test_options_without_which_nothing_would_be_answered(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int of at least 1, not 0"):
        Options(**{name: 0})


@pytest.mark.parametrize("text", ["", "x" * 513])
def test_a_text_has_a_length(text: str) -> None:
    with pytest.raises(ValueError, match="input must have 1 to 512 bytes"):
        TASK.item(text)
