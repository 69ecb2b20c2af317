"""`aclpool compare`: show which differences of two benchmark files are more than noise.

It compares two JSON files of `aclpool bench` or of pytest-benchmark.  The measurements of one round depend on each
other, so a round is resampled as a whole.  The rounds of both files are divided into two sides in every possible way,
or in 1,000 random ways if there are more.  For each way, the greatest difference of any row is stored.  A row differs
if its own difference is greater than 97 % of these stored differences.  So two files that measure one state
give "no difference" in 95 of 100 comparisons, for all rows together.  A difference must also be greater than the
threshold, and greater than the difference of the empty loop, which is caused by the machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acl.tools.bench.cases import PARAMETERS
from acl.tools.bench.report import named

__all__ = ["Comparison", "add_arguments", "add_parser", "compared", "main", "run"]

DESCRIPTION = """\
Compares two JSON files of `aclpool bench`, or two of pytest-benchmark, row by row, by resampling their rounds.

Exit status: 0 if no row of --allocator is slower or lost, 1 if one is, 2 if the files cannot be compared.
"""
Row = dict[str, Any]
Logs = list[float]                  # logarithms of a row's times, one for each round
LEAST_ROUNDS = 4                    # fewer rounds can be divided in too few ways
MOST_ROUNDS = 20                    # more rounds of one process add no information and take long
MOST_SPLITS = 1000
SURE = 0.03         # probability that noise is taken for a difference; below 0.05, so that 95 of 100 is certain
TOGETHER = 0.9


class NotComparable(ValueError):
    """Raised, with the reason, if two files cannot be compared."""


@dataclass
class Comparison:
    """The result of comparing two files."""

    rows: int = 0                                               # number of rows compared
    slower: dict[str, tuple[float, float, float]] = field(default_factory=dict)     # by row: factor, and its interval
    faster: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    more_memory: dict[str, tuple[float, float]] = field(default_factory=dict)       # by row: reserved/live in each file
    less_memory: dict[str, tuple[float, float]] = field(default_factory=dict)
    vanished: list[str] = field(default_factory=list)           # rows that are only in the first file
    new: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)       # by row: why it was not compared
    subjects: list[str] = field(default_factory=list)           # texts on allocators whose version or build changed
    machine: float = 1.0                                        # factor by which the empty loop changed

    @property
    def same(self) -> bool:
        """True if no row differs in time."""
        return not self.slower and not self.faster


# ---- files ----

def name_of(row: Row) -> str:
    parts = [f"{key}={row[key]}" for key in PARAMETERS if row.get(key) is not None]
    return "/".join([row["workload"], row["allocator"], *parts])


def checked(row: Row) -> Row:
    """Return a row with its samples as lists of times, one list for each round; raise ValueError for a wrong time."""
    samples = [[float(value) for value in each] for each in row["samples"]]
    if not all(each and 0 <= min(each) <= max(each) < math.inf for each in samples):
        raise ValueError
    return {**row, "allocator": str(row["allocator"]), "samples": samples}


def bench_document(document: Row) -> Row:
    """Read a document that `aclpool bench --json` wrote."""
    if document["version"] != 2:
        raise ValueError
    rows = {name_of(row): checked(row) for row in document["results"] if row.get("samples")}
    return {**document, "kind": "aclpool bench", "rows": rows}


def pytest_document(document: Row) -> Row:
    """Read a document that pytest-benchmark saved; a case without an allocator's name is one of aclpool."""
    rows = {}
    for case in document["benchmarks"]:
        found = {"allocator": "aclpool", **case["extra_info"]}
        if "samples" not in found:
            found["samples"] = grouped([seconds * 1e9 for seconds in case["stats"].get("data", ())])
        rows[str(case["fullname"])] = checked(found)
    return {"kind": "pytest-benchmark", "quick": False, "machine": {}, "rows": rows}


