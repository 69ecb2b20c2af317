"""What `aclpool bench` says: the machine, the table, the plot.

Rows are the dicts of `bench_runs`; nothing is measured here.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["machine", "plot", "table", "with_floor"]

Row = dict[str, Any]
# Column: heading, key, format.
COLUMNS = (
    ("ns/pair", "ns_per_pair", "{:,.1f}"), ("min", "ns_per_pair_min", "{:,.1f}"),
    ("host", "ns_per_pair_host", "{:,.1f}"), ("x floor", "over_floor", "{:,.2f}"),
    ("p50", "p50_ns", "{:,.0f}"), ("p99", "p99_ns", "{:,.0f}"), ("p99.9", "p999_ns", "{:,.0f}"),
    ("free p99", "free_p99_ns", "{:,.0f}"), ("ratio", "reserved_ratio", "{:.3f}"),
    ("driver calls", "driver_calls", "{:,}"), ("instr", "instructions", "{:,.1f}"),
    ("failed", "failures", "{:,}"),
)
TITLES = {
    "W1": "W1 hot pair, 64 KiB", "W2": "W2 mixed, 32 sizes", "W3": "W3 random sizes",
    "W4": "W4 mixed on several threads (wall time)", "W5": "W5 dynamic-shape inference",
    "live": "Beside live blocks", "sizes": "Distinct sizes", "python": "From Python, alloc and drop",
}


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> Row:
    """Where and with what the numbers were taken."""
    import acl
    from acl._libacl import backend, library
    from acl.tools._loops import instructions_available, ticks_per_ns

    scale, cost = ticks_per_ns()
    return {
        "processor": processor(), "architecture": platform.machine(), "cores": os.cpu_count(),
        "kernel": platform.release(), "python": platform.python_version(),
        "aclpool": acl.__version__, "backend": backend(), "library": Path(library() or "").name,
        "load_average": os.getloadavg()[0], "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "clock_cost_ns": round(cost / scale, 1), "instructions": instructions_available(),
        "command": " ".join(["aclpool", "bench", *sys.argv[2:]]),
    }


def with_floor(rows: list[Row]) -> list[Row]:
    """The rows, each with its multiple of the floor's row of the same kind."""
    def kind(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in ("workload", "threads", "thread", "live_blocks",
                                              "distinct_sizes", "what"))

    floors = {kind(row): row["ns_per_pair"] for row in rows
              if row["allocator"] == "floor" and row.get("ns_per_pair")}
    for row in rows:
        floor = floors.get(kind(row))
        if row.get("ns_per_pair") is not None:
            row["over_floor"] = round(row["ns_per_pair"] / floor, 3) if floor else None
    return rows


def label(row: Row) -> str:
    """The row's first column."""
    parts = [row["allocator"]]
    if row.get("live_blocks"):
        parts.append(f"{row['what']}, {row['live_blocks']:,} live")
    if row.get("distinct_sizes"):
        parts.append(f"{row['distinct_sizes']:,} size{'s' if row['distinct_sizes'] > 1 else ''}")
    if row["workload"] == "W4":
        parts.append(f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
                     + (f", {row['arena']} arena" if row["threads"] > 1 else ""))
    if row["thread"] == "foreign":
        parts.append("foreign")
    return " ".join(parts[:1]) + (f" ({', '.join(parts[1:])})" if parts[1:] else "")


def cells(row: Row) -> list[str]:
    return [label(row)] + ["" if empty(key, row.get(key)) else form.format(row[key])
                           for _, key, form in COLUMNS]


def empty(key: str, value: float | None) -> bool:
    return value is None or (key == "failures" and not value)


def block(title: str, rows: list[Row]) -> str:
    """A workload's table; columns that nobody filled are left out."""
    lines = [[title, *(heading for heading, _, _ in COLUMNS)], *(cells(row) for row in rows)]
    used = [0] + [i for i in range(1, len(lines[0])) if any(line[i] for line in lines[1:])]
    widths = {i: max(len(line[i]) for line in lines) for i in used}
    text = []
    for number, line in enumerate(lines):
        rest = "  ".join(line[i].rjust(widths[i]) for i in used[1:])
        text.append(f"{line[0].ljust(widths[0])}  {rest}".rstrip())
        if number == 0:
            text.append("-" * len(text[0]))
    return "\n".join(text)


def table(rows: list[Row]) -> str:
    """All results, one block per workload, for a terminal."""
    blocks = []
    for name, title in TITLES.items():
        chosen = [row for row in rows if row["workload"] == name]
        if chosen:
            blocks.append(block(title, chosen))
    missing = [f"{key}: {row['allocator']}: {row[key]}" for key in ("unavailable", "failed")
               for row in rows if row.get(key)]
    return "\n\n".join([*blocks, "\n".join(missing)] if missing else blocks)


def plot(rows: list[Row], file_name: str) -> None:
    """A bar chart of ns per pair (logarithmic), grouped by workload; .svg or .png."""
    from acl.tools.plots import bars, save

    groups = []
    for name in ("W1", "W2", "W3", "W5"):
        chosen = [row for row in rows if row["workload"] == name and row["thread"] == "python"]
        if chosen:
            groups.append((TITLES[name], [(row["allocator"], row["ns_per_pair"]) for row in chosen]))
    save(bars("ns per pair (thread CPU time, logarithmic)", groups), file_name)
