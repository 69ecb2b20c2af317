"""Stubs for the functions outside ACL that the installed MindSpore needs of CANN's libraries.

MindSpore is linked against C++ functions of the graph engine.  `graph_engine` makes a `libge_runner.so`
with a stub for each function that the installed MindSpore does not find.  A stub does nothing and returns 0.
With the stubs MindSpore can be loaded and use memory, copies and streams; it cannot compile graphs.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from acl.sim import library_dir

__all__ = ["HCCL", "graph_engine", "missing_symbols", "output"]

#: The libraries of MindSpore from which the search for its other libraries starts.
_ROOTS = ("libmindspore_ascend.so.2", "libmindspore_graph_ir.so", "libhccl_plugin.so")

#: MindSpore looks up HcclSetConfig by name and does not start without it.
HCCL = "int HcclSetConfig(int config, void *value) { (void)config, (void)value; return 0; }\n"

#: Source of the only stub that has to return an object: a table of texts, in the old ABI of std::string.
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


def output(*command: str) -> str:
    """Run a command and return its output; OSError with its error output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)[:200]}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _symbols(library: Path, which: str) -> Iterable[tuple[str, str]]:
    """Yield the kind and the name (with its version) of each dynamic symbol of a library."""
    for line in output("nm", "-D", f"--{which}-only", str(library)).splitlines():
        words = line.split()
        yield words[-2], words[-1]


def _closure(folder: Path) -> tuple[list[Path], set[str]]:
    """Return MindSpore's libraries for the device, and the names of other libraries that they need."""
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
        todo += re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(own[name])))
    return list(found.values()), foreign


def missing_symbols(mindspore: str | os.PathLike[str]) -> list[str]:
    """Return the symbols that MindSpore's libraries for the device need and no library defines.

    Parameters
    ----------
    mindspore : path
        The folder of the installed package.
    """
    libraries, foreign = _closure(Path(mindspore) / "lib")
    compiler = os.environ.get("CC", "gcc")
    system = [Path(output(compiler, f"-print-file-name={name}").strip()) for name in sorted(foreign)]
    known = [*libraries, *Path(library_dir()).glob("*.so"), *(path for path in system if path.is_absolute())]
    there = {name.split("@")[0] for library in known for _, name in _symbols(library, "defined")}
    wanted = {name for library in libraries for kind, name in _symbols(library, "undefined") if kind == "U"}
    return sorted(name for name in wanted - there if "@" not in name and not name.startswith(("Py", "_Py")))


def _stubs(names: list[str]) -> str:
    """Return C source that defines each name, except `_STATUS_SYMBOL`, which `_STATUS` defines.

    Functions return 0; data (tables of virtual functions) is zeros.
    """
    lines = []
    for number, name in enumerate(names):
        if name.startswith("_ZT"):
            lines.append(f'char data_{number}[4096] __asm__("{name}");')
        elif name != _STATUS_SYMBOL:
            lines.append(
                f'void *stub_{number}(void) __asm__("{name}");\nvoid *stub_{number}(void) {{ return 0; }}'
            )
    return "\n".join(lines) + "\n"


def graph_engine(target: Path, mindspore: str | os.PathLike[str], rest: list[str]) -> None:
    """Link the stubs of the graph engine's functions to `target`, with `rest` at the end of the command."""
    c, cpp = os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++")
    with tempfile.TemporaryDirectory() as scratch:
        stubs, status, made = (Path(scratch, name) for name in ("stubs.c", "status.cpp", "stubs.o"))
        stubs.write_text(_stubs(missing_symbols(mindspore)))
        status.write_text(_STATUS)
        output(c, "-c", "-fPIC", "-w", str(stubs), "-o", str(made))
        output(cpp, "-shared", "-fPIC", "-o", str(target), str(made), str(status), *rest)
