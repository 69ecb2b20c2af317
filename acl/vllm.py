"""Adapter for vLLM-Ascend's sleep mode: its allocator module, replaced by ours.

`install()` puts `acl.adapters.vllm.vllm_ascend_C` where vLLM-Ascend looks for its own extension module, so that
its `camem.py` runs on ours unchanged, whether it is imported before or after.  The vendor's module also
registers operators with torch; `install(operators=True)` loads it for those.

Nothing here imports torch or vLLM-Ascend unless operators are asked for.
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
_TELLER = "vllm-ascend"                 # in the ledger
_before: list[ModuleType | None] = []
_camem_before: dict[str, object] = {}   # what `_put` has changed in camem; `uninstall` puts it back


def _ours() -> ModuleType:
    return importlib.import_module("acl.adapters.vllm.vllm_ascend_C")


def _put(module: ModuleType) -> None:
    """Make `module` what `import vllm_ascend.vllm_ascend_C` finds; a camem that is there gets its functions."""
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
    """The vendor's extension module beside its package."""
    spec = find_spec("vllm_ascend")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("vllm_ascend_C*.so")):
            return path
    raise ImportError("operators=True needs vllm_ascend with its vllm_ascend_C*.so, which is not installed")


def install(pool: Pool | None = None, *, operators: bool = False) -> str:
    """Serve vLLM-Ascend's sleep mode from here on.

    Call it before the first `CaMemAllocator.use_memory_pool`; segments that the vendor's module has
    made stay the vendor's, which cannot be freed through ours.

    Parameters
    ----------
    pool : acl.Pool, optional
        Where the memory comes from, on the pool's device: what sleeps is then the pool's to use, and
        one limit and one ledger hold for all.  Without it each segment is memory of the driver's own,
        in the ledger's rows of the process under `camem.py`'s tags.
        What is made already stays as it is.
    operators : bool
        Load the vendor's module too, for the operators that it registers with torch.  This imports
        vLLM-Ascend's `camem`, as two libraries of the name are in the process then and it has to be
        told which one to use.

    Returns
    -------
    str
        The path of our library, with the C symbols `my_malloc` and `my_free`.
    """
    ours = _ours()
    if pool is not None and not isinstance(pool, Pool):
        raise TypeError(f"pool must be an acl.Pool or None, not {type(pool).__name__}")
    vendors = _vendor_library() if operators else None
    if not installed():
        _before.append(sys.modules.get(_NAME))
    ours.serve(pool)
    _ledger.tellers[_TELLER] = ours.driver_parts        # for good: its segments may outlive `uninstall`
    _put(ours)
    if vendors is not None:
        ctypes.CDLL(str(vendors), mode=ctypes.RTLD_GLOBAL)
        importlib.import_module(_CAMEM)
        _put(ours)
    assert ours.__file__ is not None
    return ours.__file__


def uninstall() -> None:
    """Put back what was there before `install`; a second call does nothing."""
    if not _before:
        return
    _ours().serve(None)
    previous = _before.pop()
    changed = dict(_camem_before)
    _camem_before.clear()
    if previous is not None:
        _put(previous)                                  # and camem gets its functions
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
    """Whether `import vllm_ascend.vllm_ascend_C` finds ours."""
    return sys.modules.get(_NAME) is _ours()
