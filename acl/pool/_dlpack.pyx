"""DLPack and array interfaces: share device and host memory with other libraries, both ways.

Device memory has DLPack's device type 12 (extensions), which PyTorch uses for backends such as the
NPU's; host memory has that of the CPU.  A capsule keeps the buffer alive until the consumer calls
the deleter, in any thread.

Streams: if the consumer names its stream, that stream waits for an event of the stream that orders
the memory.  Freed memory is not used again before the consumer's stream has done its work on it.
If the consumer names no stream, the host waits, so the memory is ready when the capsule is
returned.  If `from_dlpack` was given a stream, the producer gets its memory back after that stream
has done its work on it.

Nothing here imports NumPy, and nothing is copied unless the consumer asks for it.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pycapsule cimport (
    PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName,
)
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from acl.runtime._buffer cimport (
    Buffer, HostBuffer, buffer_note, buffer_readable, buffer_root, buffer_wrap,
)
from acl.runtime._device cimport current_device, fork_count, leaving
from acl.bind.generated._libacl cimport aclrtStream
from acl.pool._registry cimport handle_of, stream_exists
from acl.runtime._later cimport end_soon
from acl.runtime._stream cimport LEAST_HANDLE, Stream, stream_default
from acl.runtime._work cimport (
    Progress, Work, WorkEnd, work_begin, work_queued, works_check, works_list, works_settle,
)

import threading
from collections import deque

from acl.runtime._tensor import DTYPE_CODES, dtype_name

__all__ = ["device_of", "export", "from_dlpack", "npu_interface"]

cdef enum:
    DEVICE_CPU = 1
    DEVICE_EXTENSION = 12
    FLAG_READ_ONLY = 1
    FLAG_COPIED = 2
    MAJOR = 1                   # MAJOR and MINOR are the version of DLPack that this module exports
    MINOR = 0
    MOST_DIMS = 64              # most dimensions of a tensor that is imported, as in NumPy

cdef struct Tensor:             # DLTensor
    void *data
    int32_t device_type
    int32_t device_id
    int32_t ndim
    uint8_t code
    uint8_t bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset

cdef struct Managed:            # DLManagedTensor
    Tensor tensor
    void *context
    void (*deleter)(Managed *self) noexcept nogil

cdef struct Versioned:          # DLManagedTensorVersioned
    uint32_t major
    uint32_t minor
    void *context
    void (*deleter)(Versioned *self) noexcept nogil
    uint64_t flags
    Tensor tensor

# DLPack's type code of each kind of element.
KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6,
         "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14}
# Events for which consumers' streams wait; `marks_drop` closes them when they are complete.
marks = deque()
marks_lock = threading.Lock()
LETTERS = {"int": "i", "uint": "u", "float": "f", "bfloat": "V", "complex": "c", "bool": "b",
           "float8_e4m3fn": "V", "float8_e5m2": "V", "float8_e8m0fnu": "V"}


def element_of(dtype):
    """Return the kind and the bits of an element, such as ``("float", 16)``."""
    name = dtype_name(dtype)
    if name in KINDS:
        return name, 8                          # bool, and the floats of 8 bits
    kind = name.rstrip("0123456789")
    return kind, int(name[len(kind):])


# --- out ----------------------------------------------------------------------------------------

@cython.no_gc_clear                             # `__dealloc__` needs both
cdef class Lent:
    """A Buffer that no pool frees, until the consumer on a stream calls the deleter."""

    cdef Buffer buffer
    cdef Stream stream              # the consumer's stream

    def __dealloc__(self):
        # The export could only note the work that was queued by then.
        if not leaving and self.buffer.made == fork_count and self.buffer.address is not NULL:
            keeper_note(buffer_root(self.buffer), self.stream)


cdef object lent_of(Buffer buffer, object stream):
    """Return what an exported tensor keeps alive: the Buffer, in a `Lent` if no pool orders it."""
    cdef Lent lent
    if stream is None or stream == -1 or hasattr(buffer_root(buffer).keeper, "record_stream"):
        return buffer
    lent = Lent.__new__(Lent)
    lent.buffer = buffer
    lent.stream = consumers_stream(stream)
    return lent


cdef void keeper_drop(void *keeper) noexcept with gil:
    Py_XDECREF(<PyObject *> keeper)


cdef void managed_delete(Managed *self) noexcept nogil:
    if not leaving:
        keeper_drop(self.context)
    free(self.tensor.shape)
    free(self)


cdef void versioned_delete(Versioned *self) noexcept nogil:
    if not leaving:
        keeper_drop(self.context)
    free(self.tensor.shape)
    free(self)


cdef void on_capsule_end(object capsule) noexcept:
    """Call the tensor's deleter if no consumer has taken the tensor out of the capsule."""
    cdef Managed *old
    cdef Versioned *new
    if PyCapsule_IsValid(capsule, "dltensor"):
        old = <Managed *> PyCapsule_GetPointer(capsule, "dltensor")
        old.deleter(old)
    elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
        new = <Versioned *> PyCapsule_GetPointer(capsule, "dltensor_versioned")
        new.deleter(new)


