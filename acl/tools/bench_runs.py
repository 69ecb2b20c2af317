"""One function per workload of `aclpool bench`: from an allocator to rows of results.

A row is a dict; `ns_per_pair` is the median of the runs' thread CPU time, `ns_per_pair_host` the same
without the time spent in driver calls, which are counted by `_meter` for the pool. Rows of one
workload have the same keys, with None where a number does not apply.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from acl.tools import _meter, _peers
from acl.tools import bench_workloads as workloads
from acl.tools._loops import Load, Subject
from acl.tools.bench_measure import (
    Timing,
    clock_scale,
    fitting_count,
    latencies,
    time_load,
    time_together,
    timed_pass,
)
from acl.tools.bench_subjects import Candidate, Opened, Unavailable

if TYPE_CHECKING:
    from acl.tools.bench import Options

__all__ = ["RUNS", "isolated_job", "isolated_workloads"]

Row = dict[str, Any]
Job = tuple[str, Callable[[], list[Row]]]
MOST = 4_000_000
LIVE = (100, 1_000, 10_000, 100_000, 1_000_000)
DISTINCT = (1, 10, 100, 1_000, 10_000)
# Beside many live blocks: ours, the floor, and the fastest malloc there is.
SCALED = ("aclpool", "floor", "mimalloc")
LONG_PART = 8192    # events: no best part is chosen here, so the clocks are to weigh little
ISOLATED = ("W1", "W2", "W3", "W4", "W5")


def row(workload: str, name: str, timing: Timing, **more: Any) -> Row:
    """A row of results; `more` fills the columns that not every workload has."""
    result: Row = {
        "workload": workload, "allocator": name, "threads": 1, "thread": "python", "arena": "own",
        "ns_per_pair": round(timing.median, 2), "ns_per_pair_min": round(timing.least, 2),
        "wall_ns_per_pair": round(statistics.median(timing.wall_ns), 2),
        "ns_per_pair_host": None, "p50_ns": None, "p99_ns": None, "p999_ns": None,
        "free_p50_ns": None, "free_p99_ns": None, "free_p999_ns": None,
        "reserved_ratio": None, "driver_calls": None, "failures": 0,
        "instructions": round_or_none(timing.instructions_median),
        "pairs": timing.pairs, "repeats": len(timing.cpu_ns),
    }
    result.update(more)
    return result


def round_or_none(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def metered(load: Load, options: Options, events: int = 0) -> tuple[Timing, Row]:
    """Time a load of the pool's, and what of it was spent in the driver, by the wall clock.

    A load of events has passes of its own for that, timed in parts.
    """
    timing = Timing(load.allocations)
    calls, host = 0, []
    for _ in range(options.effort.repeats):
        before = _meter.total()
        once = time_load(load, replace(options.effort, repeats=1), warm=0)
        after = _meter.total()
        timing.add(once)
        calls += after[0] - before[0]
        driver = (after[1] - before[1]) / clock_scale()[0] / timing.pairs
        # The driver's calls may sleep, so their share is of the wall's time; that counts other
        # programs too, and CPU time is an upper bound.
        host.append(min(once.cpu_ns[0], max(0.0, once.wall_ns[0] - driver)))
        if events:
            host[-1] = sum(outside for _, outside in timed_pass(load, events, LONG_PART)) / timing.pairs
    return timing, {"driver_calls": calls, "ns_per_pair_host": round(statistics.median(host), 2)}


def measured(workload: str, candidate: Candidate, opened: Opened, load: Load, options: Options,
             events: int = 0, **more: Any) -> Row:
    """Throughput, then percentiles, of a load on this thread."""
    if opened.under_test is not None:
        timing, columns = metered(load, options, events)
        more |= columns
    else:
        timing = time_load(load, options.effort, warm=0)
    if options.instructions and timing.instructions_median is None:
        more["instructions"] = counted_instructions(workload, candidate, **more)
    return row(workload, candidate.name, timing, **latencies(load), failures=load.failures, **more)


def counted_instructions(workload: str, candidate: Candidate, what: str = "", live_blocks: int = 0,
                         **_: Any) -> float | None:
    """By callgrind; a callback in Python would count the interpreter."""
    from acl.tools import bench_instructions

    kind = what.split()[0] if workload == "live" else workload
    if candidate.python or kind not in bench_instructions.SIZES:
        return None
    return bench_instructions.count(kind, candidate.name, live_blocks)


def foreign(workload: str, candidate: Candidate, load: Load, options: Options, **more: Any) -> Row:
    """The same load on a thread that Python has never seen."""
    timing = time_together([load], options.effort, True, _peers.context())[0]
    return row(workload, candidate.name, timing, thread="foreign", failures=load.failures, **more)


def scaled(candidate: Candidate, make: Callable[[int], Load], options: Options, share: float = 1.0) -> Load:
    """A load of as many pairs as fill a run; with callbacks in Python, far fewer on foreign threads."""
    count = fitting_count(make, options.effort, MOST)
    return make(max(options.effort.least, int(count * share)))


# ---- W1, W2 ----

def foreign_share(candidate: Candidate) -> float:
    # A callback in Python takes a hundred times longer where Python does not know the thread.
    return 0.01 if candidate.python else 1.0


def run_hot(candidate: Candidate, options: Options) -> Iterator[Job]:
    """W1 on a thread of Python's and on a foreign one."""
    def make(subject: Subject) -> Callable[[int], Load]:
        return lambda count: Load.pairs(subject, workloads.HOT_SIZE, count)

    def job(on_foreign: bool) -> list[Row]:
        with candidate.open() as opened:
            count = make(opened.subject)
            if on_foreign:
                return [foreign("W1", candidate, scaled(candidate, count, options, foreign_share(candidate)),
                                options)]
            return [measured("W1", candidate, opened, scaled(candidate, count, options), options)]

    yield "", partial(job, False)
    yield ", foreign thread", partial(job, True)


