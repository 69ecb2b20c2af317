"""Lanes and their streams: create a stream, run a batch on it, test it after a fault, destroy it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acl import rt
from acl.bind._error import AclError, TimeoutError
from acl.runtime._stream import Stream
from acl.serving._attempts import FAULTS

if TYPE_CHECKING:
    from acl.pool._pool import Pool
    from acl.serving._version import Version

__all__ = ["Lane", "Streams"]


class Streams:
    """Create the lanes' streams, which allocate from the engine's pool, and destroy them.

    Attributes
    ----------
    lost : list of int
        Handles of streams that could not be destroyed because the device was lost.
    stuck : list of Stream
        Aborted streams whose work has not ended.
    """

    def __init__(self, device: int, pool: Pool | None) -> None:
        self.device, self.pool = device, pool
        self.lock = threading.RLock()   # guards both lists; held while `sweep` destroys idle streams
        self.lost: list[int] = []
        self.stuck: list[Stream] = []

    def make(self, name: str | None = None) -> Stream:
        """Return a new stream with this name that allocates from the pool."""
        stream = Stream(self.device, name=name)
        try:
            if self.pool is not None:
                self.pool.register(stream)
        except BaseException:
            stream.close()
            raise
        self.sweep()
        return stream

    def destroy(self, stream: Stream) -> None:
        """Destroy a stream; if the device is lost, `sweep` destroys it later."""
        handle = stream.handle
        with suppress(AclError):
            if self.pool is not None:
                self.pool.unregister(stream)
        with suppress(AclError):                # the error of failed work, or that the stream was not destroyed
            stream.close()
        if stream.refused:
            with self.lock:
                self.lost.append(handle)

    def abort(self, stream: Stream) -> None:
        """Abort the work of a stream and destroy it; if its work does not end, `sweep` destroys it later."""
        with suppress(AclError):
            stream.abort()
        if is_idle(stream):
            self.destroy(stream)
        else:
            with self.lock:
                self.stuck.append(stream)

    def sweep(self) -> None:
        """Try again to destroy the streams in `lost` and `stuck`."""
        with self.lock:
            # Keep a handle only if ACL reports a fault again.  Otherwise the stream is destroyed, and ACL may use the
            # handle for another stream.
            self.lost = [handle for handle in self.lost if rt.destroy_stream_force(handle) in FAULTS]
            for stream in [one for one in self.stuck if is_idle(one)]:
                self.stuck.remove(stream)
                self.destroy(stream)

    def wait(self, timeout_s: float) -> None:
        """Wait for the streams that were aborted, for at most `timeout_s` seconds each."""
        for stream in list(self.stuck):
            with suppress(AclError):
                stream.synchronize(int(timeout_s * 1000))


def is_idle(stream: Stream) -> bool:
    """Return True if a stream has no work left, or if its work has failed."""
    try:
        return stream.query()
    except AclError:
        return True


class Lane:
    """A stream that one thread at a time uses.

    Attributes
    ----------
    faults : int
        Number of device faults in its batches.
    error : str or None
        Message of the last fault; None if there was none.
    """

    def __init__(self, streams: Streams, number: int, run_timeout_s: float | None) -> None:
        self.streams, self.number, self.run_timeout_s = streams, number, run_timeout_s
        self.stream: Stream | None = None
        self.peak = 0                   # most bytes that were requested on the stream at one time
        self.faults = 0
        self.error: str | None = None

    def open(self) -> Stream:
        """Return the lane's stream; it is created if the lane has none."""
        if self.stream is None:
            self.stream = self.streams.make(f"lane-{self.number}")
            self.peak = self.measure()
        return self.stream

    def measure(self) -> int:
        """Return the most bytes that were requested on the stream at one time; 0 without a pool."""
        pool, stream = self.streams.pool, self.stream
        if pool is None or stream is None:
            return 0
        return next((part.requested_peak for part in pool.stats().streams if part.stream == stream.handle), 0)

    def run(self, version: Version, inputs: Any, nbytes: int, count: int) -> list[Any]:
        """Run a batch of `count` items and return the outputs as NumPy arrays."""
        started = time.monotonic()
        results = version.instance(self.number).run_async(inputs, self.open())
        try:
            outputs = list(results.result(self.run_timeout_s))
        finally:
            for result in results:
                result.close()
        version.costs.took(time.monotonic() - started)
        before, self.peak = self.peak, self.measure()
        if self.peak:
            version.costs.learn(nbytes, count, self.peak, exact=self.peak > before)
        return outputs

    def works(self) -> bool:
        """Return True if the lane's stream, which is made if there is none, can be synchronised."""
        limit = None if self.run_timeout_s is None else max(1, int(self.run_timeout_s * 1000))
        try:
            self.open().synchronize(limit)
        except AclError as error:
            self.drop(hung=isinstance(error, TimeoutError))
            return False
        return True

    def drop(self, *, hung: bool = False) -> None:
        """Destroy the stream, so that the next batch gets a new one; abort its work first if it is `hung`."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        if hung:
            self.streams.abort(stream)
        else:
            self.streams.destroy(stream)

    def abort(self) -> None:
        """Abort the work of the stream; any thread may call it."""
        stream = self.stream
        if stream is not None:
            with suppress(AclError, ValueError):        # the lane's thread may close the stream at the same time
                stream.abort()
