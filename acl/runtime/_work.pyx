"""The progress of a stream, and the outcome of each work that was queued on it.

A *work* is a run, a launch or a copy.  The works of a stream are numbered in the order in which
they are queued.

The runtime reports a stream's failure once, to the next wait for the stream, and does not say
which task failed.  So every wait of the package uses the stream's `Progress`, one wait at a time,
and the result is stored for all works together.  If the wait succeeds, all works queued before it
are done. If it finds a failure, or the stream is aborted, all works since the last one known to be
done count as failed.  The works between two failures share a `Span`, which stores the error, so no
list of works is needed.

A `Progress` may exist longer than its stream and has no reference to it.  So a buffer that stores
its works does not keep streams alive.  The GIL guards everything here; a wait releases it.
"""

import time
from weakref import WeakValueDictionary

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    PY_LOCK_ACQUIRED, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
)

from acl.runtime._device cimport callback_check, current_context, current_ensure, fork_count
from acl.runtime._device cimport forked_raise
from acl.bind._error cimport check
from acl.core._ends cimport ends_alive
from acl.runtime._ended cimport ended_drop, stream_watch
from acl.runtime._later cimport End
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_CAPTURE_DEPENDENCY, ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_STREAM_ABORT,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING,
    ACL_STREAM_STATUS_COMPLETE,
    aclrtGetCurrentContext, aclrtSetCurrentContext, aclrtStreamQuery, aclrtStreamStatus,
    aclrtSynchronizeStreamWithTimeout,
)

from acl.runtime import _device
from acl.runtime._device import timeout_checked
from acl.bind._error import AclError, TimeoutError, error_for

cdef extern from "pythread.h" nogil:
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long limit_us, int interrupts)

__all__ = ["Progress", "Work"]

cdef enum:
    SLICE_MS = 50              # longest call of ACL in a wait; between two calls, Ctrl-C is noticed
    PATIENT_MS = 60000          # longest call of ACL in a thread that does nothing but wait
    FEW = 4                     # number of works from which on `works_add` removes finished ones

# Every Progress that exists, unless its stream has ended; the keys are those of `key_of`.
cdef object known = WeakValueDictionary()


# ---- calls of ACL -------------------------------------------------------------------------------

cdef aclError context_swap(Progress progress, aclrtContext *before) noexcept nogil:
    """If the stream is a default stream, make its context current.  Return the status.

    Set `before` to the context that was current, or to NULL if nothing was changed.
    """
    before[0] = NULL
    if progress.raw != NULL or progress.context == NULL:
        return 0
    if aclrtGetCurrentContext(before) != 0 or before[0] == progress.context:
        before[0] = NULL
        return 0
    return aclrtSetCurrentContext(progress.context)


cdef aclError raw_ask(
    Progress progress, int32_t limit_ms, aclrtStreamStatus *state
) noexcept nogil:
    """Query the stream's state, or wait for its work if `state` is NULL; return the status."""
    cdef aclrtContext before
    cdef aclError status = context_swap(progress, &before)
    if status == 0 and state == NULL:
        status = aclrtSynchronizeStreamWithTimeout(progress.raw, limit_ms)
    elif status == 0:
        status = aclrtStreamQuery(progress.raw, state)
    if before != NULL:
        aclrtSetCurrentContext(before)
    return status


cdef bint is_task_failure(aclError status) noexcept:
    """Return True if a wait's status means that work failed, False if ACL could not wait."""
    return status >= 500000 and status != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT


cdef bint says_nothing(aclError status) noexcept:
    return 200000 <= status < 300000


cdef int64_t until_of(object timeout_ms) except? -2:
    cdef int32_t limit = timeout_checked(timeout_ms)
    return -1 if limit < 0 else <int64_t> (time.monotonic() * 1000) + limit


cdef int64_t left_of(int64_t until) except? -2:
    if until < 0:
        return -1
    return max(until - <int64_t> (time.monotonic() * 1000), 1)


# ---- progress -----------------------------------------------------------------------------------

@cython.final
@cython.no_gc_clear                             # buffers that refer to it may be deleted after it
cdef class Span:
    """The works of a stream between two failures.  If the next wait fails, they share its error."""


