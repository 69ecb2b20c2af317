"""The check that a test frees all memory that it allocates from pools."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acl.inside._leaks import LeakError
from acl.pool._pool import open_pools

if TYPE_CHECKING:
    from acl.inside._leaks import Mark
    from acl.inside._recording import Tracking
    from acl.pool._pool import Pool

__all__ = ["LeakError", "watched_pools"]


@contextmanager
def watched_pools() -> Iterator[None]:
    """Context manager: raise LeakError if memory that the block allocates from a pool is live at the block's end.

    Memory that was live before the block does not count.  Pools that are open when the block begins are tracked, so
    the report names the lines that allocated.
    """
    gc.collect()
    marks: dict[Pool, tuple[Mark, Tracking]] = {pool: (pool.mark(), pool.track()) for pool in open_pools()}
    try:
        yield
        gc.collect()
        texts = []
        for pool in open_pools():
            report = pool.leaks(since=marks[pool][0] if pool in marks else None)
            if report:
                texts.append(f"{pool.name} on device {pool.device}: {report.text(holders=True)}")
        if texts:
            raise LeakError("\n".join(texts))
    finally:
        for _, tracking in marks.values():
            tracking.stop()
