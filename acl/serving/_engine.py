"""The engine: it accepts requests, loads models, runs the lanes' threads, and shuts them down.

An accepted request is answered, or fails with its own error.  A request that cannot be served is refused when it is
submitted: `submit` raises `Refused` with an HTTP status.  A waiting request takes no device memory, so only the number
of waiting requests is limited.  A batch begins as soon as the memory that it may need is not promised to running
batches.

A request is served by the version of its model that was current when it was accepted.  `load` replaces the current
version; the old version is unloaded when its requests are over.

Any thread may call any method.  When the program's main thread ends, the lanes end too, and unanswered requests fail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from acl.bind._error import AclError
from acl.pool._pool import Pool
from acl.runtime._device import Device
from acl.serving._attempts import compute, serve
from acl.serving._lane import Lane, Streams
from acl.serving._queue import Job, Queue
from acl.serving._tally import MARGIN, Tally
from acl.serving._task import Task
from acl.serving._values import Health, LaneHealth, Options, Refused, Result, number_checked
from acl.serving._version import Version

__all__ = ["Engine"]

log = logging.getLogger("acl.serving")
NO_LIMIT = 1 << 62
IDLE_S = 0.5                            # seconds between two checks of free device memory by an idle lane
STUCK_S = 1.0                           # seconds that `close` waits for the work of an aborted stream
LONGEST_S = 3600.0                      # longest single wait in seconds; Python refuses more than 292 years


def program_ended() -> bool:
    """Return True if the main thread has ended; then only threads such as the lanes keep the process alive."""
    return not threading.main_thread().is_alive()


class Engine:
    """Serve models from one queue, on the lanes of one device.

    A lane is a thread with a stream; it runs one batch at a time.  All lanes share one pool.  Any thread may call any
    method.  As a context manager, the engine is closed at the end of the block: after all accepted requests are over,
    or, if the block raised an exception, without waiting for them.

    Parameters
    ----------
    options : Options, optional
        The engine's settings; the defaults of `Options` if not given.

    Attributes
    ----------
    options : Options
        The settings.
    pool : acl.Pool or None
        The pool that the lanes allocate from; None if `Options.pool` is False.
    draining : bool
        True once new requests are refused, after `drain` or `close` or at the end of the program.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.process = os.getpid()
        self.pool: Pool | None = None
        device = self.options.device
        if self.options.pool:
            self.pool = Pool(
                device, limit=self.options.limit, headroom=self.options.headroom, name=self.options.name)
        self.headroom = 0 if self.pool is None else self.pool.headroom
        self.tally = Tally()                # counts of events that belong to no model
        self.models: dict[str, Version] = {}
        self.retired: list[Version] = []    # replaced or removed versions that are not unloaded yet
        self.versions = 0                   # number of the last version, over all models
        self.largest = NO_LIMIT if self.pool is None else self.pool.limit or NO_LIMIT      # the pool's limit in bytes
        self.room = NO_LIMIT                # bytes that running batches may need together; result of `measure`
        self.promised = 0                   # bytes that are promised to running batches
        self.running = 0                    # number of running batches
        self.failing: set[int] = set()      # lanes without a working stream after a fault, until a batch has run
        self.ended: set[int] = set()        # lanes whose thread ended before the engine was drained
        self.draining = False               # new requests are refused
        self.hasty = False                  # the grace period is over: no batch is tried again
        self.closed = False
        self.queue = Queue()
        self.late: list[Job] = []           # requests that waited too long; the clock's thread fails them
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.timed = threading.Condition(lock)          # only the clock's thread waits for it
        self.alone = threading.Lock()       # held by a lane that waits until no other batch runs
        self.loading = threading.RLock()    # held by the thread that loads or unloads a model
        self.streams = Streams(device, self.pool)
        self.lanes = [Lane(self.streams, number, self.options.run_timeout_s) for number in range(self.options.lanes)]
        with Device(device):
            self.room = self.measure()
        self.clock = threading.Thread(target=self.tick, name="serving clock", daemon=True)
        self.threads = [
            threading.Thread(target=self.work, args=(lane,), name=f"serving lane {lane.number}") for lane in self.lanes]
        for thread in (self.clock, *self.threads):
            thread.start()

    # -- models

    def load(self, name: str, task: Task, *, instances: int = 1, warm: Iterable[Sequence[Any]] = ()) -> int:
        """Load a model, or a new version of a model, and serve it.

        The old version serves requests until the new one is loaded and warmed up; from then on, the new one gets all
        new requests.  `load` then waits until the requests of the old version are over, and unloads it.  If loading or
        warming up fails, the old version stays in use.

        Parameters
        ----------
        name : str
            Name of the model, by which requests choose it and under which its memory is counted.
        task : Task
            The model's file, and the methods that make batches of its requests.
        instances : int
            How many instances of the model to load; they share one copy of the weights.  An instance runs one batch
            at a time, so lanes run at the same time only with an instance for each (see `acl.Model.instances`).
        warm : iterable of sequences of items
            Batches that each instance runs before it serves requests.  A model's first run takes longer; so no request
            has to wait for it.

        Returns
        -------
        int
            Number of the version, greater than the numbers of all earlier versions in this engine.  Each `Result` has
            the number of its version.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a str that is not empty, not {name!r}")
        number_checked("instances", instances, least=1, whole=True)
        batches = [list(items) for items in warm]
        if not all(batches):
            raise ValueError("warm must be batches of at least one item each")
        self.open_check()
        with self.loading:
            with self.changed:
                self.versions += 1
                old = self.models.get(name)
                new = Version(name, self.versions, task, Tally() if old is None else old.tally)
            try:
                with Device(self.options.device):
                    new.load(instances, self.options.device)
                    self.warm(new, batches)
                self.open_check()
            except BaseException:
                new.close()
                raise
            with self.changed:
                self.models[name] = new
                new.tally.counts["loads"] += 1
                self.changed.notify_all()
            self.retire(old)
        return new.number

    def unload(self, name: str) -> None:
        """Refuse new requests for a model, wait until its accepted requests are over, and unload it.

        Raises
        ------
        KeyError
            No model of that name is loaded.
        """
        with self.loading:
            with self.changed:
                old = self.models.pop(name)
                self.changed.notify_all()
            self.retire(old)

    def warm(self, version: Version, batches: list[list[Any]]) -> None:
        """Run batches on each instance of a version.  While a batch runs, its memory counts as promised."""
        lane = Lane(self.streams, 0, None)
        try:
            for lane.number in range(len(version.models) if batches else 0):
                for items in batches:
                    cost = min(version.costs.estimate(version.task.padded_bytes(items), len(items)), self.room)
                    with self.changed:
                        self.promised += cost
                    try:
                        compute(lane, version, items)
                    finally:
                        with self.changed:
                            self.promised -= cost
                            self.changed.notify_all()
        finally:
            lane.drop()

    def retire(self, old: Version | None) -> None:
        """Wait until the requests of a replaced or removed version are over, and unload it.

        If hanging work may still use a model, or the unload fails, the next load, unload or close tries again.
        """
        if old is None:
            return
        with self.changed:
            self.retired.append(old)
            self.changed.wait_for(lambda: old.jobs == 0)
        self.unload_retired()

    def unload_retired(self) -> bool:
        """Unload the retired versions without requests; return False if hanging work may still use the models."""
        self.streams.sweep()
        if self.streams.stuck:
            log.warning("%d streams do not come to their end: nothing is unloaded", len(self.streams.stuck))
            return False
        for version in [one for one in self.retired if one.jobs == 0]:
            try:
                version.close()
            except AclError as error:           # the next load, unload or close tries again
                log.warning("model %s: version %d is not unloaded: %s", version.name, version.number, str(error))
            else:
                self.retired.remove(version)
        return True

    # -- admission of requests

    def measure(self) -> int:
        """Return the bytes that running batches may need together: nine tenths of what the pool may hold.

        The pool may hold its limit, or less if other programs use the device's memory.  Without a pool, return
        `NO_LIMIT`.  The device must be current.
        """
        if self.pool is None:
            return NO_LIMIT
        stats = self.pool.stats()
        room = stats.limit or NO_LIMIT
        with suppress(AclError):
            room = min(room, Device(self.options.device).memory_info()[0] + stats.reserved - self.headroom)
        return max(room, 0) * 9 // 10

    def open_check(self) -> None:
        """Raise an error if this process is a forked child, or if the engine is draining."""
        if os.getpid() != self.process:
            raise RuntimeError("the Engine was made before a fork, and its threads are not in this process: make one "
                               "in each worker")
        if self.draining:
            raise Refused(503, "the server is going down")

    def submit(
        self, item: Any, model: str | None = None, *, priority: int = 0, deadline_s: float | None = None
    ) -> Future[Result]:
        """Accept a request and return the future of its `Result`.

        The future can be cancelled until the request's batch begins.

        Parameters
        ----------
        item : object
            The request's content, as the model's task expects it.
        model : str, optional
            Name of the model; not needed while only one model is loaded.
        priority : int
            Requests with a higher priority are served first.  If the queue is full, the new request takes the place
            of a waiting one with a lower priority, which fails with status 429.
        deadline_s : float, optional
            Seconds from now until the answer becomes useless.  If the request has not begun by then, it fails with
            status 504.  If a try fails after that time, the request is not tried again.

        Raises
        ------
        Refused
            Its status is 404 if the model is not loaded, or none is named while several are; 413 if the request needs
            more memory than the pool's limit; 429 if the queue is full; 503 if other programs use the device's memory,
            the engine is draining, or the threads of all lanes have ended.
        """
        number_checked("priority", priority, least=-(2**31), whole=True)
        number_checked("deadline_s", deadline_s, least=0, none=True)
        displaced: Job | None = None
        job: Job | None = None
        while job is None:
            version = self.version_of(model)
            nbytes = version.task.padded_bytes([item])
            with self.changed:
                if self.models.get(version.name) is not version:
                    continue                    # another thread has replaced or unloaded the version
                self.admission_check(version, version.costs.estimate(nbytes))
                displaced = self.room_made(version, priority)
                job = self.accept(Job(version, item, nbytes, priority), deadline_s)
        if displaced is not None:
            self.turn_away(displaced, "displaced", Refused(429, "requests of a higher priority fill the queue", 0.1))
        return job.result

    async def ask(
        self, item: Any, model: str | None = None, *, priority: int = 0, deadline_s: float | None = None
    ) -> Result:
        """Submit a request and return its result, without blocking the event loop.

        The arguments and errors are those of `submit`.  If the coroutine is cancelled before the request's batch
        begins, the request is dropped.
        """
        return await asyncio.wrap_future(self.submit(item, model, priority=priority, deadline_s=deadline_s))

    def version_of(self, name: str | None) -> Version:
        """Return the current version of a model; refuse the request if there is none, or the engine is draining."""
        try:
            self.open_check()
        except Refused:
            with self.changed:
                self.tally.counts["refused_draining"] += 1
            raise
        with self.changed:
            return self.version_now(name)

    def version_now(self, name: str | None) -> Version:
        """Return the current version of a model, or refuse the request.  The caller holds the lock."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        found = None if name is None else self.models.get(name)
        if found is None:
            self.tally.counts["refused_model"] += 1
            there = ", ".join(sorted(self.models)) or "none"
            raise Refused(404, f"there is no model {name!r}: {there}" if name is not None else
                          f"the request names no model: {there}")
        return found

    def admission_check(self, version: Version, cost: int) -> None:
        """Refuse a request that needs `cost` bytes if it cannot be served now.  The caller holds the lock."""
        if self.draining:
            raise self.refuse(version, "draining", 503, "the server is going down")
        if len(self.ended) == self.options.lanes:
            raise self.refuse(version, "ended", 503, "every lane has ended")
        if cost > MARGIN * self.largest:
            raise self.refuse(
                version, "size", 413, f"the request needs some {cost} bytes, there are {self.largest}")
        if min(cost, self.largest * 9 // 10) > self.room:           # a cost above the limit is only an estimate
            raise self.refuse(version, "memory", 503, "others on the device have taken the memory", 0.1)

    def room_made(self, version: Version, priority: int) -> Job | None:
        """Make room for a request in the queue, or refuse it.  The caller holds the lock.

        Return the request with a lower priority that was removed; None if there was room.
        """
        if len(self.queue) >= self.options.queue:
            self.queue.take(self.is_cancelled)
        if len(self.queue) < self.options.queue:
            return None
        last = self.queue.last_below(priority)
        if last is None:
            raise self.refuse(version, "queue", 429, f"{len(self.queue)} requests wait already", 0.1)
        self.queue.take(lambda job: job is last)
        return last

    def accept(self, job: Job, deadline_s: float | None) -> Job:
        """Put a job into the queue and return it.  The caller holds the lock."""
        if deadline_s is not None:
            job.deadline = job.arrived + deadline_s
        if self.options.queue_timeout_s is not None:
            job.expires = job.arrived + self.options.queue_timeout_s
        job.version.jobs += 1
        job.version.tally.counts["accepted"] += 1
        self.queue.add(job)
        self.changed.notify()
        if job.due is not None:
            self.timed.notify()
        return job

    def is_cancelled(self, job: Job) -> bool:
        """Return True if a request's future was cancelled.  Then it is counted, and the caller removes the request."""
        return job.result.cancelled() and not self.begin(job)

    def refuse(self, version: Version, why: str, status: int, reason: str, after: float | None = None) -> Refused:
        """Count a refusal and return its exception."""
        version.tally.counts[f"refused_{why}"] += 1
        return Refused(status, reason, after)

    # -- the clock

    def tick(self) -> None:
        """The body of the clock's thread: fail requests that have waited too long."""
        while True:
            with self.timed:
                late, self.late = self.late + self.take_late(), []
                if not late:
                    if self.closed:
                        return
                    due = self.queue.next_due()
                    self.timed.wait(None if due is None else min(max(due - time.monotonic(), 0.0), LONGEST_S))
                    continue
            for job in late:
                overdue = job.deadline is not None and time.monotonic() >= job.deadline
                self.turn_away(job, "expired", Refused(504, "its deadline passed while it waited") if overdue else
                               Refused(503, f"it waited for more than {self.options.queue_timeout_s} s", 1.0))

    def take_late(self) -> list[Job]:
        """Remove the requests that have waited too long from the queue and return them.  The caller holds the lock."""
        now = time.monotonic()
        return self.queue.take(lambda job: job.due is not None and job.due <= now)

    def turn_away(self, job: Job, event: str, error: BaseException) -> None:
        """Fail an accepted request with an error, and count it as `event`, or as "cancelled" if it was cancelled."""
        if self.settle(job, "cancelled" if job.result.cancelled() else event):
            with suppress(InvalidStateError):           # raised if the future was cancelled
                job.result.set_exception(error)

    # -- the lanes

    def work(self, lane: Lane) -> None:
        """The body of a lane's thread: serve batches until the engine is drained."""
        batch: list[Job] = []
        try:
            while True:
                batch = []
                try:
                    Device(self.options.device).use()
                    if program_ended():
                        self.drain()
                        self.cut_short()
                    batch = self.take()
                    if not batch:
                        return
                    self.attend(lane, batch)
                except Exception as error:
                    # Log the traceback as text, because a log record with the traceback would keep the engine alive.
                    log.error("lane %d: %s", lane.number, traceback.format_exc())
                    self.fail(batch, error)
                    with self.changed:
                        self.tally.counts["lane_errors"] += 1
                    time.sleep(0.05)
        finally:
            with suppress(Exception):
                lane.drop()
            self.end(lane, batch)

    def end(self, lane: Lane, batch: list[Job]) -> None:
        """Called when a lane's thread ends: fail the requests of its batch.

        If the thread ends before the engine is drained, or with a batch, for example by a SystemExit, the lane is added
        to `ended`.  If all lanes have ended in this way, all waiting requests fail too.
        """
        left = list(batch)
        with self.changed:
            if batch or not (self.draining or program_ended()):
                self.ended.add(lane.number)
                log.error("lane %d has ended", lane.number)
            if len(self.ended) == self.options.lanes:
                left += self.queue.take(lambda job: True)
        self.fail(left, RuntimeError("the lane has ended"))

    def attend(self, lane: Lane, batch: list[Job]) -> None:
        """Serve a batch.  Until it is served, it counts as running."""
        with self.changed:
            self.running += 1
        try:
            serve(self, lane, batch)
        finally:
            with self.changed:
                self.running -= 1
                self.changed.notify_all()

    def take(self) -> list[Job]:
        """Wait for requests and return the next batch; [] if the engine is drained."""
        with self.changed:
            while True:
                while not self.queue:
                    if self.draining or program_ended():
                        return []
                    if not self.changed.wait(IDLE_S):
                        self.room = self.measure()      # other programs may have allocated or freed memory
                self.linger()
                if late := self.take_late():
                    self.late += late
                    self.timed.notify()
                if not self.queue:                      # another lane has taken the requests
                    continue
                if batch := self.gather():
                    return batch
                if self.queue:                          # the memory for the first request is promised to other batches
                    self.changed.wait(IDLE_S)

    def linger(self) -> None:
        """Wait until the batch is full, but at most until `linger_until` of any waiting request, old or new."""
        while 0 < len(self.queue) < self.options.batch and not self.draining:
            until = min(job.linger_until(self.options.linger_ms / 1e3) for job in self.queue)
            left = until - time.monotonic()
            if left <= 0:
                return
            self.changed.wait(min(left, LONGEST_S))

    def gather(self) -> list[Job]:
        """Take the first request and those that can share its batch, as far as memory allows; promise memory to them.

        Return the batch.  Return [] if no request waits, or if the memory for the first request is promised to running
        batches.
        """
        self.queue.take(self.is_cancelled)
        if not self.queue:
            return []
        first = self.queue.first()
        version = first.version
        cost = min(version.costs.estimate(first.nbytes), self.largest * 9 // 10)
        if self.promised and self.promised + cost > self.room:
            return []
        share = min(self.room // self.options.lanes, self.room - self.promised)
        batch: list[Job] = []

        def joins(job: Job) -> bool:
            nonlocal cost
            if len(batch) >= self.options.batch or job.version is not version:
                return False
            if batch:
                joined = self.joined_cost(batch, job)
                if joined is None or joined > share:
                    return False
                if not self.begin(job):
                    return True
                cost = joined
            elif not self.begin(job):
                return True
            batch.append(job)
            return True

        self.queue.take(joins)
        for job in batch:
            job.cost = cost // len(batch) + 1
            self.promised += job.cost
        if self.queue:
            self.changed.notify()
        return batch

    def begin(self, job: Job) -> bool:
        """Mark a request as running, so that it cannot be cancelled; return False if it was cancelled before."""
        if not job.result.set_running_or_notify_cancel():
            self.settle(job, "cancelled")
            return False
        job.version.tally.waited.add(time.monotonic() - job.arrived)
        return True

    def joined_cost(self, batch: list[Job], job: Job) -> int | None:
        """Return the bytes that a batch would need with a further request; None if they cannot share a batch."""
        items = [*(one.item for one in batch), job.item]
        task = job.version.task
        try:
            if task.goes_with(items[0], job.item):
                return job.version.costs.estimate(task.padded_bytes(items), len(items))
        except (Exception, SystemExit):         # if the lane ended here, begun requests would stay in the queue
            log.warning("the task cannot join two requests: %s", traceback.format_exc(limit=-1))
        return None

    # -- the results of requests

    def count(self, version: Version, event: str) -> None:
        """Count an event of a model's batch."""
        with self.changed:
            version.tally.counts[event] += 1

    def worked(self, lane: Lane) -> None:
        """Called after a batch of a lane has run: mark the lane as working, and measure the free memory."""
        self.failing.discard(lane.number)
        self.room = self.measure()

    def settle(self, job: Job, event: str) -> bool:
        """Mark a request as over, count it as `event`, and end its promise; return False if it was over already."""
        with self.changed:
            if job.over:
                return False
            job.over = True
            self.promised -= job.cost
            job.cost = 0
            job.version.tally.counts[event] += 1
            job.version.jobs -= 1
            if job.version.jobs == 0:
                self.changed.notify_all()       # `retire` may wait for the version's last request
        return True

    def answer(self, job: Job, result: Result) -> None:
        """Give a request its result."""
        with self.changed:
            job.version.tally.took.add(time.monotonic() - job.arrived)
        if self.settle(job, "answered"):
            job.result.set_result(result)

    def fail(self, batch: Iterable[Job], error: BaseException) -> None:
        """Fail requests with an error; after the grace period, the error is Refused with status 503."""
        if self.hasty and not isinstance(error, Refused):
            error = Refused(503, f"the server went down before it had answered: {error}")
        for job in batch:
            self.turn_away(job, "failed", error)

    @property
    def counts(self) -> Counter[str]:
        """Return the counts of all events, of the loaded models and of no model, together."""
        with self.changed:
            found = Counter(self.tally.counts)
            for version in self.models.values():
                found.update(version.tally.counts)
        return found

    # -- health and shutdown

    @property
    def healthy(self) -> bool:
        """True if the engine accepts requests, at least one lane works, and no lane has ended."""
        return not self.draining and not self.ended and len(self.failing) < self.options.lanes

    def health(self) -> Health:
        """Return the state of the engine and of each lane.  The method does not wait and does not call the device."""
        with self.changed:
            state = "draining" if self.draining else "failing" if not self.healthy else "ok" if self.models else "empty"
            return Health(state, tuple(
                LaneHealth(lane.number, "ended" if lane.number in self.ended else
                           "failing" if lane.number in self.failing else "working", lane.faults, lane.error)
                for lane in self.lanes))

    def drain(self) -> None:
        """Refuse new requests; accepted requests are still answered."""
        with self.changed:
            self.draining = True
            self.changed.notify_all()

    def close(self, grace_s: float | None = None) -> None:
        """Drain the engine, wait for its lanes, unload its models, and close its pool; a second call does nothing.

        If work still hangs on an aborted stream, no model is unloaded, because the work may use the memory.  Then
        another call of `close` tries again.

        Parameters
        ----------
        grace_s : float, optional
            Seconds to wait for accepted requests.  Requests that are not answered by then are aborted and fail with
            status 503.  If not given, `close` waits until all requests are answered or have failed.
        """
        if os.getpid() != self.process:
            return                              # a forked child has neither the threads nor the device memory
        self.drain()
        if grace_s is not None:
            due = time.monotonic() + grace_s
            for thread in self.threads:
                thread.join(max(0.0, due - time.monotonic()))
            if any(thread.is_alive() for thread in self.threads):
                self.cut_short()
        for thread in self.threads:
            thread.join()
        with self.changed:
            left = self.queue.take(lambda job: True)
            self.closed = True
            self.timed.notify()
        self.fail(left, Refused(503, "the server is down"))         # no lane is left to serve them
        self.clock.join()
        with self.loading:
            Device(self.options.device).use()
            self.retired += [one for one in self.models.values() if one not in self.retired]
            self.streams.wait(STUCK_S)
            if self.unload_retired() and self.pool is not None:
                self.pool.close()

    def cut_short(self) -> None:
        """End the grace period: fail the waiting requests, abort the running batches, and try none again."""
        with self.changed:
            self.hasty = True
            left = self.queue.take(lambda job: True)
            self.changed.notify_all()
        self.fail(left, Refused(503, "the server went down before it came to this request"))
        for lane in self.lanes:
            lane.abort()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(None if error[0] is None else 0)     # 0: do not wait after an exception, such as Ctrl-C
