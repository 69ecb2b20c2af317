"""Run every example, the C ones compiled with gcc, and print `N passed, N failed` at the end.

Each example checks its own results; its exit code is 0 if all were right. The examples use the installed package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl
from acl import sim

HERE = Path(__file__).resolve().parent
SECONDS = 60


def compile_c(source: Path, folder: Path) -> Path:
    """Compile a C example, and return its program."""
    program = folder / source.stem
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", str(source), "-o", str(program),
         f"-I{acl.include_dir()}", f"-L{sim.library_dir()}", "-lascendcl", "-lacl_op_compiler",
         f"-Wl,-rpath,{sim.library_dir()}"],
        check=True)
    return program


def commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of each example."""
    for source in sorted(HERE.glob("*.py")):
        if source.name != Path(__file__).name:
            yield source.name, [sys.executable, str(source)]
    for source in sorted((HERE / "c").glob("*.c")):
        program = compile_c(source, folder)
        step = source.with_suffix(".py")        # writes the model that the program takes
        arguments = []
        if step.exists():
            arguments = [f"{program}.onnx", "3", "100", "3"]
            subprocess.run([sys.executable, str(step), arguments[0]], check=True)
        yield f"c/{source.name}", [str(program), *arguments]


def passed(name: str, command: list[str], folder: Path) -> bool:
    """Run one example, and show its output if it failed. Return True if it passed."""
    started = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
        good = done.returncode == 0
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        good, output = False, f"no end after {SECONDS} s"
    print(f"{'passed' if good else 'FAILED'}  {name}  ({time.monotonic() - started:.1f} s)", flush=True)
    if not good:
        print(output)
    return good


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = [passed(name, command, Path(folder)) for name, command in commands(Path(folder))]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
