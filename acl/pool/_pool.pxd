"""The pool, for `cimport`."""

cimport cython

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.runtime._buffer cimport Buffer
from acl.core.types cimport Arena, Block, Pool as CorePool
from acl.bind.generated._libacl cimport aclrtContext, aclrtStream
from acl.runtime._stream cimport Stream


@cython.final
cdef class Pool:
    cdef CorePool *core             # NULL once closed and given back
    cdef Arena *recent              # streams come again and again
    cdef size_t padding             # bytes that the SoC wants behind a buffer of the user's
    cdef int made                   # fork_count at its making
    cdef readonly int device        # ordinal
    cdef readonly str name          # what reports call it
    cdef readonly object number     # pools count from 0 in a process
    cdef readonly bint guarded      # streams are registered with the callbacks of `_guard`
    cdef readonly uint32_t guard_every      # which look at one block in so many; 0: at none
    cdef uint32_t unloads           # models that are being unloaded
    cdef bint is_closed
    cdef bint segments_told         # that it works in segments is in the log
    cdef dict tags                  # name -> index
    cdef list tag_names
    cdef readonly object budgeted   # frozenset of the tags that have a budget
    cdef object oom_hook
    cdef object failed_runs         # None, or a frozenset: models whose last run found no memory
    cdef object decay               # the thread of the background decay, or None
    cdef object __weakref__

    cdef Arena *arena_of(self, aclrtStream stream, aclrtContext known=*) except NULL
    cdef int enlist(self, object name) except -1
    cdef int tagging_begin(self) except -1
    cdef int open_check(self) except -1
    cdef uint16_t tag_index(self, object tag, str argument=*) except? 0xFFFF
    cdef bint oom_tell(self, object report) except -1
    cdef Buffer take(self, size_t size, Stream stream, object tag)
    cdef int set_modes(self, uint32_t set, uint32_t clear) except -1

# With driver calls, if it must; raises where there is no memory, after the hook.
cdef Block *take_slow(Pool pool, Arena *arena, aclrtStream raw, size_t bytes,
                      uint16_t tag) except NULL
# A Pool over a core that C code has made; the core is the Pool's from then on.
cdef Pool pool_adopt(CorePool *core)
