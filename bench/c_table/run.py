"""The cost of a pair of calls from C, C++, Cython, ctypes and Python: builds these programs and runs them.

    python bench/c_table/run.py [--pairs N]

Prints nanoseconds of thread CPU time for an allocation of 64 KiB and its free: the median of five runs, the least and
the greatest. All programs use one stream of one pool, in one process. Needs gcc, g++ and Cython; a program whose
compiler is missing is reported as such.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import acl

HERE = Path(__file__).parent
SIZE = 64 << 10
RUNS = 5
Times = dict[str, float]
Measure = Callable[[acl.Pool, acl.Stream, int], Times]


def built(name: str, compiler: list[str], source: Path, folder: Path) -> Any:
    """Compile and import an extension module."""
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    package = Path(acl.__file__).parent
    include = ["-I", acl.include_dir(), "-I", str(package.parent), "-I", sysconfig.get_paths()["include"]]
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", *include, str(source), "-o", str(target)], check=True)
    spec = importlib.util.spec_from_file_location(name.rpartition("-")[2], target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_c(compiler: list[str]) -> Callable[[Path], Measure]:
    """Return a function that builds pairs.c with this compiler; the file is both C and C++."""
    def build(folder: Path) -> Measure:
        (folder / compiler[0]).mkdir()
        measure = built("pairs", compiler, HERE / "pairs.c", folder / compiler[0]).measure
        return lambda pool, stream, pairs: measure(pool, stream.handle, SIZE, pairs)

    return build


def from_cython(folder: Path) -> Measure:
    """Build the Cython module, which calls the table and the methods of a cimported class."""
    source, package = folder / "pairs_cython.c", Path(acl.__file__).parent
    subprocess.run([sys.executable, "-m", "cython", "-3", "-I", str(package.parent), str(HERE / "pairs_cython.pyx"),
                    "-o", str(source)], check=True)
    # The classes' declarations name C headers that lie in the package.
    measure = built("pairs_cython", ["gcc", "-I", str(package)], source, folder).measure
    return lambda pool, stream, pairs: measure(pool, stream, SIZE, pairs)


class Table(ctypes.Structure):
    """The first fields of the table in aclpool.h, up to the last function that is called here."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("version", ctypes.c_uint32),
        ("pool_of", ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)), ("buffer_of", ctypes.c_void_p),
        ("device", ctypes.c_void_p), ("padded", ctypes.c_void_p),
        ("arena", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
        ("stream_register", ctypes.c_void_p), ("stream_unregister", ctypes.c_void_p),
        ("alloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("try_alloc", ctypes.c_void_p),
        ("free", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
    )


def from_ctypes(folder: Path) -> Measure:
    """Return a function that calls the table from Python, without a compiler."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = Table.from_address(pointer_of(acl.pool_capi, b"acl.pool_capi"))

    def measure(pool: acl.Pool, stream: acl.Stream, pairs: int) -> Times:
        arena = table.arena(table.pool_of(pool), stream.handle)
        alloc, free = table.alloc, table.free
        start = time.thread_time_ns()
        for _ in range(pairs):
            free(arena, alloc(arena, SIZE))
        return {"alloc, free": (time.thread_time_ns() - start) / pairs}

    return measure


def from_python(folder: Path) -> Measure:
    """Return a function that makes and drops a buffer."""
    def measure(pool: acl.Pool, stream: acl.Stream, pairs: int) -> Times:
        alloc = pool.alloc
        start = time.thread_time_ns()
        for _ in range(pairs):
            alloc(SIZE, stream=stream)
        return {"pool.alloc, drop": (time.thread_time_ns() - start) / pairs}

    return measure


# For each row: the language, what it needs, how its function is made, and the divisor of --pairs for it.
WAYS: tuple[tuple[str, str, Callable[[Path], Measure], int], ...] = (
    ("C", "gcc", from_c(["gcc"]), 1), ("C++", "g++", from_c(["g++", "-x", "c++"]), 1),
    ("Cython", "gcc", from_cython, 4), ("ctypes", "", from_ctypes, 40), ("Python", "", from_python, 10),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2_000_000)
    pairs = parser.parse_args().pairs
    acl.Device(0).use()
    print(f"{'from':<8}{'calls':<22}{'ns':>8}{'from':>10}{'to':>9}")
    with tempfile.TemporaryDirectory() as name, acl.Stream(0) as stream:
        pool = acl.Pool(0)
        for where, wants, build, part in WAYS:
            if wants and shutil.which(wants) is None:
                print(f"{where:<8}no {wants} here")
                continue
            measure = build(Path(name))
            runs = [measure(pool, stream, max(1, pairs // part)) for _ in range(RUNS)]
            for calls in runs[0]:
                times = [run[calls] for run in runs]
                print(f"{where:<8}{calls:<22}{statistics.median(times):8.1f}{min(times):10.1f}{max(times):9.1f}")
        pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
