"""What the library tells: through `logging`, under ``acl.*``, and to nobody unless somebody listens.

Nothing is printed.  `logging` is not imported for it: where no one has, no one can have asked to see it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

__all__ = ["debug", "error", "info", "warning"]


def logger(name: str) -> logging.Logger | None:
    """The logger ``acl.NAME``, silent by default; None while nobody has imported `logging`."""
    module = sys.modules.get("logging")
    if module is None or not hasattr(module, "getLogger"):
        return None
    root: logging.Logger = module.getLogger("acl")
    if not root.handlers:
        root.addHandler(module.NullHandler())
    return root.getChild(name)


def debug(name: str, text: str, *values: object) -> None:
    """Something that happens in the normal course."""
    found = logger(name)
    if found is not None:
        found.debug(text, *values)


def info(name: str, text: str, *values: object) -> None:
    """Something that a reader of the log wants to know once."""
    found = logger(name)
    if found is not None:
        found.info(text, *values)


def warning(name: str, text: str, *values: object) -> None:
    """Something that works less well than it could."""
    found = logger(name)
    if found is not None:
        found.warning(text, *values)


def error(name: str, text: str, *values: object) -> None:
    """Something that went wrong."""
    found = logger(name)
    if found is not None:
        found.error(text, *values)
