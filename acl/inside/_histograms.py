"""Histograms that a pool has counted, and the composition of its peak: plain values of one moment.

This module uses no device and no C.  So it can be imported anywhere, and its classes can be pickled.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from acl.inside._snapshot import number_of, readable

__all__ = ["Histogram", "PoolHistograms", "PoolPeak"]


@dataclass(frozen=True)
class Histogram:
    """The number of values in each bucket.  The width of the buckets grows with the value.

    Attributes
    ----------
    lows : tuple of int
        The lowest value of each bucket that is not empty, in rising order.
    highs : tuple of int
        The highest value of each bucket.
    counts : tuple of int
        The number of values in each bucket.
    """

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of all values."""
        return sum(self.counts)

    def quantile(self, share: float) -> int:
        """Return the `share` quantile: the highest value of the bucket in which it lies; 0 without values.

        Raises
        ------
        TypeError, ValueError
            If `share` is not a number from 0 to 1.
        """
        if not 0 <= number_of(share, "share") <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        wanted = share * self.total
        seen = 0
        for high, count in zip(self.highs, self.counts, strict=True):
            seen += count
            if seen >= wanted and count:
                return high
        return 0

    def at_most(self, value: int) -> int:
        """Return the number of values in buckets that end at `value` or below."""
        return sum(self.counts[: bisect_right(self.highs, number_of(value, "value"))])

    def __repr__(self) -> str:
        if not self.counts:
            return "<Histogram of nothing>"
        return (f"<Histogram {self.total:,} values, median {self.quantile(0.5):,}, "
                f"99 % up to {self.quantile(0.99):,}, all up to {self.highs[-1]:,}>")


@dataclass(frozen=True)
class PoolHistograms:
    """The histograms of a pool since it was made, over all streams; see `Pool.histograms`.

    Attributes
    ----------
    sizes : Histogram
        Bytes of the allocations that were served, rounded up to 512: exact up to 32 KiB, above
        that within 1/32.
    slow_ns : Histogram
        Nanoseconds of slow allocations, failed ones included, within 1/8; and of other allocations
        that took the pool 1,000 ns or more, by reactivating mappings or flushing the cache.
    slow_total_ns, slow_longest_ns : int
        The exact sum and the exact maximum of these times.
    """

    sizes: Histogram
    slow_ns: Histogram
    slow_total_ns: int
    slow_longest_ns: int

    def time_ns(self, share: float) -> int:
        """Return the `share` quantile of all allocations' durations in ns, counting 1,000 for those not in `slow_ns`.

        Raises
        ------
        TypeError, ValueError
            If `share` is not a number from 0 to 1.
        """
        if not 0 <= number_of(share, "share") <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        slow = self.slow_ns.total
        fast = max(self.sizes.total - slow, 0)
        wanted = share * (fast + slow)
        if wanted <= fast:
            return 1000
        return min(self.slow_ns.quantile((wanted - fast) / slow), self.slow_longest_ns)

    def __str__(self) -> str:
        sizes = self.sizes
        if not sizes.total:
            return "no allocations"
        return (f"{sizes.total:,} allocations, half of up to {readable(sizes.quantile(0.5))}, all of up to "
                f"{readable(sizes.highs[-1])}; {self.slow_ns.total:,} slow, {self.slow_total_ns / 1e6:,.1f} ms in all, "
                f"p99.9 {self.time_ns(0.999) / 1e3:,.0f} us, p99.99 {self.time_ns(0.9999) / 1e3:,.0f} us, "
                f"the longest {self.slow_longest_ns / 1e6:,.1f} ms")


@dataclass(frozen=True)
class PoolPeak:
    """The most bytes that were live at one time, and their composition.

    The composition is of a moment near the peak: it is noted when a stream's live bytes exceed those
    of the last note by 1/64 and 1 MiB, at slow allocations, and now.  So in a pool with one stream,
    `live` is at least 63/64 of the peak less 1 MiB.

    Attributes
    ----------
    live, requested, reserved : int
        Bytes at that moment.
    ago : float
        Seconds since that moment.
    time : float
        That moment as a value of `time.time`.
    tags : dict of str to int
        Live bytes by tag, the largest first; ``""`` for blocks without a tag.
    streams : dict of int to int
        Live bytes by the stream's handle, the largest first.
    """

    live: int
    requested: int
    reserved: int
    ago: float
    time: float
    tags: dict[str, int]
    streams: dict[int, int]

    def __str__(self) -> str:
        parts = [f"{tag or 'no tag'} {readable(size)}" for tag, size in self.tags.items()]
        return (f"peak {readable(self.live)} live of {readable(self.reserved)} reserved, {self.ago:.1f} s ago: "
                + ", ".join(parts))
