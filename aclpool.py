"""Our `acl`, whatever else is called `acl`: `import aclpool as acl`.

CANN's own module is a bare `acl.so` that `set_env.sh` puts ahead of site-packages.  Importing this
module loads our package from beside this file, makes it `sys.modules["acl"]`, and forwards every
name to it.  Names that only CANN's module has (`media`, `himpi`, `blas`, `fv`) are looked up there,
if it is installed, at first use.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acl import *  # noqa: F403

_FOLDER = Path(__file__).resolve().parent / "acl"
_VENDOR_ONLY = frozenset({"blas", "fv", "himpi", "media"})


def _is_ours(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().parent == _FOLDER


def _set_aside() -> dict[str, ModuleType]:
    """Take `acl` and everything below it out of `sys.modules`."""
    names = [name for name in sys.modules if name == "acl" or name.startswith("acl.")]
    return {name: sys.modules.pop(name) for name in names}


def _load(spec: importlib.machinery.ModuleSpec) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules["acl"] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return sys.modules["acl"]


def _load_ours() -> tuple[ModuleType, ModuleType | None]:
    """Our package, and CANN's module if that was imported before."""
    found = sys.modules.get("acl")
    if found is not None and _is_ours(found):
        return found, None
    before = _set_aside()
    spec = importlib.util.spec_from_file_location(
        "acl", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    if spec is None:
        raise ImportError(f"{_FOLDER} has no acl package")
    try:
        return _load(spec), found
    except BaseException:
        _set_aside()
        sys.modules.update(before)
        raise


def _load_vendor() -> ModuleType | None:
    """CANN's module, loaded with ours set aside, as its start overwrites what is called `acl`."""
    ours_first = [entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER.parent]
    spec = importlib.machinery.PathFinder.find_spec("acl", ours_first)
    if spec is None or spec.loader is None:
        return None
    ours = _set_aside()
    try:
        return _load(spec)
    except ImportError:
        return None
    finally:
        _set_aside()
        sys.modules.update(ours)


_acl, _vendor = _load_ours()
__version__: str = _acl.__version__
__all__ = list(_acl.__all__)


def __getattr__(name: str) -> object:
    global _vendor
    try:
        return getattr(_acl, name)
    except AttributeError:
        if name not in _VENDOR_ONLY:
            raise
    _vendor = _vendor or _load_vendor()
    if _vendor is None:
        raise AttributeError(
            f"module 'acl' has no attribute {name!r}: it needs CANN's own acl module"
        )
    return getattr(_vendor, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_acl)})


if __name__ == "__main__":
    from acl.tools.cli import main

    sys.exit(main())
