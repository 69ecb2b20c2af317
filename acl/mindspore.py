"""The pool as MindSpore's allocator (2.7.1 and later).

Pass `mem_pool(pool)` to `mindspore.runtime.use_mem_pool`.  Inside such a block, MindSpore allocates from the pool
with two C functions, without Python.  MindSpore caches the memory of freed tensors, and frees it to the pool only when
this cache is emptied.  The pool cannot see which work MindSpore has queued.  So it returns memory to the driver, or
gives it to other streams, only when `empty_cache` is called.

Import `acl.mindspore` before `mindspore`.  On a machine without CANN, the first import makes a folder with the
simulator that has the layout of a CANN installation, which MindSpore expects.  This needs gcc and g++.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from acl import sim
from acl.adapters.pluggable import _door
from acl.pool._pool import Pool

__all__ = ["allocator_path", "empty_cache", "mem_pool", "pools"]

_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
_seats: list[int] = []
_loaded: list[ctypes.CDLL] = []


def _simulator_is_meant() -> bool:
    """Return True if the loader will choose the simulator.  This does not open it, because the path would be wrong."""
    if os.environ.get("ACL_LIBRARY"):
        return False
    chosen = os.environ.get("ACL_BACKEND", "auto")
    no_cann = not any(os.environ.get(home) for home in _HOMES) and not Path("/usr/local/Ascend").exists()
    return chosen == "sim" or (chosen in ("", "auto") and no_cann)


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _folder(package: Path) -> Path:
    """Return the folder with CANN's layout for this simulator and this MindSpore; make it if it does not exist."""
    from acl.sim import cann_layout, cann_mindspore

    library = Path(sim.library_dir(), "libascendcl.so")
    parts = [importlib.metadata.version("mindspore"), str(library), str(library.stat().st_mtime_ns),
             *(Path(module.__file__ or "").read_text() for module in (cann_layout, cann_mindspore))]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "aclpool" / f"cann-{key}"
    if not target.exists():
        made = target.with_suffix(f".{os.getpid()}")
        cann_layout.lay_out(made, package)
        try:
            made.rename(target)
        except OSError:                         # another process has made the folder
            if not target.exists():
                raise
    return target / "latest" / "lib64"


def _prepare(package: Path) -> None:
    """Load the simulator by a path that MindSpore accepts as CANN's."""
    if _loaded or not _simulator_is_meant() or "mindspore" in sys.modules:
        return
    if _is_loaded("libascendcl.so"):
        if "latest/lib64" in os.environ.get("LD_LIBRARY_PATH", ""):
            return
        raise ImportError("import acl.mindspore before anything else of acl opens the simulator")
    libraries = _folder(package)
    os.environ["ACL_LIBRARY"] = str(libraries / "libascendcl.so")
    names = ["libascendcl.so", *sorted(path.name for path in libraries.glob("*.so") if path.name != "libascendcl.so")]
    _loaded.extend(ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL) for name in names)


_found = importlib.util.find_spec("mindspore")
if _found is None or _found.origin is None:
    raise ImportError("acl.mindspore needs MindSpore 2.7.1 or later (pip install mindspore)")
_prepare(Path(_found.origin).parent)
mindspore: Any = importlib.import_module("mindspore")


def allocator_path() -> str:
    """Return the path of the shared library with `aclpool_malloc` and `aclpool_free`."""
    return _door.path()


def mem_pool(pool: Pool | None = None) -> Any:
    """Return a `mindspore.runtime.MemPool` that allocates from a pool.

    Parameters
    ----------
    pool : Pool, optional
        A pool on the device that MindSpore uses.  If not given, a pool without a limit is made when the device
        is first used (see `pools`).  The pool is kept until the process ends, because MindSpore frees memory
        even during its exit.

    Returns
    -------
    mindspore.runtime.MemPool
    """
    # blind: MindSpore 2.10 passes device 0 to its allocator even if `set_device` has set another device.
    seat = _door.attach(pool, early=True, own=True, blind=True)
    _seats.append(seat)
    runtime = mindspore.runtime
    return runtime.MemPool(
        runtime.PluggableAllocator(_door.path(), f"aclpool_malloc_{seat}", f"aclpool_free_{seat}")
    )


def pools() -> list[Pool]:
    """Return the pools of `mem_pool`, including those that it made when their device was first used."""
    return list(dict.fromkeys(pool for seat in _seats for pool in _door.pools(seat).values()))


def empty_cache() -> int:
    """Empty MindSpore's queue and its cache, then free the pools' unused memory; return the freed bytes."""
    mindspore.runtime.synchronize()
    mindspore.runtime.empty_cache()
    return sum(pool.trim(drained=True) for pool in pools())
