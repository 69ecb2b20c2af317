"""Start a module's `main` in a Python process that finds the same package as this one.

`python -m` and `python -c` search the current folder first.  If it has a folder named `acl`, as the root of a clone
does, they would import this folder instead of the installed package.
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
    """Return a command that calls `main` of a module with these arguments and searches the current folder last."""
    own = str(Path(acl.__file__).parents[1])
    path = [os.path.abspath(each) for each in sys.path if each] + [os.getcwd()]
    return [sys.executable, "-c", BOOT, json.dumps([own, path]), module, *arguments]
