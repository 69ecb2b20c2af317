"""Work on streams: its memory is kept, its order holds, and an error is reported for the work that failed."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.child import run_python
from support.gate import Gate
from support.requests import small_model

import acl

LIMIT_SECONDS = 30


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT_SECONDS} s: {what}"
        time.sleep(0.002)


def filled(pool: acl.PinnedPool, byte: bytes, size: int = 4096) -> acl.HostBuffer:
    buffer = pool.alloc(size)
    memoryview(buffer)[:] = byte * size
    return buffer


@pytest.fixture
def pinned() -> Iterator[acl.PinnedPool]:
    with acl.PinnedPool() as made:
        yield made


@pytest.fixture
def model() -> Iterator[acl.Model]:
    with acl.Model(small_model().to_bytes()) as loaded:
        loaded(X)                               # the first run makes the output shapes known
        yield loaded


X = np.ones((2, 8), np.float32)
RIGHT = np.maximum(X, 0) + 1


# ---- order and lifetime of copies ---------------------------------------------------------------

def test_memory_of_a_queued_copy_is_kept_if_the_next_copy_fails(
    stream: acl.Stream, pinned: acl.PinnedPool, sim: ModuleType
) -> None:
    host, device = filled(pinned, b"A"), acl.Buffer(4096, stream=stream)
    with acl.Stream(0) as other, Gate(stream) as gate:
        acl.copy_async(device, host, stream)
        with sim.fault("aclrtMemcpyAsync", nth=1, code=507899), pytest.raises(acl.AclError):
            acl.copy_async(device, host, other)
        del host
        taken = filled(pinned, b"B")            # this buffer must not get the memory that the first copy still reads
        gate.open()
        assert set(acl.to_bytes(device)) == {ord("A")}
        del taken


@pytest.mark.parametrize(
    ("written", "read"), [("buffer", "view"), ("view", "buffer"), ("view", "view"), ("buffer", "alias")])
def test_copy_through_one_view_is_waited_for_by_reads_through_another_view(
    stream: acl.Stream, pinned: acl.PinnedPool, written: str, read: str
) -> None:
    host = filled(pinned, b"Z")
    with acl.Pool(0) as pool, acl.Stream(0) as other:
        array = pool.empty(4096, "uint8", stream)
        acl.fill(array, 0)
        names = {"buffer": array.buffer, "view": array.buffer.view(), "alias": acl.from_dlpack(array).buffer}
        with Gate(other) as gate:
            acl.copy_async(names[written], host, other)
            gate.open(after=0.05)
            assert set(acl.to_bytes(names[read])) == {ord("Z")}
        for one in names.values():
            one.close()


def test_closing_memory_under_a_copy_gives_it_back_after_the_copy(stream: acl.Stream) -> None:
    size = 64 << 20
    with acl.Pool(0, limit="100MiB") as pool:
        for _ in range(5):
            old, source = pool.alloc(size, stream), b"A" * size
            copier = threading.Thread(target=acl.copy, args=(old, source))
            copier.start()
            time.sleep(0.001)
            old.close()
            try:
                new = pool.alloc(size, stream)
            except acl.OutOfMemoryError:        # the copy still keeps the memory
                copier.join()
                new = pool.alloc(size, stream)
            acl.fill(new, ord("B"))
            copier.join()
            assert set(acl.to_bytes(new)) == {ord("B")}
            new.close()


def test_owner_of_borrowed_memory_is_kept_alive_until_its_copy_is_done(stream: acl.Stream) -> None:
    class Owner:
        pass

    memory, host, done = acl.Buffer(64, stream=stream), acl.HostBuffer(64), []
    owner = Owner()
    weakref.finalize(owner, lambda: done.append(stream.query()))
    with Gate(stream) as gate:
        buffer = acl.Buffer.from_address(memory.address, 64, stream=stream, owner=owner)
        acl.copy_async(host, buffer, stream)
        del buffer, owner
        gc.collect()
        assert done == []
        gate.open()
        stream.synchronize()
    assert done == [True]


def test_busy_default_stream_is_waited_for_in_its_own_context(pinned: acl.PinnedPool) -> None:
    acl.Device(0).use()
    host, device = filled(pinned, b"A"), acl.Buffer(4096)
    try:
        with Gate(acl.Stream.default()) as gate:
            acl.copy_async(device, host)
            acl.Device(1).use()
            gate.open(after=0.05)
            host.close()
            other = filled(pinned, b"B")
            acl.Device(0).use()
            assert set(acl.to_bytes(device)) == {ord("A")}
            other.close()
    finally:
        acl.Device(0).use()


def test_a_copy_waits_for_the_default_stream_of_another_device() -> None:
    acl.Device(0).use()
    host, device = acl.HostBuffer(4096), acl.Buffer(4096)
    acl.fill(device, 65)
    try:
        with Gate(acl.Stream.default()) as gate:
            acl.copy_async(host, device)
            acl.Device(1).use()
            gate.open(after=0.05)
            target = acl.Buffer(4096)
            acl.copy(target, host)
            assert set(acl.to_bytes(target)) == {65}
    finally:
        acl.Device(0).use()


def test_buffer_does_not_keep_the_stream_of_an_earlier_copy_alive(sim: ModuleType) -> None:
    constant, host = acl.Buffer(64), acl.HostBuffer(64)
    acl.Stream(0).close()
    before = sim.live_handles()["stream"]
    for _ in range(100):
        made = acl.Stream(0)
        acl.copy_async(host, constant, made)
        made.synchronize()
        del made
    assert sim.live_handles()["stream"] == before


def test_view_of_a_closed_buffer_is_closed(stream: acl.Stream) -> None:
    buffer = acl.Buffer(64, stream=stream)
    view = buffer.view(8)
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        acl.to_bytes(view)


# ---- the garbage collector ----------------------------------------------------------------------

def test_garbage_collection_in_a_callback_waits_for_no_copy(
    stream: acl.Stream, pinned: acl.PinnedPool, no_leaks: None
) -> None:
    """A callback may drop the last reference to an object that later work of the callback's stream uses.

    The object's deletion must not wait for this work, which cannot begin before the callback has returned.
    """
    device = acl.Buffer(4096, stream=stream)
    inside, gate, taken = threading.Event(), threading.Event(), []
    held = [filled(pinned, b"A"), acl.Buffer(64), acl.Stream(0), acl.Event(), acl.HostBuffer(64)]

    def callback() -> None:
        inside.set()
        gate.wait(LIMIT_SECONDS)
        held.clear()
        taken.append(pinned.alloc(4096))

    stream.launch(callback)
    assert inside.wait(LIMIT_SECONDS)
    acl.copy_async(device, held[0], stream)     # queued behind the callback
    acl.copy_async(held[1], held[4], stream)
    gate.set()
    stream.synchronize(timeout_ms=LIMIT_SECONDS * 1000)
    assert set(acl.to_bytes(device)) == {ord("A")}
    assert len(taken) == 1


def test_buffers_dropped_under_a_copy_are_freed_by_the_next_call(
    stream: acl.Stream, sim: ModuleType
) -> None:
    used = sim.physical_bytes()
    buffer, host = acl.Buffer(1 << 20), acl.HostBuffer(1 << 20)
    with Gate(stream) as gate:
        acl.copy_async(buffer, host, stream)
        del buffer
        assert sim.physical_bytes() > used      # `del` did not wait
        gate.open()
        stream.synchronize()
    assert sim.physical_bytes() == used


MAKERS: dict[str, tuple[int, Callable[[], Any]]] = {
    "aclrtCreateStreamWithConfig": (207008, lambda: acl.Stream(0)),
    "aclrtCreateEventExWithFlag": (207007, acl.Event),
    "aclrtMallocHost": (207001, lambda: acl.HostBuffer(64)),
    "aclrtMalloc": (207001, lambda: acl.Buffer(64)),
}


@pytest.mark.parametrize("function", MAKERS)
def test_object_that_finds_no_memory_is_made_after_dropped_buffers_are_freed(
    function: str, stream: acl.Stream, sim: ModuleType
) -> None:
    code, make = MAKERS[function]
    buffer, host = acl.Buffer(64), acl.HostBuffer(64)
    with Gate(stream) as gate:
        acl.copy_async(buffer, host, stream)
        held = sim.live_handles()
        del buffer, host                        # the copy still uses them, so their memory is freed later
        gate.open(after=0.05)
        with sim.fault(function, nth=1, code=code) as fault:
            make().close()
        assert fault.hits == 1
    assert sim.live_handles() == held


def test_stream_closed_by_two_threads_is_destroyed_once(sim: ModuleType) -> None:
    # A second destroy would get handle 0: the default stream.
    for _ in range(5):
        stream = acl.Stream(0)
        with Gate(stream) as gate:
            threads = [threading.Thread(target=stream.close) for _ in range(4)]
            sim.reset_counters()
            for thread in threads:
                thread.start()
            gate.open(after=0.02)
            for thread in threads:
                thread.join(LIMIT_SECONDS)
        assert sim.counters()["aclrtDestroyStream"] == 1
        assert stream.closed


def test_chain_of_many_views_refers_directly_to_the_buffer() -> None:
    with acl.Buffer(64) as buffer:
        view = buffer
        for _ in range(300_000):                # a chain of this length would overflow the C stack
            view = view.view()
        acl.fill(view, 7)
        assert acl.to_bytes(buffer) == b"\7" * 64
    with pytest.raises(ValueError, match="the Buffer is closed"):
        _ = view.address


@pytest.mark.parametrize("dtype", ["O", "i4,O"])
def test_array_of_objects_is_refused_as_a_side_of_a_copy(dtype: str) -> None:
    # The bytes of such an array are pointers: if a device wrote them, the process would crash.
    array, named = np.zeros(8, dtype), np.zeros(8, [("Offset", "i4")])
    with acl.Buffer(256) as buffer:
        for pair in ((buffer, array), (array, buffer)):
            with pytest.raises(TypeError, match="must be plain memory; its elements are Python objects"):
                acl.copy(*pair)
        acl.copy(buffer, named)


def test_memory_is_kept_if_acl_lacks_room_for_the_wait(stream: acl.Stream, sim: ModuleType) -> None:
    target = acl.Buffer(4096, stream=stream)
    for drop in (False, True):
        source: acl.HostBuffer | None = acl.HostBuffer(4096)
        with Gate(stream), sim.fault("aclrtFreeHost") as freed:
            acl.copy_async(target, source, stream)
            wait = sim.fault("aclrtSynchronizeStreamWithTimeout", code=207001)
            with wait, sim.fault("aclrtStreamQuery", code=207001):
                if not drop and source is not None:
                    with pytest.raises(acl.AclError, match="207001"):
                        source.close()
                    with pytest.raises(acl.AclError, match="207001"):
                        stream.close()
                source = None
            assert freed.hits == 0 and not stream.closed
        stream.synchronize()
    target.close()


@pytest.mark.parametrize("call", ["run", "close"])
def test_out_of_memory_hook_that_uses_the_running_model_raises(stream: acl.Stream, call: str) -> None:
    told: list[BaseException] = []
    x = np.ones((2**17, 8), np.float32)
    with acl.Model(small_model().to_bytes()) as model, acl.Pool(0, limit="16MiB") as pool:

        def hook(report: acl.OomReport) -> None:
            try:
                model(x, stream=stream) if call == "run" else model.close()
            except RuntimeError as error:
                told.append(error)

        pool.on_oom(hook)
        pool.register(stream)
        with pytest.raises(acl.OutOfMemoryError):
            model(x, stream=stream)
        assert len(told) >= 1 and "under way in this thread" in str(told[0])
        model(np.ones((4, 8), np.float32), stream=stream)
        pool.unregister(stream)


SIGNALS = """
    import gc, random, signal, sys
    import numpy
    import acl
    from acl.tools.onnx_writer import Builder

    b = Builder()
    b.input("x", "float32", [None])
    b.output(b.add("Relu", "x"), "float32", [None])
    content, x = b.to_bytes(), numpy.ones(100, "f4")
    sys.unraisablehook = lambda told: None      # in finalizers of Python's own
    pool, stream = acl.Pool(0), acl.Stream(0)
    pool.register(stream)

    def streams():
        with acl.Stream(0) as other:
            other.launch(int)
            stream.wait_event(other.record())
        acl.Stream(0).launch(int)

    def copies():
        with pool.alloc(4096, stream) as buffer, acl.HostBuffer(4096) as host:
            acl.copy_async(buffer, host, stream)
            acl.to_bytes(buffer)

    def runs():
        with acl.Model(content) as model:
            model(x, stream=stream)
            model.run_async(x, stream)[0].numpy()

    class Bang(Exception):
        pass

    armed = False

    def on_alarm(*_):
        if armed:
            raise Bang

    def quiet():
        acl.Stream(0).close()
        gc.collect()
        stream.synchronize()
        return acl.sim.live_handles(), pool.stats().requested

    for turn in (streams, copies, runs):
        turn()
    before = quiet()
    signal.signal(signal.SIGALRM, on_alarm)
    random.seed(5)
    bangs = 0
    for count in range(6000):
        turn = (streams, copies, runs)[count % 3]
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 6e-4))
        try:
            armed = True
            turn()
            armed = False
        except Bang:
            armed = False
            bangs += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    for turn in (streams, copies, runs):
        turn()
    after = quiet()
    print(bangs > 0, after == before or (before, after), pool.check())
