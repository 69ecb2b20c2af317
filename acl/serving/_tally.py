"""Counts of the events of a model's requests, and estimates of the memory and time that its batches need."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

__all__ = ["Costs", "Histogram", "MARGIN", "Tally"]

MARGIN = 1.25                           # an estimate is this many times the measured peak
OVERHEAD = 4096                         # bytes that every batch needs, in addition to the ratio of its inputs


class Costs:
    """Estimate the device memory of a batch from the bytes of its inputs, by a ratio for each size of items.

    Items whose input bytes have as many binary digits count as one size.

    Attributes
    ----------
    ratio : float
        Bytes of device memory per byte of input, for item sizes with which no batch has run yet.
    seconds : float
        Seconds that a batch takes, as a moving average; 0 if none has run.
    """

    def __init__(self) -> None:
        self.ratio = 32.0
        self.ratios: dict[int, float] = {}          # learned ratios by the bit length of an item's bytes
        self.seconds = 0.0

    def estimate(self, nbytes: int, count: int = 1) -> int:
        """Return the bytes of device memory that a batch of `count` items with `nbytes` of input will need."""
        return int(self.ratios.get((nbytes // count).bit_length(), self.ratio) * nbytes) + OVERHEAD

    def learn(self, nbytes: int, count: int, peak: int, *, exact: bool) -> None:
        """Adapt the ratio to a batch that has run and needed `peak` bytes, or at most `peak` bytes if not `exact`."""
        if nbytes < 1:
            return
        size = (nbytes // count).bit_length()
        seen = MARGIN * peak / nbytes
        known = self.ratios.get(size)
        if exact:
            self.ratios[size] = seen if known is None else max(seen, 0.9 * known)
        else:
            self.ratios[size] = min(seen, self.ratio if known is None else known)

    def took(self, seconds: float) -> None:
        """Add the duration of a batch to the moving average."""
        self.seconds = seconds if self.seconds == 0 else 0.8 * self.seconds + 0.2 * seconds


class Histogram:
    """Count times in buckets, whose upper bounds double from about 1 ms to 64 s.

    Attributes
    ----------
    BOUNDS : tuple of float
        Upper bounds of the buckets in seconds.  A value equal to a bound is in the bucket of this bound.
    counts : list of int
        Number of values in each bucket; the last bucket has the values above all bounds.
    sum : float
        Sum of all values in seconds.
    """

    BOUNDS = tuple(2.0**n / 1024 for n in range(17))

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.sum += seconds


class Tally:
    """Counts of a model's events, and histograms of its requests' times; written under the engine's lock."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.batches: Counter[int] = Counter()      # number of successful batches, by the number of their requests
        self.waited, self.took = Histogram(), Histogram()
