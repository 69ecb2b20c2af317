"""Adapter for ONNX Runtime: the tensors of its CPU sessions come from a pool of host memory.

ONNX Runtime keeps freed memory in an arena that only grows, and fits changing shapes badly.  With this
adapter a session takes its tensors from a `HostPool`: the allocator of this package on pages of the
host, which moves free pages to where they are needed and gives memory back.

    >>> pool = acl.ort.install()                                            # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(path, acl.ort.session_options())  # doctest: +SKIP
    >>> acl.ort.stats().reserved                                            # doctest: +SKIP

Only sessions made after `install`, with the options of `session_options`, are served, and only on the
CPU.  Needs the `onnxruntime` package (``pip install aclpool[onnx]``), 1.16 or later; no device, no CANN.
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

#: How a session is told to use the environment's allocator, and to keep none of its own.
_ENTRY = ("session.use_env_allocators", "1")

_seat: int | None = None
_pool: HostPool | None = None
_options: tuple[object, ...] | None = None  # those of `_pool`, if `install` made it
#: Pools of `install` that were uninstalled, by their options.  Sessions may still use them, and nobody
#: can tell, so they are never destroyed; the next `install` takes them instead of new addresses.
_retired: dict[tuple[object, ...], HostPool] = {}


@dataclass(frozen=True)
class HostStats:
    """What a `HostPool` holds and has done; bytes unless the name says otherwise."""

    reserved: int  #: host memory that the pool holds
    reserved_peak: int
    allocated: int  #: in live blocks
    requested: int  #: asked for by their users, with 64 bytes of ours each
    requested_peak: int  #: the arenas' own peaks, summed
    cached: int  #: free, kept for blocks of the same size
    free: int  #: free otherwise
    limit: int  #: 0 for none
    live_blocks: int
    hits: int  #: allocations that the cache served
    fits: int  #: that the free blocks served
    slow: int  #: that had to move or take pages
    failures: int  #: that the limit did not allow; `malloc` served them
    steals: int  #: pages moved within an arena
    donated: int  #: pages moved to another
    overflow: int  #: that `malloc` holds
    overflows: int  #: allocations that `malloc` served

    @classmethod
    def of(cls, pool: HostPool) -> HostStats:
        """The numbers of this moment."""
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
        A pool to use; one with the following options if not given: that of an earlier `install`
        with the same options, if it was uninstalled, else a new one.
    limit : int or str, optional
        Most bytes that the pool may hold, such as ``"2GiB"``.  ONNX Runtime does not survive an
        allocation that fails, so what goes beyond comes from `malloc`, and `stats` counts it.
    granule : int or str, optional
        Bytes of a page, the unit in which memory is taken and moved: 2 MiB if not given.
    arenas : int, optional
        Threads that run sessions without waiting for each other; the number of processors if not given.

    Raises
    ------
    ImportError
        Without the `onnxruntime` package.
    RuntimeError
        If another allocator is installed already, or ONNX Runtime refuses.
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

    The package's own extension module carries another copy of the library, which `install` serves.
    Sessions are to be made with ``session.use_env_allocators`` set to ``1``, and with memory patterns
    and the CPU arena off.

    Parameters
    ----------
    pool : HostPool
        Stays for as long as the process lives.
    library : path
        The file that the program is linked with, or has opened.

    Returns
    -------
    str
        The library's version.
    """
    return attach_library(library, pool)[1]


def uninstall() -> None:
    """Take the registration of `install` back; a second call does nothing.

    Sessions that use the pool go on with it, so it is kept; what it does not use is given back.
    """
    global _options, _pool, _seat
    if _seat is not None:
        detach(_seat)
    if _options is not None and _pool is not None and _options[0] == os.getpid():
        _pool.trim()
        _retired[_options] = _pool
    _seat = _pool = _options = None


def session_options(options: Any = None) -> Any:
    """Options that make a session take its tensors from the pool.

    Parameters
    ----------
    options : onnxruntime.SessionOptions, optional
        Options to add to; new ones if not given.
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
    """What the installed pool holds and has done."""
    return HostStats.of(_installed())


def trim(to: int | str = 0) -> int:
    """Give memory of the installed pool that nobody uses back to the system; says how many bytes went."""
    return _installed().trim(to)
