"""C threads that use allocators: `tests/c/pool_threads.c`, compiled once and called through ctypes.

While they run, the thread that started them may trim, check, or change modes.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "c"))
import programs

__all__ = ["Team"]


class _Door(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("state", "alloc", "free", "address")]


@cache
def _library() -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="pool_threads")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Path(folder) / "pool_threads.so"
    command = [*programs.compiler(), *programs.FLAGS, *programs.SANITIZE.get(programs.mode(), []), "-shared", "-fPIC",
               "-fvisibility=hidden", str(programs.HERE / "pool_threads.c"), "-o", str(made)]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(made))
    library.team_start.restype = ctypes.c_void_p
    library.team_start.argtypes = [
        ctypes.POINTER(_Door), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t,
        ctypes.c_bool, ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.team_running.argtypes = [ctypes.c_void_p]
    library.team_end.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]
    library.team_end.restype = ctypes.c_uint64
    return library


class Team:
    """Worker threads, each with its own seed, that use some allocators (state, alloc, free, address).

    Parameters
    ----------
    doors : sequence of tuple
        The allocators; two workers may use the same one.
    touch : bool
        Write to each block; the addresses must have memory.
    takes_any : bool
        True: workers allocate from all allocators.  False: each only from the allocator with its own number.  Blocks of
        every allocator may be freed by every worker.
    context : int
        The ACL context of the workers; 0 for none.
    """

    def __init__(self, doors: Sequence[tuple[int, int, int, int]], *, workers: int, turns: int, most: int,
                 touch: bool = False, takes_any: bool = False, context: int = 0, seed: int = 1) -> None:
        print("seed", seed)
        self._library = _library()
        self._doors = (_Door * len(doors))(*doors)
        prepare = None
        if context:
            from support.calls import api

            prepare = ctypes.cast(api.aclrtSetCurrentContext, ctypes.c_void_p)
        self._team = self._library.team_start(
            self._doors, len(doors), workers, turns, most, touch, takes_any, prepare, context or None, seed)
        assert self._team, "no team"
        self.refused = self.spoiled = -1

    def running(self) -> bool:
        """True while a worker has not finished."""
        return bool(self._library.team_running(self._team))

    def end(self) -> None:
        """Wait for the workers and free all blocks; set `refused` (failed allocations) and `spoiled` (wrong blocks)."""
        refused = ctypes.c_uint64(0)
        self.spoiled = self._library.team_end(self._team, refused)
        self.refused = refused.value
