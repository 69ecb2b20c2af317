"""Count the instructions of one operation of the simulator while there are many idle objects.

`python bench/sim_idle.py [CASE ...]`; needs gcc and valgrind.  Each number is the difference between a run of 2 N
operations and a run of N operations, divided by N.  So it does not contain the instructions that make the idle objects.
Threads poll for work before they sleep, which changes the ratio of two numbers by some tenths: below 1.5 it means
"no growth".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import acl
import acl.sim
from acl.tools.onnx_writer import Builder

HERE = Path(__file__).resolve().parent

#: By case: a description, the numbers of idle objects, and the number of operations.
CASES = {
    "streams": ("a task and its synchronisation, beside idle streams", 2000, 2000),
    "graphs": ("an execution of a graph, beside other graphs", 100_000, 1000),
    "waits": ("four records and waits in a capture, beside other graphs", 100_000, 500),
    "models": ("an execution of a model, others having been loaded and unloaded", 3000, 200),
    "blocks": ("malloc and free of a memory pool, beside its other blocks", 3000, 300),
}


def model() -> bytes:
    """Return a model of four numbers."""
    made = Builder(17)
    made.input("x", "float32", [4])
    made.add("Neg", "x", outputs=["y"])
    made.output("y")
    return made.to_bytes()


def instructions(program: Path, words: list[str]) -> int:
    """Return the number of instructions that valgrind counts in one run of sim_idle.c's program."""
    environment = {**os.environ, "ACL_SIM_MEMORY": "7G"}  # a smaller device, as valgrind has few addresses
    command = ["valgrind", "--tool=callgrind", "--max-threads=5000", "--callgrind-out-file=/dev/null",
               str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def main(names: list[str]) -> int:
    """Print a line for each case."""
    with tempfile.TemporaryDirectory() as folder:
        program, file = Path(folder) / "sim_idle", Path(folder) / "model.onnx"
        libraries = acl.sim.library_dir()
        file.write_bytes(model())
        subprocess.run(["gcc", "-O1", f"-I{acl.include_dir()}", str(HERE / "sim_idle.c"), "-o", str(program),
                        f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lascendcl"], check=True)
        for name in names or CASES:
            what, idle, count = CASES[name]
            costs = []
            for beside in (0, idle):
                once, twice = (instructions(program, [name, str(beside), str(n), str(file)])
                               for n in (count, 2 * count))
                costs.append((twice - once) / count)
            alone, crowded = costs
            print(f"{name:8} {alone:8.0f} alone, {crowded:8.0f} beside {idle}: {crowded / alone:.2f}   {what}",
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
