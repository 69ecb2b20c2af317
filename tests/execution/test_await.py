"""Waits that do not block the event loop: `arun`, `await run`, and their timeouts, errors and cancellations."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.child import run_python
from support.gate import Gate
from support.requests import small_model

import acl

LIMIT = 30.0
X = np.ones((2, 8), np.float32)


@pytest.fixture
def pool(stream: acl.Stream) -> Iterator[acl.Pool]:
    with acl.Pool(0, "256MiB") as made:
        made.register(stream)
        yield made
        assert made.check() == 0


def run(coroutine: Awaitable[Any]) -> Any:
    """Run a coroutine in a new event loop for at most 30 s, and return its result."""
    async def limited() -> Any:
        return await asyncio.wait_for(coroutine, LIMIT)

    return asyncio.run(limited())


async def until(condition: Callable[[], bool], what: str) -> None:
    """Let other tasks run until a condition is true."""
    end = asyncio.get_running_loop().time() + LIMIT
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not within {LIMIT} s: {what}"
        await asyncio.sleep(0.001)


def synchronisations() -> int:
    """Return how many waits for streams have begun."""
    return acl.sim.counters().get("aclrtSynchronizeStreamWithTimeout", 0)


def asked(stream: acl.Stream) -> int:
    """Return the number of coroutines that wait for work queued on a stream."""
    return len(stream.progress.attendant.asked) if stream.progress.attendant else 0


# ---- results ------------------------------------------------------------------------------------

def test_concurrent_awaited_runs_have_their_own_results(model: acl.Model, pool: acl.Pool) -> None:
    async def main() -> list[tuple[Any, ...]]:
        return await asyncio.gather(*[
            model.arun(np.full((i % 5 + 1, 8), i, np.float32), stream=streams[i % 3]) for i in range(40)])

    streams = [acl.Stream(0) for _ in range(3)]
    for one in streams:
        pool.register(one)
    for i, (y,) in enumerate(run(main())):
        np.testing.assert_array_equal(y, np.full((i % 5 + 1, 8), i + 1))
    for one in streams:
        one.close()


def test_runs_are_queued_in_the_order_of_the_calls(model: acl.Model, stream: acl.Stream) -> None:
    """Each run reads the output of the run before, so another order would give other results."""
    async def main() -> Any:
        with Gate(stream):
            tasks = [asyncio.ensure_future(model.arun(state, stream=stream, out=[state])) for _ in range(20)]
            await until(lambda: asked(stream) == 20, "20 runs are queued")
        return await asyncio.gather(*tasks)

    state = acl.Pool(0).empty((2, 8), "float32", stream)
    acl.fill(state, 0)
    for i, (y,) in enumerate(run(main())):
        np.testing.assert_array_equal(y, np.full((2, 8), i + 1))


def test_run_can_be_awaited_several_times(model: acl.Model, stream: acl.Stream) -> None:
    async def main() -> None:
        made = model.run_async(X, stream)
        for _ in range(2):
            (y,) = await made
            np.testing.assert_array_equal(y, X + 1)
        assert await made.wait(LIMIT) is made and made.done()
        np.testing.assert_array_equal(made.result(LIMIT)[0], X + 1)
        assert (await made[0].anumpy(timeout=LIMIT)).tolist() == (X + 1).tolist()

    run(main())


def test_streams_events_and_copies_are_awaited(stream: acl.Stream) -> None:
    async def main() -> None:
        event, target = acl.Event(), bytearray(64)
        with Gate(stream) as gate:
            event.record(stream)
            waits = [asyncio.ensure_future(one) for one in (
                stream.wait(LIMIT), event.wait(LIMIT), acl.acopy(target, memory, timeout=LIMIT),
                acl.acopy(pinned, memory, timeout=LIMIT))]
            await asyncio.sleep(0.01)
            assert not any(one.done() for one in waits)
            gate.open()
            await asyncio.gather(*waits)
        assert bytes(target) == bytes(pinned) == bytes([7]) * 64

    memory, pinned = acl.Buffer(64, stream=stream), acl.HostBuffer(64)
    acl.fill(memory, 7)
    run(main())


def test_outputs_without_elements_are_awaited(stream: acl.Stream, model: acl.Model) -> None:
    assert run(model.arun(np.zeros((0, 8), np.float32), stream=stream))[0].shape == (0, 8)


def test_memory_of_awaited_runs_is_freed(model: acl.Model, stream: acl.Stream, pool: acl.Pool) -> None:
    async def main() -> None:
        for _ in range(5):
            await model.arun(X, stream=stream)

    run(main())
    gc.collect()
    stream.synchronize()
    assert sum(one.requested for one in pool.stats().streams) == 0


# ---- the loop is not blocked --------------------------------------------------------------------

@pytest.mark.parametrize("taught", [True, False])
def test_blocked_stream_does_not_block_the_event_loop(taught: bool, stream: acl.Stream) -> None:
    """The event loop opens the gate.  So it must not be blocked, even by a first run, which waits for the stream."""
    async def main() -> None:
        with Gate(stream) as gate:
            tasks = [asyncio.ensure_future(model.arun(X, stream=stream)) for _ in range(12)]
            await asyncio.sleep(0.01)
            assert not gate.opened.is_set() and not any(task.done() for task in tasks)
            gate.open()
            for (y,) in await asyncio.gather(*tasks):
                np.testing.assert_array_equal(y, X + 1)

    with acl.Model(small_model().to_bytes()) as model:
        if taught:
            model(X)
        run(main())


def test_number_of_threads_does_not_grow_with_the_runs(model: acl.Model, stream: acl.Stream) -> None:
    async def main() -> int:
        with Gate(stream):
            tasks = [asyncio.ensure_future(model.arun(X, stream=stream)) for _ in range(50)]
            await asyncio.sleep(0.01)
            most = threading.active_count()
        await asyncio.gather(*tasks)
        return most

    before = threading.active_count()
    assert run(main()) <= before + 2


def test_tag_of_a_coroutine_is_the_tag_of_its_run(model: acl.Model, stream: acl.Stream, pool: acl.Pool) -> None:
    async def main() -> None:
        with pool.tag("asked for"):
            await model.arun(X, stream=stream)

    run(main())
    assert "asked for" in pool.stats().tags


# ---- errors, timeouts, cancellations ------------------------------------------------------------

def test_failure_of_a_run_is_raised_by_that_run_only(model: acl.Model, stream: acl.Stream, sim: ModuleType) -> None:
    async def main() -> None:
        np.testing.assert_array_equal((await model.arun(X, stream=stream))[0], X + 1)
        sim.fail_stream(stream.handle)
        failed = model.run_async(X, stream)
        with pytest.raises(acl.AclError, match="a run of model"):
            await failed
        with pytest.raises(acl.AclError, match="a run of model"):
            await failed.wait()
        assert failed.outcome == "failed" and failed.done()
        np.testing.assert_array_equal((await model.arun(X, stream=stream))[0], X + 1)
        stream.synchronize()                    # no error: it was reported for its run

    run(main())


def test_awaited_stream_raises_the_error_that_synchronize_would_raise(stream: acl.Stream, sim: ModuleType) -> None:
    async def main() -> None:
        sim.fail_stream(stream.handle)
        with pytest.raises(acl.AclError, match="507015"):
            await stream.wait(LIMIT)
        await stream.wait(LIMIT)

    run(main())


def test_input_that_does_not_fit_is_named(model: acl.Model, stream: acl.Stream) -> None:
    with pytest.raises(acl.InvalidArgumentError, match="expected float32"):
        run(model.arun(np.ones((2, 9), np.float32), stream=stream))
    np.testing.assert_array_equal(run(model.arun(X, stream=stream))[0], X + 1)


@pytest.mark.parametrize("function", ["aclrtMemcpyAsync", "aclrtSynchronizeStreamWithTimeout"])
def test_await_raises_the_failure_of_a_runtime_call(
    function: str, model: acl.Model, stream: acl.Stream, pool: acl.Pool, sim: ModuleType
) -> None:
    with sim.fault(function, nth=1, code=507899) as fault, pytest.raises(acl.AclError):
        run(model.arun(X, stream=stream, timeout=LIMIT))
    assert fault.hits == 1
    np.testing.assert_array_equal(run(model.arun(X, stream=stream, timeout=LIMIT))[0], X + 1)


def test_abort_of_a_stream_ends_all_awaits(model: acl.Model, stream: acl.Stream) -> None:
    """The waits end with an error, although running work on the stream continues."""
    async def main() -> None:
        with Gate(stream) as gate:
            queued = model.run_async(X, stream)
            before = synchronisations()
            waits = [asyncio.ensure_future(model.arun(X, stream=stream)), asyncio.ensure_future(queued.wait())]
            await until(lambda: asked(stream) == 2, "both are waited for")
            await until(lambda: synchronisations() > before, "the thread that waits is inside ACL")
            stream.abort()
            for one in waits:
                with pytest.raises(acl.AclError, match="aborted"):
                    await one
            assert not gate.opened.is_set()

    run(main())


def test_timeout_ends_the_wait_and_not_the_run(model: acl.Model, stream: acl.Stream, pool: acl.Pool) -> None:
    async def main() -> None:
        event = acl.Event()
        with Gate(stream):
            queued = model.run_async(X, stream)
            event.record(stream)
            for wait in (model.arun(X, stream=stream, timeout=0.02), queued.wait(0.02), stream.wait(0.02),
                         event.wait(0.02), queued[0].anumpy(timeout=0.02),
                         acl.acopy(bytearray(64), queued[0], timeout=0.02)):
                with pytest.raises(acl.TimeoutError):
                    await wait
            with pytest.raises(acl.TimeoutError):
                queued.result(0.02)
        np.testing.assert_array_equal((await queued)[0], X + 1)

    run(main())


def test_run_cancelled_before_it_is_queued_never_runs(model: acl.Model, stream: acl.Stream) -> None:
    async def cancelled() -> None:
        with Gate(stream), acl.Model(small_model().to_bytes()) as new:
            first = asyncio.ensure_future(new.arun(X, stream=stream))       # waits, because its shapes are unknown
            other = asyncio.ensure_future(model.arun(X, stream=stream))
            await asyncio.sleep(0)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            first.cancel()
        await asyncio.sleep(0)

    def works_of(coroutine: Awaitable[Any]) -> int:
        before = model.run_async(X, stream).place
        run(coroutine)
        run(stream.wait(LIMIT))
        run(model.arun(X, stream=stream))       # is queued behind all other runs
        return model.run_async(X, stream).place - before

    async def nothing() -> None:
        pass

    assert works_of(cancelled()) < works_of(nothing()) + 3


def test_run_cancelled_while_it_executes_frees_its_outputs(
    model: acl.Model, stream: acl.Stream, pool: acl.Pool
) -> None:
    async def main() -> None:
        with Gate(stream):
            task = asyncio.ensure_future(model.arun(X, stream=stream))
            await until(lambda: asked(stream) == 1, "the run is queued")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await stream.wait(LIMIT)

    run(main())
    gc.collect()
    assert sum(one.requested for one in pool.stats().streams) == 0


@pytest.mark.parametrize("pooled", [True, False])
def test_cancelled_run_frees_its_outputs_without_a_wait(
    pooled: bool, model: acl.Model, stream: acl.Stream
) -> None:
    with acl.Pool(0) as pool:
        if pooled:
            pool.register(stream)
        with Gate(stream):
            made = model.run_async(X, stream)
            assert not made.done() and made.cancel()
            assert made.done() and made.cancelled() and made[0].buffer.closed
            with pytest.raises(CancelledError):
                made.result()
        stream.synchronize()
        assert pool.stats().requested == 0
        finished = model.run_async(X, stream).synchronize()
        assert not finished.cancel() and not finished.cancelled()


@pytest.mark.parametrize(
    ("timeout", "error"),
    [("1", TypeError), (True, TypeError), (0, ValueError), (-1.0, ValueError), (float("nan"), ValueError)])
def test_wrong_timeout_is_refused_by_name(
    timeout: Any, error: type[Exception], model: acl.Model, stream: acl.Stream
) -> None:
    made = model.run_async(X, stream)
    for wait in (lambda: run(model.arun(X, stream=stream, timeout=timeout)), lambda: run(made.wait(timeout)),
                 lambda: run(stream.wait(timeout)), lambda: made.result(timeout)):
        with pytest.raises(error, match="timeout must be"):
            wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_cannot_await(model: acl.Model) -> None:
    done = run_python(
        """
        import asyncio, os, sys
        sys.path.insert(0, "tests")
        import numpy as np
        import acl
        from support.requests import small_model
        X = np.ones((2, 8), np.float32)
        stream, model = acl.Stream(0), acl.Model(small_model().to_bytes())
        asyncio.run(model.arun(X, stream=stream))
        made = model.run_async(X, stream)
        if os.fork() == 0:
            for wait in (made.wait, lambda: model.arun(X, stream=stream)):
                try:
                    asyncio.run(wait())
                except RuntimeError as error:
                    assert "before a fork" in str(error), error
                else:
                    os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]), asyncio.run(made.wait()).outcome)
        """)
    assert (done.stdout.split(), done.returncode) == (["0", "done"], 0), done.stderr


def test_process_exit_does_not_wait_for_the_device() -> None:
    done = run_python(
        """
        import asyncio, sys, threading
        sys.path.insert(0, "tests")
        import numpy as np
        import acl
        from support.requests import small_model
        X = np.ones((2, 8), np.float32)
        stream, model = acl.Stream(0), acl.Model(small_model().to_bytes())
        model(X)
        never = threading.Event()
        stream.launch(never.wait)
        async def main():
            try:
                await model.arun(X, stream=stream, timeout=0.05)
            except acl.TimeoutError:
                print("ran out")
        asyncio.run(main())
        """)
    assert (done.stdout.strip(), done.returncode) == ("ran out", 0), done.stderr


# ---- waits of threads ---------------------------------------------------------------------------

def waits_of(model: acl.Model, stream: acl.Stream, memory: acl.Buffer) -> dict[str, Callable[[int], object]]:
    return {
        "model": lambda ms: model(X, stream=stream, timeout_ms=ms),
        "a model's first run": lambda ms: acl.Model(small_model().to_bytes())(X, stream=stream, timeout_ms=ms),
        "numpy": lambda ms: acl.Array.of(memory, (16,), "float32").numpy(timeout_ms=ms),
        "copy": lambda ms: acl.copy(bytearray(64), memory, timeout_ms=ms),
        "copy to the device": lambda ms: acl.copy(memory, bytes(64), timeout_ms=ms),
        "pinned copy": lambda ms: acl.copy(acl.HostBuffer(64), memory, timeout_ms=ms),
        "to_bytes": lambda ms: acl.to_bytes(memory, timeout_ms=ms),
        "to_numpy": lambda ms: acl.to_numpy(memory, timeout_ms=ms),
        "copy_2d": lambda ms: acl.copy_2d(bytearray(64), 8, memory, 8, 8, 8, timeout_ms=ms),
        "fill": lambda ms: acl.fill(memory, 1, timeout_ms=ms),
        "result": lambda ms: model.run_async(X, stream).result(ms / 1000),
    }


@pytest.mark.parametrize("wait", ["model", "a model's first run", "numpy", "copy", "copy to the device", "pinned copy",
                                  "to_bytes", "to_numpy", "copy_2d", "fill", "result"])
def test_every_wait_has_a_timeout(wait: str, model: acl.Model, stream: acl.Stream) -> None:
    memory = acl.Buffer(64, stream=stream)
    acl.fill(memory, 3)
    call = waits_of(model, stream, memory)[wait]
    with Gate(stream) as gate:
        with pytest.raises(acl.TimeoutError):
            call(20)
        assert not gate.opened.is_set()
    call(int(LIMIT * 1000))
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="timeout"):
            call(wrong)


# ---- outputs in memory of the caller ------------------------------------------------------------

@pytest.mark.parametrize("kind", ["array", "buffer", "larger"])
def test_run_writes_its_outputs_to_the_given_memory(
    kind: str, model: acl.Model, stream: acl.Stream, pool: acl.Pool
) -> None:
    own: Any = {"array": lambda: pool.empty((2, 8), "float32", stream), "buffer": lambda: pool.alloc(64, stream),
                "larger": lambda: pool.alloc(4096, stream)}[kind]()
    memory = own.buffer if isinstance(own, acl.Array) else own
    for i in range(3):
        made = model.run_async(X * i, stream, out=[own])
        assert made[0].address == memory.address and made[0].shape == (2, 8)
        np.testing.assert_array_equal(made[0].numpy(), X * i + 1)
        np.testing.assert_array_equal(model(X * i, stream=stream, out=[own])[0], X * i + 1)
        made[0].close()                         # does not free the memory of the caller
    np.testing.assert_array_equal(acl.to_numpy(memory, "float32")[:16], np.ravel(X * 2 + 1))
    assert not memory.closed


def test_unusable_memory_for_outputs_is_refused_by_name(model: acl.Model, stream: acl.Stream, pool: acl.Pool) -> None:
    closed = pool.alloc(64, stream)
    closed.close()
    for out, text in (([pool.alloc(63, stream)], "out for 'y' must have 64 bytes for this run, not 63"),
                      ([], "out must be a list or tuple of 1.* of 0"), (X, "out must be a list or tuple of 1"),
                      ([X], "out for 'y' must be an Array, a Buffer or None, not ndarray"), ([closed], "closed")):
        with pytest.raises(ValueError, match=text):
            model.run_async(X, stream, out=out)
    np.testing.assert_array_equal(model(X, stream=stream, out=[None])[0], X + 1)


def test_array_is_converted_to_a_numpy_array(stream: acl.Stream) -> None:
    (y,) = acl.Op("Relu")(X, stream=stream)
    np.testing.assert_array_equal(np.asarray(y), X)
    assert np.asarray(y, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.stack([y, y]), np.stack([X, X]))
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="on the device"):
            np.asarray(y, copy=False)


# ---- operators ----------------------------------------------------------------------------------

def test_run_of_an_operator_can_be_awaited_without_blocking_the_event_loop(stream: acl.Stream) -> None:
    async def main() -> None:
        relu, x = acl.Op("Relu"), np.array([-1, 2], np.float32)
        (on_device,) = acl.Op("Neg")(-x, stream=stream)     # a copy from memory that is not pinned would wait
        with Gate(stream) as gate:
            made = relu(on_device, stream=stream)
            waiting = asyncio.ensure_future(made.wait(LIMIT))
            await until(lambda: asked(stream) == 1, "the run is waited for")
            assert not waiting.done() and not made.done()
            gate.open()
            assert await waiting is made
        (y,) = await made
        assert y.tolist() == [0, 2]
        values = await asyncio.gather(*[relu(x * i, stream=stream) for i in range(5)])
        assert [value[0].tolist() for value in values] == [[0, 2 * i] for i in range(5)]

    run(main())


def test_failed_run_of_an_operator_raises_from_each_await(stream: acl.Stream, sim: ModuleType) -> None:
    async def main() -> None:
        (on_device,) = await acl.Op("Relu")(X, stream=stream).wait(LIMIT)
        sim.fail_stream(stream.handle)
        failed = acl.Op("Relu")(on_device, stream=stream)
        for _ in range(2):
            with pytest.raises(acl.AclError, match="507015"):
                await failed
        with pytest.raises(acl.AclError, match="507015"):
            await failed.wait(LIMIT)
        assert failed.outcome == "failed" and failed.done()

    run(main())
