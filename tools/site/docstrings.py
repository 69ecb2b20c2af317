"""An extension of griffe: the stubs, with the docstrings of the built modules.

Compiled modules have `.pyi` stubs with types but no docstrings; the docstrings are in the `.pyx` files, and so in the
built modules.  griffe reads the stubs, and this extension finds a docstring for each object without one.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import griffe

__all__ = ["BuiltDocstrings"]


def as_markdown(text: str, name: str) -> str:
    """Return a docstring without the signature that Cython puts into its first line; reST's `::` becomes `:`."""
    first, _, rest = text.strip().partition("\n")
    if re.fullmatch(rf"(\w+\.)*{re.escape(name)}\(.*\)", first):
        text = rest
    elif re.match(r"([\w, ]+ = )?acl\.[\w.]+\(", first):     # pyACL's functions: results and arguments
        text = f"`{first}`\n{rest}"
    return re.sub(r"::(?=\n\n +)", ":", inspect.cleandoc(text))


class BuiltDocstrings(griffe.Extension):
    """Adds the docstrings once a package is loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Add docstrings in all modules."""
        for module in modules(pkg):
            compiled = str(module.filepath).endswith(".pyi")
            fill(module, importlib.import_module(module.path) if compiled else None)


def modules(top: griffe.Module) -> Iterator[griffe.Module]:
    """Yield a package and all modules below it."""
    yield top
    for module in top.modules.values():
        if not module.is_alias:
            yield from modules(module)


def fill(scope: griffe.Module | griffe.Class, built: Any) -> None:
    """Give docstrings to the members of a module or a class; `built` is the compiled object, or None for Python."""
    for name, member in scope.members.items():
        if member.is_alias or member.is_module:
            continue
        found = inspect.getattr_static(built, name, None)
        text = getattr(found, "__doc__", None) if member.is_function or member.is_class or property_of(found) else None
        if member.docstring is None and isinstance(text, str) and text.strip() and text != object.__init__.__doc__:
            member.docstring = griffe.Docstring(text, parent=member, parser="numpy",
                                                parser_options={"warn_unknown_params": False})
        if member.docstring is not None:
            member.docstring.value = as_markdown(member.docstring.value, name)
        if member.is_class:
            fill(member, found)         # type: ignore[arg-type]


def property_of(found: object) -> bool:
    """Return True for a property or another data descriptor.

    The docstring of such an object was written for the object itself.  A constant only has the docstring of its type,
    which the site does not show.
    """
    return isinstance(found, property) or inspect.isdatadescriptor(found)
