"""The history of guarded blocks, and the errors that were found: from C to Python's log.

Allocations and frees of guarded blocks are noted in one ring, with the thread's Python and C
stacks.  An error is stored with the notes of the block's last allocation and free.  The callbacks
that find errors hold no GIL and do not wait.  So the main thread logs the error (logger
``acl.guard``) as soon as it runs Python code again.

Thread rule: `happened` and `found` may be called from any thread, without GIL and locks; all other
functions are called with the GIL.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from collections import deque

from acl.runtime._device cimport leaving
from acl.bind.generated._libacl cimport aclrtStream
from acl.core.types cimport Arena, Block
from acl.core cimport _guard
from acl.core._guard cimport FOUND_FOREIGN, FOUNDS, Found
from acl.core._lock cimport SpinLock, spin_enter, spin_leave
from acl.core._record cimport record_stacks_here

from acl.bind import _log
from acl.pool._stacks import native_frames, python_frames

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from "Python.h" nogil:
    int Py_AddPendingCall(int (*function)(void *) noexcept, void *argument)
    int Py_IsInitialized()

__all__ = ["guard_findings", "reports"]

cdef enum:
    HISTORY = 16384             # number of notes in the ring
    WAITING = 64                # most errors that Python has not read yet
    KEPT = 256                  # number of errors that `guard_findings` returns at most

cdef struct Note:               # one allocation or one free of a guarded block
    uint64_t number             # number of the note, from 1; 0: the note is empty
    Arena *arena
    Block *block
    char *addr
    size_t size
    uint32_t python             # number of the thread's Python stack (`_stacks`)
    uint32_t native             # number of the thread's C stack
    bint freed                  # true: a free; false: an allocation

cdef struct Error:
    uint32_t kind
    int32_t device
    aclrtStream stream
    Arena *arena
    Block *block
    Note allocated              # the block's last allocation; number 0: not in the ring any more
    Note freed                  # the block's last free; number 0: not in the ring any more
    Note now  # only its stacks are valid: those of the thread that found the error

cdef SpinLock lock
cdef Note history[HISTORY]
cdef uint64_t notes = 0
cdef Error errors[WAITING]
cdef uint64_t error_count = 0
cdef uint64_t errors_read = 0
cdef uint64_t reported[FOUNDS]

KINDS = ("overflow", "use after free", "double free", "foreign pointer")
kept: deque = deque(maxlen=KEPT)


# ---- in C ---------------------------------------------------------------------------------------

cdef void on_fork() noexcept nogil:
    spin_enter(&lock)           # so that the child does not get a half-written note


cdef void on_forked() noexcept nogil:
    spin_leave(&lock)


cdef bint fork_watched = pthread_atfork(on_fork, on_forked, on_forked) == 0


cdef void note_fill(Note *note, Arena *arena, Block *block, size_t size,
                    bint freed) noexcept nogil:
    note.arena = arena
    note.block = block
    note.addr = block.addr
    note.size = size
    note.freed = freed


cdef uint64_t happened(Arena *arena, Block *block, size_t size, bint freed) noexcept nogil:
    global notes
    cdef Note note
    memset(&note, 0, sizeof(note))
    record_stacks_here(&note.python, &note.native)
    note_fill(&note, arena, block, size, freed)
    spin_enter(&lock)
    notes += 1
    note.number = notes
    history[notes % HISTORY] = note
    spin_leave(&lock)
    return note.number


cdef void notes_find(Error *error, uint64_t last) noexcept nogil:
    """Under the lock: set `error.freed` and `error.allocated` to notes of the block.

    They are the notes of its newest free, up to the note number `last` (0: of all notes), and of
    the allocation before that free.
    """
    cdef uint64_t number = last if last != 0 else notes
    cdef uint64_t end = notes - HISTORY if notes > HISTORY else 0
    cdef Note *note
    while number > end and error.allocated.number == 0:
        note = &history[number % HISTORY]
        if note.arena == error.arena and note.block == error.block:
            if not note.freed:
                error.allocated = note[0]
            elif error.freed.number == 0:
                error.freed = note[0]
        number -= 1


cdef void found(Found kind, Arena *arena, Block *block, uint64_t last) noexcept nogil:
    global error_count
    cdef Error error
    memset(&error, 0, sizeof(error))
    record_stacks_here(&error.now.python, &error.now.native)
    error.kind = <uint32_t> kind
    error.device = arena.pool.options.device
    error.stream = arena.stream
    error.arena = arena
    error.block = block
    spin_enter(&lock)
    if kind != FOUND_FOREIGN:  # a foreign pointer is not a block, so it has no notes
        notes_find(&error, last)
    reported[<uint32_t> kind] += 1
    if error_count - errors_read < WAITING:     # otherwise the error is only counted
        errors[error_count % WAITING] = error
        error_count += 1
    spin_leave(&lock)
    if not leaving and Py_IsInitialized():
        Py_AddPendingCall(on_pending, NULL)


cdef bint error_take(Error *error) noexcept nogil:
    global errors_read
    cdef bint some
    spin_enter(&lock)
    some = errors_read < error_count
    if some:
        error[0] = errors[errors_read % WAITING]
        errors_read += 1
    spin_leave(&lock)
    return some


# ---- in Python ----------------------------------------------------------------------------------

cdef int on_pending(void *argument) noexcept with gil:
    drain()
    return 0


cdef tuple stack_of(const Note *note):
    """Return the lines of the note's Python stack; if it has none, those of its C stack."""
    if note.python:
        return tuple([f"{file}:{line} in {name}"
                      for file, line, name in python_frames(note.python)])
    if note.native:
        return tuple([f"{name} in {file}" for file, _, name in native_frames(note.native)])
    return ()


cdef object GuardFinding = None


def findings_prepare():
    """Import now what logging needs, because a pending call may run in the middle of any import."""
    global GuardFinding
    from acl.inside import _guard_finding       # not at the top: dataclasses take long to import

    GuardFinding = _guard_finding.GuardFinding


cdef object finding_of(const Error *error):
    cdef const Note *known = &error.allocated if error.allocated.number else &error.freed
    if GuardFinding is None:
        findings_prepare()  # nothing has called this yet if only C code has made pools
    return GuardFinding(
        KINDS[error.kind], error.device, <size_t> error.stream, <size_t> error.block,
        <size_t> known.addr, known.size, stack_of(&error.allocated), stack_of(&error.freed),
        stack_of(&error.now))


def drain():
    """Log and keep the errors that were found since the last call."""
    cdef Error error
    while error_take(&error):
        finding = finding_of(&error)
        kept.append(finding)
        _log.error("guard", "%s", finding)


def findings_listen():
    """Give `happened` and `found` to `core/_guard`, which may not import this module."""
    _guard.on_happened = happened
    _guard.on_found = found


def guard_findings():
    """Return the last 256 errors that guarded blocks have found in this process, oldest first."""
    drain()
    return tuple(kept)


def reports():
    """Return the number of errors of each kind that were found in this process."""
    drain()
    return {kind: reported[i] for i, kind in enumerate(KINDS)}
