"""The progress of a stream, and the outcome of each work on it: see `_work.pyx`."""

cimport cython
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int32_t, int64_t, uint64_t

from acl.runtime._later cimport End
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream


@cython.final
cdef class Span:
    cdef object error               # error of its works from `first` on; None while unknown
    cdef uint64_t first             # number of the first work that failed; valid with `error`
    cdef bint aborted               # they failed because the stream was aborted


@cython.final
cdef class Progress:
    cdef aclrtStream raw            # NULL for a default stream
    cdef aclrtContext context       # the stream's context; NULL if unknown
    cdef int device                 # ordinal of its device; -1 if unknown
    cdef int made                   # fork_count when it was made
    cdef readonly bint ended        # the stream or its context is destroyed
    cdef uint64_t queued            # number of the last work
    cdef uint64_t done              # works up to this number are no longer on the device
    cdef list entering              # numbers of works that threads are queueing now
    cdef Span span                  # the span of works that are queued from now on
    cdef object untold              # an error that a wait found and that was not raised yet
    cdef object callbacks           # its Callbacks; None until the first launch
    cdef public object attendant    # its Attendant (`_await`); None until a coroutine waits
    cdef PyThread_type_lock turn    # held by the one wait: ACL reports an error to one wait only
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
    cdef uint64_t number            # its number on the stream; 0 if it was never queued
    cdef readonly str what          # for messages, such as "a run of model 'resnet'"

    cdef object failure(self)
    cdef bint is_failed(self) noexcept
    cdef int told(self) except -1
    cdef bint over(self) noexcept


# until_of: return the time of the monotonic clock, in milliseconds, at which a wait of `timeout_ms`
# ends; -1 for never.  left_of: return the milliseconds until then, at least 1; -1 for no limit.
cdef int64_t until_of(object timeout_ms) except? -2
cdef int64_t left_of(int64_t until) except? -2

# Return the progress of a stream, which all Python objects of the same stream share.
cdef Progress progress_of(aclrtStream raw, aclrtContext context, int device)
# Return the progress of a new stream; that of an older stream with the same handle is forgotten.
cdef Progress progress_new(aclrtStream raw, aclrtContext context, int device)

# Return a new work before it is queued; call `work_queued` afterwards, also if queueing failed.
cdef Work work_begin(Progress progress, str what)
cdef int work_queued(Work work) except -1
# Return a work that is over when all work that is queued on the stream now is over.
cdef Work work_mark(Progress progress)

# Functions of the works on some memory: None, a Work, or a tuple with the last Work of each stream.
cdef object works_add(object works, Work work)
cdef tuple works_list(object works)
cdef int works_settle(object works, int64_t until=*) except -1
# Return the works that may have failed, and `work`, which writes part of the memory.
cdef object works_written(object works, Work work)
# Raise the error of the first Work that failed.
cdef int works_check(object works) except -1


# The clean-up of an object that some works may still use; it is ready once they are over.
cdef class WorkEnd(End):
    cdef object works
