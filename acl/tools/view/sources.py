"""Read a file for the page: a recording of a pool, a plain trace, or a PyTorch memory snapshot.

The kind of a file is found by its content.  Data that a file lacks is left empty, and a note on the page says so.
Only `replayed` computes missing addresses, and only if the user asks for it.  Traces are checked as in `aclpool
replay`.  Only built-in containers are unpickled from snapshots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.tools.replay.trace import DAMAGED, Trace, TraceError, load_trace, read_arrays
from acl.tools.view.history import History, Mark, curve_of_spans, empty_spans, lifetimes, spans_of_changes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["load_history"]

#: The titles of marks, except those of failed allocations.
MARKED = {"trim": "{size} of {stream} went back to the driver",
          "steal": "{size} were taken from {stream}, to be mapped elsewhere",
          "sleep": "{size} of {stream} fell asleep", "wake": "{size} of {stream} woke"}
MOST_MARKS = 5000
NO_FRAMES = [""]


def load_history(path: str | Path) -> History:
    """Return the history of a file.

    Raises
    ------
    TraceError
        The file is of none of the three kinds, or contradicts itself.
    OSError
        The file cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"PK":
        from acl.tools.view.snapshot import load_snapshot_history

        return load_snapshot_history(path)
    trace = load_trace(path)
    extra = recorded_arrays(path)
    return history_of_recording(trace, extra) if "meta" in extra else history_of_trace(trace)


def recorded_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return every array of an npz except op, id and size; pickled arrays are refused."""
    return {name: column for name, column in read_arrays(path).items() if name not in ("op", "id", "size")}


def begun_steps(step: NDArray[Any]) -> NDArray[Any] | None:
    """Return the events at which a new step begins; None if the step numbers never change, or decrease."""
    import numpy as np

    change = np.diff(step.astype(np.int64))
    if not len(change) or not change.any() or change.min() < 0:
        return None
    return np.concatenate([[0], np.flatnonzero(change) + 1])


def history_of_trace(trace: Trace) -> History:
    """Return the history of a trace, without tags, stacks and addresses."""
    import numpy as np

    start, end = lifetimes(trace.op, trace.id)
    none = np.zeros(len(start), np.int64)
    return History(
        name=trace.name, source="trace", events=len(trace), start=start, end=end, size=trace.size[start],
        stream=trace.stream[start].astype(np.int64), tag=none, stack=none, id=trace.id[start].astype(np.int64),
        streams=[f"stream {number}" for number in range(trace.streams)], tags=["no tag"], stacks=list(NO_FRAMES),
        spans=empty_spans(), reserved_at=np.zeros(0, np.int64), reserved=np.zeros(0, np.int64),
        steps=begun_steps(trace.step),
    )


# ---- recordings ----

def read_meta(name: str, data: NDArray[Any]) -> dict[str, Any]:
    """Return the JSON document of a recording."""
    try:
        meta = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: the recording's meta is not JSON: {error}") from None
    if not isinstance(meta, dict) or meta.get("format") != "aclpool recording":
        raise TraceError(f"{name}: expected an aclpool recording's meta, got {str(meta)[:80]}")
    if meta.get("version") != 1:
        raise TraceError(f"{name}: a recording of version {meta.get('version')!r}; this tool reads version 1")
    return meta


def stream_names(meta: dict[str, Any]) -> list[str]:
    """Return names for a recording's streams."""
    names = []
    for number, one in enumerate(meta["streams"]):
        kind = "" if one.get("kind", "stream") == "stream" else f" ({one['kind']})"
        handle = int(one.get("handle", 0))
        names.append(f"stream {number}{kind} · {handle:#x}" if handle else f"default stream{kind}")
    return names


def stack_texts(meta: dict[str, Any]) -> list[str]:
    """Return each stack as lines, innermost frame first."""
    frames = [f"{where}:{line} {function}" if line else f"{where} {function}"
              for where, line, function in meta["frames"]]
    return ["\n".join(frames[frame] for frame in stack) for stack in meta["stacks"]]


