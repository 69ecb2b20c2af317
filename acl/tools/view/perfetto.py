"""Write a history as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: counters and marks over time.

Live bytes by tag, live bytes by stream, and reserved bytes are counters; marks are instant events.  A counter has at
most `POINTS` values, which is more than a screen can show.  Times are from the recording; if the file has no times,
each event takes a microsecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acl.inside._text import printable
from acl.tools.view.history import History

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["trace_document"]

POINTS = 20_000
MOST_NAMES = 16
OTHERS = "others"


def live_curves(history: History, group: NDArray[Any], names: list[str], at: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return live bytes after the events `at`, for the names with the largest peaks and for the others together."""
    import numpy as np

    curves: dict[str, NDArray[Any]] = {}
    for number, name in enumerate(names):
        mine = group == number
        change = np.zeros(history.events + 1, np.int64)
        np.add.at(change, history.start[mine], history.size[mine])
        np.add.at(change, history.end[mine], -history.size[mine])
        curves[name] = np.cumsum(change)[at]
    largest = sorted(curves, key=lambda name: -int(curves[name].max(initial=0)))
    found = {printable(name): curves[name] for name in largest[:MOST_NAMES]}
    if len(largest) > MOST_NAMES:
        found[OTHERS] = sum((curves[name] for name in largest[MOST_NAMES:]), np.zeros(len(at), np.int64))
    return found


def trace_document(history: History) -> dict[str, Any]:
    """Return the document in the Trace Event Format.

    Parameters
    ----------
    history : History
        The history of any file that `aclpool view` reads.
    """
    import numpy as np

    at = np.unique(np.linspace(0, history.events - 1, min(POINTS, history.events)).astype(np.int64))
    times = at.astype(np.float64) if history.time_ns is None else history.time_ns[at] / 1000.0
    counters = {
        "live by tag": live_curves(history, history.tag, history.tags, at),
        "live by stream": live_curves(history, history.stream, history.streams, at),
    }
    if len(history.reserved_at):
        where = np.searchsorted(history.reserved_at, at, "right") - 1
        counters["reserved"] = {"bytes": np.where(where < 0, 0, history.reserved[np.maximum(where, 0)])}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": printable(history.name)}}]
    for name, curves in counters.items():
        rows = zip(times.tolist(), *(curve.tolist() for curve in curves.values()), strict=True)
        events += [{"ph": "C", "pid": 1, "name": name, "ts": time, "args": dict(zip(curves, values, strict=True))}
                   for time, *values in rows]
    for mark in history.marks:
        event = min(mark.event, history.events - 1)
        time = float(event) if history.time_ns is None else float(history.time_ns[event]) / 1000.0
        events.append({
            "ph": "i", "pid": 1, "tid": 1, "s": "p", "name": printable(mark.title), "cat": mark.kind, "ts": time,
            "args": {"text": printable(mark.text, lines=True)},
        })
    return {"traceEvents": events, "displayTimeUnit": "ms"}
