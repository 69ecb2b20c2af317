"""The pool as torch_npu's allocator.

After `install()`, every tensor of the process is allocated from the pool.  With `mem_pool(pool)`, only tensors that
are made inside a `torch.npu.use_mem_pool` block are.  Both give torch_npu the C functions `aclpool_malloc` and
`aclpool_free` of `allocator_path()`.  Python code runs only to note the stack of a tensor for a recording, and when a
device's pool is made.

torch_npu frees a block when its tensor is deleted.  That may be before its task queue has launched the work on the
block.  So after `install()`, a freed block is used again only on its own stream.  Its pages are used elsewhere only
after torch's queue has been emptied, by `torch.npu.empty_cache()` or because memory is short.

`import acl.torch` needs torch and torch_npu; on a machine without CANN it loads the simulator for them.
"""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from acl.adapters._preload import preload
from acl.adapters.pluggable import _door
from acl.adapters.torch import _stats as _torch_stats
from acl.pool._pool import Pool
from acl.runtime._device import Device

__all__ = ["Installed", "allocator_path", "install", "mem_pool", "pools"]

preload()
try:
    torch: Any = importlib.import_module("torch")
    torch_npu: Any = importlib.import_module("torch_npu")
except ImportError as _error:
    raise ImportError(
        f"acl.torch needs torch and torch_npu of one version (pip install torch torch-npu pyyaml): {_error}"
    ) from _error

#: C++ symbol of torch_npu's function that empties its task queue and waits for the device.
_DRAIN = "_ZN7c10_npu20npuSynchronizeDeviceEb"
#: C++ symbol of torch_npu's allocator variable, which `change_current_allocator` sets.
_ALLOCATOR = "_ZN7c10_npu19NPUCachingAllocator9allocatorE"
#: C++ symbol that sets torch's allocator of a device type, which storages, `torch.load` and `torch.accelerator` use.
_SET_ALLOCATOR = "_ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh"
_PRIVATE_USE = 20           # c10::DeviceType::PrivateUse1
_HIGHEST = 255              # highest priority that an allocator of a device type can have
#: C++ symbol of the standard library's function that throws a std::runtime_error.
_THROW = "_ZSt21__throw_runtime_errorPKc"

_WITHOUT_SHIM = (
    "out of memory is a RuntimeError instead of torch.OutOfMemoryError",
    "memory of a tensor given to record_stream waits for empty_cache or a shortage, even on its own stream",
    "C++ code that asks torch for the statistics ends the process; Python's questions are answered",
)


@dataclass(frozen=True)
class Installed:
    """The result of `install`.

    Attributes
    ----------
    shim : bool
        True if the C++ part, which is built for the installed torch, is in use.
    lost : tuple of str
        The functions that do not work because the C++ part is not in use; empty if it is.
    """

    shim: bool
    lost: tuple[str, ...] = ()


_installed: Installed | None = None
_kept: list[object] = []


def allocator_path() -> str:
    """Return the path of the shared library with `aclpool_malloc` and `aclpool_free`.

    Use it in programs that make their own `NPUPluggableAllocator`.  Only `install` also sets the optional
    hooks; without them, a query of torch's statistics ends the process.
    """
    return _door.path()


def pools() -> dict[int, Pool]:
    """Return the pools of `install` by device, including those that it made when a device was first used."""
    return _door.pools()


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _torch_npu_library() -> ctypes.CDLL:
    """Return torch_npu's C++ library, which the process has loaded."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            if "/libtorch_npu.so" in line:
                return ctypes.CDLL(line.split(maxsplit=5)[5].strip())
    raise ImportError("torch_npu has not loaded libtorch_npu.so")


def _set_c_hooks(allocator: Any) -> None:
    """Set torch_npu's optional hooks that have a C ABI, and the functions that throw instead of returning NULL."""
    library = ctypes.CDLL(_door.path())
    allocator.set_reset_fn(_address(library, "aclpool_reset"))
    allocator.set_base_alloc_fn(_address(library, "aclpool_base"))
    allocator.set_memory_fraction_fn(_address(library, "aclpool_fraction"))
    allocator.set_reset_peak_status_fn(_address(library, "aclpool_reset_peak"))
    allocator.set_begin_allocate_to_pool(_address(library, "aclpool_refuse_capture"))
    allocator.set_record_stream_fn(_address(library, "aclpool_share_unknown"))
    throw = _address(ctypes.CDLL("libstdc++.so.6"), _THROW)
    _door.hook(drain=_address(_torch_npu_library(), _DRAIN), throw_memory=throw, throw_refusal=throw)


def _enter_table() -> None:
    """Enter torch_npu's current allocator in torch's table of allocators; torch_npu leaves its original one there."""
    current = ctypes.c_void_p.in_dll(_torch_npu_library(), _ALLOCATOR)
    enter = getattr(ctypes.CDLL("libc10.so", ctypes.RTLD_GLOBAL), _SET_ALLOCATOR)
    enter.argtypes, enter.restype = (ctypes.c_int8, ctypes.c_void_p, ctypes.c_uint8), None
    enter(_PRIVATE_USE, current, _HIGHEST)


def _set_cpp_hooks(allocator: Any) -> None:
    """Set torch_npu's optional hooks that use C++ objects of torch; raise OSError if there is no compiler."""
    from acl.adapters.torch import _shim as _torch_shim

    shim = _torch_shim.load()
    library = ctypes.CDLL(_door.path())
    connect = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(shim["aclpool_shim_connect"])
    connect(_address(library, "aclpool_stats"), _address(library, "aclpool_share"))
    allocator.set_get_device_stats_fn(shim["aclpool_shim_stats"])
    allocator.set_record_stream_fn(shim["aclpool_shim_record"])
    marks = (shim["aclpool_shim_mark"], shim["aclpool_shim_mark_done"], shim["aclpool_shim_mark_drop"])
    _door.hook(throw_memory=shim["aclpool_shim_throw"], marks=marks)


