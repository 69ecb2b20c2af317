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
import sys
import tempfile
from pathlib import Path

from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, Subject, run_here
from acl.tools.bench_subjects import choose

__all__ = ["available", "count", "main"]

# Sizes of the two runs; W5's are steps of the model.
SIZES = {"W1": (2_000, 6_000), "W2": (10_000, 20_000), "W3": (10_000, 20_000), "W5": (2, 4),
         "hot": (2_000, 6_000), "random": (10_000, 20_000)}
LOOP = "*worker_run*"


def available() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def run_once(name: str, work: str, events: Path, size: int, others: Path | None) -> tuple[int, int] | None:
    """Instructions and pairs of one run; None if it failed."""
    out = events.with_suffix(f".{size}.callgrind")
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
               f"--toggle-collect={LOOP}", sys.executable, "-m", "acl.tools.bench_instructions",
               name, work, str(events), str(size), str(others or "")]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "ACL_BACKEND": "sim"})
    if done.returncode or not out.exists():
        return None
    totals = re.findall(r"^(?:summary|totals): (\d+)", out.read_text(encoding="utf-8"), re.MULTILINE)
    return (int(totals[-1]), int(done.stdout)) if totals else None


def events_of(workload: str, live: int) -> bytes:
    """The load's events; none for hot pairs, which need none."""
    if workload in ("W1", "hot"):
        return b""
    if workload == "random":
        return workloads.live_blocks(live).events
    if workload == "W5":
        return workloads.inference(steps=4)[0]
    return (workloads.mixed() if workload == "W2" else workloads.random_sizes(steps=30_000)).events


def count(workload: str, name: str, live: int = 0) -> float | None:
    """Instructions of a pair: W1, W2, W3, W5, or "hot" and "random" beside `live` blocks.

    None if valgrind is not here, or the allocator does not run under it.
    """
    if not available():
        return None
    with tempfile.TemporaryDirectory() as folder:
        # The child gets its events in files: NumPy takes long to start under valgrind.
        events, others = Path(folder) / "events", None
        events.write_bytes(events_of(workload, live))
        if workload == "hot":
            others = Path(folder) / "others"
            others.write_bytes(workloads.live_blocks(live).events)
        kind = {"W1": "pairs", "hot": "pairs", "W5": "events"}.get(workload, "replace")
        runs = [run_once(name, kind, events, size, others) for size in SIZES[workload]]
    if runs[0] is None or runs[1] is None:
        return None
    return round((runs[1][0] - runs[0][0]) / (runs[1][1] - runs[0][1]), 2)


def load_of(subject: Subject, work: str, events: bytes, size: int) -> Load:
    """The load of the child."""
    if work == "pairs":
        return Load.pairs(subject, workloads.HOT_SIZE, size)
    if work == "events":
        return Load.events([subject], events[:len(events) * size // SIZES["W5"][1]])
    load = Load.replace(subject, events, size)
    load.fill()
    return load


def main(arguments: list[str]) -> int:
    """In the child: run one load of that size once, and say how many pairs it has."""
    name, work, events, size = arguments[0], arguments[1], Path(arguments[2]), int(arguments[3])
    candidate = next(each for each in choose(name) if each.name == name)
    with candidate.open() as opened:
        others = None
        if arguments[4]:
            others = Load.replace(opened.subject, Path(arguments[4]).read_bytes(), 1)
            others.fill()
        load = load_of(opened.subject, work, events.read_bytes(), size)
        run_here(load, 1)
        print(load.allocations)
        load.close()
        if others is not None:
            others.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
