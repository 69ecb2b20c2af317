"""Tables by the handle of a stream, whose entries end with the stream.  See `_ended.pyx`."""

from libc.stdint cimport uint64_t

from acl.bind.generated._libacl cimport aclrtStream

# Before an entry of a table is added or looked up: drop the entries of streams that have ended.
cdef int ended_drop() except -1
# Call `ended_drop`.  Then watch a stream, so that its end drops the entries that are added now.
# Return the number of the watch; 0: the end of the stream is not reported (see `ends_watch`).
cdef uint64_t stream_watch(aclrtStream stream) except? 0
