"""A pytest plugin: the garbage collector runs after every allocation of an object, even in callbacks.

    PYTHONPATH=tests pytest -p support.gc_always tests/runtime/test_*.py

The collector may delete objects of this package at any line of any thread.  If a `__dealloc__` does something that is
not allowed there, a test hangs, crashes or fails.  Child processes of tests also do this if `ACLPOOL_GC_ALWAYS` is set.
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
    """Run the collector after every allocation during a test, but not in pytest's own code."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)
