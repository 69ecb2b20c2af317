"""Runs a change of shared state at each moment at which another thread could make it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["before_each_bytecode"]


@contextmanager
def before_each_bytecode(change: Callable[[], object]) -> Iterator[None]:
    """Call `change` before each bytecode of the Python functions that are called inside.

    The interpreter gives the GIL to another thread between two bytecodes only.  So a loop over a table that fails when
    another thread adds an entry at the wrong moment fails here each time.
    """

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            change()                            # is not traced itself
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
