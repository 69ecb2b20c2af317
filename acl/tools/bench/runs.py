"""Measure one case of `aclpool bench`; this module runs in a new process for each case.

`main` reads a job (JSON), opens the allocator, measures the case, and writes its rows to the file that the job names.
A row is a dict.  Its `samples` are the nanoseconds of a pair in each timed run: thread CPU time, or wall time if
several threads work together.  The first process of a case also measures percentiles and resident memory, in
separate runs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from acl.tools.bench import _meter, _peers, measure, workloads
from acl.tools.bench._loops import Load, Subject, run_here
from acl.tools.bench.cases import PARAMETERS, Case
from acl.tools.bench.measure import Effort, Sampled, clock_scale
from acl.tools.bench.subjects import Candidate, Opened, candidate_of

LATENCIES = [f"{call}{key}" for call in ("", "free_") for key in measure.SHARES]

__all__ = ["RUNS", "Job", "main", "measure_case"]

Row = dict[str, Any]
MOST = 4_000_000                # most pairs in a run
MOST_TOGETHER = 1 << 20         # largest number of replacements that are drawn at once
LONG_PART = 8192                # events in a part; parts are long, so that reading the clocks costs little
FLOOR_PAIRS = 20_000
RATIO_FROM = 16 << 20           # live bytes from which on a ratio is computed; below, it depends on the page size
COUNTED_PAIRS = 4_000           # pairs in a run under callgrind, which makes a run fifty times slower


@dataclass
class Job:
    """A case that a process measures, with all that it needs for that."""

    case: Case
    candidate: Candidate
    opened: Opened
    effort: Effort
    extras: bool = True                     # also measure percentiles and memory
    events: tuple[bytes, ...] = ()          # lists of events, one for each thread; empty if the workload has none
    streams: int = 1                        # number of streams whose events are in the first list
    live_peak: int = 0                      # most bytes that are live while the lists are played
    base: int = 0                           # resident bytes of the process before the allocator was opened
    counted: int = 0                        # number of runs under callgrind; 0: measure times

    @property
    def subject(self) -> Subject:
        """The allocator's first arena."""
        return self.opened.subject

    @property
    def python(self) -> bool:
        """True if the callbacks run Python code, which takes far longer on threads that Python has not made."""
        return self.candidate.python or self.opened.python

    def parameter(self, name: str, default: Any = None) -> Any:
        """Return a parameter of the case."""
        return self.case.parameters.get(name, default)

    def sized(self, make: Callable[[int], Load], most: int = MOST) -> Load:
        """Return the load that `make` makes with as many pairs as take about `run_ns`, but at most `most`.

        Python callbacks on a foreign thread get a hundredth of these pairs.  Under callgrind a load has
        `COUNTED_PAIRS`.
        """
        if self.counted:
            return make(COUNTED_PAIRS)
        slow = self.python and self.parameter("thread") == "foreign"
        count = measure.fitting_count(make, self.effort, most)
        return make(max(self.effort.least, int(count * (0.01 if slow else 1))))


def row(job: Job, load: Load, sampled: Sampled, samples: list[float], **more: Any) -> Row:
    """Return a row of results; `more` has the columns that only some workloads have."""
    parameters: Row = {key: job.case.parameters.get(key) for key in PARAMETERS}
    return {
        "workload": job.case.workload, "allocator": job.case.allocator, **parameters,
        "samples": [round(value, 3) for value in samples], "pairs": load.allocations,
        "instructions": round(statistics.median(sampled.instructions), 2) or None, "reserved_ratio": None,
        **dict.fromkeys(LATENCIES),
        "overlap": None if sampled.overlap is None else round(min(sampled.overlap), 3),
        "slots": load.slots or None, "slots_touched": load.touched, "failures": load.failures,
        **(sampled.warm or {}), **more,
    }


def check_slots(loads: Sequence[Load]) -> None:
    """Raise AssertionError if a run of random replacements used less than nine tenths of the slots.

    Raises
    ------
    AssertionError
        With the number of slots whose block was replaced, and of all slots.
    """
    for load in loads:
        if load.touched is not None and load.touched < 0.9 * load.slots:
            raise AssertionError(f"a run replaced the blocks of {load.touched} of {load.slots} slots")


