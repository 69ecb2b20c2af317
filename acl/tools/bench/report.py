"""The report of `aclpool bench`: the machine, the merged rows, the table, the plots.

Rows are the dicts of `runs`; nothing is measured here.
"""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acl.tools.bench.cases import PARAMETERS, TITLES

__all__ = ["machine", "merged", "plot", "plot_latency", "plot_memory", "subjects", "text", "with_floor"]

Row = dict[str, Any]
TOGETHER = 0.9      # least share of a run in which all threads must have run; rows below it are marked and not compared
# For each column: heading, key of the row, format.
COLUMNS = (
    ("ns/pair", "ns_per_pair", "{:,.1f}"), ("from", "ns_per_pair_low", "{:,.1f}"),
    ("to", "ns_per_pair_high", "{:,.1f}"),
    ("host", "ns_per_pair_host", "{:,.1f}"), ("x floor", "over_floor", "{:,.2f}"),
    ("p50", "p50_ns", "{:,.0f}"), ("p99", "p99_ns", "{:,.0f}"), ("p99.9", "p999_ns", "{:,.0f}"),
    ("p99.99", "p9999_ns", "{:,.0f}"), ("worst", "worst_ns", "{:,.0f}"),
    ("free p99", "free_p99_ns", "{:,.0f}"), ("free worst", "free_worst_ns", "{:,.0f}"),
    ("reserved", "reserved_ratio", "{:.3f}"), ("resident", "rss_ratio", "{:.3f}"),
    ("calls", "driver_calls", "{:,.0f}"), ("driver ms", "driver_ms_first_modelled", "{:,.1f}"),
    ("instr", "instructions", "{:,.1f}"), ("failed", "failures", "{:,}"), ("mark", "mark", "{}"),
)
LEGEND = """\
ns/pair: an allocation, its address read, and its free, in nanoseconds: the median over processes of their
runs' medians; from, to: the least and the greatest of these. host: without driver calls. x floor: over empty
callbacks. p50 to worst: one allocation, free p99 and free worst: one free, in nanoseconds. reserved, resident:
the peak of what the allocator took, or had in memory with every block written, over the peak of what was asked
for. calls: driver calls of a run; driver ms: modelled milliseconds of those of the first pass.
mark: o threads overlapped for less than 90 % of the time; w still changing when its warm-up ended;
d the empty loop was 15 % off meanwhile, so other work disturbed it."""


# ---- the machine ----

