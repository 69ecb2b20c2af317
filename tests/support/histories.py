"""Input files for tests of the viewer: the recording of an invented service, and the right answers.

The service has the weights of a model, requests that each have a key-value cache, and activations and workspaces on
two streams.  All are drawn from a seed; addresses and mapped pages are from the core test harness.  `Truth` computes
the right answers with plain Python loops, so that it shares no code with the tools that read the file.
"""

from __future__ import annotations

import heapq
import json
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from acl.tools._rig import Rig

__all__ = ["Row", "Truth", "make_recording", "make_snapshot", "service_rows"]

TAGS = ["", "weights", "kv cache", "activations", "workspace", "sampling <b>&\"'", "prefix cache", "embeddings"]
FRAMES = [
    ["service/model.py", 88, "load"], ["service/scheduler.py", 210, "admit"], ["service/model.py", 143, "forward"],
    ["service/sampler.py", 31, "top_k </script>"], ["service/main.py", 12, "main"],
]
STACKS = [[], [0, 4], [1, 4], [2, 4], [2, 1, 4], [3, 2, 4]]
MIB = 1 << 20


@dataclass
class Row:
    """An allocation (op 0) or a free (op 1); its time is in nanoseconds."""

    op: int
    id: int
    size: int
    stream: int
    tag: int
    stack: int
    time: int
    step: int
    address: int = 0


@dataclass
class Truth:
    """The right answers about a list of rows."""

    rows: list[Row]

    def live_by(self, name: str, event: int) -> dict[int, int]:
        """Return the live bytes after an event by the field `name`: tag or stream."""
        sums: dict[int, int] = {}
        for row in self.rows[:event + 1]:
            key = getattr(row, name)
            sums[key] = sums.get(key, 0) + (row.size if row.op == 0 else -row.size)
        return {key: size for key, size in sums.items() if size}

    def peak(self) -> tuple[int, int]:
        """Return the first event with the most live bytes, and these bytes."""
        live = best = at = 0
        for event, row in enumerate(self.rows):
            live += row.size if row.op == 0 else -row.size
            if live > best:
                best, at = live, event
        return at, best

    def live_rows(self, event: int) -> list[Row]:
        """Return the allocations that are live after an event."""
        live: dict[int, Row] = {}
        for row in self.rows[:event + 1]:
            if row.op == 0:
                live[row.id] = row
            else:
                del live[row.id]
        return list(live.values())


@dataclass
class Drawn:
    """The rows of the service while they are drawn."""

    source: random.Random
    rows: list[Row] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)   # heap: event of the free, row of the allocation
    time: int = 0
    blocks: int = 0

    def alloc(self, size: int, tag: int, stack: int, stream: int, life: int, step: int) -> None:
        """Add the allocation of a block that is freed after `life` events, or not at all if `life` is 0."""
        if life:
            heapq.heappush(self.ends, (len(self.rows) + life, len(self.rows)))
        self.rows.append(Row(0, self.blocks, size, stream, tag, stack, self.tick(), step))
        self.blocks += 1

    def free_due(self, step: int) -> bool:
        """Free one block whose `life` is over; return False if there is none."""
        if not self.ends or self.ends[0][0] > len(self.rows):
            return False
        row = self.rows[heapq.heappop(self.ends)[1]]
        self.rows.append(Row(1, row.id, row.size, row.stream, row.tag, row.stack, self.tick(), step))
        return True

    def tick(self) -> int:
        """Advance the clock by a few microseconds, rarely by 3 ms more; return the time in nanoseconds."""
        self.time += int(self.source.expovariate(1 / 2000)) + (3_000_000 if self.source.random() < 0.001 else 0)
        return self.time


def service_rows(events: int, seed: int = 1) -> list[Row]:
    """Return the rows of a service: `events` allocations and frees."""
    source = random.Random(seed)
    drawn = Drawn(source)
    for _ in range(24):
        drawn.alloc(source.randrange(20, 60) * MIB + 512, 1, 1, 0, 0, 0)
    drawn.alloc(96 * MIB, 7, 1, 0, 0, 0)
    load = 1.0
    while len(drawn.rows) < events:
        step = len(drawn.rows) // 200
        if drawn.free_due(step):
            continue
        if len(drawn.rows) % 97 == 0:
            load = 1 + 0.8 * np.sin(len(drawn.rows) / events * 9) + source.random() * 0.3
        draw = source.random()
        stream = 1 if draw > 0.9 else 0
        if draw < 0.03 * load:
            drawn.alloc(source.choice([8, 8, 16]) * MIB, 2, 2, 0, max(40, int(source.gauss(900, 300))), step)
        elif draw < 0.35:
            drawn.alloc(source.randrange(1, 40 * 1024) * 512, 4, 3, stream, source.randrange(1, 4), step)
        elif draw < 0.4:
            drawn.alloc(source.randrange(100, 900_000), 5, 5, stream, source.randrange(2, 9), step)
        elif draw < 0.405:
            drawn.alloc(source.randrange(2, 9) * MIB, 6, 4, 1, source.randrange(500, 4000), step)
        else:
            drawn.alloc(int(source.lognormvariate(14, 1.4)) % (64 * MIB) + 1, 3, source.choice([3, 4]), stream,
                        source.randrange(3, 60), step)
    return drawn.rows[:events]


