"""Watches that tell Python code which streams have ended.  See `_ends.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.bind.generated._libacl cimport aclrtStream

# Asks ACL, once in a process, to report the ends of streams.
cdef void ends_listen() noexcept nogil
# Called with each stream that is about to be destroyed.  Set when `_arena` is imported.
cdef void (*on_end)(aclrtStream stream) noexcept nogil

# Watches a stream until it ends, and returns the number of the watch.  Returns 0 if the stream is a
# default stream, if ACL cannot report ends, or if there is no host memory.
cdef uint64_t ends_watch(aclrtStream stream) noexcept nogil
# Returns False if the watched stream with this number has ended.  A later stream with the same
# handle has another number.  Returns True if `number` is 0, as then no watch was made.
cdef bint ends_alive(aclrtStream stream, uint64_t number) noexcept nogil
# Sets whether the end of a watched stream unregisters its allocator from ACL.
cdef void ends_serve(aclrtStream stream, bint serves) noexcept nogil

# Moves up to `most` watched streams that have ended to `found`.  Returns their number.
cdef uint32_t ends_take(aclrtStream *found, uint32_t most) noexcept nogil
# True if `ends_take` would find a stream.
cdef bint ends_noted() noexcept nogil