def read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def processor() -> str:
    found = re.search(r"^(?:model name|Model)\s*:\s*(.*)", read("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def virtualisation() -> str | None:
    """Return the name of the hypervisor if this is a virtual machine, else None."""
    if re.search(r"^flags\s*:.*\bhypervisor\b", read("/proc/cpuinfo"), re.MULTILINE) or read("/sys/hypervisor/type"):
        return read("/sys/hypervisor/type") or read("/sys/class/dmi/id/sys_vendor") or "a hypervisor"
    return None


def throttles() -> int:
    """Return how often cores have slowed down because of heat since the machine was started; summed over the cores."""
    files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    return sum(int(count) for count in map(read, map(str, files)) if count.isdigit())


def warnings_of(found: Row) -> list[str]:
    """Return texts about conditions that make the numbers less certain."""
    texts = []
    free = len(found["affinity"])
    if found["load_average"] > 0.5 * free:
        texts.append(f"the machine is busy: load average {found['load_average']:.1f} on {free} cores; "
                     "compare rows of this run only")
    if found["governor"] not in (None, "performance"):
        texts.append(f"the frequency governor is {found['governor']!r}: the clock may change during the run")
    if found["throttles"]:
        texts.append(f"the processor was throttled {found['throttles']} times since it was started")
    if free < (found["cores"] or 0):
        texts.append(f"this process may use {free} of {found['cores']} cores")
    if found["backend"] != "sim":
        texts.append("driver calls go to a device")
    return texts


def machine() -> Row:
    """Describe the machine and the build with which the numbers were measured."""
    import acl
    from acl.bind.generated._libacl import backend, library
    from acl.tools.bench._loops import instructions_available, ticks_per_ns

    scale, cost = ticks_per_ns()
    found: Row = {
        "processor": processor(), "architecture": platform.machine(), "cores": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "throttles": throttles(), "virtualisation": virtualisation(),
        "kernel": platform.release(), "python": platform.python_version(), "compiler": platform.python_compiler(),
        "aclpool": acl.__version__, "backend": backend(), "library": Path(library() or "").name,
        "load_average": round(os.getloadavg()[0], 2), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "clock_cost_ns": round(cost / scale, 1), "instructions": instructions_available(),
        "command": " ".join(["aclpool", "bench", *sys.argv[2:]]),
    }
    found["warnings"] = warnings_of(found)
    return found


def subjects(rows: Sequence[Row]) -> dict[str, Row]:
    """Return a dict from an allocator's name to its version and build type, and, for a library, its file."""
    return {row["allocator"]: row["about"] for row in rows if row.get("about")}


def named(subject: str, about: Row) -> str:
    """Return an allocator's name with its version and build type, if they are known."""
    return " ".join([subject, *(str(about[key]) for key in ("version", "build") if about.get(key))])


# ---- rows ----

def merged(rounds: Sequence[Row]) -> Row:
    """Return one row for the rows of all rounds of a case; it has all values that only the first round measures."""
    row = dict(rounds[0])
    middles = [statistics.median(each["samples"]) for each in rounds]
    row["samples"] = [each["samples"] for each in rounds]
    row["floor_around_ns"] = [each["floor_around_ns"] for each in rounds]
    row["ns_per_pair"] = round(statistics.median(middles), 2)
    row["ns_per_pair_low"], row["ns_per_pair_high"] = round(min(middles), 2), round(max(middles), 2)
    row["ns_per_pair_min"] = round(min(min(each["samples"]) for each in rounds), 2)
    for key, join in (("ns_per_pair_host", statistics.median), ("failures", sum), ("warm_up_ms", max),
                      ("warm_up_runs", max), ("overlap", min), ("driver_calls", statistics.median)):
        values = [each[key] for each in rounds if each.get(key) is not None]
        row[key] = round(join(values), 3) if values else None
    row["stable"] = sum(each["stable"] for each in rounds) * 2 > len(rounds)
    return row


def with_floor(rows: list[Row]) -> list[Row]:
    """Return the rows; each row with a time has two more values, `over_floor` and `mark`.

    `over_floor` is the time divided by that of the floor's row with equal parameters, None if there is no such row.
    """
    def kind(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in ("workload", *PARAMETERS) if key != "arena")

    floors = {kind(row): row["ns_per_pair"] for row in rows
              if row["allocator"] == "floor" and row.get("ns_per_pair")}
    around = [value for row in rows for pair in row.get("floor_around_ns", ()) for value in pair]
    usual = statistics.median(around) if around else 0.0
    for row in rows:
        if row.get("ns_per_pair") is not None:
            floor = floors.get(kind(row))
            row["over_floor"] = round(row["ns_per_pair"] / floor, 3) if floor else None
            row["mark"] = marks(row, usual)
    return rows


def marks(row: Row, usual: float) -> str | None:
    """Return letters for the conditions that make a row uncertain; the legend explains them."""
    disturbed = [max(pair) > 1.15 * usual for pair in row["floor_around_ns"]]
    letters = {"o": row["overlap"] is not None and row["overlap"] < TOGETHER, "w": not row["stable"],
               "d": 2 * sum(disturbed) > len(disturbed)}
    return "".join(letter for letter, holds in letters.items() if holds) or None


# ---- the table ----

def label(row: Row) -> str:
    """Return the text of the row's first column."""
    forms = {"size": "{:,} B", "live_blocks": "{:,} live", "distinct_sizes": "{:,} sizes", "threads": "{} threads",
             "arena": "{} arena", "thread": "{}", "trace": "{}", "what": "{}"}
    parts = [forms[key].format(row[key]) for key in PARAMETERS
             if row.get(key) is not None and row[key] not in ("python", 1)]
    return f"{row['allocator']} ({', '.join(parts)})" if parts else str(row["allocator"])


def cells(row: Row) -> list[str]:
    return [label(row)] + ["" if empty(key, row.get(key)) else form.format(row[key])
                           for _, key, form in COLUMNS]


def empty(key: str, value: float | None) -> bool:
    return value is None or (key == "failures" and not value)


def block(title: str, rows: list[Row]) -> str:
    """Return a workload's table, without the columns that are empty."""
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
    """Return all results for a terminal, one block for each workload."""
    blocks = []
    for name, title in TITLES.items():
        chosen = [row for row in rows if row["workload"] == name and row.get("ns_per_pair") is not None]
        if chosen:
            blocks.append(block(title, chosen))
    missing = [f"{key}: {row['allocator']}: {row[key]}" for key in ("unavailable", "failed")
               for row in rows if row.get(key)]
    return "\n\n".join([*blocks, "\n".join(missing)] if missing else blocks)


def text(document: Row) -> str:
    """Return the whole report: the machine, the allocators, the tables, the legend."""
    found, effort = document["machine"], document["effort"]
    head = (f"{found['processor']}, {len(found['affinity'])} cores"
            + (f", virtual ({found['virtualisation']})" if found["virtualisation"] else "")
            + f", load {found['load_average']}; {effort['rounds']} processes for each row, {effort['samples']} runs in "
            f"each, {document['seconds']:.0f} s, order {document['order']}")
    notes = [f"note: {warning}" for warning in found["warnings"]]
    allocators = "; ".join([named(name, about) for name, about in document["subjects"].items() if name != "floor"])
    return "\n\n".join(["\n".join([head, *notes, f"allocators: {allocators}"]), table(document["results"]), LEGEND])


# ---- plots ----

def plot(rows: list[Row], file_name: str) -> None:
    """Draw a bar chart of ns per pair (logarithmic), grouped by workload."""
    from acl.tools.plots import bars, save

    groups = []
    for name in ("W1", "W2", "W3", "W5"):
        chosen = [row for row in rows if row["workload"] == name and row.get("thread") != "foreign"
                  and row.get("ns_per_pair")]
        if chosen:
            groups.append((TITLES[name], [(row["allocator"], row["ns_per_pair"]) for row in chosen]))
    save(bars("ns per pair (thread CPU time, logarithmic)", groups), file_name)


def plot_latency(rows: list[Row], file_name: str) -> None:
    """Plot the latency of an allocation over the percentile.

    Both axes are logarithmic, the right end is the maximum.
    """
    from acl.tools.plots import lines, save

    series = []
    for row in rows:
        histogram = row.get("histogram_ns", {}).get("alloc", [])
        if row["workload"] in ("W2", "W3", "trace") and histogram:
            total, seen, nines, times = sum(count for _, count in histogram), 0, [], []
            for ns, count in histogram:
                seen += count
                nines.append(-math.log10(max(1.0 - seen / total, 0.5 / total)))
                times.append(math.log10(max(ns, 1.0)))
            series.append((f"{row['workload']} {row['allocator']}", nines, times))
    save(lines("latency of an allocation", "nines: 2 is p99, 3 is p99.9", "log10 of nanoseconds", series), file_name)


def plot_memory(rows: list[Row], file_name: str) -> None:
    """Plot the time of a pair against the ratio of reserved (or resident) to live bytes."""
    from acl.tools.plots import points, save

    named = [(f"{row['workload']} {row['allocator']}", row["ns_per_pair"],
              row.get("reserved_ratio") or row["rss_ratio"])
             for row in rows if row.get("ns_per_pair") and row["workload"] in ("W2", "W3", "W5", "day", "trace")
             and row["thread"] != "foreign" and (row.get("reserved_ratio") or row.get("rss_ratio"))]
    save(points("time and memory", "ns per pair", "reserved or resident / live", named), file_name)
