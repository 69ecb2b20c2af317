"""Adapter for GE's Python Session: an allocator class for GE that allocates from a pool.

GE, CANN's graph engine, allocates device memory for a session's graphs with an object of its Python class
`ge.allocator.Allocator`.  `Allocator` in this module is a subclass that allocates from an `acl.Pool`:

    >>> session.register_external_allocator(stream, acl.ge.Allocator(pool, stream))    # doctest: +SKIP

The class is made at first use, because only CANN contains the package `ge` (the `ge` on PyPI is another package).
GE calls the allocator twice for each tensor, through ctypes and with the GIL.  Such a call takes microseconds, much
more than the pool itself.  docs/ge.md shows how to avoid that.
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
            The stream for which the allocator will be registered.  Memory that GE has freed is used again only by
            later work of this stream.  Default: the default stream.
        """

        def __init__(self, pool: Pool, stream: Stream | int | None = None) -> None:
            super().__init__()
            self.blocks = Blocks(pool, stream)

        def malloc(self, size: int) -> Any:
            """Return a block of at least `size` bytes, or raise `acl.OutOfMemoryError` (a MemoryError)."""
            return ge.MemBlock(self.blocks.take(size), size)

        def free(self, block: Any) -> None:
            """Free a block; the last work that uses it must be queued on the stream."""
            self.blocks.give(block.addr)

        @property
        def pool(self) -> Pool:
            """The pool that the memory is allocated from."""
            return self.blocks.pool

    Allocator.__module__ = __name__
    Allocator.__qualname__ = "Allocator"
    return Allocator


def _class() -> Any:
    """Return the class; make it at the first call."""
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