def _snapshot(mempool_id: tuple[int, int] | None = None) -> dict[str, Any]:
    count = torch.npu.device_count()
    if mempool_id is not None and tuple(mempool_id) != (0, 0):
        return _torch_stats.snapshot({device: [] for device in range(count)})
    return _torch_stats.snapshot({device: _door.segments(device) for device in range(count)})


def _fraction(device: int) -> float:
    pool = pools().get(device)
    if pool is None:
        return 1.0
    limit = pool.stats().limit
    return limit / int(torch.npu.mem_get_info(device)[1]) if limit else 1.0


def _patch(stats: bool) -> None:
    """Replace functions of torch_npu that would end the process and for which torch_npu has no hook."""
    functions = torch_npu._C
    functions._npu_memorySnapshot = _snapshot
    functions._npu_resetAccumulatedMemoryStats = lambda device: _door.reset(device, peaks=False)
    functions._npu_getMemoryFraction = _fraction
    torch._C._accelerator_emptyCache = torch.npu.empty_cache
    torch._C._accelerator_resetAccumulatedStats = torch.npu.reset_accumulated_memory_stats
    if stats:
        functions._npu_memoryStats = lambda device: _torch_stats.nested_stats(_door.stats(device))


def _attach(pool: Pool | Iterable[Pool] | None) -> None:
    several = pool if isinstance(pool, Iterable) else [] if pool is None else [pool]
    found = list(several)
    for one in found:
        if not isinstance(one, Pool):
            raise TypeError(f"pool must be an acl.Pool, several or None, not {type(one).__name__}")
    for one in found:
        _door.attach(one, early=True)
    if found:
        _device_back()


def _device_back() -> None:
    """Make torch's device current again, because making pools has made their devices current."""
    Device(int(torch.npu.current_device()) if torch.npu.is_initialized() else 0).use()


def install(pool: Pool | Iterable[Pool] | None = None, *, shim: bool = True) -> Installed:
    """Allocate every tensor of the process from the pool.

    Call this before the first tensor is made on a device; torch_npu refuses a change afterwards.  It cannot be
    undone.

    Parameters
    ----------
    pool : Pool or several, optional
        The pools to use, one for each device.  Any other device gets a pool without a limit when it is first used
        (see `pools`).
    shim : bool
        True to use the C++ part.  The first time, it is built, which takes some seconds.

    Returns
    -------
    Installed
        The state after the call: is the C++ part in use, and which functions do not work?

    Warns
    -----
    RuntimeWarning
        The C++ part cannot be built.

    Raises
    ------
    RuntimeError
        A tensor was made on a device before this call.
    """
    global _installed
    if _installed is not None:
        _attach(pool)
        return _installed
    _attach(pool)
    made = torch_npu.npu.memory.NPUPluggableAllocator(_door.path(), "aclpool_malloc", "aclpool_free")
    _set_c_hooks(made.allocator())
    found = Installed(shim=False, lost=_WITHOUT_SHIM)
    if shim:
        try:
            _set_cpp_hooks(made.allocator())
            found = Installed(shim=True)
        except OSError as error:
            warnings.warn(
                f"acl.torch: no C++ part ({error}); {'; '.join(_WITHOUT_SHIM)}", RuntimeWarning, stacklevel=2
            )
    torch_npu.npu.memory.change_current_allocator(made)
    _enter_table()
    _patch(stats=not found.shim)
    _kept.append(made)
    _installed = found
    return found


def _tell_why(device: int, nbytes: int, total: int, free: int) -> None:
    """Raise the pool's error if an allocation failed, because it names the limit; torch's own error does not."""
    failed = _door.failure()
    if failed is None:
        return
    seat, text = failed
    pool = _door.pools(seat).get(device)
    report = None if pool is None else pool.last_oom()
    raise torch.OutOfMemoryError(text if report is None else f"{text}: {report}")


def mem_pool(pool: Pool | None = None) -> Any:
    """Return a `torch.npu.MemPool` that allocates from a pool, for `torch.npu.use_mem_pool`.

    torch's cache allocates segments of 2 MiB and more from the pool.  It frees them when the MemPool is deleted, after
    the device has finished its work on them.  Errors and statistics are torch's own.

    Parameters
    ----------
    pool : Pool, optional
        The pool.  Default: a new pool without a limit on the current device.

    Returns
    -------
    torch.npu.MemPool
    """
    if _installed is not None:
        raise RuntimeError("after acl.torch.install() torch_npu cannot make a MemPool")
    if pool is None:
        pool = Pool(torch.npu.current_device())
    seat = _door.attach(pool, early=False, own=True)
    _device_back()
    made = torch_npu.npu.memory.NPUPluggableAllocator(
        _door.path(), f"aclpool_malloc_{seat}", f"aclpool_free_{seat}"
    )
    _kept.append(made)
    memory = torch_npu.npu.memory.MemPool(made.allocator())
    torch.npu.set_device(torch.npu.current_device())    # so that torch stores the device as its current one
    if _tell_why not in _kept:
        _kept.append(_tell_why)
        torch_npu._C._npu_attach_out_of_memory_observer(_tell_why)
    return memory
