"""Builds the C programs of this folder, and runs them on the simulator.

`ACLPOOL_SIM_MODE` (release, debug, asan, tsan) chooses how the simulator and the programs are built;
without it the installed simulator is used and only the programs are built.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

__all__ = ["HERE", "compile_program", "environment", "examples", "mode", "programs", "simulator"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_S = int(os.environ.get("ACLPOOL_PROGRAM_SECONDS") or 300)

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
SANITIZE = {
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "tsan": ["-fsanitize=thread"],
}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def mode() -> str:
    """Return the build type, or "" for the installed simulator."""
    return os.environ.get("ACLPOOL_SIM_MODE", "")


def _build_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sim_build", ROOT / "acl/sim/build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulator(folder: Path, how: str) -> tuple[Path, Path]:
    """Return the folders of the libraries and of the headers.

    If setup.py has built a simulator of this build type, only its changed files are rebuilt.
    """
    if not how:
        import acl
        import acl.sim

        return Path(acl.sim.library_dir()), Path(acl.include_dir())
    made = ROOT / "build" / ("simulator-sanitize" if how == "asan" else f"simulator-{how}")
    return _build_module().build(made if made.is_dir() else folder / how, how), ROOT / "acl/include"


def programs(prefix: str = "sim_") -> list[Path]:
    """Return the sources whose names begin with `prefix`."""
    return sorted(HERE.glob(f"{prefix}*.c"))


def examples() -> list[Path]:
    """Return the sources of the example programs."""
    return sorted((HERE / "examples").glob("*.c"))


def compiler() -> list[str]:
    """Return the command of the C compiler: CC from the environment, or gcc."""
    return shlex.split(os.environ.get("CC") or "gcc")


def compile_program(source: Path, folder: Path, libraries: Path, headers: Path, how: str,
                    extra: Sequence[str] = ()) -> Path:
    """Compile one source; return the program, in `folder`."""
    made = folder / source.stem
    command = [*compiler(), *FLAGS, *SANITIZE.get(how, []), f"-I{headers}", f"-I{HERE}", f"-I{ROOT}/acl/sim",
               str(source), "-o", str(made), f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lascendcl", *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def environment(how: str) -> dict[str, str]:
    """Return the environment for a program, in which sanitizers stop at the first error."""
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return {**inherited, **(OPTIONS if how else {})}
