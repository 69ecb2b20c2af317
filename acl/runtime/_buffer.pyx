"""Device memory and pinned host memory.

A `Buffer` or `HostBuffer` frees its memory through a C function of the memory's owner, so memory of
the driver and of a pool is used in the same way.  Closing it, or deleting the last reference, frees
the memory.  A *work* is a copy, a run or a launch that was queued on a stream.  The buffer that
owns the memory stores the works that use the memory, also the works that use it through a view.
Closing waits for works that the memory's owner does not order.  Deleting never waits: if works
still use the memory, it is freed later.  If a call in another thread uses the memory when it is
closed, the end of that call frees it.

`Buffer` must be fast to make: its objects are taken from a free list, have no dict and no weak
references, and are not tracked by the garbage collector, so an `owner` that refers to its own
Buffer is never collected.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t

from acl.runtime._device cimport (
    alive_add,
    callback_check,
    current_device,
    current_ensure,
    fork_count,
    forked_raise,
    leaving,
)
from acl.runtime._later cimport end_later, end_soon, in_callback, later_made_room
from acl.runtime._work cimport (
    Progress, Work, WorkEnd, work_begin, work_queued, works_add, works_check, works_settle,
    works_written,
)
from acl.bind._error cimport check
from acl.bind.generated._libacl cimport (
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY,
    ACL_MEM_MALLOC_NORMAL_ONLY,
    aclError,
    aclrtFree,
    aclrtFreeHost,
    aclrtMalloc,
    aclrtMallocHost,
    aclrtMemMallocPolicy,
    aclrtStream,
)
from acl.runtime._stream cimport Stream, handle_checked, stream_raw

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

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


cdef Buffer buffer_root(Buffer buffer):
    """Return the buffer that owns the memory; the `keeper` of a view is its buffer."""
    while isinstance(buffer.keeper, Buffer):
        buffer = <Buffer> buffer.keeper
    return buffer


# A fused type, because a class with a base class cannot have a free list, which Buffer needs.
ctypedef fused Memory:
    Buffer
    HostBuffer


@cython.final
cdef class Uses:
    """A call that queues one work, and the buffers that it uses.

    If a buffer is closed during the call, the end of the call frees its memory.
    """

    def __cinit__(self, Progress progress, str what):
        self.roots = []
        self.work = work_begin(progress, what)

    cdef int add(self, Buffer buffer, bint written) except -1:
        cdef Buffer root = buffer_root(buffer)
        buffer.open_check()
        self.roots.append((root, written, written and root.size == buffer.size))
        buffer_use(root, 1)
        return buffer_note(root, self.work)

    cdef int cut(self, Py_ssize_t count) except -1:
        cdef Buffer root
        while len(self.roots) > count:
            root = <Buffer> (<tuple> self.roots.pop())[0]
            buffer_use(root, -1)
        return 0

    cdef int end(self, bint wrote) except -1:
        cdef Buffer root
        work_queued(self.work)
        try:
            if wrote:
                for root, written, whole in self.roots:
                    if written:
                        buffer_written(root, self.work, whole)
        finally:
            self.cut(0)
        return 0

    def __dealloc__(self):
        if self.work is not None and self.roots is not None:    # the call may have failed
            self.end(False)


cdef int memory_note(Memory memory, Work work) except -1:
    while True:
        # Meanwhile another thread, or the collector, may note a work too; then add ours to that.
        before = memory.pending
        after = works_add(before, work)
        if memory.pending is before:
            memory.pending = after
            return 0


cdef int buffer_note(Buffer root, Work work) except -1:
    return memory_note(root, work)


cdef int host_note(HostBuffer buffer, Work work) except -1:
    return memory_note(buffer, work)


cdef int buffer_written(Buffer root, Work work, bint whole) except -1:
    root.writers = work if whole else works_written(root.writers, work)
    return 0


cdef int buffer_readable(Buffer buffer, bint wait, int64_t until=-1) except -1:
    """Raise an error if a work that wrote the memory has failed; with `wait`, wait for it first."""
    cdef Buffer root = buffer_root(buffer)
    if root.writers is None:
        return 0
    if wait:
        works_settle(root.writers, until)
    return works_check(root.writers)


def let_go(Buffer buffer not None):
    """Close a buffer without a wait.

    If works or calls use the memory, it is freed when they are done.
    """
    if buffer.address is NULL or buffer.made != fork_count:
        return
    buffer.address = NULL
    if buffer.uses == 0:
        memory_unused(buffer)


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


# --- functions of both types --------------------------------------------------------------------

cdef int memory_check(Memory memory) except -1:
    if memory.address is NULL:
        raise ValueError(f"the {type(memory).__name__} is closed")
    if memory.made != fork_count:
        forked_raise(memory)
    if Memory is Buffer:
        if isinstance(memory.keeper, Buffer):
            return memory_check(<Buffer> memory.keeper)
    return 0


@cython.final
cdef class MemoryEnd(WorkEnd):
    """The release of memory whose Python object is closed or deleted.

    It is ready when the works on the memory are over.
    """

    cdef BufferRelease release
    cdef void *owner
    cdef void *block
    cdef object keeper
    cdef bint blocking

    cdef int finish(self) except -1:
        cdef BufferRelease release = self.release
        if release is NULL:
            return 0
        if not self.blocking:
            release(self.owner, self.block)
            return 0
        alive_add(-1)
        with nogil:
            release(self.owner, self.block)
        return 0


cdef MemoryEnd memory_end(Memory memory, object works):
    cdef MemoryEnd end = MemoryEnd.__new__(MemoryEnd)
    end.release = memory.release
    end.owner = memory.owner
    end.block = memory.block
    end.keeper = memory.keeper
    end.blocking = memory.blocking
    end.works = works
    return end


cdef bint is_ordered(Memory memory, object works) noexcept:
    """Return True if the memory may be freed without a wait for `works`.

    Memory of a pool may be, if the works are on the buffer's own stream, or if there are none.  For
    a HostBuffer, `settle` gives the works to the pool, which then waits for them instead.
    """
    if works is None:
        return True
    if Memory is Buffer:
        return (memory.release is not NULL and not memory.blocking and isinstance(works, Work)
                and memory.stream is not None
                and (<Work> works).progress is memory.stream.progress)
    else:
        return memory.settle is not NULL and memory.settle(memory.owner, memory.block, works)


cdef inline void memory_drop(Memory memory) noexcept:
    """Free the memory of a deleted object now, or later if works still use it.

    While the interpreter exits, free only memory for which `memory_outlasts` is true.
    """
    if memory.address is NULL or memory.made != fork_count or (
            leaving and not memory_outlasts(memory)):
        return
    memory.address = NULL
    if memory.pending is None and not memory.blocking:
        if memory.release is not NULL:
            memory.release(memory.owner, memory.block)
        return
    end_soon(memory_end(memory, None if not in_callback() and is_ordered(memory, memory.pending)
                        else memory.pending))


cdef int memory_back(Memory memory) except -1:
    """Wait for the works on closed memory and free it; if Ctrl-C ends the wait, free it later."""
    cdef MemoryEnd end
    works, memory.pending = memory.pending, None
    end = memory_end(memory, None if is_ordered(memory, works) else works)
    memory.keeper = None
    try:
        end.ready(True)
    except BaseException:
        end_later(end)
        raise
    return end.finish()


cdef void memory_unused(Memory memory) noexcept:
    """Free closed memory that no call uses any more; if works use it, free it later."""
    works, memory.pending = memory.pending, None
    end = memory_end(memory, None if is_ordered(memory, works) else works)
    memory.keeper = None
    end_soon(end)


cdef int buffer_use(Buffer root, int change) except -1:
    root.uses += change
    if root.uses == 0 and root.address is NULL:
        memory_unused(root)
    return 0


cdef int host_use(HostBuffer buffer, int change) except -1:
    buffer.uses += change
    if buffer.uses == 0 and buffer.address is NULL:
        memory_unused(buffer)
    return 0


cdef int memory_close(Memory memory) except -1:
    """Close a buffer and free its memory; do nothing if it is closed already.

    Raise BufferError for a HostBuffer with memory views, and RuntimeError if a wait would be needed
    in a callback.
    """
    if memory.address is NULL:
        return 0
    if memory.made != fork_count:
        forked_raise(memory)
    if Memory is HostBuffer:
        if memory.exports:
            raise BufferError(f"{memory.exports} views of the HostBuffer are alive")
    if memory.blocking or memory.pending is not None:
        callback_check()
    memory.address = NULL
    # If a call uses the memory now, the end of that call frees it.
    return 0 if memory.uses else memory_back(memory)


cdef bint memory_outlasts(Memory memory) noexcept:
    """Return True if the memory may be freed while the interpreter exits.

    That is memory of a pool without works, whose release neither waits nor calls the driver.  Other
    threads still run at that time, and may need the memory of the objects that they delete.
    """
    return (Memory is Buffer and memory.release is not NULL and not memory.blocking
            and memory.pending is None and Py_IsInitialized() != 0)


cdef str memory_text(Memory memory):
    name = type(memory).__name__
    if memory.address is NULL:
        return f"<{name} closed>"
    return f"<{name} {memory.size} bytes at {<size_t> memory.address:#x}>"


@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class Buffer:
    """A block of device memory.

    The constructor allocates memory from the driver (`aclrtMalloc`); a pool's `alloc` returns an
    object of this type in a few nanoseconds.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    stream : Stream, optional
        The stream that orders the memory's use: synchronous copies are queued on it and waited for.
    policy : {"huge_first", "huge_only", "normal_only"}
        The kind of pages that `aclrtMalloc` allocates.
    """

    def __init__(self, size, *, Stream stream=None, policy="huge_first"):
        cdef aclError status
        cdef aclrtStream raw
        cdef size_t wanted = size_checked(size)
        cdef aclrtMemMallocPolicy pages
        cdef void *address = NULL
        if self.address is not NULL or self.uses:
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
        if later_made_room(status):
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
    def from_address(address, size, *, Stream stream=None, owner=None):
        """Return a Buffer of memory that other code frees; the Buffer keeps `owner` alive."""
        cdef size_t start = handle_checked(address, "address", "the address of device memory")
        if start == 0:
            raise ValueError("address must not be 0")
        return buffer_wrap(
            <void *> start, bytes_given(size, "size"), NULL, NULL, NULL, owner, stream, -1)

    cdef int open_check(self) except -1:
        return memory_check(self)

    @property
    def address(self):
        """The device address, as an integer."""
        self.open_check()
        return <size_t> self.address

    @property
    def size(self):
        """The requested bytes."""
        return self.size

    @property
    def nbytes(self):
        """The requested bytes, under the name that NumPy and torch use."""
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
        """True once `close` has run."""
        return self.address is NULL

    def __len__(self):
        return self.size

    def view(self, offset=0, size=None):
        """Return a part of the memory as another Buffer, which keeps a reference to this one.

        Closing the buffer that owns the memory makes all of its views invalid.
        """
        cdef size_t start = bytes_given(offset, "offset")
        if start > self.size:
            raise ValueError(f"offset must be at most {self.size}, not {offset}")
        cdef size_t length = self.size - start if size is None else bytes_given(size, "size")
        self.open_check()                      # not earlier: `__index__` above may close the buffer
        if length > self.size - start:
            raise ValueError(
                f"size must be at most {self.size - start} at offset {offset}, not {size}"
            )
        return buffer_wrap(
            <char *> self.address + start, length, NULL, NULL, NULL, buffer_root(self),
            self.stream, self.device,
        )

    def record_stream(self, stream):
        """Note that work on another stream uses the memory of a pool: see `Pool.record_stream`."""
        cdef Buffer owner = buffer_root(self)
        self.open_check()
        if not hasattr(owner.keeper, "record_stream"):
            raise ValueError("only a pool's Buffer can wait for other streams")
        owner.keeper.record_stream(owner, stream)

    @property
    def __npu_array_interface__(self):
        """The memory as bytes, in the form of CUDA's array interface, with the stream's handle."""
        from acl.pool._dlpack import npu_interface

        return npu_interface(self, (self.size,), "uint8")

    def __dlpack_device__(self):
        """Return DLPack's device type for NPUs (kDLExtDev), and the number of the device."""
        from acl.pool._dlpack import device_of

        return device_of(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return the memory as bytes in a DLPack capsule; see `acl.Array.__dlpack__`."""
        from acl.pool._dlpack import export

        return export(self, (self.size,), "uint8", stream, max_version, dl_device, copy)

    def close(self):
        """Free the memory; a second call does nothing.

        Waits for works that use the memory; for memory of a pool, only for works on other streams
        than the memory's own.  If a call in another thread uses the memory, the end of that call
        frees it.
        """
        memory_close(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        memory_drop(self)

    def __repr__(self):
        return memory_text(self)


cdef size_t bytes_given(object value, str name) except? <size_t> -1:
    """Return a caller's number of bytes; raise an error if it is not one."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number = PyNumber_Index(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{name} must be at least 0 and below 2**63, not {number}")
    return number


cdef size_t size_checked(object size) except 0:
    """Return a size of at least 1 byte; raise an error for other values."""
    if hasattr(size, "__index__") and PyNumber_Index(size) < 1:
        raise ValueError(f"size must be at least 1 byte, not {size}")
    return bytes_given(size, "size")


cdef HostBuffer host_buffer_wrap(
    void *address, size_t size, BufferRelease release, BufferSettle settle, void *owner,
    void *block, object keeper,
):
    cdef HostBuffer buffer = HostBuffer.__new__(HostBuffer)
    buffer.address = address
    buffer.size = size
    buffer.release = release
    buffer.settle = settle
    buffer.owner = owner
    buffer.block = block
    buffer.keeper = keeper
    buffer.made = fork_count
    return buffer


@cython.final
@cython.no_gc_clear
cdef class HostBuffer:
    """Pinned host memory: copies between it and the device can run while the host continues.

    It has the buffer protocol (writable bytes), so functions such as `memoryview`,
    `numpy.frombuffer` and `readinto` use it without a copy.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    """

    def __init__(self, size):
        cdef aclError status
        cdef size_t wanted = size_checked(size)
        cdef void *address = NULL
        if self.address is not NULL or self.uses:
            raise ValueError("the HostBuffer exists already")
        current_ensure(NULL)
        with nogil:
            status = aclrtMallocHost(&address, wanted)
        if later_made_room(status):
            with nogil:
                status = aclrtMallocHost(&address, wanted)
        check(status, "aclrtMallocHost")
        self.address = address
        self.block = address
        self.size = wanted
        self.release = host_free
        self.blocking = True
        self.made = fork_count
        alive_add(1)

    cdef int open_check(self) except -1:
        return memory_check(self)

    @property
    def address(self):
        """The host address, as an integer."""
        self.open_check()
        return <size_t> self.address

    @property
    def size(self):
        """The requested bytes."""
        return self.size

    @property
    def closed(self):
        """True once `close` has run."""
        return self.address is NULL

    def __len__(self):
        return self.size

    def numpy(self, dtype="uint8", shape=None):
        """Return a NumPy array over the memory, without a copy.

        The array keeps the memory alive.
        """
        import numpy
        array = numpy.frombuffer(self, dtype=dtype)
        return array if shape is None else array.reshape(shape)

    @property
    def __array_interface__(self):
        """The memory as bytes, for libraries that do not use the buffer protocol."""
        self.open_check()
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "strides": None,
                "data": (<size_t> self.address, False)}

    def __dlpack_device__(self):
        """Return DLPack's device type of the CPU, because the host can use the memory."""
        from acl.pool._dlpack import device_of

        return device_of(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return the memory as bytes in a DLPack capsule.

        `close` fails while the capsule exists.
        """
        from acl.pool._dlpack import export

        return export(self, (self.size,), "uint8", stream, max_version, dl_device, copy)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.open_check()
        PyBuffer_FillInfo(view, self, self.address, self.size, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def close(self):
        """Free the memory; a second call does nothing.

        Waits for asynchronous copies of the memory, unless its pool can wait for them instead.
        Raises `BufferError` while a memory view or an array uses the memory.
        """
        memory_close(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        memory_drop(self)

    def __repr__(self):
        return memory_text(self)
