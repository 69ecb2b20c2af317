"""Waiting without blocking the event loop.

Each stream for which a coroutine waits has an `Attendant` with two threads.  The queueing thread queues runs in the
order of the calls.  The waiting thread waits for the stream and resumes the coroutines whose outcome is known.  A
thread ends after `IDLE_S` without work.  Copies of a run's outputs to pinned host memory are queued directly behind
the run.

The threads are daemons, so that the interpreter can end without waiting for a device.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from acl.bind._error import TimeoutError
from acl.execution._run import milliseconds_of, seconds_checked
from acl.pool._pinned import default_pool
from acl.runtime._copy import copy, copy_work
from acl.runtime._device import Device
from acl.runtime._stream import raise_told
from acl.runtime._tensor import host_dtype

if TYPE_CHECKING:
    from acl.execution._model import Model
    from acl.execution._run import Run
    from acl.runtime._array import Array
    from acl.runtime._stream import Event, Stream
    from acl.runtime._work import Progress, Work

# The result of a function that starts something: the works that it queued, and a function that returns the final
# result.  The coroutine waits for the last work before that function is called.
Started = tuple[tuple["Work", ...], Callable[[], Any]]

__all__ = [
    "Attendant", "array_numpy", "event_wait", "memory_copy", "model_run", "run_numpy", "run_wait",
    "stream_wait",
]

IDLE_S = 5.0                    # seconds after which a thread without work ends
POLL_S = 0.0002, 0.005          # pauses between queries of an event, in seconds: the first, and the longest
RAN_OUT = 507046                # ACL_ERROR_RT_STREAM_SYNC_TIMEOUT


# ---- threads ------------------------------------------------------------------------------------

class Line:
    """Call functions one after the other in a thread.  The thread ends after `IDLE_S` without a function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: deque[Callable[[], object]] = deque()
        self.changed = threading.Condition()
        self.working = False

    def add(self, job: Callable[[], object]) -> None:
        """Call a function in the thread, after the functions that were added before; it must not raise."""
        with self.changed:
            if not self.working:
                threading.Thread(target=self.run, name=self.name, daemon=True).start()
                self.working = True
            self.jobs.append(job)
            self.changed.notify()

    def run(self) -> None:
        """The body of the thread: call functions until there is none left."""
        while (job := self.take()) is not None:
            job()
            del job                     # free the objects that it refers to before the next wait

    def take(self) -> Callable[[], object] | None:
        with self.changed:
            if not self.jobs:
                self.changed.wait(IDLE_S)
            if self.jobs:
                return self.jobs.popleft()
            self.working = False
            return None


class Attendant:
    """The two threads of one stream that work for coroutines: one queues runs, one waits for them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.queueing = Line("acl queueing")
        self.waiting = Line("acl waiting")
        self.asked: set[Outcome] = set()

    def ask(self, outcome: Outcome) -> None:
        """Let the waiting thread wait for an outcome and then answer it."""
        self.asked.add(outcome)
        self.waiting.add(outcome.wait)

    def aborted(self) -> None:
        """After an abort of the stream, answer all outcomes that have failed.  Running work may not have ended yet."""
        for outcome in list(self.asked):
            with suppress(RuntimeError):        # raised if the loop is closed
                outcome.answer.loop.call_soon_threadsafe(outcome.tell_failure)


def attendant_of(progress: Progress) -> Attendant:
    """Return the attendant of a stream.  It is made on first use, and once more in a forked child."""
    found: Attendant | None = progress.attendant
    if found is None or found.process != os.getpid():
        found = progress.attendant = Attendant()
    return found


class Answer:
    """A result that another thread gives to a coroutine of the running loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    @property
    def wanted(self) -> bool:
        """True while a coroutine still waits for the result."""
        return not self.future.done()

    def give(self, value: Any, error: BaseException | None = None) -> None:
        """Give the result or the error to the coroutine; any thread may call it."""
        with suppress(RuntimeError):    # raised if the loop is closed
            self.loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)

    async def get(self, timeout: float | None, function: str) -> Any:
        """Wait in the loop and return the result.  After a timeout or a cancellation, `wanted` is False."""
        try:
            await asyncio.wait((self.future,), timeout=timeout)
            if not self.future.done():
                raise TimeoutError(RAN_OUT, function, f"not done after {timeout} s; what was queued goes on")
            return self.future.result()
        finally:
            if not self.future.cancel() and not self.future.cancelled():
                self.future.exception()         # set during the cancellation; read it, so that asyncio does not log it


class Outcome:
    """A coroutine's wait for a work.

    The coroutine gets one answer: the error of the first failed work of `told`, or the result of `value()`.
    """

    def __init__(self, work: Work, told: tuple[Work, ...], answer: Answer, value: Callable[[], Any]) -> None:
        self.work = work
        self.told = told
        self.answer = answer
        self.value: Callable[[], Any] | None = value

    def wait(self) -> None:
        """Called in the stream's waiting thread: wait for the work, and answer."""
        error: BaseException | None = None
        while self.value is not None and self.answer.wanted and not self.over() and error is None:
            try:
                error = self.work.progress.attend()
            except BaseException as raised:     # the coroutine will raise it
                error = raised
        self.tell(error)

    def over(self) -> bool:
        return self.work.known or self.work.progress.ended

    def tell_failure(self) -> None:
        """Called in the event loop: answer if the work has failed."""
        if self.work.error is not None:
            self.tell(None)

    def tell(self, error: BaseException | None) -> None:
        """Answer after a wait; `error` is the error of the wait, or None."""
        value, self.value = self.value, None
        self.work.progress.attendant.asked.discard(self)
        if value is None or not self.answer.wanted:
            return
        try:
            for work in self.told:
                work.check()
            if error is not None and not self.over():
                raise error
            self.answer.give(value())
        except BaseException as raised:
            value = None                        # the error's traceback refers to this frame and its variables
            self.answer.give(None, raised)


