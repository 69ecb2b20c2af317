"""What a pool may be told, for `cimport`: see `_options.pyx`."""

from acl.core._bins cimport size_possible
from acl.core.types cimport PoolOptions
from acl.bind.generated._libacl cimport aclrtMemAttr
from acl.runtime._stream cimport Stream

cdef extern from "Python.h":
    size_t PyLong_AsSize_t(object number) except? <size_t> -1

# The options of a `Pool`, by name; raises for what makes no sense.  The device must be current.
cdef int options_fill(PoolOptions *options, int device, dict given) except -1

# Bytes to allocate, of a text or of a number that may be out of bounds.
cdef size_t odd_bytes(object size) except? <size_t> -1


cdef inline size_t wanted_bytes(object size) except? <size_t> -1:
    """Return the bytes to allocate."""
    cdef size_t wanted
    if type(size) is int:
        try:
            wanted = PyLong_AsSize_t(size)
        except OverflowError:
            return odd_bytes(size)
        if size_possible(wanted):
            return wanted
    return odd_bytes(size)


# Refuse a stream of ours that was made on another device than the pool.
cdef int stream_on(Stream stream, int device) except -1

# Bytes behind a user's input or output on the chip in use; addresses that a range reserves.
cdef size_t soc_padding() noexcept nogil
cdef size_t virtual_default(size_t limit) noexcept nogil
cdef size_t device_memory() noexcept nogil      # all bytes that the current device has; 0: unknown
cdef aclrtMemAttr memory_kind() noexcept nogil          # the kind that the current device has
