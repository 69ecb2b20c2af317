"""`aclpool bench`: measure the cost of an allocation, through the C function pointers that ACL itself gets.

Each row is measured in its own process, once in each round; each round has another order of the rows.  All allocators
are called by the same compiled loops.  So the cost of an allocator is its row minus the row `floor`, which has empty
callbacks.  Progress is written to standard error.  `--json -` writes only the JSON document to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.tools.bench.cases import NAMES, QUICK_NAMES, Case, Wanted, cases_of

if TYPE_CHECKING:
    from acl.tools.bench.measure import Effort
    from acl.tools.bench.subjects import Candidate

__all__ = ["Lists", "add_arguments", "add_parser", "job_of", "main", "measure_apart", "measure_trace", "run"]

DESCRIPTION = """\
Measures what an allocation costs, with every allocator in the same compiled loop.

workloads
  W1        hot pair: alloc 64 KiB, read the address, free
  W2        256 slots, a random one replaced each step, 32 sizes from 512 B to 4 MiB
  W3        1000 slots, random sizes from 1 B to 8 MiB; reserved_ratio from a cold start
  W4        W2 on 1, 2, ... threads at once, each on its own arena and sharing one
  W5        a transformer of 32 layers with a new sequence length each step
  live      a hot pair, and a random replacement, beside 100 to 1,000,000 live blocks
  sizes     hot pairs, and replacements in 64 slots, of 1 to 10,000 distinct sizes
  handover  one thread allocates, another frees
  tenants   blocks of 4 KiB and of 64 MiB, two threads with an arena each
  day       a service's day: 4 requests at night, 200 at noon
  python    pool.alloc() and drop from Python, and what else Python can call
  trace     what --trace names

The pool is reached through aclrtAllocatorGetByStream. W1, W2 and W4 run on a Python thread and on
one that Python has never seen. What an allocator's own cost is: its row minus the row "floor".
docs/benchmarking.md says how to add an allocator, a workload or a trace.
"""
SWEEPS = {"size": "sizes", "live_blocks": "live", "distinct_sizes": "distinct", "threads": "threads"}
CASE_SECONDS = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool bench`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--quick", action="store_true", help="a first impression in half a minute: fewer rows, shorter runs")
    add("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    add("--plot", action="append", default=[], metavar="FILE",
        help="write a chart as SVG")
    add("--plot-latency", action="append", default=[], metavar="FILE", help="likewise, latency by percentile")
    add("--plot-memory", action="append", default=[], metavar="FILE", help="likewise, time against memory")
    add("--peers", default="all", metavar="LIST",
        help="all (default), none, or names: aclrtMalloc,mimalloc,ctypes,... and those of entry points")
    add("--library", action="append", default=[], metavar="NAME=FILE:MALLOC:FREE",
        help="an allocator of your own: a shared library and its two functions")
    add("--subject", action="append", default=[], metavar="SPEC",
        help="[NAME=]module:factory, pool:granule=32MiB,limit=8GiB, or policy:torch")
    add("--workloads", metavar="LIST", help="which of " + ", ".join(NAMES))
    add("--trace", action="append", default=[], metavar="FILE", help="a trace to play: npz, CSV, JSON, or a "
        "PyTorch snapshot; on one thread, and on as many as it has streams")
    add("--filter", metavar="TEXT", help="only rows whose name, such as W2/aclpool/thread=python, contains TEXT")
    add("--sweep", action="append", default=[], metavar="PARAMETER=LIST",
        help="values of " + ", ".join(SWEEPS) + ", such as size=512,64KiB,1MiB")
    add("--threads", default="1,2", metavar="LIST", help="numbers of threads for W4 (default: 1,2)")
    add("--rounds", type=int, metavar="N", help="processes for each row (default: 4)")
    add("--repeats", type=int, metavar="N", help="timed runs in each process (default: 3)")
    add("--order", type=int, metavar="SEED", help="of the rounds' shuffled orders (default: by the clock)")
    add("--list", action="store_true", help="name the rows, and measure nothing")
    add("--instructions", action="store_true",
        help="count instructions, with callgrind where the processor cannot (some 7 s for each row)")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `bench`."""
    add_arguments(subparsers.add_parser("bench", help="what an allocation costs, beside other allocators"))


# ---- the options ----

@dataclass(frozen=True)
class Options:
    """The options of the command line, checked."""

    quick: bool
    workloads: tuple[str, ...]
    wanted: Wanted
    effort: Effort
    candidates: tuple[Candidate, ...]
    requested: frozenset[str]           # floor, aclpool, and what the user named: an error if one cannot be opened
    traces: dict[str, Any]              # traces by name
    filter: str
    callgrind: bool                     # count instructions with callgrind, because the processor's counter is missing
    order: int


