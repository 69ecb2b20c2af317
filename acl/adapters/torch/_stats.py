"""Converts the counters of the adapter (`DoorStats`) to the dicts of torch's `memory_stats` and `memory_snapshot`.

This module can be tested without torch.  Torch's counters of segments have the number of pages.  Torch's counters of
inactive and split blocks are 0, because the pool has no such blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["nested_stats", "snapshot"]

_KINDS = ("all", "small_pool", "large_pool")
_NONE = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def _by_kind(stats: Sequence[Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {kind: dict(stat) for kind, stat in zip(_KINDS, stats, strict=True)}


def nested_stats(stats: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a dict in the form of `torch.npu.memory_stats_as_nested_dict`.

    Parameters
    ----------
    stats : dict, optional
        The result of `acl.adapters.pluggable._door.stats`; None stands for zeros.
    """
    none = [_NONE] * len(_KINDS)
    found: Mapping[str, Any] = stats or {}
    blocks = found.get("blocks", none)
    sizes = found.get("bytes", none)
    return {
        "allocation": _by_kind(blocks),
        "active": _by_kind(blocks),
        "segment": _by_kind(found.get("pages", none)),
        "inactive_split": _by_kind([_NONE] * len(_KINDS)),
        "allocated_bytes": _by_kind(sizes),
        "active_bytes": _by_kind(sizes),
        "reserved_bytes": _by_kind(found.get("reserved", none)),
        "inactive_split_bytes": _by_kind([_NONE] * len(_KINDS)),
        "requested_bytes": _by_kind(found.get("requested", none)),
        "oversize_allocations": dict(_NONE),
        "oversize_segments": dict(_NONE),
        "num_alloc_retries": found.get("retries", 0),
        "num_ooms": found.get("ooms", 0),
        "num_sync_all_streams": 0,
        "num_device_alloc": found.get("driver_allocs", 0),
        "num_device_free": found.get("driver_frees", 0),
        "max_split_size": 0,
    }


_STATES = {"live": "active_allocated", "waiting": "active_pending_free", "free": "inactive"}


def _segment(device: int, stream: int, small: bool, run: Sequence[tuple[int, int, str, int]]) -> dict[str, Any]:
    blocks = [
        {"address": address, "size": size, "requested_size": asked, "state": _STATES[state], "frames": []}
        for address, size, state, asked in run
    ]
    live = sum(size for _, size, state, _ in run if state == "live")
    return {
        "device": device,
        "address": run[0][0],
        "total_size": sum(size for _, size, _, _ in run),
        "allocated_size": live,
        "active_size": live + sum(size for _, size, state, _ in run if state == "waiting"),
        "requested_size": sum(asked for _, _, _, asked in run),
        "stream": stream,
        "segment_type": "small" if small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": True,
        "frames": [],
        "blocks": blocks,
    }


def snapshot(devices: Mapping[int, Sequence[tuple[int, bool, Sequence[tuple[int, int, str, int]]]]]) -> dict[str, Any]:
    """Return a dict in the form of `torch_npu.npu.memory._snapshot`, without a history.

    Parameters
    ----------
    devices : dict
        For each device the result of `acl.adapters.pluggable._door.segments`.
    """
    segments = [
        _segment(device, stream, small, run) for device, parts in devices.items() for stream, small, run in parts
    ]
    return {"segments": segments, "device_traces": [[] for _ in devices]}
