"""The simulator's C API through ctypes: each function has the types of the API table."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acl import sim

__all__ = ["SUCCESS", "api", "out", "table"]

SUCCESS = 0

_PLAIN: dict[str, Any] = {
    "aclError": ctypes.c_int, "int": ctypes.c_int, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64, "size_t": ctypes.c_size_t, "float": ctypes.c_float,
    "aclFloat16": ctypes.c_uint16, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "bool": ctypes.c_bool,
    "int8_t": ctypes.c_int8, "void": None,
}


@functools.cache
def table() -> dict[str, Any]:
    """Return the table of the C API from which the project's generator works."""
    path = Path(__file__).parents[2] / "tools/generate/acl_api.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@functools.cache
def _enums() -> frozenset[str]:
    return frozenset(row["name"] for row in table()["enums"])


def _ctype(name: str) -> Any:
    bare = name.replace("const", "").strip()
    if bare in _PLAIN:
        return _PLAIN[bare]
    if bare in _enums():
        return ctypes.c_int
    return ctypes.c_void_p


class _Api:
    """Has the C functions as attributes: `api.aclrtMalloc(...)`.  Raises AttributeError if the simulator lacks one."""

    @functools.cached_property
    def _library(self) -> ctypes.CDLL:
        return ctypes.CDLL(sim.library_dir() + "/libascendcl.so")

    @functools.cached_property
    def _rows(self) -> dict[str, Any]:
        return {row["name"]: row for row in table()["functions"]}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)
        row = self._rows[name]
        function.argtypes = [_ctype(p["type"]) for p in row["params"]]
        function.restype = ctypes.c_char_p if row["returns"] == "const char *" else _ctype(row["returns"])
        setattr(self, name, function)
        made: Callable[..., Any] = function
        return made


api = _Api()


def out(kind: Any = ctypes.c_void_p, value: Any = None) -> Any:
    """Return a ctypes variable for a result: pass `ctypes.byref(it)` to a call, then read `it.value`."""
    return kind() if value is None else kind(value)