def recorded_spans(trace: Trace, extra: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Any:
    """Return the mapped memory, from the map and unmap events."""
    kinds = meta["kinds"]
    changes = []
    for name, sign in (("map", 1), ("unmap", -1)):
        if name in kinds:
            for row in (extra["event_kind"] == kinds.index(name)).nonzero()[0].tolist():
                changes.append((row, int(extra["event_at"][row]), int(extra["event_address"][row]),
                                sign * int(extra["event_size"][row])))
    return spans_of_changes([change[1:] for change in sorted(changes)], len(trace))


def recorded_marks(trace: Trace, extra: dict[str, NDArray[Any]], meta: dict[str, Any]) -> list[Mark]:
    """Return the marks of a recording.

    There is one for each failed allocation, with its reason; and one for the trims, the steals, the sleeps and the
    wakes of an event and stream, with the sum of their bytes.  If there are more than `MOST_MARKS` in all, only the
    last failed allocations are returned.
    """
    from acl.inside._snapshot import readable

    ooms: list[Mark] = []
    sums: dict[tuple[int, str, str], int] = {}
    last = max(0, len(trace) - 1)
    names = stream_names(meta)
    for row, kind in enumerate(extra["event_kind"].tolist()):
        name = meta["kinds"][kind]
        at = min(last, int(extra["event_at"][row]))
        size, stream = int(extra["event_size"][row]), names[int(extra["event_stream"][row])]
        if name == "oom":
            reason = meta["ooms"][int(extra["event_detail"][row])]
            ooms.append(Mark(at, "oom", f"{readable(size)} could not be had on {stream}", str(reason.get("text", ""))))
        elif name in MARKED or (name == "unmap" and int(extra["event_detail"][row]) == 1):
            key = (at, name if name in MARKED else "steal", stream)
            sums[key] = sums.get(key, 0) + size
    others = [Mark(at, kind, MARKED[kind].format(size=readable(size), stream=stream))
              for (at, kind, stream), size in sums.items()]
    marks = ooms[-MOST_MARKS:] if len(ooms) + len(others) > MOST_MARKS else ooms + others
    return sorted(marks, key=lambda mark: mark.event)


def recorded_limit(meta: dict[str, Any]) -> int:
    """Return the pool's limit in bytes; 0 if it has no limit, or one that is too large for the page."""
    limit = int(meta.get("limit", 0))
    return limit if 0 < limit < 1 << 53 else 0


def recording_notes(trace: Trace, extra: dict[str, NDArray[Any]], meta: dict[str, Any]) -> list[str]:
    """Return notes for the reader: lost events, blocks older than the recording."""
    notes = []
    lost = sum(int(one.get("lost", 0)) for one in meta["streams"])
    if lost:
        notes.append(f"{lost:,} older events were overwritten: the recording shows the last part of what happened.")
    before = int(extra["before"].sum()) if "before" in extra else 0
    if before:
        notes.append(f"{before:,} blocks were live when the recording began; how old they are is not known.")
    return notes


def history_of_recording(trace: Trace, extra: dict[str, NDArray[Any]]) -> History:
    """Return the history of a recording, with all of its data.

    Raises
    ------
    TraceError
        If an array or a name that docs/recording-format.md promises is missing or out of range.
    """
    import numpy as np

    meta = read_meta(trace.name, extra["meta"])
    for name, column in extra.items():
        if name == "meta":
            continue
        rows = extra.get("event_time", column) if name.startswith("event_") else trace.op
        if column.dtype.kind not in "uib":
            raise TraceError(f"{trace.name}: array {name!r}: expected whole numbers, got {column.dtype}")
        if column.shape != rows.shape:
            raise TraceError(f"{trace.name}: array {name!r}: expected {rows.size} numbers, got shape {column.shape}")
    try:
        start, end = lifetimes(trace.op, trace.id)
        spans = recorded_spans(trace, extra, meta)
        at, curve = curve_of_spans(spans, len(trace))
        return History(
            name=trace.name, source="recording", events=len(trace), start=start, end=end, size=trace.size[start],
            stream=extra["stream"][start].astype(np.int64), tag=extra["tag"][start].astype(np.int64),
            stack=extra["stack"][start].astype(np.int64), id=trace.id[start].astype(np.int64),
            streams=stream_names(meta), tags=["no tag", *meta["tags"][1:]], stacks=stack_texts(meta),
            spans=spans, reserved_at=at, reserved=curve, address=extra["address"][start].astype(np.int64),
            room=extra["bytes"][start].astype(np.int64), time_ns=extra["time"].astype(np.int64),
            steps=begun_steps(trace.step), marks=recorded_marks(trace, extra, meta),
            limit=recorded_limit(meta), notes=recording_notes(trace, extra, meta),
        )
    except DAMAGED as error:
        raise TraceError(f"{trace.name}: the recording is incomplete: {error!r}") from None
