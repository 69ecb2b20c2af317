"""A recording as tables: the blocks that were live when it began, all events since then, and its files.

The blocks that were live at the beginning are derived from the events.  A block whose first event is a free was live
before; so was a block that is live at the end and has no event.  This module needs NumPy and uses no device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from acl.inside._snapshot import RUNG_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from acl.inside._oom import OomReport

__all__ = ["EVENT", "KINDS", "PATHS", "RUNGS", "Recorded", "RecordedEvent", "Stacks"]

# The layout of the struct `Event` of `_events.pxd`.
EVENT = np.dtype([
    ("time", "<u8"), ("address", "<u8"), ("bytes", "<u8"), ("size", "<u8"), ("detail", "<u8"), ("stack", "<u4"),
    ("native", "<u4"), ("thread", "<u4"), ("step", "<u4"), ("tag", "<u2"), ("kind", "u1"), ("path", "u1"),
    ("stream", "<u4"),
])
ALLOC, FREE, LIVE, PAGES, MAP, UNMAP, OOM, TRIM, SYNC, REGISTER, UNREGISTER, SLEEP, WAKE = range(13)
KINDS = ("map", "unmap", "oom", "trim", "sync", "register", "unregister", "sleep", "wake")
PATHS = ("hit", "fit", "slow")
RUNGS = tuple(RUNG_WORDS)
BORN, SEEN = 4, 8
Columns = dict[str, "NDArray[Any]"]
Frame = tuple[str, int, str]


class RecordedEvent(NamedTuple):
    """One event of a recording.

    `kind` is ``"alloc"``, ``"free"``, ``"map"``, ``"unmap"``, ``"oom"``, ``"trim"``, ``"sync"``, ``"register"``,
    ``"unregister"``, ``"sleep"`` or ``"wake"``.  `time` is in nanoseconds since the beginning of the recording;
    `before` is true for the state at the beginning.  `path` says how an allocation was served (`PATHS`) or from where a
    mapped page came (`RUNGS`); it is ``"steal"`` for a page that was unmapped to be used elsewhere.  `stack` has (file,
    line, function), innermost frame first.
    """

    kind: str
    time: int
    address: int
    size: int
    bytes: int
    stream: int
    tag: str
    thread: int
    path: str
    wait: int
    before: bool
    stack: tuple[tuple[str, int, str], ...]


class Stacks:
    """The stacks of a file: each has Python's frames, then C's, and a number within the file."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {(0, 0): 0}
        self.stacks: list[list[int]] = [[]]
        self.frames: list[tuple[str, int, str]] = []
        self.places: dict[tuple[str, int, str], int] = {}

    def add(self, python: int, native: int) -> int:
        """Return the file's number for a stack of Python and a stack of C."""
        from acl.pool._stacks import native_frames, python_frames

        number = self.numbers.get((python, native))
        if number is None:
            number = self.numbers[python, native] = len(self.stacks)
            self.stacks.append([self.place(frame) for frame in (*python_frames(python), *native_frames(native))])
        return number

    def place(self, frame: tuple[str, int, str]) -> int:
        """Return the file's number of a frame."""
        if frame not in self.places:
            self.places[frame] = len(self.frames)
            self.frames.append(frame)
        return self.places[frame]

    def of(self, number: int) -> tuple[tuple[str, int, str], ...]:
        """Return the frames of a stack, innermost first."""
        return tuple(self.frames[i] for i in self.stacks[number])

    def column(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of the stacks of a table's rows."""
        both = table["stack"].astype(np.uint64) << np.uint64(32) | table["native"].astype(np.uint64)
        values, where = np.unique(both, return_inverse=True)
        mapped = [self.add(int(value) >> 32, int(value) & 0xFFFFFFFF) for value in values]
        return np.array(mapped, np.uint32)[where]


@dataclass(frozen=True)
class Part:
    """One stream's events, and the live blocks and mapped pages before and after them."""

    before: NDArray[Any]        # blocks that were live before the first event, as LIVE events
    events: NDArray[Any]        # the allocations and frees
    others: NDArray[Any]        # all other events
    after: NDArray[Any]         # blocks that are live after the last event
    pages: NDArray[Any]         # pages that are mapped after the last event
    pages_before: list[tuple[int, int]]  # mapped runs before the first event: (address, bytes)


def blocks_before(events: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """Return the blocks that were live before the first event.

    Their first event is a free, or they are live at the end and have no event.
    """
    order = np.argsort(events["address"], kind="stable")
    ordered = events[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered["address"][1:] != ordered["address"][:-1]
    freed = ordered[first & (ordered["kind"] == FREE)]
    silent = after[~np.isin(after["address"], events["address"])]
    found = np.concatenate([freed, silent])
    found["stack"][: len(freed)] = 0            # the stack of a free is not that of the allocation
    found["native"][: len(freed)] = 0
    found["step"][len(freed) :] = 0            # in LIVE events this field has `Birth.extra`
    return found


def without_gaps(events: NDArray[Any]) -> NDArray[Any]:
    """Return the events without contradictions at an address.

    Two allocations, or two frees, in a row mean that an event between them was not recorded.  The second one is left
    out.
    """
    order = np.argsort(events["address"], kind="stable")
    ordered = events[order]
    again = np.zeros(len(ordered), bool)
    again[1:] = (ordered["address"][1:] == ordered["address"][:-1]) & (ordered["kind"][1:] == ordered["kind"][:-1])
    if not again.any():
        return events
    keep = np.ones(len(events), bool)
    keep[order[again]] = False
    return events[keep]


def pages_before(moves: NDArray[Any], pages: NDArray[Any], granule: int) -> list[tuple[int, int]]:
    """Return the runs of addresses, as (address, bytes), that were mapped before the first event."""
    mapped: set[int] = set()
    for row in pages:
        mapped.update(range(int(row["address"]), int(row["address"]) + int(row["bytes"]), granule))
    for row in moves[::-1]:
        span = range(int(row["address"]), int(row["address"]) + int(row["bytes"]), granule)
        if row["kind"] == MAP:
            mapped.difference_update(span)
        else:
            mapped.update(span)
    runs: list[tuple[int, int]] = []
    for page in sorted(mapped):
        if runs and runs[-1][0] + runs[-1][1] == page:
            runs[-1] = (runs[-1][0], runs[-1][1] + granule)
        else:
            runs.append((page, granule))
    return runs


def part_of(part: dict[str, Any], granule: int) -> Part:
    events = np.frombuffer(bytes(part["events"]), EVENT).copy()
    live = np.frombuffer(bytes(part["live"]), EVENT).copy()
    events["time"] = np.maximum.accumulate(events["time"]) if len(events) else events["time"]
    after = live[live["kind"] == LIVE]
    blocks = without_gaps(events[events["kind"] <= FREE])
    others = events[events["kind"] >= MAP]
    moves = others[others["kind"] <= UNMAP]
    pages = live[live["kind"] == PAGES]
    return Part(blocks_before(blocks, after), blocks, others, after, pages,
                pages_before(moves, pages, granule))


def number_blocks(kind: NDArray[Any], stream: NDArray[Any], address: NDArray[Any]) -> NDArray[Any]:
    """Return each row's block number, in the order of allocation.  A free has the number of its allocation."""
    number = np.zeros(len(kind), np.uint32)
    allocated = kind != FREE
    number[allocated] = np.arange(int(allocated.sum()), dtype=np.uint32)
    order = np.lexsort((address, stream))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    frees = np.flatnonzero(~allocated)
    number[frees] = number[order[place[frees] - 1]]
    return number


class Recorded:
    """A recording's tables.

    Attributes
    ----------
    rows : dict of str to numpy.ndarray
        Columns of allocations and frees, as `docs/recording-format.md` describes them.
    others : dict of str to numpy.ndarray
        Columns of the other events, without the prefix ``event_`` of their names.
    meta : dict
        Facts about the whole recording.
    parts : list of Part
        The events by stream, with the blocks that are live at the end.
    """

    def __init__(self, facts: dict[str, Any], parts: list[dict[str, Any]], began: int, ticks: tuple[int, int],
                 clock: tuple[int, int], ooms: list[OomReport]) -> None:
        self.began, self.ticks = began, ticks
        self.rate = (clock[1] - clock[0]) / max(ticks[1] - ticks[0], 1)
        self.parts = [part_of(part, facts["granule"]) for part in parts]
        self.stacks = Stacks()
        self.lost = sum(part["lost"] for part in parts)
        self.tags: list[str] = facts["tags"]
        self.meta: dict[str, Any] = {
            "format": "aclpool recording", "version": 1, "began": began,
            "duration": clock[1] - clock[0], **facts,
            "streams": [{key: part[key] for key in ("handle", "kind", "lost")} for part in parts],
            "paths": PATHS, "kinds": KINDS, "rungs": RUNGS,
        }
        self.rows = self.make_rows()
        self.others = self.make_others()
        self.meta["stacks"], self.meta["frames"] = self.stacks.stacks, self.stacks.frames
        self.meta["threads"] = thread_names(np.concatenate([self.rows["thread"], self.others["thread"]]))
        self.meta["ooms"] = self.tell_ooms({report.number: report for report in ooms})

    def nanoseconds(self, ticks: NDArray[Any]) -> NDArray[Any]:
        """Return ticks as nanoseconds since the recording began."""
        passed = np.maximum(ticks.astype(np.int64) - self.ticks[0], 0)
        return np.asarray(passed * self.rate, np.int64)

    def make_rows(self) -> Columns:
        table = joined([part.before for part in self.parts])
        before = len(table)
        events = joined([part.events for part in self.parts])
        events = events[np.argsort(events["time"], kind="stable")]
        table["time"] = self.ticks[0]
        table["path"] = 0
        table["detail"] = 0
        table["kind"] = LIVE
        table = np.concatenate([table, events])
        slow = (table["kind"] == ALLOC) & (table["path"] == PATHS.index("slow"))
        wait: NDArray[Any] = np.where(slow, table["detail"] * self.rate, 0)
        return {
            "op": (table["kind"] == FREE).astype(np.uint8),
            "id": number_blocks(table["kind"], table["stream"], table["address"]),
            "size": table["size"].astype(np.uint64), "step": table["step"],
            "stream": narrow(table["stream"]), "time": self.nanoseconds(table["time"]),
            "address": table["address"], "bytes": table["bytes"], "tag": table["tag"],
            "thread": table["thread"], "stack": self.stacks.column(table), "path": table["path"],
            "wait": np.minimum(wait, 0xFFFFFFFF).astype(np.uint32),
            "before": (np.arange(len(table)) < before).astype(np.uint8),
        }

    def make_others(self) -> Columns:
        events = joined([part.others for part in self.parts])
        events = events[np.argsort(events["time"], kind="stable")]
        runs = [(number, *run) for number, part in enumerate(self.parts) for run in part.pages_before]
        table = np.zeros(len(runs), EVENT)
        for i, (number, address, size) in enumerate(runs):
            table[i]["stream"], table[i]["address"], table[i]["bytes"] = number, address, size
        table["kind"], table["time"], table["detail"] = MAP, self.ticks[0], RUNGS.index("none")
        before = len(table)
        table = np.concatenate([table, events])
        time = self.nanoseconds(table["time"])
        amount: NDArray[Any] = np.where(table["kind"] == SYNC, table["bytes"] * self.rate, table["bytes"])
        return {
            "kind": (table["kind"] - MAP).astype(np.uint8), "time": time,
            "at": np.searchsorted(self.rows["time"], time, "left").astype(np.uint32),
            "stream": narrow(table["stream"]), "address": table["address"], "size": amount.astype(np.uint64),
            "thread": table["thread"], "stack": self.stacks.column(table), "tag": table["tag"],
            "detail": table["detail"], "before": (np.arange(len(table)) < before).astype(np.uint8),
        }

    def tell_ooms(self, reports: dict[int, OomReport]) -> list[dict[str, Any]]:
        """Return the out-of-memory failures in words.  Set the `detail` of their events to the index of the failure."""
        from acl.inside._snapshot import readable

        found = []
        where = np.flatnonzero(self.others["kind"] == KINDS.index("oom"))
        self.others["detail"] = self.others["detail"].copy()
        for index, i in enumerate(where):
            size, stream = int(self.others["size"][i]), int(self.others["stream"][i])
            handle = self.meta["streams"][stream]["handle"]
            report = reports.get(int(self.others["detail"][i]))
            text = str(report) if report else f"{readable(size)} could not be had on stream {handle:#x}"
            found.append({"time": int(self.others["time"][i]), "size": size, "stream": stream, "text": text,
                          "device_free": report.device_free if report else 0})
            self.others["detail"][i] = index
        return found

    def events(self) -> list[RecordedEvent]:
        """Return all events in order of time."""
        handles = [stream["handle"] for stream in self.meta["streams"]]
        stacks = [self.stacks.of(number) for number in range(len(self.stacks.stacks))]
        others = self.other_events(handles, stacks)
        found: list[RecordedEvent] = []
        for i, event in enumerate(self.block_events(handles, stacks)):
            while others and others[-1][0] <= i:
                found.append(others.pop()[1])
            found.append(event)
        return found + [event for _, event in reversed(others)]

    def block_events(self, handles: list[int], stacks: list[tuple[Frame, ...]]) -> Iterator[RecordedEvent]:
        """Return the allocations and frees."""
        names = ("op", "time", "address", "size", "bytes", "stream", "tag", "thread", "path", "wait", "before", "stack")
        for op, time, address, size, taken, stream, tag, thread, path, wait, before, stack in zip(
                *(self.rows[name].tolist() for name in names), strict=True):
            yield RecordedEvent(
                "free" if op else "alloc", time, address, size, taken, handles[stream], self.tags[tag], thread,
                "" if op or before else PATHS[path], wait, bool(before), stacks[stack])

    def other_events(self, handles: list[int], stacks: list[tuple[Frame, ...]]) -> list[tuple[int, RecordedEvent]]:
        """Return all other events, the last first, each with the index of the allocation or free that follows it."""
        names = ("at", "kind", "time", "address", "size", "stream", "tag", "thread", "detail", "before", "stack")
        found = []
        for at, number, time, address, size, stream, tag, thread, detail, before, stack in zip(
                *(self.others[name].tolist() for name in names), strict=True):
            kind = KINDS[number]
            found.append((at, RecordedEvent(
                kind, time, address, size, size, handles[stream], self.tags[tag], thread, way_of(kind, detail),
                size if kind == "sync" else 0, bool(before), stacks[stack])))
        return found[::-1]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file in the format that its extension names."""
        from acl.inside import _record_files

        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
        path = Path(path)
        if path.suffix == ".npz":
            _record_files.write_npz(path, self)
        elif path.suffix in (".pickle", ".pkl"):
            _record_files.write_snapshot(path, self)
        else:
            raise ValueError(f"path must end in .npz, .pickle or .pkl, not {path.name!r}")


def way_of(kind: str, detail: int) -> str:
    """Return from where a mapped page came, or "steal" if a page was unmapped to be used elsewhere."""
    if kind == "map":
        return RUNGS[detail]
    return "steal" if kind == "unmap" and detail else ""


def joined(tables: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, EVENT), *tables])


def narrow(stream: NDArray[Any]) -> NDArray[Any]:
    """Return a column of stream indices as uint8 if all are below 256, else as uint16."""
    return stream.astype(np.uint8 if not len(stream) or stream.max() < 256 else np.uint16)


def thread_names(numbers: NDArray[Any]) -> dict[str, str]:
    """Return the names of those threads that still exist: Python's name, else the system's."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = {}
    for number in np.unique(numbers).tolist():
        try:
            name = named.get(number) or Path(f"/proc/self/task/{number}/comm").read_text().strip()
        except OSError:
            continue
        if number:
            found[str(number)] = name
    return found
