"""Read a PyTorch memory snapshot as a history: its trace, and the memory that existed before the trace began.

A snapshot has the state at its end (segments and their blocks) and a ring of the last events.  A block or a mapping is
older than the ring's first event if it does not begin in the ring, and either ends in the ring or exists at the end.
Only built-in containers are unpickled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acl.tools.replay.trace import DAMAGED, TraceError, read_pickle
from acl.tools.view.history import History, Mark, curve_of_spans, spans_of_changes

__all__ = ["load_snapshot_history"]

Entry = dict[str, Any]
MAPS = ("segment_alloc", "segment_map")
UNMAPS = ("segment_free", "segment_unmap")
BEFORE = "before the recording"


@dataclass
class Names:
    """Texts, numbered in the order of their first use."""

    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the text's number; a new text gets the next one."""
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]


def frames_text(frames: Any) -> str:
    """Return a stack as lines, innermost frame first."""
    return "\n".join(f"{frame.get('filename', '?')}:{frame.get('line', 0)} {frame.get('name', '')}"
                     for frame in frames or ())


def stream_name(handle: int) -> str:
    """Return a stream's name; a handle that is an address is written in hexadecimal."""
    return f"stream {handle:#x}" if handle > 0xFFFF else f"stream {handle}"


@dataclass
class Reading:
    """The data that was read so far, while the entries are read in order."""

    rows: list[list[int]] = field(default_factory=list)   # blocks: start, end, size, stream, tag, stack, address
    open: dict[int, int] = field(default_factory=dict)    # live blocks: index in `rows` by address
    changes: list[tuple[int, int, int]] = field(default_factory=list)    # as `spans_of_changes` takes them
    marks: list[Mark] = field(default_factory=list)
    times: list[int] = field(default_factory=list)        # nanoseconds, one element for each event
    streams: Names = field(default_factory=Names)
    tags: Names = field(default_factory=Names)
    stacks: Names = field(default_factory=Names)

    def begin(self, entry: Entry, event: int, tag: str) -> None:
        """Add a block that begins at an event."""
        address = int(entry["addr"])
        self.open[address] = len(self.rows)
        self.rows.append([
            event, -1, int(entry["size"]), self.streams.number(stream_name(int(entry.get("stream", 0)))),
            self.tags.number(tag), self.stacks.number(frames_text(entry.get("frames"))), address,
        ])


def read_snapshot(path: Path) -> dict[str, Any]:
    """Read the pickle, and raise TraceError if it is not a snapshot."""
    snapshot = read_pickle(path)
    if not isinstance(snapshot, dict) or "segments" not in snapshot:
        raise TraceError(f"{path.name}: a pickle, but not a memory snapshot: it has no segments")
    return snapshot


def chosen_device(snapshot: dict[str, Any]) -> tuple[int, list[Entry]]:
    """Return the device whose trace is the longest, and that trace."""
    traces = snapshot.get("device_traces") or [[]]
    device = max(range(len(traces)), key=lambda number: len(traces[number]))
    return device, traces[device]


def older_blocks(segments: list[Entry], entries: list[Entry]) -> list[Entry]:
    """Return the blocks that were live before the first entry, each in the form of an alloc entry."""
    older: dict[int, Entry] = {}
    seen: set[int] = set()
    for entry in entries:
        address = int(entry.get("addr", 0))
        if entry["action"] == "alloc":
            seen.add(address)
        elif entry["action"] == "free_requested" and address not in seen:
            seen.add(address)
            older[address] = entry
    for segment in segments:
        address = int(segment["address"])
        for block in segment["blocks"]:
            where = int(block.get("address", address))
            if block["state"] == "active_allocated" and where not in seen:
                older[where] = {"addr": where, "size": block.get("requested_size", block["size"]),
                                "stream": segment.get("stream", 0), "frames": block.get("frames")}
            address = where + int(block["size"])
    return sorted(older.values(), key=lambda entry: int(entry["addr"]))


class Runs:
    """Mapped addresses, as sorted runs; no two runs touch each other."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Map a range, parts of which may be mapped already."""
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self.starts[first:last], self.ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Unmap a range, parts of which may not be mapped."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if first < last:
            kept = [(self.starts[first], start), (end, self.ends[last - 1])]
            left = [run for run in kept if run[0] < run[1]]
            self.starts[first:last], self.ends[first:last] = [run[0] for run in left], [run[1] for run in left]


