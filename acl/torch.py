"""The pool as torch_npu's allocator.

`install()` puts it behind every tensor of the process, `mem_pool(pool)` behind the tensors that are
made inside a `torch.npu.use_mem_pool` block.  Both give torch_npu the C functions `aclpool_malloc`
and `aclpool_free` of `allocator_path()`; Python runs only to note the stack of a tensor for a
recording, and when a device's pool is made.

torch_npu frees a block when its tensor dies, which may be before the work on it left its task queue.
So after `install()` a block is used again for its own stream only, and no page leaves the stream
before torch's queue has been emptied: by `torch.npu.empty_cache()`, or when memory is short.

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

#: torch_npu's own function that empties its task queue and waits for the device, as C++ spells it.
_DRAIN = "_ZN7c10_npu20npuSynchronizeDeviceEb"
#: Its allocator: what `change_current_allocator` sets.
_ALLOCATOR = "_ZN7c10_npu19NPUCachingAllocator9allocatorE"
#: Torch's own table of allocators by devices, which storages, `torch.load` and `torch.accelerator` ask.
_SET_ALLOCATOR = "_ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh"
_PRIVATE_USE = 20           # c10::DeviceType::PrivateUse1
_HIGHEST = 255              # of the priorities of that table
#: The C++ library's function that throws a std::runtime_error, likewise.
_THROW = "_ZSt21__throw_runtime_errorPKc"

_WITHOUT_SHIM = (
    "out of memory is a RuntimeError instead of torch.OutOfMemoryError",
    "memory of a tensor given to record_stream waits for empty_cache or a shortage, even on its own stream",
    "C++ code that asks torch for the statistics ends the process; Python's questions are answered",
)


@dataclass(frozen=True)
class Installed:
    """What `install` has put in place.

    Attributes
    ----------
    shim : bool
        Whether the C++ part could be built against the installed torch.
    lost : tuple of str
        What does not work without it; empty with it.
    """

    shim: bool
    lost: tuple[str, ...] = ()


_installed: Installed | None = None
_kept: list[object] = []


def allocator_path() -> str:
    """The shared library with `aclpool_malloc` and `aclpool_free`.

    For programs that make their own `NPUPluggableAllocator`.  Only `install` also sets the optional
    hooks, without which torch's statistics end the process.
    """
    return _door.path()


def pools() -> dict[int, Pool]:
    """The pools behind `install`, by device; one stands here once its device was first used."""
    return _door.pools()


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _torch_npu_library() -> ctypes.CDLL:
    """torch_npu's C++ library, which the process has loaded."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            if "/libtorch_npu.so" in line:
                return ctypes.CDLL(line.split(maxsplit=5)[5].strip())
    raise ImportError("torch_npu has not loaded libtorch_npu.so")


def _set_c_hooks(allocator: Any) -> None:
    """The optional functions whose ABI is C, and what stands in for a NULL."""
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
    """Put the current allocator where torch looks for the device's; torch_npu leaves its own there."""
    current = ctypes.c_void_p.in_dll(_torch_npu_library(), _ALLOCATOR)
    enter = getattr(ctypes.CDLL("libc10.so", ctypes.RTLD_GLOBAL), _SET_ALLOCATOR)
    enter.argtypes, enter.restype = (ctypes.c_int8, ctypes.c_void_p, ctypes.c_uint8), None
    enter(_PRIVATE_USE, current, _HIGHEST)


def _set_cpp_hooks(allocator: Any) -> None:
    """Those that take or return objects of torch; raises OSError without a compiler."""
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
    """Questions that torch_npu can hand to no hook, and on which it would end the process."""
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
    """Whoever makes a pool makes its device current; torch goes by the one that it remembers, at first 0."""
    Device(int(torch.npu.current_device()) if torch.npu.is_initialized() else 0).use()


def install(pool: Pool | Iterable[Pool] | None = None, *, shim: bool = True) -> Installed:
    """Serve every tensor of the process from the pool.

    Call it before the first tensor is made on a device; torch_npu refuses a change afterwards.  It
    lasts as long as the process.

    Parameters
    ----------
    pool : Pool or several, optional
        The pools to use, one for a device.  A device without one gets a pool of its own, without a
        limit, when it is first used (`pools` tells).
    shim : bool
        Whether to build the C++ part, if it is not there yet; it takes some seconds, once.

    Returns
    -------
    Installed
        What is in place, and what is lost.

    Warns
    -----
    RuntimeWarning
        If the C++ part cannot be built.

    Raises
    ------
    RuntimeError
        If tensors were made on a device before.
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
    """torch asks this before it raises its own error: that of a pool of ours names its limit."""
    failed = _door.failure()
    if failed is None:
        return
    seat, text = failed
    pool = _door.pools(seat).get(device)
    report = None if pool is None else pool.last_oom()
    raise torch.OutOfMemoryError(text if report is None else f"{text}: {report}")


def mem_pool(pool: Pool | None = None) -> Any:
    """A `torch.npu.MemPool` over a pool, for `torch.npu.use_mem_pool`.

    torch's own cache takes parts of 2 MiB and more from the pool, and gives them back when the MemPool
    is gone, after the device has done with them.  Out of memory is torch's own error, its statistics
    stay torch's.

    Parameters
    ----------
    pool : Pool, optional
        One for the current device, without a limit, if not given.

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
    torch.npu.set_device(torch.npu.current_device())    # torch remembers it from here on
    if _tell_why not in _kept:
        _kept.append(_tell_why)
        torch_npu._C._npu_attach_out_of_memory_observer(_tell_why)
    return memory
