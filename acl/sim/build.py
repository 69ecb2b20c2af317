"""Build the simulator's libraries: `python acl/sim/build.py OUTDIR [--mode MODE]`.

Compiles each acl/sim/*.c with gcc, only what changed, and links `libascendcl.so`,
`libacl_op_compiler.so` and the empty companions that real programs want beside them.  Imports only
the standard library, so that setup.py can use it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["COMPANIONS", "MODES", "build"]

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"

MODES = {
    # The lines in a backtrace, and not the folder that it was built in.
    "release": ["-O2", "-g1", f"-ffile-prefix-map={HERE.parents[1]}=."],
    "debug": ["-O0", "-g", "-DSIM_DEBUG"],
    "asan": ["-O1", "-g", "-DSIM_DEBUG", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
    "tsan": ["-O1", "-g", "-DSIM_DEBUG", "-fsanitize=thread"],
    "cov": ["-O0", "-g", "-DSIM_DEBUG", "--coverage"],
}
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wundef", "-Werror"]
ALWAYS = ["-std=c11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-pthread", "-MMD", *WARNINGS]

#: Libraries with nothing in them: programs name them, but need no symbol of theirs.
COMPANIONS = ["libhccl.so", "libge_runner.so", "libgraph.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so",
              "libmsprofiler.so"]

#: The name by which CANN's examples link the runtime: all of libascendcl.so under a second name.
SECOND_NAME = "libacl_rt.so"

COMPILER_SOURCE = "exports_op_compiler.c"

#: The operator library's loops: gcc vectorises them at -O3 only.
NUMERIC = ("op_", "attend", "gemm", "tensor", "strided")


def _stale(made: Path, depends: Path) -> bool:
    """Whether an object is older than a file that it was made from."""
    if not made.exists() or not depends.exists():
        return True
    names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    age = made.stat().st_mtime
    return any(not Path(name).exists() or Path(name).stat().st_mtime > age for name in names)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _flags(source: Path, flags: list[str]) -> list[str]:
    """Traps and errno, which nobody looks at, would keep gcc from making vectors of branches and roots."""
    numeric = "-O2" in flags and source.name.startswith(NUMERIC)
    return [*flags, "-O3", "-fno-trapping-math", "-fno-math-errno"] if numeric else flags


def _compile(source: Path, objects: Path, flags: list[str], compiler: str) -> Path:
    made = objects / (source.stem + ".o")
    stamp = made.with_suffix(".cmd")
    command = [compiler, *ALWAYS, *flags, f"-I{INCLUDE}", f"-I{HERE}", "-c", str(source), "-o", str(made)]
    text = "\n".join(command)
    if _stale(made, made.with_suffix(".d")) or not stamp.exists() or stamp.read_text() != text:
        _run(command)
        stamp.write_text(text)
    return made


def build(out: str | os.PathLike[str], mode: str = "release", jobs: int = 2, compiler: str = "") -> Path:
    """Make the libraries in `out` and return it.

    Parameters
    ----------
    out : path
        The folder; it is made.  Objects are kept in `out/.objects-MODE`.
    mode : str
        One of MODES.
    jobs : int
        How many compilers run at a time.
    compiler : str
        Instead of the environment's CC, or gcc.

    Raises
    ------
    RuntimeError
        With the compiler's messages.
    """
    folder = Path(out)
    objects = folder / f".objects-{mode}"
    objects.mkdir(parents=True, exist_ok=True)
    compiler = compiler or os.environ.get("CC", "gcc")
    flags = MODES[mode]
    sources = sorted(HERE.glob("*.c"))
    with ThreadPoolExecutor(jobs) as pool:
        compiled = pool.map(lambda s: _compile(s, objects, _flags(s, flags), compiler), sources)
        made = dict(zip((s.name for s in sources), compiled, strict=True))
    own = made.pop(COMPILER_SOURCE)
    link = [compiler, "-shared", "-pthread", *flags]
    _link(link, folder / "libascendcl.so", [str(o) for o in made.values()], ["-lm", "-ldl"])
    beside = [f"-L{folder}", "-Wl,--no-as-needed", "-lascendcl", "-Wl,-rpath,$ORIGIN"]
    _link(link, folder / "libacl_op_compiler.so", [str(own)], beside)
    for name in COMPANIONS:
        _link(link, folder / name, [], [])
    _second_name(link, folder, objects)
    return folder


def _second_name(link: list[str], folder: Path, objects: Path) -> None:
    """A filter: it has the names, so that programs link; the loader puts libascendcl.so before it.

    A symbolic link would do but for wheels, which would carry a copy: a second simulator.
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
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the simulator's libraries.")
    parser.add_argument("out", metavar="OUTDIR")
    parser.add_argument("--mode", choices=sorted(MODES), default="release")
    parser.add_argument("--jobs", type=int, default=2)
    choice = parser.parse_args()
    try:
        build(choice.out, choice.mode, choice.jobs)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
