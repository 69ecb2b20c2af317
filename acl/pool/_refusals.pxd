"""Log messages of a pool that could not grow, trim or close as asked: see `_refusals.pyx`."""

from acl.core.types cimport Pool

# Give free memory back until `target` bytes are reserved, and return the bytes given back.  Logs a
# warning if a wait for a stream was given up.
cdef size_t trim_told(Pool *pool, str name, size_t target, bint wait,
                      bint empty) except? <size_t> -1
# Give all free memory of a closed pool back.  Logs a warning if live blocks keep some of it.
cdef int close_told(Pool *pool, str name) except -1

# Return the module `acl.inside._books`, which the first Pool imported: error paths import nothing.
cdef object books()
