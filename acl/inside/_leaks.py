"""Leaks: the blocks that are still live in a pool, with their tags, ages and stacks.

A mark (`Pool.mark`) costs a visit of all live blocks.  It separates exactly the blocks that are allocated after it from
older ones, without tracking allocations.  Ages and stacks are known only of blocks that were allocated while the pool
was tracked or recorded; of other blocks, marks give a least age.  Pending frees are listed separately.  Nothing here
prints, except the report at exit that the environment variable ``ACL_POOL_LEAKS`` requests.
"""

from __future__ import annotations

import atexit
import gc
import os
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from acl.inside._snapshot import lasting, number_of, readable, stream_text
from acl.inside._text import printable
from acl.runtime._names import stream_name

if TYPE_CHECKING:
    from acl.pool._pool import Pool

__all__ = ["ExpectNoLeaks", "LeakError", "LeakGroup", "LeakReport", "LiveBlock", "Mark", "leaks_of",
           "mark_of", "watch_exit"]

# The layout of the struct `Event` of `_events.pxd`, which `survey` returns.
EVENT = struct.Struct("<5Q4IHBBI")
BORN, SEEN = 4, 8
SHOWN = 10
NOT_FOUND = ("      held by nothing that was found: C code, such as a library that took it through DLPack, or too far "
             "from a module's names")
NO_STACK = "      no Python stack: ACL or C code asked for it (stacks='all' tells C's)"
NOT_TRACKED = "      no Python stack: it was allocated before the pool was tracked"
STACK_SHOWN = 8

Frame = tuple[str, int, str]


class LeakError(AssertionError):
    """Raised if blocks are live that should not be; `report` lists them."""

    def __init__(self, message: str, report: LeakReport | None = None) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class Mark:
    """A moment of a pool, made by `Pool.mark`.

    Attributes
    ----------
    time : int
        Time of the mark, in nanoseconds of the monotonic clock.
    blocks : int
        Number of blocks that were live.
    """

    pool: weakref.ref[Pool]
    ticks: int
    time: int
    blocks: int


@dataclass(frozen=True)
class LiveBlock:
    """A live block.

    Attributes
    ----------
    address, size, bytes : int
        Address of the block, its requested bytes, and the bytes that it occupies.
    stream : int
        Handle of the block's stream.
    tag : str
        The block's tag; ``""`` for none.
    age : float or None
        Seconds since it was allocated; None if that is not known.
    at_least : bool
        True if `age` is only a lower bound, because the block was live when a mark was made.
    stack : tuple of (file, line, function)
        The stack of its allocation, innermost frame first; empty if not known.
    """

    address: int
    size: int
    bytes: int
    stream: int
    tag: str
    age: float | None
    at_least: bool
    stack: tuple[Frame, ...]

    @property
    def size_class(self) -> str:
        """The size class as text: the powers of two between which the size lies."""
        top = 1 << max(self.size - 1, 1).bit_length()
        return f"{readable(top // 2)} to {readable(top)}"


@dataclass(frozen=True)
class LeakGroup:
    """Live blocks of one tag, size class and stack.

    Attributes
    ----------
    blocks, bytes : int
        Number of blocks, and the bytes that they occupy together.
    oldest, youngest : float or None
        Highest and lowest age in seconds; None if no age is known.
    requested, smallest, largest : int
        Requested bytes of all blocks, and of the smallest and the largest one.
    first, last : LiveBlock
        The oldest and the youngest block; if no age is known, the largest and the smallest.
    """

    tag: str
    size_class: str
    stack: tuple[Frame, ...]
    blocks: int
    bytes: int
    oldest: float | None
    youngest: float | None
    requested: int
    smallest: int
    largest: int
    first: LiveBlock
    last: LiveBlock


def group_of(tag: str, size_class: str, stack: tuple[Frame, ...], blocks: list[LiveBlock]) -> LeakGroup:
    ages = [block.age for block in blocks if block.age is not None]
    sizes = [block.size for block in blocks]
    ordered = sorted(blocks, key=lambda block: (block.age or 0.0, block.size))
    return LeakGroup(
        tag, size_class, stack, len(blocks), sum(block.bytes for block in blocks), max(ages, default=None),
        min(ages, default=None), sum(sizes), min(sizes), max(sizes), ordered[-1], ordered[0])


