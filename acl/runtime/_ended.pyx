"""Tables by the handle of a stream, whose entries end with the stream.

Other code may destroy a stream that Python has registered, or launched callbacks on.  `core/_ends`
notes the end, and the next call into the package drops the stream's entries here, with the GIL.

A handle may be used again for a new stream.  So entries are removed in one step, in which no other
thread gets the GIL, and always before an entry is added or looked up (`ended_drop`).  Then the
entries that are found under a handle are those of the stream that has the handle now.
"""

cimport cython
from cpython.dict cimport PyDict_DelItem
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t

from acl.core._ends cimport ends_noted, ends_take, ends_watch
from acl.runtime._later cimport End, end_later, in_callback

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object table, object key) except? NULL

__all__ = ["entries_end", "watch_table"]

cdef enum:
    AT_ONCE = 64                # handles taken from the core in one call

cdef list tables = []           # dicts by handle
cdef list droppers = []         # for each table a function, called with a list of dropped entries


def watch_table(dict table, dropper=None):
    """Let the entries of a dict end with the streams whose handles are their keys.

    `dropper` is called with a list of the entries that were removed.
    """
    tables.append(table)
    droppers.append(dropper)


def entries_end():
    """Drop the entries of all streams that have ended."""
    ended_drop()


@cython.final
cdef class EntriesEnd(End):
    """Entries that were removed, and that `finish` passes to the droppers.

    In a callback this is left to a later call, as the deletion of an entry may call the driver.
    """

    cdef list dropped           # for each table a list of its entries

    cdef int finish(self) except -1:
        dropped, self.dropped = self.dropped, None
        for dropper, entries in zip(droppers, dropped, strict=True):
            if dropper is not None and entries:
                dropper(entries)
        return 0


cdef int ended_drop() except -1:
    cdef EntriesEnd end
    cdef list dropped
    if not ends_noted():
        return 0
    dropped = [[] for _ in tables]
    end = EntriesEnd.__new__(EntriesEnd)
    end.dropped = dropped
    entries_take(dropped)
    if in_callback():
        end_later(end)
    else:
        end.finish()
    return 0


cdef int entries_take(list dropped) except -1:
    """Move the entries of ended streams to the lists in `dropped`, one for each table.

    No other thread gets the GIL meanwhile: only dicts with int keys, and lists, are used, which run
    no Python code and collect no garbage.
    """
    cdef aclrtStream[AT_ONCE] found
    cdef uint32_t count, i
    cdef Py_ssize_t which
    cdef object handle
    while True:
        count = ends_take(found, AT_ONCE)
        for i in range(count):
            handle = <size_t> found[i]
            for which in range(len(dropped)):
                table_take(<dict> tables[which], handle, <list> dropped[which])
        if count < AT_ONCE:
            return 0


cdef int table_take(dict table, object handle, list entries) except -1:
    cdef PyObject *entry = PyDict_GetItemWithError(table, handle)
    if entry is not NULL:
        entries.append(<object> entry)
        PyDict_DelItem(table, handle)
    return 0


cdef uint64_t stream_watch(aclrtStream stream) except? 0:
    ended_drop()
    return ends_watch(stream)
