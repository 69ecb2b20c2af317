"""A test if a device supports aliases, for `cimport`: see `_aliases.pyx`."""

# Return False if a frame that was mapped twice on the current device, whose number is `device`,
# showed different bytes.  True also if that could not be tested.
cdef bint aliases_work(int device) except -1
