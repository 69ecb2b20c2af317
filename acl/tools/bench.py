"""`aclpool bench`: what an allocation costs, through the C function pointers that ACL itself got.

Every allocator is driven by the same compiled loops, so its own cost is its row minus the row `floor`
(empty callbacks). Times are thread CPU time of a pair: alloc, the block's address read, free; the
median of some runs, and the least. Percentiles come from a run of their own. Progress goes to standard
error; `--json -` prints the JSON document to standard output and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["add_arguments", "add_parser", "main", "run"]

WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "live", "sizes", "python")
DESCRIPTION = """\
Measures what an allocation costs, with every allocator in the same compiled loop.

workloads
  W1      hot pair: alloc 64 KiB, read the address, free
  W2      256 slots, a random one replaced each step, 32 sizes from 512 B to 4 MiB
  W3      1000 slots, random sizes from 1 B to 8 MiB; reserved_ratio from a cold start
  W4      W2 on 1, 2, ... threads at once, each on its own arena and sharing one
  W5      a transformer of 32 layers with a new sequence length each step
  live    a hot pair, and a random replacement, beside 100 to 1,000,000 live blocks
  sizes   hot pairs of 1 to 10,000 distinct sizes
  python  pool.alloc() and drop from Python, and what else Python can call

The pool is reached through aclrtAllocatorGetByStream. W1, W2 and W4 run on a Python thread and on
one that Python has never seen. What an allocator's own cost is: its row minus the row "floor".
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `aclpool bench`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="a first impression in half a minute")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--peers", default="all", metavar="LIST",
                        help="all (default), none, or names: aclrtMalloc,mimalloc,ctypes,...")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), metavar="LIST",
                        help="which of " + ", ".join(WORKLOADS) + " (default: all)")
    parser.add_argument("--threads", default="1,2", metavar="LIST",
                        help="numbers of threads for W4 (default: 1,2)")
    parser.add_argument("--repeats", type=int, metavar="N", help="timed runs of each load (default: 7; 3 with --quick)")
    parser.add_argument("--instructions", action="store_true",
                        help="count instructions with callgrind where the processor cannot (slow)")
    parser.add_argument("--plot", action="append", default=[], metavar="FILE",
                        help="write a bar chart; the ending says which: .svg or .png")
    parser.add_argument("--only", help=argparse.SUPPRESS)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command line of `aclpool bench`."""
    add_arguments(subparsers.add_parser("bench", help="what an allocation costs, beside other allocators"))


@dataclass(frozen=True)
class Options:
    """What was asked for, checked."""

    quick: bool
    workloads: tuple[str, ...]
    threads: tuple[int, ...]
    effort: Any
    instructions: bool


def checked_options(arguments: argparse.Namespace) -> Options:
    """The arguments' meaning.

    Raises
    ------
    ValueError
        Naming the option, what was expected and what came.
    """
    from dataclasses import replace

    from acl.tools.bench_measure import Effort
    from acl.tools.outputs import check_output

    workloads = tuple(name.strip() for name in arguments.workloads.split(",") if name.strip())
    for name in workloads or ("",):
        if name not in WORKLOADS:
            raise ValueError(f"--workloads: expected some of {', '.join(WORKLOADS)}, got {name!r}")
    try:
        threads = tuple(int(number) for number in arguments.threads.split(","))
    except ValueError:
        threads = ()
    if not threads or min(threads) < 1 or max(threads) > 256:
        raise ValueError(f"--threads: expected numbers from 1 to 256, got {arguments.threads!r}")
    effort = Effort.quick() if arguments.quick else Effort()
    if arguments.repeats is not None:
        if arguments.repeats < 1:
            raise ValueError(f"--repeats: expected at least 1, got {arguments.repeats}")
        effort = replace(effort, repeats=arguments.repeats)
    for file in arguments.plot:
        if not file.endswith((".svg", ".png")):
            raise ValueError(f"--plot: expected a file ending in .svg or .png, got {file!r}")
        check_output("--plot", file)
    check_output("--json", arguments.json)
    return Options(arguments.quick, workloads, threads, effort, arguments.instructions)


class Progress:
    """Says on standard error what is being measured."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.terminal = sys.stderr.isatty()

    def step(self, text: str) -> None:
        """The next measurement begins."""
        self.done += 1
        line = f"[{self.done}/{self.total}] {text}"
        if self.terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


Row = dict[str, Any]
Job = tuple[str, str, Callable[[], list[Row]]]      # allocator, what is measured, how


def jobs(options: Options, candidates: Sequence[Any]) -> Iterator[Job]:
    """What is to be measured, in order; each gives its rows."""
    from acl.tools import bench_runs as runs

    for name in options.workloads:
        for candidate in candidates:
            if candidate.environment:
                continue
            for text, job in runs.RUNS[name](candidate, options):
                yield candidate.name, f"{name} {candidate.name}{text}", job
    for candidate in candidates:
        if candidate.environment and runs.isolated_workloads(candidate, options):
            text = f"{candidate.name} in a process of its own"
            yield candidate.name, text, runs.isolated_job(candidate, options)


def no_numbers(name: str, **why: str) -> Row:
    """The row of an allocator that could not be measured: with the keys that every row has."""
    return {"workload": None, "allocator": name, "threads": None, "ns_per_pair": None, "p99_ns": None,
            "reserved_ratio": None, **why}


def collect(options: Options, candidates: Sequence[Any]) -> list[Row]:
    """Run everything; an allocator that is not here gives a row that says why."""
    from acl.tools.bench_subjects import Unavailable

    work = list(jobs(options, candidates))
    progress = Progress(len(work))
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for name, text, job in work:
        progress.step(text)
        try:
            rows += [] if name in missing else job()
        except Unavailable as reason:
            missing[name] = str(reason)
        except Exception as error:
            # One broken allocator must not lose the others' results; the exit status tells.
            rows.append(no_numbers(name, failed=f"{text}: {error!r}"))
    rows += [no_numbers(name, unavailable=reason) for name, reason in missing.items()]
    progress.end()
    return rows


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; the exit status."""
    from acl.tools import bench_report, bench_subjects

    try:
        options = checked_options(arguments)
        candidates = bench_subjects.choose(arguments.peers)
    except ValueError as error:
        print(f"aclpool bench: {error}", file=sys.stderr)
        return 2
    if arguments.only:
        candidates = tuple(each for each in bench_subjects.CANDIDATES if each.name == arguments.only)
        candidates = tuple(bench_subjects.inside(each) for each in candidates)
    os.environ.setdefault("ACL_BACKEND", "sim")
    document: dict[str, Any] = {"machine": bench_report.machine(), "quick": options.quick,
                "results": bench_report.with_floor(collect(options, candidates))}
    if arguments.json == "-":
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print(bench_report.table(document["results"]))
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.write("\n")
    for file_name in arguments.plot:
        bench_report.plot(document["results"], file_name)
    return 1 if any("failed" in row for row in document["results"]) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m acl.tools.bench`."""
    parser = argparse.ArgumentParser(prog="aclpool bench")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
