"""Summarise a history in a few numbers, for `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from acl.tools.view.history import History

__all__ = ["bytes_by", "summary_of"]

MOST_STACKS = 100


def bytes_by(history: History, dimension: str, blocks: NDArray[Any]) -> dict[str, int]:
    """Return the bytes of these blocks by tag or stream, largest first."""
    import numpy as np

    names = history.tags if dimension == "tag" else history.streams
    values = getattr(history, dimension)[blocks]
    sums = np.bincount(values, weights=history.size[blocks].astype(np.float64), minlength=len(names))
    return {names[i]: int(sums[i]) for i in np.argsort(-sums, kind="stable").tolist() if sums[i]}


def not_freed(history: History) -> dict[str, Any]:
    """Return the blocks live at the end: by tag, and by stack with the events of their first and last allocation."""
    import numpy as np

    kept = np.flatnonzero(history.end >= history.events)
    found = []
    for stack in np.unique(history.stack[kept]).tolist():
        blocks = kept[history.stack[kept] == stack]
        size = history.size[blocks]
        found.append({
            "blocks": len(blocks), "bytes": int(size.sum()), "smallest": int(size.min()), "largest": int(size.max()),
            "by_tag": bytes_by(history, "tag", blocks), "first_event": int(history.start[blocks].min()),
            "last_event": int(history.start[blocks].max()), "stack": history.stacks[stack].splitlines(),
        })
    found.sort(key=lambda group: -group["bytes"])
    return {"blocks": len(kept), "bytes": int(history.size[kept].sum()), "by_tag": bytes_by(history, "tag", kept),
            "groups": len(found), "by_stack": found[:MOST_STACKS]}


def summary_of(history: History) -> dict[str, Any]:
    """Return the peak and its composition, reserved bytes, blocks not freed, and out-of-memory marks."""
    import numpy as np

    live = history.live()
    peak = int(np.argmax(live)) if len(live) else 0
    at_peak = history.live_at(peak)
    reserved = int(history.reserved.max(initial=0))
    live_peak = int(live[peak]) if len(live) else 0
    return {
        "name": history.name, "source": history.source, "events": history.events,
        "allocations": history.blocks, "streams": history.streams,
        "peak": {
            "event": peak, "live": live_peak, "blocks": len(at_peak),
            "by_tag": bytes_by(history, "tag", at_peak), "by_stream": bytes_by(history, "stream", at_peak),
        },
        "reserved_peak": reserved, "reserved_by": "replay" if history.replayed else "file" if reserved else "unknown",
        "ratio": round(reserved / live_peak, 4) if reserved and live_peak else None,
        "not_freed": not_freed(history),
        "ooms": [{"event": mark.event, "title": mark.title, "text": mark.text}
                 for mark in history.marks if mark.kind == "oom"],
        "notes": history.notes,
    }
