"""Allocators to compare with, as the four C values that the benchmarks' loops call.

floor      empty callbacks: the cost of the loop and of three indirect calls
library    malloc and free of any C library, given by address (libc, mimalloc, jemalloc, tcmalloc)
functions  callbacks of the form that ACL calls, given by address
runtime    aclrtMalloc and aclrtFree for every block, as in a program without a pool
soma       aclrtMemPoolMallocAsync and aclrtMemPoolFreeAsync on a stream
python     an allocator that is a Python object, behind callbacks that take the GIL
slowed     one of these, with a wait before each allocation, to test that a benchmark notices it
registered the allocator that is registered for a stream, of this package or of other code

A block is its own address here, except for `python`, where it is the object that Python returned.
Any thread may call these functions, if the allocator allows it; that is not checked here.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy, memset

cimport acl.bind.generated._libacl as libacl
from acl.bind.generated._libacl cimport (
    ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_MALLOC_HUGE_FIRST, ACL_SUCCESS, aclrtAllocator,
    aclrtAllocatorAllocAdviseFunc, aclrtAllocatorAllocFunc, aclrtAllocatorDesc,
    aclrtAllocatorFreeFunc, aclrtAllocatorGetAddrFromBlockFunc, aclrtContext, aclrtMemPool,
    aclrtMemPoolProps, aclrtStream,
)
from acl.tools.bench._loops cimport AddressFunc, AllocFunc, Allocator, FreeFunc, Subject as CSubject
from acl.tools.bench._loops import Subject

__all__ = ["build_type", "context", "floor", "functions", "library", "python", "registered",
           "runtime", "slowed", "soma", "soma_close", "soma_open"]


cdef extern from *:
    """
    #if defined(__SANITIZE_ADDRESS__)
    #define BUILD_TYPE "sanitize"
    #elif defined(__SANITIZE_THREAD__)
    #define BUILD_TYPE "tsan"
    #elif defined(CYTHON_TRACE_NOGIL)
    #define BUILD_TYPE "coverage"
    #elif !defined(NDEBUG)
    #define BUILD_TYPE "debug"
    #else
    #define BUILD_TYPE "release"
    #endif
    """
    const char *BUILD_TYPE


cdef void *on_identity(void *block) noexcept nogil:
    return block


cdef object subject_new(str name, void *state, AllocFunc alloc, FreeFunc free, AddressFunc address,
                        object keep):
    return Subject(name, <uintptr_t>state, <uintptr_t>alloc, <uintptr_t>free, <uintptr_t>address,
                   keep)


def build_type():
    """Return the build type of this package: release, debug, sanitize, tsan or coverage."""
    return BUILD_TYPE.decode()


# ---- floor ----

cdef char nothing[64]


cdef void *on_floor_alloc(void *state, size_t size) noexcept nogil:
    return state


cdef void on_floor_free(void *state, void *block) noexcept nogil:
    pass


def floor():
    """Return callbacks that do nothing."""
    return subject_new("floor", nothing, on_floor_alloc, on_floor_free, on_identity, None)


# ---- library ----

ctypedef void *(*MallocFunc)(size_t size) noexcept nogil
ctypedef void (*LibraryFreeFunc)(void *block) noexcept nogil


cdef class Functions:
    """The malloc and free of a library, at an address that does not change."""

    cdef MallocFunc malloc
    cdef LibraryFreeFunc free

    def __init__(self, malloc, free):
        cdef uintptr_t[2] values = [malloc, free]
        memcpy(&self.malloc, &values[0], sizeof(uintptr_t))
        memcpy(&self.free, &values[1], sizeof(uintptr_t))


cdef struct FunctionsView:
    MallocFunc malloc
    LibraryFreeFunc free


cdef void *on_library_alloc(void *state, size_t size) noexcept nogil:
    return (<FunctionsView *>state).malloc(size)


cdef void on_library_free(void *state, void *block) noexcept nogil:
    (<FunctionsView *>state).free(block)


def library(str name not None, malloc, free, keep=None):
    """Return a Subject for the functions at these addresses; `keep` keeps the library open."""
    if not malloc or not free:
        raise ValueError(f"{name}: malloc and free must not be NULL")
    cdef Functions functions = Functions(malloc, free)
    return subject_new(name, &functions.malloc, on_library_alloc, on_library_free, on_identity,
                       (functions, keep))


def functions(str name not None, state, alloc, free, address=0, keep=None):
    """Return a Subject for callbacks at these addresses.

    `address` 0: a block is its own address.
    """
    cdef AddressFunc own = on_identity
    cdef uintptr_t identity
    memcpy(&identity, &own, sizeof(identity))
    return Subject(name, state, alloc, free, address or identity, keep)


# ---- runtime ----

cdef void *on_runtime_alloc(void *state, size_t size) noexcept nogil:
    cdef void *block = NULL
    if libacl.aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS:
        return NULL
    return block


cdef void on_runtime_free(void *state, void *block) noexcept nogil:
    libacl.aclrtFree(block)


def runtime():
    """Return a Subject for aclrtMalloc and aclrtFree.

    The calling thread needs a current context.
    """
    return subject_new("aclrtMalloc", nothing, on_runtime_alloc, on_runtime_free, on_identity, None)


# ---- soma ----

cdef class Soma:
    cdef aclrtMemPool pool
    cdef aclrtStream stream

    def __init__(self, size_t pool, size_t stream):
        self.pool = <aclrtMemPool>pool
        self.stream = <aclrtStream>stream


cdef struct SomaView:
    aclrtMemPool pool
    aclrtStream stream


cdef void *on_soma_alloc(void *state, size_t size) noexcept nogil:
    cdef SomaView *soma = <SomaView *>state
    cdef void *block = NULL
    if libacl.aclrtMemPoolMallocAsync(&block, size, soma.pool, soma.stream) != ACL_SUCCESS:
        return NULL
    return block


cdef void on_soma_free(void *state, void *block) noexcept nogil:
    libacl.aclrtMemPoolFreeAsync(block, (<SomaView *>state).stream)


def soma(size_t pool, size_t stream):
    """Return a Subject for a memory pool of the runtime; `pool` and `stream` are handles."""
    cdef Soma values = Soma(pool, stream)
    return subject_new("aclrtMemPoolMallocAsync", &values.pool, on_soma_alloc, on_soma_free,
                       on_identity, values)


# ---- python ----

cdef void *on_python_alloc(void *state, size_t size) noexcept with gil:
    cdef object block
    try:
        block = (<object>state)(size)
    except MemoryError:
        return NULL
    Py_INCREF(block)
    return <void *>block


cdef void on_python_free(void *state, void *block) noexcept with gil:
    Py_DECREF(<object>block)


cdef void *on_python_address(void *block) noexcept with gil:
    return <void *><uintptr_t>(<object>block).ptr


def python(str name not None, allocate):
    """Return a Subject for `allocate(size)`, whose result has a `ptr` and is freed when dropped."""
    return subject_new(name, <PyObject *>allocate, on_python_alloc, on_python_free,
                       on_python_address, allocate)


# ---- slowed ----

cdef extern from "tools/bench/clock.h" nogil:
    uint64_t cpu_ns()


cdef struct SlowedView:
    Allocator behind
    uint64_t wait_ns


cdef class Slowed:
    cdef SlowedView view


cdef void *on_slowed_alloc(void *state, size_t size) noexcept nogil:
    cdef SlowedView *view = <SlowedView *>state
    cdef uint64_t end = cpu_ns() + view.wait_ns
    while cpu_ns() < end:
        pass
    return view.behind.alloc(view.behind.state, size)


cdef void on_slowed_free(void *state, void *block) noexcept nogil:
    cdef SlowedView *view = <SlowedView *>state
    view.behind.free(view.behind.state, block)


def slowed(CSubject subject not None, uint64_t wait_ns):
    """Return a Subject that uses `wait_ns` nanoseconds of CPU time before each allocation."""
    cdef Slowed values = Slowed()
    values.view.behind = subject.allocator
    values.view.wait_ns = wait_ns
    return subject_new(f"slowed {subject.name}", &values.view, on_slowed_alloc, on_slowed_free,
                       subject.allocator.address, (values, subject))


# ---- the allocator that is registered for a stream ----

def registered(str name not None, size_t stream, keep=None):
    """Return a Subject for the allocator of a stream, from `aclrtAllocatorGetByStream`."""
    cdef aclrtAllocatorDesc description = NULL
    cdef aclrtAllocator allocator = NULL
    cdef aclrtAllocatorAllocFunc alloc = NULL
    cdef aclrtAllocatorFreeFunc free = NULL
    cdef aclrtAllocatorAllocAdviseFunc advise = NULL
    cdef aclrtAllocatorGetAddrFromBlockFunc address = NULL
    cdef int status = libacl.aclrtAllocatorGetByStream(
        <aclrtStream>stream, &description, &allocator, &alloc, &free, &advise, &address)
    if status != ACL_SUCCESS:
        raise LookupError(f"aclrtAllocatorGetByStream: {status}")
    return Subject(name, <uintptr_t>allocator, <uintptr_t>alloc, <uintptr_t>free,
                   <uintptr_t>address, keep)


# ---- the runtime, without the classes of `acl` ----

def context():
    """Return the calling thread's current context as a number; 0 if it has none."""
    cdef aclrtContext current = NULL
    if libacl.aclrtGetCurrentContext(&current) != ACL_SUCCESS:
        return 0
    return <uintptr_t>current


def soma_open(int device, size_t most):
    """Create a pool for `soma` and return it as a number; `most` is its capacity in bytes."""
    cdef aclrtMemPoolProps wanted
    cdef aclrtMemPool pool = NULL
    memset(&wanted, 0, sizeof(wanted))
    wanted.location.type = ACL_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device
    wanted.maxSize = most
    cdef int status = libacl.aclrtMemPoolCreate(&pool, &wanted)
    if status != ACL_SUCCESS:
        raise OSError(f"aclrtMemPoolCreate: {status}")
    return <uintptr_t>pool


def soma_close(size_t pool):
    """Destroy a pool that `soma_open` made."""
    libacl.aclrtMemPoolDestroy(<aclrtMemPool>pool)
