"""Adapter for GE's Python Session: an allocator class for GE that allocates from a pool.

CANN's graph engine allocates device memory for a session's graphs by an object of its Python class
`ge.allocator.Allocator`.  `Allocator` in this module is such a class, for an `acl.Pool`:

    >>> session.register_external_allocator(stream, acl.ge.Allocator(pool, stream))    # doctest: +SKIP

The class is made at first use, because only CANN contains the package `ge` (the `ge` on PyPI is something
else).  GE calls it through ctypes and the GIL, twice for each tensor, which takes microseconds however fast
the pool is.  docs/ge.md shows how to get the pool's own speed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from acl.pool._pool import Pool
from acl.pyacl._blocks import Blocks
from acl.runtime._stream import Stream

__all__ = ["Allocator", "register"]

if TYPE_CHECKING:
    Allocator: Any


def _ge() -> Any:
    """Return the module `ge.allocator`, which must have the classes `Allocator` and `MemBlock`."""
    try:
        module = importlib.import_module("ge.allocator")
        module.Allocator, module.MemBlock  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise ImportError(
            "acl.ge needs CANN's package ge with ge.allocator.Allocator and MemBlock (CANN 9.1; after `source "
            "set_env.sh`); the package ge on PyPI is another one"
        ) from error
    return module


def _make() -> type:
    """Make the class, which is derived from GE's."""
    ge = _ge()

    class Allocator(ge.Allocator):  # type: ignore[misc, name-defined]
        """An allocator for GE that allocates from a pool, for one stream.

        Parameters
        ----------
        pool : acl.Pool
            The pool, on the stream's device.
        stream : acl.Stream or int, optional
            The stream for which it will be registered: only later work of this stream uses memory again that
            GE has freed.  The default stream if not given.
        """

        def __init__(self, pool: Pool, stream: Stream | int | None = None) -> None:
            super().__init__()
            self.blocks = Blocks(pool, stream)

        def malloc(self, size: int) -> Any:
            """Return a block of at least `size` bytes; raises `acl.OutOfMemoryError`, a MemoryError."""
            return ge.MemBlock(self.blocks.take(size), size)

        def free(self, block: Any) -> None:
            """Free a block, whose last consumer is queued on the stream."""
            self.blocks.give(block.addr)

        @property
        def pool(self) -> Pool:
            """The pool that the memory is allocated from."""
            return self.blocks.pool

    Allocator.__module__ = __name__
    Allocator.__qualname__ = "Allocator"
    return Allocator


def _class() -> Any:
    """Return the class, which is made once."""
    return globals().get("Allocator") or globals().setdefault("Allocator", _make())


def __getattr__(name: str) -> Any:
    if name != "Allocator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _class()


def register(session: Any, pool: Pool, stream: Stream | int) -> Any:
    """Register a pool with a GE session for a stream, before the graph is loaded.

    Parameters
    ----------
    session : ge.session.Session
    pool : acl.Pool
    stream : acl.Stream or int

    Returns
    -------
    Allocator
        The allocator; keep a reference to it as long as the session may free memory.
    """
    made = _class()(pool, stream)
    session.register_external_allocator(stream.handle if isinstance(stream, Stream) else stream, made)
    return made