"""


def test_signal_handler_that_raises_at_any_line_loses_no_memory_or_work() -> None:
    done = run_python(SIGNALS)
    assert (done.stdout, done.stderr, done.returncode) == ("True True 0\n", "", 0)


def test_garbage_collection_at_every_allocation_breaks_no_call() -> None:
    done = run_python(
        """
        import gc, threading
        import acl
        pool, pinned, stream = acl.Pool(0), acl.PinnedPool(), acl.Stream(0)
        class Cycle:
            def __init__(self, *held): self.me, self.held = self, held
        gc.set_threshold(1)
        for turn in range(60):
            host, device = pinned.alloc(4096), pool.alloc(4096, stream)
            memoryview(host)[:] = bytes([turn]) * 4096
            acl.copy_async(device, host, stream)
            stream.launch(lambda *held: [Cycle(held) for _ in range(3)], host, device)
            Cycle(host, device, acl.Event(), acl.Stream(0), acl.Buffer(64))
            del host, device
        stream.synchronize()
        print("ok")
        """)
    assert (done.stdout.strip(), done.returncode) == ("ok", 0), done.stderr


# ---- failures -----------------------------------------------------------------------------------

def test_queued_runs_of_a_failed_stream_each_raise_their_own_error(
    model: acl.Model, stream: acl.Stream, sim: ModuleType
) -> None:
    first = model.run_async(X, stream)
    stream.synchronize()
    second = model.run_async(X, stream)
    sim.fail_stream(stream.handle)
    third = model.run_async(X, stream)
    np.testing.assert_array_equal(first[0].numpy(), RIGHT)
    errors = []
    for run in (third, second):                 # the order does not matter
        for read in (run[0].numpy, run[0].__dlpack__, lambda run=run: acl.to_bytes(run[0].buffer)):
            with pytest.raises(acl.AclError, match="a run of model") as caught:
                read()
            errors.append(caught.value)
        with pytest.raises(acl.AclError):
            acl.copy_async(acl.HostBuffer(64), run[0], stream)
    assert len(set(map(id, errors))) == len(errors)
    assert [run.outcome for run in (first, second, third)] == ["done", "failed", "failed"]
    assert first.place < second.place < third.place
    np.testing.assert_array_equal(model(X, stream=stream)[0], RIGHT)


def test_runs_of_an_aborted_stream_are_aborted(model: acl.Model, stream: acl.Stream) -> None:
    done = model.run_async(X, stream)
    stream.synchronize()
    with Gate(stream):
        dropped = model.run_async(X, stream)
        assert dropped.outcome == "queued"
        stream.abort()
    assert (done.outcome, dropped.outcome) == ("done", "aborted")
    with pytest.raises(acl.AclError, match="aborted"):
        dropped[0].numpy()
    with pytest.raises(acl.AclError, match="aborted"):
        dropped.synchronize()
    np.testing.assert_array_equal(done[0].numpy(), RIGHT)


def test_a_run_is_the_tuple_of_its_outputs(model: acl.Model, stream: acl.Stream) -> None:
    run = model.run_async(X, stream)
    (output,) = run
    assert isinstance(run, acl.Run) and isinstance(run, tuple)
    assert run[0] is output and len(run) == 1
    assert run.stream is stream
    assert run.synchronize() is run
    assert (run.outcome, run.error) == ("done", None)


def test_failed_operators_and_fills_raise_an_error_that_names_them(stream: acl.Stream, sim: ModuleType) -> None:
    run = acl.Op("Relu")(X, stream=stream)
    copy = acl.Buffer(64, stream=stream)
    acl.fill(copy, 1, wait=False)
    sim.fail_stream(stream.handle)
    with pytest.raises(acl.AclError, match="operator 'Relu'"):
        run[0].numpy()
    with pytest.raises(acl.AclError, match="a fill"):
        acl.to_bytes(copy)
    acl.fill(copy, 2)                           # after a new write the buffer can be read again
    assert set(acl.to_bytes(copy)) == {2}


def test_failure_found_while_closing_a_buffer_is_raised_by_the_next_synchronize(
    stream: acl.Stream, sim: ModuleType
) -> None:
    buffer = acl.Buffer(64)
    acl.fill(buffer, 1, stream=stream, wait=False)
    sim.fail_stream(stream.handle)
    buffer.close()                              # waits for the fill and finds its failure
    with pytest.raises(acl.AclError):
        stream.synchronize()
    stream.synchronize()


def test_first_run_of_a_model_does_not_raise_the_failure_of_earlier_work(
    model: acl.Model, stream: acl.Stream, sim: ModuleType
) -> None:
    failed = model.run_async(X, stream)
    sim.fail_stream(stream.handle)
    with acl.Model(small_model().to_bytes()) as fresh:      # its first run waits, as the shapes are not known
        np.testing.assert_array_equal(fresh.run_async(X, stream)[0].numpy(), RIGHT)
    with pytest.raises(acl.AclError, match="a run of model"):
        failed[0].numpy()
    stream.synchronize()


def test_first_run_of_a_model_does_not_raise_the_exception_of_a_callback(
    stream: acl.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda told: None)
    stream.launch(lambda: 1 / 0)
    with acl.Model(small_model().to_bytes()) as fresh:
        np.testing.assert_array_equal(fresh.run_async(X, stream)[0].numpy(), RIGHT)
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()


def test_synchronize_on_a_lost_device_raises_a_device_lost_error(
    model: acl.Model, stream: acl.Stream, sim: ModuleType
) -> None:
    with sim.device_lost(0), pytest.raises(acl.DeviceLostError):
        stream.synchronize()


def test_outputs_are_readable_after_the_model_is_closed() -> None:
    with acl.Model(small_model().to_bytes()) as model:
        (output,) = model.run_async(X)
    np.testing.assert_array_equal(output.numpy(), RIGHT)


# ---- exceptions and signals ---------------------------------------------------------------------

@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda args: None)


@pytest.mark.usefixtures("quiet")
def test_exception_of_a_callback_is_raised_by_its_stream_only(model: acl.Model, stream: acl.Stream) -> None:
    model.run_async(X, stream)
    stream.launch(lambda: 1 / 0)
    with acl.Pool(0) as pool, pool.empty(4, "float32", stream) as array:
        array.__dlpack__()
    model.close()
    assert model.closed
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
    stream.synchronize()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", ["default", "handle"])
def test_exception_of_a_callback_is_raised_through_any_object_of_its_stream(kind: str, stream: acl.Stream) -> None:
    def name() -> acl.Stream:
        return acl.Stream.default() if kind == "default" else acl.Stream.from_handle(stream.handle)

    name().launch(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        name().synchronize()
    assert name() == name()
    assert hash(name()) == hash(name())


def test_stream_close_calls_all_hooks_before_it_raises_the_error_of_one() -> None:
    told: list[int] = []
    stream, pool = acl.Stream(0), acl.Pool(0)
    pool.register(stream)
    handle = stream.handle
    for closer in (lambda _: told.append(1), lambda _: 1 / 0, lambda _: told.append(3)):
        stream.on_close(closer)
    with pytest.raises(ZeroDivisionError):
        stream.close()
    assert told == [1, 3]
    assert stream.closed
    assert not pool.serves(handle)
    pool.close()


@pytest.mark.parametrize("wait", ["stream", "event", "device", "copy", "close"])
def test_signal_ends_every_kind_of_wait(wait: str, sim: ModuleType) -> None:
    stream, buffer = acl.Stream(0), acl.Buffer(64)
    with Gate(stream):
        acl.fill(buffer, 1, stream=stream, wait=False)
        event = stream.record()
        waits: dict[str, Callable[[], object]] = {
            "stream": stream.synchronize, "event": event.synchronize,
            "device": acl.Device(0).synchronize, "copy": lambda: acl.to_bytes(buffer), "close": stream.close,
        }
        killer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            killer.start()
            waits[wait]()
        assert not event.query()                # the work itself continues
    stream.close()


def test_signal_ends_the_wait_of_a_model_close_and_the_model_stays_loaded(
        model: acl.Model, stream: acl.Stream, sim: ModuleType) -> None:
    sync = "aclrtSynchronizeStreamWithTimeout"
    with Gate(stream):
        run = model.run_async(X, stream)
        before = sim.counters().get(sync, 0)

        def interrupt() -> None:
            wait_until(lambda: sim.counters().get(sync, 0) > before, "the close waits for the run")
            os.kill(os.getpid(), signal.SIGINT)

        killer = threading.Thread(target=interrupt)
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            model.close()
        killer.join()
        assert not model.closed and not stream.query()
    (result,) = run.result()                    # the run itself has gone on
    assert result.shape == run[0].shape
    model.close()
    assert model.closed



@pytest.mark.parametrize("what", ["stream.close()", "model.close()", "stream.synchronize()", "acl.Buffer(64)",
                                  "acl.Stream(0)", "pinned.close()", "acl.fill(buffer, 1)", "stream.record()"])
def test_a_callback_may_not_call_the_device(model: acl.Model, stream: acl.Stream, what: str) -> None:
    buffer, pinned, seen = acl.Buffer(64), acl.HostBuffer(64), []
    names = {"stream": stream, "model": model, "buffer": buffer, "pinned": pinned, "acl": acl}

    def callback() -> None:
        try:
            eval(what, names)
        except RuntimeError as error:
            seen.append(str(error))

    stream.launch(callback)
    stream.synchronize(timeout_ms=LIMIT_SECONDS * 1000)
    assert len(seen) == 1 and "callback" in seen[0]


def test_closing_a_model_while_it_reads_its_inputs_is_an_error(model: acl.Model, stream: acl.Stream) -> None:
    class Closing:
        def __array__(self, *arguments: object, **named: object) -> np.ndarray:
            model.close()
            return X

    with pytest.raises(ValueError, match="the Model is closed"):
        model.run_async({"x": Closing()}, stream)
