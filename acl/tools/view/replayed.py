"""Addresses for a file that has none: its requests, served by the real pool on a driver that keeps books.

The pool is the one that serves on hardware; the driver behind it (`_rig`) only notes what is mapped and
unmapped, so a million events take a second or two and no memory. What comes out is what our pool
would make of these requests, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable

from acl.tools.view.history import History, curve_of_spans, spans_of_changes

__all__ = ["place_blocks"]

REPORT_EVERY = 100_000
NOTE = ("This file has no addresses. The address space and the reserved bytes shown are what aclpool's own pool "
        "makes of the same requests, in a replay.")


def ordered_events(history: History) -> list[int]:
    """For each event the block it begins (b + 1) or ends (-b - 1), 0 if neither."""
    import numpy as np

    what = np.zeros(history.events + 1, np.int64)
    number = np.arange(1, history.blocks + 1)
    what[history.end] = -number
    what[history.start] = number
    listed: list[int] = what[:history.events].tolist()
    return listed


def place_blocks(history: History, progress: Callable[[int, int], None] | None = None) -> None:
    """Fill in addresses, spans and reserved bytes of a history that has none.

    Parameters
    ----------
    history : History
        Changed in place.
    progress : callable, optional
        Called now and then with events done and events in all.
    """
    import numpy as np

    from acl.tools._rig import Rig

    rig = Rig()
    rig.log_maps(True)
    sizes, streams = history.size.tolist(), (history.stream.astype(np.int64) + 1).tolist()
    handles = [0] * history.blocks
    addresses = [0] * history.blocks
    changes: list[tuple[int, int, int]] = []
    mapped: dict[int, int] = {}
    for event, what in enumerate(ordered_events(history)):
        if what > 0:
            block = what - 1
            handle = handles[block] = rig.alloc(max(1, sizes[block]), streams[block])
            addresses[block] = rig.address(handle) if handle else 0
        elif what < 0 and handles[-what - 1]:
            rig.free(handles[-what - 1], streams[-what - 1])
            handles[-what - 1] = 0
        for address, size in rig.take_maps():
            changes.append((event, address, size or -mapped.pop(address)))
            if size:
                mapped[address] = size
        if progress is not None and event % REPORT_EVERY == 0:
            progress(event, history.events)
    give_back(rig, handles, streams)
    history.address = np.array(addresses, np.int64)
    history.spans = spans_of_changes(changes, history.events)
    history.reserved_at, history.reserved = curve_of_spans(history.spans, history.events)
    history.replayed = True
    history.notes.append(NOTE)


def give_back(rig: object, handles: list[int], streams: list[int]) -> None:
    """Free what the file left live, so that the pool can go."""
    from acl.tools._rig import Rig

    assert isinstance(rig, Rig)
    rig.log_maps(False)
    for handle, stream in zip(handles, streams, strict=True):
        if handle:
            rig.free(handle, stream)
    rig.destroy()
