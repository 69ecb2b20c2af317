"""Compare the pyACL functions with ctypes and cffi: `python bench/bench_pyacl.py [--json FILE]`.

Measures three calls that programs make often, in five ways in one run: a bare C loop, this package's `acl.rt` and
`acl.mdl`, ctypes with `argtypes` set, cffi by dlopen (ABI mode), and cffi compiled (API mode).  Each way gets the
results that a program needs, such as the new address of `malloc`.  The time of an empty Python loop is subtracted.
The simulator does the work of a call, and the bare column is its time.  A column minus the bare column is what that
way adds.  All ways are measured in each round; the medians over the rounds are shown.

cffi is left out if it is not installed.  Under pytest the calls are pytest-benchmark cases.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

import acl
from acl.tools.bench import _calls

LOOPS = 20_000
ROUNDS = 15
CALLS = ("malloc+free 64 KiB", "memcpy 64 B", "mdl.get_num_inputs")
SIZE = 64 << 10

DECLARATIONS = """
int aclrtMalloc(void **devPtr, size_t size, int policy);
int aclrtFree(void *devPtr);
int aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, int kind);
size_t aclmdlGetNumInputs(void *modelDesc);
"""


class World:
    """The objects that the calls work on."""

    def __init__(self) -> None:
        acl.Device(0).use()
        self.target, self.source = acl.Buffer(64), acl.Buffer(64)
        self.desc = acl.mdl.create_desc()
        self.library = str(acl.library())

    def close(self) -> None:
        acl.mdl.destroy_desc(self.desc)


Doors = dict[str, Callable[[], Any]]


def ours(world: World) -> Doors:
    malloc, free, memcpy, count = acl.rt.malloc, acl.rt.free, acl.rt.memcpy, acl.mdl.get_num_inputs
    target, source, desc = world.target.address, world.source.address, world.desc

    def malloc_free() -> int:
        pointer, _ = malloc(SIZE, 0)
        return free(pointer)

    return dict(zip(CALLS, (malloc_free, lambda: memcpy(target, 64, source, 64, 3), lambda: count(desc)), strict=True))


def by_ctypes(world: World) -> Doors:
    library = ctypes.CDLL(world.library)
    malloc, free, memcpy, count = (
        library.aclrtMalloc, library.aclrtFree, library.aclrtMemcpy, library.aclmdlGetNumInputs)
    malloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int]
    free.argtypes = [ctypes.c_void_p]
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    count.argtypes, count.restype = [ctypes.c_void_p], ctypes.c_size_t
    target, source, desc, byref, pointer_type = (
        world.target.address, world.source.address, world.desc, ctypes.byref, ctypes.c_void_p)

    def malloc_free() -> int:
        pointer = pointer_type()
        malloc(byref(pointer), SIZE, 0)
        return free(pointer.value)

    return dict(zip(CALLS, (malloc_free, lambda: memcpy(target, 64, source, 64, 3), lambda: count(desc)), strict=True))


def by_cffi(world: World, ffi: Any, library: Any) -> Doors:
    new, cast = ffi.new, ffi.cast
    malloc, free, memcpy, count = (
        library.aclrtMalloc, library.aclrtFree, library.aclrtMemcpy, library.aclmdlGetNumInputs)
    target, source, desc = world.target.address, world.source.address, world.desc

    def malloc_free() -> int:
        place = new("void **")
        malloc(place, SIZE, 0)
        return free(cast("void *", int(cast("uintptr_t", place[0]))))   # by way of an int, as pyACL returns it

    def copy() -> int:
        return memcpy(cast("void *", target), 64, cast("void *", source), 64, 3)

    return dict(zip(CALLS, (malloc_free, copy, lambda: count(cast("void *", desc))), strict=True))


def cffi_abi(world: World) -> Doors:
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    return by_cffi(world, ffi, ffi.dlopen(world.library))


def cffi_api(world: World) -> Doors:
    from cffi import FFI

    builder = FFI()
    builder.cdef(DECLARATIONS)
    library = Path(world.library)
    builder.set_source("_bench_pyacl_cffi", "#include <stddef.h>\n" + DECLARATIONS,
                       extra_link_args=[str(library), f"-Wl,-rpath,{library.parent}"])
    with tempfile.TemporaryDirectory() as folder:
        built = builder.compile(tmpdir=folder)
        spec = importlib.util.spec_from_file_location("_bench_pyacl_cffi", built)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return by_cffi(world, module.ffi, module.lib)


def doors(world: World) -> dict[str, Doors]:
    """Return the calls of each way."""
    found = {"acl": ours(world), "ctypes": by_ctypes(world)}
    if importlib.util.find_spec("cffi") is not None:
        found["cffi ABI"] = cffi_abi(world)
        found["cffi API"] = cffi_api(world)
    return found


def bare(world: World) -> dict[str, Callable[[], float]]:
    """Return for each call the seconds of a C loop."""
    target, source = world.target.address, world.source.address
    loops = (lambda: _calls.malloc_free(LOOPS, SIZE)[0], lambda: _calls.memcpy(LOOPS, target, source, 64)[0],
             lambda: _calls.num_inputs(LOOPS, world.desc)[0])
    return dict(zip(CALLS, loops, strict=True))


def seconds(call: Callable[[], Any] | None) -> float:
    """Return the seconds of a Python loop of calls; if the call is None, of an empty loop."""
    call = call or (lambda: None)
    start = time.perf_counter()
    for _ in repeat(None, LOOPS):
        call()
    return time.perf_counter() - start


def measure(world: World) -> list[dict[str, Any]]:
    """Return one row for each call: the nanoseconds of each round in each way."""
    by_door, in_c = doors(world), bare(world)
    rows = []
    for name in CALLS:
        times: dict[str, list[float]] = {door: [] for door in ("bare", *by_door)}
        for _ in range(ROUNDS):
            empty = seconds(None)
            times["bare"].append(in_c[name]() / LOOPS * 1e9)
            for door, calls in by_door.items():
                times[door].append((seconds(calls[name]) - empty) / LOOPS * 1e9)
        rows.append({"call": name, **{door: {"median": statistics.median(t), "all": t} for door, t in times.items()}})
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the medians, and what each way adds to the bare call."""
    names = [door for door in rows[0] if door != "call"]
    lines = [f"{'ns, median':20}" + "".join(f"{n:>10}" for n in names)]
    for row in rows:
        lines.append(f"{row['call']:20}" + "".join(f"{row[n]['median']:10.1f}" for n in names))
        added = [row[n]["median"] - row["bare"]["median"] for n in names]
        lines.append(f"{'  adds':20}" + "".join(f"{a:10.1f}" for a in added))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round of every call")
    choice = parser.parse_args()
    world = World()
    rows = measure(world)
    world.close()
    print("\n".join(table(rows)))
    if choice.json:
        choice.json.write_text(json.dumps({"python": sys.version, "loops": LOOPS, "rows": rows}, indent=1))
    return 0


@pytest.fixture(scope="module")
def world() -> Any:
    made = World()
    yield made
    made.close()


@pytest.mark.parametrize("door", ["acl", "ctypes", "cffi ABI"])
@pytest.mark.parametrize("name", CALLS)
def test_bench_pyacl(benchmark: Any, world: World, name: str, door: str) -> None:
    if door.startswith("cffi"):
        pytest.importorskip("cffi")
    make = {"acl": ours, "ctypes": by_ctypes, "cffi ABI": cffi_abi}[door]
    benchmark(make(world)[name])


if __name__ == "__main__":
    sys.exit(main())
