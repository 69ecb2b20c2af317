"""Calls every function of the pyACL surface on the recording library, and prints the outcomes as JSON.

Run it as a program: `python pyacl_calls.py LIBRARY STATUS`.  It needs its own process, because a process can have only
one ACL library.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.recorder import ROOT, Recorder, Row

SURFACE: list[Row] = json.loads((ROOT / "tools/generate/pyacl_api.json").read_text())["functions"]
# These functions are not called, because they read memory that a real library would own.
ASIDE = {"acl.get_cann_attribute_list", "acl.mdl.create_and_get_op_desc"}
LEAST = {"b": 100, "B": 100, "h": 300, "H": 300}


def parts(spelled: str) -> tuple[str, str, bool]:
    name, _, kind = spelled.partition(":")
    return name, kind.rstrip("?"), kind.endswith("?")


def listener(*given: Any) -> None:
    """The argument for each parameter that is a callable."""


def argument(name: str, kind: str, i: int) -> Any:
    """Return a value of this kind for parameter `i`, different from the values of the other parameters."""
    if kind == "O":
        callables = {"fn", "func", "callback", "deallocator"}
        return listener if name in callables else 500 + i
    if kind in ("s", "z", "s+"):
        return f"text{i}"
    if kind == "f":
        return 2.0 + i
    if kind == "[LL]":
        return [[400 + i, 401 + i]]
    if kind == "[[L]]":
        return [[400 + i], [401 + i, 402 + i]]
    if kind.startswith("[{"):
        return [{}, {}]
    if kind.startswith("cfg:") or kind in ("launch_config", "load_options", "server_pids"):
        return []
    if kind.startswith("{") or kind == "malloc_config":
        return {}
    if kind == "[s]":
        return [f"one{i}", "two"]
    if kind == "[f]a":
        return [1.5, 2.5]
    if kind[0] == "[":
        return [400 + i, 401 + i] if kind[1] != "B" else [1, 0]
    return LEAST.get(kind[0], 400) + i


def arguments(row: Row) -> list[Any]:
    return [argument(*parts(p)[:2], i) for i, p in enumerate(row["params"])]


def find(name: str) -> Any:
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module), short)


def outcome(function: Any, given: list[Any]) -> Row:
    """Call a function, and return its result or exception in a form that JSON can hold."""
    try:
        result = function(*given)
    except Exception as error:
        return {"raised": type(error).__name__, "text": str(error)}
    return {"result": list(result) if isinstance(result, tuple) else [result],
            "tuple": isinstance(result, tuple)}


def main() -> None:
    recorder = Recorder(sys.argv[1])
    recorder.status.value = int(sys.argv[2])
    warnings.simplefilter("ignore")
    found = {}
    for row in SURFACE:
        if row["name"].startswith("acl.util.") or row["name"] in ASIDE:
            continue
        recorder.forget()
        given = arguments(row)
        seen = outcome(find(row["name"]), given)
        seen["given"] = [g if not callable(g) else "callable" for g in given]
        seen["call"] = recorder.last()
        found[row["name"]] = seen
    json.dump(found, sys.stdout, default=repr)


if __name__ == "__main__":
    main()
