"""Let the compiler of a newer glibc make libraries that an older glibc loads.

glibc keeps the old versions of its symbols, but the linker takes the newest.  So each source is compiled with a
header whose `.symver` lines select the newest version that the older glibc has.  `stat` and `fstat` have no old
version: an object that is linked into each library defines both, by the functions that older programs call.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["needed", "prepare"]

#: Libraries that glibc 2.34 merged into libc.so.6.  Before that they are separate, so the wheel's libraries must name
#: them.
FORMER = ("libpthread.so.0", "libdl.so.2", "librt.so.1")
LIBRARIES = ("libc.so.6", "libm.so.6")
STAT = """\
#define HIDDEN __attribute__((visibility("hidden")))
struct stat;
int __xstat(int version, const char *path, struct stat *found);
int __fxstat(int version, int file, struct stat *found);
#ifdef __x86_64__
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif
HIDDEN int stat(const char *path, struct stat *found) { return __xstat(STAT_VERSION, path, found); }
HIDDEN int fstat(int file, struct stat *found) { return __fxstat(STAT_VERSION, file, found); }
"""

Version = tuple[int, ...]


def versions(library: Path) -> list[tuple[str, Version, bool]]:
    """Return the symbols of a library's dynamic table: name, version of glibc, and True if it is defined here."""
    listed = subprocess.run(["readelf", "--dyn-syms", "-W", str(library)], check=True, capture_output=True, text=True)
    found = []
    for line in listed.stdout.splitlines():
        match = re.search(r" (\w+) (\w+)@@?GLIBC_([\d.]+)(?: \(\d+\))?$", line)
        if match:
            found.append((match[2], tuple(map(int, match[3].split("."))), match[1] != "UND"))
    return found


def needed(library: Path) -> Version:
    """Return the newest version of glibc that a library needs."""
    return max((version for _, version, defined in versions(library) if not defined), default=(0,))


def renamed(libraries: Sequence[Path], most: Version) -> dict[str, Version]:
    """Return the symbols whose newest version is later than `most`, each with its newest version up to `most`."""
    known: dict[str, set[Version]] = {}
    for library in libraries:
        for name, version, defined in versions(library):
            if defined:
                known.setdefault(name, set()).add(version)
    return {
        name: max(version for version in found if version[:2] <= most)
        for name, found in known.items()
        if max(found)[:2] > most >= min(found)[:2]
    }


def prepare(folder: Path, compiler: Sequence[str], most: Version) -> dict[str, str]:
    """Write the header and the object, and return the CFLAGS and LDFLAGS that use them."""
    def place(name: str) -> Path:
        return Path(subprocess.run([*compiler, f"-print-file-name={name}"], check=True, capture_output=True,
                                   text=True).stdout.strip())

    folder.mkdir(parents=True, exist_ok=True)
    header, source, made = folder / "glibc.h", folder / "stat.c", folder / "stat.o"
    header.write_text("".join(
        f'__asm__(".symver {name},{name}@GLIBC_{".".join(map(str, version))}");\n'
        for name, version in sorted(renamed([place(name) for name in LIBRARIES], most).items())
    ))
    source.write_text(STAT)
    subprocess.run([*compiler, "-O2", "-fPIC", "-c", str(source), "-o", str(made)], check=True)
    former = " ".join(f"-l:{name}" for name in FORMER)
    return {
        "CFLAGS": f"-include {header}",
        "LDFLAGS": f"{made} -Wl,--push-state,--no-as-needed {former} -Wl,--pop-state",
    }
