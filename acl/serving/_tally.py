"""What an engine counts of a model's requests, and what it learns of their memory and time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

__all__ = ["Costs", "Histogram", "MARGIN", "Tally"]

MARGIN = 1.25                           # of an estimate over what was seen
OVERHEAD = 4096                         # bytes of a batch beside what grows with its inputs


class Costs:
    """How much device memory a batch takes for each byte of its inputs, by how large its items are.

    Attributes
    ----------
    ratio : float
        For sizes of which none has run.
    seconds : float
        How long a batch takes, as a moving average; 0 if none has run.
    """

    def __init__(self) -> None:
        self.ratio = 32.0
        self.ratios: dict[int, float] = {}          # by the bits of an item's bytes
        self.seconds = 0.0

    def estimate(self, nbytes: int, count: int = 1) -> int:
        """Bytes that a batch of `count` items will need."""
        return int(self.ratios.get((nbytes // count).bit_length(), self.ratio) * nbytes) + OVERHEAD

    def learn(self, nbytes: int, count: int, peak: int, *, exact: bool) -> None:
        """A batch has run, and needed `peak` bytes; if not `exact`, at most that."""
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
        """A batch has run for that long."""
        self.seconds = seconds if self.seconds == 0 else 0.8 * self.seconds + 0.2 * seconds


class Histogram:
    """Seconds, counted by upper bounds of 1 ms to 65 s, each twice the one before.

    Attributes
    ----------
    BOUNDS : tuple of float
        The bounds.
    counts : list of int
        How many values each bucket has; the last has those above all bounds.
    sum : float
        Of all values.
    """

    BOUNDS = tuple(2.0**n / 1024 for n in range(17))

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.sum += seconds


class Tally:
    """What became of a model's requests; written under the engine's lock."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.batches: Counter[int] = Counter()      # by how many requests shared them
        self.waited, self.took = Histogram(), Histogram()
