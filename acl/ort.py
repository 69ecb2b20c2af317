"""Adapter for ONNX Runtime: its CPU sessions allocate their tensors from a pool of host memory.

ONNX Runtime keeps freed memory in an arena that only grows, and that is inefficient for changing shapes.  With this
adapter, a session allocates its tensors from a `HostPool`.  This is the allocator of this package on host memory: it
moves free pages to addresses where they are needed, and returns free memory to the system.

    >>> pool = acl.ort.install()                                            # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(path, acl.ort.session_options())  # doctest: +SKIP
    >>> acl.ort.stats().reserved                                            # doctest: +SKIP

The adapter serves only CPU sessions that are made after `install` with the options of `session_options`.  It needs
the `onnxruntime` package (``pip install aclpool[onnx]``), 1.16 or later, but no device and no CANN.
A program in C or C++ calls `register` for its own `libonnxruntime.so`.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from acl.adapters.onnxruntime._ort import HostPool, attach, attach_library, base_take, detach

__all__ = ["HostPool", "HostStats", "install", "register", "session_options", "stats", "trim", "uninstall"]

#: Configuration entry: the session uses the environment's allocator instead of its own.
_ENTRY = ("session.use_env_allocators", "1")

_seat: int | None = None
_pool: HostPool | None = None
_options: tuple[object, ...] | None = None  # options of `_pool` if `install` made it, else None
#: Uninstalled pools that `install` had made, by their options.  They are not destroyed, because sessions may still
#: use them.  An `install` with equal options uses such a pool again.
_retired: dict[tuple[object, ...], HostPool] = {}


@dataclass(frozen=True)
class HostStats:
    """The statistics of a `HostPool`; values are bytes, except for numbers of allocations and pages."""

    reserved: int  #: host memory that the pool holds
    reserved_peak: int
    allocated: int  #: bytes of live blocks
    requested: int  #: requested bytes of live blocks, and the adapter's header of 64 bytes for each block
    requested_peak: int  #: sum of the arenas' own peaks of `requested`
    cached: int  #: free bytes in blocks that are kept for requests of exactly their size
    free: int  #: free bytes that are not in `cached`
    limit: int  #: most bytes that the pool may hold; 0 for no limit
    live_blocks: int
    hits: int  #: number of allocations that the cache served
    fits: int  #: number of allocations that other free blocks served
    slow: int  #: number of allocations that moved or allocated pages
    failures: int  #: number of allocations that the limit did not allow; `malloc` served them
    steals: int  #: number of pages moved within an arena
    donated: int  #: number of pages moved to another arena
    overflow: int  #: live bytes that `malloc` allocated
    overflows: int  #: number of allocations that `malloc` served

    @classmethod
    def of(cls, pool: HostPool) -> HostStats:
        """Return the current statistics of a pool."""
        return cls(**pool.stats())


def _onnxruntime() -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError("acl.ort needs the package onnxruntime (pip install aclpool[onnx])") from error


def install(
    pool: HostPool | None = None,
    *,
    limit: int | str | None = None,
    granule: int | str | None = None,
    arenas: int | None = None,
) -> HostPool:
    """Make a pool the allocator of the `onnxruntime` package's environment.

    Parameters
    ----------
    pool : HostPool, optional
        The pool to use.  If not given, a pool with the following options is used: an uninstalled pool of an
        earlier `install` with equal options, else a new pool.
    limit : int or str, optional
        Most bytes that the pool may hold, such as ``"2GiB"``.  A failed allocation ends ONNX Runtime, so
        `malloc` serves allocations beyond the limit, and `stats` counts them.
    granule : int or str, optional
        Bytes of a page, the unit in which memory is allocated and moved; 2 MiB if not given.
    arenas : int, optional
        Number of threads that can run sessions without waiting for each other.  Default: the number of
        processors.

    Raises
    ------
    ImportError
        The `onnxruntime` package is not installed.
    RuntimeError
        Another allocator is installed already, or ONNX Runtime refuses the allocator.
    """
    global _options, _pool, _seat
    if _seat is not None:
        raise RuntimeError("a pool is installed already; acl.ort.uninstall() first")
    runtime = _onnxruntime()
    made = None
    if pool is None:
        made = (os.getpid(), limit, granule, arenas)
        pool = _retired.get(made) or HostPool(limit, "2MiB" if granule is None else granule, arenas)
    elif not isinstance(pool, HostPool):
        raise TypeError(f"pool must be an acl.ort.HostPool or None, not {type(pool).__name__}")
    elif (limit, granule, arenas) != (None, None, None):
        raise ValueError("limit, granule and arenas are options of a new pool, not of one that is given")
    from acl.adapters.onnxruntime import _ort

    runtime.SessionOptions().register_custom_ops_library(_ort.__file__)
    base = base_take()
    if base == 0:
        raise RuntimeError("onnxruntime did not hand over its API table")
    _seat, _ = attach(base, pool)
    if made is not None:
        _retired.pop(made, None)
    _pool, _options = pool, made
    return pool


def register(pool: HostPool, library: str | os.PathLike[str]) -> str:
    """Make a pool the allocator of a `libonnxruntime.so` that this process uses by its C API.

    The extension module of the `onnxruntime` package contains another copy of the library; use `install` for that.
    Make sessions with ``session.use_env_allocators`` set to ``1``, and with memory patterns and the CPU arena off.

    Parameters
    ----------
    pool : HostPool
        The pool; it is kept until the process ends.
    library : path
        The library file that the program is linked with, or has opened.

    Returns
    -------
    str
        Version of the library.
    """
    return attach_library(library, pool)[1]


def uninstall() -> None:
    """Undo the registration of `install`; a second call does nothing.

    Existing sessions continue to use the pool, so the pool is kept.  Its unused memory is freed.
    """
    global _options, _pool, _seat
    if _seat is not None:
        detach(_seat)
    if _options is not None and _pool is not None and _options[0] == os.getpid():
        _pool.trim()
        _retired[_options] = _pool
    _seat = _pool = _options = None


def session_options(options: Any = None) -> Any:
    """Return options with which a session allocates its tensors from the pool.

    Parameters
    ----------
    options : onnxruntime.SessionOptions, optional
        Options that are changed and returned.  Default: new options.
    """
    runtime = _onnxruntime()
    if options is None:
        options = runtime.SessionOptions()
    elif not isinstance(options, runtime.SessionOptions):
        raise TypeError(f"options must be onnxruntime.SessionOptions or None, not {type(options).__name__}")
    options.add_session_config_entry(*_ENTRY)
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def _installed() -> HostPool:
    if _pool is None:
        raise RuntimeError("no pool is installed; acl.ort.install() first")
    return _pool


def stats() -> HostStats:
    """Return the statistics of the installed pool."""
    return HostStats.of(_installed())


def trim(to: int | str = 0) -> int:
    """Free unused memory of the installed pool to the system, and return the freed bytes."""
    return _installed().trim(to)
