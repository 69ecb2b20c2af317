"""Pack a history into one text for the page: columns in as few bytes as they need, gzip, base64.

Before gzip, the data is a length (four bytes, little-endian), that many bytes of JSON, and then the columns.  A column
has values of `width` bytes.  It is stored in planes: first the lowest bytes of all values, then the next ones, because
gzip compresses this better.  A column whose values rise is stored as differences.  `web/decode.js` unpacks the data.
Numbers must be below 2**53.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from acl.tools.view.history import History

__all__ = ["pack_history"]

MOST = (1 << 53) - 1


def pack_column(name: str, values: NDArray[Any], *, rising: bool = False) -> tuple[dict[str, Any], bytes]:
    """Return a column's description and its planes.

    Raises
    ------
    ValueError
        A number is too large for the page.
    """
    import numpy as np

    values = values.astype(np.int64)
    if len(values) and (int(values.min()) < 0 or int(values.max()) > MOST):
        raise ValueError(f"{name}: expected numbers from 0 to 2**53 - 1, got {values.min()} to {values.max()}")
    highest = int(values.max(initial=0))
    kind = "u8" if highest < 1 << 8 else "u16" if highest < 1 << 16 else "u32" if highest < 1 << 32 else "f64"
    stored = np.diff(values, prepend=0) if rising else values
    width = max(1, (int(stored.max(initial=0)).bit_length() + 7) // 8)
    planes = stored.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
    about = {"name": name, "count": len(values), "width": width, "kind": kind, "rising": rising}
    return about, planes.tobytes()


def columns_of(history: History) -> list[tuple[str, NDArray[Any], bool]]:
    """Return each column that the history has: its name, its values, and True if they rise."""
    columns = [
        ("start", history.start, True), ("life", history.end - history.start, False), ("size", history.size, False),
        ("stream", history.stream, False), ("tag", history.tag, False), ("stack", history.stack, False),
        ("id", history.id, False), ("reservedAt", history.reserved_at, True), ("reserved", history.reserved, False),
        ("spanAddress", history.spans.address, True), ("spanSize", history.spans.size, False),
        ("spanStart", history.spans.start, False), ("spanEnd", history.spans.end, False),
    ]
    if history.address is not None:
        columns.append(("address", history.address, False))
    if history.room is not None:
        columns.append(("room", history.room, False))
    if history.time_ns is not None:
        columns.append(("time", history.time_ns, True))
    if history.steps is not None:
        columns.append(("steps", history.steps, True))
    return columns


def meta_of(history: History, version: str) -> dict[str, Any]:
    """Return the values that are not columns."""
    return {
        "name": history.name, "source": history.source, "events": history.events, "version": version,
        "streams": history.streams, "tags": history.tags, "stacks": history.stacks, "notes": history.notes,
        "limit": history.limit,
        "replayed": history.replayed,
        "marks": [{"event": mark.event, "kind": mark.kind, "title": mark.title, "text": mark.text}
                  for mark in history.marks],
    }


def pack_history(history: History, version: str) -> str:
    """Return the history in base64, as `web/decode.js` reads it.

    Raises
    ------
    ValueError
        A number is too large for the page.
    """
    packed = [pack_column(name, values, rising=rising) for name, values, rising in columns_of(history)]
    meta = {**meta_of(history, version), "columns": [about for about, _ in packed]}
    head = json.dumps(meta, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    stream = b"".join([len(head).to_bytes(4, "little"), head, *(planes for _, planes in packed)])
    return base64.b64encode(gzip.compress(stream, 6, mtime=0)).decode("ascii")
