"""Python functions that are called in stream order, and the exceptions that they raise.

A *job* is one queued call of a Python function.  The runtime gets the job's number, never an
object.  A number whose job was deleted is ignored, so a stream that is destroyed while callbacks
are queued leaves no dangling pointer.  The objects that a callback referred to are deleted by the
next call of a user's thread (`_later`), because the deletion may free device memory or destroy a
stream, which the runtime forbids on its callback threads.

An exception is passed to `sys.unraisablehook` at once, and the next `synchronize` raises it again.
If the library has no `aclrtLaunchHostFunc` (CANN 8.1), a thread of this module processes the
reports of the stream, as `aclrtLaunchCallback` requires.
"""

import atexit
import itertools
import threading

cimport cython
from cpython.exc cimport PyErr_SetObject, PyErr_WriteUnraisable

from acl.runtime._device cimport callback_enter, callback_leave
from acl.bind._error cimport check
from acl.core._ends cimport ends_alive
from acl.runtime._later cimport End, end_later
from acl.runtime._work cimport Progress, key_of
from acl.bind.generated._libacl cimport (
    ACL_CALLBACK_BLOCK,
    aclError,
    aclrtCallback,
    aclrtHostFunc,
    aclrtLaunchCallback,
    aclrtLaunchHostFunc,
    aclrtProcessReport,
    aclrtStream,
    aclrtSubscribeReport,
    aclrtUnSubscribeReport,
    libacl_has,
)
from libc.stdint cimport uint64_t

from acl.runtime._ended import watch_table

cdef extern from "runtime/guard.h" nogil:
    void guard_run(void (*run)(void *) noexcept nogil, void *argument)
    void guard_close(int limit_ms)
    void guard_reset()

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

# At its exit, the interpreter waits this many milliseconds for running callbacks.
cdef int EXIT_LIMIT_MS = 500
# Jobs that have not run, by number; guarded by the GIL.
cdef dict jobs = {}
cdef object numbers = itertools.count(1)
# The Callbacks objects with exceptions that were not raised yet, by `key_of` their streams.
cdef dict untold = {}


@cython.final
cdef class JobEnd(End):
    """The objects that a finished callback referred to; a user's thread deletes them."""

    cdef tuple job


cdef void job_run(void *argument) noexcept with gil:
    cdef tuple job = jobs.pop(<size_t> argument, None)
    if job is not None:
        job_call(<size_t> argument, <Callbacks> job[0], job)


cdef int job_call(size_t number, Callbacks owner, tuple job) except -1:
    """Call the function of a job, and leave the deletion of its objects to a user's thread."""
    cdef JobEnd end = JobEnd.__new__(JobEnd)
    end.job = job
    owner.waiting.discard(number)
    end_later(end)
    try:
        job[1](*job[2])
    except BaseException as error:
        untold_keep(owner, error)
        PyErr_SetObject(type(error), error)
        PyErr_WriteUnraisable(job[1])
    if not owner.waiting and not owner.errors:
        owner.progress = None
    return 0


cdef int untold_keep(Callbacks owner, object error) except -1:
    """Keep an exception for the stream's next `synchronize`, unless the stream has ended."""
    cdef Progress progress = owner.progress
    if progress is None or ends_alive(progress.raw, progress.watch):
        owner.errors.append(error)
        if progress is not None:
            untold[key_of(progress.raw, progress.context)] = owner
    return 0


cdef int untold_forget(Callbacks owner) except -1:
    cdef Progress progress = owner.progress
    if progress is not None:
        key = key_of(progress.raw, progress.context)
        if untold.get(key) is owner:
            del untold[key]
    return 0


def untold_drop(owners):
    """Forget the exceptions of streams that other code has ended."""
    cdef Callbacks owner
    for owner in owners:
        owner.errors.clear()
        if not owner.waiting:
            owner.progress = None


watch_table(untold, untold_drop)


cdef void job_enter(void *argument) noexcept nogil:
    job_run(argument)


cdef void on_host_func(void *argument) noexcept nogil:
    callback_enter()
    guard_run(job_enter, argument)
    callback_leave()


cdef aclrtHostFunc HOST_FUNC = on_host_func
cdef aclrtCallback CALLBACK = on_host_func


class Reporter(threading.Thread):
    """A thread that runs the callbacks of a stream by `aclrtProcessReport`, until `stopping`."""

    def __init__(self):
        super().__init__(name="acl callbacks", daemon=True)
        self.stopping = False
        self.started_up = threading.Event()
        self.start()
        self.started_up.wait()

    def run(self):
        self.started_up.set()
        while not self.stopping:
            with nogil:
                aclrtProcessReport(100)


@cython.final
@cython.no_gc_clear                             # the stream that uses it may be deleted later
cdef class Callbacks:
    """The callbacks of one stream."""

    def __cinit__(self):
        self.errors = []
        self.waiting = set()

    cdef int launch(
        self, aclrtStream stream, Progress progress, object function, tuple arguments
    ) except -1:
        cdef size_t number = next(numbers)
        cdef aclError status
        cdef bint host_functions = libacl_has("aclrtLaunchHostFunc")
        if not host_functions:
            reporter_start(self, stream)
        jobs[number] = (self, function, arguments)
        self.waiting.add(number)
        self.progress = progress
        with nogil:
            if host_functions:
                status = aclrtLaunchHostFunc(stream, HOST_FUNC, <void *> number)
            else:
                status = aclrtLaunchCallback(CALLBACK, <void *> number, ACL_CALLBACK_BLOCK, stream)
        if status != 0:
            self.waiting.discard(number)
            jobs.pop(number, None)
        return check(status, "aclrtLaunchHostFunc" if host_functions else "aclrtLaunchCallback")

    cdef int settle(self) except -1:
        """Raise the oldest exception that no `synchronize` has raised yet, if there is one."""
        if not self.errors:
            return 0
        error = self.errors.pop(0)
        if not self.errors:
            untold_forget(self)
            if not self.waiting:
                self.progress = None
        raise error

    cdef int end(self, aclrtStream stream) except -1:
        """Stop the reports before the stream is destroyed, and forget jobs that did not run."""
        cdef uint64_t thread
        if self.reporter is not None:
            thread = self.reporter.ident
            self.reporter.stopping = True
            self.reporter.join()
            self.reporter = None
            with nogil:
                aclrtUnSubscribeReport(thread, stream)
        while self.waiting:
            jobs.pop(self.waiting.pop(), None)
        untold_forget(self)
        self.progress = None
        return 0


# Held while a stream's reporter is started, because several threads may launch at the same time.
reporters = threading.Lock()


cdef int reporter_start(Callbacks owner, aclrtStream stream) except -1:
    cdef aclError status
    cdef uint64_t thread
    with reporters:
        if owner.reporter is not None:
            return 0
        reporter = Reporter()
        thread = reporter.ident
        with nogil:
            status = aclrtSubscribeReport(thread, stream)
        if status != 0:
            reporter.stopping = True
            reporter.join()
        check(status, "aclrtSubscribeReport")
        owner.reporter = reporter
    return 0


cdef void on_fork() noexcept nogil:
    guard_reset()


def leave():
    """Called at interpreter exit: from now on, no callback enters Python."""
    with nogil:
        guard_close(EXIT_LIMIT_MS)


pthread_atfork(NULL, NULL, on_fork)
atexit.register(leave)
