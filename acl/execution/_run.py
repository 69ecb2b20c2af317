"""Run: the outputs of one run on a stream, and what became of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable

    from acl.bind._error import AclError
    from acl.runtime._array import Array
    from acl.runtime._stream import Stream
    from acl.runtime._work import Work

__all__ = ["Run", "milliseconds_of", "seconds_checked"]


def seconds_checked(timeout: Any) -> float | None:
    """A timeout in seconds, or None for no limit."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout must be above 0 seconds, or None, not {timeout}")
    return float(timeout)


def milliseconds_of(seconds: float | None) -> int | None:
    """The same for the waits of the C API: at least 1."""
    return None if seconds is None else max(1, int(min(seconds * 1000, 2**31 - 1)))


class Run(tuple["Array", ...]):
    """The outputs of a run, a tuple of `Array`, which knows whether the run succeeded.

    The runtime says of a stream that work on it failed, not which.  When it says so, all runs that
    were queued since the last one known to be done have failed: reading their outputs raises.  So it
    is when the stream is aborted.  A run that is known to be done stays readable.

    Like a future it has `done`, `result` and `cancel`, and in a coroutine ``await run`` gives what `result`
    gives, without blocking the event loop.

    Attributes
    ----------
    stream : Stream
        Where it was queued.
    place : int
        Its number among the works of the package on that stream, from 1.
    """

    stream: Stream
    place: int
    _work: Work
    _cancelled: bool

    def __new__(cls, outputs: Iterable[Array], work: Work, stream: Stream) -> Run:
        """The outputs of a work that is queued on a stream."""
        run = super().__new__(cls, outputs)
        run.stream = stream
        run.place = work.place
        run._work = work
        run._cancelled = False
        return run

    @property
    def outcome(self) -> str:
        """What is known of it by now: ``"queued"``, ``"done"``, ``"failed"`` or ``"aborted"``."""
        return self._work.outcome

    @property
    def error(self) -> AclError | None:
        """Its own error if it failed or was aborted, else None; nothing is waited for."""
        return self._work.error

    def synchronize(self, timeout_ms: int | None = None) -> Run:
        """Wait for the run; raises its own error, or `acl.TimeoutError`.  Returns the run."""
        self._work.synchronize(timeout_ms)
        return self

    def done(self) -> bool:
        """Whether it is over: done, failed, aborted or cancelled.  Asks the device, and does not wait.

        The device tells whether a stream has work, not which: with work queued behind it a run that nobody
        waits for may be over unseen.
        """
        return self._cancelled or self._work.poll()

    def result(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the run: its outputs as NumPy arrays.

        Parameters
        ----------
        timeout : float, optional
            Seconds; `acl.TimeoutError` after that, and the run goes on.

        Raises
        ------
        AclError
            Its own error, if it failed or was aborted.
        concurrent.futures.CancelledError
            After `cancel`.
        """
        limit = seconds_checked(timeout)
        end = None if limit is None else time.monotonic() + limit
        self._check()
        self.synchronize(milliseconds_of(limit))
        left = None if end is None else max(end - time.monotonic(), 0.0)
        return tuple([array.numpy(timeout_ms=milliseconds_of(left)) for array in self])

    def cancel(self) -> bool:
        """Give the outputs back, as nobody wants them: whether the run was not over yet.

        What is queued runs; only `Stream.abort` ends it, with all that is on the stream.
        """
        from acl.runtime._buffer import let_go

        if self.done():
            return self._cancelled
        self._cancelled = True
        for array in self:
            let_go(array.buffer)
        return True

    def cancelled(self) -> bool:
        """Whether `cancel` has been called in time."""
        return self._cancelled

    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, Run]:
        """Coroutine: `synchronize` that does not block the event loop; `timeout` is in seconds."""
        from acl.execution._await import run_wait

        self._check()
        return run_wait(self, timeout)

    def __await__(self) -> Generator[Any, None, tuple[Any, ...]]:
        """The outputs as NumPy arrays; their copies to the host are queued when it is awaited."""
        from acl.execution._await import run_numpy

        self._check()
        return run_numpy(self, None).__await__()

    def _check(self) -> None:
        if self._cancelled:
            from concurrent.futures import CancelledError

            raise CancelledError("the run was cancelled")

    def __reduce__(self) -> Any:
        raise TypeError("a Run cannot be pickled: take its outputs' numpy()")