def mixed_load(subject: Subject, work: workloads.Replacements, count: int) -> Load:
    load = Load.replace(subject, work.events, count)
    load.fill()
    return load


def run_mixed(candidate: Candidate, options: Options) -> Iterator[Job]:
    """W2 on a thread of Python's and on a foreign one."""
    def job(on_foreign: bool) -> list[Row]:
        work = workloads.mixed()
        with candidate.open() as opened:
            share = foreign_share(candidate) if on_foreign else 1.0
            load = scaled(candidate, lambda count: mixed_load(opened.subject, work, count), options, share)
            time_load(load, options.effort, warm=0)
            result = (foreign("W2", candidate, load, options) if on_foreign
                      else measured("W2", candidate, opened, load, options))
            load.close()
            return [result]

    yield "", partial(job, False)
    yield ", foreign thread", partial(job, True)


# ---- W3, W5 ----

def reserved_ratio(opened: Opened, live_peak: int) -> float | None:
    if opened.books is None:
        return None
    return round(opened.books() / live_peak, 4)


def run_random(candidate: Candidate, options: Options) -> Iterator[Job]:
    """W3: the ratio from a cold start, the time once warm."""
    def job() -> list[Row]:
        work = workloads.random_sizes(steps=100_000 if options.quick else 500_000)
        with candidate.open() as opened:
            load = Load.replace(opened.subject, work.events, work.steps - 1000)
            load.fill()
            time_load(load, options.effort, warm=0)
            ratio = reserved_ratio(opened, work.live_peak)
            result = measured("W3", candidate, opened, load, options, reserved_ratio=ratio)
            load.close()
            return [result]

    yield "", job


def run_inference(candidate: Candidate, options: Options) -> Iterator[Job]:
    """W5: likewise."""
    def job() -> list[Row]:
        events, live_peak = workloads.inference(steps=16 if options.quick else 64)
        with candidate.open() as opened:
            load = Load.events([opened.subject], events)
            load.step(0, 2 * load.allocations)
            ratio = reserved_ratio(opened, live_peak)
            result = measured("W5", candidate, opened, load, options, events=2 * load.allocations,
                              reserved_ratio=ratio)
            load.close()
            return [result]

    yield "", job


# ---- W4 ----

def run_threads(candidate: Candidate, options: Options) -> Iterator[Job]:
    """W4: W2 on several threads, wall time per pair of a thread."""
    def job(threads: int, shared: bool, on_foreign: bool) -> list[Row]:
        work = [workloads.mixed(seed=20 + i) for i in range(threads)]
        with candidate.open() as opened:
            subjects = [opened.subject] * threads
            if not shared and opened.another is not None:
                subjects[1:] = [opened.another() for _ in range(threads - 1)]
            share = 0.005 if candidate.python else 1.0
            sample = scaled(candidate, lambda count: mixed_load(subjects[0], work[0], count), options, share)
            loads = [mixed_load(subject, each, sample.allocations)
                     for subject, each in zip(subjects, work, strict=True)]
            sample.close()
            timings = time_together(loads, options.effort, on_foreign, _peers.context())
            for load in loads:
                load.close()
        return [threads_row(candidate, timings, shared, on_foreign)]

    for threads in options.threads:
        for shared in (False, True) if threads > 1 else (False,):
            if shared and not candidate.shareable:
                continue
            for on_foreign in (False, True):
                text = f", {threads} threads, {'one arena' if shared else 'own arenas'}"
                yield (text + (", foreign" if on_foreign else ""),
                       partial(job, threads, shared, on_foreign))


