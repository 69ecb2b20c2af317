"""What a pool tells about itself: plain values, taken at one moment, that never change afterwards.

No device, no C: this module can be imported anywhere, and its classes pickle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real

__all__ = ["BlockInfo", "BudgetStats", "PinnedStats", "PoolStats", "SleepReport", "StreamStats", "lasting", "number_of",
           "readable"]


def number_of(value: object, name: str) -> float:
    """An argument that must be a number.

    Raises
    ------
    TypeError
        Naming it, and what came.
    """
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)


def readable(size: float) -> str:
    """Bytes as people read them, such as ``"1.50 GiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def lasting(seconds: float) -> str:
    """A length of time as people read it, such as ``"1.5 min"``."""
    for unit, length in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0)):
        count = seconds / length
        if count < (1000 if length < 1 else 60 if length < 3600 else 48) or unit == "days":
            break
    return f"{count:.0f} {unit}" if count >= 10 or length < 1e-3 else f"{count:.1f} {unit}"


@dataclass(frozen=True)
class PinnedStats:
    """A pool of pinned host memory.

    Attributes
    ----------
    allocated, allocated_peak : int
        Bytes of live blocks, rounded as the pool rounds.
    requested, requested_peak : int
        Bytes that were asked for.
    reserved, reserved_peak : int
        Bytes that are pinned.
    limit : int
        Most bytes that may be; 0 for no limit.
    waiting : int
        Bytes that were dropped while an asynchronous copy was under way, and are not free yet.
    live_blocks : int
        Blocks that are handed out.
    hits, fits, slow, failures, frees : int
        Allocations served by exact size, by best fit, with a call of the driver, not at all; and frees.
    pinned, unpinned : int
        Calls that pinned host memory, and that gave it back.
    """

    allocated: int
    allocated_peak: int
    requested: int
    requested_peak: int
    reserved: int
    reserved_peak: int
    limit: int
    waiting: int
    live_blocks: int
    hits: int
    fits: int
    slow: int
    failures: int
    frees: int
    pinned: int
    unpinned: int


@dataclass(frozen=True)
class StreamStats:
    """One stream's part of a pool.

    Attributes
    ----------
    stream : int
        The stream's handle; 0 for the default stream.
    kind : str
        ``"stream"``, ``"user"`` (what `Pool.alloc` takes where a framework frees early), ``"capture"`` or
        ``"framework"`` (torch_npu's or MindSpore's tensors).
    allocated, allocated_peak : int
        Bytes of live blocks, rounded as the pool rounds.
    requested, requested_peak : int
        Bytes that were asked for.
    reserved : int
        Bytes of device memory that back this part.
    cached, free, waiting : int
        Bytes of free blocks: in the exact-size cache, in the bins, waiting for other streams.
    largest_free : int
        The largest free block: what can be had without a driver call.
    live_blocks : int
        Blocks that are handed out.
    hits, fits, recalls, slow, failures, frees : int
        Allocations served by the cache, by the bins, by pages that are mapped at another address
        too (without a driver call), with driver calls, not at all; and frees.
    steals, donated : int
        Pages that were moved or mapped to another place inside this part, and that it gave away.
    syncs, sync_failures, flushes, refused : int
        Waits for the stream and those that failed, flushes of the cache, bad frees.
    rungs : dict of str to int
        Slow allocations by the last rung that they needed.
    asleep : int
        Bytes of live blocks that `Pool.sleep` took the memory of.
    """

    stream: int
    kind: str
    allocated: int
    allocated_peak: int
    requested: int
    requested_peak: int
    reserved: int
    cached: int
    free: int
    waiting: int
    largest_free: int
    live_blocks: int
    hits: int
    fits: int
    recalls: int
    slow: int
    failures: int
    frees: int
    steals: int
    donated: int
    syncs: int
    sync_failures: int
    flushes: int
    refused: int
    rungs: dict[str, int] = field(default_factory=dict)
    asleep: int = 0


@dataclass(frozen=True)
class BudgetStats:
    """The budget of a tag.

    Attributes
    ----------
    limit : int
        Most bytes that may be live with the tag; 0 for no limit.
    live : int
        Bytes that count in it now.
    refused : int
        Requests that found no room in it.
    """

    limit: int
    live: int
    refused: int


