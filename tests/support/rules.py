"""What the tables of argument rules share: arguments by name, and calls from a thread without a context."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from support.calls import api

__all__ = ["code_in_new_thread", "code_of", "resolve"]


def resolve(scene: Any, argument: Any) -> Any:
    """A text is the name of a field of the scene, with an offset after a plus; others stay."""
    if not isinstance(argument, str):
        return argument
    name, _, offset = argument.partition("+")
    value = getattr(scene, name)
    if isinstance(value, ctypes.Structure):
        value = ctypes.addressof(value)
    return value + int(offset or 0)


def code_of(scene: Any, function: str, arguments: list[Any]) -> Any:
    """What the call gives with these arguments."""
    return getattr(api, function)(*[resolve(scene, a) for a in arguments])


def code_in_new_thread(scene: Any, function: str, arguments: list[Any]) -> Any:
    """What the call gives in a thread of its own, which has no context."""
    codes: list[Any] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(scene, function, arguments)))
    thread.start()
    thread.join()
    return codes[0]
