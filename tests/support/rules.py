"""Helpers of the tests with tables of argument rules: arguments by name, and calls in a thread without a context."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from support.calls import api

__all__ = ["code_in_new_thread", "code_of", "resolve"]


def resolve(scene: Any, argument: Any) -> Any:
    """Return the value of an argument: a string names a field of the scene, and may add an offset ("host+8")."""
    if not isinstance(argument, str):
        return argument
    name, _, offset = argument.partition("+")
    value = getattr(scene, name)
    if isinstance(value, ctypes.Structure):
        value = ctypes.addressof(value)
    return value + int(offset or 0)


def code_of(scene: Any, function: str, arguments: list[Any]) -> Any:
    """Call a function with these arguments and return its result."""
    return getattr(api, function)(*[resolve(scene, a) for a in arguments])


def code_in_new_thread(scene: Any, function: str, arguments: list[Any]) -> Any:
    """Call a function in a new thread, which has no context, and return its result."""
    codes: list[Any] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(scene, function, arguments)))
    thread.start()
    thread.join()
    return codes[0]