def threads_row(candidate: Candidate, timings: list[Timing], shared: bool, on_foreign: bool) -> Row:
    merged = Timing(timings[0].pairs)
    for timing in timings:
        merged.add(timing)
    # Threads wait for each other: what counts is the time on the wall.
    result = row("W4", candidate.name, merged, threads=len(timings),
                 thread="foreign" if on_foreign else "python",
                 arena="shared" if shared else "own")
    result["cpu_ns_per_pair"] = result["ns_per_pair"]
    result["ns_per_pair"] = result["wall_ns_per_pair"]
    result["ns_per_pair_min"] = round(min(merged.wall_ns), 2)
    return result


# ---- many live blocks, many sizes ----

def run_live(candidate: Candidate, options: Options) -> Iterator[Job]:
    """A hot pair and a random replacement beside many live blocks."""
    def job(count: int) -> list[Row]:
        work = workloads.live_blocks(count)
        with candidate.open() as opened:
            others = mixed_load(opened.subject, work, 1 << 17)
            hot = scaled(candidate, lambda n: Load.pairs(opened.subject, workloads.HOT_SIZE, n), options)
            rows = [measured("live", candidate, opened, hot, options, live_blocks=count, what="hot pair"),
                    measured("live", candidate, opened, others, options, live_blocks=count,
                             what="random replacement")]
            others.close()
            return rows

    if candidate.name in SCALED:
        for count in LIVE[:4] if options.quick else LIVE:
            yield f", {count} live blocks", partial(job, count)


def run_sizes(candidate: Candidate, options: Options) -> Iterator[Job]:
    """Hot pairs of many sizes."""
    def job(distinct: int) -> list[Row]:
        with candidate.open() as opened:
            load = Load.events([opened.subject], workloads.sizes_cycle(distinct))
            time_load(load, options.effort, warm=0)
            return [measured("sizes", candidate, opened, load, options, distinct_sizes=distinct)]

    if candidate.name in SCALED:
        for distinct in DISTINCT:
            yield f", {distinct} sizes", partial(job, distinct)


# ---- from Python ----

def python_call(candidate: Candidate, opened: Opened) -> Callable[[int], Any] | None:
    """What a Python program would call and drop, if this allocator has that."""
    if opened.under_test is not None:
        method: Callable[[int], Any] = opened.under_test.pool.alloc
        return method
    if candidate.name == "aclrtMalloc":
        import acl

        buffer: Callable[[int], Any] = acl.Buffer
        return buffer
    if candidate.name in ("cupy", "rmm"):
        keep: Any = opened.subject
        allocate: Callable[[int], Any] = keep.keep
        return allocate
    return None


def python_seconds(call: Callable[[int], Any], count: int) -> float:
    size = workloads.HOT_SIZE
    start = time.thread_time_ns()
    for _ in repeat(None, count):
        call(size)
    return (time.thread_time_ns() - start) / count


def run_python(candidate: Candidate, options: Options) -> Iterator[Job]:
    """Allocate and drop in a Python loop; the loop with a call of nothing is the floor."""
    def job() -> list[Row]:
        with candidate.open() as opened:
            call = (lambda size: None) if candidate.name == "floor" else python_call(candidate, opened)
            if call is None:
                return []
            each = max(python_seconds(call, options.effort.least), 10.0)
            count = max(options.effort.least, int(options.effort.run_ns / each))
            timing = Timing(count)
            for _ in range(options.effort.repeats):
                timing.cpu_ns.append(python_seconds(call, count))
                timing.wall_ns.append(timing.cpu_ns[-1])
                timing.instructions.append(0)
            return [row("python", candidate.name, timing, what="alloc and drop")]

    yield "", job


# ---- allocators that need a process of their own ----

def isolated_workloads(candidate: Candidate, options: Options) -> list[str]:
    """Which of the workloads asked for such a candidate is measured with."""
    return [name for name in options.workloads if name in (candidate.workloads or ISOLATED)]


def isolated_job(candidate: Candidate, options: Options) -> Callable[[], list[Row]]:
    """W1 to W5 in a process that was started with what the candidate needs."""
    def job() -> list[Row]:
        variables = candidate.environment() if candidate.environment else {}
        command = [sys.executable, "-m", "acl.tools.bench", "--json", "-", "--only", candidate.name,
                   "--workloads", ",".join(isolated_workloads(candidate, options)),
                   "--threads", ",".join(map(str, options.threads)),
                   "--repeats", str(options.effort.repeats), *(["--quick"] if options.quick else [])]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise Unavailable(f"with {variables}: exit status {done.returncode}: {done.stderr[-200:]}")
        rows: list[Row] = json.loads(done.stdout)["results"]
        for each in rows:
            each["allocator"] = candidate.name
        return rows

    return job


RUNS: dict[str, Callable[[Candidate, Options], Iterator[Job]]] = {
    "W1": run_hot, "W2": run_mixed, "W3": run_random, "W4": run_threads, "W5": run_inference,
    "live": run_live, "sizes": run_sizes, "python": run_python,
}
