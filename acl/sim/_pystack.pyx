"""Give the simulator a function that reads the Python stack, for the order checker's reports.

Thread rule: the function is called from any thread and never takes the GIL (see pystack.h).
"""

from libc.stdint cimport uintptr_t

cdef extern from "sim/races/pystack.h" nogil:
    size_t pystack_write(char *text, size_t size)

__all__ = ["stack_function"]


def stack_function():
    """Return the address of the function, for `acl_sim_races_python`."""
    return <uintptr_t> &pystack_write
