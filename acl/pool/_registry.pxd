"""What ACL is told: an arena and four C functions for a stream.  See `_registry.pyx`."""

from acl.core.types cimport Arena
from acl.bind.generated._libacl cimport aclError, aclrtStream

# The handle of a Stream or of a number; None is the default stream, which has none.
cdef aclrtStream handle_of(object stream) except? NULL

# The same; raises for a Stream of another device.
cdef aclrtStream handle_on(object stream, int device) except? NULL

# Raises for a handle that is no stream's; whether the stream is well is not asked.
cdef int stream_exists(aclrtStream raw) except -1

# Before a registration: raises for a handle that is no stream's, and for a stream of another pool.
cdef int register_check(object pool, aclrtStream raw, bint replace) except -1

cdef aclError arena_register(Arena *arena, aclrtStream stream) noexcept nogil
cdef aclError arena_unregister(Arena *arena, aclrtStream stream) noexcept nogil
