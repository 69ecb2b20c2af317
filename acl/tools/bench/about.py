"""Describe an allocator of `aclpool bench`: its version, and how it was built.

`version` and `build` are None if they are unknown.  For a shared library the description also has the file's path.
If the library is a 64-bit little-endian ELF file, the description has the build id and the name of the compiler too,
as far as the file contains them.
"""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path
from typing import Any

import acl
from acl.tools.bench import _peers

__all__ = ["about_library", "about_ours", "about_runtime"]

About = dict[str, Any]
HEADER = struct.Struct("<16xHHIQQQIHHHHHH")         # layout of an ELF file's header
SECTION = struct.Struct("<IIQQQQIIQQ")
#: The build type in a file's name, for libraries that have one file for each build type.
BUILDS = re.compile(r"[-_](debug|secure|asan|tsan)\b")


def about_ours() -> About:
    """Describe this package, as the source of the pools, the policies and the floor."""
    return {"version": acl.__version__, "build": _peers.build_type()}


def about_runtime() -> About:
    """Describe the library that serves the driver calls."""
    from acl.bind.generated._libacl import backend, cann_version, library

    if backend() == "sim":
        return {"version": f"simulator {acl.__version__}", "build": _peers.build_type()}
    return {"version": f"CANN {cann_version()}", "build": None, "file": library()}


# ---- shared libraries ----

def sections(data: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF file by name.

    Raises
    ------
    ValueError, LookupError, OverflowError, struct.error
        The data is not a 64-bit little-endian ELF file, or is damaged.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not an ELF file of 64 bits, little-endian")
    fields = HEADER.unpack_from(data)
    first, size, count, names = fields[5], fields[10], fields[11], fields[12]
    table = [SECTION.unpack_from(data, first + number * size) for number in range(count)]
    texts = data[table[names][4]:][:table[names][5]]
    return {texts[entry[0]:texts.index(b"\0", entry[0])].decode(): data[entry[4]:entry[4] + entry[5]]
            for entry in table}


def about_file(path: Path) -> About:
    """Return the library's path, and its build id and compiler as far as the file contains them."""
    found: About = {"file": str(path)}
    try:
        parts = sections(path.read_bytes())
        note = parts.get(".note.gnu.build-id", b"")
        if note:
            name, size = struct.unpack_from("<II", note)
            found["build_id"] = note[12 + (name + 3) // 4 * 4:][:size].hex()
        compiler = parts.get(".comment", b"").split(b"\0")[0].decode(errors="replace")
        if compiler:
            found["compiler"] = compiler
    except (OSError, ValueError, LookupError, OverflowError, struct.error):
        pass
    return found


def glibc_version(library: ctypes.CDLL) -> About:
    library.gnu_get_libc_version.restype = ctypes.c_char_p
    return {"version": library.gnu_get_libc_version().decode()}


def mimalloc_version(library: ctypes.CDLL) -> About:
    number = str(library.mi_version())
    return {"version": ".".join(number) if len(number) == 3 else number}


def tcmalloc_version(library: ctypes.CDLL) -> About:
    library.tc_version.restype = ctypes.c_char_p
    return {"version": library.tc_version(None, None, None).decode()}


def jemalloc_version(library: ctypes.CDLL) -> About:
    version, debug = ctypes.c_char_p(), ctypes.c_bool()
    for name, value in ((b"version", version), (b"config.debug", debug)):
        size = ctypes.c_size_t(ctypes.sizeof(value))
        if library.mallctl(name, ctypes.byref(value), ctypes.byref(size), None, 0):
            return {}
    return {"version": (version.value or b"").decode(), "build": "debug" if debug.value else "release"}


#: Key: a function that only one library exports.  Value: a function here that asks for that library's version, and
#: True if that library's debug builds have another file name (see `BUILDS`).
KNOWN = {
    "mi_version": (mimalloc_version, True), "tc_version": (tcmalloc_version, True),
    "mallctl": (jemalloc_version, False), "gnu_get_libc_version": (glibc_version, False),
}


class Place(ctypes.Structure):
    """The C struct `Dl_info`, which `dladdr` fills: the library and the symbol of an address."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p))


def base_of(library: ctypes.CDLL, function: str) -> int | None:
    """Return the base address of the file that defines `function`, which may be a dependency of `library`.

    Return None if neither `library` nor a dependency has the function.
    """
    if not hasattr(library, function):
        return None
    place = Place()
    ctypes.CDLL(None).dladdr(ctypes.cast(getattr(library, function), ctypes.c_void_p), ctypes.byref(place))
    base: int | None = place.base
    return base


def about_library(path: str, library: ctypes.CDLL, malloc: str) -> About:
    """Describe a library whose function `malloc` is measured."""
    file = Path(path).resolve()
    named = BUILDS.search(file.name)
    found: About = {"version": None, "build": named[1] if named else None, **about_file(file)}
    for name, (ask, by_name) in KNOWN.items():
        if base_of(library, malloc) == base_of(library, name):
            if by_name and not named:
                found["build"] = "release"
            return {**found, **ask(library)}
    return found
