"""Read and write traces of allocations, and compute their live bytes and peaks.

A trace is an npz with arrays of equal length: `op` (0 alloc, 1 free), `id` (unique per block),
`size` (bytes, for frees too), `step` (number of the model execution) and `stream`.  Recordings of a pool have
this form.  Other files are converted to it: a PyTorch memory snapshot (the pickle of
`torch.cuda.memory._dump_snapshot`, or of torch_npu's), and a CSV or JSON file with these names.  Only built-in
containers are unpickled from a snapshot, so that a file from an unknown source cannot run code.  NumPy is imported
only when a trace is read.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import resource
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.inside._text import printable, replaced, write_replaced

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Trace", "TraceError", "closed_trace", "export_trace", "load_trace", "repeat_trace", "save_trace"]

ALLOC, FREE = 0, 1


#: Exceptions that zipfile, NumPy, json and pickle raise for a damaged file; MemoryError if its header says terabytes.
DAMAGED = (
    ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError, pickle.UnpicklingError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)
#: A file may unpack to this many bytes, plus this many times its own size.  (Recordings unpack to 20 times their size.)
MOST_PLAIN, MOST_RATIO = 64 << 20, 200
#: The objects of a pickle or of JSON may take this many bytes, plus this many times the file's size.
MOST_OBJECTS, OBJECTS_RATIO = 512 << 20, 64
#: Longest message, in characters.
MOST_WORDS = 500


class TraceError(ValueError):
    """Raised for a file that is not a trace, or that contradicts itself.

    A library's message may repeat the file's bytes, so the text is cut after `MOST_WORDS` characters.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]} ...")


@dataclass(frozen=True)
class Trace:
    """Allocations and frees, in the order in which they were requested.

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
        """The number of streams that the trace uses."""
        return int(self.stream.max()) + 1 if len(self) else 0

    @property
    def allocations(self) -> int:
        """The number of events that are allocations."""
        return int((self.op == ALLOC).sum())

    def live(self, stream: int | None = None) -> NDArray[Any]:
        """Return the requested bytes that are live after each event, of one stream or, if None, of all."""
        import numpy as np

        change = np.where(self.op == ALLOC, self.size, -self.size).astype(np.int64)
        if stream is not None:
            change = np.where(self.stream == stream, change, 0)
        return np.cumsum(change)

    def live_peak(self) -> int:
        """Return the sum of the streams' own peaks of live bytes."""
        return sum(int(self.live(stream).max(initial=0)) for stream in range(self.streams))

    def joint_live_peak(self) -> int:
        """Return the most bytes live at one time, over all streams together."""
        return int(self.live().max(initial=0))

    def events_by_stream(self) -> list[bytes]:
        """Return a list of events for each stream; the stream has the number 0 in its list."""
        from dataclasses import replace

        parts = [self.stream == stream for stream in range(self.streams)]
        return [replace(self, op=self.op[mine], id=self.id[mine], size=self.size[mine], step=self.step[mine],
                        stream=self.stream[mine] * 0).events() for mine in parts]

    def events(self) -> bytes:
        """Return the trace as bytes for the loops, `EVENT_BYTES` for each event, with the slots of `assign_slots`."""
        import numpy as np

        from acl.tools.bench._loops import EVENT_BYTES

        kind = np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")])
        assert kind.itemsize == EVENT_BYTES
        events = np.zeros(len(self), kind)
        events["size"] = np.where(self.op == ALLOC, np.maximum(self.size, 1), 0)
        events["slot"] = assign_slots(self)
        events["stream"] = self.stream
        return events.tobytes()


