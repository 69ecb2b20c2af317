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


# --- what both kinds do -------------------------------------------------------------------------
# Fused, not inherited: with a base class there would be no free list.

ctypedef fused Memory:
    Buffer
    HostBuffer


cdef int memory_check(Memory memory) except -1:
    if memory.address is NULL:
        raise ValueError(f"the {type(memory).__name__} is closed")
    if memory.made != fork_count:
        forked_raise(memory)
    return 0


cdef int memory_settle(Memory memory) noexcept:
    """Before the memory goes back: a view tells its buffer; a pool has an order of its own."""
    pending = memory.pending
    memory.pending = None
    if memory.release is NULL and isinstance(memory.keeper, Buffer):
        for stream in pending if isinstance(pending, list) else [pending]:
            (<Buffer> memory.keeper).pending = pending_add((<Buffer> memory.keeper).pending, stream)
        return 0
    if Memory is Buffer:
        if memory.blocking or pending is not memory.stream:
            pending_settle(pending)
    elif memory.settle is NULL:
        pending_settle(pending)
    else:
        memory.settle(memory.owner, memory.block, pending)
    return 0


cdef inline void memory_give_back(Memory memory) noexcept:
    """Hand the memory to its owner; the buffer is closed from here on."""
    cdef BufferRelease release = memory.release
    cdef void *owner = memory.owner
    cdef void *block = memory.block
    memory.address = NULL
    if memory.pending is not None:
        memory_settle(memory)
    if release is NULL:
        return
    if memory.blocking:
        alive_add(-1)
        with nogil:
            release(owner, block)
    else:
        release(owner, block)


cdef int memory_close(Memory memory) except -1:
    """What `close` does; not again if it is closed."""
    if memory.address is NULL:
        return 0
    if memory.made != fork_count:
        forked_raise(memory)
    if Memory is HostBuffer:
        if memory.exports:
            raise BufferError(f"{memory.exports} views of the HostBuffer are alive")
    memory_give_back(memory)
    memory.keeper = None
    return 0


cdef inline void memory_drop(Memory memory) noexcept:
    """The last reference is gone."""
    if memory.address is not NULL and memory.made == fork_count and (
            not leaving or memory_outlasts(memory)):
        memory_give_back(memory)


cdef bint memory_outlasts(Memory memory) noexcept:
    """At the interpreter's exit: whether a pool may still take the memory back, without a wait.

    Other threads work on until they are stopped; what they drop must not be missing meanwhile.
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

    Made directly, its memory comes from the driver (`aclrtMalloc`); a pool's `alloc` makes the same
    type in a few nanoseconds.

    Parameters
    ----------
    size : int
        Bytes, at least 1.
    stream : Stream, optional
        The stream that orders the memory's use: synchronous copies are queued there and waited for.
    policy : {"huge_first", "huge_only", "normal_only"}
        Which pages to take, as `aclrtMalloc` is told.
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
        return memory_check(self)

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

    def record_stream(self, stream):
        """Work on another stream uses the memory, which is a pool's: see `Pool.record_stream`."""
        cdef Buffer owner = self
        self.open_check()
        while isinstance(owner.keeper, Buffer):         # a view's memory is its buffer's
            owner = <Buffer> owner.keeper
        if not hasattr(owner.keeper, "record_stream"):
            raise ValueError("only a pool's Buffer can wait for other streams")
        owner.keeper.record_stream(owner, stream)

    @property
    def __npu_array_interface__(self):
        """The memory as bytes, in the form of CUDA's array interface; the stream as a handle."""
        from acl._dlpack import npu_interface

        return npu_interface(self, (self.size,), "uint8")

    def __dlpack_device__(self):
        """The device type of DLPack's extensions, and the ordinal."""
        from acl._dlpack import device_of

        return device_of(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The memory as bytes, in a DLPack capsule; see `acl.Array.__dlpack__`."""
        from acl._dlpack import export

        return export(self, (self.size,), "uint8", stream, max_version, dl_device, copy)

    def close(self):
        """Give the memory back; a second call does nothing.  Waits for copies of it in flight."""
        memory_close(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        memory_drop(self)

    def __repr__(self):
        return memory_text(self)


cdef size_t size_checked(object size) except 0:
    """A size in bytes, at least 1."""
    if not hasattr(size, "__index__"):
        raise TypeError(f"size must be an int, not {type(size).__name__}")
    size = PyNumber_Index(size)
    if size < 1:
        raise ValueError(f"size must be at least 1 byte, not {size}")
    return size


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

    @property
    def __array_interface__(self):
        """The memory as bytes, for whoever does not take the buffer protocol."""
        self.open_check()
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "strides": None,
                "data": (<size_t> self.address, False)}

    def __dlpack_device__(self):
        """The CPU's: any program on the host may use the memory."""
        from acl._dlpack import device_of

        return device_of(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """The memory as bytes, in a DLPack capsule; it can't be closed while the capsule lives."""
        from acl._dlpack import export

        return export(self, (self.size,), "uint8", stream, max_version, dl_device, copy)

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
        memory_close(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        memory_drop(self)

    def __repr__(self):
        return memory_text(self)
