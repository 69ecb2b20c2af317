"""Make a folder with the layout of CANN's toolkit, so that programs build and run with the simulator.

`lay_out` makes `DIR/latest` with the headers, the libraries that public projects link against,
`set_env.sh` and `bin/setenv.bash`, version files, a CMake package (`find_package(AscendCL)`) and a file for
pkg-config.  Folders that have another name in other releases (`x86_64-linux`, `runtime`, `acllib`) are links.

`libascendcl.so` and `libacl_op_compiler.so` are links to the package's files, so a process that loads them by
two paths has one simulator.  The other libraries of the runtime contain only the names of their functions, so that
programs can link against one of them alone; the loader finds the functions in `libascendcl.so`.

Needs gcc and g++ (or the compilers in `CC` and `CXX`), `nm` and `readelf`.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from acl.sim import cann_mindspore, library_dir

__all__ = ["MARK", "lay_out"]

#: A file in `latest` that shows that `lay_out` made the folder and may replace it.
MARK = "aclpool-simulator"

#: Libraries of the runtime, with the header that declares their functions.
_RUNTIME = {
    "libacl_mdl.so": "acl_mdl.h", "libacl_op_executor.so": "acl_op.h", "libacl_cblas.so": "ops/acl_cblas.h",
    "libacl_tdt_channel.so": "acl_tdt.h", "libacl_tdt_queue.so": "acl_tdt_queue.h", "libmsprofiler.so": "acl_prof.h",
    "libruntime.so": "acl_rt.h",
}
#: Libraries without functions of their own: programs name them when they are linked; dlsym in them finds the
#: functions of libascendcl.so.
_NAMED = (
    "libacl_dvpp.so", "libacl_dvpp_mpi.so", "libacl_retr.so", "libalog.so", "libascend_hal.so", "libascendalog.so",
    "libc_sec.so", "liberror_manager.so", "libge_common.so", "libge_compiler.so", "libge_runner.so", "libgraph.so",
    "libgraph_base.so", "libhccl.so", "libmmpa.so", "libnnopbase.so", "libplatform.so", "libregister.so",
    "libtiling_api.so", "libunified_dlog.so",
)
#: Symbolic links to make under `latest`, from the name of each to its target, a folder of `latest`.
_LINKS = {
    "lib64/stub": ".", "acllib": ".", "runtime/include": "../include", "runtime/lib64": "../lib64",
    "compiler/include": "../include", "compiler/lib64": "../lib64", "fwkacllib": ".",
    "tools/tikcpp": "../tikcpp", "compiler/tikcpp": "../tikcpp",
}
_LINKS_OF_MACHINE = {"include": "../include", "lib64": "../lib64", "devlib": "../lib64", "tikcpp": "../tikcpp"}

_SET_ENV = """# The simulator of AscendCL in CANN's place: `. {shown}/set_env.sh`
export ASCEND_TOOLKIT_HOME={home}
export ASCEND_HOME_PATH="$ASCEND_TOOLKIT_HOME"
export ASCEND_INSTALL_PATH="$ASCEND_TOOLKIT_HOME"
export ASCEND_OPP_PATH="$ASCEND_TOOLKIT_HOME/opp"
export ASCENDC_CMAKE_DIR="$ASCEND_TOOLKIT_HOME/tikcpp/ascendc_kernel_cmake"
export LD_LIBRARY_PATH="$ASCEND_TOOLKIT_HOME/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export CMAKE_PREFIX_PATH="$ASCEND_TOOLKIT_HOME${{CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}}"
export PKG_CONFIG_PATH="$ASCEND_TOOLKIT_HOME/lib64/pkgconfig${{PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}}"
export ACL_BACKEND=sim
"""

_CMAKE = """# find_package(AscendCL): the targets AscendCL::ascendcl and AscendCL::acl_op_compiler.
get_filename_component(AscendCL_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(AscendCL_INCLUDE_DIRS "${AscendCL_ROOT_DIR}/include")
set(AscendCL_LIBRARY_DIRS "${AscendCL_ROOT_DIR}/lib64")
foreach(library ascendcl acl_op_compiler)
  if(NOT TARGET AscendCL::${library})
    add_library(AscendCL::${library} SHARED IMPORTED)
    set_target_properties(AscendCL::${library} PROPERTIES
      IMPORTED_LOCATION "${AscendCL_LIBRARY_DIRS}/lib${library}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${AscendCL_INCLUDE_DIRS}")
  endif()
endforeach()
set_property(TARGET AscendCL::acl_op_compiler PROPERTY INTERFACE_LINK_LIBRARIES AscendCL::ascendcl)
set(AscendCL_LIBRARIES AscendCL::ascendcl)
"""

_CMAKE_VERSION = """set(PACKAGE_VERSION "{numbers}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"""

_PKG_CONFIG = """prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib64
includedir=${{prefix}}/include

Name: ascendcl
Description: AscendCL, on the simulator
Version: {numbers}
Libs: -L${{libdir}} -lascendcl
Cflags: -I${{includedir}}
"""

#: Projects include this file even if they have no kernels; building a kernel ends with an error that says why.
_ASCENDC = """# Device code needs CANN's compiler; the simulator brings none.
function(ascendc_library target)
  message(FATAL_ERROR "ascendc_library(${target}): the simulator has no compiler for device code")
endfunction()
function(ascendc_fatbin_library target)
  message(FATAL_ERROR "ascendc_fatbin_library(${target}): the simulator has no compiler for device code")
endfunction()
function(ascendc_include_directories)
endfunction()
function(ascendc_compile_definitions)
endfunction()
function(ascendc_compile_options)
endfunction()
"""


def _exported() -> list[str]:
    """Return the names of the functions of libascendcl.so."""
    listed = cann_mindspore.output("nm", "-D", "--defined-only", str(Path(library_dir(), "libascendcl.so")))
    return [line.split()[-1] for line in listed.splitlines() if " T " in line]


def _declared(include: Path, header: str, exported: list[str]) -> list[str]:
    """Return the exported functions that a header declares."""
    words = set(re.findall(r"\w+", (include / "acl" / header).read_text()))
    return [name for name in exported if name in words]


def _link(target: Path, source: str, rest: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "source.s" if source.startswith(".") else "source.c")
        file.write_text(source)
        cann_mindspore.output(os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-o", str(target), str(file),
                              f"-Wl,-soname,{target.name}", *rest)


def _filter(target: Path, names: list[str]) -> None:
    """Link a library with these names; the loader finds the functions in libascendcl.so."""
    lines = [f".globl {name}\n.type {name}, @function\n{name}:" for name in names]
    source = ".text\n" + "\n".join(lines) + '\n.byte 0\n.section .note.GNU-stack,"",%progbits\n'
    _link(target, source, ["-Wl,-F,libascendcl.so", "-Wl,-rpath,$ORIGIN"])


def _libraries(latest: Path, mindspore: str | os.PathLike[str] | None) -> None:
    """Make `lib64` with its libraries."""
    libraries = latest / "lib64"
    libraries.mkdir()
    for library in Path(library_dir()).glob("*.so"):
        if library.name not in _NAMED and library.name not in _RUNTIME:
            (libraries / library.name).symlink_to(library)
    exported = _exported()
    lead = ["-Wl,--no-as-needed", f"-L{libraries}", "-lascendcl", "-Wl,-rpath,$ORIGIN"]

    def make(name: str) -> None:
        target = libraries / name
        if name in _RUNTIME:
            _filter(target, _declared(latest / "include", _RUNTIME[name], exported))
        elif name == "libge_runner.so" and mindspore is not None:
            cann_mindspore.graph_engine(target, mindspore, [f"-Wl,-soname,{name}", *lead])
        else:
            _link(target, cann_mindspore.HCCL if name == "libhccl.so" else "typedef int nothing;\n", lead)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make, [*_RUNTIME, *_NAMED]))


