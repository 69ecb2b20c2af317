"""Count the instructions of a pair (an allocation and a free) with callgrind, if the processor's counter is hidden.

`count` runs a case's process under valgrind twice, with more runs of the load the second time, and counts only
inside the loops.  The difference of the two counts is divided by the pairs of the additional runs.  So it contains
neither the start nor the warm-up.  Valgrind refuses the memory barrier that the pool's biased lock needs.  So the
pool is counted with its spin lock, which takes about twenty instructions more.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.tools.apart import python_command

if TYPE_CHECKING:
    from acl.tools.bench.cases import Case
    from acl.tools.bench.subjects import Candidate

__all__ = ["COUNTABLE", "available", "count", "countable", "main"]

#: Workloads with one load, which runs on the measuring thread.
COUNTABLE = ("W1", "W2", "W3", "W5", "live", "sizes", "day", "trace")
RUNS = (2, 4)                   # runs of the load in the first and in the second process
SECONDS = 600
LOOP = "*seat_*"


def available() -> bool:
    """Return True if valgrind is installed."""
    return shutil.which("valgrind") is not None


def countable(case: Case) -> bool:
    """Return True if callgrind can count a row's instructions: its load runs on the measuring thread."""
    return (case.workload in COUNTABLE and case.parameters.get("thread") != "foreign"
            and case.parameters.get("threads", 1) == 1)


def run_once(candidate: Candidate, job: dict[str, Any], runs: int, folder: Path) -> tuple[int, int]:
    """Return the number of instructions of `runs` runs, and the number of pairs of one run.

    Raises
    ------
    RuntimeError
        If the process failed, or took longer than `SECONDS`; with the message of valgrind or of the allocator.
    """
    out, answer = folder / "callgrind.out", folder / "answer.json"
    for file in (out, answer):
        file.unlink(missing_ok=True)
    wanted = {**job, "answer": str(answer), "counted": runs}
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
               f"--toggle-collect={LOOP}", *python_command("acl.tools.bench.instructions", json.dumps(wanted))]
    try:
        done = subprocess.run(command, env=candidate.variables(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {SECONDS} s") from None
    found = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    totals = re.findall(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    if done.returncode or "rows" not in found or not totals or not int(totals[-1]):
        why = found.get("failed") or found.get("unavailable") or done.stderr.strip()[-200:]
        raise RuntimeError(f"valgrind: exit status {done.returncode}: {why}")
    return int(totals[-1]), int(found["rows"][0]["pairs"])


def count(candidate: Candidate, job: dict[str, Any], folder: Path) -> float:
    """Return the number of instructions of a pair in the case that `job` describes.

    Raises
    ------
    RuntimeError
        If the allocator does not run under valgrind.
    """
    (few, _), (many, pairs) = (run_once(candidate, job, runs, folder) for runs in RUNS)
    return round((many - few) / ((RUNS[1] - RUNS[0]) * pairs), 2)


def main(arguments: list[str]) -> int:
    """Measure a case in the process that runs under valgrind, and return the exit status.

    A run need not replace the blocks of most slots, because the number of instructions does not depend on the caches.
    """
    from acl.tools.bench import runs as bench_runs
    from acl.tools.bench import workloads as bench_workloads

    bench_workloads.STEPS_PER_SLOT = 0
    return bench_runs.main(arguments)
