"""A pytest plugin: the collector runs after every allocation, so that it meets each line of each callback.

    PYTHONPATH=tests pytest -p support.gc_always tests/runtime/test_*.py

Objects of ours may be dropped at any line of any thread; what a `__dealloc__` must not do shows here as
a hang, a crash or a failure.  Children of tests do it too, by `ACLPOOL_GC_ALWAYS`.
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
    """Collect always while a test runs, and not in pytest's own code."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)