@dataclass(frozen=True)
class LeakReport:
    """The live blocks of a pool.  The report is true if there are any.

    Attributes
    ----------
    blocks : tuple of LiveBlock
        The blocks in order of their addresses.
    tracked : bool
        True if the pool records ages and stacks of new blocks.
    unknown : int
        Live blocks that `older_than` left out because their age is not known.
    waiting : dict of int or None to int
        Bytes of pending frees, by the stream whose work must be complete first; None for those that wait
        for a synchronisation of the device.
    """

    blocks: tuple[LiveBlock, ...]
    tracked: bool
    unknown: int = 0
    what: str = "live"
    waiting: dict[int | None, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def bytes(self) -> int:
        """Bytes that the blocks occupy."""
        return sum(block.bytes for block in self.blocks)

    @property
    def requested(self) -> int:
        """Requested bytes of the blocks."""
        return sum(block.size for block in self.blocks)

    def by_tag(self) -> dict[str, int]:
        """Return the bytes by tag, the largest first."""
        return totals((block.tag, block.bytes) for block in self.blocks)

    def by_size_class(self) -> dict[str, int]:
        """Return the bytes by size class, the largest first."""
        return totals((block.size_class, block.bytes) for block in self.blocks)

    def groups(self) -> list[LeakGroup]:
        """Return the blocks in groups by tag, size class and stack, the largest group first."""
        return self.grouped(lambda block: (block.tag, block.size_class, block.stack))

    def sites(self) -> list[LeakGroup]:
        """Return the blocks in groups by tag and stack, whatever their sizes, the largest group first."""
        return self.grouped(lambda block: (block.tag, "" if block.stack else block.size_class, block.stack))

    def grouped(self, key: Callable[[LiveBlock], tuple[str, str, tuple[Frame, ...]]]) -> list[LeakGroup]:
        """Return groups of the blocks with equal keys, the largest group first."""
        found: dict[tuple[str, str, tuple[Frame, ...]], list[LiveBlock]] = {}
        for block in self.blocks:
            found.setdefault(key(block), []).append(block)
        groups = [group_of(*names, blocks) for names, blocks in found.items()]
        return sorted(groups, key=lambda group: -group.bytes)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, holders: bool = False) -> str:
        """Return the report as text.

        Parameters
        ----------
        holders : bool
            Add for each group the paths, as Python expressions, by which its oldest and its youngest buffer can be
            reached.  That needs walks over all objects of the process, up to half a second for each buffer.
        """
        if not self.blocks:
            return "\n".join([f"no blocks are {self.what}{self.caveat()}", *self.waits()])
        count = f"{len(self.blocks)} block{'s' if len(self.blocks) > 1 else ''}"
        lines = [f"{count}, {readable(self.requested)}, {self.what}{self.caveat()}"]
        groups = self.sites()
        asked = {block.address: block for group in groups[:SHOWN] for block in (group.first, group.last)}
        held = holders_of(list(asked.values())) if holders else {}
        for group in groups[:SHOWN]:
            lines += [*group_lines(group), *(holder_lines(group, held) if holders else [])]
            if not group.stack and any(each.stack for each in groups):
                lines.append(NOT_TRACKED if group.first.age is None or group.first.at_least else NO_STACK)
        if len(groups) > SHOWN:
            rest = groups[SHOWN:]
            lines.append(f"  and {len(rest)} more groups: {readable(sum(group.requested for group in rest))}")
        return printable("\n".join([*lines, *self.waits()]), lines=True)

    def waits(self) -> list[str]:
        """Return the lines about pending frees."""
        return [f"  {readable(size)} more were freed, but wait for "
                + ("a synchronisation of the device" if stream is None else
                   f"the work of {stream_text(stream_name(stream))}, where they are used too, to be complete")
                for stream, size in self.waiting.items()]

    def caveat(self) -> str:
        """Return a sentence about ages and stacks that are not known."""
        text = ""
        if self.unknown:
            text += f" ({self.unknown} more blocks, of unknown age, are not counted: track the pool to know)"
        if self.blocks and not self.tracked and not any(block.stack for block in self.blocks):
            text += "; where they were allocated is not known: use Pool.track(stacks='python')"
        return text


def holder_lines(group: LeakGroup, held: dict[int, str]) -> list[str]:
    """Return the lines with the paths to the oldest and the youngest block."""
    first, last = held.get(group.first.address, ""), held.get(group.last.address, "")
    if not first and not last:
        return [NOT_FOUND] if group.stack else []
    lines = [f"      held by {first}"] if first else []
    return lines if group.blocks == 1 or not last else [*lines, f"      the youngest by {last}"]


def group_lines(group: LeakGroup) -> list[str]:
    """Return the lines of a group, with its stack."""
    tag = f"tag {group.tag!r}" if group.tag else "no tag"
    size = readable(group.smallest)
    if size != readable(group.largest):
        size = f"{size} to {readable(group.largest)}"
    text = f"  {group.blocks} x {size}, {readable(group.requested)} in all, {tag}"
    if group.oldest is not None and group.youngest is not None:
        text += f", allocated {lasting(group.oldest)} ago" if group.blocks == 1 else (
            f", allocated from {lasting(group.oldest)} to {lasting(group.youngest)} ago")
    return [text, *(f"      {file}:{line} in {function}" for file, line, function in group.stack[:STACK_SHOWN])]


def holders_of(blocks: list[LiveBlock]) -> dict[int, str]:
    from acl.inside import _holders

    return _holders.holders_of(blocks)


