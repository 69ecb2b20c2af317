"""Kernel binaries for tests."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import acl

__all__ = ["compiled", "device_binary"]

HEAD = '#include <string.h>\n#include <unistd.h>\n#include "acl_sim_kernel.h"\n'


def compiled(source: str, folder: Path) -> bytes:
    """Compile kernels, and return the bytes of the shared object."""
    (folder / "k.c").write_text(HEAD + source)
    target = folder / "k.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f"-I{acl.include_dir()}", "-o", str(target), str(folder / "k.c")],
                   check=True)
    return target.read_bytes()


def device_binary(names: Sequence[str], *, variables: Sequence[tuple[str, int, int]] = (), tables: int = 1) -> bytes:
    """Return an ELF file of device code with these functions and variables; a variable is (name, offset, bytes).

    The file has `tables` symbol tables that all describe the variables, and then one that describes the functions.
    """
    strings = b"\0"

    def symbol(name: str, sort: int, place: int, size: int) -> bytes:
        nonlocal strings
        at = len(strings)
        strings += name.encode() + b"\0"
        return struct.pack("<IBBHQQ", at, 0x10 | sort, 0, 1, place, size)

    first = b"".join(symbol(name, 1, place, size) for name, place, size in variables)
    second = b"".join(symbol(name, 2, 0, 16) for name in names)
    at = 64
    rows = [struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, at, len(first), tables + 2, 0, 0, 24)] * tables
    at += len(first)
    rows.append(struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, at, len(second), tables + 2, 0, 0, 24))
    at += len(second)
    rows.append(struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at, len(strings), 0, 0, 0, 0))
    at += len(strings)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 1, 0x1029, 1, 0, 0, at, 0, 64, 0, 0, 64, tables + 3, 0)
    return head + first + second + strings + bytes(64) + b"".join(rows)
