"""The engine of the service: requests in, batches on several streams, results out.

One `acl.Model`, one `acl.Pool`, and a thread with a stream of its own for each lane.  What is accepted
is answered: a batch that finds no memory is halved, and waits for the other lanes when it is down to
one request; a lane whose stream or device fails gets a new stream and runs its batch again.  What
cannot be promised is refused at the door, in words that HTTP has a number for: the queue is full, or
the memory that the accepted requests need would not fit into what the pool may take.

Any thread may call `submit`; its future is set by a lane's thread.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter, deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import acl
from acl._options import bytes_of

__all__ = ["Engine", "Options", "Refused"]

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

    def __post_init__(self) -> None:
        for name in ("lanes", "batch", "queue"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, not {value!r}")


@dataclass
class Job:
    """A request that is accepted."""

    item: Any
    cost: int                           # bytes of device memory that it was promised
    arrived: float = field(default_factory=time.monotonic)
    result: Future[tuple[Any, int]] = field(default_factory=Future)


class Costs:
    """How much device memory a batch takes for each byte of its inputs."""

    def __init__(self) -> None:
        self.ratio = 32.0
        self.most = 65536               # bytes of the largest batch; small ones say little of large

    def estimate(self, nbytes: int) -> int:
        return int(self.ratio * nbytes) + 4096

    def learn(self, nbytes: int, peak: int) -> None:
        """A batch of `nbytes` has run, and no stream ever needed more than `peak`."""
        self.most = max(self.most, nbytes)
        self.ratio = max(1.0, 0.9 * self.ratio, MARGIN * peak / self.most)


class Lane:
    """A stream."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.engine, self.number = engine, number
        self.stream: acl.Stream | None = None

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
            while self.engine.lost:
                acl.rt.destroy_stream_force(self.engine.lost.pop())
        return self.stream

    def run(self, inputs: dict[str, Any], nbytes: int) -> list[Any]:
        """A batch, from host to host."""
        results = self.engine.model.run_async(inputs, self.open())
        try:
            outputs = [result.numpy() for result in results]
        finally:
            for result in results:
                result.close()
        pool = self.engine.pool
        if pool is not None and nbytes >= self.engine.costs.most:
            peak = max((part.requested_peak for part in pool.stats().streams), default=0)
            self.engine.costs.learn(nbytes, peak)
        return outputs

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
        What happened: accepted, answered, refused_queue, refused_memory, ooms, faults, failed, ...
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
        self.largest = NO_LIMIT if self.pool is None else self.pool.stats().limit or NO_LIMIT
        self.room = self.measure()
        self.promised = 0
        self.running = 0
        self.failing: set[int] = set()
        self.lost: list[int] = []           # handles of streams that are still to be destroyed
        self.draining = False
        self.queue: deque[Job] = deque()
        self.changed = threading.Condition()
        self.alone = threading.Lock()       # held by a lane that has the memory to itself
        self.threads = [
            threading.Thread(target=self.work, args=(Lane(self, n),), name=f"lane-{n}")
            for n in range(self.options.lanes)]
        for thread in self.threads:
            thread.start()

    # -- the door

    def measure(self) -> int:
        """Bytes that accepted requests may need together: what the pool may take, less its slack.

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
            429 for a full queue, 503 for memory or an engine that drains, 413 for what never fits.
        """
        cost = self.costs.estimate(self.task.padded_bytes([item]))
        with self.changed:
            room = self.room
            if self.draining:
                raise self.refuse("draining", 503, "the server is going down")
            if cost > MARGIN * self.largest:
                raise self.refuse("size", 413, f"the request needs some {cost} bytes, there are {self.largest}")
            cost = min(cost, self.largest * 9 // 10)    # it may just fit, alone
            if len(self.queue) >= self.options.queue:
                raise self.refuse("queue", 429, f"{len(self.queue)} requests wait already", 0.1)
            if self.promised + cost > room:
                raise self.refuse("memory", 503, "the memory is promised to others", 0.1)
            job = Job(item, cost)
            self.counts["accepted"] += 1
            self.promised += cost
            self.queue.append(job)
            self.changed.notify()
        return job.result

    def refuse(self, why: str, status: int, reason: str, after: float | None = None) -> Refused:
        self.counts[f"refused_{why}"] += 1
        return Refused(status, reason, after)

    # -- the lanes

    def work(self, lane: Lane) -> None:
        """A lane's thread."""
        acl.Device(self.options.device).use()
        while batch := self.take():
            with self.changed:
                self.running += 1
            try:
                self.serve(lane, batch)
            except BaseException as error:
                # As text: a record that holds the traceback would hold the engine.
                log.error("a batch failed: %s", traceback.format_exc())
                self.fail(batch, error)
            finally:
                with self.changed:
                    self.running -= 1
                    self.changed.notify_all()
        lane.drop()

    def take(self) -> list[Job]:
        """The next batch, after it has waited for company; nothing once the engine is drained."""
        with self.changed:
            while True:
                while not self.queue:
                    if self.draining:
                        return []
                    if not self.changed.wait(IDLE_S):
                        self.room = self.measure()      # what others have left by now
                self.linger(self.queue[0].arrived + self.options.linger_ms / 1e3)
                if self.queue:                  # else another lane was quicker
                    return self.gather()

    def linger(self, due: float) -> None:
        """Wait for company until then."""
        while 0 < len(self.queue) < self.options.batch and not self.draining:
            left = due - time.monotonic()
            if left <= 0 or not self.changed.wait(left):
                return

    def gather(self) -> list[Job]:
        """The oldest request and those that go with it, as long as one lane's share holds them."""
        share = self.room // self.options.lanes
        batch = [self.queue.popleft()]
        kept: list[Job] = []
        while self.queue and len(batch) < self.options.batch:
            job = self.queue.popleft()
            items = [*(one.item for one in batch), job.item]
            fits = self.costs.estimate(self.task.padded_bytes(items)) <= share
            (batch if fits and self.task.goes_with(batch[0].item, job.item) else kept).append(job)
        self.queue.extendleft(reversed(kept))
        if self.queue:
            self.changed.notify()
        return batch

    def serve(self, lane: Lane, batch: list[Job]) -> None:
        """Run a batch until it is done, or its patience is over."""
        pause = 0.001
        while True:
            items = [job.item for job in batch]
            try:
                outputs = lane.run(self.task.collate(items), self.task.padded_bytes(items))
                results = self.task.split(outputs, items)
            except acl.OutOfMemoryError as error:
                self.count("ooms")
                if len(batch) > 1:
                    self.halve(lane, batch)
                    return
                self.relieve(batch[0], error)
            except acl.AclError as error:
                self.count("faults")
                batch = self.recover(lane, batch, error)
                if not batch:
                    return
            else:
                break
            time.sleep(pause)
            pause = min(2 * pause, 0.25)
        self.failing.discard(lane.number)
        self.room = self.measure()
        self.batches[len(batch)] += 1
        for job, result in zip(batch, results, strict=True):
            self.finish(job)
            job.result.set_result((result, len(batch)))

    def halve(self, lane: Lane, batch: list[Job]) -> None:
        """A batch found no memory: two halves, one after the other, need less at a time."""
        middle = len(batch) // 2
        self.serve(lane, batch[:middle])
        self.serve(lane, batch[middle:])

    def relieve(self, job: Job, error: Exception) -> None:
        """One request found no memory: give back what is idle, and let the others finish first."""
        if self.weary(job):
            raise error
        if self.pool is not None:
            with suppress(acl.AclError):
                self.pool.trim(idle=True)
        with self.changed:                      # who waits here uses no memory
            self.running -= 1
            self.changed.notify_all()
        with self.alone, self.changed:
            self.changed.wait_for(lambda: self.running == 0, timeout=1.0)
            self.running += 1

    def recover(self, lane: Lane, batch: list[Job], error: Exception) -> list[Job]:
        """A stream or the device failed: a new stream, as soon as the device gives one.

        Gives the requests that are to be tried again; those whose patience is over have failed.
        """
        log.warning("lane %d: %s", lane.number, str(error))
        self.failing.add(lane.number)
        self.fail([job for job in batch if self.weary(job)], error)
        lane.drop()
        return [job for job in batch if not job.result.done()]

    def weary(self, job: Job) -> bool:
        return time.monotonic() - job.arrived > self.options.patience_s

    def count(self, event: str) -> None:
        with self.changed:
            self.counts[event] += 1

    def finish(self, job: Job) -> None:
        with self.changed:
            self.promised -= job.cost
            self.counts["answered"] += 1

    def fail(self, batch: list[Job], error: BaseException) -> None:
        """What was tried for too long, or is our own mistake."""
        for job in batch:
            if not job.result.done():
                with self.changed:
                    self.promised -= job.cost
                    self.counts["failed"] += 1
                job.result.set_exception(error)

    # -- the end

    @property
    def healthy(self) -> bool:
        """Whether it accepts requests and no lane is in trouble."""
        return not self.draining and len(self.failing) < self.options.lanes

    def drain(self) -> None:
        """Accept nothing any more; what is accepted is answered."""
        with self.changed:
            self.draining = True
            self.changed.notify_all()

    def close(self) -> None:
        """Drain, wait for the lanes, and give everything back; a second call does nothing."""
        self.drain()
        for thread in self.threads:
            thread.join()
        acl.Device(self.options.device).use()
        self.model.close()
        if self.pool is not None:
            self.pool.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
