"""Log messages of a pool that could not grow, trim or close as asked: see `_refusals.pyx`."""

from acl.core.types cimport Pool

# Give free memory back until `target` bytes are reserved.  Return the bytes given back.  Log a
# warning if a wait for a stream timed out.
cdef size_t trim_told(Pool *pool, str name, size_t target, bint wait,
                      bint empty) except? <size_t> -1
# Give all free memory of a closed pool back.  Log a warning if live blocks keep some of it.
cdef int close_told(Pool *pool, str name) except -1

# Return the module `acl.inside._books`.  The first Pool has imported it, as error paths must not
# import.
cdef object books()
