"""How far a stream has come, and what became of each piece of work on it: see `_work.pyx`."""

cimport cython
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int32_t, int64_t, uint64_t

from acl.runtime._later cimport End
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream


@cython.final
cdef class Span:
    cdef object error               # what its works failed with from `first` on; None while unknown
    cdef uint64_t first
    cdef bint aborted


@cython.final
cdef class Progress:
    cdef aclrtStream raw            # NULL for a default stream
    cdef aclrtContext context       # where the stream is; NULL if unknown
    cdef int device                 # its ordinal; -1 if unknown
    cdef int made                   # fork_count at its making
    cdef readonly bint ended        # the stream is destroyed, or its context is
    cdef uint64_t queued            # number of the last work
    cdef uint64_t done              # all works up to here are no longer on the device
    cdef list entering              # numbers of works that are being queued at this moment
    cdef Span span                  # of the works that are queued from here on
    cdef object untold              # an error that a wait found and told nobody
    cdef object callbacks           # None until the first launch
    cdef public object attendant    # threads that wait for its works (`_await`); None until then
    cdef PyThread_type_lock turn    # one wait at a time: the runtime tells an error to one of them
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
    cdef uint64_t number            # its place on the stream; 0: it was never queued
    cdef readonly str what          # for messages, such as "a run of model 'resnet'"

    cdef object failure(self)
    cdef bint is_failed(self) noexcept
    cdef int told(self) except -1
    cdef bint over(self) noexcept


# When a wait of so many milliseconds ends, in those of the monotonic clock; -1 for never.  And how
# many of them are left: -1, or at least 1.
cdef int64_t until_of(object timeout_ms) except? -2
cdef int64_t left_of(int64_t until) except? -2

# The progress of a stream: one object for all that stand for the same stream.
cdef Progress progress_of(aclrtStream raw, aclrtContext context, int device)
# A stream that was just made; what is known of an older one with its handle is forgotten.
cdef Progress progress_new(aclrtStream raw, aclrtContext context, int device)

# A new piece of work, before it is queued; then `work_queued`, whether that succeeded or not.
cdef Work work_begin(Progress progress, str what)
cdef int work_queued(Work work) except -1
# A work that is over when all that was queued before it is: the end of the stream at this moment.
cdef Work work_mark(Progress progress)

# Works on some memory: None, a Work, or a tuple with the last one of each stream.
cdef object works_add(object works, Work work)
cdef tuple works_list(object works)
cdef int works_settle(object works, int64_t until=*) except -1
# Those of them that may have failed, after a Work wrote part of the memory.
cdef object works_written(object works, Work work)
# Raises for a Work that failed.
cdef int works_check(object works) except -1


# What is left of an object that some works may still use: ready once they are over.
cdef class WorkEnd(End):
    cdef object works