@cython.final
@cython.no_gc_clear                             # the stream that uses it may be deleted later
cdef class Progress:
    """The known state of a stream's work."""

    def __cinit__(self):
        self.made = fork_count
        self.device = -1
        self.entering.before = self.entering.after = &self.entering
        self.span = Span()
        self.turn = PyThread_allocate_lock()
        if self.turn is NULL:
            raise MemoryError("host memory for a stream's lock")

    def __dealloc__(self):
        if self.turn is not NULL:
            PyThread_free_lock(self.turn)

    def query(self):
        """Return True if the stream has no work left; raises an error if the query fails."""
        cdef aclrtStreamStatus state
        cdef aclError status
        with nogil:
            status = raw_ask(self, 0, &state)
        check(status, "aclrtStreamQuery")
        return state == ACL_STREAM_STATUS_COMPLETE

    cdef object wait(self, int64_t limit_ms, uint64_t number=0):
        """Wait for all queued work; return None, or its error without raising it.

        If `limit_ms` < 0, the wait has no limit.  If `number` is the number of a work, the wait
        also ends when another wait has found this work done.  An exception of a signal handler ends
        the wait within `SLICE_MS` and is raised.
        """
        cdef int64_t left = limit_ms
        cdef int32_t slice_ms
        cdef int got
        cdef object error
        if self.ended:
            return None
        if self.made != fork_count:
            forked_raise(self)
        callback_check()
        current_ensure(self.context)
        while number == 0 or number > self.done:
            slice_ms = SLICE_MS if left < 0 or left > SLICE_MS else <int32_t> left
            with nogil:
                got = PyThread_acquire_lock_timed(self.turn, slice_ms * 1000, 0)
            if got == PY_LOCK_ACQUIRED:
                try:
                    error = wait_turn(self, slice_ms)
                finally:
                    PyThread_release_lock(self.turn)
                if not isinstance(error, TimeoutError):
                    return error
            if left >= 0:
                left -= slice_ms
                if left <= 0:
                    return error_for(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                                     "aclrtSynchronizeStreamWithTimeout")
            PyErr_CheckSignals()
        return None

    def attend(self):
        """Wait, in a thread that does nothing else; return None, or the error without raising it.

        Each call of ACL waits only for the work that was queued before the call.  So the outcomes
        of works become known even if the stream is never idle.
        """
        cdef object error = None
        if self.ended:
            return None
        if self.made != fork_count:
            forked_raise(self)
        current_ensure(self.context)
        with nogil:
            PyThread_acquire_lock_timed(self.turn, -1, 0)
        try:
            error = wait_turn(self, PATIENT_MS)
        finally:
            PyThread_release_lock(self.turn)
        if error is None or isinstance(error, TimeoutError):
            return None
        note_untold(self, error)
        return error

    cdef int settle(self, int64_t until=-1) except -1:
        """Wait for all queued work; store an error, which `synchronize` or a work raises later.

        Raises `acl.TimeoutError` at the time `until` (see `until_of`), unless it is -1.  Raises an
        error if ACL lacked a resource for the wait.
        """
        cdef object error = self.wait(left_of(until))
        if isinstance(error, TimeoutError) and until >= 0:
            raise error
        if error is not None and says_nothing(error.code):
            raise error                         # the work may still run
        if error is not None and not self.ended and not self.idle():
            error = self.wait(-1) or error   # wait again: after a failure, other work may still run
        if error is not None:
            note_untold(self, error)
        return 0

    cdef bint idle(self) noexcept:
        """Return True if the stream has no work left, or is destroyed; does not wait.

        Return False if the stream cannot be queried: in a thread without a context, during a
        capture, or because ACL lacks a resource.  Return True if the query fails otherwise, and in
        a forked child.
        """
        cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
        cdef aclError status
        if self.ended or self.made != fork_count:
            return True
        with nogil:
            status = raw_ask(self, 0, &state)
        if says_nothing(status):
            return False
        if ACL_ERROR_RT_CAPTURE_DEPENDENCY <= status <= ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING:
            return False
        if status != 0 and current_context() is NULL:
            return False
        return status != 0 or state == ACL_STREAM_STATUS_COMPLETE

    cdef int fail(self, object error, bint aborted) except -1:
        """Store `error` as the outcome of all works that are not known to be done."""
        if self.queued > self.done:
            self.span.first = self.done + 1
            self.span.aborted = aborted
            self.span.error = error
            self.span = Span()
            if aborted and self.attendant is not None:
                self.attendant.aborted()
        return 0

    cdef int end(self) except -1:
        """Mark the stream as ended.

        Called before it is destroyed, so that no later wait uses it.
        """
        with nogil:
            PyThread_acquire_lock_timed(self.turn, -1, 0)
        self.ended = True
        PyThread_release_lock(self.turn)
        if known.get(key_of(self.raw, self.context)) is self:
            del known[key_of(self.raw, self.context)]
        return 0


