"""The simulator's libraries in a folder of CANN's shape: `.../latest/lib64`.

MindSpore derives where CANN is from the path of `libascendcl.so`, opens its companions there by path,
and is linked against C++ functions of the graph engine.  `lay_out` makes such a folder: links to our
libraries; companions that lead to `libascendcl.so`, so that a look-up in them finds its functions; and a
`libge_runner.so` with a stub for each function that the installed MindSpore misses.  A stub does nothing
and returns 0: enough to load, and for memory, copies, streams; graphs cannot be compiled.

Needs gcc and g++ (`CC`, `CXX`) and `nm` and `readelf`, which come with them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from acl.sim import library_dir

__all__ = ["lay_out", "missing_symbols"]

#: Libraries that programs name: empty but for the way to `libascendcl.so`.
_COMPANIONS = (
    "libgraph.so", "libhccl.so", "libmsprofiler.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libruntime.so",
    "libnnopbase.so", "libascend_hal.so", "libplatform.so", "libc_sec.so",
)
#: Where MindSpore's own libraries start from.
_ROOTS = ("libmindspore_ascend.so.2", "libmindspore_graph_ir.so", "libhccl_plugin.so")

#: HcclSetConfig is looked up by name, and its absence ends MindSpore's start.
_HCCL = "int HcclSetConfig(int config, void *value) { (void)config, (void)value; return 0; }\n"

#: The one function that has to return an object: a table of texts, in the old ABI of std::string.
_STATUS = """
#define _GLIBCXX_USE_CXX11_ABI 0
#include <cstdint>
#include <map>
#include <string>
namespace ge {
class StatusFactory {
public:
    static StatusFactory *Instance();
    std::map<uint32_t, std::string> texts;
};
StatusFactory *StatusFactory::Instance() {
    static StatusFactory factory;
    return &factory;
}
}
"""
_STATUS_SYMBOL = "_ZN2ge13StatusFactory8InstanceEv"


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)[:200]}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _symbols(library: Path, which: str) -> Iterable[tuple[str, str]]:
    """(kind, name with its version) of a library's dynamic symbols."""
    for line in _output("nm", "-D", f"--{which}-only", str(library)).splitlines():
        words = line.split()
        yield words[-2], words[-1]


def _closure(folder: Path) -> tuple[list[Path], set[str]]:
    """MindSpore's libraries for the device, and the names of libraries that are not its own."""
    own = {path.name: path for path in folder.rglob("*.so*") if path.is_file() and "gpu" not in path.name}
    todo, found, foreign = list(_ROOTS), {}, set()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        if name not in own:
            foreign.add(name)
            continue
        found[name] = own[name]
        todo += re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "-d", str(own[name])))
    return list(found.values()), foreign


def missing_symbols(mindspore: str | os.PathLike[str]) -> list[str]:
    """What MindSpore's libraries for the device want and nobody has.

    Parameters
    ----------
    mindspore : path
        The folder of the installed package.
    """
    libraries, foreign = _closure(Path(mindspore) / "lib")
    compiler = os.environ.get("CC", "gcc")
    system = [Path(_output(compiler, f"-print-file-name={name}").strip()) for name in sorted(foreign)]
    known = [*libraries, *Path(library_dir()).glob("*.so"), *(path for path in system if path.is_absolute())]
    there = {name.split("@")[0] for library in known for _, name in _symbols(library, "defined")}
    wanted = {name for library in libraries for kind, name in _symbols(library, "undefined") if kind == "U"}
    return sorted(name for name in wanted - there if "@" not in name and not name.startswith(("Py", "_Py")))


def _stubs(names: list[str]) -> str:
    """C source: an empty function for each name, zeros for what is data (tables of virtual functions)."""
    lines = []
    for number, name in enumerate(names):
        if name.startswith("_ZT"):
            lines.append(f'char data_{number}[4096] __asm__("{name}");')
        elif name != _STATUS_SYMBOL:
            lines.append(
                f'void *stub_{number}(void) __asm__("{name}");\nvoid *stub_{number}(void) {{ return 0; }}'
            )
    return "\n".join(lines) + "\n"


def _link(compiler: str, target: Path, sources: Iterable[Path]) -> None:
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(target), *map(str, sources), f"-Wl,-soname,{target.name}",
         "-Wl,--no-as-needed", f"-L{target.parent}", "-lascendcl"],
        capture_output=True, text=True,
    )
    if done.returncode != 0:
        raise OSError(f"{compiler} could not make {target.name}: {done.stderr.strip()[-1000:]}")


def lay_out(folder: str | os.PathLike[str], mindspore: str | os.PathLike[str] | None = None) -> Path:
    """Make the folder; what stands there is replaced.

    Parameters
    ----------
    folder : path
        `latest/lib64` is made in it.
    mindspore : path, optional
        The folder of an installed MindSpore, for which the graph engine's stubs are made.

    Returns
    -------
    Path
        The folder of the libraries, for `LD_LIBRARY_PATH`.

    Raises
    ------
    OSError
        Without a compiler, or if it refuses.
    """
    libraries = Path(folder).resolve() / "latest" / "lib64"
    if libraries.exists():
        shutil.rmtree(libraries)
    libraries.mkdir(parents=True)
    for library in Path(library_dir()).glob("*.so"):
        if library.name not in _COMPANIONS and (mindspore is None or library.name != "libge_runner.so"):
            (libraries / library.name).symlink_to(library)
    c, cpp = os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++")
    with tempfile.TemporaryDirectory() as scratch:
        empty, hccl = Path(scratch, "empty.c"), Path(scratch, "hccl.c")
        empty.write_text("typedef int nothing;\n")
        hccl.write_text(_HCCL)
        for name in _COMPANIONS:
            _link(c, libraries / name, [hccl if name == "libhccl.so" else empty])
        if mindspore is not None:
            stubs, status = Path(scratch, "stubs.c"), Path(scratch, "status.cpp")
            stubs.write_text(_stubs(missing_symbols(mindspore)))
            status.write_text(_STATUS)
            made = Path(scratch, "stubs.o")
            _output(c, "-c", "-fPIC", "-w", str(stubs), "-o", str(made))
            _link(cpp, libraries / "libge_runner.so", [made, status])
    return libraries
