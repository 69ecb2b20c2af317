"""Adapter for vLLM-Ascend's sleep mode, which replaces the allocator module of vLLM-Ascend.

After `install()`, vLLM-Ascend's import of its extension module gets `acl.adapters.vllm.vllm_ascend_C`, so its
`camem.py` uses this package without a change, whether it is imported before or after.  The vendor's module
also registers operators with torch; `install(operators=True)` loads it for them.

Nothing here imports torch or vLLM-Ascend unless `operators` is set.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from acl.inside import _ledger
from acl.pool._pool import Pool

__all__ = ["install", "installed", "uninstall"]

_NAME = "vllm_ascend.vllm_ascend_C"
_CAMEM = "vllm_ascend.device_allocator.camem"
_FUNCTIONS = ("init_module", "python_create_and_map", "python_unmap_and_release")
_TELLER = "vllm-ascend"                 # name of the adapter's rows in the ledger
_before: list[ModuleType | None] = []
_camem_before: dict[str, object] = {}   # old values of camem's names that `_put` has changed, for `uninstall`


def _ours() -> ModuleType:
    return importlib.import_module("acl.adapters.vllm.vllm_ascend_C")


def _put(module: ModuleType) -> None:
    """Let `import vllm_ascend.vllm_ascend_C` find `module`, and set its functions in camem, if that is imported."""
    sys.modules[_NAME] = module
    package = sys.modules.get("vllm_ascend")
    if package is not None:
        package.vllm_ascend_C = module  # type: ignore[attr-defined]
    camem = sys.modules.get(_CAMEM)
    if camem is not None:
        changes = {name: getattr(module, name) for name in _FUNCTIONS}
        changes |= {"lib_name": module.__file__, "camem_available": True}
        for name, value in changes.items():
            _camem_before.setdefault(name, getattr(camem, name, None))
            setattr(camem, name, value)


def _vendor_library() -> Path:
    """Return the path of the vendor's extension module in its package."""
    spec = find_spec("vllm_ascend")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("vllm_ascend_C*.so")):
            return path
    raise ImportError("operators=True needs vllm_ascend with its vllm_ascend_C*.so, which is not installed")


def install(pool: Pool | None = None, *, operators: bool = False) -> str:
    """Serve vLLM-Ascend's sleep mode from now on.

    Call it before the first `CaMemAllocator.use_memory_pool`: segments that the vendor's module has made
    cannot be freed by this package.

    Parameters
    ----------
    pool : acl.Pool, optional
        The pool that serves segments on its device: the pool can use the memory of sleeping segments, and
        one limit and one ledger apply to all memory.  Without a pool, the driver allocates each segment,
        and the ledger has it in rows of the process with the tags of `camem.py`.  Existing segments are
        not changed.
    operators : bool
        True to load the vendor's module too, for the operators that it registers with torch.  This also
        imports vLLM-Ascend's `camem`, which must then be told which of two libraries of one name to use.

    Returns
    -------
    str
        Path of this package's library, with the C symbols `my_malloc` and `my_free`.
    """
    ours = _ours()
    if pool is not None and not isinstance(pool, Pool):
        raise TypeError(f"pool must be an acl.Pool or None, not {type(pool).__name__}")
    vendors = _vendor_library() if operators else None
    if not installed():
        _before.append(sys.modules.get(_NAME))
    ours.serve(pool)
    _ledger.tellers[_TELLER] = ours.driver_parts        # kept after `uninstall`, as segments may still exist
    _put(ours)
    if vendors is not None:
        ctypes.CDLL(str(vendors), mode=ctypes.RTLD_GLOBAL)
        importlib.import_module(_CAMEM)
        _put(ours)
    assert ours.__file__ is not None
    return ours.__file__


def uninstall() -> None:
    """Restore the modules from before `install`; a second call does nothing."""
    if not _before:
        return
    _ours().serve(None)
    previous = _before.pop()
    changed = dict(_camem_before)
    _camem_before.clear()
    if previous is not None:
        _put(previous)                                  # this sets its functions in camem too
        _camem_before.clear()
        return
    sys.modules.pop(_NAME, None)
    package = sys.modules.get("vllm_ascend")
    if package is not None and hasattr(package, "vllm_ascend_C"):
        del package.vllm_ascend_C
    camem = sys.modules.get(_CAMEM)
    for name, value in changed.items() if camem is not None else ():
        setattr(camem, name, value)


def installed() -> bool:
    """Return True if `import vllm_ascend.vllm_ascend_C` finds this package's module."""
    return sys.modules.get(_NAME) is _ours()