cdef int note_untold(Progress self, object error) except -1:
    """Store an error of a wait.  The stream's next `synchronize` raises it, unless a work did."""
    if self.untold is None and is_task_failure(error.code):
        self.untold = error
    return 0


cdef object wait_turn(Progress self, int32_t slice_ms):
    """Wait once; the caller holds the lock `turn`.

    Store the outcome for the works; return the error or None.
    """
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    cdef uint64_t target
    cdef aclError status
    if self.ended:
        return None
    target = self.queued
    if self.entering.after is not &self.entering:
        target = self.entering.after.number - 1
    with nogil:
        status = raw_ask(self, slice_ms, NULL)
    if status == 0:
        self.done = max(self.done, target)
        return None
    error = error_for(status, "aclrtSynchronizeStreamWithTimeout")
    if is_task_failure(status):
        self.fail(error, False)
        with nogil:
            status = raw_ask(self, 0, &state)
        if status == 0 and state == ACL_STREAM_STATUS_COMPLETE:
            self.done = max(self.done, target)
    return error


cdef object key_of(aclrtStream raw, aclrtContext context):
    return f"default of {<size_t> context}" if raw is NULL else <object> <size_t> raw


cdef Progress progress_new(aclrtStream raw, aclrtContext context, int device):
    cdef Progress progress = Progress()
    ended_drop()
    progress.raw = raw
    progress.context = context
    progress.device = device
    known[key_of(raw, context)] = progress
    return progress


cdef Progress progress_of(aclrtStream raw, aclrtContext context, int device):
    cdef Progress progress = known.get(key_of(raw, context))
    if progress is not None and not ends_alive(raw, progress.watch):
        progress.ended = True                   # other code ended the stream that had this handle
    if progress is None or progress.ended or progress.made != fork_count:
        progress = progress_new(raw, context, device)
        progress.watch = stream_watch(raw)
    return progress


def progresses(context):
    """Return the Progress objects of the streams in a context, given by its handle."""
    # `valuerefs` copies in one step; an iteration fails if another thread makes a stream meanwhile.
    return [found for reference in known.valuerefs() if (found := reference()) is not None
            and <size_t> (<Progress> found).context == context]


def progresses_end(list found not None):
    """Mark the streams of a destroyed context as ended, and their unfinished works as failed."""
    cdef Progress progress
    for progress in found:
        progress.fail(
            AclError(ACL_ERROR_RT_CONTEXT_NULL, "acl.Context", "the context is gone"), False)
        progress.end()


def context_wait(context, limit_ms):
    """Wait for the context's streams, `limit_ms` in all (-1: no limit), and store their errors."""
    cdef Progress progress
    cdef int64_t until = until_of(None if limit_ms < 0 else limit_ms)
    for progress in progresses(context):
        if progress.queued > progress.done:
            error = progress.wait(left_of(until))
            if error is not None:
                note_untold(progress, error)


def context_told(context):
    """Return an error of one of the context's streams that no call has raised yet, and forget it.

    Return None if there is no such error.
    """
    cdef Progress progress
    for progress in progresses(context):
        if progress.untold is not None:
            error, progress.untold = progress.untold, None
            return error
    return None


_device.context_streams = progresses
_device.streams_end = progresses_end


# ---- works --------------------------------------------------------------------------------------

@cython.final
@cython.freelist(64)
@cython.no_gc_clear                             # buffers that refer to it may be deleted after it
cdef class Work:
    """One run, launch or copy on a stream."""

    def __dealloc__(self):
        work_queued(self)                       # an exception may have come before

    @property
    def place(self):
        """The work's number on the stream."""
        return self.number

    @property
    def outcome(self):
        """``"queued"``, ``"done"``, ``"failed"`` or ``"aborted"``."""
        if self.failure() is not None:
            return "aborted" if self.span.aborted else "failed"
        return "done" if self.number <= self.progress.done else "queued"

    @property
    def error(self):
        """The work's own error if it is known to have failed, else None."""
        return self.failure()

    @property
    def known(self):
        """True if the work's outcome is known."""
        return self.is_failed() or self.number <= self.progress.done

    def poll(self):
        """Return True if the work is over; queries the device, but does not wait for work."""
        if not self.known and self.progress.idle():
            self.progress.settle()
        return self.known or self.progress.ended

    def check(self):
        """Raise the work's own error if it has failed."""
        self.told()

    def synchronize(self, timeout_ms=None):
        """Wait for the work; raise its own error if it failed, or `acl.TimeoutError`."""
        cdef int32_t limit = timeout_checked(timeout_ms)
        if self.number > self.progress.done and self.span.error is None:
            error = self.progress.wait(limit, self.number)
            if error is not None and not self.is_failed():
                raise error
        self.told()

    cdef object failure(self):
        """Return a new exception if the work failed or was aborted, else None; does not wait."""
        return error_again(self.span.error, self.what) if self.is_failed() else None

    cdef bint is_failed(self) noexcept:
        return self.span.error is not None and self.number >= self.span.first

    cdef int told(self) except -1:
        """Raise the work's error if it failed; then the stream's `synchronize` does not."""
        if self.is_failed():
            if self.progress.untold is self.span.error:
                self.progress.untold = None
            raise self.failure()
        return 0

    cdef bint over(self) noexcept:
        """Return True if the device is done with the work or the stream ended; does not wait."""
        return self.number <= self.progress.done or self.progress.idle()


