"""Loads CANN's own module `acl` when a program uses a name that only this module has.

CANN's module is a single `acl.so`.  When it is loaded, it registers `acl.rt` and other modules in `sys.modules`.  If
modules with these names exist already, it writes its functions into them.  So our modules are taken out of
`sys.modules` while CANN's is loaded, and are put back even if that fails.  If CANN's module was imported before this
package, `aclpool` passes it to `adopt`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # not imported at run time, because importlib.abc would make `import acl` slower
    Loader = MetaPathFinder = object

__all__ = ["ONLY_VENDOR", "absence", "adopt", "find_spec", "load", "lookup", "set_aside"]

#: Modules of pyACL that only CANN's module has.
ONLY_VENDOR = frozenset({"blas", "fv", "himpi", "media"})

_vendor: ModuleType | None = None


def absence(module: str, name: str) -> str:
    """Return the message for a name that only CANN's module has."""
    return (f"module {module!r} has no attribute {name!r}: it needs CANN's own acl module, which comes with CANN's "
            "toolkit and serves it once it is on PYTHONPATH")


def adopt(module: ModuleType | None) -> None:
    """Remember CANN's module, which was imported before ours."""
    global _vendor
    _vendor = module or _vendor
    if module is not None:
        told(module)


def told(module: ModuleType) -> None:
    """Log that CANN's module was loaded."""
    from acl.bind import _log

    _log.info("vendor", "CANN's own module serves %s: %s", ", ".join(sorted(ONLY_VENDOR)),
              getattr(module, "__file__", None))


def find_spec() -> importlib.machinery.ModuleSpec | None:
    """Find CANN's module: the first extension called `acl` on `sys.path`, or None."""
    for entry in sys.path:
        spec = importlib.machinery.PathFinder.find_spec("acl", [entry])
        if spec is not None and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            return spec
    return None


@contextmanager
def set_aside() -> Iterator[None]:
    """Take `acl` and everything below it out of `sys.modules`, and put it back at the end."""
    names = [name for name in sys.modules if name == "acl" or name.startswith("acl.")]
    ours = {name: sys.modules.pop(name) for name in names}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
            del sys.modules[name]
        sys.modules.update(ours)


def load() -> ModuleType | None:
    """Return CANN's module, which is loaded if necessary; None if it cannot be loaded."""
    global _vendor
    spec = None if _vendor is not None else find_spec()
    if spec is None or spec.loader is None:
        return _vendor
    with set_aside():
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules["acl"] = module
            spec.loader.exec_module(module)
            _vendor = sys.modules["acl"]
        except ImportError:
            return None
    told(_vendor)
    return _vendor


def _standin(name: str) -> ModuleType | None:
    """Return the module that replaces one of CANN's on the simulator, or None if there is none."""
    from acl.bind.generated import _libacl

    if name != "media" or _libacl.backend() != "sim":
        return None
    return importlib.import_module("acl.pyacl._media")


def lookup(name: str) -> object:
    """Return the object that CANN's module has under a name, or its replacement on the simulator.

    Raises
    ------
    AttributeError
        If CANN's module is not installed, does not load, or lacks the name.
    """
    if name in ONLY_VENDOR:
        module = load()
        if module is not None:
            return getattr(module, name)
        standin = _standin(name)
        if standin is not None:
            return standin
        raise AttributeError(absence("acl", name))
    raise AttributeError(f"module 'acl' has no attribute {name!r}")


class _Loader(Loader):
    """An import loader that returns a module which is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Finder(MetaPathFinder):
    """Finds `acl.media`, which is a module of CANN, for `import acl.media`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if parent != "acl" or name not in ONLY_VENDOR:
            return None
        try:
            found = lookup(name)
        except AttributeError as error:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {error}", name=fullname) from None
        if not isinstance(found, ModuleType):
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(found))


sys.meta_path.append(_Finder())
