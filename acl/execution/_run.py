"""The class `Run`: the outputs of one run on a stream, and the run's outcome."""

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
    """Return a timeout in seconds as a float, or None for no limit; raise an error for other values."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout must be above 0 seconds, or None, not {timeout}")
    return float(timeout)


def milliseconds_of(seconds: float | None) -> int | None:
    """Return a timeout in milliseconds, at least 1, as the C API takes it; None for no limit."""
    return None if seconds is None else max(1, int(min(seconds * 1000, 2**31 - 1)))


class Run(tuple["Array", ...]):
    """The outputs of a run, as a tuple of `Array`, and the run's outcome.

    The runtime reports that work on a stream failed, but not which work.  Therefore, after a failure or
    an abort of the stream, all runs count as failed that were queued since the last run known to be done.
    Reading their outputs raises an error.  The outputs of a run that is known to be done stay readable.

    Like a future, a Run has `done`, `result` and `cancel`.  In a coroutine, ``await run`` returns what
    `result` returns, without blocking the event loop.

    Attributes
    ----------
    stream : Stream
        The stream on which the run was queued.
    place : int
        The run's number in the order of this package's works on the stream; the first is 1.
    """

    stream: Stream
    place: int
    _work: Work
    _cancelled: bool

    def __new__(cls, outputs: Iterable[Array], work: Work, stream: Stream) -> Run:
        """Make a Run for a work that is queued on a stream, and its outputs."""
        run = super().__new__(cls, outputs)
        run.stream = stream
        run.place = work.place
        run._work = work
        run._cancelled = False
        return run

    @property
    def outcome(self) -> str:
        """The outcome: ``"queued"`` (not known yet), ``"done"``, ``"failed"`` or ``"aborted"``."""
        return self._work.outcome

    @property
    def error(self) -> AclError | None:
        """The run's own error if it is known to have failed or to be aborted, else None; does not wait."""
        return self._work.error

    def synchronize(self, timeout_ms: int | None = None) -> Run:
        """Wait for the run and return it; raise the run's own error, or `acl.TimeoutError`."""
        self._work.synchronize(timeout_ms)
        return self

    def done(self) -> bool:
        """Return True if the run is over: done, failed, aborted or cancelled.  Queries the device, but does not wait.

        The device reports only whether a stream has any work left.  So if other work is queued behind the run,
        `done` may return False for a while after the run is over, unless a thread waits for the run.
        """
        return self._cancelled or self._work.poll()

    def result(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the run and return its outputs as NumPy arrays.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; after that `acl.TimeoutError` is raised, and the run continues.

        Raises
        ------
        AclError
            The run failed or was aborted.
        concurrent.futures.CancelledError
            The run was cancelled by `cancel`.
        """
        limit = seconds_checked(timeout)
        end = None if limit is None else time.monotonic() + limit
        self._check()
        self.synchronize(milliseconds_of(limit))
        left = None if end is None else max(end - time.monotonic(), 0.0)
        return tuple([array.numpy(timeout_ms=milliseconds_of(left)) for array in self])

    def cancel(self) -> bool:
        """Free the outputs of a run that is not over yet.  Return True if it is cancelled, False if it was over.

        The run itself continues on the device.  Only `Stream.abort` can stop it, with all work of the stream.
        """
        from acl.runtime._buffer import let_go

        if self.done():
            return self._cancelled
        self._cancelled = True
        for array in self:
            let_go(array.buffer)
        return True

    def cancelled(self) -> bool:
        """Return True if `cancel` was called before the run was over."""
        return self._cancelled

    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, Run]:
        """Wait for the run as `synchronize` does, in a coroutine without blocking the event loop.

        `timeout` is in seconds.
        """
        from acl.execution._await import run_wait

        self._check()
        return run_wait(self, timeout)

    def __await__(self) -> Generator[Any, None, tuple[Any, ...]]:
        """Wait and return the outputs as NumPy arrays; ``await`` queues the copies to the host."""
        from acl.execution._await import run_numpy

        self._check()
        return run_numpy(self, None).__await__()

    def _check(self) -> None:
        if self._cancelled:
            from concurrent.futures import CancelledError

            raise CancelledError("the run was cancelled")

    def __reduce__(self) -> Any:
        raise TypeError("a Run cannot be pickled: take its outputs' numpy()")