# ---- one thread ----

def measured(job: Job, load: Load, events: int = 0, **more: Any) -> list[Row]:
    """Measure a load on one thread, close it, and return its row in a list.

    First the samples are measured, then, not for foreign threads, percentiles and resident memory.  `events` is the
    length of the load's list of events, 0 for other loads.  Under callgrind the load only runs.
    """
    if job.counted:
        run_here(load, job.counted)
        load.close()
        return [{"pairs": load.allocations}]
    passes = measure.fitting_passes(load, job.effort) if events else 1
    if job.parameter("thread") == "foreign":
        sampled = measure.sample_together([load], job.effort, True, _peers.context())
    else:
        sampled = measure.sample_alone(load, job.effort, passes)
    if job.opened.under_test is not None and job.parameter("thread") != "foreign":
        more |= metered(load, events, passes * len(sampled.cpu_ns))
    more |= memory(job, load.live_peak or job.live_peak)
    result = row(job, load, sampled, sampled.cpu_ns, **more)
    check_slots([load])
    if job.extras and job.parameter("thread") != "foreign":
        result |= measure.latencies(load, passes)
        result |= touched(job, load)
    load.close()
    return [result]


def metered(load: Load, events: int, runs: int) -> Row:
    """Run `runs` times; return the mean driver calls of a run, and the median nanoseconds of a pair without them."""
    calls, host = 0, []
    for _ in range(runs):
        before = _meter.total()
        if events:
            host.append(sum(outside for _, outside in measure.timed_pass(load, events, LONG_PART)) / load.allocations)
            calls += _meter.total()[0] - before[0]
            continue
        cpu, wall, _ = run_here(load, 1)[0]
        after = _meter.total()
        calls += after[0] - before[0]
        # Driver calls may sleep, so their time is subtracted from the wall time.  The result still includes the
        # time of other programs; it cannot be more than the CPU time.
        host.append(min(cpu, max(0.0, wall - (after[1] - before[1]) / clock_scale()[0])) / load.allocations)
    return {"driver_calls": calls / len(host), "ns_per_pair_host": round(statistics.median(host), 2)}


def memory(job: Job, peak: int) -> Row:
    """Return the peak of the bytes that the allocator reports as reserved, and the peak of the requested bytes."""
    if job.opened.reserved_peak is None or not peak:
        return {"live_peak": peak or None}
    reserved = job.opened.reserved_peak()
    ratio = round(reserved / peak, 4) if peak >= RATIO_FROM else None
    return {"live_peak": peak, "reserved_peak": reserved, "reserved_ratio": ratio}


def touched(job: Job, load: Load) -> Row:
    """Write to all blocks, and return the peak of the resident bytes and its ratio to the live peak.

    Return an empty dict if the blocks are not memory of this process, or if the load has fewer than two slots or no
    live peak.  Return only the reason if too much would be written, or if the machine has too little free memory.
    """
    peak = load.live_peak or job.live_peak
    if not job.opened.host or not peak or load.slots < 2:
        return {}
    count = load.slots if load.touched is not None else 0
    if job.events:
        work = sum(size for size, _, _ in workloads.EVENT.iter_unpack(job.events[0]))
    else:
        work = peak
    if work > job.effort.touch_bytes or 2 * peak > measure.available_bytes():
        return {"rss_peak": None, "rss_why": f"would write {work >> 30} GiB"}
    rss = measure.touched_peak(load, count, job.base)
    peak = load.live_peak or peak               # for a random load, the peak since `touch` began
    return {"rss_peak": rss, "rss_ratio": rss and round(rss / peak, 4)}


def run_hot(job: Job) -> list[Row]:
    """Measure W1."""
    return measured(job, job.sized(partial(Load.pairs, job.subject, job.parameter("size"))))


def run_mixed(job: Job) -> list[Row]:
    """Measure W2."""
    return measured(job, job.sized(partial(workloads.mixed, job.subject), MOST_TOGETHER))


def run_random(job: Job) -> list[Row]:
    """Measure W3."""
    return measured(job, job.sized(partial(workloads.random_sizes, job.subject)))


