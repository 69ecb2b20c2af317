"""Loads the simulator's libraries before a framework that is linked with CANN's.

The libraries of frameworks name `libascendcl.so` and its companions.  The system's loader takes a library of
that name which the process has loaded already. So, if this runs first, a program needs no `LD_LIBRARY_PATH`.
With CANN's library nothing is loaded here, because CANN's set-up script has set the paths.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from acl.bind.generated._libacl import backend, library

__all__ = ["preload"]

_loaded: list[ctypes.CDLL] = []


def preload() -> bool:
    """Load the libraries in the folder of the simulator's `libascendcl.so`; True if the simulator is in use."""
    if backend() != "sim":
        return False
    found = library()
    if not _loaded and found is not None:
        folder = Path(found).resolve().parent
        # The others are linked with it, so it comes first.
        names = ["libascendcl.so", *sorted(p.name for p in folder.glob("*.so") if p.name != "libascendcl.so")]
        _loaded.extend(ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in names)
    return True
