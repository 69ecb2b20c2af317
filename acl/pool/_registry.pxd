"""Registration of pools with ACL: for each stream an arena and four C functions.

See `_registry.pyx`.
"""

from acl.core.types cimport Arena
from acl.bind.generated._libacl cimport aclError, aclrtStream

# Return the handle of a stream, given as a Stream or a number; NULL for None, the default stream.
cdef aclrtStream handle_of(object stream) except? NULL

# Return the handle as `handle_of` does; raise for a Stream of another device.
cdef aclrtStream handle_on(object stream, int device) except? NULL

# Raise if the handle is not that of a stream.  Errors of the stream's work are ignored.
cdef int stream_exists(aclrtStream raw) except -1

# Called before a registration: raise for the default stream, for a handle that is not that of a
# stream and, without `replace`, for a stream that another pool serves.
cdef int register_check(object pool, aclrtStream raw, bint replace) except -1

cdef aclError arena_register(Arena *arena, aclrtStream stream) noexcept nogil
cdef aclError arena_unregister(Arena *arena, aclrtStream stream) noexcept nogil