def run_live(job: Job) -> list[Row]:
    """Measure a hot pair, or a random replacement, while many blocks are live."""
    live = job.parameter("live_blocks")
    if job.parameter("what") != "hot pair":
        return measured(job, job.sized(partial(workloads.live_blocks, job.subject, live), max(MOST, 4 * live)))
    others = workloads.live_blocks(job.subject, live, 1)
    rows = measured(job, job.sized(partial(Load.pairs, job.subject, workloads.HOT_SIZE)))
    others.close()
    return rows


def run_sizes(job: Job) -> list[Row]:
    """Measure hot pairs of many sizes, or replacements of many sizes in 64 slots."""
    slots = 1 if job.parameter("what") == "hot pair" else 64
    make = partial(workloads.distinct_sizes, job.subject, job.parameter("distinct_sizes"), slots)
    return measured(job, job.sized(make))


def run_events(job: Job) -> list[Row]:
    """Measure W5 or a service's day: play a list of events several times."""
    load = Load.events([job.subject], job.events[0])
    calls = _meter.readings()
    load.step(0, len(job.events[0]) // workloads.EVENT.size)
    more = first_pass(job, calls)
    return measured(job, load, len(job.events[0]) // workloads.EVENT.size, **more)


def first_pass(job: Job, before: dict[str, tuple[int, int, int]]) -> Row:
    """Return numbers of the first pass over the events, which freed all blocks.

    They are the bytes still reserved, the number of driver calls, and the modelled milliseconds of these calls.
    """
    result: Row = {}
    if job.opened.reserved is not None:
        result["reserved_after"] = job.opened.reserved()
    if job.opened.under_test is not None:
        from acl.tools.replay.price import PRICES, priced_ms

        none = (0, 0, 0)
        calls = {name: (count - before.get(name, none)[0], size - before.get(name, none)[2])
                 for name, (count, _, size) in _meter.readings().items()}
        result |= {"driver_calls_first": sum(count for count, _ in calls.values()),
                   "driver_ms_first_modelled": round(priced_ms(calls, PRICES), 3)}
    return result


# ---- several threads ----

def arenas(job: Job, count: int, shared: bool = False) -> list[Subject]:
    """Return an arena for each of `count` threads.

    It is one arena for all threads if they must share it, or if the allocator cannot make a second one.
    """
    if shared or job.opened.another is None:
        return [job.subject] * count
    return [job.subject, *(job.opened.another() for _ in range(count - 1))]


def together(job: Job, loads: list[Load], join: Callable[[Sequence[float]], float] = statistics.mean,
             of: int | None = None) -> list[Row]:
    """Measure loads, each on its own thread, by the wall clock, because threads wait for each other.

    Return one row in a list.  Its time is that of the load `of`, or, if None, what `join` makes of all loads' times.
    """
    sampled = measure.sample_together(loads, job.effort, job.parameter("thread", "python") == "foreign",
                                      _peers.context(), join, of)
    check_slots(loads)
    peak = sum(load.live_peak or 0 for load in loads) or job.live_peak
    result = row(job, loads[of or 0], sampled, sampled.wall_ns, cpu_samples=sampled.cpu_ns, **memory(job, peak))
    result["failures"] = sum(load.failures for load in loads)
    for load in loads:
        load.close()
    return [result]


def run_threads(job: Job) -> list[Row]:
    """Measure W4."""
    threads = job.parameter("threads")
    sample = job.sized(partial(workloads.mixed, job.subject), MOST_TOGETHER)
    sample.close()
    count = max(job.effort.least, int(sample.allocations * (0.005 if job.python else 1)))
    return together(job, [workloads.mixed(subject, count, 20 + i) for i, subject in
                          enumerate(arenas(job, threads, job.parameter("arena") == "shared"))])


def run_handover(job: Job) -> list[Row]:
    """Measure a thread that allocates and another that frees the blocks; the time of the slower thread counts."""
    alone = job.sized(partial(Load.pairs, job.subject, workloads.HOT_SIZE))
    return together(job, list(Load.ring(job.subject, [512 << i for i in range(10)], alone.allocations // 4 + 1)), max)


def run_tenants(job: Job) -> list[Row]:
    """Measure one of two tenants, each on its own thread and arena.

    The other tenant has twice the pairs, so that it does not end first.
    """
    asked = int(job.parameter("what") == "large blocks")
    counts = []
    for large, subject in enumerate(arenas(job, 2)):
        alone = job.sized(partial(workloads.tenant, subject, bool(large)), MOST_TOGETHER)
        counts.append(alone.allocations)
        alone.close()
    counts[1 - asked] *= 2
    return together(job, [workloads.tenant(subject, bool(large), counts[large])
                          for large, subject in enumerate(arenas(job, 2))], of=asked)


def run_trace(job: Job) -> list[Row]:
    """Measure a trace on one thread, or each of its streams on its own thread."""
    if job.parameter("threads") == 1:
        load = Load.events(arenas(job, job.streams), job.events[0])
        load.step(0, len(job.events[0]) // workloads.EVENT.size)
        return measured(job, load, len(job.events[0]) // workloads.EVENT.size)
    loads = [Load.events([subject], events) for subject, events in
             zip(arenas(job, len(job.events)), job.events, strict=True)]
    return together(job, loads)


# ---- from Python ----

def python_ns(call: Callable[[int], Any], count: int) -> float:
    size = workloads.HOT_SIZE
    start = time.thread_time_ns()
    for _ in repeat(None, count):
        call(size)
    return (time.thread_time_ns() - start) / count


def run_python(job: Job) -> list[Row]:
    """Measure a Python loop that allocates and drops; the floor is this loop with a call that does nothing."""
    call = job.opened.call
    if call is None:
        raise LookupError(f"{job.case.allocator} has no call from Python")
    each = max(python_ns(call, job.effort.least), 10.0)
    count = max(job.effort.least, int(job.effort.run_ns / each))
    warm = measure.warm_up(lambda: python_ns(call, count), job.effort)
    samples = [python_ns(call, count) for _ in range(job.effort.samples)]
    load = Load.pairs(job.subject, workloads.HOT_SIZE, count)
    return [row(job, load, Sampled(samples, samples, [0], warm=warm), samples)]


RUNS: dict[str, Callable[[Job], list[Row]]] = {
    "W1": run_hot, "W2": run_mixed, "W3": run_random, "W4": run_threads, "W5": run_events, "live": run_live,
    "sizes": run_sizes, "handover": run_handover, "tenants": run_tenants, "day": run_events, "python": run_python,
    "trace": run_trace,
}


# ---- the process ----

def floor_ns() -> float:
    """Return the nanoseconds of a pair in the empty loop (best of five), to show how fast the machine is now."""
    load = Load.pairs(_peers.floor(), workloads.HOT_SIZE, FLOOR_PAIRS)
    return min(cpu for cpu, _, _ in run_here(load, 5)) / FLOOR_PAIRS


def measure_case(job: Job) -> list[Row]:
    """Return the rows of a job, each with the floor before and after it."""
    before = floor_ns()
    rows = RUNS[job.case.workload](job)
    for each in rows:
        each["floor_around_ns"] = [round(before, 3), round(floor_ns(), 3)]
        each["version"] = job.opened.about.get("version")
        each["about"] = job.opened.about
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run the job that the only argument describes; write its rows, or why there are none; return the exit status."""
    from acl.tools.bench.subjects import Unavailable

    wanted = json.loads(arguments[0])
    answer: Row = {}
    try:
        candidate = candidate_of(wanted["spec"])
        case = Case(wanted["workload"], candidate.name, wanted["parameters"])
        measure.give_back_heap()
        base = measure.resident("VmRSS")
        with candidate.open() as opened:
            events = tuple(Path(file).read_bytes() for file in wanted["events"])
            job = Job(case, candidate, opened, Effort(**wanted["effort"]), wanted["extras"], events, wanted["streams"],
                      wanted["live_peak"], base, wanted.get("counted", 0))
            answer["rows"] = RUNS[case.workload](job) if job.counted else measure_case(job)
    except Unavailable as reason:
        answer = {"unavailable": str(reason)}
    except Exception as error:
        answer = {"failed": repr(error)}
    Path(wanted["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0
