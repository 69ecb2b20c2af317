"""What the log says of a pool that could not do what it was asked: see `_refusals.pyx`."""

from acl.core.types cimport Pool

# Gives free memory back, but for `target` bytes; the log says if a wait for a stream was given up.
cdef size_t trim_told(Pool *pool, str name, size_t target, bint wait,
                      bint empty) except? <size_t> -1
# Gives all free memory of a closed pool back; the log says what stays.
cdef int close_told(Pool *pool, str name) except -1

# The module `acl.inside._books`, which Python's first Pool has loaded: error paths import nothing.
cdef object books()