def older_segments(segments: list[Entry], entries: list[Entry]) -> list[tuple[int, int]]:
    """Return the runs (address, bytes) that were mapped before the first entry.

    They are found by undoing every entry, from the last to the first, in the state at the end.
    """
    runs = Runs()
    for segment in segments:
        runs.add(int(segment["address"]), int(segment["address"]) + int(segment["total_size"]))
    for entry in reversed(entries):
        if entry["action"] in MAPS or entry["action"] in UNMAPS:
            start, size = int(entry["addr"]), int(entry["size"])
            (runs.remove if entry["action"] in MAPS else runs.add)(start, start + size)
    return [(start, end - start) for start, end in zip(runs.starts, runs.ends, strict=True)]


def read_entry(reading: Reading, entry: Entry, event: int) -> None:
    """Add one entry of the device's trace to `reading`, as an event."""
    action = entry["action"]
    if action == "alloc":
        reading.begin(entry, event, str(entry.get("user_metadata") or "") or "no tag")
    elif action in ("free_requested", "free"):
        row = reading.open.pop(int(entry["addr"]), None)
        if row is not None:
            reading.rows[row][1] = event
    elif action in MAPS:
        reading.changes.append((event, int(entry["addr"]), int(entry["size"])))
    elif action in UNMAPS:
        reading.changes.append((event, int(entry["addr"]), -int(entry["size"])))
    elif action == "oom":
        from acl.inside._snapshot import readable

        free = entry.get("device_free")
        text = frames_text(entry.get("frames"))
        if free is not None:
            text = f"{readable(int(free))} were free on the device\n{text}"
        reading.marks.append(Mark(event, "oom", f"{readable(int(entry['size']))} could not be had", text.strip()))
    reading.times.append(int(entry.get("time_us", 0)) * 1000)


def read_entries(segments: list[Entry], entries: list[Entry]) -> Reading:
    """Read the blocks and mappings older than the trace, as event 0, then each entry; return the data."""
    reading = Reading()
    reading.stacks.number("")
    reading.times.append(0)
    for address, size in older_segments(segments, entries):
        reading.changes.append((0, address, size))
    for block in older_blocks(segments, entries):
        reading.begin(block, 0, BEFORE)
    for event, entry in enumerate(entries, 1):
        read_entry(reading, entry, event)
    reading.times[0] = reading.times[1] if len(reading.times) > 1 else 0
    return reading


def history_of_reading(name: str, device: int, reading: Reading) -> History:
    """Return the history for the data that was read."""
    import numpy as np

    events = len(reading.times)
    table = np.array(reading.rows, np.int64).reshape(-1, 7)
    end = np.where(table[:, 1] < 0, events, table[:, 1])
    spans = spans_of_changes(reading.changes, events)
    at, curve = curve_of_spans(spans, events)
    times = np.array(reading.times, np.int64)
    notes = [f"A PyTorch memory snapshot of device {device}; blocks end when their free was requested."]
    return History(
        name=name, source="snapshot", events=events, start=table[:, 0], end=end, size=table[:, 2],
        stream=table[:, 3], tag=table[:, 4], stack=table[:, 5], id=np.arange(len(table)),
        streams=reading.streams.texts or ["stream 0"], tags=reading.tags.texts or ["no tag"],
        stacks=reading.stacks.texts, spans=spans, reserved_at=at, reserved=curve, address=table[:, 6],
        time_ns=np.maximum.accumulate(times - times[0]) if times.any() else None, marks=reading.marks, notes=notes,
    )


def load_snapshot_history(path: Path) -> History:
    """Read the history of a memory snapshot.

    Raises
    ------
    TraceError
        The file is not a memory snapshot, or an entry is incomplete.
    """
    snapshot = read_snapshot(path)
    try:
        device, entries = chosen_device(snapshot)
        segments = [one for one in snapshot["segments"] if int(one.get("device", device)) == device]
        reading = read_entries(segments, entries)
        if not reading.rows:
            raise TraceError(f"{path.name}: no blocks; record with torch.cuda.memory._record_memory_history() first")
        return history_of_reading(path.stem, device, reading)
    except TraceError:
        raise
    except DAMAGED as error:
        raise TraceError(f"{path.name}: the snapshot is incomplete: {error!r}") from None
