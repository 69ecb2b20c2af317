"""Compile `_policies.pyx` on first use, and import it.  The result stays in `build/policies` of the checkout."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import acl

__all__ = ["load"]

SOURCE = Path(__file__).with_name("_policies.pyx")
PACKAGE = Path(acl.__file__).parent
USED = ("tools/bench/_loops.pxd", "tools/bench/loops.h")        # files of the package that the module is built from


def compiled(folder: Path) -> Path:
    """Compile the module in a new folder; return its file.

    Raises
    ------
    ValueError
        With the compiler's message, or the name of what is not installed.
    """
    made = folder / f"_policies{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = [f"-I{path}" for path in (PACKAGE, PACKAGE / "include", sysconfig.get_paths()["include"])]
    in_c = str(folder / "_policies.c")
    for command in (
        [sys.executable, "-m", "cython", "-3", "-I", str(PACKAGE.parent), str(SOURCE), "-o", in_c],
        [os.environ.get("CC", "gcc"), "-O2", "-shared", "-fPIC", *include, in_c, "-o", str(made)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise ValueError(f"{SOURCE.parent} has to be compiled, and {command[0]} is not installed") from None
        if done.returncode:
            raise ValueError(f"{SOURCE} does not compile (it needs gcc, and Cython for this Python):\n"
                             f"{done.stderr[-2000:]}")
    return made


@functools.cache
def load() -> ModuleType:
    """Return the module of the policies; compile it if its sources or Python differ from the last time."""
    content = b"".join(path.read_bytes() for path in (SOURCE, *(PACKAGE / name for name in USED)))
    name = hashlib.sha256(content + sys.version.encode()).hexdigest()[:16]
    kept = SOURCE.parents[2] / "build/policies" / name / f"_policies{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            compiled(Path(folder)).replace(kept)        # atomic, because several processes may do this at the same time
    spec = importlib.util.spec_from_file_location("_policies", kept)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
