"""Build the simulator's libraries: `python acl/sim/build.py OUTDIR [--mode MODE]`.

Compiles each acl/sim/ROOM/*.c, only what changed, with the environment's CC (or gcc), CFLAGS and LDFLAGS, and
links `libascendcl.so`, `libacl_op_compiler.so` and the empty libraries that real programs also link.
Imports only the standard library, so that setup.py can use it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["COMPANIONS", "MODES", "build", "cores"]

HERE = Path(__file__).resolve().parent
#: Compilers run in this folder and get file names relative to it, so that objects can be reused in a copy of the tree.
ROOT = HERE.parents[1]

MODES = {
    "release": ["-O2", "-g1"],      # -g1: line numbers for backtraces
    "debug": ["-O0", "-g", "-DSIM_DEBUG"],
    "asan": ["-O1", "-g1", "-DSIM_DEBUG", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
    "tsan": ["-O1", "-g1", "-DSIM_DEBUG", "-fsanitize=thread"],
    "cov": ["-O0", "-g", "-DSIM_DEBUG", "--coverage"],
}
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wundef"]
if os.environ.get("ACLPOOL_STRICT"):        # set in CI; a warning of a user's compiler must not stop the build
    WARNINGS.append("-Werror")
ALWAYS = ["-std=c11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-pthread", "-MMD", *WARNINGS]

#: Libraries without functions: programs name them when they are linked, but call nothing in them.
COMPANIONS = ["libhccl.so", "libge_runner.so", "libgraph.so", "libnnopbase.so"]

#: Libraries without functions that depend on libascendcl.so, so that dlsym in them finds its functions.
LEADING = ["libprofapi.so", "libacl_rt_impl.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libmsprofiler.so"]

#: The name under which CANN's examples link the runtime; it has all names of libascendcl.so (see _second_name).
SECOND_NAME = "libacl_rt.so"

COMPILER_SOURCE = "generated/exports_op_compiler.c"

#: Folders with the operators' loops, which gcc vectorises only at -O3.
NUMERIC = ("numbers", "ops", "layers")


def cores() -> int:
    """Return how many compilers may run at a time: `MAX_JOBS`, or the number of this process's cores."""
    return int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))


def _stale(made: Path, depends: Path) -> bool:
    """Return True if an object must be compiled again.

    So it is if the object or its list of dependencies does not exist, or if one of the files that it was made from
    does not exist any more or is newer.
    """
    if not made.exists() or not depends.exists():
        return True
    names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    age = made.stat().st_mtime
    return any(not (ROOT / name).exists() or (ROOT / name).stat().st_mtime > age for name in names)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _flags(source: Path, flags: list[str]) -> list[str]:
    """Return the flags for a source.

    In a release build, numeric sources get -O3, and no FP traps and no errno, which would prevent vectorising.
    """
    numeric = "-O2" in flags and source.parent.name in NUMERIC
    return [*flags, "-O3", "-fno-trapping-math", "-fno-math-errno"] if numeric else flags


def _environment(name: str, default: str = "") -> list[str]:
    """Return the words of a command line in an environment variable."""
    return shlex.split(os.environ.get(name) or default)


def _compile(source: Path, objects: Path, flags: list[str], compiler: list[str]) -> Path:
    made = objects / source.relative_to(HERE).with_suffix(".o")
    made.parent.mkdir(parents=True, exist_ok=True)
    stamp = made.with_suffix(".cmd")
    command = [*compiler, *ALWAYS, *flags, "-Iacl/include", "-Iacl/sim", "-c", str(source.relative_to(ROOT))]
    text = "\n".join(command)
    if _stale(made, made.with_suffix(".d")) or not stamp.exists() or stamp.read_text() != text:
        # The object must not contain the name of the folder in which it was built, so that builds are reproducible.
        _run([*command, f"-ffile-prefix-map={ROOT}=.", "-o", str(made)])
        stamp.write_text(text)
    return made


def build(out: str | os.PathLike[str], mode: str = "release", jobs: int = 0, compiler: str = "") -> Path:
    """Build the libraries in `out` and return that folder.

    Parameters
    ----------
    out : path
        The folder; it is made if needed.  Objects are kept in `out/.objects-MODE`.
    mode : str
        One of MODES.
    jobs : int
        The number of compilers that run at a time; 0: `MAX_JOBS`, or the number of cores.
    compiler : str
        The compiler's command; by default the environment's CC, or gcc.

    Raises
    ------
    RuntimeError
        If a compiler fails, with its messages.
    """
    folder = Path(out).resolve()
    objects = folder / f".objects-{mode}"
    objects.mkdir(parents=True, exist_ok=True)
    command = shlex.split(compiler) or _environment("CC", "gcc")
    flags = [*MODES[mode], *_environment("CFLAGS")]
    sources = sorted(HERE.glob("*/*.c"))
    with ThreadPoolExecutor(jobs or cores()) as pool:
        compiled = pool.map(lambda s: _compile(s, objects, _flags(s, flags), command), sources)
        made = dict(zip((s.relative_to(HERE).as_posix() for s in sources), compiled, strict=True))
    for stale in set(objects.rglob("*.o")) - set(made.values()):     # their sources were moved or removed
        stale.unlink()
    own = made.pop(COMPILER_SOURCE)
    link = [*command, "-shared", "-pthread", *flags, *_environment("LDFLAGS")]
    _link(link, folder / "libascendcl.so", [str(o) for o in made.values()], ["-lm", "-ldl"])
    beside = [f"-L{folder}", "-Wl,--no-as-needed", "-lascendcl", "-Wl,-rpath,$ORIGIN"]
    _link(link, folder / "libacl_op_compiler.so", [str(own)], beside)
    for name in COMPANIONS:
        _link(link, folder / name, [], [])
    for name in LEADING:
        _link(link, folder / name, [], beside)
    _second_name(link, folder, objects)
    return folder


def _second_name(link: list[str], folder: Path, objects: Path) -> None:
    """Link a filter library: it has the names of all functions, but the loader takes the functions from libascendcl.so.

    A symbolic link would be simpler, but a wheel stores it as a copy, which would be a second simulator.
    """
    listed = subprocess.run(["nm", "-D", "--defined-only", str(folder / "libascendcl.so")], check=True,
                            capture_output=True, text=True).stdout
    names = [line.split()[2] for line in listed.splitlines() if " T " in line]
    stubs = objects / "second_name.s"
    lines = [f".globl {name}\n.type {name}, @function\n{name}:" for name in names]
    stubs.write_text(".text\n" + "\n".join(lines) + '\n.byte 0\n.section .note.GNU-stack,"",@progbits\n')
    rest = ["-Wl,-F,libascendcl.so", "-Wl,-rpath,$ORIGIN"]
    _link(link, folder / SECOND_NAME, [str(stubs)], rest)


def _link(link: list[str], target: Path, objects: list[str], rest: list[str]) -> None:
    temporary = target.with_suffix(".tmp")
    _run([*link, f"-Wl,-soname,{target.name}", "-Wl,-z,defs" if not _sanitized(link) else "-Wl,-z,lazy",
          "-o", str(temporary), *objects, *rest])
    temporary.replace(target)


def _sanitized(flags: list[str]) -> bool:
    return any(flag.startswith("-fsanitize") for flag in flags)


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Build the simulator's libraries.")
    parser.add_argument("out", metavar="OUTDIR")
    parser.add_argument("--mode", choices=sorted(MODES), default="release")
    parser.add_argument("--jobs", type=int, default=0, help="default: MAX_JOBS, or the number of cores")
    choice = parser.parse_args()
    try:
        build(choice.out, choice.mode, choice.jobs)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