def assign_slots(trace: Trace) -> NDArray[Any]:
    """Return, for each event, the slot of its block: the number of the place in which the loops keep the block.

    After a free, the next block of the same stream gets the slot, so that the slots fit into the processor's cache.
    """
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
    """Return the trace after a check: a block is allocated once and freed at most once, with the same size and stream.

    Raises
    ------
    TraceError
        An event is wrong; the message names the first one.
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
    if len(values) > 1 << 16:
        raise TraceError(f"{len(values)} streams; at most {1 << 16} can be read")
    return where.astype(np.uint8 if len(values) <= 256 else np.uint16)


def load_npz(path: Path) -> Trace:
    """Read a trace in the form that this module describes."""
    return trace_of_columns(path, read_columns(path))


def trace_of_columns(path: Path, columns: dict[str, NDArray[Any]]) -> Trace:
    """Return the trace of these arrays; raise TraceError if they differ in length or are not whole numbers."""
    import numpy as np

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
    """Read the arrays of an npz; raise `TraceError` for every error in the file."""
    import numpy as np

    columns = read_arrays(path)
    missing = [key for key in ("op", "id", "size") if key not in columns]
    if missing:
        raise TraceError(f"{path.name}: no array {missing[0]!r}; a trace has op, id and size")
    columns = {key: columns[key] for key in ("op", "id", "size", "step", "stream") if key in columns}
    for key in ("step", "stream"):
        columns.setdefault(key, np.zeros(columns["op"].shape, np.uint32))
    return columns


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an npz.  Refuse pickled arrays, and a file that unpacks to too many bytes."""
    import numpy as np

    try:
        with zipfile.ZipFile(path) as packed:
            plain = sum(member.file_size for member in packed.infolist())
        most = MOST_PLAIN + MOST_RATIO * path.stat().st_size
        if plain > most:
            raise ValueError(f"it unpacks to {plain} bytes, and at most {most} are taken from a file of its size")
        with np.load(path, allow_pickle=False) as data:
            found = {}
            for name in data.files:
                found[name] = data[name]
                if not isinstance(found[name], np.ndarray):
                    raise ValueError(f"{name!r} is no array")
            return found
    except DAMAGED as error:
        raise TraceError(f"{printable(path.name)}: not a trace: {printable(error)}") from None


@contextmanager
def bounded_memory(nbytes: int) -> Iterator[None]:
    """Context manager: let the process allocate at most `nbytes` more; then allocations raise MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, numbers and text."""
    data = path.read_bytes()
    try:
        with bounded_memory(MOST_OBJECTS + OBJECTS_RATIO * len(data)):
            return PlainUnpickler(io.BytesIO(data)).load()
    except DAMAGED as error:
        raise TraceError(f"{printable(path.name)}: {neither(path, error)}") from None


def check_sizes(name: str, size: NDArray[Any]) -> None:
    """Raise TraceError if a size is negative, or if the sum of all sizes is 2**63 bytes or more."""
    import numpy as np

    if len(size) and int(size.min()) < 0:
        raise TraceError(f"{name}: a size below 0: {int(size.min())}")
    if float(size.sum(dtype=np.float64)) >= 2.0**63:
        raise TraceError(f"{name}: sizes of 2**63 bytes and more in all")


class ForeignPickle(pickle.UnpicklingError):
    """Raised for a pickle with an object that a snapshot does not have."""


class PlainUnpickler(pickle.Unpickler):
    """Unpickle containers, numbers and text; refuse all objects that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise ForeignPickle(f"the pickle wants {module}.{name}; a memory snapshot has only "
                            "dicts, lists, tuples, numbers and text")


def neither(path: Path, error: Exception) -> str:
    """Return why a file cannot be read; pickle's own message only if it names the foreign object."""
    if path.stat().st_size == 0:
        return "the file is empty"
    what = "neither an npz nor a memory snapshot"
    return f"{what}: {error}" if isinstance(error, ForeignPickle) else what


def load_snapshot(path: Path) -> Trace:
    """Read a PyTorch memory snapshot: the events of its longest device trace."""
    snapshot = read_pickle(path)
    traces = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(traces, list) or not all(isinstance(one, list) for one in traces) or not any(traces):
        raise TraceError(f"{path.name}: no device_traces; record with "
                         "torch.cuda.memory._record_memory_history() first")
    entries = max(traces, key=len)
    if not all(isinstance(entry, dict) and "action" in entry for entry in entries):
        raise TraceError(f"{path.name}: a device trace's entry without an action")
    try:
        return snapshot_trace(path.stem, entries)
    except TraceError:
        raise
    except DAMAGED as error:
        raise TraceError(f"{path.name}: a device trace's entry is incomplete: {error!r}") from None


