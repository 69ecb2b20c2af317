"""Make addresses for a file that has none: replay its requests with the real pool on a driver without memory.

The pool is the same code that runs on hardware.  Its driver (`_rig`) only does the accounting, so a million events
take some seconds and no memory.  After each allocation that may have changed which addresses have memory, these
addresses are read again and compared.  The result is how this pool would serve the requests, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from acl.tools._rig import Rig
from acl.tools.replay.trace import TraceError
from acl.tools.view.history import History, curve_of_spans, spans_of_changes

__all__ = ["difference", "place_blocks"]

MOST_STREAMS = 64                       # number of streams that the core test harness (`_rig`) can have
REPORT_EVERY = 100_000
NOTE = ("This file has no addresses. The address space and the reserved bytes shown are what aclpool's own pool "
        "makes of the same requests, in a replay.")
Runs = list[tuple[int, int]]


def ordered_events(history: History) -> list[int]:
    """Return a number for each event: b + 1 if it begins block b, -b - 1 if it ends block b, 0 if neither."""
    import numpy as np

    what = np.zeros(history.events + 1, np.int64)
    number = np.arange(1, history.blocks + 1)
    what[history.end] = -number
    what[history.start] = number
    listed: list[int] = what[:history.events].tolist()
    return listed


def difference(runs: Runs, others: Runs) -> Iterator[tuple[int, int]]:
    """Yield the parts of `runs` that are not in `others`; both are sorted."""
    first = 0
    for address, size in runs:
        at, stop = address, address + size
        while first < len(others) and others[first][0] + others[first][1] <= at:
            first += 1
        i = first
        while i < len(others) and others[i][0] < stop:
            if others[i][0] > at:
                yield at, others[i][0] - at
            at = max(at, others[i][0] + others[i][1])
            i += 1
        if at < stop:
            yield at, stop - at


class Backing:
    """The addresses with memory of each stream, as runs, and their changes from event to event."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.runs: dict[int, Runs] = {}
        self.seen: dict[int, tuple[int, int]] = {}
        self.changes: list[tuple[int, int, int]] = []

    def look(self, event: int, stream: int) -> None:
        """Read the runs that an allocation on this stream may have changed, and store the changes."""
        now = self.rig.changes(stream)
        before = self.seen.get(stream, (0, 0))
        if now == before:
            return
        self.runs.setdefault(stream, [])
        calls_made = now[0] != max((calls for calls, _ in self.seen.values()), default=0)
        self.seen[stream] = now
        for other in list(self.runs) if calls_made else [stream]:
            runs = self.rig.backed(other)
            self.changes += [(event, address, -size) for address, size in difference(self.runs[other], runs)]
            self.changes += [(event, address, size) for address, size in difference(runs, self.runs[other])]
            self.runs[other] = runs


def place_blocks(history: History, progress: Callable[[int, int], None] | None = None) -> None:
    """Set the addresses, spans and reserved bytes of a history that has none.

    Parameters
    ----------
    history : History
        The history, which is changed.
    progress : callable, optional
        Called every `REPORT_EVERY` events with the number of events done, and of all events.
    """
    import numpy as np

    if len(history.streams) > MOST_STREAMS:
        raise TraceError(f"{history.name}: {len(history.streams)} streams; at most {MOST_STREAMS} can be replayed")
    rig = Rig(audit=False)
    backing = Backing(rig)
    sizes, streams = history.size.tolist(), (history.stream.astype(np.int64) + 1).tolist()
    handles = [0] * history.blocks
    addresses = [0] * history.blocks
    for event, what in enumerate(ordered_events(history)):
        if what > 0:
            block = what - 1
            handle = handles[block] = rig.alloc(max(1, sizes[block]), streams[block])
            addresses[block] = rig.address(handle) if handle else 0
            backing.look(event, streams[block])
        elif what < 0 and handles[-what - 1]:
            rig.free(handles[-what - 1], streams[-what - 1])
            handles[-what - 1] = 0
        if progress is not None and event % REPORT_EVERY == 0:
            progress(event, history.events)
    for handle, stream in zip(handles, streams, strict=True):   # free all blocks, so that the pool can be destroyed
        if handle:
            rig.free(handle, stream)
    rig.destroy()
    history.address = np.array(addresses, np.int64)
    history.spans = spans_of_changes(backing.changes, history.events)
    history.reserved_at, history.reserved = curve_of_spans(history.spans, history.events)
    history.replayed = True
    history.notes.append(NOTE)
