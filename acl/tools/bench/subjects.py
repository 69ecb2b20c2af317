"""The allocators that `aclpool bench` compares: how each is found, opened and closed.

A `Candidate` has a `spec`, a text from which the measuring process makes the candidate again:

    NAME                        an allocator of this file, by its name
    pool:granule=32MiB          this package's pool, with these options
    policy:torch                the bookkeeping of another pool, as in `aclpool replay`
    library:NAME=FILE:F:G       functions F(size) and G(block) of a shared library
    [NAME=]module:factory       the allocator that a function returns: see docs/benchmarking.md

`open()` makes a `Subject` for the loops, or raises `Unavailable` with the reason, which the table shows.
Nothing is installed or downloaded: an allocator that is not on the machine is left out.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import acl
from acl.tools.bench import _meter, _peers
from acl.tools.bench._loops import Subject
from acl.tools.bench.about import about_library, about_ours, about_runtime

__all__ = ["CANDIDATES", "Candidate", "Opened", "PoolUnderTest", "Unavailable", "candidate_of", "choose"]

FLUSH_AT = 64 << 30             # bytes of the imagined device of `FreeListAllocator`
LIBRARY_FOLDERS = ("/usr/local/lib", "/usr/lib/*-linux-gnu", "/lib/*-linux-gnu", "/usr/lib64", "/usr/lib")


class Unavailable(Exception):
    """Raised, with the reason, if an allocator cannot be measured on this machine."""


@dataclass
class Opened:
    """An open allocator: its subject for the loops, functions that read its counters, and one that closes it."""

    subject: Subject
    another: Callable[[], Subject] | None = None    # makes a second arena of the same allocator
    close: Callable[[], None] = lambda: None
    reserved_peak: Callable[[], int] | None = None  # returns the peak of the reserved bytes
    reserved: Callable[[], int] | None = None       # returns the bytes that are reserved now
    under_test: PoolUnderTest | None = None
    host: bool = False                              # the blocks are memory of this process
    python: bool = False                            # the allocator's callbacks run Python code
    call: Callable[[int], Any] | None = None        # allocates from Python; dropping the result frees it
    about: dict[str, Any] = field(default_factory=dict)     # version, build, and other data that identify the allocator

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Candidate:
    """An allocator by name.

    Attributes
    ----------
    python : bool
        Its callbacks run Python code, which is thousands of times slower on threads that Python has not made.
    shareable : bool
        Several threads may use one subject.
    environment : callable, optional
        Returns the environment variables that its process must start with.
    workloads : tuple of str, optional
        The only workloads that it is measured with, because other workloads would take too long.
    scaled : bool
        It also has the rows that sweep a parameter, such as the number of live blocks; these rows take long.
    from_python : bool
        The opened allocator has a `call`.
    quick : bool
        It is measured in a quick run if the user named no allocators.
    spec : str
        Text from which another process makes this candidate again (`candidate_of`); if empty, `name` is that text.
    """

    name: str
    open: Callable[[], Opened]
    python: bool = False
    shareable: bool = True
    environment: Callable[[], dict[str, str]] | None = None
    workloads: tuple[str, ...] | None = None
    scaled: bool = False
    from_python: bool = False
    quick: bool = False
    spec: str = ""

    def variables(self) -> dict[str, str]:
        """Return the environment for a process that opens it.

        Raises
        ------
        Unavailable
            A file that the environment names does not exist on this machine.
        """
        return {**os.environ, **(self.environment() if self.environment else {})}


# ---- the pool of this package ----

class SimulatorBooks:
    """The simulator's count of physical bytes that were taken since this object was made."""

    def __init__(self) -> None:
        self.base = acl.sim.physical_bytes(0)
        acl.sim.reset_physical_peak(0)

    def reserved(self) -> int:
        """Return the bytes that are taken now."""
        return int(acl.sim.physical_bytes(0) - self.base)

    def reserved_peak(self) -> int:
        """Return the most bytes taken at any time since this object was made."""
        return int(acl.sim.physical_peak(0) - self.base)