# ---- copies to the host -------------------------------------------------------------------------

class Fetch:
    """Copies of arrays to pinned memory, queued on a stream behind its earlier work."""

    def __init__(self, arrays: Iterable[Array], stream: Stream, first: tuple[Work, ...] = ()) -> None:
        self.works = first
        self.parts: list[tuple[Any, Any, tuple[int, ...]]] = []
        for array in arrays:
            pinned = default_pool().alloc(max(array.nbytes, 1))
            if array.nbytes:
                work = copy_work(pinned, array, stream)
                assert work is not None         # a copy to pinned memory on a stream is always queued
                self.works += (work,)
            dtype = host_dtype(array.dtype) if isinstance(array.dtype, str) else array.dtype
            self.parts.append((pinned, dtype, array.shape))

    def arrays(self) -> tuple[Any, ...]:
        """Return the contents as NumPy arrays with their own memory; the copies must be done."""
        import numpy

        parts, self.parts = self.parts, []
        return tuple([numpy.ndarray(shape, dtype, buffer=pinned).copy() for pinned, dtype, shape in parts])


def _queue(answer: Answer, attendant: Attendant, start: Callable[[], Started]) -> None:
    """Call `start` in the queueing thread with the caller's context variables; answer when its works are done."""
    context = contextvars.copy_context()

    def job() -> None:
        if not answer.wanted:
            return
        try:
            works, value = context.run(start)
        except BaseException as error:
            answer.give(None, error)
            return
        attendant.ask(Outcome(works[-1], works, answer, value))

    attendant.queueing.add(job)


# ---- coroutines of public methods ---------------------------------------------------------------

async def model_run(model: Model, values: list[Any], stream: Stream, out: Any, timeout: float | None) -> Any:
    """The coroutine of `Model.arun`."""
    limit = seconds_checked(timeout)
    answer = Answer()

    def start() -> Started:
        run = model.run_async(values, stream, out=out)
        try:
            fetch = Fetch(run, stream, (run._work,))
        finally:
            del run                     # its outputs are freed when the copies are done, even after an error
        return fetch.works, fetch.arrays

    _queue(answer, attendant_of(stream.progress), start)
    return await answer.get(limit, "acl.Model.arun")


async def run_numpy(run: Run, timeout: float | None) -> Any:
    """Wait for a queued run and return its outputs as NumPy arrays."""
    limit = seconds_checked(timeout)
    answer = Answer()

    def start() -> Started:
        run._work.check()
        fetch = Fetch(run, run.stream, (run._work,))
        return fetch.works, fetch.arrays

    _queue(answer, attendant_of(run._work.progress), start)
    return await answer.get(limit, "acl.Run")


async def run_wait(run: Run, timeout: float | None) -> Run:
    """The coroutine of `Run.wait`."""
    await _known(run._work, (run._work,), timeout, "acl.Run.wait")
    return run


async def stream_wait(stream: Stream, mark: Work, timeout: float | None) -> None:
    """The coroutine of `Stream.wait`; it raises errors as `Stream.synchronize` does."""
    await _known(mark, (), timeout, "acl.Stream.wait")
    raise_told(stream)


async def _known(work: Work, told: tuple[Work, ...], timeout: float | None, function: str) -> None:
    limit = seconds_checked(timeout)
    answer = Answer()
    attendant_of(work.progress).ask(Outcome(work, told, answer, lambda: None))
    await answer.get(limit, function)


async def event_wait(event: Event, timeout: float | None) -> None:
    """The coroutine of `Event.wait`: it queries the event at growing intervals and needs no thread."""
    limit = seconds_checked(timeout)
    end = None if limit is None else time.monotonic() + limit
    pause, most = POLL_S
    while not event.query():
        left = most if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError(RAN_OUT, "acl.Event.wait", f"not reached after {timeout} s")
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, most)


async def array_numpy(array: Array, timeout: float | None) -> Any:
    """The coroutine of `Array.anumpy`."""
    limit = seconds_checked(timeout)
    stream = array.buffer.stream
    if stream is None or stream.closed:
        return await _in_thread(array.numpy, limit)
    answer = Answer()

    def start() -> Started:
        fetch = Fetch((array,), stream)
        return fetch.works, lambda: fetch.arrays()[0]

    if array.nbytes == 0:
        return array.numpy()
    _queue(answer, attendant_of(stream.progress), start)
    return await answer.get(limit, "acl.Array.anumpy")


async def memory_copy(target: Any, source: Any, timeout: float | None) -> None:
    """The coroutine of `acl.acopy`."""
    await _in_thread(partial(copy, target, source), seconds_checked(timeout))


async def _in_thread(function: Callable[..., Any], limit: float | None) -> Any:
    """Call ``function(timeout_ms=...)`` in a thread of the loop, with the caller's device current there."""
    device = Device.current()

    def call() -> Any:
        with nullcontext() if device is None else device:
            return function(timeout_ms=milliseconds_of(limit))

    return await asyncio.to_thread(call)
