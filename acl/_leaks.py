"""What is still live in a pool, by whom, since when: leaks.

A mark (`Pool.mark`) is exact and costs a walk over the live blocks: what is allocated after it can be told
from what was there before, though no allocation is tracked.  Ages and stacks are known of blocks that
were allocated while the pool was tracked or recorded; of the others only what marks tell: "at least so
old".  Nothing here prints, but the report at exit that the variable ``ACL_POOL_LEAKS`` asks for.
"""

from __future__ import annotations

import atexit
import gc
import os
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from acl._snapshot import readable

if TYPE_CHECKING:
    from acl._pool import Pool

__all__ = ["ExpectNoLeaks", "LeakError", "LeakGroup", "LeakReport", "LiveBlock", "Mark", "leaks_of",
           "mark_of", "watch_exit"]

# `Event` of `_events.pxd`, as `survey` writes it.
EVENT = struct.Struct("<5Q4IHBBI")
BORN, SEEN = 4, 8
SHOWN = 10

Frame = tuple[str, int, str]


class LeakError(AssertionError):
    """Blocks are live that should not be; `report` says which."""

    def __init__(self, message: str, report: LeakReport | None = None) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True)
class Mark:
    """A moment of a pool, made by `Pool.mark`.

    Attributes
    ----------
    time : int
        Nanoseconds of the monotonic clock.
    blocks : int
        How many blocks were live.
    """

    pool: weakref.ref[Pool]
    ticks: int
    time: int
    blocks: int


