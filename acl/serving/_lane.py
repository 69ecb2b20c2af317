"""A lane's stream: it is made, runs batches, is looked at after a fault, and is given up."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acl import rt
from acl.bind._error import AclError, DeviceLostError, TimeoutError
from acl.runtime._stream import Stream

if TYPE_CHECKING:
    from acl.pool._pool import Pool
    from acl.serving._version import Version

__all__ = ["Lane", "Streams"]


class Streams:
    """Makes the lanes' streams on a device, with its pool, and destroys them.

    Attributes
    ----------
    lost : list of int
        Handles of streams that a lost device did not take back.
    stuck : list of Stream
        Streams that were aborted, and whose work goes on.
    """

    def __init__(self, device: int, pool: Pool | None) -> None:
        self.device, self.pool = device, pool
        self.lock = threading.RLock()   # guards both lists; held while `sweep` destroys what is idle
        self.lost: list[int] = []
        self.stuck: list[Stream] = []

    def make(self) -> Stream:
        """A stream that the pool serves."""
        stream = Stream(self.device)
        try:
            if self.pool is not None:
                self.pool.register(stream)
        except BaseException:
            stream.close()
            raise
        self.sweep()
        return stream

    def destroy(self, stream: Stream) -> None:
        """Destroy a stream; one that a lost device does not take is destroyed later."""
        handle = stream.handle
        with suppress(AclError):
            if self.pool is not None:
                self.pool.unregister(stream)
        try:
            stream.close()
        except AclError as error:               # of its work, after which it is gone; or it was not destroyed
            if isinstance(error, DeviceLostError) or error.function == "aclrtDestroyStream":
                with self.lock:
                    self.lost.append(handle)

    def abort(self, stream: Stream) -> None:
        """End what runs on a stream and destroy it, or leave it for later if its work does not end."""
        with suppress(AclError):
            stream.abort()
        if is_idle(stream):
            self.destroy(stream)
        else:
            with self.lock:
                self.stuck.append(stream)

    def sweep(self) -> None:
        """Destroy what could not be destroyed before."""
        with self.lock:
            while self.lost:
                rt.destroy_stream_force(self.lost.pop())
            for stream in [one for one in self.stuck if is_idle(one)]:
                self.stuck.remove(stream)
                self.destroy(stream)

    def wait(self, timeout_s: float) -> None:
        """Wait for streams that were aborted, each for that long at most."""
        for stream in list(self.stuck):
            with suppress(AclError):
                stream.synchronize(int(timeout_s * 1000))


def is_idle(stream: Stream) -> bool:
    """Whether a stream has no work left; a failed one has none."""
    try:
        return stream.query()
    except AclError:
        return True


class Lane:
    """A stream, used by one thread at a time.

    Attributes
    ----------
    faults : int
        Faults of the device that it has met.
    error : str or None
        The last of them.
    """

    def __init__(self, streams: Streams, number: int, run_timeout_s: float | None) -> None:
        self.streams, self.number, self.run_timeout_s = streams, number, run_timeout_s
        self.stream: Stream | None = None
        self.peak = 0                   # most bytes that were asked for on the stream at once
        self.faults = 0
        self.error: str | None = None

    def open(self) -> Stream:
        """The lane's stream, made if it has none."""
        if self.stream is None:
            self.stream = self.streams.make()
            self.peak = self.measure()
        return self.stream

    def measure(self) -> int:
        """What the stream's part of the pool has needed at most."""
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
        """Whether the device gives a stream, and the stream comes to its end."""
        limit = None if self.run_timeout_s is None else max(1, int(self.run_timeout_s * 1000))
        try:
            self.open().synchronize(limit)
        except AclError as error:
            self.drop(hung=isinstance(error, TimeoutError))
            return False
        return True

    def drop(self, *, hung: bool = False) -> None:
        """Give the stream up; if it is `hung`, end what runs on it."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        if hung:
            self.streams.abort(stream)
        else:
            self.streams.destroy(stream)

    def abort(self) -> None:
        """End what runs, from any thread."""
        stream = self.stream
        if stream is not None:
            with suppress(AclError, ValueError):        # closed at this moment
                stream.abort()
