"""Instructions per pair, counted by callgrind where the processor's counter is hidden.

`count` runs this module under valgrind twice, with different numbers of pairs, counting only inside
the loops; the difference of the two divided by the difference of the pairs is free of the start, the
warm-up and the end. Valgrind refuses the barrier that the pool's lock needs to favour one thread, so
the pool is counted with its spin lock, some twenty instructions more than it runs elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, Subject, run_here
from acl.tools.apart import python_command
from acl.tools.bench_subjects import candidate_of

__all__ = ["available", "count", "main"]

# Sizes of the two runs; W5's are steps of the model.
SIZES = {"W1": (2_000, 6_000), "W2": (10_000, 20_000), "W3": (10_000, 20_000), "W5": (2, 4),
         "hot": (2_000, 6_000), "random": (10_000, 20_000)}
LOOP = "*seat_*"


def available() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def run_once(workload: str, spec: str, live: int, size: int, folder: Path) -> tuple[int, int]:
    """Instructions and pairs of one run.

    Raises
    ------
    RuntimeError
        With what valgrind said.
    """
    out, pairs = folder / "callgrind.out", folder / "pairs"
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
               f"--toggle-collect={LOOP}", *python_command("acl.tools.bench_instructions", workload, spec, str(live),
                                                           str(size), str(pairs))]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "ACL_BACKEND": "sim"})
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    totals = re.findall(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    if done.returncode or not totals or not int(totals[-1]):
        raise RuntimeError(f"valgrind: exit status {done.returncode}: {done.stderr.strip()[-200:]}")
    return int(totals[-1]), int(pairs.read_text(encoding="ascii"))


def count(workload: str, spec: str, live: int = 0) -> float:
    """Instructions of a pair: W1, W2, W3, W5, or "hot" and "random" beside `live` blocks.

    Raises
    ------
    RuntimeError
        If valgrind is not here, or the allocator does not run under it.
    """
    if not available():
        raise RuntimeError("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (run_once(workload, spec, live, size, Path(folder)) for size in SIZES[workload])
    return round((many[0] - few[0]) / (many[1] - few[1]), 2)


def load_of(subject: Subject, workload: str, live: int, size: int) -> Load:
    """The load of the child."""
    if workload in ("W1", "hot"):
        return Load.pairs(subject, workloads.HOT_SIZE, size)
    if workload == "W5":
        return Load.events([subject], workloads.inference(steps=size)[0])
    if workload == "random":
        # Few of many slots: instructions do not depend on what the caches hold.
        load = Load.random(subject, live, workloads.SMALL_SIZES, size, 6)
        load.fill()
        return load
    return (workloads.mixed if workload == "W2" else workloads.random_sizes)(subject, size)


def main(arguments: list[str]) -> int:
    """In the child: run one load of that size once, and write how many pairs it has."""
    workload, spec, live, size, pairs = arguments
    with candidate_of(spec).open() as opened:
        others = workloads.live_blocks(opened.subject, int(live), 1) if workload == "hot" else None
        load = load_of(opened.subject, workload, int(live), int(size))
        run_here(load, 1)
        Path(pairs).write_text(str(load.allocations), encoding="ascii")
        load.close()
        if others is not None:
            others.close()
    return 0
