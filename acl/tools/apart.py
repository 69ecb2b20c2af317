"""Start a module's `main` in a Python process that finds the same package as this one.

If the current folder has a folder named `acl`, as the root of a clone does, that must not be imported
instead of the installed package: `python -m` and `python -c` look in the current folder first.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import acl

__all__ = ["python_command"]

BOOT = """\
import importlib, json, sys
own, sys.path[:] = json.loads(sys.argv[1])
sys.path.insert(0, own)
import acl
del sys.path[0]
importlib.import_module(sys.argv[2]).main(sys.argv[3:])
"""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main` of a module with these arguments; it searches the current folder last."""
    own = str(Path(acl.__file__).parents[1])
    path = [os.path.abspath(each) for each in sys.path if each] + [os.getcwd()]
    return [sys.executable, "-c", BOOT, json.dumps([own, path]), module, *arguments]
