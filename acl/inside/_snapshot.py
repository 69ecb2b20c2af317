"""Statistics of pools and related results: immutable plain values of one moment.

This module uses no device and no C. So it can be imported anywhere, and its classes can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real

__all__ = [
    "RUNG_WORDS", "BlockInfo", "BudgetStats", "PinnedStats", "PoolStats", "SleepReport", "StreamStats", "lasting",
    "number_of", "readable", "stream_text",
]

#: Where a slow allocation looks for memory, in the order of `Rung` (acl/core/types.pxd): the name in statistics and
#: recordings, and the words in the report of a failure.
RUNG_WORDS = {
    "waiting": "blocks that waited",
    "spare": "spare pages",
    "grow": "the driver",
    "own": "pages of its own",
    "idle": "pages of idle streams",
    "driver": "the driver",
    "others": "pages of other streams",
    "none": "",
}


def number_of(value: object, name: str) -> float:
    """Return an argument that must be a number as a float.

    Raises
    ------
    TypeError
        It is not a number; the message has its name and its type.
    """
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)


def readable(size: float) -> str:
    """Return bytes as text, such as ``"1.50 GiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def stream_text(name: str, handle: int = 0) -> str:
    """Return a stream in words, by its name, or by its handle if the name is not known."""
    if name == "default" or not (name or handle):
        return "the default stream"
    return f"stream {name or hex(handle)}"


def lasting(seconds: float) -> str:
    """Return a length of time as text, such as ``"1.5 min"``."""
    for unit, length in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0)):
        count = seconds / length
        if count < (1000 if length < 1 else 60 if length < 3600 else 48) or unit == "days":
            break
    return f"{count:.0f} {unit}" if count >= 10 or length < 1e-3 else f"{count:.1f} {unit}"


@dataclass(frozen=True)
class PinnedStats:
    """The statistics of a pool of pinned host memory.

    Attributes
    ----------
    allocated, allocated_peak : int
        Bytes of live blocks, with the pool's rounding: now, and at most.
    requested, requested_peak : int
        Requested bytes of live blocks: now, and at most.
    reserved, reserved_peak : int
        Pinned bytes: now, and at most.
    limit : int
        Most bytes that may be pinned; 0 for no limit.
    waiting : int
        Bytes of memory that was freed while an asynchronous copy used it, and is not free yet.
    live_blocks : int
        Number of live blocks.
    hits, fits, slow, failures, frees : int
        Allocations served by exact size, by best fit, with a driver call, and not at all; and frees.
    pinned, unpinned : int
        Driver calls that pinned host memory, and that freed it.
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
        ``"stream"``, ``"user"`` (allocations of `Pool.alloc` on a stream that a framework uses with early frees),
        ``"capture"`` or ``"framework"`` (torch_npu's or MindSpore's tensors).
    allocated, allocated_peak : int
        Bytes of live blocks, with the pool's rounding: now, and at most.
    requested, requested_peak : int
        Requested bytes of live blocks: now, and at most.
    reserved : int
        Bytes of device memory that back this part.
    cached, free, waiting : int
        Bytes of free blocks: in the exact-size cache, in the bins, and of pending frees, which other
        streams may still use.
    largest_free : int
        Bytes of the largest free block, which can be allocated without a driver call.
    live_blocks : int
        Number of live blocks.
    hits, fits, recalls, slow, failures, frees : int
        Allocations served by the cache, by the bins, by reactivating existing mappings of free pages
        (without a driver call), with driver calls, and not at all; and frees.
    steals, donated : int
        Pages that were moved, or mapped at another address, within this part; and pages that other
        parts took from it.
    syncs, sync_failures, flushes, refused : int
        Waits for the stream, and those that failed; flushes of the cache; invalid frees.
    rungs : dict of str to int
        Slow allocations by the last fallback step that they needed.
    asleep : int
        Bytes of live blocks whose memory `Pool.sleep` released.
    name : str
        The stream's name (`Stream.name`); ``"ended"`` if the stream was destroyed.
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
    name: str = ""


@dataclass(frozen=True)
class BudgetStats:
    """The budget of a tag.

    Attributes
    ----------
    limit : int
        Most bytes that may be live with the tag; 0 for no limit.
    live : int
        Bytes that count in the budget now.
    refused : int
        Requests that failed because of the budget.
    """

    limit: int
    live: int
    refused: int


@dataclass(frozen=True, repr=False)
class PoolStats:
    """The statistics of a pool at one moment; sums over its streams unless said otherwise.

    Attributes
    ----------
    allocated, requested : int
        Bytes of live blocks, with the pool's rounding; and their requested bytes.
    allocated_peak, requested_peak : int
        Sums of the streams' own peaks.
    joint_requested_peak : int
        The most bytes that were requested at one time over all streams, noted at slow allocations and
        when a stream's own peak rises: exact within 1/64 and 1 MiB for each stream.
    reserved, reserved_peak : int
        Bytes of device memory that the pool holds, spare ones included: now, and at most.
    spare : int
        Bytes of spare frames, which the pool holds and which are mapped nowhere.
    limit : int
        Most bytes that may be reserved; 0 for no limit.
    streams : tuple of StreamStats
        One for each stream that the pool has served.
    tags : dict of str to int
        Live bytes by tag.
    driver_calls : dict of str to int
        Driver calls by function; `driver_failures` are those that returned an error.
    ooms : int
        Allocations that failed with an `OomReport`: for lack of memory, or because of a budget or a capture.
    asleep : int
        Bytes of live blocks that are asleep: only pages that they share with other blocks have memory.
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
        """Return the sum of an attribute over all streams."""
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
        """Fraction of the allocations that the exact-size caches served, 0 to 1."""
        return self.hits / max(self.allocations, 1)

    @property
    def fragmentation(self) -> float:
        """Fraction of the reserved bytes that are not requested, 0 to 1; blocks asleep count as not requested."""
        awake = max(0, self.requested - self.asleep)
        return max(0.0, 1 - awake / self.reserved) if self.reserved else 0.0


@dataclass(frozen=True)
class BlockInfo:
    """A block of a pool's addresses.

    Attributes
    ----------
    address, size : int
        Address of the block, and its bytes.
    state : str
        ``"live"``, ``"cached"``, ``"free"``, ``"hole"`` (without memory), ``"moving"`` or ``"waiting"``.
    requested : int
        Requested bytes of a live block; 0 for others.
    tag : str
        The tag of a live block; ``""`` for none.
    """

    address: int
    size: int
    state: str
    requested: int
    tag: str


@dataclass(frozen=True)
class SleepReport:
    """The result of a `Pool.sleep` or a `Pool.wake`.

    Attributes
    ----------
    blocks, bytes : int
        Number and bytes of the blocks that fell asleep or woke.
    copied : int
        Bytes that were copied to the host, or back.
    memory : int
        Bytes of device memory that were released, or allocated again.
    """

    blocks: int
    bytes: int
    copied: int
    memory: int