cdef int tensor_fill(Tensor *tensor, size_t address, device, tuple shape, dtype) except -1:
    cdef int i, count = <int> len(shape)
    cdef int64_t step = 1
    kind, bits = element_of(dtype)
    tensor.data = <void *> address
    tensor.device_type, tensor.device_id = device
    tensor.ndim = count
    tensor.code, tensor.bits, tensor.lanes = KINDS[kind], bits, 1
    tensor.shape = <int64_t *> calloc(2 * count + 1, sizeof(int64_t))
    if tensor.shape is NULL:
        raise MemoryError("host memory for a DLPack tensor")
    tensor.strides = tensor.shape + count
    for i in reversed(range(count)):
        tensor.shape[i] = shape[i]
        tensor.strides[i] = step
        step *= shape[i]
    return 0


cdef object managed_make(object keeper, size_t address, device, tuple shape, dtype):
    cdef Managed *made = <Managed *> calloc(1, sizeof(Managed))
    if made is NULL:
        raise MemoryError("host memory for a DLPack tensor")
    try:
        tensor_fill(&made.tensor, address, device, shape, dtype)
        capsule = PyCapsule_New(made, "dltensor", on_capsule_end)
    except BaseException:
        free(made.tensor.shape)
        free(made)
        raise
    made.deleter = managed_delete
    made.context = <void *> keeper
    Py_INCREF(keeper)
    return capsule


cdef object versioned_make(object keeper, size_t address, device, tuple shape, dtype, bint copied):
    cdef Versioned *made = <Versioned *> calloc(1, sizeof(Versioned))
    if made is NULL:
        raise MemoryError("host memory for a DLPack tensor")
    try:
        tensor_fill(&made.tensor, address, device, shape, dtype)
        capsule = PyCapsule_New(made, "dltensor_versioned", on_capsule_end)
    except BaseException:
        free(made.tensor.shape)
        free(made)
        raise
    made.major, made.minor = MAJOR, MINOR
    made.flags = FLAG_COPIED if copied else 0
    made.deleter = versioned_delete
    made.context = <void *> keeper
    Py_INCREF(keeper)
    return capsule


def device_of(buffer):
    """Return DLPack's device type and number of a Buffer or HostBuffer."""
    if isinstance(buffer, HostBuffer):
        return DEVICE_CPU, 0
    ordinal = (<Buffer?> buffer).device
    return DEVICE_EXTENSION, current_device() if ordinal < 0 else ordinal


def marks_drop():
    """Close the events that are complete: an event must exist while a stream waits for it.

    If another thread is in this function, return at once: that thread or a later call closes them.
    """
    if not marks_lock.acquire(blocking=False):
        return
    try:
        while marks and marks[0].query():
            marks.popleft().close()
    finally:
        marks_lock.release()


cdef list progresses_of(Buffer buffer):
    """Return the Progress of each stream that may use the memory of a buffer.

    These are the buffer's own stream, and the streams of the works on the memory.  A pool's buffer
    without a stream belongs to the default stream.  Streams that have ended are left out.
    """
    cdef Buffer root = buffer_root(buffer)
    cdef list found = []
    if buffer.stream is not None:
        found.append(buffer.stream.progress)
    elif getattr(root.keeper, "record_stream", None) is not None:
        found.append(stream_default().progress)
    for work in works_list(root.pending):
        found.append((<Work> work).progress)
    return [one for one in dict.fromkeys(found) if not (<Progress> one).ended]


cdef Stream consumers_stream(object stream):
    """Return the consumer's stream, given as a Stream or a handle; 0 is the default stream."""
    cdef aclrtStream raw = handle_of(stream)    # raises if the stream is closed or not a handle
    if isinstance(stream, Stream):
        return stream
    if raw is not NULL:
        stream_exists(raw)
    return Stream.from_handle(stream)


