"""The engine of the service: requests in, batches on several streams, results out.

One `acl.Model`, one `acl.Pool`, and a thread with a stream of its own for each lane.  What is accepted
is answered: a batch that finds no memory is halved, and waits for the other lanes when it is down to
one request; a lane whose stream or device fails gets a new stream and runs its batch again.  A batch
that fails otherwise is halved too, so that a request which cannot be served fails alone.

What cannot be served is refused at the door, in words that HTTP has a number for.  What waits in the
queue takes no memory, so only its length counts there; a batch begins as soon as the memory that it
may need is not promised to those that run.

Any thread may call `submit`; its future is set by a lane's thread, and may be cancelled until its
batch begins.  Lanes end with the program: once its main thread has ended, what is not answered fails.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from bisect import bisect_left
from collections import Counter, deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import acl
from acl.pool._options import bytes_of

__all__ = ["Engine", "Histogram", "Options", "Refused"]

log = logging.getLogger("serving")
HBM = 1                                 # ACL_HBM_MEM
NO_LIMIT = 1 << 62
MARGIN = 1.25                           # of an estimate over what was seen
IDLE_S = 0.5                            # how often an idle lane looks at the device


class Refused(Exception):
    """A request that is not accepted; `status` is HTTP's, `after` in how many seconds to ask again."""

    def __init__(self, status: int, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.after = status, reason, after


@dataclass(frozen=True)
class Options:
    """How an engine is set up."""

    device: int = 0
    lanes: int = 2
    batch: int = 8                      # most requests in one
    linger_ms: float = 2.0              # how long a batch waits for company
    queue: int = 256                    # most requests that are accepted and not begun
    limit: str | int = "1GiB"           # of the pool
    headroom: str | int = 0             # bytes that the pool leaves free on the device
    pool: bool = True                   # False: the driver's allocator, for comparison
    patience_s: float = 30.0            # how long an accepted request may be tried again
    tries: int = 5                      # of a request alone, on a device that works

    def __post_init__(self) -> None:
        for name in ("lanes", "batch", "queue", "tries"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, not {value!r}")


@dataclass
class Job:
    """A request that is accepted."""

    item: Any
    nbytes: int                         # of its input, alone
    cost: int = 0                       # bytes of device memory that it is promised while it runs
    tried: int = 0                      # times that it failed alone, on a device that works
    alone: bool = False                 # it had all of the memory to itself
    arrived: float = field(default_factory=time.monotonic)
    result: Future[tuple[Any, int]] = field(default_factory=Future)


class Costs:
    """How much device memory a batch takes for each byte of its inputs, by how large its items are.

    Attributes
    ----------
    ratio : float
        For sizes of which none has run.
    """

    def __init__(self) -> None:
        self.ratio = 32.0
        self.ratios: dict[int, float] = {}          # by the bits of an item's bytes

    def estimate(self, nbytes: int, count: int = 1) -> int:
        """Bytes that a batch of so many items will need."""
        return int(self.ratios.get((nbytes // count).bit_length(), self.ratio) * nbytes) + 4096

    def learn(self, nbytes: int, count: int, peak: int, *, exact: bool) -> None:
        """A batch has run, and needed `peak` bytes; or at most so many, if not `exact`."""
        size = (nbytes // count).bit_length()
        seen = MARGIN * peak / nbytes
        known = self.ratios.get(size)
        if exact:
            self.ratios[size] = seen if known is None else max(seen, 0.9 * known)
        else:
            self.ratios[size] = min(seen, self.ratio if known is None else known)


class Histogram:
    """Seconds, counted by upper bounds of 1 ms to 65 s, each twice the one before."""

    BOUNDS = tuple(2.0**n / 1024 for n in range(17))

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.sum += seconds


def program_ended() -> bool:
    """Whether the interpreter waits only for threads such as the lanes'."""
    return not threading.main_thread().is_alive()


class Lane:
    """A stream."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.engine, self.number = engine, number
        self.stream: acl.Stream | None = None
        self.peak = 0                   # most bytes that were asked for on the stream at once

    def open(self) -> acl.Stream:
        """The lane's stream, made and registered if it has none."""
        if self.stream is None:
            stream = acl.Stream(self.engine.options.device)
            try:
                if self.engine.pool is not None:
                    self.engine.pool.register(stream)
            except BaseException:
                stream.close()
                raise
            self.stream = stream
            self.peak = self.measure()
            self.engine.destroy_lost()
        return self.stream

    def measure(self) -> int:
        """What the stream's part of the pool has needed at most."""
        pool, stream = self.engine.pool, self.stream
        if pool is None or stream is None:
            return 0
        return next((part.requested_peak for part in pool.stats().streams if part.stream == stream.handle), 0)

    def run(self, inputs: dict[str, Any], nbytes: int, count: int) -> list[Any]:
        """A batch of so many items, from host to host."""
        results = self.engine.model.run_async(inputs, self.open())
        try:
            outputs = [result.numpy() for result in results]
        finally:
            for result in results:
                result.close()
        before, self.peak = self.peak, self.measure()
        if self.peak:
            self.engine.costs.learn(nbytes, count, self.peak, exact=self.peak > before)
        return outputs

    def works(self) -> bool:
        """Whether the device gives a stream, and the stream comes to its end."""
        try:
            self.open().synchronize()
        except acl.AclError:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Give the stream up; one that a lost device does not take is destroyed later."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        handle = stream.handle
        with suppress(acl.AclError):
            if self.engine.pool is not None:
                self.engine.pool.unregister(stream)
        try:
            stream.close()
        except acl.AclError:
            self.engine.lost.append(handle)


class Engine:
    """A model behind a queue.

    Attributes
    ----------
    pool : acl.Pool or None
        The lanes' memory.
    counts : Counter
        What happened: accepted, answered, cancelled, failed, refused_queue, refused_memory, ooms, faults, ...
    waited, took : Histogram
        Seconds of requests in the queue, and until they were answered.
    """

    def __init__(self, task: Any, options: Options | None = None) -> None:
        self.task, self.options = task, options or Options()
        self.pool: acl.Pool | None = None
        if self.options.pool:
            self.pool = acl.Pool(
                self.options.device, limit=self.options.limit, headroom=self.options.headroom, name="serving")
        self.headroom = bytes_of(self.options.headroom, "headroom")
        self.model = acl.Model(task.model(), self.options.device)
        self.costs = Costs()
        self.counts: Counter[str] = Counter()
        self.batches: Counter[int] = Counter()
        self.waited, self.took = Histogram(), Histogram()
        self.largest = NO_LIMIT if self.pool is None else self.pool.stats().limit or NO_LIMIT
        self.room = self.measure()
        self.promised = 0                   # bytes, to the batches that run
        self.running = 0
        self.failing: set[int] = set()      # lanes whose last batch failed for the device
        self.ended: set[int] = set()        # lanes whose thread has ended though nobody drained
        self.lost: list[int] = []           # handles of streams that are still to be destroyed
        self.draining = False
        self.hasty = False                  # the grace period is over: nothing is tried again
        self.queue: deque[Job] = deque()
        self.changed = threading.Condition()
        self.alone = threading.Lock()       # held by a lane that has the memory to itself
        self.lanes = [Lane(self, number) for number in range(self.options.lanes)]
        self.threads = [
            threading.Thread(target=self.work, args=(lane,), name=f"lane-{lane.number}") for lane in self.lanes]
        for thread in self.threads:
            thread.start()

    # -- the door

    def measure(self) -> int:
        """Bytes that the running batches may need together: what the pool may take, less its slack.

        What others take of the device makes it less; asked by the lanes, which have a context.
        """
        if self.pool is None:
            return NO_LIMIT
        stats = self.pool.stats()
        free, _, status = acl.rt.get_mem_info(HBM)
        room: int = stats.limit or NO_LIMIT
        if status == 0:
            room = min(room, free + stats.reserved - self.headroom)
        return max(room, 0) * 9 // 10

    def submit(self, item: Any) -> Future[tuple[Any, int]]:
        """Accept a request: its future gives the result and how many shared the batch.

        Raises
        ------
        Refused
            429 for a full queue, 503 where others on the device have taken the memory or the engine
            drains, 413 for what never fits.
        """
        nbytes = self.task.padded_bytes([item])
        cost = self.costs.estimate(nbytes)
        with self.changed:
            if self.draining:
                raise self.refuse("draining", 503, "the server is going down")
            if len(self.ended) == self.options.lanes:
                raise self.refuse("ended", 503, "every lane has ended")
            if cost > MARGIN * self.largest:
                raise self.refuse("size", 413, f"the request needs some {cost} bytes, there are {self.largest}")
            if min(cost, self.largest * 9 // 10) > self.room:       # it may just fit, alone
                raise self.refuse("memory", 503, "others on the device have taken the memory", 0.1)
            if len(self.queue) >= self.options.queue:
                self.queue = deque(job for job in self.queue if not self.is_cancelled(job))
            if len(self.queue) >= self.options.queue:
                raise self.refuse("queue", 429, f"{len(self.queue)} requests wait already", 0.1)
            job = Job(item, nbytes)
            self.counts["accepted"] += 1
            self.queue.append(job)
            self.changed.notify()
        return job.result

    def is_cancelled(self, job: Job) -> bool:
        """Whether nobody wants it any more; it is counted then, and is to be dropped."""
        return job.result.cancelled() and not self.begin(job)

    def refuse(self, why: str, status: int, reason: str, after: float | None = None) -> Refused:
        self.counts[f"refused_{why}"] += 1
        return Refused(status, reason, after)

    # -- the lanes

    def work(self, lane: Lane) -> None:
        """A lane's thread; it ends when the engine is drained."""
        try:
            while True:
                batch: list[Job] = []
                try:
                    acl.Device(self.options.device).use()
                    if program_ended():
                        self.drain()
                        self.cut_short()
                    batch = self.take()
                    if not batch:
                        return
                    self.attend(lane, batch)
                except Exception as error:
                    # As text: a record that holds the traceback would hold the engine.
                    log.error("lane %d: %s", lane.number, traceback.format_exc())
                    self.fail(batch, error)
                    self.count("lane_errors")
                    time.sleep(0.05)
        finally:
            with suppress(Exception):
                lane.drop()
            self.end(lane, batch)

    def end(self, lane: Lane, batch: list[Job]) -> None:
        """A lane's thread ends; before its time only by a SystemExit or the like."""
        left = list(batch)
        with self.changed:
            if batch or not (self.draining or program_ended()):
                self.ended.add(lane.number)
                log.error("lane %d has ended", lane.number)
            if len(self.ended) == self.options.lanes:
                left += self.queue
                self.queue.clear()
        self.fail(left, RuntimeError("the lane has ended"))

    def attend(self, lane: Lane, batch: list[Job]) -> None:
        """Serve a batch as one of those that run."""
        with self.changed:
            self.running += 1
        try:
            self.serve(lane, batch)
        finally:
            with self.changed:
                self.running -= 1
                self.changed.notify_all()

    def take(self) -> list[Job]:
        """The next batch, after it has waited for company; nothing once the engine is drained."""
        with self.changed:
            while True:
                while not self.queue:
                    if self.draining or program_ended():
                        return []
                    if not self.changed.wait(IDLE_S):
                        self.room = self.measure()      # what others have left by now
                self.linger(self.queue[0].arrived + self.options.linger_ms / 1e3)
                if not self.queue:              # another lane was quicker
                    continue
                if batch := self.gather():
                    return batch
                if self.queue:                  # it waits for memory that others were promised
                    self.changed.wait(IDLE_S)

    def linger(self, due: float) -> None:
        """Wait for company until then."""
        while 0 < len(self.queue) < self.options.batch and not self.draining:
            left = due - time.monotonic()
            if left <= 0 or not self.changed.wait(left):
                return

    def gather(self) -> list[Job]:
        """The oldest request and those that go with it, as far as there is memory for them.

        Nothing while the memory for the first is promised to those that run.
        """
        batch: list[Job] = []
        cost = 0
        while self.queue and not batch:
            first = self.queue[0]
            cost = min(self.costs.estimate(first.nbytes), self.largest * 9 // 10)
            if not first.result.cancelled() and self.promised and self.promised + cost > self.room:
                return []
            self.queue.popleft()
            batch = self.begin(first)
        kept: list[Job] = []
        share = min(self.room // self.options.lanes, self.room - self.promised)
        while batch and self.queue and len(batch) < self.options.batch:
            job = self.queue.popleft()
            joined = self.joined_cost(batch, job)
            if joined is None or joined > share:
                kept.append(job)
            elif self.begin(job):
                batch.append(job)
                cost = joined
        self.queue.extendleft(reversed(kept))
        for job in batch:
            job.cost = cost // len(batch) + 1
            self.promised += job.cost
        if self.queue:
            self.changed.notify()
        return batch

    def begin(self, job: Job) -> list[Job]:
        """From here on it cannot be cancelled; nothing if it was."""
        if not job.result.set_running_or_notify_cancel():
            self.counts["cancelled"] += 1
            return []
        self.waited.add(time.monotonic() - job.arrived)
        return [job]

    def joined_cost(self, batch: list[Job], job: Job) -> int | None:
        """What the batch would need with a further request; None if they do not go together."""
        items = [*(one.item for one in batch), job.item]
        try:
            if self.task.goes_with(items[0], job.item):
                return self.costs.estimate(self.task.padded_bytes(items), len(items))
        except Exception:
            log.warning("the task cannot join two requests: %s", traceback.format_exc(limit=-1))
        return None

    def serve(self, lane: Lane, batch: list[Job]) -> None:
        """Run a batch until each of its requests is answered or has failed."""
        pause = 0.001
        while True:
            try:
                results = self.compute(lane, [job.item for job in batch])
                break
            except acl.OutOfMemoryError as error:
                self.count("ooms")
                again = len(batch) == 1 and self.relieve(batch[0], error)
            except acl.AclError as error:
                self.count("faults")
                again = self.recover(lane, batch, error)
            except Exception as error:
                log.warning("a batch of %d failed: %s", len(batch), traceback.format_exc())
                again = False
                if len(batch) == 1:
                    self.fail(batch, error)
            if not again:
                self.halve(lane, batch)
                return
            time.sleep(pause)
            pause = min(2 * pause, 0.25)
        self.failing.discard(lane.number)
        self.room = self.measure()
        self.batches[len(batch)] += 1
        for job, result in zip(batch, results, strict=True):
            self.finish(job)
            job.result.set_result((result, len(batch)))

    def compute(self, lane: Lane, items: list[Any]) -> list[Any]:
        """A result for each of a batch's items."""
        outputs = lane.run(self.task.collate(items), self.task.padded_bytes(items), len(items))
        results: list[Any] = list(self.task.split(outputs, items))
        if len(results) != len(items):
            raise ValueError(f"the task gave {len(results)} results for {len(items)} requests")
        return results

    def halve(self, lane: Lane, batch: list[Job]) -> None:
        """A batch failed: what is left of it in two halves, one after the other."""
        left = [job for job in batch if not job.result.done()]
        middle = (len(left) + 1) // 2
        for half in (left[:middle], left[middle:]):
            if half:
                self.serve(lane, half)

    def relieve(self, job: Job, error: acl.OutOfMemoryError) -> bool:
        """One request found no memory: give back what is idle, and let the others finish first.

        False if it is not to be tried again: it has failed.
        """
        if job.alone and self.at_limit():
            self.fail([job], Refused(413, f"the request needs more than the pool's {self.largest} bytes: {error}"))
            return False
        if self.weary(job):
            self.fail([job], error)
            return False
        if self.pool is not None:
            with suppress(acl.AclError):
                self.pool.trim(idle=True)
        with self.changed:                      # who waits here uses no memory
            self.running -= 1
            self.changed.notify_all()
        with self.alone, self.changed:
            if job.cost < self.room:            # and nobody begins meanwhile
                self.promised += self.room - job.cost
                job.cost = self.room
            job.alone = self.changed.wait_for(lambda: self.running == 0, timeout=1.0)
            self.running += 1
        return True

    def at_limit(self) -> bool:
        """Whether it was the pool's own limit that the last allocation met."""
        report = None if self.pool is None else self.pool.last_oom()
        return report is not None and report.stopped == ("limit",)

    def recover(self, lane: Lane, batch: list[Job], error: Exception) -> bool:
        """A stream or the device failed: a new stream, as soon as the device gives one.

        Whether the batch is to be tried again as it is.  Those whose patience is over have failed, and
        so has a request that failed too often alone while the device works.
        """
        log.warning("lane %d: %s", lane.number, str(error))
        lane.drop()
        works = lane.works()
        if not works:
            self.failing.add(lane.number)
        elif len(batch) == 1:
            batch[0].tried += 1
        weary = [job for job in batch if self.weary(job) or job.tried >= self.options.tries]
        self.fail(weary, error)
        return not weary and (not works or len(batch) == 1)

    def weary(self, job: Job) -> bool:
        return self.hasty or time.monotonic() - job.arrived > self.options.patience_s

    def count(self, event: str) -> None:
        with self.changed:
            self.counts[event] += 1

    def finish(self, job: Job) -> None:
        with self.changed:
            self.promised -= job.cost
            self.counts["answered"] += 1
            self.took.add(time.monotonic() - job.arrived)

    def fail(self, batch: list[Job], error: BaseException) -> None:
        """What was tried for too long, or cannot be served."""
        if self.hasty and not isinstance(error, Refused):
            error = Refused(503, f"the server went down before it had answered: {error}")
        for job in batch:
            if not job.result.done():
                with self.changed:
                    self.promised -= job.cost
                    self.counts["failed"] += 1
                with suppress(InvalidStateError):       # cancelled at this moment
                    job.result.set_exception(error)

    # -- the end

    @property
    def healthy(self) -> bool:
        """Whether it accepts requests, a lane works, and none has ended."""
        return not self.draining and not self.ended and len(self.failing) < self.options.lanes

    def drain(self) -> None:
        """Accept nothing any more; what is accepted is answered."""
        with self.changed:
            self.draining = True
            self.changed.notify_all()

    def close(self, grace_s: float | None = None) -> None:
        """Drain, wait for the lanes, and give everything back; a second call does nothing.

        Parameters
        ----------
        grace_s : float, optional
            Longest wait for what is accepted; what is not answered by then fails.  No end if not given.
        """
        self.drain()
        if grace_s is not None:
            due = time.monotonic() + grace_s
            for thread in self.threads:
                thread.join(max(0.0, due - time.monotonic()))
            if any(thread.is_alive() for thread in self.threads):
                self.cut_short()
        for thread in self.threads:
            thread.join()
        self.fail(list(self.queue), Refused(503, "the server is down"))     # nobody else would
        acl.Device(self.options.device).use()
        self.destroy_lost()
        self.model.close()
        if self.pool is not None:
            self.pool.close()

    def destroy_lost(self) -> None:
        """Streams that a lost device did not take back."""
        while self.lost:
            acl.rt.destroy_stream_force(self.lost.pop())

    def cut_short(self) -> None:
        """The grace period is over: nothing begins, nothing is tried again, what runs is aborted."""
        with self.changed:
            self.hasty = True
            left = list(self.queue)
            self.queue.clear()
            self.changed.notify_all()
        self.fail(left, Refused(503, "the server went down before it came to this request"))
        for lane in self.lanes:
            stream = lane.stream
            if stream is not None:
                with suppress(acl.AclError, ValueError):
                    stream.abort()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(None if error[0] is None else 0)     # Ctrl-C does not wait for the queue
