"""Pinned host memory on its way to the device, used again once its copies are done."""

from __future__ import annotations

from collections import deque
from typing import Any

from acl._buffer import Buffer, HostBuffer
from acl._copy import copy_async
from acl._stream import Event, Stream

__all__ = ["Staging"]

SMALLEST = 4096


class Staging:
    """Queues copies of ordinary host memory.

    An asynchronous copy needs memory that is pinned and stays as it is.  So the bytes are put into a
    pinned buffer of the next power of two, and that buffer is used again when the stream has passed
    the copy.  One thread at a time.
    """

    def __init__(self) -> None:
        self.idle: dict[int, list[HostBuffer]] = {}
        self.busy: deque[tuple[Event, list[HostBuffer]]] = deque()
        self.batch: list[HostBuffer] = []

    def queue(self, target: Buffer, source: Any, nbytes: int, stream: Stream) -> None:
        """Queue a copy of `source`, contiguous bytes of any object with the buffer protocol."""
        self.settle()
        size = max(SMALLEST, 1 << (nbytes - 1).bit_length())
        free = self.idle.get(size)
        pinned = free.pop() if free else HostBuffer(size)
        self.batch.append(pinned)
        # Not by `copy`, which would wait for the stream that last read the pinned memory: its copy is
        # done, but what else is queued there may wait for the caller.
        memoryview(pinned)[:nbytes] = memoryview(source)[:nbytes]
        copy_async(target, pinned, stream, nbytes=nbytes)

    def close_batch(self, stream: Stream) -> None:
        """Mark the end of what was queued on one stream since the last time."""
        if self.batch:
            self.busy.append((stream.record(), self.batch))
            self.batch = []

    def settle(self) -> None:
        """Take back what the streams have passed."""
        while self.busy and self.busy[0][0].query():
            event, buffers = self.busy.popleft()
            event.close()
            for pinned in buffers:
                self.idle.setdefault(pinned.size, []).append(pinned)

    def close(self) -> None:
        """Wait for what is under way and give everything back."""
        for event, buffers in self.busy:
            event.synchronize()
            event.close()
            for pinned in buffers:
                pinned.close()
        for pinned in [*self.batch, *(p for free in self.idle.values() for p in free)]:
            pinned.close()
        self.busy.clear()
        self.batch.clear()
        self.idle.clear()