def hand_over(Buffer buffer not None, stream):
    """Let `stream` wait for the work on the memory; None: wait on the host; -1: do nothing."""
    cdef Progress progress
    cdef Stream other
    cdef Buffer root = buffer_root(buffer)
    if stream == -1:
        return
    if stream is None:
        for progress in progresses_of(buffer):
            progress.settle()
        buffer_readable(buffer, True)
        return
    buffer_readable(buffer, False)
    other = consumers_stream(stream)
    busy = progresses_of(buffer)
    marks_drop()
    for progress in busy:
        if progress is not other.progress:
            mark = Stream.from_handle(<size_t> progress.raw).record() if (
                progress.raw is not NULL) else stream_default().record()
            other.wait_event(mark)
            marks.append(mark)
    if buffer.stream is None or buffer.stream.progress is not other.progress:
        keeper_note(root, other)


cdef int host_ready(HostBuffer buffer) except -1:
    """Wait for this package's asynchronous copies of the memory.  Raise if one of them failed."""
    works_settle(buffer.pending)
    return works_check(buffer.pending)


cdef int keeper_note(Buffer root, Stream stream) except -1:
    """Note that the memory may be used again only after the stream's work that is queued now."""
    cdef Work work
    if hasattr(root.keeper, "record_stream"):
        root.keeper.record_stream(root, stream)
    else:
        work = work_begin(stream.progress, "the work of a DLPack consumer")
        work_queued(work)
        buffer_note(root, work)
    return 0


def copied(buffer, device):
    """Return a copy of a buffer's memory on `device`, a pair of DLPack's device type and number."""
    from acl.runtime._array import stream_memory
    from acl.runtime._copy import copy

    if device[0] == DEVICE_CPU:
        made = HostBuffer(max(buffer.size, 1))
    elif device == device_of(buffer):
        made = stream_memory(buffer.size, buffer.stream or stream_default())
    else:
        raise BufferError(f"dl_device must be (1, 0) or {device_of(buffer)}, not {device}")
    copy(made, buffer, nbytes=buffer.size)
    return made


cdef int export_check(object stream, object max_version, object dl_device, object copy) except -1:
    """Raise if an argument of `__dlpack__` has a wrong type."""
    if isinstance(stream, bool) or not (stream is None or isinstance(stream, (Stream, int))):
        kind = type(stream).__name__
        raise TypeError(f"stream must be a Stream, a handle or None, not {kind}")
    for name, pair in (("max_version", max_version), ("dl_device", dl_device)):
        if pair is not None and not (isinstance(pair, tuple) and len(pair) == 2
                                     and all(isinstance(number, int) for number in pair)):
            raise TypeError(f"{name} must be a pair of ints or None, not {pair!r}")
    if copy is not None and not isinstance(copy, bool):
        raise TypeError(f"copy must be True, False or None, not {copy!r}")
    return 0


def export(buffer, tuple shape, dtype, stream, max_version, dl_device, copy):
    """Return a capsule of a buffer's memory, as `__dlpack__` does.

    Parameters
    ----------
    buffer : Buffer or HostBuffer
        The memory.
    shape, dtype
        Shape and element type of its contents.
    stream : Stream, int or None
        The consumer's stream, for device memory.  None: the host waits; 0: the default stream; -1:
        nothing is ordered.
    max_version : tuple of int, optional
        The newest DLPack version that the consumer supports; None: one before 1.0.
    dl_device : tuple of int, optional
        Where the memory should be: its own device, or ``(1, 0)`` for a copy on the host.
    copy : bool, optional
        True: copy always; False: raise `BufferError` rather than copy; None: copy only if the
        device differs.
    """
    export_check(stream, max_version, dl_device, copy)
    size = buffer.address and buffer.size       # `address` raises if the buffer is closed
    device = device_of(buffer) if dl_device is None else dl_device
    moves = device != device_of(buffer)
    if moves and copy is False:
        raise BufferError(f"the memory is on device {device_of(buffer)}: copy must not be False")
    if isinstance(buffer, HostBuffer) and stream not in (None, -1):
        raise BufferError("stream must be None for host memory")
    taken = bool(copy) or moves
    if taken:
        buffer = copied(buffer, device)
    if isinstance(buffer, Buffer):
        hand_over(buffer, stream)
    elif stream is None:
        host_ready(buffer)
    # A HostBuffer with an open memoryview cannot be closed, so the consumer's memory stays valid.
    keeper = memoryview(buffer) if isinstance(buffer, HostBuffer) else lent_of(buffer, stream)
    address = buffer.address if size else 0
    if max_version is None or max_version[0] < MAJOR:
        return managed_make(keeper, address, device, shape, dtype)
    return versioned_make(keeper, address, device, shape, dtype, taken)


