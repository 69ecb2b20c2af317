"""Whether memory works at two addresses, for `cimport`: see `_aliases.pyx`."""

# Return False if the current device, whose number is `device`, was seen to show other bytes.
cdef bint aliases_work(int device) except -1
