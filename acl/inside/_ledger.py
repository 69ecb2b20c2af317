"""The ledger: the memory of a device, in rows that add up to the device's total exactly.

A pool's memory is counted block by block (`_books`).  Of other memory of the device only sums can be queried, so two
rows are differences.  This process's other memory is what the runtime reports for its components, minus this package's
pools, minus what adapters allocated from the driver (`tellers`).  "Other processes and the system" is the memory that
is neither free nor this process's.  If the runtime does not report components, these two rows are one row.

Counting takes each arena's lock once, for about 10 ns a block; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from acl.inside import _books
from acl.inside._snapshot import readable, stream_text
from acl.inside._text import printable
from acl.pool._pool import open_pools
from acl.runtime._device import Device, ordinal_of

__all__ = ["Ledger", "LedgerPool", "LedgerRow", "memory_ledger"]

#: The states of a pool's bytes, in the order of the table.
STATES = ("requested", "slack", "asleep", "cached", "waiting", "free", "spare")
#: The components that contain the pools' bytes in the simulator's accounting.  With CANN, the largest components are
#: used.
OURS = ("PHYSICAL", "MALLOC")
TRIES = 8                       # most attempts to take a ledger during which no memory changes
#: Adapters that allocate from the driver outside of pools: by name, a function from a device to its (tag, bytes) pairs.
tellers: dict[str, Callable[[int], Iterable[tuple[str, int]]]] = {}


@dataclass(frozen=True)
class LedgerRow:
    """An amount of memory, in one place.

    Attributes
    ----------
    owner : str
        ``"pool"``, ``"process"`` (this one, outside its pools), ``"others"`` (other processes and the
        system), ``"rest"`` (the last two where they cannot be told apart), or ``"free"``.
    name : str
        The name of the pool, of the component of the runtime, or of the adapter that allocated the memory.
    stream : int
        The stream's handle; 0 for the default stream, and in rows without a stream.
    kind : str
        Kind of the pool's part: ``"stream"``, ``"user"`` or ``"capture"``.
    tag : str
        The tag of the memory; ``""`` for none.
    state : str
        State of a pool's or an adapter's bytes: ``"requested"`` (requested bytes of live blocks), ``"slack"`` (bytes
        of live blocks beyond the requested ones), ``"asleep"`` (memory that still backs blocks that are asleep),
        ``"cached"`` (free, kept for blocks of the same size), ``"waiting"`` (freed, but other streams may still use
        it), ``"free"`` (memory without a block), ``"spare"`` (in no stream's part).
    bytes : int
        Amount of memory.
    blocks : int
        Number of live blocks, in rows of state ``"requested"``.
    stream_name : str
        The name of `stream`, as in `StreamStats`; ``""`` in rows without a stream.
    """

    owner: str
    bytes: int
    name: str = ""
    stream: int = 0
    kind: str = ""
    tag: str = ""
    state: str = ""
    blocks: int = 0
    stream_name: str = ""


@dataclass(frozen=True)
class LedgerPool:
    """A pool in a ledger: its bounds, and sums that are not rows.

    Attributes
    ----------
    name : str
        The pool's name.
    reserved, limit, headroom : int
        Bytes that the pool holds, its limit and its headroom; 0 for none.
    unmapped : int
        Bytes of reserved addresses that no memory backs now.
    largest_free : int
        Bytes of the largest free block of all streams.
    asleep : dict of str to int
        By tag, the bytes of blocks that are asleep (`Pool.sleep`): they keep their addresses without memory.
    """

    name: str
    reserved: int
    limit: int
    headroom: int
    unmapped: int
    largest_free: int
    asleep: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Ledger:
    """A device's memory at one moment: `rows` whose bytes add up to `total`.

    Attributes
    ----------
    device : int
        Ordinal of the device.
    total, free : int
        Total and free bytes of the device, as the driver reports them.
    rows : tuple of LedgerRow
        The amounts; those of 0 bytes are left out, except the free memory.
    pools : tuple of LedgerPool
        The pools of this process on the device.
    components : dict of str to int or None
        This process's bytes by component, as the runtime reports them; None if it does not.
    steady : bool
        True if no change was noticed while the ledger was taken.  If memory changed, the rows still add up,
        but the change may be counted in a row that is a difference.
    """

    device: int
    total: int
    free: int
    rows: tuple[LedgerRow, ...]
    pools: tuple[LedgerPool, ...] = ()
    components: dict[str, int] | None = field(default=None)
    steady: bool = True

    def sum(self, **wanted: object) -> int:
        """Return the bytes of the rows that match, such as ``ledger.sum(owner="pool", tag="kv")``."""
        for name in wanted:
            if name not in LedgerRow.__dataclass_fields__:
                raise TypeError(f"a ledger's row has no {name!r}")
        return sum(row.bytes for row in self.select(**wanted))

    def select(self, **wanted: object) -> Iterator[LedgerRow]:
        """Return the rows that match the arguments."""
        for row in self.rows:
            if all(getattr(row, name) == value for name, value in wanted.items()):
                yield row

    def tags(self) -> dict[str, int]:
        """Return the bytes in use by tag, over all pools and adapters, the largest first; ``""`` for no tag."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.state in ("requested", "slack"):
                found[row.tag] = found.get(row.tag, 0) + row.bytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the ledger as plain values, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        return (f"<Ledger device={self.device} {readable(self.total)}: {readable(self.sum(owner='pool'))} in "
                f"{len(self.pools)} pools, {readable(self.free)} free>")

    def __str__(self) -> str:
        return "\n".join(printable(line) for line in table_lines(self))


# ---- taking it ----------------------------------------------------------------------------------


def name_of(names: tuple[str, ...], tag: int) -> str:
    return names[tag] if tag < len(names) else f"tag {tag}"


def sleepers(arenas: Iterable[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes of blocks that are asleep, by tag, the largest first."""
    found: dict[str, int] = {}
    for line in arenas:
        for tag, _, _, _, sleeping in line[9]:
            if sleeping:
                called = name_of(names, tag or line[2])
                found[called] = found.get(called, 0) + sleeping
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def block_rows(name: str, names: tuple[str, ...], line: tuple[Any, ...]) -> Iterator[LedgerRow]:
    """Return the rows of one stream's part."""
    stream, kind, default, reserved, cached, waiting, _, _, asleep, tags, stream_name = line
    left = reserved - cached - waiting - asleep
    for tag, live, requested, blocks, _ in tags:
        called = name_of(names, tag or default)
        left -= live
        yield LedgerRow("pool", requested, name, stream, kind, called, "requested", blocks, stream_name)
        yield LedgerRow("pool", live - requested, name, stream, kind, called, "slack", 0, stream_name)
    for state, size in (("asleep", asleep), ("cached", cached), ("waiting", waiting), ("free", left)):
        yield LedgerRow("pool", size, name, stream, kind, "", state, 0, stream_name)


def pool_rows(name: str, told: tuple[Any, ...]) -> tuple[list[LedgerRow], LedgerPool]:
    """Return the rows of a pool, and its `LedgerPool`."""
    limit, headroom, _spare, reserved, arenas, names = told
    rows = merged(row for line in arenas for row in block_rows(name, names, line))
    # The difference is spare memory.  It includes pages that a slow allocation of another thread is moving.
    rows.append(LedgerRow("pool", reserved - sum(line[3] for line in arenas), name, state="spare"))
    line = LedgerPool(
        name, reserved, limit, headroom, sum(line[7] for line in arenas),
        max((line[6] for line in arenas), default=0), sleepers(arenas, names))
    return rows, line


def merged(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Return the rows.  Rows that differ only in their amounts are added up: those of a tag and of a default tag."""
    found: dict[tuple[object, ...], LedgerRow] = {}
    for row in rows:
        key = (row.name, row.stream, row.kind, row.tag, row.state, row.stream_name)
        other = found.get(key)
        if other is not None:
            row = replace(row, bytes=row.bytes + other.bytes, blocks=row.blocks + other.blocks)
        found[key] = row
    return list(found.values())


def held(device: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Return name and sums (`_books.walk`) of each pool of the device, also of pools without a Python object."""
    found: dict[str, tuple[Any, ...]] = {}
    for pool in sorted(open_pools(device), key=lambda pool: pool.closed):
        told = _books.walk(pool)
        if told is not None and not (pool.closed and told[3] == 0):
            # A later pool may have the name of a closed one.
            found[f"{pool.name} (closed, number {pool.number})" if pool.name in found else pool.name] = told
    return list(found.items()) + [(f"orphan-{i}", told) for i, told in enumerate(_books.orphans(device))]


def component_rows(components: dict[str, int], ours: int) -> list[LedgerRow]:
    """Return the rows of this process outside its pools: the components, minus the `ours` bytes of its pools."""
    left = dict(components)
    order = [name for name in OURS if name in left]
    order += sorted((name for name in left if name not in order), key=lambda name: -left[name])
    for name in order:
        taken = min(left[name], ours)
        left[name] -= taken
        ours -= taken
    return [LedgerRow("process", size, name) for name, size in left.items()]


def told_rows(device: int) -> list[LedgerRow]:
    """Return the rows of memory that adapters allocated from the driver."""
    return merged(
        LedgerRow("process", size, name, tag=tag, state="requested", blocks=1)
        for name, teller in list(tellers.items()) for tag, size in teller(device))


def outside_rows(total: int, free: int, ours: int, components: dict[str, int] | None) -> list[LedgerRow]:
    """Return the rows of memory outside the pools: this process's memory and that of other processes."""
    process = sum(components.values()) if components is not None else -1
    if components is not None and ours <= process <= total - free:
        rows = component_rows(components, ours)
        rows.append(LedgerRow("others", total - free - process))
    else:
        rows = [LedgerRow("rest", total - free - ours)]
    return rows


def counted(device: int) -> Ledger:
    """Return a ledger of one attempt.  It queries everything once, and the device's memory again at the end."""
    free, total = _books.device_bytes(device)
    components = _books.components(device)
    told = held(device)
    rows: list[LedgerRow] = []
    pools = []
    for name, line in told:
        pool, summary = pool_rows(name, line)
        rows += pool
        pools.append(summary)
    taken = told_rows(device)
    rows += taken
    ours = sum(pool.reserved for pool in pools) + sum(row.bytes for row in taken)
    rows += outside_rows(total, free, ours, components)
    # A negative difference shows that memory was freed and allocated again in the meantime.
    steady = (free, total) == _books.device_bytes(device) and all(row.bytes >= 0 for row in rows)
    kept = (*tuple(row for row in rows if row.bytes), LedgerRow("free", free))
    return Ledger(device, total, free, kept, tuple(pools), components, steady)


def memory_ledger(device: int | Device | None = None) -> Ledger:
    """Return the ledger of a device: where its memory is.

    Parameters
    ----------
    device : int or Device, optional
        The thread's current device if not given.

    Returns
    -------
    Ledger
        Its rows add up to the device's total; `print` shows it as a table.

    Raises
    ------
    TypeError, ValueError
        `device` is not the number of a device, or there is no such device.
    """
    ordinal = (Device.current() or Device(0)).ordinal if device is None else ordinal_of(device)
    count = Device.count()
    if ordinal >= count:
        raise ValueError(f"device must be below {count}, the number of devices, not {ordinal}")
    found = counted(ordinal)
    for _ in range(TRIES - 1):
        if found.steady:
            break
        found = counted(ordinal)
    return found


# ---- printing it --------------------------------------------------------------------------------

OUTSIDE = {
    "process": "this process, outside its pools: {}",
    "others": "other processes and the system",
    "rest": "this process outside its pools, other processes, the system",
    "free": "free",
}


def share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%}" if whole else ""


def stream_lines(ledger: Ledger, pool: str, stream: int, kind: str, name: str) -> Iterator[tuple[str, int, str]]:
    """Return the lines of one stream: its sum, its tags, and its memory that is not in use."""
    rows = list(ledger.select(owner="pool", name=pool, stream=stream, kind=kind, stream_name=name))
    called = stream_text(name, stream).removeprefix("the ")
    yield f"  {called}" + (f" ({kind})" if kind != "stream" else ""), sum(row.bytes for row in rows), ""
    for tag in dict.fromkeys(row.tag for row in rows if row.state == "requested"):
        mine = [row for row in rows if row.tag == tag and row.state in ("requested", "slack")]
        blocks, slack = sum(row.blocks for row in mine), sum(row.bytes for row in mine if row.state == "slack")
        note = f"{blocks} block{'s' * (blocks != 1)}, slack {readable(slack)}"
        yield f"    {tag or '(no tag)'}", sum(row.bytes for row in mine), note
    for state in ("asleep", "cached", "waiting", "free"):
        size = sum(row.bytes for row in rows if row.state == state)
        if size:
            yield f"    [{state}]", size, ""


def pool_lines(ledger: Ledger, pool: LedgerPool) -> Iterator[tuple[str, int, str]]:
    notes = [f"limit {readable(pool.limit)}"] if pool.limit else []
    notes += [f"headroom {readable(pool.headroom)}"] if pool.headroom else []
    notes += [f"largest free block {readable(pool.largest_free)}"] if pool.largest_free else []
    notes += [f"{readable(pool.unmapped)} of addresses without memory"] if pool.unmapped else []
    yield f"pool {pool.name}", pool.reserved, ", ".join(notes)
    rows = list(ledger.select(owner="pool", name=pool.name))
    for part in dict.fromkeys((row.stream, row.kind, row.stream_name) for row in rows if row.state != "spare"):
        yield from stream_lines(ledger, pool.name, *part)
    spare = sum(row.bytes for row in rows if row.state == "spare")
    if spare:
        yield "  [spare]", spare, ""
    for tag, size in pool.asleep.items():
        yield f"  {tag or '(no tag)'}, asleep", 0, f"{readable(size)} without memory"


def outside_text(row: LedgerRow) -> str:
    name = row.name if row.state == "" else f"{row.name} {row.tag or '(no tag)'}"
    return OUTSIDE[row.owner].format(name)


def table_lines(ledger: Ledger) -> list[str]:
    """Return the ledger as lines of text."""
    lines = [line for pool in ledger.pools for line in pool_lines(ledger, pool)]
    lines += [
        (outside_text(row), row.bytes, "") for row in ledger.rows if row.owner != "pool"]
    width = max(len(what) for what, _, _ in lines)
    text = [f"device {ledger.device}: {readable(ledger.total)}"]
    text += [
        f"{what:{width}}  {readable(size):>12} {share(size, ledger.total)}  {note}".rstrip()
        for what, size, note in lines]
    if not ledger.steady:
        text.append("(memory changed while this was taken)")
    return text