class PoolBooks:
    """The pool's own count of reserved bytes, for devices that are not simulated."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def reserved(self) -> int:
        """Return the bytes reserved now."""
        return int(self.pool.stats().reserved)

    def reserved_peak(self) -> int:
        """Return the most bytes reserved at any time."""
        return int(self.pool.stats().reserved_peak)


class PoolUnderTest:
    """A pool on device 0, whose arenas are called through the functions that ACL gets."""

    def __init__(self, **options: Any) -> None:
        acl.Device(0).use()
        simulated = acl.backend() == "sim"
        books = SimulatorBooks() if simulated else None
        # A pool stores its driver functions when it is made, so only a pool made now calls the wrappers.
        _meter.start()
        try:
            self.pool = acl.Pool(device=0, **options)
        finally:
            _meter.stop()
        self.books: SimulatorBooks | PoolBooks = books or PoolBooks(self.pool)
        self.streams: list[Any] = []

    def subject(self) -> Subject:
        """Return a Subject for the arena of a new stream, from `aclrtAllocatorGetByStream`."""
        stream = acl.Stream()
        self.streams.append(stream)
        self.pool.register(stream)
        return _peers.registered("aclpool", stream.handle, (self.pool, stream))

    def steals(self) -> int:
        """Return how often the pool has moved pages, by its own count."""
        return int(self.pool.stats().steals)

    def close(self) -> None:
        """Unregister the streams and close the pool; the caller must have freed every block."""
        for stream in self.streams:
            stream.synchronize()
            self.pool.unregister(stream)
            stream.close()
        self.streams.clear()
        self.pool.close()


def open_pool(**options: Any) -> Opened:
    try:
        under_test = PoolUnderTest(**options)
    except (ImportError, AttributeError, OSError) as error:
        raise Unavailable(f"no pool here: {error}") from error
    books = under_test.books
    return Opened(under_test.subject(), under_test.subject, under_test.close, books.reserved_peak, books.reserved,
                  under_test, call=under_test.pool.alloc, about=about_ours())


# ---- the runtime's own allocators ----

def runtime_ready() -> None:
    try:
        acl.Device(0).use()
    except (ImportError, AttributeError, OSError) as error:
        raise Unavailable(f"no runtime here: {error}") from error


def with_books(opened: Opened) -> Opened:
    """Return an allocator that does not count its bytes, with functions that read the simulator's count.

    On a device, return it unchanged.
    """
    if acl.backend() != "sim":
        return opened
    books = SimulatorBooks()
    return replace(opened, reserved=books.reserved, reserved_peak=books.reserved_peak)


def open_runtime() -> Opened:
    runtime_ready()
    return with_books(Opened(_peers.runtime(), call=acl.Buffer, about=about_runtime()))


def open_soma() -> Opened:
    runtime_ready()
    stream = acl.Stream()
    try:
        pool = _peers.soma_open(0, 16 << 30)
    except OSError as error:
        stream.close()
        raise Unavailable(str(error)) from error

    def close() -> None:
        stream.synchronize()
        _peers.soma_close(pool)
        stream.close()

    return with_books(Opened(_peers.soma(pool, stream.handle), close=close, about=about_runtime()))


# ---- C libraries ----

LIBRARIES = {
    "mimalloc": (("libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"), "mi_malloc", "mi_free"),
    "jemalloc": (("libjemalloc.so.2", "libjemalloc.so"), "malloc", "free"),
    "tcmalloc": (("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), "tc_malloc", "tc_free"),
}


def library_path(files: Sequence[str]) -> str:
    """Return the path of the first of these files that is found where the loader searches.

    Raises
    ------
    Unavailable
        None of the files is found.
    """
    for file in files:
        if "/" in file and Path(file).is_file():
            return str(Path(file).resolve())
        asked = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
        for folder in (*asked, *LIBRARY_FOLDERS):
            for path in sorted(Path("/").glob(f"{os.path.abspath(folder)[1:]}/{file}")):
                return str(path)
    raise Unavailable(f"no file {', '.join(files)}")


def address_of(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def open_library(name: str, files: Sequence[str], malloc: str, free: str) -> Opened:
    """Return an opened allocator for a library that was loaded when this process started."""
    try:
        path = library_path(files)
        library = ctypes.CDLL(path)
        subject = _peers.library(name, address_of(library, malloc), address_of(library, free), library)
    except (OSError, AttributeError) as error:
        raise Unavailable(str(error)) from error
    return Opened(subject, host=True, about=about_library(path, library, malloc))


def open_glibc() -> Opened:
    libc = ctypes.CDLL("libc.so.6")
    subject = _peers.library("glibc", address_of(libc, "malloc"), address_of(libc, "free"), libc)
    return Opened(subject, host=True, about=about_library(library_path(["libc.so.6"]), libc, "malloc"))


def library_candidate(name: str, files: Sequence[str], malloc: str, free: str, **more: Any) -> Candidate:
    """Return a candidate whose library is preloaded, because some libraries fail or abort if they are loaded later."""
    return Candidate(name, lambda: open_library(name, files, malloc, free),
                     environment=lambda: {"LD_PRELOAD": library_path(files)}, **more)


# ---- Python behind ctypes ----

class FreeListAllocator:
    """A minimal Python allocator with a dict of free lists; its addresses are only numbers."""

    def __init__(self) -> None:
        self.top = 1 << 40
        self.reserved = self.most = 0
        self.sizes: dict[int, int] = {}
        self.free_lists: dict[int, list[int]] = {}

    def alloc(self, state: int | None, size: int) -> int:
        """Return a block from the free list of exactly this size, or a new one."""
        stock = self.free_lists.get(size)
        if stock:
            return stock.pop()
        rounded = (size + 511) // 512 * 512
        if self.reserved + rounded > FLUSH_AT:
            self.flush()
        block = self.top
        self.top += rounded
        self.reserved += rounded
        self.sizes[block] = size
        return block

    def free(self, state: int | None, block: int) -> None:
        """Put the block on its free list."""
        size = self.sizes[block]
        stock = self.free_lists.get(size)
        if stock is None:
            self.free_lists[size] = [block]
        else:
            stock.append(block)

    def flush(self) -> None:
        """Return all free blocks to the device; called when the device is full."""
        self.most = max(self.most, self.reserved)
        for size, stock in self.free_lists.items():
            self.reserved -= len(stock) * ((size + 511) // 512 * 512)
            for block in stock:
                del self.sizes[block]
        self.free_lists.clear()


def ctypes_subject(name: str, alloc: Callable[..., int], free: Callable[..., None]) -> Subject:
    functions = (
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(alloc),
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(free),
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda block: block),
    )
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    return Subject(name, 0, addresses[0], addresses[1], addresses[2], functions)


def open_ctypes() -> Opened:
    def another() -> Subject:
        allocator = FreeListAllocator()
        return ctypes_subject("ctypes", allocator.alloc, allocator.free)

    first = FreeListAllocator()
    return Opened(ctypes_subject("ctypes", first.alloc, first.free), another, reserved=lambda: first.reserved,
                  reserved_peak=lambda: max(first.most, first.reserved), about=about_ours())


def open_ctypes_empty() -> Opened:
    return Opened(ctypes_subject("ctypes_empty", lambda state, size: 4096, lambda state, block: None),
                  about=about_ours())


# ---- other pools, on a device without memory that counts bytes ----

class Counted:
    """A device without memory that counts bytes, for pools that allocate from a device."""

    def __init__(self) -> None:
        self.top = 1 << 40
        self.sizes: dict[int, int] = {}
        self.reserved = self.most = 0

    def malloc(self, size: int, device: int = 0) -> int:
        """Return a new address."""
        size = (size + 511) // 512 * 512
        self.top += size
        self.sizes[self.top - size] = size
        self.reserved += size
        self.most = max(self.most, self.reserved)
        return self.top - size

    def free(self, address: int, device: int = 0) -> None:
        """Count the block as returned."""
        self.reserved -= self.sizes.pop(address)

    def opened(self, name: str, allocate: Callable[[int], Any], version: str) -> Opened:
        """Return an opened allocator on this device."""
        return Opened(_peers.python(name, allocate), reserved=lambda: self.reserved,
                      reserved_peak=lambda: self.most, call=allocate, about={"version": version, "build": None})


def open_cupy() -> Opened:
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
        from cupy.cuda import memory  # type: ignore[import-not-found, unused-ignore]
    except Exception as error:
        raise Unavailable(f"CuPy does not import: {error}") from error
    device = Counted()
    try:
        pool = memory.MemoryPool(memory.PythonFunctionAllocator(
            lambda size, index: device.malloc(size), lambda address, index: device.free(address),
        ).malloc)
        pool.malloc(512)
    except Exception as error:
        raise Unavailable(f"CuPy's pool does not work without a GPU: {error}") from error
    return device.opened("cupy", pool.malloc, cupy.__version__)


def open_rmm() -> Opened:
    try:
        import rmm  # type: ignore[import-not-found, unused-ignore]
    except Exception as error:
        raise Unavailable(f"RMM does not import: {error}") from error
    device = Counted()
    try:
        base = rmm.mr.CallbackMemoryResource(
            lambda size, stream=None: device.malloc(size), lambda address, size, stream=None: device.free(address))
        pool = rmm.mr.PoolMemoryResource(base, initial_pool_size=0)
        rmm.DeviceBuffer(size=512, mr=pool)
    except Exception as error:
        raise Unavailable(f"RMM's pool does not work without a GPU: {error}") from error
    return device.opened("rmm", lambda size: rmm.DeviceBuffer(size=size, mr=pool), rmm.__version__)


# ---- other policies, and the user's allocators ----

def open_policy(name: str) -> Opened:
    from acl.tools.replay.policies import load_policies

    rivals = load_policies()
    ledger = rivals.Ledger()
    return Opened(rivals.Policy(name, ledger).subject(), lambda: rivals.Policy(name, ledger).subject(),
                  reserved_peak=lambda: ledger.reserved_peak, reserved=lambda: ledger.reserved, about=about_ours())


def function_address(value: Any) -> int:
    """Return the address of a function that is given as a number or as a ctypes function."""
    return value if isinstance(value, int) else ctypes.cast(value, ctypes.c_void_p).value or 0


def own_subject(name: str, made: Any) -> Subject:
    """Return a Subject for the object that a user's factory returned; docs/benchmarking.md describes the interface."""
    if callable(getattr(made, "allocate", None)):
        block = made.allocate(512)
        if not isinstance(getattr(block, "ptr", None), int):
            raise TypeError(f"{name}: allocate(512) gave a {type(block).__name__} without ptr, its address")
        return _peers.python(name, made.allocate)
    missing = [key for key in ("alloc", "free") if not hasattr(made, key)]
    if missing:
        raise TypeError(f"{name}: the factory's {type(made).__name__} has neither allocate(size) nor {missing[0]}")
    return _peers.functions(name, getattr(made, "state", 0), function_address(made.alloc), function_address(made.free),
                            function_address(getattr(made, "address", 0)), made)


