"""CANN's own module `acl` beside ours: the names that only it has are looked up there.

CANN's module is a bare `acl.so` that registers `acl.rt` and the rest in `sys.modules` when it is
loaded; where those names exist already it writes its functions into them.  So it is loaded with ours
set aside, and ours are put back whatever happens.  It is loaded only when somebody asks for one of
its names, or handed over by `aclpool` if it was imported first.
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
else:  # importlib.abc imports much that `import acl` has no time for
    Loader = MetaPathFinder = object

__all__ = ["ONLY_VENDOR", "absence", "adopt", "find_spec", "load", "lookup", "set_aside"]

#: Modules of pyACL that this package leaves to CANN's.
ONLY_VENDOR = frozenset({"blas", "fv", "himpi", "media"})

_vendor: ModuleType | None = None


def absence(module: str, name: str) -> str:
    """What is said wherever something is asked for that only CANN's module has."""
    return (f"module {module!r} has no attribute {name!r}: it needs CANN's own acl module, which comes with CANN's "
            "toolkit and serves it once it is on PYTHONPATH")


def adopt(module: ModuleType | None) -> None:
    """Remember CANN's module, which was imported before ours."""
    global _vendor
    _vendor = module or _vendor
    if module is not None:
        told(module)


def told(module: ModuleType) -> None:
    """A line in the log."""
    from acl.bind import _log

    _log.info("vendor", "CANN's own module serves %s: %s", ", ".join(sorted(ONLY_VENDOR)),
              getattr(module, "__file__", None))


def find_spec() -> importlib.machinery.ModuleSpec | None:
    """Where CANN's module is: the first extension called `acl` on `sys.path`, or None."""
    for entry in sys.path:
        spec = importlib.machinery.PathFinder.find_spec("acl", [entry])
        if spec is not None and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            return spec
    return None


@contextmanager
def set_aside() -> Iterator[None]:
    """Takes `acl` and everything below it out of `sys.modules`, and puts it back."""
    names = [name for name in sys.modules if name == "acl" or name.startswith("acl.")]
    ours = {name: sys.modules.pop(name) for name in names}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
            del sys.modules[name]
        sys.modules.update(ours)


def load() -> ModuleType | None:
    """CANN's module, loaded now if it was not before; None if there is none that loads."""
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
    """What serves a name on the simulator if CANN's module is not installed."""
    from acl.bind.generated import _libacl

    if name != "media" or _libacl.backend() != "sim":
        return None
    return importlib.import_module("acl.pyacl._media")


def lookup(name: str) -> object:
    """What CANN's module has under a name, or what stands in for it.

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
    """Gives a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Finder(MetaPathFinder):
    """Serves `import acl.media`, though that module is CANN's."""

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
