"""The loops of the benchmarks, cimported by allocators: `_peers`, and `bench/policies`."""

from libc.stdint cimport uint32_t, uint64_t


ctypedef void *(*AllocFunc)(void *allocator, size_t size) noexcept nogil
ctypedef void (*FreeFunc)(void *allocator, void *block) noexcept nogil
ctypedef void *(*AddressFunc)(void *block) noexcept nogil


cdef extern from "tools/bench/loops.h" nogil:
    struct Allocator:
        AllocFunc alloc
        FreeFunc free
        AddressFunc address
        void *state

    struct Event:
        uint64_t size
        uint32_t slot
        uint32_t stream


cdef class Subject:
    cdef Allocator allocator
    cdef readonly str name
    cdef readonly object keep   # object that owns the functions, kept as long as the pointers