def snapshot_trace(name: str, entries: list[dict[str, Any]]) -> Trace:
    """Make a trace from a device trace; blocks older than the recording are left out.

    A block is freed at the event at which its free was requested, because the pool, like PyTorch's allocator, uses
    memory again in the order of the stream.  Blocks that were not freed are freed at the end.
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
    """Return the trace of rows (op, id, size, stream); all steps are 0, because they are unknown."""
    import numpy as np

    table = np.array(rows, np.int64).reshape(-1, 4)
    check_sizes(name, table[:, 2])
    return check_trace(Trace(name, table[:, 0].astype(np.uint8), table[:, 1].astype(np.uint32),
                             table[:, 2], np.zeros(len(table), np.uint32),
                             renumber_streams(table[:, 3])))


# ---- text ----

OPS = {"0": ALLOC, "1": FREE, "alloc": ALLOC, "free": FREE}


def text_columns(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays for rows of text or numbers; a free without size and stream gets those of its block."""
    import numpy as np

    found: list[tuple[int, int, int, int, int]] = []
    known: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        try:
            op, block = OPS[str(row["op"]).strip().lower()], int(row["id"])
            size, stream = (int(row[key]) if row.get(key) not in (None, "") else before
                            for key, before in zip(("size", "stream"), known.get(block, (0, 0)), strict=True))
            found.append((op, block, size, int(row.get("step") or 0), stream))
            np.array(found[-1], np.int64)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise TraceError(f"{printable(path.name)}: event {number}: expected op (alloc or free), id and size, "
                             f"got {printable(repr(row))[:120]} ({type(error).__name__})") from None
        if op == ALLOC:
            known[block] = (size, stream)
    table = np.array(found, np.int64).reshape(-1, 5)
    return {name: table[:, i] for i, name in enumerate(("op", "id", "size", "step", "stream"))}


def load_csv(path: Path) -> Trace:
    """Read a CSV file whose first line has the names op, id, size and, if present, step and stream."""
    text = path.read_text(encoding="utf-8", errors="replace")
    table = csv.DictReader(io.StringIO(text))
    missing = [key for key in ("op", "id", "size") if key not in (table.fieldnames or ())]
    if missing:
        raise TraceError(f"{printable(path.name)}: no column {missing[0]!r}; a trace has op, id and size")
    return trace_of_columns(path, text_columns(path, table))


def load_json(path: Path) -> Trace:
    """Read a JSON file: an object of arrays, or an array of objects, with the names that an npz has."""
    data = path.read_bytes()
    try:
        with bounded_memory(MOST_OBJECTS + OBJECTS_RATIO * len(data)):
            found = json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise TraceError(f"{printable(path.name)}: not JSON: {printable(error)}") from None
    if isinstance(found, dict):
        arrays = {key: value for key, value in found.items() if key in ("op", "id", "size", "step", "stream")}
        missing = [key for key in ("op", "id", "size") if not isinstance(arrays.get(key), list)]
        if missing or len({len(value) for value in arrays.values() if isinstance(value, list)}) != 1:
            raise TraceError(f"{printable(path.name)}: expected arrays op, id and size of one length")
        found = [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise TraceError(f"{printable(path.name)}: expected an object of arrays or an array of objects")
    return trace_of_columns(path, text_columns(path, found))


def loader_of(path: Path) -> Callable[[Path], Trace]:
    """Return the function that reads a file, chosen by the file's first bytes."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start[:2] == b"PK":
        return load_npz
    if start.lstrip()[:1] in (b"{", b"["):
        return load_json
    names = start.split(b"\n", 1)[0].split(b",")
    return load_csv if len(names) > 1 and b"op" in [name.strip() for name in names] else load_snapshot


def load_trace(path: str | Path) -> Trace:
    """Read a trace: npz, CSV, JSON, or a PyTorch memory snapshot.  The format is found by the content.

    Raises
    ------
    TraceError
        The file has none of these formats, or contradicts itself.
    OSError
        The file cannot be read.
    """
    path = Path(path)
    trace = loader_of(path)(path)
    if not len(trace):
        raise TraceError(f"{path.name}: no events")
    return trace


def export_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace in the format of the name's ending: .csv, .json or .npz.

    Raises
    ------
    ValueError
        The name has another ending.
    """
    names = ("op", "id", "size", "step", "stream")
    columns = {name: getattr(trace, name).tolist() for name in names}
    ending = Path(path).suffix
    if ending == ".npz":
        save_trace(path, trace)
    elif ending == ".json":
        write_replaced(path, json.dumps(columns, separators=(",", ":")) + "\n")
    elif ending == ".csv":
        columns["op"] = [("alloc", "free")[op] for op in columns["op"]]
        lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        write_replaced(path, "\n".join([",".join(names), *lines, ""]))
    else:
        raise ValueError(f"{path}: a trace's name ends in .csv, .json or .npz")


def save_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace as npz."""
    import numpy as np

    with replaced(path) as file:
        np.savez_compressed(file, op=trace.op.astype(np.uint8), id=trace.id.astype(np.uint32),
                            size=trace.size.astype(np.uint64), step=trace.step.astype(np.uint32),
                            stream=trace.stream)


def closed_trace(trace: Trace) -> Trace:
    """Return the trace, with frees at its end for all blocks that it leaves live.

    So no block of a first pass is live when a second pass begins.
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
    """Return the trace repeated `times` times, each time with new block numbers."""
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
