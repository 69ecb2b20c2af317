"""NumPy's data memory handler (NEP 49) over a pool of pinned host memory.

Inside `with acl.numpy_pool():`, every array that NumPy allocates is in pinned memory of a pool,
also arrays that other libraries make.  An array keeps its handler, and the handler keeps the pool.
So arrays stay valid after the block, and may be freed by any thread.  The four functions of the
handler are C.  They use Python objects only if an asynchronous copy of the array may still be in
progress.

In front of the data is a header of 64 bytes with the block and the works of asynchronous copies.
By this header `acl.copy_async` recognises these arrays as pinned memory.

NumPy's function table is read at run time, so no module is built against NumPy.  A test compares
the two slots used here with the installed headers.  Importing this module imports NumPy.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport (
    PyCapsule_GetContext, PyCapsule_GetPointer, PyCapsule_New, PyCapsule_SetContext,
)
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strcpy

from acl.runtime._copy cimport array_pending
from acl._core cimport arena_free
from acl.core.types cimport Arena, Block
from acl.runtime._device cimport leaving
from acl.runtime._later cimport end_later, in_callback
from acl.pool._pinned cimport PinnedPool, pinned_alloc, pinned_settle
from acl.runtime._work cimport WorkEnd, works_settle

from contextvars import ContextVar

import numpy

from acl.pool._pinned import default_pool

try:
    from numpy._core import _multiarray_umath as numpy_core
except ImportError:                             # NumPy 1
    from numpy.core import _multiarray_umath as numpy_core

__all__ = ["NumpyPool", "numpy_pool"]

cdef extern from *:
    """
    #include <stdint.h>
    /* NumPy's, since 1.22; version 1 of the handler. */
    typedef struct {
        void *ctx;
        void *(*malloc)(void *ctx, size_t size);
        void *(*calloc)(void *ctx, size_t count, size_t size);
        void *(*realloc)(void *ctx, void *data, size_t size);
        void (*free)(void *ctx, void *data, size_t size);
    } AclpoolMemAllocator;
    typedef struct {
        char name[127];
        uint8_t version;
        AclpoolMemAllocator allocator;
    } AclpoolMemHandler;
    """
    ctypedef struct AclpoolMemAllocator:
        void *ctx
        void *(*malloc)(void *ctx, size_t size) noexcept nogil
        void *(*calloc)(void *ctx, size_t count, size_t size) noexcept nogil
        void *(*realloc)(void *ctx, void *data, size_t size) noexcept nogil
        void (*free)(void *ctx, void *data, size_t size) noexcept nogil

    ctypedef struct AclpoolMemHandler:
        char *name
        uint8_t version
        AclpoolMemAllocator allocator

cdef enum:
    HEADER_BYTES = 64           # bytes in front of an array's data; a Header lies at their start
    SLOT_SET_HANDLER = 304      # index of PyDataMem_SetHandler in NumPy's table

HANDLER_NAME = "aclpool_pinned"

cdef struct Header:             # in front of an array's data
    Block *block
    PyObject *pending           # the `Work`s of its unfinished copies, with a reference; NULL: none

cdef struct Handler:            # the contents of a capsule of `handler_make`
    AclpoolMemHandler numpy
    Arena *arena
    PyObject *pool              # the PinnedPool; the capsule owns the reference
    int device

ctypedef PyObject *(*SetHandler)(PyObject *handler)


# --- the four functions -------------------------------------------------------------------------

cdef inline Header *header_of(void *data) noexcept nogil:
    return <Header *> (<char *> data - HEADER_BYTES)


cdef void *on_malloc(void *ctx, size_t size) noexcept nogil:
    cdef Handler *handler = <Handler *> ctx
    cdef Block *block
    cdef Header *header
    if size > ~<size_t> HEADER_BYTES:
        return NULL
    block = pinned_alloc(handler.arena, handler.device, size + HEADER_BYTES)
    if block == NULL:
        return NULL
    header = <Header *> block.addr
    header.block = block
    header.pending = NULL
    return block.addr + HEADER_BYTES


cdef void *on_calloc(void *ctx, size_t count, size_t size) noexcept nogil:
    cdef void *data
    if size != 0 and count > ~<size_t> 0 // size:
        return NULL
    data = on_malloc(ctx, count * size)
    if data != NULL:
        memset(data, 0, count * size)
    return data


cdef class ArrayEnd(WorkEnd):
    """Frees the memory of an array that was dropped while copies of it were in progress."""

    cdef Arena *arena
    cdef Block *block
    cdef object pool                # keeps the arena alive

    cdef int finish(self) except -1:
        arena_free(self.arena, self.block)
        return 0


cdef bint pending_wait(Header *header) noexcept with gil:
    """Wait for the copies of an array.  False if that failed, or if waiting is forbidden here."""
    try:
        works_settle(<object> header.pending)
    except BaseException:
        return False
    return True


cdef bint pending_note(Header *header, Handler *handler) noexcept with gil:
    """Return True if the caller may free the block now; take the works out of the header.

    Otherwise a later call of a user's thread frees the block, when the copies are complete.
    """
    cdef ArrayEnd end
    works = <object> header.pending
    Py_XDECREF(header.pending)
    header.pending = NULL
    if not in_callback() and pinned_settle(handler.arena, header.block, works):
        return True
    end = ArrayEnd.__new__(ArrayEnd)
    end.arena = handler.arena
    end.block = header.block
    end.works = works
    end.pool = <object> handler.pool
    end_later(end)
    return False


cdef void *on_realloc(void *ctx, void *data, size_t size) noexcept nogil:
    cdef void *moved
    cdef size_t room
    if data == NULL:
        return on_malloc(ctx, size)
    room = header_of(data).block.size - HEADER_BYTES
    if size <= room and size >= room // 2:
        return data
    moved = on_malloc(ctx, size)
    if moved == NULL:
        return NULL
    # An asynchronous copy may still write into the array.
    if header_of(data).pending != NULL and not pending_wait(header_of(data)):
        on_free(ctx, moved, 0)
        return NULL
    memcpy(moved, data, size if size < room else room)
    on_free(ctx, data, 0)
    return moved


cdef void on_free(void *ctx, void *data, size_t size) noexcept nogil:
    cdef Handler *handler = <Handler *> ctx
    cdef Header *header
    if data == NULL or leaving:
        return
    header = header_of(data)
    if header.pending == NULL or pending_note(header, handler):
        arena_free(handler.arena, header.block)


# --- handlers -----------------------------------------------------------------------------------

cdef SetHandler set_handler = NULL


cdef int numpy_bind() except -1:
    """Read the address of PyDataMem_SetHandler from NumPy's table."""
    cdef void **table = <void **> PyCapsule_GetPointer(numpy_core._ARRAY_API, NULL)
    (<void **> &set_handler)[0] = table[SLOT_SET_HANDLER]
    return 0


