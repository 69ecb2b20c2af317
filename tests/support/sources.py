"""Reads the wrapper's sources: which C functions each module calls and checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

__all__ = ["calls", "checked"]

ROOT = Path(__file__).parent.parent.parent
CIMPORT = re.compile(r"from acl\.bind\.generated\._libacl cimport (?:\(([^)]*)\)|([^(\n]+))")
CHECK = re.compile(r'check\([^"]*"(acl\w+)"')


def _text(module: str) -> str:
    (path,) = (ROOT / "acl").rglob(f"{module}.pyx")
    return path.read_text()


def _functions() -> set[str]:
    table = json.loads((ROOT / "tools/generate/acl_api.json").read_text())
    return {row["name"] for row in table["functions"]}


def calls(module: str) -> set[str]:
    """Return the functions of the C API that a module cimports."""
    named = " ".join(first or second for first, second in CIMPORT.findall(_text(module)))
    return set(re.findall(r"\w+", named)) & _functions()


def checked(module: str) -> set[str]:
    """Return the functions of the C API whose status a module turns into an exception."""
    found = set(CHECK.findall(_text(module)))
    for first, second in re.findall(
        r'check\([^"\n]*"(acl\w+)" if [^"\n]* else "(acl\w+)"', _text(module)
    ):
        found |= {first, second}
    return found & _functions()
