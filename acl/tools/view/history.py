"""The data of the page: blocks with the events at which they began and ended, and the memory behind them.

A `History` is made once from a file (`sources`) and then only read: by the page, the plot and the
summary. Events are numbered from 0; the end of a block that was never freed is `events`. No function here
knows a file format, and NumPy is imported only when a history is made.
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
    """An event that is listed on the page, besides allocations and frees.

    Attributes
    ----------
    event : int
        The number of the event.
    kind : str
        ``"oom"``, ``"trim"``, ``"steal"``, ``"snapshot"``, ...
    title, text : str
        A short text, and a long one.
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
    """The data of a file.  Arrays of blocks have one element per block, in the order of their allocation.

    Attributes
    ----------
    name, source : str
        The file's name, and ``"trace"``, ``"recording"`` or ``"snapshot"``.
    events : int
        The number of events.
    start, end, size, stream, tag, stack, id : numpy.ndarray
        Arrays of blocks: event of the allocation; event of the free, or `events` if there is none; bytes; indexes in
        `streams`, `tags` and `stacks`; the block's number in the file.
    address : numpy.ndarray or None
        Address of each block, 0 if unknown; None if no address is known.
    room : numpy.ndarray or None
        Bytes that each block takes after rounding up; None if the file has only the requested bytes.
    streams, tags, stacks : list of str
        Names.  A stack is a text with one frame in each line, the innermost first.
    time_ns : numpy.ndarray or None
        For each event, nanoseconds since the first event; None if the file has no times.
    steps : numpy.ndarray or None
        Events at which a model execution began; None if unknown.
    reserved_at, reserved : numpy.ndarray
        The curve of reserved device memory: from the event `reserved_at[i]` on, `reserved[i]` bytes.
    spans : Spans
        Mapped memory; empty if unknown.
    limit : int
        Most bytes that the pool may hold; 0 if there is no limit, or if it is unknown.
    notes : list of str
        Sentences that a reader must know to interpret the page.
    replayed : bool
        True if addresses and reserved bytes come from a replay, not from the file.
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
        """The number of blocks."""
        return len(self.start)

    def live(self) -> NDArray[Any]:
        """Return the bytes in use after each event."""
        import numpy as np

        change = np.zeros(self.events + 1, np.int64)
        np.add.at(change, self.start, self.size.astype(np.int64))
        np.add.at(change, self.end, -self.size.astype(np.int64))
        return np.cumsum(change[:self.events])

    def live_at(self, event: int) -> NDArray[Any]:
        """Return the indexes of the blocks that are in use after an event."""
        import numpy as np

        return np.flatnonzero((self.start <= event) & (self.end > event))


def lifetimes(op: NDArray[Any], ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return, for each allocation (op 0), its event, and the event of its free (op 1) or else the number of events."""
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
    """Return spans without elements, for a file without data about mapped memory."""
    import numpy as np

    none = np.zeros(0, np.int64)
    return Spans(none, none, none, none)


class MappedRanges:
    """The mapped addresses after the changes that were read so far.

    `add` and `remove` are called in the order of the events.  A mapping that ends is kept as a row of `rows`, from
    which `spans_of_changes` makes its result.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []                       # start addresses of the mappings, sorted
        self.held: dict[int, tuple[int, int]] = {}        # start address -> (bytes, event at which it was mapped)
        self.rows: list[tuple[int, int, int, int]] = []   # ended mappings: address, bytes, first event, last event

    def add(self, address: int, size: int, began: int) -> None:
        """Note that addresses are mapped from the event `began` on; the caller has removed mappings that overlap."""
        if address not in self.held:
            insort(self.starts, address)
        self.held[address] = (size, began)

    def remove(self, address: int, size: int, event: int) -> None:
        """Note that addresses are unmapped at an event.

        The addresses may be a part of a mapping, of which the other parts stay mapped, or extend over several mappings.
        """
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
    """Return the spans for changes (event, address, bytes) in order; negative bytes mean that the range was unmapped.

    An unmap of a range that is not mapped is ignored, because the mapping is older than the file's first event.
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
    """Return the events at which the sum of the spans' bytes changes, and the new sum at each."""
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