@dataclass(frozen=True)
class LiveBlock:
    """A block that is handed out.

    Attributes
    ----------
    address, size, bytes : int
        Where it lies, the bytes asked for, and the bytes that it takes.
    stream : int
        The handle of its stream.
    tag : str
        Whose it is, or ``""``.
    age : float or None
        Seconds since it was allocated; None if that is not known.
    at_least : bool
        It is at least `age` old: it was live already when a mark was made.
    stack : tuple of (file, line, function)
        Where it was allocated, innermost first; empty if not known.
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
        """The power of two that its size lies below, and half of that."""
        top = 1 << max(self.size - 1, 1).bit_length()
        return f"{readable(top // 2)} to {readable(top)}"


@dataclass(frozen=True)
class LeakGroup:
    """Live blocks of one tag, size class and stack.

    Attributes
    ----------
    blocks, bytes : int
        How many, and the bytes that they take together.
    oldest, youngest : float or None
        Seconds; None if no age is known.
    """

    tag: str
    size_class: str
    stack: tuple[Frame, ...]
    blocks: int
    bytes: int
    oldest: float | None
    youngest: float | None


@dataclass(frozen=True)
class LeakReport:
    """What is live; true if anything is.

    Attributes
    ----------
    blocks : tuple of LiveBlock
        In order of address.
    tracked : bool
        Ages and stacks of new blocks are being noted.
    unknown : int
        Live blocks that `older_than` left out because their age is not known.
    """

    blocks: tuple[LiveBlock, ...]
    tracked: bool
    unknown: int = 0
    what: str = "live"

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def bytes(self) -> int:
        """Bytes that the blocks take."""
        return sum(block.bytes for block in self.blocks)

    def by_tag(self) -> dict[str, int]:
        """Bytes by tag, the most first."""
        return totals((block.tag, block.bytes) for block in self.blocks)

    def by_size_class(self) -> dict[str, int]:
        """Bytes by size class, the most first."""
        return totals((block.size_class, block.bytes) for block in self.blocks)

    def groups(self) -> list[LeakGroup]:
        """The blocks by tag, size class and stack; those that take the most first."""
        found: dict[tuple[str, str, tuple[Frame, ...]], list[LiveBlock]] = {}
        for block in self.blocks:
            found.setdefault((block.tag, block.size_class, block.stack), []).append(block)
        groups = []
        for (tag, size_class, stack), blocks in found.items():
            ages = [block.age for block in blocks if block.age is not None]
            groups.append(LeakGroup(
                tag, size_class, stack, len(blocks), sum(block.bytes for block in blocks),
                max(ages, default=None), min(ages, default=None)))
        return sorted(groups, key=lambda group: -group.bytes)

    def __str__(self) -> str:
        if not self.blocks:
            return f"no blocks are {self.what}" + self.caveat()
        count = f"{len(self.blocks)} block{'s' if len(self.blocks) > 1 else ''}"
        lines = [f"{count}, {readable(self.bytes)}, {self.what}{self.caveat()}"]
        groups = self.groups()
        for group in groups[:SHOWN]:
            lines.append(group_text(group))
            lines += [f"      {file}:{line} in {function}" for file, line, function in group.stack[:6]]
        if len(groups) > SHOWN:
            rest = groups[SHOWN:]
            lines.append(f"  and {len(rest)} more groups: {readable(sum(group.bytes for group in rest))}")
        return "\n".join(lines)

    def caveat(self) -> str:
        """What is not known."""
        text = ""
        if self.unknown:
            text += f" ({self.unknown} more blocks, of unknown age, are not counted: track the pool to know)"
        if self.blocks and not self.tracked and not any(block.stack for block in self.blocks):
            text += "; where they were allocated is not known: use Pool.track(stacks='python')"
        return text


def group_text(group: LeakGroup) -> str:
    tag = f"tag {group.tag!r}" if group.tag else "no tag"
    text = f"  {group.blocks} x {group.size_class}, {readable(group.bytes)} in all, {tag}"
    if group.oldest is not None and group.youngest is not None:
        text += f", {group.youngest:.1f} to {group.oldest:.1f} s old"
    return text


def totals(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, size in pairs:
        found[key] = found.get(key, 0) + size
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def mark_of(pool: Pool) -> Mark:
    """A mark, as `Pool.mark` gives it."""
    from acl._recording import mark

    return Mark(weakref.ref(pool), *mark(pool))


def live_rows(pool: Pool) -> Iterator[tuple[int, ...]]:
    from acl._recording import survey

    yield from EVENT.iter_unpack(survey(pool))


def leaks_of(pool: Pool, older_than: float | None = None, since: Mark | None = None) -> LeakReport:
    """The live blocks of a pool, as `Pool.leaks` gives them."""
    from acl._recording import clock, pool_names

    if since is not None and not isinstance(since, Mark):
        raise TypeError(f"since must be what Pool.mark gave, not {type(since).__name__}")
    if since is not None and since.pool() is not pool:
        raise ValueError("since is a mark of another pool")
    if older_than is not None and not older_than >= 0:
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
            address, requested, size, handles[row[12]], tags[row[9]], age, bool(flags & SEEN and not flags & BORN),
            stack_of(row[5], row[6])))
    what = "live" + (" since the mark" if since is not None else "")
    if older_than is not None:
        what += f" for {older_than:g} s or more"
    return LeakReport(tuple(sorted(found, key=lambda block: block.address)), tracked, unknown, what)


def stack_of(python: int, native: int) -> tuple[Frame, ...]:
    if python == 0 and native == 0:
        return ()
    from acl._stacks import native_frames, python_frames

    return (*python_frames(python), *native_frames(native))


class ExpectNoLeaks:
    """What `Pool.expect_no_leaks` returns."""

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
            raise LeakError(str(self.report), self.report)


# ---- at exit ----

watched: weakref.WeakSet[Pool] = weakref.WeakSet()


def watch_exit(pool: Pool) -> None:
    """Track a pool, and tell at the interpreter's exit what is live in it."""
    if not watched:
        atexit.register(tell_exit)
    watched.add(pool)
    pool.track(stacks="python").detach()


def tell_exit() -> None:
    """Append the report to the file that ``ACL_POOL_LEAKS`` names, or write it to standard error."""
    where = os.environ.get("ACL_POOL_LEAKS", "1")
    gc.collect()
    text = ""
    for pool in list(watched):
        report = leaks_of(pool)
        if report:
            text += f"acl: at exit, the pool on device {pool.device} has {report}\n"
    if where not in ("", "0", "1"):
        try:
            with open(where, "a", encoding="utf-8") as file:
                file.write(text)
            return
        except OSError as error:
            text += f"acl: ACL_POOL_LEAKS: {error}\n"
    sys.stderr.write(text)
