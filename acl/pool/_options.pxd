"""The options of a pool, for `cimport`: see `_options.pyx`."""

from acl.core._bins cimport size_possible
from acl.core.types cimport PoolOptions
from acl.bind.generated._libacl cimport aclrtMemAttr
from acl.runtime._stream cimport Stream

cdef extern from "Python.h":
    size_t PyLong_AsSize_t(object number) except? <size_t> -1

# Fill in `options` from the named options of a `Pool`.  Raises if one is invalid.  The device must
# be current.
cdef int options_fill(PoolOptions *options, int device, dict given) except -1

# Return the bytes to allocate, for a size that `wanted_bytes` does not convert itself, such as a
# text.  Raise if it is not a size, or is 2**46 bytes or more.
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


# Raise if a Stream was made on another device than the pool's.
cdef int stream_on(Stream stream, int device) except -1

# Return the bytes that the chip in use needs behind an input or output.
cdef size_t soc_padding() noexcept nogil
# Return the bytes of addresses to reserve for one stream if the option `virtual` is not given.
cdef size_t virtual_default(size_t limit) noexcept nogil
cdef size_t device_memory() noexcept nogil      # bytes of the current device's memory; 0: unknown
cdef aclrtMemAttr memory_kind() noexcept nogil  # the kind of memory that the current device has
