"""The benchmarks' loops, for tools with allocators of their own (`_peers`, `_policies`)."""

from libc.stdint cimport uint32_t, uint64_t


ctypedef void *(*AllocFunc)(void *allocator, size_t size) noexcept nogil
ctypedef void (*FreeFunc)(void *allocator, void *block) noexcept nogil
ctypedef void *(*AddressFunc)(void *block) noexcept nogil


cdef struct Allocator:
    AllocFunc alloc         # NULL result: no memory
    FreeFunc free
    AddressFunc address     # read once for every block, as ACL does
    void *state             # first argument of alloc and free


cdef struct Event:
    uint64_t size           # bytes asked for; 0: free the block in the slot
    uint32_t slot
    uint32_t stream         # index of the allocator that serves it


cdef class Subject:
    cdef Allocator allocator
    cdef readonly str name
    cdef readonly object keep   # what has to live as long as the function pointers
