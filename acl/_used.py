"""The streams that an object's work was queued on, for its end to wait for.

A stream of ours is not kept alive by that: one that its user drops ends its work as it goes.  A
borrowed stream, and the default one, go on when the object that stands for them is gone, so they are
kept.  One thread at a time, or under the owner's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from acl._stream import Stream

__all__ = ["Used"]


class Used:
    """Streams by their handles."""

    def __init__(self) -> None:
        self.ours: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self.others: dict[int, Stream] = {}

    def add(self, stream: Stream) -> None:
        """Work was queued there."""
        handle = stream.handle
        kept = self.ours if stream.device >= 0 else self.others
        if kept.get(handle) is not stream:
            kept[handle] = stream

    def synchronize(self) -> None:
        """Wait for those that are not closed."""
        for stream in [*self.ours.values(), *self.others.values()]:
            if not stream.closed:
                stream.synchronize()