def open_own(name: str, module: str, factory: str) -> Opened:
    target: Any = importlib.import_module(module)
    for part in factory.split("."):
        target = getattr(target, part)
    made = target()
    if isinstance(made, Opened):
        return made
    another = (lambda: own_subject(name, made.another())) if hasattr(made, "another") else None
    return Opened(own_subject(name, made), another, getattr(made, "close", lambda: None),
                  getattr(made, "reserved_peak", None), getattr(made, "reserved", None),
                  host=getattr(made, "host", False), python=hasattr(made, "allocate"),
                  call=getattr(made, "allocate", None),
                  about={key: getattr(made, key, None) for key in ("version", "build")})


def pool_candidate(spec: str, text: str) -> Candidate:
    """Return a candidate for this package's pool with options, such as ``granule=32MiB,limit=8GiB``."""
    words = {"true": True, "false": False, "none": None}
    options = {}
    for part in filter(None, text.split(",")):
        key, found, value = part.partition("=")
        if not found:
            raise ValueError(f"--subject {spec}: expected option=value, got {part!r}")
        options[key.strip()] = words.get(value.lower(), int(value) if value.isdigit() else value)
    return Candidate(spec, lambda: open_pool(**options), scaled=True, from_python=True, spec=spec)


def candidate_of(spec: str) -> Candidate:
    """Return the candidate of a `spec`; the module's docstring lists the forms.

    Raises
    ------
    ValueError
        If the spec has none of the forms, or if no allocator or policy has its name.
    """
    kind, _, rest = spec.partition(":")
    if kind == "pool":
        return pool_candidate(spec, rest)
    if kind == "policy":
        from acl.tools.replay.policies import POLICY_NAMES, load_policies

        if rest not in POLICY_NAMES:
            raise ValueError(f"--subject {spec}: expected policy:NAME, one of {', '.join(POLICY_NAMES)}")
        load_policies()
        return Candidate(spec, lambda: open_policy(rest), shareable=False, spec=spec)
    if kind == "library":
        parts = re.fullmatch(r"(\w+)=(.+):(\w+):(\w+)", rest)
        if parts is None:
            raise ValueError(f"--library: expected NAME=FILE:MALLOC:FREE, got {rest!r}")
        name, file, malloc, free = parts.groups()
        return library_candidate(name, (file,), malloc, free, spec=spec, scaled=True)
    own = re.fullmatch(r"(?:([\w.-]+)=)?([\w.]+):([\w.]+)", spec)
    if own is not None:
        name, module, factory = own.groups()
        return Candidate(name or spec, lambda: open_own(name or spec, module, factory), scaled=True, spec=spec)
    for candidate in CANDIDATES:
        if candidate.name == spec:
            return candidate
    raise ValueError(f"no allocator is called {spec}")


