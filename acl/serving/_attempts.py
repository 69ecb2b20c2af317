"""Serving a batch: it is run until each of its requests is answered or has failed.

If a batch runs out of memory, it is halved, again and again, down to one request.  If this request needs more than the
pool's limit, it is refused at once; otherwise it waits for the other lanes and is tried again with all of the memory.

After a fault of the device, the lane gets a new stream.  The error does not show whether the device or a request caused
the fault.  So if the device works again, the batch is halved, and a request that is alone in its batch is tried
`Options.tries` times.  After any other error, the batch is halved, and a request that is alone in its batch fails at
once.  No request is tried again after `Options.patience_s` or after its deadline.
"""

from __future__ import annotations

import logging
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acl.bind._error import AclError, DeviceLostError, OutOfMemoryError, TimeoutError
from acl.serving._values import Refused, Result

if TYPE_CHECKING:
    from acl.inside._oom import OomReport
    from acl.serving._engine import Engine
    from acl.serving._lane import Lane
    from acl.serving._queue import Job
    from acl.serving._version import Version

__all__ = ["compute", "is_fault", "relieve", "serve"]

log = logging.getLogger("acl.serving")
PAUSES = 0.001, 0.25                    # seconds before a batch is tried again: the first pause, and the longest
FAULTS = range(507000, 508000)          # the runtime's error codes for failures of the device, its driver or a kernel


def is_fault(error: Exception) -> bool:
    """Return True if the device reported the error and another try may succeed."""
    if isinstance(error, (DeviceLostError, TimeoutError)):
        return True
    return isinstance(error, AclError) and not isinstance(error, OutOfMemoryError) and error.code in FAULTS


def compute(lane: Lane, version: Version, items: list[Any]) -> list[Any]:
    """Run a batch and return a result for each item."""
    task = version.task
    outputs = lane.run(version, task.collate(items), task.padded_bytes(items), len(items))
    results = list(task.split(outputs, items))
    if len(results) != len(items):
        raise ValueError(f"the task gave {len(results)} results for {len(items)} requests")
    return results


def serve(engine: Engine, lane: Lane, batch: list[Job]) -> None:
    """Run a batch until each of its requests is answered or has failed."""
    version = batch[0].version
    pause, longest = PAUSES
    while True:
        try:
            results = compute(lane, version, [job.item for job in batch])
            break
        except OutOfMemoryError as error:
            engine.count(version, "ooms")
            again = len(batch) == 1 and relieve(engine, batch[0], error)
        except Exception as error:
            if is_fault(error):
                engine.count(version, "faults")
                again = recover(engine, lane, batch, error)
            else:
                log.warning("model %s: a batch of %d failed: %s", version.name, len(batch), traceback.format_exc())
                again = False
                if isinstance(error, AclError):
                    lane.works()                # if the stream still reports the error, this makes a new one
                if len(batch) == 1:
                    engine.fail(batch, error)
        if not again:
            halve(engine, lane, batch)
            return
        time.sleep(pause)
        pause = min(2 * pause, longest)
    engine.worked(lane)
    with engine.changed:
        version.tally.batches[len(batch)] += 1
    for job, result in zip(batch, results, strict=True):
        engine.answer(job, Result(result, len(batch), version.number))


def halve(engine: Engine, lane: Lane, batch: list[Job]) -> None:
    """Serve the unfinished requests of a failed batch as two smaller batches, one after the other."""
    left = [job for job in batch if not job.over]
    middle = (len(left) + 1) // 2
    for half in (left[:middle], left[middle:]):
        if half:
            serve(engine, lane, half)


def relieve(engine: Engine, job: Job, error: OutOfMemoryError) -> bool:
    """Called if a batch of one request ran out of memory: fail the request, or prepare another try.

    To prepare the try, idle memory of the pool is freed, all memory is promised to the request, and the lane waits up
    to 1 s until no other batch runs.  Return True if the request is to be tried again, False if it has failed.
    """
    if never_fits(error.report) or (job.alone and at_limit(engine)):
        engine.fail([job], Refused(413, f"the request needs more than the pool's {engine.largest} bytes: {error}"))
        return False
    if weary(engine, job):
        late = Refused(504, f"its deadline passed after it had run out of memory: {error}")
        engine.fail([job], late if is_late(job) else error)
        return False
    if engine.pool is not None:
        with suppress(AclError):
            engine.pool.trim(idle=True)
    with engine.changed:                        # the lane waits below, and does not count as running while it waits
        engine.running -= 1
        engine.changed.notify_all()
    with engine.alone, engine.changed:
        if job.cost < engine.room:              # promise all memory to the request, so that no other batch begins
            engine.promised += engine.room - job.cost
            job.cost = engine.room
        job.alone = engine.changed.wait_for(lambda: engine.running == 0, timeout=1.0)
        engine.running += 1
    return True


def never_fits(report: OomReport | None) -> bool:
    """Return True if a request's failed allocation shows that even alone the request needs more than the pool's limit.

    It does if the request's own memory is more than the limit, or if all other memory of the pool was free for its use.
    """
    if report is None or not report.limit or not report.holds:
        return False
    own, *other = report.holds
    left = sum(report.left.values())                # bytes of runs that failed earlier, maybe on this stream
    if own.live - left + report.size > report.limit:
        return True
    usable = sum(hold.whole for hold in other)
    return report.stopped == ("limit",) and not left and report.others <= usable


def at_limit(engine: Engine) -> bool:
    """Return True if only the pool's limit, and not the device, made the last failed allocation fail."""
    report = None if engine.pool is None else engine.pool.last_oom()
    return report is not None and report.stopped == ("limit",)


def recover(engine: Engine, lane: Lane, batch: list[Job], error: Exception) -> bool:
    """Get a new stream for a lane after a fault of the device, and fail the requests that are not tried again.

    These are the requests for which `weary` is true, and a request that failed `Options.tries` times alone although the
    device works.  Return True if the whole batch is to be tried again.  Return False if it is not: then the requests of
    the batch that have not failed, if there are any, are to be served in two halves.
    """
    log.warning("lane %d: %s", lane.number, str(error))
    lane.faults += 1
    lane.error = str(error)
    lane.drop(hung=isinstance(error, TimeoutError))
    works = lane.works()
    if not works:
        engine.failing.add(lane.number)
    elif len(batch) == 1:
        batch[0].tried += 1
    over = [job for job in batch if weary(engine, job) or job.tried >= engine.options.tries]
    engine.fail(over, error)
    return not over and (not works or len(batch) == 1)


def weary(engine: Engine, job: Job) -> bool:
    """Return True if a request is not tried again: its `patience_s`, its deadline or the grace period is over."""
    return engine.hasty or is_late(job) or time.monotonic() - job.arrived > engine.options.patience_s


def is_late(job: Job) -> bool:
    """Return True if the deadline of a request has passed."""
    return job.deadline is not None and time.monotonic() > job.deadline
