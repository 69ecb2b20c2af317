"""Compiles C programs, as users write them, with the package's headers and the simulator, and runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import acl
from acl import sim

__all__ = ["compile_program", "run_program"]

FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]


def compile_program(source: Path, folder: Path, library: str = "ascendcl") -> Path:
    """Compile a program from one source into `folder`, and return its path."""
    program = folder / source.stem
    line = ["gcc", *FLAGS, str(source), "-o", str(program), f"-I{acl.include_dir()}", f"-L{sim.library_dir()}",
            f"-l{library}"]
    subprocess.run(line, check=True)
    return program


def run_program(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the simulator in the loader's path. Return its exit code and output."""
    environment = {**os.environ, "LD_LIBRARY_PATH": sim.library_dir(), **variables}
    return subprocess.run([str(program), *arguments], env=environment, capture_output=True, text=True, timeout=300)
