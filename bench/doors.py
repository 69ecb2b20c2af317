"""The common part of the benchmarks of adapters: a process for each row, and the table.

A row names its `work` and its `allocator`, and has the measurements: `live`, the peak of requested bytes;
`reserved`, the peak of the simulator's physical accounting; `seconds` of CPU time; `calls` of the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["CALLS", "CALLS_OF", "COLUMNS", "TIME", "Row", "child", "main", "mib", "table"]

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]

#: The driver calls that allocate or free memory, or wait.
CALLS = (
    "aclrtMalloc", "aclrtMallocAlign32", "aclrtFree", "aclrtMallocPhysical", "aclrtFreePhysical", "aclrtMapMem",
    "aclrtUnmapMem", "aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtSynchronizeDevice",
    "aclrtSynchronizeDeviceWithTimeout",
)
#: Code for the child process: it defines a function that returns the sum of these calls so far.
CALLS_OF = f"""
import acl.sim as sim
def driver_calls():
    counts = sim.counters()
    return sum(counts.get(name, 0) for name in {CALLS!r})
"""


def child(name: str, code: str, *, environment: Mapping[str, str] | None = None, timeout: float = 900) -> Row:
    """Run code in its own process on the simulator. It prints "RESULT " and a JSON object, which is returned.

    Raises
    ------
    RuntimeError
        With the process's output, if it failed.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "ACL_BACKEND": "sim", "GLOG_v": "3", **(environment or {})})
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            row: Row = json.loads(line[7:])
            return row
    raise RuntimeError(f"{name}: {(done.stderr or done.stdout)[-2000:]}")


def mib(key: str) -> Callable[[Row], str]:
    """Return a function that formats the row's bytes under `key` in MiB."""
    return lambda row: f"{row[key] / 2**20:.1f}"


COLUMNS: tuple[Column, ...] = (
    ("live MiB", mib("live")),
    ("reserved MiB", mib("reserved")),
    ("ratio", lambda row: f"{row['reserved'] / row['live']:.3f}"),
)
#: The CPU time of the row, divided by that of the first row of the same work.
TIME: Column = ("time", lambda row: f"{row['time']:.2f}")


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return the rows as Markdown.

    Adds to each row with `seconds` its `time`: `seconds` divided by the seconds of the first row of the same work.
    """
    base: dict[str, float] = {}
    lines = ["| work | allocator | " + " | ".join(title for title, _ in columns) + " |",
             "|---" * (2 + len(columns)) + "|"]
    for row in rows:
        if row.get("seconds"):
            row["time"] = row["seconds"] / base.setdefault(row["work"], row["seconds"])
        shown = [row["work"], row["allocator"], *(form(row) for _, form in columns)]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main(
    document: str | None, measure: Callable[[argparse.Namespace], list[Row]], columns: Sequence[Column],
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None, *, rounds: int = 5,
) -> int:
    """Run the command of one of these benchmarks. Return the exit status."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write every row there")
    parser.add_argument("--rounds", type=int, default=rounds, help="of each work; the least time counts")
    arguments(parser)
    options = parser.parse_args()
    rows = measure(options)
    print(table(rows, columns))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0
