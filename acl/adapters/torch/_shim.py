"""Builds and loads the C++ part of `acl.torch` for the installed torch, at its first use.

`torch_shim.cpp` is compiled once for each pair of versions of torch and torch_npu.  The library is stored in the
folder of torch's extensions (`TORCH_EXTENSIONS_DIR`, else torch's default).  Several processes may build it at
the same time, because each writes its own file and renames it.

`load` raises OSError if there is no compiler or the compiler fails.  `acl.torch` then works without the C++ part.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["FUNCTIONS", "build", "load"]

#: The functions that the library exports.
FUNCTIONS = (
    "aclpool_shim_connect", "aclpool_shim_mark", "aclpool_shim_mark_done", "aclpool_shim_mark_drop",
    "aclpool_shim_record", "aclpool_shim_stats", "aclpool_shim_throw",
)

_PACKAGE = Path(__file__).resolve().parents[2]
_SOURCE = Path(__file__).resolve().with_name("torch_shim.cpp")
_HEADER = _PACKAGE / "adapters/pluggable/stats.h"
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]


def _target(root: Path, compiler: str) -> Path:
    """Return the path of the library for the installed versions, this source and this compiler."""
    parts = [_SOURCE.read_bytes(), _HEADER.read_bytes(), " ".join([compiler, *_FLAGS]).encode()]
    parts += [importlib.metadata.version(name).encode() for name in ("torch", "torch_npu")]
    return root / "aclpool" / f"torch_shim-{hashlib.sha256(b'/'.join(parts)).hexdigest()[:16]}.so"


def _command(compiler: str, cpp_extension: Any, target: str) -> list[str]:
    npu = Path(str(importlib.import_module("torch_npu").__file__)).parent
    folders = [*cpp_extension.include_paths(), npu / "include", npu / "include/third_party/acl/inc"]
    libraries = [*cpp_extension.library_paths(), npu / "lib"]
    return [
        compiler, *_FLAGS, f"-I{_PACKAGE}", *(f"-isystem{folder}" for folder in folders), str(_SOURCE), "-o", target,
        *(f"-L{folder}" for folder in libraries), "-lc10", "-ltorch_npu",
    ]


def build() -> Path:
    """Return the path of the library; compile it if it does not exist.

    Raises
    ------
    OSError
        There is no compiler, the compiler fails, or setuptools, which torch needs for this, is not installed.
    """
    try:
        cpp_extension: Any = importlib.import_module("torch.utils.cpp_extension")
    except ImportError as error:
        raise OSError(f"torch.utils.cpp_extension does not load: {error}") from error
    compiler = cpp_extension.get_cxx_compiler()
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root())
    target = _target(root, compiler)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
        os.close(number)
        try:
            done = subprocess.run(_command(compiler, cpp_extension, temporary), capture_output=True, text=True)
            if done.returncode != 0:
                raise OSError(f"{compiler} failed: {done.stderr.strip()[-2000:]}")
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return target


def load() -> dict[str, int]:
    """Return the addresses of the library's functions, by their names in FUNCTIONS."""
    library = ctypes.CDLL(str(build()))
    found = {}
    for name in FUNCTIONS:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address is not None
        found[name] = address
    return found