def npu_interface(Buffer buffer not None, tuple shape, dtype):
    """Return a description of device memory, in the form of CUDA's array interface, version 3."""
    kind, bits = element_of(dtype)
    order = "|" if bits == 8 else "<"
    return {
        "shape": shape, "typestr": f"{order}{LETTERS[kind]}{bits // 8}", "strides": None,
        "data": (<size_t> buffer.address if buffer.open_check() == 0 else 0, False), "version": 3,
        "stream": None if buffer.stream is None else buffer.stream.handle,
        "device": buffer.device,
    }


# --- in -----------------------------------------------------------------------------------------

@cython.final
cdef class ForeignEnd(WorkEnd):
    """The end of the use of another library's tensor: calls its deleter after the stream's work."""

    cdef Managed *managed
    cdef Versioned *versioned

    cdef int finish(self) except -1:
        if self.managed is not NULL and self.managed.deleter is not NULL:
            self.managed.deleter(self.managed)
        if self.versioned is not NULL and self.versioned.deleter is not NULL:
            self.versioned.deleter(self.versioned)
        return 0


@cython.no_gc_clear
cdef class Foreign:
    """Another library's tensor, which is kept until this package no longer uses it."""

    cdef Managed *managed
    cdef Versioned *versioned
    cdef Stream stream              # the stream of this package that uses the memory, or None

    def __dealloc__(self):
        cdef ForeignEnd end = ForeignEnd.__new__(ForeignEnd)
        end.managed = self.managed
        end.versioned = self.versioned
        if self.stream is not None and not leaving:
            # The producer may reuse the memory as soon as the deleter is called.  So it is called
            # only after the work that is queued on the stream now.
            end.works = work_begin(self.stream.progress, "the use of a DLPack tensor")
            work_queued(<Work> end.works)
        end_soon(end)

    cdef Tensor *tensor(self) noexcept:
        return &self.versioned.tensor if self.managed is NULL else &self.managed.tensor


cdef Buffer buffer_of(Foreign foreign):
    """Return the Buffer from which this module exported the tensor; None: another one did."""
    cdef void *keeper = NULL
    if foreign.managed is not NULL and foreign.managed.deleter is managed_delete:
        keeper = foreign.managed.context
    elif foreign.versioned is not NULL and foreign.versioned.deleter is versioned_delete:
        keeper = foreign.versioned.context
    if keeper is NULL:
        return None
    if isinstance(<object> keeper, Lent):
        return (<Lent> keeper).buffer
    return <Buffer> keeper if isinstance(<object> keeper, Buffer) else None


cdef Foreign foreign_take(object capsule):
    cdef Foreign foreign = Foreign.__new__(Foreign)
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        foreign.versioned = <Versioned *> PyCapsule_GetPointer(capsule, "dltensor_versioned")
        PyCapsule_SetName(capsule, "used_dltensor_versioned")
        if foreign.versioned.major != MAJOR:
            raise BufferError(f"DLPack {foreign.versioned.major} is not known here, only {MAJOR}")
        if foreign.versioned.flags & FLAG_READ_ONLY:
            raise BufferError("the tensor is read-only, and an Array is not")
    elif PyCapsule_IsValid(capsule, "dltensor"):
        foreign.managed = <Managed *> PyCapsule_GetPointer(capsule, "dltensor")
        PyCapsule_SetName(capsule, "used_dltensor")
    else:
        raise TypeError("__dlpack__ must return a capsule with an unused tensor")
    return foreign


cdef int tensor_check(Tensor *tensor) except -1:
    """Raise if the producer's description of its tensor is invalid.  No address in it is read."""
    cdef int i
    if not 0 <= tensor.ndim <= MOST_DIMS:
        raise BufferError(f"ndim must be from 0 to {MOST_DIMS}, not {tensor.ndim}")
    if tensor.ndim > 0 and tensor.shape is NULL:
        raise BufferError(f"the tensor must have a shape, as its ndim is {tensor.ndim}")
    for i in range(tensor.ndim):
        if tensor.shape[i] < 0:
            raise BufferError(f"shape[{i}] must be at least 0, not {tensor.shape[i]}")
    if tensor.device_id < 0:
        raise BufferError(f"device_id must be at least 0, not {tensor.device_id}")
    return 0