def _texts(latest: Path, version: str) -> dict[str, str]:
    """Return the text files under `latest`, as a dict from name to text."""
    machine = platform.machine()
    matched = re.match(r"[\d.]*\d", version)
    numbers = matched[0] if matched else "0"
    set_env = _SET_ENV.format(shown=latest, home=shlex.quote(str(latest)))
    info = f"Version={version}\nversion_dir={version}\ntimestamp=\n"
    install = (f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=simulator\n"
               f"arch={machine}\nos=linux\npath={latest}\n")
    parts = ("runtime", "compiler", "opp", "toolkit")
    return {
        MARK: "Made by `aclpool sim folder`, which replaces this folder.\n",
        "set_env.sh": set_env,
        "bin/setenv.bash": set_env,
        "version.cfg": f"[TOOLKIT]\nversion={version}\nruntime_running_version=[{version}]\n",
        "version.info": info,
        **{f"{part}/version.info": info for part in parts},
        f"{machine}-linux/ascend_toolkit_install.info": install,
        "ascend_toolkit_install.info": install,
        "lib/cmake/AscendCL/AscendCLConfig.cmake": _CMAKE,
        "lib/cmake/AscendCL/AscendCLConfigVersion.cmake": _CMAKE_VERSION.format(numbers=numbers),
        "lib64/pkgconfig/ascendcl.pc": _PKG_CONFIG.format(numbers=numbers),
        "tikcpp/ascendc_kernel_cmake/ascendc.cmake": _ASCENDC,
    }


def _symlink(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _version() -> str:
    """Return the version of CANN that the simulator reports.

    A child process loads the simulator for this, because this process may still have to open it by its path in the
    new folder.
    """
    code = "import acl.sim; print(acl.sim.configuration()['cann'])"
    return cann_mindspore.output(sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", code).strip()


def lay_out(
    folder: str | os.PathLike[str], mindspore: str | os.PathLike[str] | None = None, version: str | None = None
) -> Path:
    """Make `latest` in the folder; replace a `latest` that was made before.

    Parameters
    ----------
    folder : path
        The folder in which `latest`, and links to its contents, are made.
    mindspore : path, optional
        The folder of an installed MindSpore, for which the graph engine's stubs are made.
    version : str, optional
        The version of CANN in the version files; by default the one that the simulator reports.

    Returns
    -------
    Path
        The folder of the libraries, for `LD_LIBRARY_PATH`.

    Raises
    ------
    OSError
        If there is no compiler, if it fails, or if there is a `latest` that this function has not made.
    """
    top = Path(folder).resolve()
    latest = top / "latest"
    if latest.is_symlink() or (latest.exists() and not (latest / MARK).exists()):
        raise FileExistsError(f"{latest} was not made by aclpool sim folder: remove it, or name another folder")
    if latest.exists():
        shutil.rmtree(latest)
    latest.mkdir(parents=True)
    (latest / MARK).touch()         # first, so that the folder can be replaced even if a step below fails
    (latest / "include").symlink_to(Path(library_dir()).parents[1] / "include")
    _libraries(latest, mindspore)
    for name, text in _texts(latest, version or _version()).items():
        file = latest / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    of_machine = {f"{platform.machine()}-linux/{name}": target for name, target in _LINKS_OF_MACHINE.items()}
    for name, target in {**_LINKS, **of_machine}.items():
        _symlink(latest / name, target)
    for name in ("include", "lib64", "bin", "set_env.sh", "opp", "tikcpp"):
        _symlink(top / name, f"latest/{name}")
    return latest / "lib64"
