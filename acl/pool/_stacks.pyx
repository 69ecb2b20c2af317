"""Python and C stacks.  A process keeps each stack once and gives it a number; 0 means no stack.

The allocator's callbacks cannot read the Python stack.  So the stack is recorded before a call into
C, where the GIL is held anyway, and its number is stored in the thread.  Recording a stack takes
about a microsecond; its text is made when it is read.  The table only grows, up to a limit.

Thread rule: call all with the GIL.
"""

import os
import sys

from libc.stdint cimport uint32_t

from acl.core._record cimport record_call, record_native

cdef extern from "Python.h":
    ctypedef struct PyCodeObject:
        pass
    int PyCode_Addr2Line(PyCodeObject *code, int offset)

cdef extern from "<dlfcn.h>" nogil:
    ctypedef struct Dl_info:
        const char *dli_fname
        void *dli_fbase
        const char *dli_sname
        void *dli_saddr
    int dladdr(const void *address, Dl_info *info)

__all__ = ["native_frames", "python_frames"]

cdef enum:
    DEPTH = 64                  # most frames that are kept of a Python stack: the innermost ones
    MOST = 65536                # most different Python stacks
    NATIVE_DEPTH = 32  # most frames of a C stack; must equal STACK_DEPTH of `core/record.h`

#: The folder of this package.  Its own frames are of no use to a user.
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

cdef dict numbers = {}          # stack, as a tuple of code ids and offsets -> its number
cdef list stacks = [()]         # by number: a tuple of (code, offset) pairs, the innermost first
cdef dict codes = {}            # id -> code; kept alive so that no other code gets the same id


cdef uint32_t stack_here() except? 0xFFFFFFFF:
    """Return the number of the running thread's Python stack; 0 if the table is full."""
    cdef list pairs = []
    cdef list key = []
    frame = sys._getframe()
    while frame is not None and len(pairs) < DEPTH:
        code = frame.f_code
        offset = frame.f_lasti
        pairs.append((code, offset))
        key.append(id(code))
        key.append(offset)
        frame = frame.f_back
    identity = tuple(key)
    number = numbers.get(identity)
    if number is not None:
        return number
    if len(stacks) >= MOST:
        return 0
    for code, _ in pairs:
        codes[id(code)] = code
    stack = tuple(pairs)        # the garbage collector may run here, and its code may add stacks
    number = len(stacks)
    stacks.append(stack)
    numbers[identity] = number
    return <uint32_t> number                            # safe cast: about MOST at most


cdef bint stack_enter(Pool *pool) except -1:
    if pool is NULL or pool.notes.python == 0:
        return False
    record_call(stack_here())
    return True


cdef void stack_leave() noexcept:
    record_call(0)


cdef int line_of(object code, int offset) except -2:
    return PyCode_Addr2Line(<PyCodeObject *> code, offset)


def python_frames(number):
    """Return the frames of a Python stack as (file, line, function), the innermost first.

    Frames of this package are left out, so that the user's line is the first.  They are kept if
    there are no others.
    """
    if not 0 <= number < len(stacks):
        return []
    found = [(code.co_filename, line_of(code, offset),
              getattr(code, "co_qualname", code.co_name)) for code, offset in stacks[number]]
    return [frame for frame in found if not frame[0].startswith(OURS)] or found


def native_frames(number):
    """Return the frames of a C stack as (library, 0, function), the innermost first.

    The innermost frames are left out as long as they are in the allocator itself.
    """
    cdef void *frames[NATIVE_DEPTH]
    cdef Dl_info info
    cdef uint32_t i, count
    cdef uint32_t wanted = number
    with nogil:
        count = record_native(wanted, frames)
    found = []
    for i in range(count):
        if not dladdr(<char *> frames[i] - 1, &info):   # -1: an address in the call
            found.append(("", 0, hex(<size_t> frames[i])))
            continue
        library = (<bytes> info.dli_fname).decode(errors="replace") if info.dli_fname else ""
        if not found and ("/_record." in library or "/_core." in library):
            continue
        name = hex(<size_t> (<char *> frames[i] - <char *> info.dli_fbase))
        if info.dli_sname is not NULL:
            name = (<bytes> info.dli_sname).decode(errors="replace")
        found.append((library, 0, name))
    return found
