"""The simulator's libraries, loaded before a framework that links against CANN's.

Frameworks' own libraries name `libascendcl.so` and its companions.  What the process has loaded under
such a name is taken, so a program needs no `LD_LIBRARY_PATH` if this runs first.  With CANN's library in
use nothing is loaded here: its set-up script has made the paths.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from acl.bind.generated._libacl import backend, library

__all__ = ["preload"]

_loaded: list[ctypes.CDLL] = []


def preload() -> bool:
    """Load what stands beside the simulator's `libascendcl.so`; whether the simulator is in use."""
    if backend() != "sim":
        return False
    found = library()
    if not _loaded and found is not None:
        folder = Path(found).resolve().parent
        # First what the others are linked against.
        names = ["libascendcl.so", *sorted(p.name for p in folder.glob("*.so") if p.name != "libascendcl.so")]
        _loaded.extend(ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in names)
    return True
