"""Device memory and pinned host memory.

A `Buffer` or `HostBuffer` owns its memory through a C function, so that one from the driver and one
from a pool are the same to its user.  Closing, or dropping the last reference, gives the memory
back; if an asynchronous copy of ours may still use it, closing waits for its stream first.
Work that was queued behind our back (a model, a kernel) is the caller's to wait for.

`Buffer` is the hot type: it comes from a free list, holds no dict and no weak references, and is
not tracked by the garbage collector, as it can't be part of a cycle.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.number cimport PyNumber_Index

from acl._device cimport (
    alive_add,
    current_device,
    current_ensure,
    fork_count,
    forked_raise,
    leaving,
)
from acl._error cimport check
from acl._libacl cimport (
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY,
    ACL_MEM_MALLOC_NORMAL_ONLY,
    ACL_STREAM_STATUS_COMPLETE,
    aclError,
    aclrtFree,
    aclrtFreeHost,
    aclrtMalloc,
    aclrtMallocHost,
    aclrtMemMallocPolicy,
    aclrtStream,
    aclrtStreamQuery,
    aclrtStreamStatus,
    aclrtSynchronizeStream,
)
from acl._stream cimport Stream, stream_raw

__all__ = ["Buffer", "HostBuffer"]

POLICIES = {
    "huge_first": ACL_MEM_MALLOC_HUGE_FIRST,
    "huge_only": ACL_MEM_MALLOC_HUGE_ONLY,
    "normal_only": ACL_MEM_MALLOC_NORMAL_ONLY,
}


cdef void device_free(void *owner, void *block) noexcept nogil:
    aclrtFree(block)


cdef void host_free(void *owner, void *block) noexcept nogil:
    aclrtFreeHost(block)


cdef object pending_add(object pending, Stream stream):
    if pending is None or pending is stream:
        return stream
    if not isinstance(pending, list):
        return [pending, stream]
    if stream not in <list> pending:
        (<list> pending).append(stream)
    return pending


cdef int stream_settle(Stream stream) noexcept:
    """Wait for a stream, unless it is gone, and so are its copies.

    A wait that fails says nothing of copies still in flight, so it is tried again if there are any.
    """
    cdef aclrtStream raw = stream.raw
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    if stream.is_closed or stream.made != fork_count:
        return 0
    with nogil:
        if aclrtSynchronizeStream(raw) != 0:
            if aclrtStreamQuery(raw, &state) == 0 and state != ACL_STREAM_STATUS_COMPLETE:
                aclrtSynchronizeStream(raw)
    return 0


cdef int pending_settle(object pending) noexcept:
    if isinstance(pending, Stream):
        return stream_settle(<Stream> pending)
    if pending is not None:
        for stream in <list> pending:
            stream_settle(<Stream> stream)
    return 0


cdef Buffer buffer_wrap(
    void *address, size_t size, BufferRelease release, void *owner, void *block, object keeper,
    Stream stream, int device,
):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.address = address
    buffer.size = size
    buffer.release = release
    buffer.owner = owner
    buffer.block = block
    buffer.keeper = keeper
    buffer.stream = stream
    buffer.device = device
    buffer.made = fork_count
    return buffer


cdef inline void buffer_give_back(Buffer buffer) noexcept:
    """Hand the memory to its owner; the buffer is closed from here on."""
    cdef BufferRelease release = buffer.release
    cdef void *owner = buffer.owner
    cdef void *block = buffer.block
    buffer.address = NULL
    if buffer.pending is not None:
        buffer_settle(buffer)
    if release is NULL:
        return
    if buffer.blocking:
        alive_add(-1)
        with nogil:
            release(owner, block)
    else:
        release(owner, block)


cdef int buffer_settle(Buffer buffer) noexcept:
    """Before the memory goes back: a view tells its buffer; a pool orders its own stream."""
    pending = buffer.pending
    buffer.pending = None
    if buffer.release is NULL and isinstance(buffer.keeper, Buffer):
        for stream in pending if isinstance(pending, list) else [pending]:
            (<Buffer> buffer.keeper).pending = pending_add((<Buffer> buffer.keeper).pending, stream)
        return 0
    if buffer.blocking or pending is not buffer.stream:
        pending_settle(pending)
    return 0


@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class Buffer:
    """A block of device memory.

    Made directly, its memory comes from the driver (`aclrtMalloc`); a pool's `alloc` makes the same
    type in a few nanoseconds.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    stream : Stream, optional
        The stream that orders the memory's use: synchronous copies are queued there and waited for.
    policy : {"huge_first", "huge_only", "normal_only"}
        Which pages to take.
    """

    def __init__(self, size, *, Stream stream=None, policy="huge_first"):
        cdef aclError status
        cdef aclrtStream raw
        cdef size_t wanted = size_checked(size)
        cdef aclrtMemMallocPolicy pages
        cdef void *address = NULL
        if self.address is not NULL:
            raise ValueError("the Buffer exists already")
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
        pages = POLICIES[policy]
        if stream is None:
            current_ensure(NULL)
        else:
            stream_raw(stream, &raw)
        with nogil:
            status = aclrtMalloc(&address, wanted, pages)
        check(status, "aclrtMalloc")
        self.address = address
        self.block = address
        self.size = wanted
        self.release = device_free
        self.blocking = True
        self.stream = stream
        self.device = current_device()
        self.made = fork_count
        alive_add(1)

    @staticmethod
    def from_address(size_t address, size_t size, *, Stream stream=None, owner=None):
        """Memory of somebody else's, borrowed: never freed here; `owner` is kept alive with it."""
        if address == 0:
            raise ValueError("address must not be 0")
        return buffer_wrap(<void *> address, size, NULL, NULL, NULL, owner, stream, -1)

    cdef int open_check(self) except -1:
        if self.address is NULL:
            raise ValueError("the Buffer is closed")
        if self.made != fork_count:
            forked_raise(self)
        return 0

    @property
    def address(self):
        """The device address, as an integer."""
        self.open_check()
        return <size_t> self.address

    @property
    def size(self):
        """Bytes asked for."""
        return self.size

    @property
    def stream(self):
        """The stream that orders the memory's use, or None."""
        return self.stream

    @property
    def device(self):
        """The device's number; -1 if unknown."""
        return self.device

    @property
    def closed(self):
        """Whether `close` has run."""
        return self.address is NULL

    def __len__(self):
        return self.size

    def view(self, size_t offset=0, size=None):
        """A part of the memory as a Buffer of its own; it keeps this one's memory alive.

        Closing this buffer under its views takes their memory away.
        """
        self.open_check()
        if offset > self.size:
            raise ValueError(f"offset must be at most {self.size}, not {offset}")
        cdef size_t length = self.size - offset if size is None else size
        if length > self.size - offset:
            raise ValueError(
                f"size must be at most {self.size - offset} at offset {offset}, not {size}"
            )
        return buffer_wrap(
            <char *> self.address + offset, length, NULL, NULL, NULL, self, self.stream,
            self.device,
        )

    def close(self):
        """Give the memory back; a second call does nothing.  Waits for copies of it in flight."""
        if self.address is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        buffer_give_back(self)
        self.keeper = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        if self.address is not NULL and self.made == fork_count and not leaving:
            buffer_give_back(self)

    def __repr__(self):
        if self.address is NULL:
            return "<Buffer closed>"
        return f"<Buffer {self.size} bytes at {<size_t> self.address:#x}>"


