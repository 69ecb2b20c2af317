"""The queue of waiting requests, ordered by priority, then by deadline, then by arrival."""

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
    """An accepted request."""

    version: Version
    item: Any
    nbytes: int                         # bytes of its input if it is alone in its batch
    priority: int = 0
    deadline: float | None = None       # time.monotonic() after which the answer is useless; None for no limit
    expires: float | None = None        # time.monotonic() after which the request has waited too long; None: no limit
    number: int = 0                     # number of the request in the order of arrival, from 1
    cost: int = 0                       # bytes of device memory that are promised to it while it runs
    tried: int = 0                     # number of faults with the request alone in its batch, if the device then worked
    alone: bool = False                 # it ran out of memory, and no other batch ran during its last try
    over: bool = False                  # True if the request is answered, failed, refused or cancelled
    arrived: float = field(default_factory=time.monotonic)
    result: Future[Result] = field(default_factory=Future)

    @property
    def due(self) -> float | None:
        """Latest time.monotonic() at which its batch may begin; None for no limit."""
        return min((one for one in (self.deadline, self.expires) if one is not None), default=None)

    def linger_until(self, linger_s: float) -> float:
        """Return the time.monotonic() until which the request may wait for other requests to share its batch.

        It waits for `linger_s` at most.  If it has a `due`, it waits for at most half of the time from its arrival to
        `due`, and at most until twice the usual time of a batch is left before `due`.
        """
        until = self.arrived + linger_s
        due = self.due
        if due is None:
            return until
        return min(until, (self.arrived + due) / 2, due - 2 * self.version.costs.seconds)

    @property
    def place(self) -> tuple[int, float, int]:
        """Sort key of the queue: highest priority first, then earliest `due`, then earliest arrival."""
        due = self.due
        return -self.priority, float("inf") if due is None else due, self.number


class Queue:
    """Jobs in the order in which they are served.  The caller of each method holds the engine's lock."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.arrivals = 0

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def add(self, job: Job) -> None:
        """Insert a job at its place in the order of service."""
        self.arrivals += 1
        job.number = self.arrivals
        insort(self.jobs, job, key=lambda one: one.place)

    def first(self) -> Job:
        """Return the job that is served next."""
        return self.jobs[0]

    def take(self, wanted: Callable[[Job], bool]) -> list[Job]:
        """Remove and return, in order, the jobs for which `wanted(job)` is true; it is called once for each job."""
        kept: list[Job] = []
        taken: list[Job] = []
        for job in self.jobs:
            (taken if wanted(job) else kept).append(job)
        self.jobs[:] = kept
        return taken

    def last_below(self, priority: int) -> Job | None:
        """Return the job that would be served last if its priority is below `priority`, else None."""
        last = self.jobs[-1] if self.jobs else None
        return last if last is not None and last.priority < priority else None

    def next_due(self) -> float | None:
        """Return the earliest `due` of all jobs; None if no job has one."""
        return min((job.due for job in self.jobs if job.due is not None), default=None)
