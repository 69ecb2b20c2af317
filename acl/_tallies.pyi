from acl._histograms import PoolHistograms, PoolPeak
from acl._pool import Pool

__all__ = ["histograms", "peak"]

def histograms(pool: Pool) -> PoolHistograms: ...
def peak(pool: Pool) -> PoolPeak: ...