@dataclass(frozen=True, repr=False)
class PoolStats:
    """A pool at one moment; sums over its streams unless said otherwise.

    Attributes
    ----------
    allocated, requested : int
        Bytes of live blocks, and bytes asked for.
    allocated_peak, requested_peak : int
        The sum of the streams' own peaks.
    joint_requested_peak : int
        The most that was asked for at one time over all streams, noted at slow allocations and when
        a stream's own peak rises: within 1/64 and 1 MiB for each stream.
    reserved, reserved_peak : int
        Bytes of device memory held, spare ones included.
    spare : int
        Bytes held that back nothing.
    limit : int
        Most bytes that may be reserved; 0 for no limit.
    streams : tuple of StreamStats
        One for each stream that the pool has served.
    tags : dict of str to int
        Live bytes by tag.
    driver_calls : dict of str to int
        Calls of the driver by name; `driver_failures` are those that returned an error.
    ooms : int
        Allocations that could not be served.
    asleep : int
        Bytes of live blocks that are asleep: allocated, but on the device only as far as others need their
        pages.
    budgets : dict of str to BudgetStats
        The budgets by tag (`Pool.budget`).
    """

    allocated: int
    allocated_peak: int
    requested: int
    requested_peak: int
    reserved: int
    reserved_peak: int
    spare: int
    limit: int
    streams: tuple[StreamStats, ...]
    tags: dict[str, int]
    driver_calls: dict[str, int]
    driver_failures: dict[str, int]
    ooms: int
    asleep: int = 0
    joint_requested_peak: int = 0
    budgets: dict[str, BudgetStats] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (f"<PoolStats {readable(self.allocated)} live of {readable(self.reserved)} reserved, "
                f"{len(self.streams)} streams, {self.allocations:,} allocations, "
                f"{self.total('slow'):,} slow>")

    def total(self, name: str) -> int:
        """The sum of one of the streams' numbers."""
        return sum(getattr(one, name) for one in self.streams)

    @property
    def hits(self) -> int:
        """Allocations served by the exact-size caches."""
        return self.total("hits")

    @property
    def fits(self) -> int:
        """Allocations served by the bins."""
        return self.total("fits")

    @property
    def recalls(self) -> int:
        """Allocations served by an existing mapping of free pages, without a driver call."""
        return self.total("recalls")

    @property
    def slow(self) -> int:
        """Allocations that called the driver, waited for a stream, or failed."""
        return self.total("slow")

    @property
    def steals(self) -> int:
        """Pages that moved, within a stream's part or to another's."""
        return self.total("steals") + self.total("donated")

    @property
    def allocations(self) -> int:
        """Allocations that were served."""
        return self.hits + self.fits + self.recalls + self.slow - self.total("failures")

    @property
    def hit_rate(self) -> float:
        """Part of the allocations served by the exact-size caches."""
        return self.hits / max(self.allocations, 1)

    @property
    def fragmentation(self) -> float:
        """Part of the reserved bytes that nobody has asked for, 0 to 1; what sleeps asks for none."""
        awake = max(0, self.requested - self.asleep)
        return max(0.0, 1 - awake / self.reserved) if self.reserved else 0.0


@dataclass(frozen=True)
class BlockInfo:
    """A block of a pool's addresses.

    Attributes
    ----------
    address, size : int
        Where it lies, and its bytes.
    state : str
        ``"live"``, ``"cached"``, ``"free"``, ``"hole"`` (no memory behind it), ``"moving"`` or ``"waiting"``.
    requested : int
        Bytes asked for, of a live block.
    tag : str
        Whose it is, or ``""``.
    """

    address: int
    size: int
    state: str
    requested: int
    tag: str


@dataclass(frozen=True)
class SleepReport:
    """What a `Pool.sleep` or a `Pool.wake` did.

    Attributes
    ----------
    blocks, bytes : int
        Blocks that fell asleep or woke.
    copied : int
        Bytes of them that were copied to the host, or back.
    memory : int
        Bytes of the device's memory that went back to it, or were taken.
    """

    blocks: int
    bytes: int
    copied: int
    memory: int
