"""Kernels compiled for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import acl

__all__ = ["compiled"]

HEAD = '#include <string.h>\n#include <unistd.h>\n#include "acl_sim_kernel.h"\n'


def compiled(source: str, folder: Path) -> bytes:
    """A shared object with these kernels."""
    (folder / "k.c").write_text(HEAD + source)
    target = folder / "k.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f"-I{acl.include_dir()}", "-o", str(target), str(folder / "k.c")],
                   check=True)
    return target.read_bytes()
