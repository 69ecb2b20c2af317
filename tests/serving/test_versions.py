"""acl.serving: models are loaded, warmed up, swapped and unloaded while requests are served."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.serving import HeldTask, engine_of, outcome

import acl
from acl.serving import Engine, Options, Refused, Task, metrics_page

ONE = np.array([1])


@pytest.fixture(autouse=True)
def nothing_stays(no_leaks: None) -> Iterator[None]:
    yield
    gc.collect()


def test_requests_are_answered_by_the_model_that_they_name() -> None:
    with engine_of(HeldTask(first=100), "large") as service:
        assert service.submit(ONE).result(300) == (101.0, 1, 1)
        service.load("small", HeldTask())
        found = [service.submit(ONE, name) for name in ("small", "large", "small")]
        assert [future.result(300).value for future in found] == [1.0, 101.0, 1.0]
        for name, text in ((None, "the request names no model: large, small"),
                           ("other", "there is no model 'other': large, small")):
            with pytest.raises(Refused, match=text) as raised:
                service.submit(ONE, name)
            assert raised.value.status == 404
        assert service.counts["refused_model"] == 2


def test_request_is_served_by_the_version_that_accepted_it() -> None:
    old = HeldTask(held=True)
    with engine_of(old, batch=1) as service:
        first = [service.submit(ONE) for _ in range(3)]
        assert old.inside.wait(300)
        version = service.models["table"]
        made: list[int] = []
        loader = threading.Thread(target=lambda: made.append(service.load("table", HeldTask(first=50))))
        loader.start()
        with service.changed:
            assert service.changed.wait_for(lambda: service.models["table"].number == 2, 300)
            last = service.submit(ONE)
        loader.join(0.1)                        # it must wait for the old version's running batch
        old.gate.set()
        assert [future.result(300) for future in first] == [(1.0, 1, 1)] * 3
        assert last.result(300) == (51.0, 1, 2)
        loader.join(300)
        assert made == [2] and version.models[0].closed and service.retired == []
        assert service.counts["loads"] == 2


@pytest.mark.parametrize("function", ["aclmdlLoadFromMem", "aclmdlGetDesc", "aclmdlExecute"])
def test_version_that_cannot_be_loaded_leaves_the_old_one(function: str, sim: Any) -> None:
    with engine_of(HeldTask()) as service:
        with sim.fault(function, nth=1, code=500002), pytest.raises(acl.AclError):
            service.load("table", HeldTask(first=50), warm=[[ONE]])
        assert service.submit(ONE).result(300).version == 1
        with pytest.raises(acl.AclError):
            service.load("other", Task(b"not a model"))
        assert list(service.models) == ["table"] and service.promised == 0


def test_version_that_cannot_be_unloaded_is_unloaded_later(sim: Any) -> None:
    with engine_of(HeldTask()) as service:
        old = service.models["table"]
        with sim.fault("aclmdlUnload", nth=1, code=500002):
            assert service.load("table", HeldTask(first=50)) == 2
        assert service.retired == [old] and service.submit(ONE).result(300).version == 2
        service.load("other", HeldTask())
        assert service.retired == [old]
        service.unload("other")
        assert service.retired == [] and old.models[0].closed


def test_warm_up_runs_every_batch_on_every_instance(sim: Any) -> None:
    task = HeldTask()
    with Engine(Options(limit="64MiB")) as service:
        service.load("table", task, instances=3, warm=[[ONE], [ONE] * 4])
        assert task.seen == [[1], [1] * 4] * 3
        before = sim.counters().get("aclmdlExecute", 0)
        assert service.submit(ONE).result(300).value == 1.0
        assert sim.counters().get("aclmdlExecute", 0) == before       # no synchronous run: the warm-up had these shapes
        with pytest.raises(ValueError, match="warm must be batches of at least one item"):
            service.load("table", task, warm=[[]])


def test_instances_of_a_version_share_the_weights(sim: Any) -> None:
    used = []
    for count in (1, 4):
        with Engine(Options(limit="64MiB")) as service:
            before = sim.physical_bytes()
            service.load("table", HeldTask(weights=5 << 20), instances=count)
            used.append(sim.physical_bytes() - before)
            assert len(service.models["table"].models) == count
    assert used[0] == used[1] >= 5 << 20


def test_each_lane_has_an_instance_of_its_own() -> None:
    with Engine(Options(limit="64MiB", lanes=3)) as service:
        service.load("table", HeldTask(), instances=3)
        version = service.models["table"]
        assert {id(version.instance(lane.number)) for lane in service.lanes} == {id(one) for one in version.models}
        assert version.instance(4) is version.models[1]


def test_unloaded_model_answers_what_it_has_accepted() -> None:
    task = HeldTask(held=True)
    with engine_of(task) as service:
        future = service.submit(ONE)
        assert task.inside.wait(300)
        ended = threading.Thread(target=service.unload, args=("table",))
        ended.start()
        with service.changed:
            assert service.changed.wait_for(lambda: not service.models, 300)
        with pytest.raises(Refused, match="names no model: none"):
            service.submit(ONE)
        task.gate.set()
        assert future.result(300).value == 1.0
        ended.join(300)
        assert service.health().state == "empty"
        with pytest.raises(KeyError):
            service.unload("table")


def test_model_swaps_under_load_lose_no_request() -> None:
    with engine_of(HeldTask(), lanes=3) as service:
        found: list[Any] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                try:
                    found.append(service.submit(ONE).result(300))
                except Exception as error:
                    found.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(2, 6):
            assert service.load("table", HeldTask(first=100 * number), instances=3) == number
            assert service.submit(ONE).result(300).version == number
        stop.set()
        for thread in threads:
            thread.join(300)
        values = {1: 1.0, **{number: 100.0 * number + 1 for number in range(2, 6)}}
        assert all(result.value == values[result.version] for result in found), found
        assert service.counts["failed"] == 0


def test_engine_that_ends_during_a_load_refuses_the_version() -> None:
    task = HeldTask(held=True)
    service = Engine(Options(limit="64MiB"))
    raised: list[BaseException] = []

    def load() -> None:
        try:
            service.load("table", task, warm=[[ONE]])
        except Refused as error:
            raised.append(error)

    loader = threading.Thread(target=load)
    loader.start()
    assert task.inside.wait(300)
    service.drain()
    closer = threading.Thread(target=service.close)
    closer.start()
    task.gate.set()
    for thread in (loader, closer):
        thread.join(300)
    assert [str(error) for error in raised] == ["the server is going down"]
    assert service.pool is not None and service.pool.closed
    raised.clear()


def test_health_names_the_state_of_each_lane(sim: Any) -> None:
    with Engine(Options(limit="64MiB", lanes=2, patience_s=0.05)) as service:
        assert service.health().state == "empty"
        service.load("table", HeldTask())
        assert outcome(service.submit(ONE)) == "answered"
        assert service.health() == ("ok", ((0, "working", 0, None), (1, "working", 0, None)))
        with sim.device_lost(0):
            while service.health().state == "ok":
                outcome(service.submit(ONE))
            health = service.health()
            assert health.state == "failing"
            assert all(lane.state == "failing" and lane.faults and lane.error for lane in health.lanes)
        while service.health().state != "ok":
            outcome(service.submit(ONE))
        service.drain()
        assert service.health().state == "draining"


def test_metrics_page_counts_the_outcomes_of_requests_of_each_model() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    with engine_of(HeldTask()) as service:
        service.load("other", HeldTask())
        for number, name in ((1, "table"), (2, "table"), (99, "table"), (1, "other")):
            outcome(service.submit(np.array([number]), name))
        page = metrics_page(service).decode()
        found = {(one.name, *sorted(one.labels.items())): one.value
                 for family in parser.text_string_to_metric_families(page) for one in family.samples}
        requests = "aclpool_serving_requests_total"
        assert found[requests, ("event", "answered"), ("model", "table")] == 2
        assert found[requests, ("event", "failed"), ("model", "table")] == 1
        assert found[requests, ("event", "accepted"), ("model", "other")] == 1
        assert found["aclpool_serving_latency_seconds_count", ("model", "table")] == 2
        assert found["aclpool_serving_version", ("model", "other")] == 2
        assert found["aclpool_serving_lanes", ("state", "working")] == 1
        assert found["aclpool_serving_lane_faults_total", ("lane", "0")] == service.options.tries
        assert 'aclpool_reserved_bytes{device="0",pool="serving"' in page
        service.unload("other")
        assert 'model="other"' not in metrics_page(service).decode()


def test_forked_child_that_submits_a_request_gets_an_error() -> None:
    with engine_of(HeldTask()) as service:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"accepted"
            try:
                service.submit(ONE)
            except RuntimeError as error:
                said = str(error).encode()
            service.close()
            os.write(write, said)
            os._exit(0)
        os.close(write)
        with open(read, "rb") as told:
            assert b"made before a fork" in told.read()
        os.waitpid(child, 0)
        assert outcome(service.submit(ONE)) == "answered"


def test_coroutine_that_is_cancelled_drops_its_request() -> None:
    task = HeldTask(held=True)
    with engine_of(task, batch=1) as service:

        async def main() -> None:
            first = asyncio.ensure_future(service.ask(ONE))
            while not task.inside.is_set():
                await asyncio.sleep(0.001)
            second = asyncio.ensure_future(service.ask(ONE))
            while len(service.queue) == 0:
                await asyncio.sleep(0.001)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            task.gate.set()
            assert (await first).value == 1.0

        asyncio.run(main())
    assert (len(task.seen), service.counts["cancelled"]) == (1, 1)


@pytest.mark.parametrize(("call", "text"), [
    (lambda e: e.load("", HeldTask()), "name must be a str that is not empty, not ''"),
    (lambda e: e.load("x", HeldTask(), instances=0), "instances must be an int of at least 1, not 0"),
    (lambda e: e.load("x", Task()), "Task has no source"),
    (lambda e: Options(run_timeout_s=0), "run_timeout_s must be a number of at least 0.001 or None, not 0"),
    (lambda e: Options(lanes=True), "lanes must be an int of at least 1, not True"),
])
def test_impossible_engine_arguments_are_refused_by_name(call: Any, text: str) -> None:
    with Engine(Options(limit="64MiB")) as service, pytest.raises(ValueError, match=text):
        call(service)
