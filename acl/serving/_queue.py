"""The requests that wait: by priority, then by deadline, then by arrival."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acl.serving._values import Result
    from acl.serving._version import Version

__all__ = ["Job", "Queue"]


@dataclass(eq=False)
class Job:
    """A request that is accepted."""

    version: Version
    item: Any
    nbytes: int                         # of its input, alone
    priority: int = 0
    deadline: float | None = None       # time.monotonic() at which its answer is of no use any more
    expires: float | None = None        # time.monotonic() at which it has waited for too long
    number: int = 0                     # of arrival
    cost: int = 0                       # bytes of device memory that it is promised while it runs
    tried: int = 0                      # times that it failed alone, on a device that works
    alone: bool = False                 # it had all of the memory to itself
    over: bool = False                  # answered, failed, refused or cancelled
    arrived: float = field(default_factory=time.monotonic)
    result: Future[Result] = field(default_factory=Future)

    @property
    def due(self) -> float | None:
        """When it must have begun at the latest; None for no limit."""
        return min((one for one in (self.deadline, self.expires) if one is not None), default=None)

    def linger_until(self, linger_s: float) -> float:
        """Until when it may wait for others to share its batch: half of its time at most, and with time to run."""
        until = self.arrived + linger_s
        due = self.due
        if due is None:
            return until
        return min(until, (self.arrived + due) / 2, due - 2 * self.version.costs.seconds)

    @property
    def place(self) -> tuple[int, float, int]:
        """What the queue is ordered by."""
        due = self.due
        return -self.priority, float("inf") if due is None else due, self.number


class Queue:
    """Jobs in the order in which they are served.  Every method wants the engine's lock."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.arrivals = 0

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def add(self, job: Job) -> None:
        """Put a job at its place."""
        self.arrivals += 1
        job.number = self.arrivals
        insort(self.jobs, job, key=lambda one: one.place)

    def first(self) -> Job:
        """The job that is served next."""
        return self.jobs[0]

    def take(self, wanted: Callable[[Job], bool]) -> list[Job]:
        """Take out the jobs that are wanted, in their order; each is asked about once."""
        kept: list[Job] = []
        taken: list[Job] = []
        for job in self.jobs:
            (taken if wanted(job) else kept).append(job)
        self.jobs[:] = kept
        return taken

    def last_below(self, priority: int) -> Job | None:
        """The job that would be served last, if its priority is lower."""
        last = self.jobs[-1] if self.jobs else None
        return last if last is not None and last.priority < priority else None

    def next_due(self) -> float | None:
        """When the first of them will have waited for too long."""
        return min((job.due for job in self.jobs if job.due is not None), default=None)