def open_floor() -> Opened:
    return Opened(_peers.floor(), _peers.floor, call=lambda size: None, about=about_ours())


CANDIDATES = (
    Candidate("floor", open_floor, scaled=True, from_python=True, quick=True),
    Candidate("aclpool", open_pool, scaled=True, from_python=True, quick=True),
    Candidate("aclrtMalloc", open_runtime, from_python=True),
    Candidate("aclrtMalloc_latency", open_runtime, workloads=("W1", "W2"),
              environment=lambda: {"ACL_SIM_LATENCY": "memory"}),
    Candidate("aclrtMemPoolMallocAsync", open_soma),
    Candidate("glibc", open_glibc, quick=True),
    *(library_candidate(name, *LIBRARIES[name], quick=name != "jemalloc", scaled=name == "mimalloc")
      for name in LIBRARIES),
    Candidate("ctypes", open_ctypes, python=True, shareable=False, quick=True),
    Candidate("ctypes_empty", open_ctypes_empty, python=True),
    Candidate("cupy", open_cupy, python=True, from_python=True),
    Candidate("rmm", open_rmm, python=True, from_python=True),
)


def plugged_in() -> dict[str, str]:
    """Return a dict from name to ``module:factory``: the entry points ``aclpool.allocators`` of installed packages."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group="aclpool.allocators")}


def choose(wanted: str, quick: bool = False) -> tuple[Candidate, ...]:
    """Return the candidates for the text of `--peers`; the floor and this package's pool are always among them.

    With `quick`, the text "all" means only the candidates that a quick run measures.

    Raises
    ------
    ValueError
        If the text names an allocator that is neither in this file nor an entry point.
    """
    if wanted == "all":
        return tuple(candidate for candidate in CANDIDATES if candidate.quick or not quick)
    names = ["floor", "aclpool"]
    if wanted != "none":
        names += [name.strip() for name in wanted.split(",") if name.strip()]
    known = {candidate.name: candidate for candidate in CANDIDATES}
    offered = plugged_in() if set(names) - set(known) else {}
    for name in names:
        if name not in known and name not in offered:
            raise ValueError(f"--peers: no allocator is called {name}; there are all, none and "
                             + ", ".join([*known, *offered]))
        if name not in known:
            known[name] = candidate_of(f"{name}={offered[name]}")
    return tuple(candidate for name, candidate in known.items() if name in names)
