"""The files of a recording: this package's npz, and PyTorch's memory snapshot.

docs/recording-format.md describes the npz, which contains no pickles.  The snapshot is a pickle in the form that
`torch.cuda.memory._dump_snapshot` writes: dicts, lists, numbers and strings, with one entry of `device_traces` for the
pool's device.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acl.inside._recorded import KINDS
from acl.inside._text import replaced

if TYPE_CHECKING:
    from acl.inside._recorded import Part, Recorded

__all__ = ["snapshot_of", "write_npz", "write_snapshot"]

SMALL = 1 << 20         # bytes up to which PyTorch calls an allocation small
ACTIONS = {"map": "segment_map", "unmap": "segment_unmap", "oom": "oom"}


def write_npz(path: Path, recorded: Recorded) -> None:
    """Write a recording as npz."""
    arrays: dict[str, Any] = {**recorded.rows}
    arrays |= {f"event_{name}": column for name, column in recorded.others.items()}
    arrays["meta"] = np.frombuffer(json.dumps(recorded.meta).encode(), np.uint8)
    with replaced(path) as file:
        np.savez_compressed(file, **arrays)


def write_snapshot(path: Path, recorded: Recorded) -> None:
    """Write a recording as PyTorch's memory snapshot."""
    with replaced(path) as file:
        pickle.dump(snapshot_of(recorded), file, protocol=4)


def frames_of(recorded: Recorded, cache: dict[int, list[dict[str, Any]]], number: int) -> list[dict[str, Any]]:
    if number not in cache:
        cache[number] = [{"filename": file, "line": line, "name": name}
                         for file, line, name in recorded.stacks.of(number)]
    return cache[number]


def trace_of(recorded: Recorded, cache: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the events in order of time, with PyTorch's names."""
    rows, others, meta = recorded.rows, recorded.others, recorded.meta
    handles = [stream["handle"] for stream in meta["streams"]]
    start = recorded.began // 1000
    names = ("op", "time", "address", "size", "stream", "stack", "tag")
    merged: list[tuple[int, int, dict[str, Any]]] = []
    for i, (op, time, address, size, stream, stack, tag) in enumerate(
            zip(*(rows[name].tolist() for name in names), strict=True)):
        entry = {"addr": address, "size": size, "stream": handles[stream], "time_us": start + time // 1000,
                 "frames": frames_of(recorded, cache, stack), "user_metadata": meta["tags"][tag]}
        if op:
            merged.append((i, 1, {"action": "free_requested", **entry}))
            merged.append((i, 1, {"action": "free_completed", **entry}))
        else:
            merged.append((i, 1, {"action": "alloc", **entry}))
    for i, kind in enumerate(others["kind"].tolist()):
        name = ACTIONS.get(KINDS[kind])
        if name is None:
            continue
        entry = {"action": name, "addr": int(others["address"][i]), "size": int(others["size"][i]),
                 "stream": handles[int(others["stream"][i])], "time_us": start + int(others["time"][i]) // 1000,
                 "frames": frames_of(recorded, cache, int(others["stack"][i]))}
        if name == "oom":
            entry["device_free"] = meta["ooms"][int(others["detail"][i])]["device_free"]
        merged.append((int(others["at"][i]), 0, entry))
    merged.sort(key=lambda item: item[:2])
    return [item[2] for item in merged]


def runs_of(part: Part) -> list[tuple[int, int]]:
    """Return the runs of mapped addresses as (address, bytes).  Adjoining ones are one run, as in PyTorch's viewer."""
    runs: list[tuple[int, int]] = []
    for start, size in sorted(zip(part.pages["address"].tolist(), part.pages["bytes"].tolist(), strict=True)):
        if runs and sum(runs[-1]) == start:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((start, size))
    return runs


def segment_of(recorded: Recorded, part: Part, handle: int, run: tuple[int, int],
               cache: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a run of mapped addresses as a segment of PyTorch, divided into live and free blocks.

    A block that is asleep has only the size of its memory.
    """
    start, total = run
    inside = part.after[(part.after["address"] >= start) & (part.after["address"] < start + total)]
    inside = inside[np.argsort(inside["address"])]
    blocks: list[dict[str, Any]] = []
    at = start
    for row, stack in zip(inside, recorded.stacks.column(inside).tolist(), strict=True):
        address, size = int(row["address"]), min(int(row["bytes"]), start + total - int(row["address"]))
        if address > at:
            blocks.append(free_block(at, address - at))
        blocks.append({"address": address, "size": size, "requested_size": int(row["size"]),
                       "state": "active_allocated", "frames": frames_of(recorded, cache, stack),
                       "user_metadata": recorded.tags[int(row["tag"])]})
        at = address + size
    if at < start + total:
        blocks.append(free_block(at, start + total - at))
    active = int(inside["bytes"].sum())
    return {
        "device": recorded.meta["device"], "address": start, "total_size": total, "stream": handle,
        "allocated_size": active, "active_size": active, "requested_size": int(inside["size"].sum()),
        "segment_type": "small" if total <= SMALL else "large", "segment_pool_id": (0, 0), "is_expandable": True,
        "frames": [], "blocks": blocks,
    }


def free_block(address: int, size: int) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}


def snapshot_of(recorded: Recorded) -> dict[str, Any]:
    """Return the pool in the form of `torch.cuda.memory._snapshot`."""
    cache: dict[int, list[dict[str, Any]]] = {}
    handles = [stream["handle"] for stream in recorded.meta["streams"]]
    segments = [segment_of(recorded, part, handle, run, cache)
                for part, handle in zip(recorded.parts, handles, strict=True) for run in runs_of(part)]
    device = int(recorded.meta["device"])
    return {
        "segments": sorted(segments, key=lambda segment: int(segment["address"])),
        "device_traces": [[] for _ in range(device)] + [trace_of(recorded, cache)],
        "allocator_settings": {"expandable_segments": True, "backend": "aclpool"},
        "external_annotations": [],
    }
