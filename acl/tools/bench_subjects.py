"""The allocators that `aclpool bench` compares: how each is found, opened and closed.

`available(names)` gives one `Candidate` per allocator; `open()` makes a `Subject` for the loops or
raises `Unavailable` with the reason, which the table shows. Nothing is installed or downloaded: what
is not on the machine is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import acl
from acl.tools import _meter, _peers
from acl.tools._loops import Subject

__all__ = ["CANDIDATES", "Candidate", "Opened", "PoolUnderTest", "Unavailable", "choose", "inside"]

FLUSH_AT = 64 << 30
LIBRARY_FOLDERS = ("/usr/local/lib", "/usr/lib/*-linux-gnu", "/lib/*-linux-gnu", "/usr/lib64", "/usr/lib")


class Unavailable(Exception):
    """Why an allocator cannot be measured here."""


@dataclass
class Opened:
    """An open allocator: its subjects, one per arena, and what closes it."""

    subject: Subject
    another: Callable[[], Subject] | None = None    # a second arena of the same allocator
    close: Callable[[], None] = lambda: None
    books: Callable[[], int] | None = None          # most bytes reserved so far
    under_test: PoolUnderTest | None = None

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
        Its callbacks run Python code: thousands of times slower on some threads.
    shareable : bool
        Several threads may use one subject.
    environment : callable, optional
        The variables that it must find when its process begins; then it gets a process of its own.
    workloads : tuple of str, optional
        The only ones that it is measured with, if the others would take too long.
    """

    name: str
    open: Callable[[], Opened]
    python: bool = False
    shareable: bool = True
    environment: Callable[[], dict[str, str]] | None = None
    workloads: tuple[str, ...] | None = None


# ---- ours ----

class SimulatorBooks:
    """Physical bytes by the simulator's own count, above what was taken before."""

    def __init__(self) -> None:
        self.base = acl.sim.physical_bytes(0)
        acl.sim.reset_physical_peak(0)

    def reserved(self) -> int:
        """Bytes taken now."""
        return int(acl.sim.physical_bytes(0) - self.base)

    def reserved_peak(self) -> int:
        """Most bytes taken at any time since this was made."""
        return int(acl.sim.physical_peak(0) - self.base)


