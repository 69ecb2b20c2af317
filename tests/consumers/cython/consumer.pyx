"""A module outside the package that uses the C API, its error check and the runtime objects."""

from acl._error cimport check
from acl._libacl cimport (
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    aclError,
    aclrtAllocatorAllocFunc,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtPhysicalMemProp,
    libacl_has,
)
from acl._runtime cimport Buffer, Stream, buffer_wrap, current_ensure, stream_raw

cdef int released = 0


cdef void on_release(void *owner, void *block) noexcept nogil:
    global released
    released += 1
    aclrtFree(block)


cdef void *on_alloc(void *allocator, size_t size) noexcept nogil:
    return allocator


# A callback of the C API's own type: assigned without a cast.
cdef aclrtAllocatorAllocFunc ALLOC = on_alloc


def allocate(size_t size, bytes content, Stream stream=None):
    """Return a Buffer over memory that this module allocated, filled from the host."""
    cdef void *address = NULL
    cdef const char *source = content
    cdef size_t length = len(content)
    cdef aclError status
    current_ensure(NULL)
    with nogil:
        status = aclrtMalloc(&address, size, ACL_MEM_MALLOC_HUGE_FIRST)
    check(status, "aclrtMalloc")
    with nogil:
        status = aclrtMemcpy(address, size, source, length, ACL_MEMCPY_HOST_TO_DEVICE)
    check(status, "aclrtMemcpy")
    return buffer_wrap(address, size, on_release, NULL, address, content, stream, 0)


def facts(Stream stream):
    """Return facts that are visible only in C."""
    cdef void *raw
    cdef aclrtPhysicalMemProp prop
    prop.location.id = 3
    stream_raw(stream, &raw)
    has, has_not = libacl_has("aclrtMalloc"), libacl_has("nonsense")
    return released, <size_t> raw, has, has_not, prop.location.id


def fail():
    """Raise the exception of a failed call."""
    check(107017, "aclrtSomething")


def address_of(Buffer buffer not None):
    return <size_t> buffer.address