def place(rows: list[Row]) -> list[tuple[int, int, int]]:
    """Set the rows' addresses; return the changes of mappings as (event, address, bytes), bytes < 0 for an unmap."""
    rig = Rig(views=False, audit=False)              # without aliases, each mapped page has memory
    rig.log_maps(True)
    handles: dict[int, int] = {}
    mapped: dict[int, int] = {}
    changes = []
    for event, row in enumerate(rows):
        if row.op == 0:
            handles[row.id] = rig.alloc(row.size, row.stream + 1)
            row.address = rig.address(handles[row.id])
        else:
            rig.free(handles.pop(row.id), row.stream + 1)
        for address, size in rig.take_maps():
            changes.append((event, address, size or -mapped.pop(address)))
            if size:
                mapped[address] = size
    rig.log_maps(False)
    for row in rows:
        if row.op == 0 and row.id in handles:
            rig.free(handles[row.id], row.stream + 1)
    rig.destroy()
    return changes


def make_recording(path: Path, events: int, seed: int = 1) -> Truth:
    """Write a recording in the format of docs/recording-format.md; return the right answers about it."""
    rows = service_rows(events, seed)
    changes = place(rows)
    kinds = ["map", "unmap", "oom", "trim", "sync", "register", "unregister"]
    others = [(event, int(size < 0), address, abs(size), int(size < 0)) for event, address, size in changes]
    at = events * 2 // 3
    others.append((at, 2, 0, 700 * MIB, 0))
    others.append((min(events - 1, at + events // 10), 3, 0, 64 * MIB, 0))
    others.sort()
    text = ("700.00 MiB could not be had on stream 1 for tag 'activations': limit 2 GiB. kv cache holds the most; "
            "trim on stream 0 would free 96.00 MiB.")
    meta = {
        "format": "aclpool recording", "version": 1, "began": 1_760_000_000_000_000_000, "duration": rows[-1].time,
        "device": 0, "soc": "Ascend910B1", "granule": 2 * MIB, "limit": 2 << 30, "headroom": 0,
        "streams": [{"handle": 0, "kind": "stream", "lost": 0}, {"handle": 0x7F00, "kind": "stream", "lost": 12}],
        "tags": TAGS, "threads": {}, "paths": ["hit", "fit", "slow"], "kinds": kinds, "rungs": ["", "driver"],
        "stacks": STACKS, "frames": FRAMES,
        "ooms": [{"time": rows[at].time, "size": 700 * MIB, "stream": 1, "text": text}],
    }
    arrays = {
        "op": np.array([row.op for row in rows], np.uint8), "id": np.array([row.id for row in rows], np.uint32),
        "size": np.array([row.size for row in rows], np.uint64),
        "step": np.array([row.step for row in rows], np.uint32),
        "stream": np.array([row.stream for row in rows], np.uint8),
        "time": np.array([row.time for row in rows], np.int64),
        "address": np.array([row.address for row in rows], np.uint64),
        "bytes": np.array([(row.size + 511) // 512 * 512 for row in rows], np.uint64),
        "tag": np.array([row.tag for row in rows], np.uint16),
        "stack": np.array([row.stack for row in rows], np.uint32),
        "before": np.zeros(len(rows), np.uint8),
        "event_at": np.array([one[0] for one in others], np.uint32),
        "event_kind": np.array([one[1] for one in others], np.uint8),
        "event_time": np.array([rows[min(one[0], len(rows) - 1)].time for one in others], np.int64),
        "event_address": np.array([one[2] for one in others], np.uint64),
        "event_size": np.array([one[3] for one in others], np.uint64),
        "event_detail": np.array([one[4] for one in others], np.uint64),
        "event_stream": np.array([1 if one[1] == 2 else 0 for one in others], np.uint8),
        "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8),
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return Truth(rows)


def make_snapshot(path: Path) -> dict[str, Any]:
    """Write and return a PyTorch memory snapshot with blocks older than its trace, a freed segment, and an OOM."""
    frames = [{"filename": "train.py", "line": 7, "name": "step"}, {"filename": "main.py", "line": 1, "name": "run"}]

    def entry(action: str, addr: int, size: int, time_us: int, **more: Any) -> dict[str, Any]:
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": frames, **more}

    low, high = 0x7F0000000000, 0x7F0010000000
    snapshot = {
        "segments": [{
            "device": 0, "address": low, "total_size": 20 * MIB, "stream": 0, "segment_type": "large",
            "blocks": [
                {"address": low, "size": 4 * MIB, "requested_size": 4 * MIB - 100, "state": "active_allocated",
                 "frames": frames},
                {"address": low + 4 * MIB, "size": 6 * MIB, "requested_size": 6 * MIB, "state": "active_allocated"},
                {"address": low + 10 * MIB, "size": 10 * MIB, "requested_size": 0, "state": "inactive"},
            ],
        }],
        "device_traces": [[
            entry("free_requested", low + 4 * MIB, 3 * MIB, 100), entry("free_completed", low + 4 * MIB, 3 * MIB, 101),
            entry("segment_alloc", high, 32 * MIB, 150), entry("alloc", high, 30 * MIB, 151),
            entry("free_requested", high, 30 * MIB, 300), entry("free_completed", high, 30 * MIB, 301),
            entry("segment_free", high, 32 * MIB, 302), entry("alloc", low + 4 * MIB, 6 * MIB, 400),
            entry("oom", 0, 900 * MIB, 500, device_free=5 * MIB),
        ]],
    }
    path.write_bytes(pickle.dumps(snapshot))
    return snapshot
