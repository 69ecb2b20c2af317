"""For users' tests: a pytest fixture that fails a test which leaves blocks of a pool live.

Name it once in `conftest.py`::

    pytest_plugins = ["acl.testing"]

and use it where it is wanted, or everywhere by ``pytestmark = pytest.mark.usefixtures("no_pool_leaks")``.
It wants pytest; nothing else of acl does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from acl.inside._leaks import LeakError
from acl.pool._pool import open_pools

if TYPE_CHECKING:
    from acl.inside._leaks import Mark
    from acl.inside._recording import Tracking
    from acl.pool._pool import Pool

__all__ = ["LeakError", "no_pool_leaks"]


@pytest.fixture
def no_pool_leaks() -> Iterator[None]:
    """What the test allocates from any pool must be free at its end; what was live before may stay.

    Pools that are open when the test begins are tracked, so the report names the lines that allocated.
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
