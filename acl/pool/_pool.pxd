"""The Python class `Pool`, for `cimport`: see `_pool.pyx`."""

cimport cython

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.runtime._buffer cimport Buffer
from acl.core.types cimport Arena, Block, Pool as CorePool
from acl.bind.generated._libacl cimport aclrtContext, aclrtStream
from acl.runtime._stream cimport Stream


@cython.final
cdef class Pool:
    cdef CorePool *core             # NULL until `__init__` has made it
    cdef Arena *recent              # the arena that was used last, which is tried first; NULL: none
    cdef size_t padding             # bytes that the chip needs behind a user's buffer
    cdef int made                   # `fork_count` when the pool was made
    cdef readonly int device        # ordinal of the device
    cdef readonly str name          # its name in reports
    cdef readonly object number     # number of the pool in this process, counted from 0
    cdef readonly bint guarded      # streams are registered with the callbacks of `core/_guard`
    cdef readonly uint32_t guard_every      # N: one block in N is guarded; 0: none
    cdef uint32_t unloads           # number of models that are being unloaded
    cdef bint is_closed
    cdef bint segments_told         # it was logged that the pool works in segments
    cdef dict tags                  # the tag number of each of the first 62 names
    cdef list tag_names  # the name of each tag number; [0] is "", for blocks without a tag
    cdef readonly object budgeted   # a frozenset of the names of tags that have a budget
    cdef object oom_hook        # the hook of `on_oom`, or None
    cdef object failed_runs         # None, or a frozenset of models whose last run found no memory
    cdef object decay               # the `Decay` with the background thread, or None
    cdef object __weakref__

    cdef Arena *arena_of(self, aclrtStream stream, aclrtContext known=*) except NULL
    cdef int enlist(self, object name) except -1
    cdef int tagging_begin(self) except -1
    cdef int open_check(self) except -1
    cdef uint16_t tag_index(self, object tag, str argument=*) except? 0xFFFF
    cdef bint oom_tell(self, object report) except -1
    cdef Buffer take(self, size_t size, Stream stream, object tag)
    cdef int set_modes(self, uint32_t set, uint32_t clear) except -1

# Allocate a block, with driver calls if needed.  If there is no memory, call the hook of `on_oom`
# and try once more; then raise.
cdef Block *take_slow(Pool pool, Arena *arena, aclrtStream raw, size_t bytes,
                      uint16_t tag) except NULL
# Return a Pool for a core that C code has made.  From then on the Pool owns the core.
cdef Pool pool_adopt(CorePool *core)
