"""Converts dicts and lists to C structs and arrays, and back: see `_layout.pyx`."""

from libc.stdint cimport int64_t


cdef bytes pack_struct(
    object given, const char *layout, size_t size, const char *what, int argument)
cdef bytes pack_structs(
    object given, const char *layout, size_t size, const char *what, int argument)
cdef dict unpack_struct(const void *value, const char *layout)
cdef list unpack_structs(const void *values, size_t count, size_t size, const char *layout)

cdef bytes pack(object given, char kind, const char *what, int argument)
cdef bytes pack_pids(object given, const char *what, int argument)
cdef bytes pack_array(object given, char kind, const char *what, int argument)
cdef tuple pack_lists(object given, const char *what, int argument)
cdef bytes pack_pairs(object given, const char *what, int argument)
cdef list unpack(const void *values, size_t count, char kind)
cdef int same(size_t one, size_t other, const char *what) except -1

cdef bytes room(size_t size)
cdef bytes room_for(size_t count, size_t size, const char *what)
cdef bytes bounded(int64_t size, const char *what, int64_t most=*)
cdef void *at(bytes packed) noexcept
