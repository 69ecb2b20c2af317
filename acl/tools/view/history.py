"""What the picture is made of: blocks with the events at which they began and ended, and the memory behind them.

A `History` is built once from a file (`sources`) and then only read: by the page, by the plot and
by the summary. Events are numbered from 0; a block that was never freed ends at `events`. Nothing here
knows a file format, and NumPy is imported when a history is made, not before.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["History", "Mark", "Spans", "curve_of_spans", "empty_spans", "lifetimes", "spans_of_changes"]


@dataclass(frozen=True)
class Mark:
    """Something worth a line of its own.

    Attributes
    ----------
    event : int
        When.
    kind : str
        ``"oom"``, ``"trim"``, ``"steal"``, ``"snapshot"``, ...
    title, text : str
        In a few words, and in full.
    """

    event: int
    kind: str
    title: str
    text: str = ""


@dataclass(frozen=True)
class Spans:
    """Addresses with memory behind them: from event `start` until event `end`."""

    address: NDArray[Any]
    size: NDArray[Any]
    start: NDArray[Any]
    end: NDArray[Any]

    def __len__(self) -> int:
        return len(self.address)


@dataclass
class History:
    """Blocks, one element of each array per block in the order of their allocation; and what surrounds them.

    Attributes
    ----------
    name, source : str
        The file's name, and ``"trace"``, ``"recording"`` or ``"snapshot"``.
    events : int
        How many events there are.
    start, end, size, stream, tag, stack, id : numpy.ndarray
        `stream`, `tag` and `stack` are indexes of the lists below.
    address : numpy.ndarray or None
        Where each block lies, 0 for unknown; None if no block's place is known.
    room : numpy.ndarray or None
        Bytes that each block takes, rounding included; None if the file knows only what was asked for.
    streams, tags, stacks : list of str
        Names; a stack is its frames, innermost first, one a line.
    time_ns : numpy.ndarray or None
        For each event, nanoseconds since the first.
    steps : numpy.ndarray or None
        Events at which a model execution began.
    reserved_at, reserved : numpy.ndarray
        Bytes of device memory held from an event on.
    spans : Spans
        Mapped memory; empty if unknown.
    limit : int
        Bytes that the pool may hold; 0 for none, or unknown.
    notes : list of str
        Sentences that the reader must know to trust the picture.
    replayed : bool
        Whether addresses and reserved bytes come from a replay, not from the file.
    """

    name: str
    source: str
    events: int
    start: NDArray[Any]
    end: NDArray[Any]
    size: NDArray[Any]
    stream: NDArray[Any]
    tag: NDArray[Any]
    stack: NDArray[Any]
    id: NDArray[Any]
    streams: list[str]
    tags: list[str]
    stacks: list[str]
    spans: Spans
    reserved_at: NDArray[Any]
    reserved: NDArray[Any]
    address: NDArray[Any] | None = None
    room: NDArray[Any] | None = None
    time_ns: NDArray[Any] | None = None
    steps: NDArray[Any] | None = None
    marks: list[Mark] = field(default_factory=list)
    limit: int = 0
    notes: list[str] = field(default_factory=list)
    replayed: bool = False

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.start)

    def live(self) -> NDArray[Any]:
        """Bytes in use after each event."""
        import numpy as np

        change = np.zeros(self.events + 1, np.int64)
        np.add.at(change, self.start, self.size.astype(np.int64))
        np.add.at(change, self.end, -self.size.astype(np.int64))
        return np.cumsum(change[:self.events])

    def live_at(self, event: int) -> NDArray[Any]:
        """Indexes of the blocks that are in use after an event."""
        import numpy as np

        return np.flatnonzero((self.start <= event) & (self.end > event))


def lifetimes(op: NDArray[Any], ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each alloc (op 0), in order, its event and the event of its free (op 1), or the count of events."""
    import numpy as np

    order = np.lexsort((np.arange(len(op)), ids))
    begins = op[order] == 0
    same = np.zeros(len(op), bool)
    same[:-1] = (ids[order][1:] == ids[order][:-1]) & (op[order][1:] == 1)
    end_of = np.full(len(op), len(op), np.int64)
    has_end = np.flatnonzero(begins & same)
    end_of[order[has_end]] = order[has_end + 1]
    start = np.flatnonzero(op == 0)
    return start, end_of[start]


def empty_spans() -> Spans:
    """No memory known."""
    import numpy as np

    none = np.zeros(0, np.int64)
    return Spans(none, none, none, none)


class MappedRanges:
    """What is mapped while changes are read, by address; what ended is kept as rows of spans."""

    def __init__(self) -> None:
        self.starts: list[int] = []                       # addresses, sorted
        self.held: dict[int, tuple[int, int]] = {}        # address to bytes and the event of the mapping
        self.rows: list[tuple[int, int, int, int]] = []   # address, bytes, start, end

    def add(self, address: int, size: int, began: int) -> None:
        """Memory appears behind a range."""
        if address not in self.held:
            insort(self.starts, address)
        self.held[address] = (size, began)

    def remove(self, address: int, size: int, event: int) -> None:
        """Memory goes from a range, which may be a part of what was mapped or more than one mapping."""
        first = max(0, bisect_right(self.starts, address) - 1)
        stop = address + size
        touched = []
        for start in self.starts[first:]:
            if start >= stop:
                break
            if start + self.held[start][0] > address:
                touched.append(start)
        for start in touched:
            length, began = self.held.pop(start)
            self.starts.remove(start)
            low, high = max(start, address), min(start + length, stop)
            self.rows.append((low, high - low, began, event))
            if start < low:
                self.add(start, low - start, began)
            if start + length > high:
                self.add(high, start + length - high, began)


def spans_of_changes(changes: list[tuple[int, int, int]], events: int) -> Spans:
    """Spans from (event, address, bytes) in order; negative bytes say that the range was unmapped.

    What is unmapped but was not mapped is left out: it began before the file does.
    """
    import numpy as np

    ranges = MappedRanges()
    for event, address, size in changes:
        ranges.remove(address, abs(size), event)
        if size > 0:
            ranges.add(address, size, event)
    rows = ranges.rows + [(address, size, began, events) for address, (size, began) in ranges.held.items()]
    table = np.array(sorted(row for row in rows if row[3] > row[2]), np.int64).reshape(-1, 4)
    return Spans(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def curve_of_spans(spans: Spans, events: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the sum of the spans' bytes changes, and what it is from there on."""
    import numpy as np

    if not len(spans):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = np.concatenate([spans.start, spans.end])
    change = np.concatenate([spans.size, -spans.size])
    where, which = np.unique(at, return_inverse=True)
    sums = np.zeros(len(where), np.int64)
    np.add.at(sums, which, change)
    inside = where < events
    return where[inside], np.cumsum(sums)[inside]
