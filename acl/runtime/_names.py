"""Names of streams for reports, metrics and logs: what the user called them, else a small number.

A number is given when a stream is first reported, and not given again in this process.  A stream's entry ends with the
stream, because its handle may be used again.
"""

from __future__ import annotations

from itertools import count

from acl.runtime._ended import entries_end, watch_table

__all__ = ["ENDED", "name_drop", "name_give", "stream_name"]

ENDED = "ended"                     # for the memory of streams that were destroyed
names: dict[int, str] = {}          # by handle
numbers = count(1)
watch_table(names)


def stream_name(handle: int) -> str:
    """Return the name of a stream with this handle; ``"default"`` for the default stream, 0."""
    if not handle:
        return "default"
    entries_end()
    found = names.get(handle)
    return names.setdefault(handle, str(next(numbers))) if found is None else found


def name_give(handle: int, name: str | None) -> None:
    """Note the name of a new stream, or that it has none."""
    if name is None:
        names.pop(handle, None)
    else:
        names[handle] = name


def name_drop(handle: int) -> None:
    """Forget the name of a stream that is being closed."""
    names.pop(handle, None)
