"""Give free pages of a pool to the driver.  See `_trim.pyx`."""

from acl.core.types cimport Pool

# Gives free pages to the driver until only `to` bytes are reserved.  Returns the bytes given.
# Takes the pages of idle streams; with `wait`, waits for the other streams and takes their pages
# too.  Arenas that do not donate keep their pages, unless `drained` says that all work that uses
# freed blocks has been launched.
cdef size_t pool_trim(Pool *pool, size_t to, bint wait, bint drained) noexcept nogil
# Runs a decay step: gives to the driver all spare frames and, if the option `steal` is on, those
# pages of idle streams that no allocation has needed since the last step.  Returns the bytes given.
cdef size_t pool_decay(Pool *pool) noexcept nogil
cdef void pool_reset_peaks(Pool *pool) noexcept nogil
