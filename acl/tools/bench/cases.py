"""The rows of `aclpool bench`: a `Case` is measured by one process and gives one row, or a few.

This module has the cases of each workload for each allocator.  `runs` has the way in which a case is measured, and
`workloads` has its allocations and frees.  This module imports nothing that takes long to import.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acl.tools.bench.subjects import Candidate

__all__ = ["NAMES", "PARAMETERS", "QUICK_NAMES", "TITLES", "Case", "Wanted", "cases_of"]

HOT_SIZE = 64 << 10
#: The parameters that distinguish rows of one workload and allocator, in the order in which row names have them.
PARAMETERS = ("size", "live_blocks", "distinct_sizes", "trace", "threads", "arena", "thread", "what")


@dataclass(frozen=True)
class Case:
    """A workload, an allocator's name, and the parameters that belong to the workload."""

    workload: str
    allocator: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return a name such as ``W4/aclpool/threads=2/arena=own/thread=python``."""
        return "/".join([self.workload, self.allocator, *(f"{k}={v}" for k, v in self.parameters.items())])


@dataclass(frozen=True)
class Wanted:
    """The values of the parameters that are to be measured."""

    quick: bool = False
    sizes: tuple[int, ...] = (HOT_SIZE,)
    live: tuple[int, ...] = ()
    distinct: tuple[int, ...] = ()
    threads: tuple[int, ...] = (1, 2)
    traces: dict[str, int] = field(default_factory=dict)        # number of streams by the trace's name

    @property
    def live_blocks(self) -> tuple[int, ...]:
        """Return the numbers of live blocks that the workload `live` measures, one row for each."""
        return self.live or ((100_000,) if self.quick else (100, 1_000, 10_000, 100_000, 1_000_000))

    @property
    def distinct_sizes(self) -> tuple[int, ...]:
        """Return the numbers of distinct sizes that the workload `sizes` measures, one row for each."""
        return self.distinct or ((1_000,) if self.quick else (1, 10, 50, 100, 300, 1_000, 3_000, 10_000))


THREADS = ("python", "foreign")


def swept(candidate: Candidate, wanted: Wanted) -> bool:
    """Return True if an allocator has rows that sweep a parameter.

    In a quick run, allocators that need environment variables have none, unless the user gave their spec.
    """
    return candidate.scaled and not (wanted.quick and candidate.environment is not None and not candidate.spec)


def threads_of(candidate: Candidate, both: bool) -> tuple[str, ...]:
    """Return the kinds of threads to measure on: Python's, and with `both` also foreign ones.

    A candidate that is measured with a few workloads only (`Candidate.workloads`) gets Python's threads only.
    """
    return THREADS if both and candidate.workloads is None else THREADS[:1]


def hot(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    both = candidate.python or swept(candidate, wanted) or not wanted.quick
    for size, thread in itertools.product(wanted.sizes, threads_of(candidate, both)):
        yield {"size": size, "thread": thread}


def mixed(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    for thread in threads_of(candidate, not wanted.quick):
        yield {"thread": thread}


def once(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    yield {}


def in_threads(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if wanted.quick and not swept(candidate, wanted):
        return
    for threads in wanted.threads:
        for arena in ("own", "shared") if threads > 1 and candidate.shareable else ("own",):
            for thread in THREADS if candidate.python and not wanted.quick else THREADS[1:]:
                yield {"threads": threads, "arena": arena, "thread": thread}


def beside_live(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if swept(candidate, wanted):
        for live, what in itertools.product(wanted.live_blocks, ("hot pair", "random replacement")):
            yield {"live_blocks": live, "what": what}


def of_sizes(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if swept(candidate, wanted):
        for distinct, what in itertools.product(wanted.distinct_sizes, ("hot pair", "64 slots")):
            yield {"distinct_sizes": distinct, "what": what}


def between_threads(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if candidate.shareable and (swept(candidate, wanted) or not (wanted.quick or candidate.python)):
        yield {"thread": "foreign"}


def of_tenants(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if swept(candidate, wanted) or not (wanted.quick or candidate.python):
        for what in ("small blocks", "large blocks"):
            yield {"thread": "foreign", "what": what}


def from_python(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    if candidate.from_python:
        yield {"what": "alloc and drop"}


def of_traces(candidate: Candidate, wanted: Wanted) -> Iterator[dict[str, Any]]:
    for name, streams in wanted.traces.items():
        for threads in (1, streams) if streams > 1 else (1,):
            yield {"trace": name, "threads": threads}


Cases = Callable[["Candidate", Wanted], Iterator[dict[str, Any]]]
WORKLOADS: dict[str, tuple[str, Cases]] = {
    "W1": ("W1 hot pair", hot),
    "W2": ("W2 mixed, 32 sizes", mixed),
    "W3": ("W3 random sizes", once),
    "W4": ("W4 mixed on several threads (wall time)", in_threads),
    "W5": ("W5 dynamic-shape inference", once),
    "live": ("Beside live blocks", beside_live),
    "sizes": ("Distinct sizes", of_sizes),
    "handover": ("One thread allocates, another frees (wall time)", between_threads),
    "tenants": ("Small blocks of one tenant beside large ones of another (wall time)", of_tenants),
    "day": ("A service's day: load that comes and goes", once),
    "python": ("From Python, alloc and drop", from_python),
    "trace": ("Traces", of_traces),
}
NAMES = tuple(WORKLOADS)
QUICK_NAMES = ("W1", "W2", "W3", "W4", "W5", "live", "sizes", "handover", "python", "trace")
TITLES = {name: title for name, (title, _) in WORKLOADS.items()}


def cases_of(name: str, candidate: Candidate, wanted: Wanted) -> list[Case]:
    """Return the cases of one workload for one allocator."""
    if candidate.workloads is not None and name not in candidate.workloads:
        return []
    return [Case(name, candidate.name, parameters) for parameters in WORKLOADS[name][1](candidate, wanted)]
