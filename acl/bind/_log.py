"""Messages of the package, through `logging`, under ``acl.*``.

Nothing is printed.  This module does not import `logging`: if the program has not imported it either, the program
cannot have asked for messages.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

__all__ = ["debug", "error", "heard", "info", "warning"]


def logger(name: str) -> logging.Logger | None:
    """Return the logger ``acl.NAME``, silent by default; None if the program has not imported `logging`."""
    module = sys.modules.get("logging")
    if module is None or not hasattr(module, "getLogger"):
        return None
    root: logging.Logger = module.getLogger("acl")
    if not root.handlers:
        root.addHandler(module.NullHandler())
    return root.getChild(name)


def heard(name: str) -> bool:
    """Return True if a handler receives messages that are logged under ``acl.NAME``."""
    found = logger(name)
    while found is not None:
        if any(type(handler).__name__ != "NullHandler" for handler in found.handlers):
            return True
        found = found.parent if found.propagate else None
    return False


def debug(name: str, text: str, *values: object) -> None:
    """Log an event of normal operation."""
    found = logger(name)
    if found is not None:
        found.debug(text, *values)


def info(name: str, text: str, *values: object) -> None:
    """Log a fact that a reader of the log wants to know once."""
    found = logger(name)
    if found is not None:
        found.info(text, *values)


def warning(name: str, text: str, *values: object) -> None:
    """Log that something works, but less well than it could."""
    found = logger(name)
    if found is not None:
        found.warning(text, *values)


def error(name: str, text: str, *values: object, **fields: object) -> None:
    """Log a failure.  The log record has each of `fields` as an attribute, its name preceded by ``acl_``."""
    found = logger(name)
    if found is not None:
        found.error(text, *values, extra={f"acl_{key}": value for key, value in fields.items()})
