"""The package `acl` under a second name: `import aclpool as acl` works even if another module is named `acl`.

CANN's own module is a single file `acl.so`, which `set_env.sh` puts before site-packages.  Importing this module
loads the package `acl` from the folder of this file, sets it as `sys.modules["acl"]`, and forwards every name to it;
`import aclpool.sim` imports the same module as `acl.sim`.  Names that only CANN's module has (`media`, `himpi`,
`blas`, `fv`) are looked up in CANN's module at first use, if it is installed.  Code that imported CANN's module
earlier still uses CANN's.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder

    from acl import *  # noqa: F403
else:  # at run time, importlib.abc, typing and pathlib are not imported, because that takes long
    Loader, MetaPathFinder = object, type("MetaPathFinder", (), {})

_FOLDER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "acl")


def _is_ours(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.dirname(os.path.realpath(file)) == _FOLDER


def _take_out() -> dict[str, ModuleType]:
    """Remove `acl` and its submodules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == "acl" or name.startswith("acl.")]
    return {name: sys.modules.pop(name) for name in names}


def _load_ours() -> tuple[ModuleType, ModuleType | None]:
    """Return this package, and CANN's module if that was imported before, else None."""
    found = sys.modules.get("acl")
    if found is not None and _is_ours(found):
        return found, None
    before = _take_out()
    spec = importlib.util.spec_from_file_location(
        "acl", os.path.join(_FOLDER, "__init__.py"), submodule_search_locations=[_FOLDER]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{_FOLDER} has no acl package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["acl"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        _take_out()
        sys.modules.update(before)
        raise
    return sys.modules["acl"], found


class _Submodules(MetaPathFinder, Loader):
    """Import `aclpool.NAME` as `acl.NAME`: one module under two names, never a second copy."""

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("aclpool."):
            return None
        ours = "acl" + name.removeprefix("aclpool")
        if ours not in sys.modules and importlib.util.find_spec(ours) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module("acl" + spec.name.removeprefix("aclpool"))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set `module.__spec__` to the spec of the second name: restore the module's own spec.
        asked = module.__spec__
        assert asked is not None
        module.__spec__ = self._specs.pop(asked.name)


_acl, _found = _load_ours()
_acl.pyacl._vendor.adopt(_found)
__version__: str = _acl.__version__
__all__ = list(_acl.__all__)
# An empty path makes this module a package for the import system, so that submodules can be imported.
__path__: list[str] = []
# This must be the first finder: other finders would load second copies of modules in packages of `acl`.
sys.meta_path.insert(0, _Submodules())


def __getattr__(name: str) -> object:
    return getattr(_acl, name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | set(dir(_acl)))


def _command() -> int:
    """Run the command `aclpool`.

    It starts in this module, because `acl.tools` cannot be imported before this module if CANN's `acl` is found first.
    """
    from acl.tools.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_command())
