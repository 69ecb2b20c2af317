"""Run: the outputs of one run on a stream, and its outcome."""

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
    """Return a timeout for the waits of the C API: at least 1 millisecond, or None for no limit."""
    return None if seconds is None else max(1, int(min(seconds * 1000, 2**31 - 1)))


class Run(tuple["Array", ...]):
    """The outputs of a run, a tuple of `Array`, which knows whether the run succeeded.

    The runtime reports that work on a stream failed, but not which work.  Therefore all runs that
    were queued since the last one known to be done count as failed then, and reading their outputs
    raises an error; the same happens when the stream is aborted.  The outputs of a run that is known
    to be done stay readable.

    Like a future it has `done`, `result` and `cancel`, and in a coroutine ``await run`` gives what `result`
    gives, without blocking the event loop.

    Attributes
    ----------
    stream : Stream
        The stream on which the run was queued.
    place : int
        Number of the run among this package's works on that stream, from 1.
    """

    stream: Stream
    place: int
    _work: Work
    _cancelled: bool

    def __new__(cls, outputs: Iterable[Array], work: Work, stream: Stream) -> Run:
        """Make a Run of the outputs of a work that is queued on a stream."""
        run = super().__new__(cls, outputs)
        run.stream = stream
        run.place = work.place
        run._work = work
        run._cancelled = False
        return run

    @property
    def outcome(self) -> str:
        """What is known of the run by now: ``"queued"``, ``"done"``, ``"failed"`` or ``"aborted"``."""
        return self._work.outcome

    @property
    def error(self) -> AclError | None:
        """The run's own error if it is known to have failed or was aborted, else None; does not wait."""
        return self._work.error

    def synchronize(self, timeout_ms: int | None = None) -> Run:
        """Wait for the run and return it; raises the run's own error, or `acl.TimeoutError`."""
        self._work.synchronize(timeout_ms)
        return self

    def done(self) -> bool:
        """Return True if the run is over: done, failed, aborted or cancelled.  Asks the device, and does not wait.

        The device tells only whether a stream has work left, not which.  So if other work is queued behind a run,
        `done` may return False for a while after the run is over, unless a thread waits for it.
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
        """Free the outputs of a run that is not over yet; return True if it is cancelled, False if it was over.

        The queued run itself continues; only `Stream.abort` ends it, with all work of the stream.
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
        """Wait and return the outputs as NumPy arrays; the copies to the host are queued when it is awaited."""
        from acl.execution._await import run_numpy

        self._check()
        return run_numpy(self, None).__await__()

    def _check(self) -> None:
        if self._cancelled:
            from concurrent.futures import CancelledError

            raise CancelledError("the run was cancelled")

    def __reduce__(self) -> Any:
        raise TypeError("a Run cannot be pickled: take its outputs' numpy()")