cdef size_t tensor_bytes(Tensor *tensor, str dtype) except? <size_t> -1:
    """Return the tensor's bytes.  Raise if they are too many, or if `data` cannot be an address."""
    from acl.runtime._array import Array

    nbytes = Array.nbytes_of(tuple([tensor.shape[i] for i in range(tensor.ndim)]), dtype)
    if nbytes >= 1 << 63 or tensor.byte_offset >= 1 << 63:
        raise BufferError(f"the tensor must have less than 2**63 bytes, not {nbytes} from "
                          f"{tensor.byte_offset} on")
    if nbytes and <size_t> tensor.data < LEAST_HANDLE:
        raise BufferError(
            f"data must be the address of device memory, not {<size_t> tensor.data:#x}")
    return nbytes


cdef tuple shape_of(Tensor *tensor):
    """Return the shape.  Raise if the elements are not contiguous in C's order."""
    cdef int i
    cdef int64_t step = 1
    for i in range(tensor.ndim):
        if tensor.shape[i] == 0:                # the tensor has no elements: any strides are valid
            return tuple(tensor.shape[i] for i in range(tensor.ndim))
    for i in reversed(range(tensor.ndim)):
        if tensor.strides is not NULL and tensor.shape[i] != 1 and tensor.strides[i] != step:
            raise BufferError("the tensor must be contiguous, in C's order")
        step *= tensor.shape[i]
    return tuple(tensor.shape[i] for i in range(tensor.ndim))


cdef str dtype_of(Tensor *tensor):
    names = {code: kind for kind, code in KINDS.items()}
    kind = names.get(tensor.code, "")
    name = kind if kind in DTYPE_CODES and tensor.bits == 8 else f"{kind}{tensor.bits}"
    if name not in DTYPE_CODES or tensor.lanes != 1:
        raise BufferError(
            f"the tensor's elements, of DLPack's code {tensor.code}, {tensor.bits} bits and "
            f"{tensor.lanes} lanes, must be one of {', '.join(DTYPE_CODES)}")
    return name


cdef object capsule_of(object source, Stream stream):
    """Return the capsule of `source.__dlpack__`, in the newest version that both sides know."""
    handle = None if stream is None else stream.handle
    if not hasattr(source, "__dlpack__"):
        kind = type(source).__name__
        raise TypeError(f"source must have __dlpack__, or be a capsule of it, not {kind}")
    try:
        return source.__dlpack__(stream=handle, max_version=(MAJOR, MINOR))
    except TypeError:                           # the producer knows only DLPack before 1.0
        return source.__dlpack__(stream=handle)


def from_dlpack(source, *, Stream stream=None):
    """Return another library's device memory as an `Array`, without a copy.

    Parameters
    ----------
    source
        An object with `__dlpack__` whose memory is on a device, or a capsule from it.
    stream : Stream, optional
        Our stream that will use the memory.  The producer makes it wait for the producer's own
        work.  When the array is closed, the memory is returned to the producer once the stream has
        done the work queued until then.  If None, the producer is called with ``stream=None``.
        torch_npu orders nothing: wait for its stream.

    Returns
    -------
    Array
        It keeps the producer's memory alive until it is closed or dropped.
    """
    from acl.runtime._array import Array

    cdef Buffer buffer
    cdef Buffer mine
    cdef Foreign foreign
    cdef Tensor *tensor
    foreign = foreign_take(source if PyCapsule_CheckExact(source) else capsule_of(source, stream))
    tensor = foreign.tensor()
    if tensor.device_type != DEVICE_EXTENSION:
        raise BufferError(f"the memory must be an NPU's (device type {DEVICE_EXTENSION}), "
                          f"not of type {tensor.device_type}")
    tensor_check(tensor)
    dtype = dtype_of(tensor)
    nbytes = tensor_bytes(tensor, dtype)
    shape = shape_of(tensor)
    address = <size_t> tensor.data + tensor.byte_offset
    mine = buffer_of(foreign)
    if mine is not None:
        # Both arrays use the same root buffer.  It stores the work that is queued through either of
        # them.
        if stream is not None:
            keeper_note(buffer_root(mine), stream)
        buffer = buffer_wrap(<void *> <size_t> (address or 1), nbytes, NULL, NULL, NULL,
                             buffer_root(mine), mine.stream if stream is None else stream,
                             tensor.device_id)
        return Array.of(buffer, shape, dtype)
    foreign.stream = stream
    buffer = buffer_wrap(<void *> <size_t> (address or 1), nbytes, NULL, NULL, NULL, foreign,
                         stream, tensor.device_id)
    return Array.of(buffer, shape, dtype)
