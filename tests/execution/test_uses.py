"""Memory that a call uses is noted before the work is queued, so that no failure afterwards hands it out too early."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from support.gate import Gate

import acl
from acl.runtime._copy import copy_work
from acl.tools.onnx_writer import Builder

X = np.ones((2, 8), np.float32)
RIGHT = np.maximum(X, 0) + 1
NO_EVENTS = 207007      # a status of ACL for which the package waits for dropped objects, and tries again


@pytest.fixture
def pool() -> Iterator[acl.Pool]:
    with acl.Pool(0) as made:
        yield made
        assert made.check() == 0


# ---- calls that fail after the work was queued --------------------------------------------------

@pytest.mark.parametrize("nth", [1, 2])
def test_memory_given_for_outputs_is_kept_if_the_call_fails_behind_the_queued_run(
    nth: int, model: acl.Model, stream: acl.Stream, pool: acl.Pool, sim: ModuleType
) -> None:
    with acl.Stream(0) as other, Gate(stream) as gate:
        out = pool.alloc(X.nbytes, other)
        address = out.address
        with sim.fault("aclGetTensorDescDimV2", nth=nth), pytest.raises(acl.AclError):
            model.run_async(X, stream, out=[out])
        del out
        taken = pool.alloc(X.nbytes, other)
        acl.fill(taken, 7)
        assert taken.address != address
        gate.open()
        stream.synchronize()
        assert set(acl.to_bytes(taken)) == {7}


def test_memory_given_for_outputs_is_kept_if_ctrl_c_ends_the_call_behind_the_queued_run(
    model: acl.Model, stream: acl.Stream, pool: acl.Pool, sim: ModuleType
) -> None:
    dropped, host = acl.Buffer(64), acl.HostBuffer(64)
    with acl.Stream(0) as other, acl.Stream(0) as third, Gate(third) as hold, Gate(stream) as gate:
        acl.copy_async(dropped, host, third)
        del dropped                             # the event below waits for it, so for `third`
        out = pool.alloc(X.nbytes, other)
        address = out.address
        with sim.fault("aclrtCreateEventExWithFlag", times=1, code=NO_EVENTS) as fault:
            ended = threading.Event()

            def interrupt() -> None:
                while not fault.hits and not ended.wait(0.001):
                    pass
                _thread.interrupt_main()

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    model.run_async(X, stream, out=[out])
            finally:
                ended.set()
                thread.join()
        del out
        taken = pool.alloc(X.nbytes, other)
        assert taken.address != address
        gate.open()
        hold.open()
        stream.synchronize()
        third.synchronize()
    np.testing.assert_array_equal(model(X)[0], RIGHT)


def test_memory_of_a_wrong_prediction_is_free_before_the_second_run_is_queued(stream: acl.Stream) -> None:
    b = Builder()
    b.add("NonZero", b.input("x", "float32", ["n"]), outputs=["where"])
    b.output("where", "int64", [1, "found"])
    x = np.zeros(1 << 20, np.float32)
    x[:1 << 19] = 1
    with acl.Pool(0, limit="14MiB") as pool, acl.Model(b.to_bytes()) as loaded:     # the prediction needs 4 MiB
        pool.register(stream)
        assert loaded(x, stream=stream)[0].shape == (1, 1 << 19)
        x[:] = 1                                # the output is predicted to be as large as before
        assert loaded(x, stream=stream)[0].shape == (1, 1 << 20)
        pool.unregister(stream)


# ---- notes of works -----------------------------------------------------------------------------

@pytest.mark.parametrize("call", ["fill", "copy"])
def test_work_whose_note_finds_no_host_memory_lets_later_works_be_done(call: str, stream: acl.Stream) -> None:
    testcapi = pytest.importorskip("_testcapi")
    host, errors = acl.HostBuffer(64), 0
    with acl.Stream(0) as other:
        for nth in range(40):
            target, source, sink = acl.Buffer(64, stream=stream), acl.Buffer(64), acl.Buffer(64)
            acl.copy_async(sink, source, other)     # so the note of a copy's source needs memory
            try:
                testcapi.set_nomemory(nth, nth + 1)
                try:
                    if call == "fill":
                        acl.fill(target, 1, stream=stream, wait=False)
                    else:
                        acl.copy_async(target, source, stream)
                finally:
                    testcapi.remove_mem_hooks()
            except MemoryError:
                errors += 1
            work = copy_work(target, host, stream)
            stream.synchronize()
            assert work.outcome == "done", f"after allocation {nth} failed"
    assert errors


def test_work_of_a_refused_call_lets_later_works_be_done(stream: acl.Stream, pool: acl.Pool) -> None:
    open_one, closed = (pool.empty((2, 8), "float32", stream) for _ in range(2))
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        acl.Op("Add")(open_one, closed, outputs=[((2, 8), "float32")], stream=stream)
    work = copy_work(acl.Buffer(64, stream=stream), acl.HostBuffer(64), stream)
    stream.synchronize()
    assert work.outcome == "done"


# ---- the copies of inputs -----------------------------------------------------------------------

def test_event_that_cannot_be_queried_stops_no_later_run(
    model: acl.Model, stream: acl.Stream, sim: ModuleType
) -> None:
    with sim.fault("aclrtQueryEventStatus"):
        for i in range(3):
            np.testing.assert_array_equal(model(X * i, stream=stream)[0], X * i + 1)
