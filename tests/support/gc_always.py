"""A pytest plugin: the garbage collector runs after every allocation, so also at each line of each callback.

    PYTHONPATH=tests pytest -p support.gc_always tests/runtime/test_*.py

Objects of this package may be dropped at any line of any thread.  If a `__dealloc__` does what it must not do
there, a test hangs, crashes or fails.  Child processes of tests do the same if `ACLPOOL_GC_ALWAYS` is set.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

__all__ = ["gc_always"]

os.environ["ACLPOOL_GC_ALWAYS"] = "1"


@pytest.fixture(autouse=True)
def gc_always() -> Iterator[None]:
    """Collect after every allocation while a test runs, but not in pytest's own code."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)
