"""Subscription to a model's operators: a pipe delivers a record of each run, with its names and times."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import Call, SimModel

from acl.tools.onnx_writer import Builder

P, NO_MODEL, TWICE, CONFLICT = 100000, 100011, 148046, 148047
NO_METRICS, PIPE_METRICS = 255, 1
RECORD = 80

pytestmark = pytest.mark.usefixtures("device")


@dataclass
class OpRun:
    """The contents of a record."""

    kind: str
    name: str
    model: int
    begin: int
    end: int
    duration: int
    flag: int


def name_of(what: str, data: Any, length: int, index: int) -> str:
    """Return the type or the name in a record, read as a program reads it."""
    size = out(ctypes.c_size_t)
    assert getattr(api, f"aclprofGetOp{what}Len")(data, length, index, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(api, f"aclprofGetOp{what}")(data, length, index, ctypes.addressof(text), size.value) == 0
    assert len(text.value) == size.value - 1
    return text.value.decode()


def parsed(data: bytes) -> list[OpRun]:
    """Return all records in the bytes that were read from a pipe."""
    count, length = out(ctypes.c_uint32), len(data)
    buffer = ctypes.create_string_buffer(data, length)
    at = ctypes.addressof(buffer)
    assert api.aclprofGetOpNum(at, length, ctypes.byref(count)) == 0
    return [
        OpRun(name_of("Type", at, length, i), name_of("Name", at, length, i), api.aclprofGetModelId(at, length, i),
              api.aclprofGetOpStart(at, length, i), api.aclprofGetOpEnd(at, length, i),
              api.aclprofGetOpDuration(at, length, i), api.aclprofGetOpFlag(at, length, i))
        for i in range(count.value)
    ]


def small_model() -> bytes:
    """Return a model of relu(x @ w + b)."""
    made = Builder()
    x = made.input("x", "float32", [2, 3])
    product = made.add("MatMul", x, made.constant(np.ones((3, 4), np.float32)))
    total = made.add("Add", product, made.constant(np.ones(4, np.float32)))
    made.output(made.add("Relu", total), "float32", [2, 4])
    return made.to_bytes()


class Watch:
    """A model with a subscription, and the read end of its pipe."""

    def __init__(self) -> None:
        self.model = SimModel(small_model())
        self.read, self.write = os.pipe()
        self.fd = ctypes.c_int(self.write)
        self.config = api.aclprofCreateSubscribeConfig(1, NO_METRICS, ctypes.byref(self.fd))
        assert api.aclprofModelSubscribe(self.model.id, self.config) == 0
        self.subscribed = True

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.model(np.ones((2, 3), np.float32))

    def end(self) -> bytes:
        """Unsubscribe while another thread reads; return everything that it read."""
        chunks: list[bytes] = []

        def read() -> None:
            while chunk := os.read(self.read, 10 * RECORD):
                chunks.append(chunk)

        thread = threading.Thread(target=read)
        thread.start()
        self.subscribed = False
        assert api.aclprofModelUnSubscribe(self.model.id) == 0
        thread.join(300)
        assert not thread.is_alive(), "the write end is closed"
        return b"".join(chunks)

    def close(self) -> None:
        if self.subscribed:
            self.end()
        os.close(self.read)
        assert api.aclprofDestroySubscribeConfig(self.config) == 0
        self.model.__exit__()


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


def test_subscription_has_a_record_for_each_operator_of_a_run(watch: Watch) -> None:
    before = time.monotonic_ns()
    watch.run()
    after = time.monotonic_ns()
    runs = parsed(watch.end())
    assert [run.kind for run in runs] == ["MatMul", "Add", "Relu"]
    assert {run.model for run in runs} == {watch.model.id}
    assert {run.flag for run in runs} == {0}
    assert len({run.name for run in runs}) == 3
    assert all(before <= run.begin <= run.end <= after and run.duration == run.end - run.begin for run in runs)
    assert all(first.end <= second.begin for first, second in itertools.pairwise(runs))


def test_subscription_has_records_of_runs_on_a_stream(watch: Watch, raw_stream: int) -> None:
    inputs = [np.ones((2, 3), np.float32)]
    calls = [watch.model.queue(raw_stream, inputs, [32]) for _ in range(50)]
    assert api.aclrtSynchronizeStream(raw_stream) == 0
    assert [run.kind for run in parsed(watch.end())] == ["MatMul", "Add", "Relu"] * 50
    for call in calls:
        call.close()


def test_subscription_record_has_the_documented_size(watch: Watch) -> None:
    size = out(ctypes.c_size_t)
    assert api.aclprofGetOpDescSize(ctypes.byref(size)) == 0
    assert size.value == RECORD
    watch.run(2)
    assert len(watch.end()) == 6 * RECORD


def test_subscription_has_no_records_of_other_models(watch: Watch) -> None:
    with SimModel(small_model()) as other:
        other(np.ones((2, 3), np.float32))
    assert watch.end() == b""


def test_model_may_be_unloaded_before_its_subscription_ends(watch: Watch) -> None:
    watch.run()
    watch.model.__exit__()
    assert len(parsed(watch.end())) == 3
    watch.model = SimModel(small_model())


def test_subscriptions_of_two_models_write_to_separate_pipes() -> None:
    first, second = Watch(), Watch()
    first.run(1)
    second.run(2)
    assert {run.model for run in parsed(first.end())} == {first.model.id}
    assert {run.model for run in parsed(second.end())} == {second.model.id}
    first.close()
    second.close()


def test_subscriber_that_does_not_read_does_not_delay_the_model(watch: Watch) -> None:
    for _ in range(400):  # 96,000 bytes: more than a pipe holds
        watch.run()
    assert len(watch.end()) == 1200 * RECORD


def test_subscription_whose_pipe_is_closed_does_not_disturb_the_model(watch: Watch) -> None:
    os.close(watch.read)
    watch.run(3)
    watch.subscribed = False
    assert api.aclprofModelUnSubscribe(watch.model.id) == 0
    watch.read = os.open(os.devnull, os.O_RDONLY)


def test_type_and_name_of_a_subscription_record_can_be_read_only_once(watch: Watch) -> None:
    watch.run()
    data = ctypes.create_string_buffer(watch.end())
    at, length, size = ctypes.addressof(data), 3 * RECORD, out(ctypes.c_size_t)
    assert name_of("Type", at, length, 1) == "Add"
    assert api.aclprofGetOpTypeLen(at, length, 1, ctypes.byref(size)) == P
    assert api.aclprofGetOpType(at, length, 1, at, 80) == P
    name_of("Name", at, length, 1)
    assert api.aclprofGetOpNameLen(at, length, 1, ctypes.byref(size)) == P


def test_operator_type_of_a_record_needs_room_for_its_name(watch: Watch) -> None:
    watch.run()
    data = ctypes.create_string_buffer(watch.end())
    at, length, text = ctypes.addressof(data), 3 * RECORD, ctypes.create_string_buffer(b"?" * 20)
    assert api.aclprofGetOpType(at, length, 0, ctypes.addressof(text), 5) == P  # MatMul has 6
    assert api.aclprofGetOpType(at, length, 0, ctypes.addressof(text), 6) == 0
    assert text.value == b"MatMu"
    assert api.aclprofGetOpType(at, length, 1, ctypes.addressof(text), 20) == 0
    assert text.value == b"Add"


def test_data_that_is_not_a_subscription_record_is_refused(watch: Watch) -> None:
    watch.run()
    data = bytearray(watch.end())
    whole = ctypes.create_string_buffer(bytes(data))
    data[-1] ^= 1
    broken = ctypes.create_string_buffer(bytes(data))
    good, bad, length = ctypes.addressof(whole), ctypes.addressof(broken), 3 * RECORD
    count, size = out(ctypes.c_uint32), out(ctypes.c_size_t)
    rows: list[tuple[str, tuple[Any, ...], Any]] = [
        ("aclprofGetOpNum", (None, length, ctypes.byref(count)), P),
        ("aclprofGetOpNum", (good, length, None), P),
        ("aclprofGetOpNum", (good, length - 1, ctypes.byref(count)), P),
        ("aclprofGetOpNum", (bad, length, ctypes.byref(count)), P),
        ("aclprofGetOpNum", (bad, length - RECORD, ctypes.byref(count)), 0),
        ("aclprofGetOpTypeLen", (good, length, 3, ctypes.byref(size)), P),
        ("aclprofGetOpTypeLen", (good, length, 0, None), P),
        ("aclprofGetOpNameLen", (good, length, 0xFFFFFFFF, ctypes.byref(size)), P),
        ("aclprofGetOpNameLen", (bad, length, 0, ctypes.byref(size)), P),
        ("aclprofGetOpType", (good, length, 0, None, 10), P),
        ("aclprofGetOpType", (good, length, 0, good, 0), P),
        ("aclprofGetOpName", (good, length, 3, good, 10), P),
        ("aclprofGetOpName", (None, length, 0, good, 10), P),
        ("aclprofGetOpStart", (good, length, 3), 0),
        ("aclprofGetOpEnd", (None, length, 0), 0),
        ("aclprofGetOpDuration", (bad, length, 0), 0),
        ("aclprofGetModelId", (good, length, 3), P),
        ("aclprofGetOpFlag", (None, length, 0), 255),
        ("aclprofGetOpAttriValue", (good, length, 0, 0), None),
        ("aclprofGetOpAttriValue", (None, length, 0, 0), None),
        ("aclprofGetOpDescSize", (None,), P),
    ]
    for function, arguments, wanted in rows:
        assert getattr(api, function)(*arguments) == wanted, (function, arguments)


def test_subscription_accepts_only_valid_configurations() -> None:
    fd = ctypes.c_int(1)
    place = ctypes.byref(fd)
    assert api.aclprofCreateSubscribeConfig(1, NO_METRICS, None) is None
    assert api.aclprofCreateSubscribeConfig(2, NO_METRICS, place) is None
    assert api.aclprofCreateSubscribeConfig(-1, NO_METRICS, place) is None
    made = api.aclprofCreateSubscribeConfig(0, PIPE_METRICS, place)
    assert api.aclprofDestroySubscribeConfig(made) == 0
    assert api.aclprofDestroySubscribeConfig(made) == P
    assert api.aclprofDestroySubscribeConfig(None) == P


def test_subscription_with_a_wrong_model_or_configuration_is_refused(watch: Watch) -> None:
    fd = ctypes.c_int(watch.write)
    nothing = api.aclprofCreateSubscribeConfig(0, NO_METRICS, ctypes.byref(fd))
    closed = ctypes.c_int(1 << 20)
    nowhere = api.aclprofCreateSubscribeConfig(1, NO_METRICS, ctypes.byref(closed))
    with SimModel(small_model()) as other:
        assert api.aclprofModelSubscribe(other.id, None) == P
        assert api.aclprofModelSubscribe(other.id, nothing) == P
        assert api.aclprofModelSubscribe(other.id, nowhere) == P
        assert api.aclprofModelUnSubscribe(other.id) == NO_MODEL
    assert api.aclprofModelSubscribe(99999, watch.config) == NO_MODEL
    assert api.aclprofModelSubscribe(watch.model.id, watch.config) == TWICE
    assert api.aclprofModelUnSubscribe(99999) == NO_MODEL
    for config in (nothing, nowhere):
        assert api.aclprofDestroySubscribeConfig(config) == 0


def test_profiling_and_subscription_exclude_each_other(watch: Watch, tmp_path: Any) -> None:
    path = str(tmp_path).encode()
    assert api.aclprofInit(path, len(path)) == CONFLICT
    watch.end()
    assert api.aclprofInit(path, len(path)) == 0
    assert api.aclprofModelSubscribe(watch.model.id, watch.config) == CONFLICT
    assert api.aclprofFinalize() == 0


def test_subscription_of_a_run_with_a_wrong_input_shape_has_no_records(watch: Watch) -> None:
    call = Call([np.ones((2, 5), np.float32)], 1)
    assert api.aclmdlExecute(watch.model.id, call.input, call.output) != 0
    call.close()
    assert watch.end() == b""


def test_subscription_of_a_model_run_by_three_threads_has_all_records(watch: Watch) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            assert api.aclrtSetDevice(0) == 0
            watch.run(30)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(parsed(watch.end())) == 270
