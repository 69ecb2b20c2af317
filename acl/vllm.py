"""Adapter for vLLM-Ascend's sleep mode: it replaces the allocator module of vLLM-Ascend.

After `install()`, vLLM-Ascend's import of its extension module gets `acl.adapters.vllm.vllm_ascend_C` instead.  So
vLLM-Ascend's `camem.py` uses this package without a change, even if it was imported before `install()`.  The
original module also registers operators with torch; `install(operators=True)` loads it for these operators.

This module imports torch or vLLM-Ascend only if `operators` is set.
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
_TELLER = "vllm-ascend"                 # name under which the ledger has the adapter's rows
_before: list[ModuleType | None] = []
_camem_before: dict[str, object] = {}   # old values of camem's names that `_put` has changed, for `uninstall`


def _ours() -> ModuleType:
    return importlib.import_module("acl.adapters.vllm.vllm_ascend_C")


def _put(module: ModuleType) -> None:
    """Let `import vllm_ascend.vllm_ascend_C` find `module`; if camem is imported already, set the functions in it."""
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
    """Return the path of vLLM-Ascend's own extension module."""
    spec = find_spec("vllm_ascend")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("vllm_ascend_C*.so")):
            return path
    raise ImportError("operators=True needs vllm_ascend with its vllm_ascend_C*.so, which is not installed")


def install(pool: Pool | None = None, *, operators: bool = False) -> str:
    """Use this package for vLLM-Ascend's sleep mode from now on.

    Call this before the first `CaMemAllocator.use_memory_pool`, because this package cannot free segments that
    vLLM-Ascend's own module has made.

    Parameters
    ----------
    pool : acl.Pool, optional
        The pool for segments on its device.  The pool can use the memory of sleeping segments, and its limit and
        its rows of the ledger include all segments.  Without a pool, the driver allocates each segment, and the
        ledger has rows of the process with the tags of `camem.py`.  Existing segments are not changed.
    operators : bool
        True to also load vLLM-Ascend's own module, for the operators that it registers with torch.  This also
        imports vLLM-Ascend's `camem`, because two libraries then have one name, and `camem` must use this one.

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
    _ledger.tellers[_TELLER] = ours.driver_parts        # kept after `uninstall`, because segments may still exist
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
        _put(previous)                                  # also sets the functions of `previous` in camem
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