def numbers(option: str, text: str, most: int) -> tuple[int, ...]:
    from acl.pool._options import bytes_of

    try:
        found = tuple(int(part) if part.strip().isdigit() else bytes_of(part.strip(), option)
                      for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or max(found) > most:
        raise ValueError(f"{option}: expected numbers from 1 to {most}, got {text!r}")
    return found


def wanted_of(arguments: argparse.Namespace, traces: dict[str, Any]) -> Wanted:
    """Return the values of all parameters, from their own options and from `--sweep`."""
    values = {"threads": numbers("--threads", arguments.threads, 256)}
    for sweep in arguments.sweep:
        name, _, text = sweep.partition("=")
        if name not in SWEEPS:
            raise ValueError(f"--sweep: expected one of {', '.join(SWEEPS)} and its values, got {sweep!r}")
        values[SWEEPS[name]] = numbers(f"--sweep {name}", text, 256 if name == "threads" else 1 << 36)
    return Wanted(arguments.quick, traces={name: trace.streams for name, trace in traces.items()}, **values)


def workloads_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the names of the workloads that the arguments ask for."""
    if arguments.workloads is None:
        return ("trace",) if arguments.trace else QUICK_NAMES if arguments.quick else NAMES
    names = tuple(name.strip() for name in arguments.workloads.split(",") if name.strip())
    for name in names or ("",):
        if name not in NAMES:
            raise ValueError(f"--workloads: expected some of {', '.join(NAMES)}, got {name!r}")
    return names + (("trace",) if arguments.trace and "trace" not in names else ())


def traces_of(files: Sequence[str]) -> dict[str, Any]:
    from acl.tools.replay.trace import closed_trace, load_trace

    traces = {}
    for file in files:
        trace = closed_trace(load_trace(file))
        if trace.streams > 64:
            raise ValueError(f"--trace {file}: {trace.streams} streams; at most 64 can be played")
        traces[trace.name] = trace
    return traces


def candidates_of(arguments: argparse.Namespace) -> tuple[tuple[Candidate, ...], frozenset[str]]:
    """Return the allocators to measure, and the names of those that must be found (`Options.requested`)."""
    from acl.tools.bench.subjects import candidate_of, choose

    chosen = choose(arguments.peers, arguments.quick)
    requested = {"floor", "aclpool"}
    if arguments.peers not in ("all", "none"):
        requested |= {candidate.name for candidate in chosen}
    for spec in [f"library:{text}" for text in arguments.library] + arguments.subject:
        candidate = candidate_of(spec)
        if candidate.name in {other.name for other in chosen}:
            raise ValueError(f"an allocator is called {candidate.name} already; give yours another name")
        chosen += (candidate,)
        requested.add(candidate.name)
    return chosen, frozenset(requested)


def checked_options(arguments: argparse.Namespace) -> Options:
    """Check the arguments and return the options.

    Raises
    ------
    ValueError, OSError
        If an argument is wrong. The message names the option, what was expected and what was given.
    """
    from acl.tools.bench import instructions as bench_instructions
    from acl.tools.bench._loops import instructions_available
    from acl.tools.bench.measure import Effort
    from acl.tools.outputs import check_output, check_plot

    workloads = workloads_of(arguments)
    effort = Effort.quick() if arguments.quick else Effort()
    for option, field in (("rounds", "rounds"), ("repeats", "samples")):
        value = getattr(arguments, option)
        if value is not None:
            if value < 1:
                raise ValueError(f"--{option}: expected at least 1, got {value}")
            effort = replace(effort, **{field: value})
    for option in ("--plot", "--plot-latency", "--plot-memory"):
        for file in getattr(arguments, option[2:].replace("-", "_")):
            check_plot(option, file)
    check_output("--json", arguments.json)
    by_callgrind = arguments.instructions and not instructions_available()
    if by_callgrind and not bench_instructions.available():
        raise ValueError("--instructions: the processor's counter is hidden, and valgrind is not installed")
    traces = traces_of(arguments.trace)
    wanted = wanted_of(arguments, traces)
    candidates, requested = candidates_of(arguments)
    order = time.time_ns() % 1_000_000 if arguments.order is None else arguments.order
    return Options(arguments.quick, workloads, wanted, effort, candidates, requested, traces,
                   arguments.filter or "", by_callgrind, order)


def cases(options: Options) -> list[tuple[Candidate, Case]]:
    """Return an allocator and a case for every row that the options ask for.

    Raises
    ------
    ValueError
        If there is no row, or if callgrind is to count instructions and can count them in none of the rows.
    """
    from acl.tools.bench.instructions import COUNTABLE, countable

    found = [(candidate, case) for name in options.workloads for candidate in options.candidates
             for case in cases_of(name, candidate, options.wanted) if options.filter in case.id]
    if not found:
        raise ValueError(f"--filter: no row's name contains {options.filter!r}; --list names them"
                         if options.filter else "no allocator here has a row in these workloads")
    if options.callgrind and not any(countable(case) for _, case in found):
        raise ValueError(f"--instructions: counted in rows of {', '.join(COUNTABLE)} on one Python thread, "
                         "and none of these rows is one")
    return found


# ---- measuring ----

Row = dict[str, Any]


class Lists:
    """Files with the lists of events that some workloads play; the measuring processes read them."""

    def __init__(self, folder: Path, quick: bool, traces: dict[str, Any]) -> None:
        self.folder = folder
        self.quick = quick
        self.traces = traces
        self.made: dict[str, Row] = {}

    def of(self, case: Case) -> Row:
        """Return a job's entries for the event lists: files, number of streams, and the peak of live bytes."""
        from acl.tools.bench import workloads

        threads = case.parameters.get("threads", 1)
        key = f"{case.workload}-{case.parameters.get('trace')}-{threads}"
        if key not in self.made:
            if case.workload == "W5":
                events, peak = workloads.inference(steps=16 if self.quick else 64)
                self.made[key] = self.keep([events], 1, peak)
            elif case.workload == "day":
                self.made[key] = self.keep([workloads.day()[0]], 1, workloads.day()[1])
            elif case.workload == "trace":
                trace = self.traces[case.parameters["trace"]]
                parts = [trace.events()] if threads == 1 else trace.events_by_stream()
                self.made[key] = self.keep(parts, trace.streams, trace.joint_live_peak())
            else:
                self.made[key] = self.keep([], 1, 0)
        return self.made[key]

    def keep(self, lists: list[bytes], streams: int, peak: int) -> Row:
        files: list[Path] = []
        for events in lists:
            files.append(self.folder / f"{len(self.made)}-{len(files)}.events")
            files[-1].write_bytes(events)
        return {"events": [str(file) for file in files], "streams": streams, "live_peak": peak}


def job_of(candidate: Candidate, case: Case, effort: Effort, extras: bool, lists: Lists) -> Row:
    """Return the job for the process that measures a case; with `extras`, it also measures percentiles and memory."""
    return {"spec": candidate.spec or candidate.name, "workload": case.workload, "parameters": case.parameters,
            "effort": asdict(effort), "extras": extras, **lists.of(case)}


def measure_apart(candidate: Candidate, job: Row, folder: Path) -> Row:
    """Run a job in a new process and return its answer: the rows, or the reason why there are none."""
    from acl.tools.apart import python_command
    from acl.tools.bench.subjects import Unavailable

    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    job = {**job, "answer": str(answer)}
    try:
        done = subprocess.run(python_command("acl.tools.bench.runs", json.dumps(job)), env=candidate.variables(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                              check=False, timeout=CASE_SECONDS)
    except Unavailable as reason:
        return {"unavailable": str(reason)}
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {CASE_SECONDS} s"}
    if done.returncode or not answer.exists():
        return {"failed": f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"}
    found: Row = json.loads(answer.read_text(encoding="utf-8"))
    return found


class Progress:
    """Writes to standard error what is being measured."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.terminal = sys.stderr.isatty()

    def step(self, text: str) -> None:
        """Print the next measurement's line."""
        self.done += 1
        line = f"[{self.done}/{self.total}] {text}"
        if self.terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line, if standard error is a terminal."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def no_numbers(name: str, case: Case | None = None, **why: str) -> Row:
    """Return the row of a case that was not measured, with the keys that every row has."""
    return {"workload": case and case.workload, "allocator": name, **dict.fromkeys(
        ("threads", "ns_per_pair", "p99_ns", "reserved_ratio")), **(case.parameters if case else {}), **why}


def count_instructions(found: list[tuple[Candidate, Case]], effort: Effort, rounds: dict[str, list[Row]],
                       lists: Lists) -> None:
    """Fill the column of instructions with callgrind.

    If callgrind fails for a row that it can count, the row fails.
    """
    from acl.tools.bench import instructions as bench_instructions

    for candidate, case in found:
        if not bench_instructions.countable(case):
            continue
        print(f"instructions of {case.id}", file=sys.stderr, flush=True)
        row = rounds[case.id][0]
        try:
            job = job_of(candidate, case, effort, False, lists)
            row["instructions"] = bench_instructions.count(candidate, job, lists.folder)
        except RuntimeError as error:
            row["failed"] = f"{case.id}: --instructions: {error}"


def collect(options: Options, found: list[tuple[Candidate, Case]]) -> list[Row]:
    """Measure every case once in each round, each round in its own random order, and return the rows.

    First are the rows that were measured, in the order of `found`.  Then follow rows without numbers, one for each
    case that failed and one for each allocator that cannot be opened.
    """
    from acl.tools.bench.report import merged

    shuffle = random.Random(options.order)
    progress = Progress(len(found) * options.effort.rounds)
    rounds: dict[str, list[Row]] = {case.id: [] for _, case in found}
    missing: dict[str, str] = {}
    failed: dict[str, tuple[Case, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        lists = Lists(Path(name), options.quick, options.traces)
        for number in range(options.effort.rounds):
            for candidate, case in shuffle.sample(found, len(found)):
                progress.step(f"{case.workload} {case.id}")
                if candidate.name in missing or case.id in failed:
                    continue
                job = job_of(candidate, case, options.effort, number == 0, lists)
                answer = measure_apart(candidate, job, lists.folder)
                if "unavailable" in answer:
                    missing[candidate.name] = answer["unavailable"]
                elif "failed" in answer:
                    failed[case.id] = (case, answer["failed"])
                else:
                    rounds[case.id] += answer["rows"]
        progress.end()
        if options.callgrind:
            measured = [pair for pair in found if rounds[pair[1].id]]
            count_instructions(measured, options.effort, rounds, lists)
    rows = [merged(rounds[case.id]) for _, case in found if rounds[case.id] and case.id not in failed]
    rows += [no_numbers(case.allocator, case, failed=f"{case.id}: {why}") for case, why in failed.values()]
    for name, why in missing.items():
        key = "failed" if name in options.requested else "unavailable"
        rows.append(no_numbers(name, None, **{key: f"not available: {why}" if key == "failed" else why}))
    return rows


def measure_trace(trace: Any, candidates: Sequence[Candidate], rounds: int) -> list[Row]:
    """Measure a trace on one thread for `aclpool replay`, and return a row for each allocator.

    A row that was measured also has `ns_per_event`, and `ns_per_event_runs` with one value for each round.
    """
    from acl.tools.bench.measure import Effort

    names = frozenset(candidate.name for candidate in candidates)
    wanted = Wanted(traces={trace.name: trace.streams})
    options = Options(False, ("trace",), wanted, Effort(rounds=rounds), tuple(candidates), names, {trace.name: trace},
                      "", False, time.time_ns() % 1_000_000)
    rows = collect(options, [pair for pair in cases(options) if pair[1].parameters["threads"] == 1])
    for row in rows:
        if row.get("ns_per_pair") is not None:
            scale = trace.allocations / len(trace)
            row["ns_per_event_runs"] = [round(min(samples) * scale, 3) for samples in row["samples"]]
            row["ns_per_event"] = round(row["ns_per_pair"] * scale, 2)
    return rows


def run(arguments: argparse.Namespace) -> int:
    """Measure and report. Return the exit status."""
    from acl.tools.bench import report

    os.environ.setdefault("ACL_BACKEND", "sim")
    try:
        options = checked_options(arguments)
        found = cases(options)
    except (ValueError, OSError) as error:
        print(f"aclpool bench: {error}", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(case.id for _, case in found))
        return 0
    begun = time.monotonic()
    machine = report.machine()
    for warning in machine["warnings"]:
        print(f"aclpool bench: {warning}", file=sys.stderr)
    rows = report.with_floor(collect(options, found))
    document: Row = {
        "version": 2, "quick": options.quick, "order": options.order, "effort": asdict(options.effort),
        "machine": machine, "seconds": round(time.monotonic() - begun, 1),
        "subjects": report.subjects(rows), "results": rows,
    }
    if arguments.json == "-":
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print(report.text(document))
        if arguments.json:
            from acl.inside._text import write_replaced

            write_replaced(arguments.json, json.dumps(document, indent=1) + "\n")
    for files, draw in ((arguments.plot, report.plot), (arguments.plot_latency, report.plot_latency),
                        (arguments.plot_memory, report.plot_memory)):
        for file_name in files:
            draw(rows, file_name)
    return 1 if any("failed" in row for row in rows) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m acl.tools.bench`."""
    parser = argparse.ArgumentParser(prog="aclpool bench")
    add_arguments(parser)
    return run(parser.parse_args(argv))
