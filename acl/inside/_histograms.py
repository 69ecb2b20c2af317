"""Distributions that a pool has counted, and what its peak was made of: plain values of one moment.

No device, no C: this module can be imported anywhere, and its classes pickle.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from acl.inside._snapshot import number_of, readable

__all__ = ["Histogram", "PoolHistograms", "PoolPeak"]


@dataclass(frozen=True)
class Histogram:
    """Counts by value, in buckets that grow with the value.

    Attributes
    ----------
    lows : tuple of int
        The least value of each bucket that is not empty, rising.
    highs : tuple of int
        The largest value of each.
    counts : tuple of int
        How often values of the bucket came.
    """

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def quantile(self, share: float) -> int:
        """A value that `share` of all do not exceed: the largest of its bucket; 0 without values.

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
        """How many values were in buckets that end at `value` or below."""
        return sum(self.counts[: bisect_right(self.highs, number_of(value, "value"))])

    def __repr__(self) -> str:
        if not self.counts:
            return "<Histogram of nothing>"
        return (f"<Histogram {self.total:,} values, median {self.quantile(0.5):,}, "
                f"99 % up to {self.quantile(0.99):,}, all up to {self.highs[-1]:,}>")


@dataclass(frozen=True)
class PoolHistograms:
    """What `Pool.histograms` gives: since the pool was made, over all streams.

    Attributes
    ----------
    sizes : Histogram
        Bytes of the allocations that were served, rounded up to 512: exactly up to 32 KiB, above
        that within one thirty-second.
    slow_ns : Histogram
        Nanoseconds that slow allocations took, failed ones too, within one eighth; and those of others
        that took the pool itself 1,000 ns or more (recalls, and flushes of the cache).
    slow_total_ns, slow_longest_ns : int
        Their sum, and the longest, exactly.
    """

    sizes: Histogram
    slow_ns: Histogram
    slow_total_ns: int
    slow_longest_ns: int

    def time_ns(self, share: float) -> int:
        """Nanoseconds that `share` of all allocations do not exceed; 1,000 for all that are not slow.

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
    """The most bytes that were live at one time, and what they were made of.

    The composition is of a moment near the peak: when a stream's own live bytes last exceeded by
    1/64 and 1 MiB what they had been at the note before, at a slow allocation, or now.  So `live` is
    at least 63/64 of each stream's peak less 1 MiB, of a pool with one stream.

    Attributes
    ----------
    live, requested, reserved : int
        Bytes at that moment.
    ago : float
        Seconds since.
    time : float
        That moment, as `time.time` counts.
    tags : dict of str to int
        Live bytes by tag, the most first; ``""`` for those without.
    streams : dict of int to int
        Live bytes by the stream's handle, the most first.
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