cdef void on_capsule_end(object capsule) noexcept:
    """Free a handler and its reference to the pool: no array uses this handler any more."""
    free(PyCapsule_GetPointer(capsule, "mem_handler"))
    Py_XDECREF(<PyObject *> PyCapsule_GetContext(capsule))


cdef object handler_make(PinnedPool pool):
    cdef Handler *handler = <Handler *> calloc(1, sizeof(Handler))
    if handler is NULL:
        raise MemoryError("host memory for a handler")
    strcpy(handler.numpy.name, HANDLER_NAME.encode())
    handler.numpy.version = 1
    handler.numpy.allocator.ctx = handler
    handler.numpy.allocator.malloc = on_malloc
    handler.numpy.allocator.calloc = on_calloc
    handler.numpy.allocator.realloc = on_realloc
    handler.numpy.allocator.free = on_free
    handler.arena = pool.arena
    handler.device = pool.device
    handler.pool = <PyObject *> pool
    capsule = PyCapsule_New(handler, "mem_handler", on_capsule_end)
    PyCapsule_SetContext(capsule, <void *> pool)
    Py_INCREF(pool)
    return capsule


cdef object handler_set(object handler):
    """Make a handler the current one of this context.  Return the previous one."""
    cdef PyObject *before = set_handler(<PyObject *> handler)
    if before is NULL:
        raise RuntimeError("NumPy refused the memory handler")
    result = <object> before
    Py_XDECREF(before)                          # `result` has its own reference
    return result


cdef PyObject **pending_of(object array) except? NULL:
    """Return the address of `pending` in an array's header; NULL if no pool made the array."""
    cdef size_t address
    if not isinstance(array, numpy.ndarray):
        return NULL
    if numpy_core.get_handler_name(array) != HANDLER_NAME:
        return NULL
    address = array.__array_interface__["data"][0]
    return &header_of(<void *> address).pending


# The innermost open `with` block of this thread or task: (NumpyPool, the previous handler, the
# enclosing block).
entered = ContextVar("acl.numpy_pool", default=None)


class NumpyPool:
    """The context manager of `numpy_pool`; any thread may enter it, also again while it is open.

    Attributes
    ----------
    pool : PinnedPool
        The pool from which the arrays' memory is allocated.
    """

    __slots__ = ("handler", "pool")

    def __init__(self, pool):
        self.pool = pool
        self.handler = handler_make(pool)

    def __enter__(self):
        entered.set((self, handler_set(self.handler), entered.get()))
        return self.pool

    def __exit__(self, *error):
        inner = entered.get()
        if inner is None or inner[0] is not self:
            raise RuntimeError("a numpy_pool block must end in the thread or task that began it, "
                               "and after those that began in it")
        handler_set(inner[1])
        entered.set(inner[2])


def numpy_pool(pool=None):
    """Put the arrays that NumPy makes in a `with` block into pinned, pooled memory.

    The block applies to the thread, or the asyncio task, that enters it.  The arrays stay valid
    after the block.

    Parameters
    ----------
    pool : PinnedPool, optional
        The process's own pool if not given.

    Returns
    -------
    NumpyPool
        A context manager; entering it returns the pool.
    """
    if pool is None:
        pool = default_pool()
    if not isinstance(pool, PinnedPool):
        raise TypeError(f"pool must be a PinnedPool, not {type(pool).__name__}")
    return pool.numpy()


numpy_bind()
array_pending = pending_of
