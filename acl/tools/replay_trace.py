"""Traces of allocations: reading the three forms that there are, and what can be said of one.

A trace is an npz with arrays of equal length: `op` (0 alloc, 1 free), `id` (unique per block),
`size` (bytes, for frees too), `step` (one per model execution) and `stream`. Our own recordings have
this form; a PyTorch memory snapshot (the pickle of `torch.cuda.memory._dump_snapshot`, or
torch_npu's) is turned into it. A snapshot is unpickled with nothing but the built-in containers, so
that a file from a stranger cannot run code. NumPy is imported when a trace is read, not before.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Trace", "TraceError", "closed_trace", "load_trace", "repeat_trace", "save_trace"]

ALLOC, FREE = 0, 1


class TraceError(ValueError):
    """A file that is not a trace, or one that contradicts itself."""


@dataclass(frozen=True)
class Trace:
    """Allocations and frees in the order in which they were asked for.

    Attributes
    ----------
    name : str
        The file's name without its ending.
    op, id, size, step, stream : numpy.ndarray
        One element per event; streams are numbered from 0 without gaps.
    """

    name: str
    op: NDArray[Any]
    id: NDArray[Any]
    size: NDArray[Any]
    step: NDArray[Any]
    stream: NDArray[Any]

    def __len__(self) -> int:
        return len(self.op)

    @property
    def streams(self) -> int:
        """How many streams the trace uses."""
        return int(self.stream.max()) + 1 if len(self) else 0

    @property
    def allocations(self) -> int:
        """How many of the events are allocations."""
        return int((self.op == ALLOC).sum())

    def live(self, stream: int | None = None) -> NDArray[Any]:
        """Bytes asked for and not freed after each event, of one stream or of all."""
        import numpy as np

        change = np.where(self.op == ALLOC, self.size, -self.size).astype(np.int64)
        if stream is not None:
            change = np.where(self.stream == stream, change, 0)
        return np.cumsum(change)

    def live_peak(self) -> int:
        """The sum of each stream's own peak of live bytes."""
        return sum(int(self.live(stream).max(initial=0)) for stream in range(self.streams))

    def joint_live_peak(self) -> int:
        """Most bytes live at one time, over all streams together."""
        return int(self.live().max(initial=0))

    def events(self) -> bytes:
        """The trace as the loops' events: a slot per block, slots used again, none by two streams."""
        import numpy as np

        from acl.tools._loops import EVENT_BYTES

        kind = np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")])
        assert kind.itemsize == EVENT_BYTES
        events = np.zeros(len(self), kind)
        events["size"] = np.where(self.op == ALLOC, np.maximum(self.size, 1), 0)
        events["slot"] = assign_slots(self)
        events["stream"] = self.stream
        return events.tobytes()


def assign_slots(trace: Trace) -> NDArray[Any]:
    """The lowest slot that is free for each block, so that the table of blocks stays in the cache."""
    import numpy as np

    slots = np.empty(len(trace), np.uint32)
    of_block: dict[int, int] = {}
    spare: list[list[int]] = [[] for _ in range(trace.streams)]
    count = 0
    rows = zip(trace.op.tolist(), trace.id.tolist(), trace.stream.tolist(), strict=True)
    for i, (op, block, stream) in enumerate(rows):
        if op == ALLOC:
            if spare[stream]:
                slot = spare[stream].pop()
            else:
                slot = count
                count += 1
            of_block[block] = slot
        else:
            slot = of_block.pop(block)
            spare[stream].append(slot)
        slots[i] = slot
    return slots