def grouped(times: Sequence[float]) -> list[list[float]]:
    """Put consecutive rounds into at most MOST_ROUNDS groups, because pytest-benchmark has up to 100,000 rounds."""
    each = -(-len(times) // MOST_ROUNDS) or 1
    return [list(times[first:first + each]) for first in range(0, len(times), each)]


def load_document(path: Path) -> Row:
    """Read a file of `aclpool bench --json`, or of pytest-benchmark.

    Raises
    ------
    NotComparable
        The file is neither of them.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return pytest_document(document) if "benchmarks" in document else bench_document(document)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise NotComparable(f"{path.name}: not a file of `aclpool bench --json` of this version, "
                            "nor of pytest-benchmark") from None


def check_alike(old: Row, new: Row) -> None:
    """Raise NotComparable if two files were not measured in the same way."""
    for what, values in (
        ("files of different programs", [each["kind"] for each in (old, new)]),
        ("quick against full", [bool(each["quick"]) for each in (old, new)]),
        ("runs of different length", [(each.get("effort") or {}).get("run_ns") for each in (old, new)]),
        ("a simulator against a device", [each["machine"].get("backend") for each in (old, new)]),
    ):
        if values[0] != values[1]:
            raise NotComparable(f"{what} ({values[0]}, {values[1]}): measure both in the same way")


# ---- resampling ----

def logs_of(row: Row) -> Logs:
    """Return the logarithm of each round's shortest time, because other programs can only make a time longer."""
    return [math.log(max(min(samples), 0.01)) for samples in row["samples"]]


def splits(first: int, second: int) -> Iterator[tuple[int, ...]]:
    """Yield ways to choose the rounds of the first side from all rounds; random ways if there are too many."""
    everyone = range(first + second)
    if math.comb(first + second, first) <= MOST_SPLITS:
        yield from itertools.combinations(everyone, first)
        return
    chance = random.Random(1)
    yield tuple(everyone[:first])
    for _ in range(MOST_SPLITS - 1):
        yield tuple(sorted(chance.sample(everyone, first)))


def spread(values: Logs, side: Sequence[int], squares: float) -> tuple[float, float]:
    """Return by how much the mean of the rounds `side` is below the mean of the other rounds, and the standard error.

    `squares` is the sum of the squares of all values.
    """
    first, second = len(side), len(values) - len(side)
    chosen, everything = sum([values[i] for i in side]), sum(values)
    within = squares - chosen ** 2 / first - (everything - chosen) ** 2 / second
    error = math.sqrt(max(0.0, within) / (len(values) - 2) * (1 / first + 1 / second))
    return (everything - chosen) / second - chosen / first, error


def differing(rows: dict[str, Logs], first: int) -> set[str]:
    """Return the rows that differ significantly between two files.

    The first `first` values of each row are from one file, the others from the other file.
    """
    second = len(next(iter(rows.values()))) - first
    centred = {name: [value - statistics.fmean(values) for value in values] for name, values in rows.items()}
    measured = [(values, sum(value * value for value in values)) for values in centred.values()]
    observed = [spread(values, range(first), squares) for values, squares in measured]
    # If the few rounds of a row agree by chance, its error is too small.  So the median error is added to each error.
    usual = statistics.median(error for _, error in observed) + 1e-4
    greatest = []
    for side in splits(first, second):
        found = [spread(values, side, squares) for values, squares in measured]
        greatest.append(max([abs(mean) / (error + usual) for mean, error in found]))
    greatest.sort(reverse=True)
    limit = greatest[min(len(greatest) - 1, int(SURE * len(greatest)))]
    return {name for name, (mean, error) in zip(rows, observed, strict=True) if abs(mean) / (error + usual) > limit}


def interval(old: Logs, new: Logs) -> tuple[float, float, float]:
    """Return the new row's time over the old row's, and the 95 % interval of this factor, by resampling the rounds."""
    chance = random.Random(2)

    def difference(old: Logs, new: Logs) -> float:
        return statistics.fmean(new) - statistics.fmean(old)

    found = sorted(difference(chance.choices(old, k=len(old)), chance.choices(new, k=len(new))) for _ in range(400))
    return math.exp(difference(old, new)), math.exp(found[10]), math.exp(found[-11])


# ---- comparing ----

def unsure(old: Row, new: Row) -> str | None:
    """Return why a pair of rows is not compared, or None."""
    for row in (old, new):
        if row.get("overlap") is not None and row["overlap"] < TOGETHER:
            return f"its threads ran together for {row['overlap']:.0%} of the time"
        if not row["samples"]:
            return "saved without the times of its rounds; pytest --benchmark-save-data keeps them"
        if len(row["samples"]) < LEAST_ROUNDS:
            return f"measured in {len(row['samples'])} rounds; {LEAST_ROUNDS} are needed"
        if row.get("failures"):
            return f"{row['failures']} allocations failed"
    return None


def machine_factor(old: Row, new: Row) -> float:
    """Return by which factor the time of the empty loop changed, as measured around every row; 1 if a file lacks it."""
    floors = [[value for row in each["rows"].values() for pair in row.get("floor_around_ns", ()) for value in pair]
              for each in (old, new)]
    return statistics.median(floors[1]) / statistics.median(floors[0]) if all(floors) else 1.0


def changed_subjects(old: Row, new: Row) -> list[str]:
    """Return a text for each allocator whose version or build type changed."""
    first, second = ({row["allocator"]: row["about"] for row in each["rows"].values() if row.get("about")}
                     for each in (old, new))
    return [f"{named(name, first[name])} is now {named(name, second[name])}" for name in first
            if name in second and named(name, first[name]) != named(name, second[name])]


def by_rounds(pairs: dict[str, tuple[Logs, Logs]]) -> Iterator[tuple[int, dict[str, Logs]]]:
    """Yield groups of rows with equal numbers of rounds, because only these can be divided together.

    A group is the number of rounds in the first file, and the values of both files by row.
    """
    for counts in sorted({(len(old), len(new)) for old, new in pairs.values()}):
        yield counts[0], {name: old + new for name, (old, new) in pairs.items() if (len(old), len(new)) == counts}


def compared(old: Row, new: Row, threshold: float = 1.03) -> Comparison:
    """Compare two documents of `load_document`.

    Raises
    ------
    NotComparable
        The files were measured in different ways, or have no row in common.
    """
    check_alike(old, new)
    result = Comparison(subjects=changed_subjects(old, new), machine=machine_factor(old, new))
    result.vanished = sorted(old["rows"].keys() - new["rows"].keys())
    result.new = sorted(new["rows"].keys() - old["rows"].keys())
    pairs = {}
    for name in sorted(old["rows"].keys() & new["rows"].keys()):
        before, after = old["rows"][name], new["rows"][name]
        why = unsure(before, after)
        if why is not None:
            result.skipped[name] = why
            continue
        pairs[name] = (logs_of(before), logs_of(after))
        note_memory(result, name, before, after, threshold)
    if not pairs and not result.skipped:
        raise NotComparable("no row is in both files")
    result.rows = len(pairs)
    margin = math.log(threshold) + abs(math.log(result.machine))
    for first, rows in by_rounds(pairs):
        for name in sorted(differing(rows, first)):
            found = interval(*pairs[name])
            if abs(math.log(found[0])) > margin:
                (result.slower if found[0] > 1 else result.faster)[name] = found
    return result


def note_memory(result: Comparison, name: str, before: Row, after: Row, threshold: float) -> None:
    """Note a change of reserved memory by more than the threshold.  It needs no resampling: all runs reserve alike."""
    first, second = before.get("reserved_ratio"), after.get("reserved_ratio")
    if not first or not second:
        return
    if second > first * threshold:
        result.more_memory[name] = (first, second)
    elif second * threshold < first:
        result.less_memory[name] = (first, second)


# ---- the command ----

def text_of(result: Comparison) -> str:
    """Return the comparison as a text for a terminal."""
    lines = [f"{kind} {factor:6.3f} ({low:.3f} to {high:.3f})  {name}"
             for kind, found in (("slower", result.slower), ("faster", result.faster))
             for name, (factor, low, high) in sorted(found.items(), key=lambda item: -abs(math.log(item[1][0])))]
    lines += [f"reserved over live from {old:.3f} to {new:.3f}  {name}"
              for found in (result.more_memory, result.less_memory) for name, (old, new) in found.items()]
    lines += [f"vanished  {name}" for name in result.vanished] + [f"new  {name}" for name in result.new]
    lines += [f"not compared  {name}: {why}" for name, why in result.skipped.items()]
    if abs(math.log(result.machine)) > 0.02:
        lines.append(f"the empty loop took {result.machine:.3f} times as long: smaller differences are the machine's")
    lines += result.subjects
    same = result.rows - len(result.slower) - len(result.faster)
    return "\n".join([*lines, f"no difference in {same} of {result.rows} rows"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool compare`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("old", metavar="FILE", type=Path,
                        help="a file of `aclpool bench --json`, or one that pytest-benchmark saved")
    parser.add_argument("new", metavar="FILE", type=Path, help="a later one of the same program")
    parser.add_argument("--threshold", type=float, default=1.03, metavar="FACTOR",
                        help="smaller differences do not count (default: 1.03)")
    parser.add_argument("--allocator", default="aclpool", metavar="NAME",
                        help="whose slower rows fail (default: aclpool); all: any row")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `compare`."""
    add_arguments(subparsers.add_parser("compare", help="what differs between two runs of bench, and is not noise"))


def run(arguments: argparse.Namespace) -> int:
    """Compare and report.

    Return the exit status: 1 if a row of `--allocator` is slower, needs more memory or vanished; 2 if the files cannot
    be compared; else 0.
    """
    try:
        if not arguments.threshold >= 1:
            raise NotComparable(f"--threshold: expected a factor of at least 1, got {arguments.threshold}")
        old, new = load_document(arguments.old), load_document(arguments.new)
        result = compared(old, new, arguments.threshold)
    except (NotComparable, OSError) as error:
        print(f"aclpool compare: {error}", file=sys.stderr)
        return 2
    print(text_of(result))
    worse = [*result.slower, *result.more_memory, *result.vanished]
    return int(any(arguments.allocator in ("all", old["rows"][name]["allocator"]) for name in worse))


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m acl.tools.compare`."""
    parser = argparse.ArgumentParser(prog="aclpool compare")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
