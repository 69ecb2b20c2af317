"""C programs of users: compiled with the package's headers, linked with the simulator, and run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import acl
from acl import sim

__all__ = ["compile_program", "run_program"]

FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]


def compile_program(source: Path, folder: Path, library: str = "ascendcl") -> Path:
    """The program made from one source, in `folder`."""
    program = folder / source.stem
    line = ["gcc", *FLAGS, str(source), "-o", str(program), f"-I{acl.include_dir()}", f"-L{sim.library_dir()}",
            f"-l{library}"]
    subprocess.run(line, check=True)
    return program


def run_program(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it where the loader finds the simulator; its exit code and output."""
    environment = {**os.environ, "LD_LIBRARY_PATH": sim.library_dir(), **variables}
    return subprocess.run([str(program), *arguments], env=environment, capture_output=True, text=True, timeout=300)
