"""Compares two JSON files of `aclpool bench`: `python bench/compare.py OLD NEW [--threshold 1.10]`.

Rows are matched by workload, allocator, threads and size of the problem. What is compared is the
multiple of the floor of the same run, so that two machines, or two moods of one, can be compared;
`--absolute` compares nanoseconds. Exit status 1 if a row of the chosen allocator got slower, or took more
memory, by more than the threshold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

KEY = ("workload", "allocator", "threads", "thread", "arena", "live_blocks", "distinct_sizes", "what")
Row = dict[str, Any]


def rows_of(path: Path) -> dict[tuple[Any, ...], Row]:
    """The file's measured rows, by what they measured."""
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {tuple(row.get(key) for key in KEY): row for row in rows if row.get("ns_per_pair")}


def changes(old: dict[tuple[Any, ...], Row], new: dict[tuple[Any, ...], Row], column: str) -> list[tuple[str, float]]:
    """What changed, as factors: the time's column, and the reserved ratio where there is one."""
    found = []
    for key in old.keys() & new.keys():
        name = " ".join(str(part) for part in key if part is not None)
        for what in (column, "reserved_ratio"):
            before, after = old[key].get(what), new[key].get(what)
            if before and after:
                found.append((f"{name}: {what}", after / before))
    return sorted(found, key=lambda change: -change[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threshold", type=float, default=1.10, help="factor that fails (default: 1.10)")
    parser.add_argument("--allocator", default="aclpool", help="whose rows can fail (default: aclpool)")
    parser.add_argument("--absolute", action="store_true", help="nanoseconds, not multiples of the floor")
    choice = parser.parse_args()
    column = "ns_per_pair" if choice.absolute else "over_floor"
    found = changes(rows_of(choice.old), rows_of(choice.new), column)
    if not found:
        print("no row is in both files", file=sys.stderr)
        return 2
    failed = False
    for name, factor in found:
        ours = name.split()[1].rstrip(":") == choice.allocator
        bad = ours and factor > choice.threshold
        failed |= bad
        if ours or abs(factor - 1) > 0.05:
            print(f"{factor:6.3f}  {name}{'   <-- slower than allowed' if bad else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