cdef object error_again(object error, str what):
    """Return a copy of an error that several works share, with one work's name in the message."""
    if not isinstance(error, AclError):
        return error
    message = error.message.partition("\n[PID")[0]
    note = f"{what} was queued after the last work on its stream that is known to be done"
    return type(error)(error.code, error.function, f"{message}; {note}" if message else note)


cdef Work work_begin(Progress progress, str what):
    cdef Work work = Work.__new__(Work)
    cdef Entry *entry = &work.entry
    progress.queued += 1
    work.progress = progress
    work.span = progress.span
    work.number = progress.queued
    work.what = what
    entry.number = work.number
    entry.after = &progress.entering
    entry.before = progress.entering.before
    entry.before.after = entry.after.before = entry
    return work


cdef void work_queued(Work work) noexcept:
    """Note that a work is queued, or was refused; a second call does nothing.

    A refused work keeps its number, because buffers may have stored it in place of an older work.
    """
    cdef Entry *entry = &work.entry
    if entry.after is not NULL:
        entry.before.after = entry.after
        entry.after.before = entry.before
        entry.after = NULL


cdef Work work_mark(Progress progress):
    cdef Work work = work_begin(progress, "the stream's work")
    work_queued(work)
    return work


def abort_error(handle):
    """Return the error that the works of an aborted stream get."""
    return AclError(ACL_ERROR_RT_STREAM_ABORT, "acl.Stream.abort",
                    f"the stream {handle:#x} was aborted")


# ---- works on some memory -----------------------------------------------------------------------

cdef object works_add(object works, Work work):
    """Return `works` with a new work, which replaces the older work of its stream.

    Several works are a tuple: the garbage collector would clear a list before the object that owns
    it.  A work that was never queued (number 0) is not added.
    """
    cdef tuple kept
    cdef Work one
    if work.number == 0:
        return works
    if works is None:
        return work
    if isinstance(works, Work):
        return work if (<Work> works).progress is work.progress else (works, work)
    kept = tuple([one for one in <tuple> works if one.progress is not work.progress])
    # Remove finished works only when the length is a power of two, because each test calls the
    # device.
    if len(kept) >= FEW and len(kept) & (len(kept) - 1) == 0:
        kept = tuple([one for one in kept if not one.over()])
    return (*kept, work)


cdef tuple works_list(object works):
    if works is None:
        return ()
    return <tuple> works if isinstance(works, tuple) else (works,)


cdef bint works_over(object works) noexcept:
    cdef Work work
    if works is None:
        return True
    if isinstance(works, Work):
        return (<Work> works).over()
    for work in <tuple> works:
        if not work.over():
            return False
    return True


cdef int works_settle(object works, int64_t until=-1) except -1:
    cdef Work work
    for work in works_list(works):
        if work.number > work.progress.done:
            work.progress.settle(until)
    return 0


cdef object works_written(object works, Work work):
    """Return the new work, together with the older works that failed or may still fail.

    An older work of the same `Span` is left out, because a failure would be stored for both.
    """
    cdef Work one
    cdef list kept
    if works is None:
        return work
    kept = [one for one in works_list(works) if one.is_failed() or one.number > one.progress.done
            and not (one.progress is work.progress and one.span is work.span)]
    return (*kept, work) if kept else work


cdef int works_check(object works) except -1:
    cdef Work work
    for work in works_list(works):
        work.told()
    return 0


cdef class WorkEnd(End):
    """The clean-up of an object that was deleted or closed while works use it."""

    cdef bint ready(self, bint wait) except -1:
        if wait:
            works_settle(self.works)
            return True
        return works_over(self.works)
