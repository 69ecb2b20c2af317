"""The pool as MindSpore's allocator (2.7.1 and later).

Pass `mem_pool(pool)` to `mindspore.runtime.use_mem_pool`: allocations inside such a block come from the
pool, through two C functions; no Python runs.  MindSpore keeps the memory of its tensors and returns
it to the pool when its cache is emptied.  It tells its allocator nothing of its queue of launches, so
memory leaves the pool, or goes to other streams, only when `empty_cache` is called.

`import acl.mindspore` comes before `import mindspore`.  On a machine without CANN it lays the simulator
out as MindSpore expects CANN, which needs gcc and g++, once.
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
    """As the loader will choose; asking it would open the library, by the wrong path."""
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
    """The laid-out folder for this simulator and this MindSpore, made if it is not there."""
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
        except OSError:                         # another process was first
            if not target.exists():
                raise
    return target / "latest" / "lib64"


def _prepare(package: Path) -> None:
    """Load the simulator by a path that MindSpore takes for CANN's."""
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
    """The shared library with `aclpool_malloc` and `aclpool_free`."""
    return _door.path()


def mem_pool(pool: Pool | None = None) -> Any:
    """A `mindspore.runtime.MemPool` over a pool.

    Parameters
    ----------
    pool : Pool, optional
        On the device that MindSpore uses; if not given, that device gets one without a limit when it is
        first used (`pools` tells).  It is kept for the life of the process, as MindSpore gives memory
        back at its very end.

    Returns
    -------
    mindspore.runtime.MemPool
    """
    # MindSpore 2.10 tells its allocator device 0 whatever `set_device` said.
    seat = _door.attach(pool, early=True, own=True, blind=True)
    _seats.append(seat)
    runtime = mindspore.runtime
    return runtime.MemPool(
        runtime.PluggableAllocator(_door.path(), f"aclpool_malloc_{seat}", f"aclpool_free_{seat}")
    )


def pools() -> list[Pool]:
    """The pools behind `mem_pool`; one that it was not given stands here once its device was used."""
    return list(dict.fromkeys(pool for seat in _seats for pool in _door.pools(seat).values()))


def empty_cache() -> int:
    """Empty MindSpore's queue and its cache, then give back what is free; how many bytes."""
    mindspore.runtime.synchronize()
    mindspore.runtime.empty_cache()
    return sum(pool.trim(drained=True) for pool in pools())