cdef size_t size_checked(object size) except 0:
    """A size in bytes, at least 1."""
    size = PyNumber_Index(size)
    if size < 1:
        raise ValueError(f"size must be at least 1 byte, not {size}")
    return size


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, void *owner, void *block, object keeper,
):
    cdef HostBuffer buffer = HostBuffer.__new__(HostBuffer)
    buffer.address = address
    buffer.size = size
    buffer.release = release
    buffer.owner = owner
    buffer.block = block
    buffer.keeper = keeper
    buffer.made = fork_count
    return buffer


cdef void host_buffer_give_back(HostBuffer buffer) noexcept:
    cdef BufferRelease release = buffer.release
    cdef void *owner = buffer.owner
    cdef void *block = buffer.block
    buffer.address = NULL
    pending_settle(buffer.pending)
    buffer.pending = None
    if release is host_free:
        alive_add(-1)
    if release is not NULL:
        with nogil:
            release(owner, block)


@cython.final
@cython.no_gc_clear
cdef class HostBuffer:
    """Pinned host memory: copies between it and the device can run beside the host.

    It has the buffer protocol (writable bytes), so `memoryview`, `numpy.frombuffer`, `readinto` and
    the like work on it without a copy.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    """

    def __init__(self, size):
        cdef aclError status
        cdef size_t wanted = size_checked(size)
        cdef void *address = NULL
        if self.address is not NULL:
            raise ValueError("the HostBuffer exists already")
        current_ensure(NULL)
        with nogil:
            status = aclrtMallocHost(&address, wanted)
        check(status, "aclrtMallocHost")
        self.address = address
        self.block = address
        self.size = wanted
        self.release = host_free
        self.made = fork_count
        alive_add(1)

    cdef int open_check(self) except -1:
        if self.address is NULL:
            raise ValueError("the HostBuffer is closed")
        if self.made != fork_count:
            forked_raise(self)
        return 0

    @property
    def address(self):
        """The host address, as an integer."""
        self.open_check()
        return <size_t> self.address

    @property
    def size(self):
        """Bytes asked for."""
        return self.size

    @property
    def closed(self):
        """Whether `close` has run."""
        return self.address is NULL

    def __len__(self):
        return self.size

    def numpy(self, dtype="uint8", shape=None):
        """The memory as a NumPy array, without a copy; it keeps the memory alive."""
        import numpy
        array = numpy.frombuffer(self, dtype=dtype)
        return array if shape is None else array.reshape(shape)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.open_check()
        PyBuffer_FillInfo(view, self, self.address, self.size, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def close(self):
        """Give the memory back; a second call does nothing.  Waits for asynchronous copies of it.

        Raises `BufferError` while a memory view or an array shows the memory.
        """
        if self.address is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        if self.exports:
            raise BufferError(f"{self.exports} views of the HostBuffer are alive")
        host_buffer_give_back(self)
        self.keeper = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        if self.address is not NULL and self.made == fork_count and not leaving:
            host_buffer_give_back(self)

    def __repr__(self):
        if self.address is NULL:
            return "<HostBuffer closed>"
        return f"<HostBuffer {self.size} bytes at {<size_t> self.address:#x}>"