class PoolBooks:
    """The pool's own count, for a device whose books nobody keeps for us."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def reserved(self) -> int:
        """Bytes reserved now."""
        return int(self.pool.stats().reserved)

    def reserved_peak(self) -> int:
        """Most bytes reserved at any time."""
        return int(self.pool.stats().reserved_peak)


class PoolUnderTest:
    """A pool on device 0 whose arenas are reached the way ACL reaches them."""

    def __init__(self, **options: Any) -> None:
        acl.Device(0).use()
        simulated = acl.backend() == "sim"
        books = SimulatorBooks() if simulated else None
        # A pool takes its driver functions when it is made: the wrappers stay with this one alone.
        _meter.start()
        try:
            self.pool = acl.Pool(device=0, **options)
        finally:
            _meter.stop()
        self.books: SimulatorBooks | PoolBooks = books or PoolBooks(self.pool)
        self.streams: list[Any] = []

    def subject(self) -> Subject:
        """The arena of a new stream, through `aclrtAllocatorGetByStream`."""
        stream = acl.Stream()
        self.streams.append(stream)
        self.pool.register(stream)
        return _peers.registered("aclpool", stream.handle, (self.pool, stream))

    def steals(self) -> int:
        """How often pages were moved inside the pool, by its own count."""
        return int(self.pool.stats().steals)

    def close(self) -> None:
        """Unregister and give the memory back; every block must be free by then."""
        for stream in self.streams:
            stream.synchronize()
            self.pool.unregister(stream)
            stream.close()
        self.streams.clear()
        self.pool.close()


def open_pool() -> Opened:
    try:
        under_test = PoolUnderTest()
    except (ImportError, AttributeError, OSError) as error:
        raise Unavailable(f"no pool here: {error}") from error
    return Opened(under_test.subject(), under_test.subject, under_test.close,
                  under_test.books.reserved_peak, under_test)


# ---- the runtime's own ----

def runtime_ready() -> None:
    try:
        acl.Device(0).use()
    except (ImportError, AttributeError, OSError) as error:
        raise Unavailable(f"no runtime here: {error}") from error


def open_runtime() -> Opened:
    runtime_ready()
    return Opened(_peers.runtime())


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

    return Opened(_peers.soma(pool, stream.handle), close=close)


# ---- C libraries ----

LIBRARIES = {
    "glibc": (("libc.so.6",), "malloc", "free"),
    "mimalloc": (("libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"), "mi_malloc", "mi_free"),
    "jemalloc": (("libjemalloc.so.2", "libjemalloc.so"), "malloc", "free"),
    "tcmalloc": (("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), "tc_malloc", "tc_free"),
}


def library_path(file: str) -> str | None:
    """Where the loader finds a library, without keeping it open."""
    for folder in LIBRARY_FOLDERS:
        for path in sorted(Path("/").glob(f"{folder[1:]}/{file}")):
            return str(path)
    return None


def open_library(name: str) -> Opened:
    files, malloc, free = LIBRARIES[name]
    reasons = []
    for file in files:
        try:
            library = ctypes.CDLL(file)
            functions = [ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
                         for symbol in (malloc, free)]
        except (OSError, AttributeError) as error:
            reasons.append(str(error))
            continue
        return Opened(_peers.library(name, functions[0], functions[1], library))
    raise Unavailable("; ".join(reasons))


# ---- Python behind ctypes ----

class FreeListAllocator:
    """The least that a Python allocator must do: a dict of free lists, addresses that are numbers."""

    def __init__(self) -> None:
        self.top = 1 << 40
        self.reserved = 0
        self.sizes: dict[int, int] = {}
        self.free_lists: dict[int, list[int]] = {}

    def alloc(self, state: int | None, size: int) -> int:
        """A block from the free list of exactly this size, or a new one."""
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
        """Back to the free list."""
        size = self.sizes[block]
        stock = self.free_lists.get(size)
        if stock is None:
            self.free_lists[size] = [block]
        else:
            stock.append(block)

    def flush(self) -> None:
        """What is free goes back to the device, when that is full."""
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

    return Opened(another(), another)


def open_ctypes_empty() -> Opened:
    return Opened(ctypes_subject("ctypes_empty", lambda state, size: 4096, lambda state, block: None))


# ---- other pools, on a device of numbers ----

class Counted:
    """Device memory that is only counted, for pools that want a device under them."""

    def __init__(self) -> None:
        self.top = 1 << 40

    def malloc(self, size: int, device: int = 0) -> int:
        """A new address."""
        self.top += (size + 511) // 512 * 512
        return self.top - (size + 511) // 512 * 512

    def free(self, address: int, device: int = 0) -> None:
        """Nothing to do."""


def open_cupy() -> Opened:
    try:
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
    return Opened(_peers.python("cupy", pool.malloc))


def open_rmm() -> Opened:
    try:
        import rmm  # type: ignore[import-not-found, unused-ignore]
    except Exception as error:
        raise Unavailable(f"RMM does not import: {error}") from error
    device = Counted()
    try:
        base = rmm.mr.CallbackMemoryResource(
            lambda size, stream=None: device.malloc(size), lambda address, size, stream=None: None)
        pool = rmm.mr.PoolMemoryResource(base, initial_pool_size=0)
        rmm.DeviceBuffer(size=512, mr=pool)
    except Exception as error:
        raise Unavailable(f"RMM's pool does not work without a GPU: {error}") from error
    return Opened(_peers.python("rmm", lambda size: rmm.DeviceBuffer(size=size, mr=pool)))


def open_preloaded(name: str) -> Opened:
    """In the process in which it is the malloc."""
    process = ctypes.CDLL(None)
    functions = [ctypes.cast(getattr(process, symbol), ctypes.c_void_p).value or 0
                 for symbol in LIBRARIES[name][1:]]
    return Opened(_peers.library(name, functions[0], functions[1]))


def preload(name: str) -> dict[str, str]:
    """The variable that makes a library the malloc of a process."""
    for file in LIBRARIES[name][0]:
        path = library_path(file)
        if path is not None:
            return {"LD_PRELOAD": path}
    raise Unavailable(f"none of {', '.join(LIBRARIES[name][0])} is installed")


def inside(candidate: Candidate) -> Candidate:
    """A candidate, in the process of its own."""
    return replace(candidate, environment=None)


def open_floor() -> Opened:
    return Opened(_peers.floor(), _peers.floor)


def library_candidate(name: str) -> Candidate:
    if name in ("jemalloc", "tcmalloc"):    # loaded later, the one refuses and the other aborts
        return Candidate(name, lambda: open_preloaded(name), environment=lambda: preload(name))
    return Candidate(name, lambda: open_library(name))


CANDIDATES = (
    Candidate("floor", open_floor),
    Candidate("aclpool", open_pool),
    Candidate("aclrtMalloc", open_runtime),
    Candidate("aclrtMalloc_latency", open_runtime, workloads=("W1", "W2"),
              environment=lambda: {"ACL_SIM_LATENCY": "memory"}),
    Candidate("aclrtMemPoolMallocAsync", open_soma),
    *(library_candidate(name) for name in LIBRARIES),
    Candidate("ctypes", open_ctypes, python=True, shareable=False),
    Candidate("ctypes_empty", open_ctypes_empty, python=True),
    Candidate("cupy", open_cupy, python=True),
    Candidate("rmm", open_rmm, python=True),
)


def choose(wanted: str) -> tuple[Candidate, ...]:
    """The candidates that `--peers` asks for; the floor and ours are always among them.

    Raises
    ------
    ValueError
        For a name that no allocator here has.
    """
    if wanted == "all":
        return CANDIDATES
    names = {"floor", "aclpool"}
    if wanted != "none":
        names |= {name.strip() for name in wanted.split(",") if name.strip()}
    unknown = names - {candidate.name for candidate in CANDIDATES}
    if unknown:
        known = ", ".join(candidate.name for candidate in CANDIDATES)
        raise ValueError(f"--peers: no allocator is called {', '.join(sorted(unknown))}; "
                         f"there are all, none and {known}")
    return tuple(candidate for candidate in CANDIDATES if candidate.name in names)
