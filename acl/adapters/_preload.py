"""Loads the simulator's libraries before a framework that is linked with CANN's libraries.

A framework's libraries need `libascendcl.so` and related libraries.  If the process has already loaded a library with
such a name, the system's loader uses it.  So if `preload` is called before the framework is imported, the program
needs no `LD_LIBRARY_PATH`.  If CANN is in use, nothing is loaded here, because CANN's set-up script has set the paths.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from acl.bind.generated._libacl import backend, library

__all__ = ["preload"]

_loaded: list[ctypes.CDLL] = []


def preload() -> bool:
    """Load all libraries in the folder of the simulator's `libascendcl.so`; return True if the simulator is in use."""
    if backend() != "sim":
        return False
    found = library()
    if not _loaded and found is not None:
        folder = Path(found).resolve().parent
        # Load libascendcl.so first, because the other libraries are linked with it.
        names = ["libascendcl.so", *sorted(p.name for p in folder.glob("*.so") if p.name != "libascendcl.so")]
        _loaded.extend(ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in names)
    return True
