"""Give free pages of a pool to the driver.  See `_trim.pyx`."""

from acl.core.types cimport Pool

# Gives free pages to the driver until only `to` bytes are reserved, and returns the bytes given.
# Takes the pages of idle streams; with `wait`, it waits for the other streams and takes theirs too.
# Arenas that do not donate keep their pages, unless `drained` says that all work that uses freed
# blocks has been launched.
cdef size_t pool_trim(Pool *pool, size_t to, bint wait, bint drained) noexcept nogil
# Runs a decay step: gives pages of idle streams to the driver that no allocation has needed since
# the last step.  Returns the bytes given.
cdef size_t pool_decay(Pool *pool) noexcept nogil
cdef void pool_reset_peaks(Pool *pool) noexcept nogil
