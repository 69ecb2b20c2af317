"""The progress of a stream, and the outcome of each work on it: see `_work.pyx`."""

cimport cython
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int32_t, int64_t, uint64_t

from acl.runtime._later cimport End
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream


@cython.final
cdef class Span:
    cdef object error               # error of the span's failed works; None while none has failed
    cdef uint64_t first             # number of the first failed work; valid if `error` is set
    cdef bint aborted               # True if the works failed because the stream was aborted


# A work that a thread is queueing at this moment, in a ring with the other ones of its stream.
cdef struct Entry:
    uint64_t number
    Entry *before
    Entry *after                    # NULL if in no ring


@cython.final
cdef class Progress:
    cdef aclrtStream raw            # NULL for a default stream
    cdef aclrtContext context       # the stream's context; NULL if unknown
    cdef int device                 # number of the stream's device; -1 if unknown
    cdef int made                   # fork_count when the object was made
    cdef uint64_t watch             # number of the watch for the stream's end (`_ends`); 0: none
    cdef readonly bint ended        # True if the stream or its context is or will be destroyed
    cdef uint64_t queued           # number of the work that was queued last; the first has number 1
    cdef uint64_t done              # the device has finished the works up to this number
    cdef Entry entering             # ring of the works that threads are queueing; oldest is `after`
    cdef Span span                  # the span of the works that will be queued next
    cdef object untold             # error that a wait has found and no call has raised yet, or None
    cdef object callbacks           # the stream's Callbacks; None until the first launch
    cdef public object attendant  # the stream's Attendant (`_await`); None before a coroutine waits
    cdef PyThread_type_lock turn    # lock held during a wait: ACL reports an error to one wait only
    cdef object __weakref__

    cdef object wait(self, int64_t limit_ms, uint64_t number=*)
    cdef int settle(self, int64_t until=*) except -1
    cdef bint idle(self) noexcept
    cdef int fail(self, object error, bint aborted) except -1
    cdef int end(self) except -1


@cython.final
cdef class Work:
    cdef readonly Progress progress
    cdef Span span
    cdef uint64_t number            # the work's number on the stream; 0 if it was never queued
    cdef Entry entry                # in the ring of `progress` from `work_begin` to `work_queued`
    cdef readonly str what          # the work's name in messages, such as "a run of model 'resnet'"

    cdef object failure(self)
    cdef bint is_failed(self) noexcept
    cdef int told(self) except -1
    cdef bint over(self) noexcept


# Return True if ACL lacked a resource for a wait or a query: it says nothing about the work.
cdef bint says_nothing(aclError status) noexcept
# Return the end of a wait that may take `timeout_ms`: milliseconds of the monotonic clock, or -1 if
# the wait has no limit.
cdef int64_t until_of(object timeout_ms) except? -2
# Return the milliseconds that are left until such an end, at least 1; -1 for no limit.
cdef int64_t left_of(int64_t until) except? -2

# The key of a stream in tables: its handle, or a text for the default stream of a context.
cdef object key_of(aclrtStream raw, aclrtContext context)
# Return the Progress of a stream.  All Python objects of one stream share it.
cdef Progress progress_of(aclrtStream raw, aclrtContext context, int device)
# Return a Progress for a new stream.  An older stream that had this handle is forgotten.
cdef Progress progress_new(aclrtStream raw, aclrtContext context, int device)

# Return a new Work; the caller then queues the work, and calls `work_queued` even if that failed.
# Until then a wait does not mark the stream's newer works as done.
cdef Work work_begin(Progress progress, str what)
cdef void work_queued(Work work) noexcept
# Return a Work that is over when all work that was queued on the stream before is over.
cdef Work work_mark(Progress progress)

# Functions for the works that use some memory.  `works` is None, a Work, or a tuple with the last
# Work of each stream.
cdef object works_add(object works, Work work)
cdef tuple works_list(object works)
cdef int works_settle(object works, int64_t until=*) except -1
# Return `work`, together with the works of `works` that failed or may still fail.
cdef object works_written(object works, Work work)
# Raise the error of the first failed Work, if there is one.
cdef int works_check(object works) except -1


# The clean-up of an object that works may still use; it is ready when the works are over.
cdef class WorkEnd(End):
    cdef object works
