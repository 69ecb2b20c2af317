"""Tests of the core and C programs on an emulated aarch64: `python tests/machines/arm.py FOLDER [--seconds N]`.

FOLDER is the result of `python -m tools.release FOLDER --machine aarch64`: an installed wheel, qemu, and a Python for
aarch64.  The C programs are cross-compiled.  A Python that a test starts runs under qemu, too.  The program runs its
list of tests until the time is over, and prints how many it has run, and why tests were left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "c"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import programs

from tools.release.__main__ import emulated, packages, tools

ROOT = Path(__file__).resolve().parents[2]
MACHINE = "aarch64"
#: The tests, the most important ones first: lock, memory order, the simulator's rules.
TESTS = (
    "tests/core/test_invariants.py", "tests/core/test_blocks.py", "tests/core/test_pages.py",
    "tests/core/test_threads.py", "tests/core/test_order.py", "tests/core/test_races.py",
    "tests/core/test_views.py", "tests/pool/test_pool.py",
    "tests/sim/streams/test_ipc_event.py", "tests/sim/memory/test_rules_memory.py", "tests/sim/memory/test_virtual.py",
    "tests/runtime/test_buffer.py",
)
#: Marks of tests that start many processes, or want the release build's timing and mappings.
LEFT_OUT = ("subprocess_heavy", "release_only")
#: Tests that cannot pass under qemu, by reason.
IMPOSSIBLE = {
    "qemu does not pass on limits of memory (RLIMIT_DATA)": (
        "tests/core/test_order.py::test_capture_gets_no_memory_if_its_arena_cannot_be_made",
    ),
}
PROGRAMS = (
    "core_lock", "sim_order", "sim_first_thread", "sim_memory_threads", "sim_events", "sim_stress", "sim_graph_threads",
)


def start_children_with(python: Sequence[str | Path], folder: Path, installed: Path) -> None:
    """Let `sys.executable` be a script that starts the emulated Python: the kernel starts no program for aarch64."""
    script = folder / "emulated-python"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, python))} "$@"\n')
    script.chmod(0o755)
    (installed / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(script)!r}\n")


def not_run(file: str, output: str) -> Counter[str]:
    """Count what pytest left out of a file, by reason."""
    found: Counter[str] = Counter()
    for reason, names in IMPOSSIBLE.items():
        found[reason] += sum(name.startswith(f"{file}::") for name in names)
    impossible = found.total()
    for number, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", output, re.MULTILINE):
        found[reason] += int(number)
    for number in re.findall(r"^.*?(\d+) deselected", output, re.MULTILINE)[-1:]:
        found[f"marked {' or '.join(LEFT_OUT)}"] += int(number) - impossible
    return +found


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Run tests and C programs on an emulated aarch64.")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--seconds", type=float, default=600)
    choice = parser.parse_args()
    folder, until = choice.folder.resolve(), time.monotonic() + choice.seconds
    installed = folder / "installed" / f"{choice.python}-{MACHINE}"
    host = tools(folder, Path(sys.executable), f"{sys.version_info[0]}.{sys.version_info[1]}")
    beside = packages(folder / "test" / MACHINE, host, choice.python, MACHINE, "pytest", "pytest-benchmark",
                      "pytest-xdist", "hypothesis")
    python = emulated(folder, choice.python, MACHINE)
    start_children_with(python, folder, installed)
    os.environ["CC"] = f"{MACHINE}-linux-gnu-gcc"           # for the programs below, and for what tests compile
    environment = {**os.environ, "ACL_BACKEND": "sim", "PYTHONPATH": f"{installed}:{beside}", "ACLPOOL_TURNS": "100"}
    made = folder / "programs"
    made.mkdir(exist_ok=True)
    steps: list[tuple[str, list[str | Path]]] = []
    for name in PROGRAMS:
        program = programs.compile_program(ROOT / f"tests/c/{name}.c", made, installed / "acl/sim/lib",
                                           installed / "acl/include", "")
        steps.append((name, [*python[:-1], program]))
    options = ["-q", "-p", "no:cacheprovider", "-n", "0", "-m", " and ".join(f"not {mark}" for mark in LEFT_OUT),
               *[f"--deselect={name}" for names in IMPOSSIBLE.values() for name in names]]
    # -P: the package of this folder is not built for aarch64.
    steps[4:4] = [(test, [*python, "-P", "-m", "pytest", *options, test]) for test in TESTS]
    failed = done = 0
    left_out: Counter[str] = Counter()
    for name, command in steps:
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            ran = subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, timeout=left, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            break
        done += 1
        failed += ran.returncode != 0
        left_out += not_run(name, ran.stdout)
        last = (ran.stdout.strip().splitlines() or [""])[-1]
        print(f"{name}: {'passed' if ran.returncode == 0 else f'failed with {ran.returncode}'} {last}", flush=True)
        if ran.returncode != 0:
            print(ran.stdout[-4000:], flush=True)
    for reason, number in left_out.most_common():
        print(f"not run: {number}, {reason}")
    print(f"{done} of {len(steps)} ran on an emulated {MACHINE}, {failed} failed")
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