def check_trace(trace: Trace) -> Trace:
    """The trace, if every free has its alloc and says the same of it.

    Raises
    ------
    TraceError
        Naming the first event that is wrong.
    """
    known: dict[int, tuple[int, int]] = {}
    rows = zip(trace.op.tolist(), trace.id.tolist(), trace.size.tolist(), trace.stream.tolist(),
               strict=True)
    for i, (op, block, size, stream) in enumerate(rows):
        if op not in (ALLOC, FREE):
            raise TraceError(f"{trace.name}: event {i}: op {op}, expected 0 (alloc) or 1 (free)")
        if op == ALLOC:
            if block in known:
                raise TraceError(f"{trace.name}: event {i}: block {block} is allocated twice")
            known[block] = (size, stream)
        elif block not in known:
            raise TraceError(f"{trace.name}: event {i}: block {block} is freed but not live")
        elif known.pop(block) != (size, stream):
            raise TraceError(f"{trace.name}: event {i}: block {block} is freed with another size "
                             "or stream than it was allocated with")
    return trace


def renumber_streams(stream: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    values, where = np.unique(stream, return_inverse=True)
    if len(values) > 64:
        raise TraceError(f"{len(values)} streams; at most 64 can be replayed")
    return where.astype(np.uint8)


def load_npz(path: Path) -> Trace:
    """A trace in our own form."""
    import numpy as np

    columns = read_columns(path)
    lengths = {key: column.shape for key, column in columns.items()}
    if len(set(lengths.values())) != 1 or len(lengths["op"]) != 1:
        raise TraceError(f"{path.name}: arrays of different shapes: {lengths}")
    for key, column in columns.items():
        if len(column) and column.dtype.kind not in "uib":
            raise TraceError(f"{path.name}: array {key!r}: expected whole numbers, got {column.dtype}")
    check_sizes(path.name, columns["size"])
    columns["size"] = columns["size"].astype(np.int64)
    columns["stream"] = renumber_streams(columns["stream"])
    return check_trace(Trace(path.stem, **columns))


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz; whatever is wrong with the file itself is a `TraceError`."""
    import zipfile
    import zlib

    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            missing = [key for key in ("op", "id", "size") if key not in data]
            if missing:
                raise TraceError(f"{path.name}: no array {missing[0]!r}; a trace has op, id and size")
            columns = {key: data[key] for key in ("op", "id", "size", "step", "stream") if key in data}
    except TraceError:
        raise
    # What zipfile and NumPy raise for damaged bytes; MemoryError: a header that promises terabytes.
    except (ValueError, OSError, EOFError, TypeError, KeyError, RuntimeError, MemoryError, zlib.error,
            zipfile.BadZipFile) as error:
        raise TraceError(f"{path.name}: not a trace: {error}") from None
    for key in ("step", "stream"):
        columns.setdefault(key, np.zeros(columns["op"].shape, np.uint32))
    return columns


def check_sizes(name: str, size: NDArray[Any]) -> None:
    """Refuse sizes that are none, or whose sum is no number of bytes."""
    import numpy as np

    if len(size) and int(size.min()) < 0:
        raise TraceError(f"{name}: a size below 0: {int(size.min())}")
    if float(size.sum(dtype=np.float64)) >= 2.0**63:
        raise TraceError(f"{name}: sizes of 2**63 bytes and more in all")


class ForeignPickle(pickle.UnpicklingError):
    """A pickle of something that a snapshot has not."""


class PlainUnpickler(pickle.Unpickler):
    """Unpickles containers, numbers and text, and refuses everything that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise ForeignPickle(f"the pickle wants {module}.{name}; a memory snapshot has only "
                            "dicts, lists, tuples, numbers and text")


def neither(path: Path, error: Exception) -> str:
    """Why a file is nothing that can be read; pickle's own words only where they name something."""
    if path.stat().st_size == 0:
        return "the file is empty"
    what = "neither an npz nor a memory snapshot"
    return f"{what}: {error}" if isinstance(error, ForeignPickle) else what


def load_snapshot(path: Path) -> Trace:
    """A PyTorch memory snapshot: the events of its longest device trace."""
    try:
        snapshot = PlainUnpickler(io.BytesIO(path.read_bytes())).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError,
            TypeError, ImportError, MemoryError, OverflowError) as error:
        raise TraceError(f"{path.name}: {neither(path, error)}") from None
    traces = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(traces, list) or not any(traces) or not all(isinstance(one, list) for one in traces):
        raise TraceError(f"{path.name}: no device_traces; record with "
                         "torch.cuda.memory._record_memory_history() first")
    entries = max(traces, key=len)
    if not all(isinstance(entry, dict) and "action" in entry for entry in entries):
        raise TraceError(f"{path.name}: a device trace's entry without an action")
    try:
        return snapshot_trace(path.stem, entries)
    except TraceError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{path.name}: a device trace's entry is incomplete: {error!r}") from None