def totals(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, size in pairs:
        found[key] = found.get(key, 0) + size
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def mark_of(pool: Pool) -> Mark:
    """Return the result of `Pool.mark`."""
    from acl.inside._recording import mark

    return Mark(weakref.ref(pool), *mark(pool))


def live_rows(pool: Pool) -> Iterator[tuple[int, ...]]:
    from acl.inside._recording import survey

    yield from EVENT.iter_unpack(survey(pool))


def leaks_of(pool: Pool, older_than: float | None = None, since: Mark | None = None) -> LeakReport:
    """Return the result of `Pool.leaks`."""
    from acl.inside._recording import clock, pool_names

    if since is not None and not isinstance(since, Mark):
        raise TypeError(f"since must be what Pool.mark gave, not {type(since).__name__}")
    if since is not None and since.pool() is not pool:
        raise ValueError("since is a mark of another pool")
    if older_than is not None and not number_of(older_than, "older_than") >= 0:
        raise ValueError(f"older_than must be seconds of at least 0, not {older_than}")
    tags, handles, tracked = pool_names(pool)
    now, rate = clock()
    found = []
    unknown = 0
    for row in live_rows(pool):
        address, size, requested, birth = row[1:5]
        flags = row[11]
        if since is not None and flags & (BORN | SEEN) and birth <= since.ticks:
            continue
        known = flags & (BORN | SEEN)
        age = max(now - birth, 0) * rate if known else None
        if older_than is not None:
            if age is None:
                unknown += 1
                continue
            if age < older_than:
                continue
        found.append(LiveBlock(
            address, requested - row[8], size, handles[row[12]], tags[row[9]], age,
            bool(flags & SEEN and not flags & BORN), stack_of(row[5], row[6])))
    what = "live" + (" since the mark" if since is not None else "")
    if older_than is not None:
        what += f" for {older_than:g} s or more"
    return LeakReport(
        tuple(sorted(found, key=lambda block: block.address)), tracked, unknown, what, waiting_of(pool))


def waiting_of(pool: Pool) -> dict[int | None, int]:
    """Return the bytes of pending frees, by the stream for which they wait."""
    from acl.inside import _books

    found: dict[int | None, int] = {}
    for _, stream, size, _ in _books.waits(pool):
        found[stream] = found.get(stream, 0) + size
    return found


def stack_of(python: int, native: int) -> tuple[Frame, ...]:
    if python == 0 and native == 0:
        return ()
    from acl.pool._stacks import native_frames, python_frames

    return (*python_frames(python), *native_frames(native))


class ExpectNoLeaks:
    """The context manager that `Pool.expect_no_leaks` returns."""

    def __init__(self, pool: Pool, stacks: str | bool) -> None:
        self.pool = pool
        self.stacks = stacks
        self.report: LeakReport | None = None

    def __enter__(self) -> ExpectNoLeaks:
        self.tracking = self.pool.track(stacks=self.stacks)     # type: ignore[arg-type]
        self.mark = self.pool.mark()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                gc.collect()
                self.report = self.pool.leaks(since=self.mark)
        finally:
            self.tracking.stop()
        if self.report:
            raise LeakError(self.report.text(holders=True), self.report)


# ---- at exit ----

watched: weakref.WeakValueDictionary[int, Pool] = weakref.WeakValueDictionary()     # by number


def watch_exit(pool: Pool) -> None:
    """Track a pool, and report its live blocks at the interpreter's exit."""
    if not watched:
        atexit.register(tell_exit, os.getpid())
    watched[pool.number] = pool
    pool.track(stacks="python").detach()


def exit_text() -> str:
    """Return the report of the pools' live blocks at the end of the program."""
    text = ""
    # `valuerefs` copies in one step; an iteration would fail if another thread made a pool meanwhile.
    pools = [one for reference in watched.valuerefs() if (one := reference()) is not None]
    for pool in sorted(pools, key=lambda pool: pool.name):
        report = leaks_of(pool)
        if report or report.waiting:
            text += f"acl: at exit, {pool.name} on device {pool.device} has {report.text(holders=True)}\n"
    if text:
        text += ("acl: what is meant to live as long as the program (weights, caches) is listed too; what grows is "
                 "a leak: many blocks of one line, from the program's beginning to its end\n")
    return text


def tell_exit(pid: int) -> None:
    """Append the report to the file that ``ACL_POOL_LEAKS`` names, or write it to standard error."""
    if pid != os.getpid():                      # in a forked child, which has no pools
        return
    where = os.environ.get("ACL_POOL_LEAKS", "1")
    gc.collect()
    text = exit_text()
    if where not in ("", "0", "1"):
        text = text or f"acl: at exit, nothing is live in {len(watched)} pools\n"
        try:
            with open(where, "a", encoding="utf-8") as file:
                file.write(text)
            return
        except OSError as error:
            text += f"acl: ACL_POOL_LEAKS: {error}\n"
    sys.stderr.write(text)
