"""Run: the outputs of one run on a stream, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acl.bind._error import AclError
    from acl.runtime._array import Array
    from acl.runtime._stream import Stream
    from acl.runtime._work import Work

__all__ = ["Run"]


class Run(tuple["Array", ...]):
    """The outputs of a run, a tuple of `Array`, which knows whether the run succeeded.

    The runtime says of a stream that work on it failed, not which.  When it says so, all runs that
    were queued since the last one known to be done have failed: reading their outputs raises.  So it
    is when the stream is aborted.  A run that is known to be done stays readable.

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

    def __new__(cls, outputs: Iterable[Array], work: Work, stream: Stream) -> Run:
        """The outputs of a work that is queued on a stream."""
        run = super().__new__(cls, outputs)
        run.stream = stream
        run.place = work.place
        run._work = work
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

    def __reduce__(self) -> Any:
        raise TypeError("a Run cannot be pickled: take its outputs' numpy()")