def snapshot_trace(name: str, entries: list[dict[str, Any]]) -> Trace:
    """Events from a device trace; blocks older than the recording are left out.

    A block counts as freed when that was requested: the pool orders reuse by the stream, as the allocator
    there does. What was never freed is freed at the end.
    """
    rows: list[tuple[int, int, int, int]] = []
    live: dict[int, tuple[int, int, int]] = {}
    count = 0
    for entry in entries:
        action = entry["action"]
        if action == "alloc":
            block = (count, int(entry["size"]), int(entry.get("stream", 0)))
            live[int(entry["addr"])] = block
            rows.append((ALLOC, *block))
            count += 1
        elif action in ("free_requested", "free_completed"):
            known = live.pop(int(entry["addr"]), None)
            if known is not None:
                rows.append((FREE, *known))
    rows.extend((FREE, *block) for block in live.values())
    return trace_of_rows(name, rows)


def trace_of_rows(name: str, rows: list[tuple[int, int, int, int]]) -> Trace:
    """A trace from (op, id, size, stream) in order; the steps are not known and are 0."""
    import numpy as np

    table = np.array(rows, np.int64).reshape(-1, 4)
    check_sizes(name, table[:, 2])
    return check_trace(Trace(name, table[:, 0].astype(np.uint8), table[:, 1].astype(np.uint32),
                             table[:, 2], np.zeros(len(table), np.uint32),
                             renumber_streams(table[:, 3])))


def load_trace(path: str | Path) -> Trace:
    """Read a trace: an npz, or a PyTorch memory snapshot (by content, whatever the name).

    Raises
    ------
    TraceError
        If the file is neither, or contradicts itself.
    OSError
        If it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        start = file.read(2)
    trace = load_npz(path) if start == b"PK" else load_snapshot(path)
    if not len(trace):
        raise TraceError(f"{path.name}: no events")
    return trace


def save_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace as npz."""
    import numpy as np

    with Path(path).open("wb") as file:
        np.savez_compressed(file, op=trace.op.astype(np.uint8), id=trace.id.astype(np.uint32),
                            size=trace.size.astype(np.uint64), step=trace.step.astype(np.uint32),
                            stream=trace.stream.astype(np.uint8))


def closed_trace(trace: Trace) -> Trace:
    """The trace with a free, at its end, of each block that it leaves live.

    So that a second pass over it does not start beside what the first one left.
    """
    import numpy as np

    left: dict[int, int] = {}
    for i, (op, block) in enumerate(zip(trace.op.tolist(), trace.id.tolist(), strict=True)):
        if op == ALLOC:
            left[block] = i
        else:
            del left[block]
    at = np.fromiter(left.values(), np.int64, len(left))
    columns = {name: np.concatenate((column, column[at]))
               for name in ("id", "size", "step", "stream") for column in (getattr(trace, name),)}
    return Trace(trace.name, np.concatenate((trace.op, np.full(len(at), FREE, trace.op.dtype))), **columns)


def repeat_trace(trace: Trace, times: int) -> Trace:
    """The trace `times` times over, each time with new block numbers."""
    import numpy as np

    if times < 1:
        raise ValueError(f"times: expected at least 1, got {times}")
    ids = int(trace.id.max()) + 1
    steps = int(trace.step.max()) + 1
    again = np.repeat(np.arange(times, dtype=np.int64), len(trace))

    def tile(column: NDArray[Any], stride: int = 0) -> NDArray[Any]:
        return np.tile(column.astype(np.int64), times) + again * stride

    return Trace(trace.name, tile(trace.op), tile(trace.id, ids), tile(trace.size),
                 tile(trace.step, steps), tile(trace.stream))
