"""Find the limit that a load needs, from a replay without a limit, and test it in a replay with that limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acl.tools.bench import _meter
from acl.tools.replay.measure import PoolReplay
from acl.tools.replay.trace import Trace

__all__ = ["failures_with", "suggested_limit"]

STEP = 32                           # a limit that is too low is raised by a 32nd of itself
TRIES = 16                          # most limits that are tested


def pages(size: int, granule: int) -> int:
    """Return `size` rounded up to whole pages."""
    return -(-size // granule) * granule


def failures_with(trace: Trace, passes: int, options: Mapping[str, Any]) -> int:
    """Return how many allocations fail in `passes` passes over the trace, on a new pool with these options."""
    replay = PoolReplay(trace, trace.events(), options)
    try:
        for _ in range(passes):
            replay.load.watch(_meter.counter(), 0, len(trace))
        return int(replay.load.failures)
    finally:
        replay.close()


def suggested_limit(trace: Trace, numbers: Mapping[str, Any], granule: int, *, passes: int = 1,
                    options: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the limit that the trace needs; None if allocations fail without a limit, or with each of `TRIES` limits.

    The limit is the joint live peak of all streams, plus the waste that the replay measured, in whole pages.  A pool
    with a limit may place blocks differently.  So the limit is tested, and raised until all allocations succeed.

    Parameters
    ----------
    trace : Trace
        The load.
    numbers : dict
        The numbers of the trace's replay on a pool without a limit.
    granule : int
        The pool's page size in bytes.
    passes : int
        How often the trace is played.
    options : dict, optional
        Further options of the pool.

    Returns
    -------
    dict or None
        ``limit``, ``live_peak`` and ``waste`` in bytes; ``limit`` is the sum of the other two.
    """
    if numbers["failures"]:
        return None
    limit = pages(max(numbers["reserved_peak"], numbers["live_peak"], 1), granule)
    for _ in range(TRIES):
        if not failures_with(trace, passes, {**(options or {}), "limit": limit}):
            return {"limit": limit, "live_peak": numbers["live_peak"], "waste": limit - numbers["live_peak"]}
        limit = pages(limit + limit // STEP, granule)
    return None
