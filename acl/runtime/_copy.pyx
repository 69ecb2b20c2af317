"""Copies between host and device, and fills, of whole buffers, parts of them, and arrays.

A synchronous copy is done when the call returns.  If a buffer belongs to a stream, as a pool's
buffers do, the copy is queued on that stream, and the call waits for it.  So the copy cannot
overtake work that is queued there.  An asynchronous copy needs a stream and pinned host memory
(`HostBuffer`, or an array over it).  With other host memory the call waits, because the runtime
does not guarantee that such a copy is queued.

Each queued copy is a `Work` of its stream.  Before the copy is queued, its Work is stored in the
objects that own the memory of its target and its source.  The Work stays there until a later work
of its stream replaces it, or until it is known to be done.  Reading memory raises an error if a
work that wrote the memory has failed.

Target or source can be any contiguous object with the buffer protocol; it is used in place.  A copy
does not make one stream wait for another; use `Stream.wait_event` for that.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_IsContiguous,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from acl.runtime._buffer cimport (
    Buffer, HostBuffer, buffer_note, buffer_readable, buffer_root, buffer_use, buffer_written,
    bytes_given, host_note, host_use,
)
from acl.runtime._device cimport current_ensure
from acl.bind._error cimport check
from acl.bind.generated._libacl cimport (
    ACL_MEMCPY_DEVICE_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_HOST_TO_HOST,
    aclError,
    aclrtMemcpy,
    aclrtMemcpy2d,
    aclrtMemcpy2dAsync,
    aclrtMemcpyAsync,
    aclrtMemcpyKind,
    aclrtMemset,
    aclrtMemsetAsync,
    aclrtStream,
)
from acl.runtime._stream cimport Stream, stream_default, stream_raw
from acl.runtime._work cimport (
    Work, left_of, until_of, work_begin, work_queued, works_add, works_list, works_settle,
)
from libc.stdint cimport int32_t, int64_t

__all__ = ["acopy", "copy", "copy_2d", "copy_async", "fill", "to_bytes", "to_numpy"]


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Side:
    """The target or the source of a copy, with the objects that the copy keeps alive."""

    cdef char *address
    cdef size_t size
    cdef bint on_device
    cdef Buffer device          # the buffer that owns the device memory, or None
    cdef Stream stream          # the stream that orders the device memory, or None
    cdef HostBuffer pinned      # the HostBuffer that owns the memory, or None
    cdef PyObject **slot        # variable for the works on an array in pinned memory, or NULL
    cdef Py_buffer view         # the memory of any other host object; valid if `has_view`
    cdef bint has_view
    cdef bint is_typed          # the side is an Array; its elements have the machine's byte order

    def __dealloc__(self):
        if self.has_view:
            PyBuffer_Release(&self.view)
        if self.device is not None:
            buffer_use(self.device, -1)
        if self.pinned is not None:
            host_use(self.pinned, -1)


cdef int pinned_find(Side side, object thing) except -1:
    """Set `pinned` or `slot` if an array or memory view uses pinned memory."""
    last = thing
    while thing is not None and not isinstance(thing, HostBuffer):
        last = thing
        thing = thing.obj if isinstance(thing, memoryview) else getattr(thing, "base", None)
    if thing is not None:
        side_pin(side, <HostBuffer> thing)
    if thing is None and array_pending is not NULL:
        side.slot = array_pending(last)
    return 0


cdef int side_pin(Side side, HostBuffer buffer) except -1:
    side.pinned = buffer
    host_use(buffer, 1)
    return 0


cdef Side array_side(object thing, str name):
    """Return the side of an Array; raise TypeError if `thing` is not an Array."""
    from acl.runtime._array import Array

    cdef Side side
    if not isinstance(thing, Array):
        raise TypeError(
            f"{name} must be a Buffer, an Array, a HostBuffer, or an object with the buffer "
            f"protocol, not {type(thing).__name__}")
    side = side_of(thing.buffer, True, name)
    side.size = thing.nbytes
    side.is_typed = True
    return side


def content_of(source, what):
    """Return a copy of `source`: the content of a file, which the caller gave instead of a path."""
    try:
        return bytes(memoryview(source))
    except TypeError:                          # raised by memoryview; bytes(3) would be three zeros
        kind = type(source).__name__
        raise TypeError(f"source must be a path or {what} content, not {kind}") from None


cdef bint has_objects(const char *form) noexcept:
    """Return True if a format string of the buffer protocol has Python objects as elements."""
    cdef bint in_name = False
    while form is not NULL and form[0] != 0:
        if form[0] == c":":
            in_name = not in_name
        elif form[0] == c"O" and not in_name:
            return True
        form += 1
    return False


cdef Side side_of(object thing, bint writable, str name):
    cdef Side side = Side.__new__(Side)
    cdef Buffer buffer
    if isinstance(thing, Buffer):
        buffer = <Buffer> thing
        buffer.open_check()
        side.device = buffer_root(buffer)
        buffer_use(side.device, 1)
        side.stream = buffer.stream
        side.address = <char *> buffer.address
        side.size = buffer.size
        side.on_device = True
        return side
    if isinstance(thing, HostBuffer):
        (<HostBuffer> thing).open_check()
        side_pin(side, <HostBuffer> thing)
        side.address = <char *> side.pinned.address
        side.size = side.pinned.size
        return side
    flags = PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0)
    try:
        PyObject_GetBuffer(thing, &side.view, flags)
    except (BufferError, ValueError) as error:
        wanted = "writable and contiguous" if writable else "contiguous"
        raise ValueError(f"{name} must be {wanted}: {error}") from None
    except TypeError:
        return array_side(thing, name)
    side.has_view = True
    if has_objects(side.view.format):
        raise TypeError(f"{name} must be plain memory; its elements are Python objects")
    side.address = <char *> side.view.buf
    side.size = <size_t> side.view.len      # the length is never negative
    pinned_find(side, thing)
    return side


cdef int order_check(Side side, Side other, str name) except -1:
    """Raise an error if a copy would change the order of the elements, or their byte order."""
    if not (side.has_view and (other.is_typed or other.has_view)):
        return 0
    if side.view.ndim > 1 and not PyBuffer_IsContiguous(&side.view, b"C") and not (
            other.has_view and PyBuffer_IsContiguous(&other.view, b"F")):
        raise ValueError(f"{name} must be contiguous in C's order, as the other side is")
    if (other.is_typed and side.view.itemsize > 1 and side.view.format is not NULL
            and side.view.format[0] in b">!"):
        raise ValueError(f"{name} must have the machine's byte order, not that of "
                         f"{(<bytes> side.view.format).decode()!r}")
    return 0


cdef int side_part(Side side, object given, str name) except -1:
    """Move the start of a side forward by `given` bytes."""
    cdef size_t offset = bytes_given(given, name)
    if offset > side.size:
        raise ValueError(f"{name} must be at most {side.size}, not {offset}")
    side.address += offset
    side.size -= offset
    return 0


cdef aclrtMemcpyKind kind_of(Side target, Side source) noexcept:
    if target.on_device:
        return ACL_MEMCPY_DEVICE_TO_DEVICE if source.on_device else ACL_MEMCPY_HOST_TO_DEVICE
    return ACL_MEMCPY_DEVICE_TO_HOST if source.on_device else ACL_MEMCPY_HOST_TO_HOST


cdef bint is_pageable(Side side) noexcept:
    return not side.on_device and side.pinned is None and side.slot is NULL


cdef bint is_synchronous(Side to, Side of) noexcept:
    """Return True if the runtime cannot queue the copy: pageable memory, or from host to host."""
    return is_pageable(to) or is_pageable(of) or not (to.on_device or of.on_device)


cdef Stream stream_of(Stream given, Side target, Side source):
    """Return the stream of a copy: `given`, else the target's or source's if it is open, else None.
    """
    cdef aclrtStream raw
    if given is not None:
        stream_raw(given, &raw)                 # raises an error if the stream is closed
        return given
    if is_open(target.stream):
        return target.stream
    return source.stream if source is not None and is_open(source.stream) else None


cdef bint is_open(Stream stream) noexcept:
    """Return True if a stream is open.  A closed stream has no work left to wait for."""
    return stream is not None and not stream.is_closed


cdef object works_of(Side side):
    if side.device is not None:
        return side.device.pending
    if side.pinned is not None:
        return side.pinned.pending
    return None if side.slot is NULL or side.slot[0] is NULL else <object> side.slot[0]


cdef int wait_before(
    Stream stream, Side target, Side source, bint pageable, int64_t until
) except -1:
    """Wait for earlier work on the memory, before a synchronous copy on `stream`.

    Wait also for earlier works of this package on `stream`, so that an error names the work that
    failed.  If `pageable`, the copy will not be queued on the stream; then wait for all work of the
    stream.  Raise an error if a work that wrote the source's device memory has failed.
    """
    cdef Side side
    for side in (target, source):
        if side is not None:
            if is_open(side.stream) and side.stream is not stream:
                side.stream.progress.settle(until)
            works_settle(works_of(side), until)
    if stream is not None and (pageable or stream.progress.queued > stream.progress.done):
        stream.progress.settle(until)
    if source is not None and source.device is not None:
        buffer_readable(source.device, True, until)
    return 0


cdef int slot_set(PyObject **slot, object pending) noexcept:
    """Store `pending` (NULL for None) in a C variable that owns a reference to its object."""
    cdef PyObject *before = slot[0]
    if pending is None:
        slot[0] = NULL
    else:
        Py_INCREF(pending)
        slot[0] = <PyObject *> pending
    Py_XDECREF(before)
    return 0


cdef int side_note(Side side, Work work) except -1:
    """Store in the object that owns a side's memory that a work uses the memory."""
    if side is None:
        return 0
    if side.device is not None:
        return buffer_note(side.device, work)
    if side.pinned is not None:
        return host_note(side.pinned, work)
    while side.slot is not NULL:
        before = works_of(side)
        after = works_add(before, work)
        if works_of(side) is before:            # as in `memory_note`
            slot_set(side.slot, after)
            break
    return 0


cdef Work work_open(Side target, Side source, Stream stream, str what):
    """Return a new work that the caller will queue.

    Store it in the owners of both sides' memory.
    """
    cdef Work work = work_begin(stream.progress, what)
    try:
        side_note(target, work)
        side_note(source, work)
    except BaseException:
        work_queued(work)
        raise
    return work


cdef int side_wrote(Side target, Work work, size_t count) except -1:
    """Store in the target's buffer that a queued work writes `count` bytes of it."""
    if target.device is not None:
        buffer_written(target.device, work, count == target.device.size)
    return 0


cdef int work_wait(Work work, Stream stream, int64_t until) except -1:
    """Wait for a work that was just queued; raise its error if it failed."""
    error = stream.progress.wait(left_of(until), work.number)
    if error is not None:
        work.told()
        raise error
    return 0


cdef size_t count_of(Side target, Side source, object nbytes) except? 0:
    """Return how many bytes to copy.

    Raise an error if a side is too short or `order_check` fails.
    """
    order_check(target, source, "target")
    order_check(source, target, "source")
    cdef size_t count = source.size if nbytes is None else bytes_given(nbytes, "nbytes")
    if count > source.size:
        raise ValueError(f"nbytes must be at most the source's {source.size}, not {count}")
    if count > target.size:
        raise ValueError(f"the target must have room for {count} bytes, not {target.size}")
    return count


cdef Work copy_queue(Side target, Side source, size_t count, Stream stream):
    cdef aclError status
    cdef aclrtStream raw
    cdef aclrtMemcpyKind kind = kind_of(target, source)
    cdef Work work
    stream_raw(stream, &raw)
    work = work_open(target, source, stream, "a copy")
    with nogil:
        status = aclrtMemcpyAsync(target.address, target.size, source.address, count, kind, raw)
    work_queued(work)
    check(status, "aclrtMemcpyAsync")
    side_wrote(target, work, count)
    return work


cdef int copy_now(Side target, Side source, size_t count) except -1:
    cdef aclError status
    cdef aclrtMemcpyKind kind = kind_of(target, source)
    with nogil:
        status = aclrtMemcpy(target.address, target.size, source.address, count, kind)
    check(status, "aclrtMemcpy")
    return side_fresh(target, count)


cdef int side_fresh(Side side, size_t count) except -1:
    """Forget failed writers of a side's memory if a finished copy has written all of the memory."""
    if side.device is not None and count == side.device.size:
        side.device.writers = None
    return 0


cdef int copy_wait(
    Side target, Side source, size_t count, Stream stream, int64_t until
) except -1:
    """Copy in the stream's order and wait for the copy.

    If the runtime cannot queue the copy, wait for the stream's work first, then copy.
    """
    current_ensure(NULL if stream is None else stream.context)
    wait_before(stream, target, source, is_synchronous(target, source), until)
    if stream is None or is_synchronous(target, source):
        return copy_now(target, source, count)
    return work_wait(copy_queue(target, source, count, stream), stream, until)


def copy(
    target, source, *, target_offset=0, source_offset=0, nbytes=None, Stream stream=None,
    timeout_ms=None,
):
    """Copy memory and wait until it is done.

    Parameters
    ----------
    target, source : Buffer, Array, HostBuffer, or any contiguous object with the buffer protocol
        The target must be writable.  The bytes of an Array are copied without conversion.
    target_offset, source_offset : int
        Bytes to skip at the start of the target and of the source.
    nbytes : int, optional
        Bytes to copy.  Default: all of the source after `source_offset`.
    stream : Stream, optional
        The stream of the copy.  Default: the target's stream, else the source's, if one has a
        stream.
    timeout_ms : int, optional
        Milliseconds to wait at most.  Then `acl.TimeoutError` is raised; the copy may still run.
    """
    cdef int64_t until = until_of(timeout_ms)
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    side_part(to, target_offset, "target_offset")
    side_part(of, source_offset, "source_offset")
    cdef size_t count = count_of(to, of, nbytes)
    copy_wait(to, of, count, stream_of(stream, to, of), until)


def copy_async(
    target, source, Stream stream=None, *, target_offset=0, source_offset=0, nbytes=None,
):
    """Queue a copy on a stream, and return at once if the host side is pinned.

    The target or the source may be closed before the copy is done: the memory is not used again
    until then.  If the host memory is not pinned, the call returns when the copy is done.  The
    parameters are those of `copy`.  If `stream` is not given, the target's stream is used, else the
    source's, else the default stream.
    """
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    side_part(to, target_offset, "target_offset")
    side_part(of, source_offset, "source_offset")
    copy_start(to, of, count_of(to, of, nbytes), stream)


def acopy(target, source, *, timeout=None):
    """Copy as `copy` does, in a coroutine without blocking the event loop; `timeout` is in seconds.

    A thread of the event loop copies host memory that is not pinned, because the runtime cannot
    queue such a copy.
    """
    from acl.execution._await import memory_copy

    return memory_copy(target, source, timeout)


cdef Work copy_start(Side to, Side of, size_t count, Stream stream):
    """Queue a copy and return its Work.

    If the runtime cannot queue it, copy now and return None.
    """
    cdef Stream queue = stream_of(stream, to, of)
    if queue is None:
        queue = stream_default()
    if is_synchronous(to, of):
        copy_wait(to, of, count, queue, -1)
        return None
    if of.device is not None:
        buffer_readable(of.device, False)
    return copy_queue(to, of, count, queue)


def copy_work(target, source, Stream stream=None):
    """Queue a copy of all of the source and return its Work.

    Return None, without a copy, if the runtime cannot queue it, or if neither the caller nor a side
    has a stream.  If other streams have works on the memory, the call waits for them first.
    """
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    cdef Side side
    cdef size_t count = count_of(to, of, None)
    cdef Stream queue = stream_of(stream, to, of)
    if queue is None or is_synchronous(to, of):
        return None
    for side in (to, of):
        if is_open(side.stream) and side.stream.progress is not queue.progress:
            side.stream.progress.settle()
        for work in works_list(works_of(side)):
            if (<Work> work).progress is not queue.progress and not (<Work> work).over():
                (<Work> work).progress.settle()
    return copy_start(to, of, count, queue)


cdef int pitch_check(Side side, size_t pitch, size_t width, size_t height, str name) except -1:
    """Raise an error if `height` rows of `width` bytes, `pitch` apart, do not fit into a side."""
    if width > pitch:
        raise ValueError(f"{name}_pitch must be at least the width {width}, not {pitch}")
    # Divide instead of multiplying, because the product may overflow.
    if width > side.size or (height > 1 and (side.size - width) // (height - 1) < pitch):
        raise ValueError(
            f"{name} must have room for {height} rows of {width} bytes {pitch} apart, "
            f"not {side.size} bytes"
        )
    return 0


cdef Work copy_rows(
    Side to, size_t to_pitch, Side of, size_t of_pitch, size_t width, size_t height, Stream stream
):
    """Queue a copy of rows on a stream and return its Work; if `stream` is None, copy at once."""
    cdef aclError status
    cdef aclrtStream raw
    cdef aclrtMemcpyKind kind = kind_of(to, of)
    cdef Work work
    cdef size_t count = width * height if width == to_pitch else 0  # 0: there are gaps between rows
    if stream is None:
        with nogil:
            status = aclrtMemcpy2d(
                to.address, to_pitch, of.address, of_pitch, width, height, kind
            )
        check(status, "aclrtMemcpy2d")
        side_fresh(to, count)
        return None
    stream_raw(stream, &raw)
    work = work_open(to, of, stream, "a copy")
    with nogil:
        status = aclrtMemcpy2dAsync(
            to.address, to_pitch, of.address, of_pitch, width, height, kind, raw
        )
    work_queued(work)
    check(status, "aclrtMemcpy2dAsync")
    side_wrote(to, work, count)
    return work


def copy_2d(
    target, target_pitch, source, source_pitch, width, height, *, Stream stream=None,
    bint wait=True, timeout_ms=None,
):
    """Copy `height` rows of `width` bytes.  A pitch is the bytes from one row's start to the next.

    The copy is queued on `stream`, or else on the stream of a buffer.  The call returns when the
    copy is done, or at once if `wait` is false and the host memory is pinned.  `timeout_ms` is as
    in `copy`.
    """
    cdef int64_t until = until_of(timeout_ms)
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    cdef size_t to_pitch = bytes_given(target_pitch, "target_pitch")
    cdef size_t of_pitch = bytes_given(source_pitch, "source_pitch")
    cdef size_t row = bytes_given(width, "width"), rows = bytes_given(height, "height")
    if row == 0 or rows == 0:
        return
    if not (to.on_device or of.on_device):
        raise ValueError("target or source must be device memory: rows of host memory are NumPy's")
    pitch_check(to, to_pitch, row, rows, "target")
    pitch_check(of, of_pitch, row, rows, "source")
    cdef Stream queue = stream_of(stream, to, of)
    cdef bint synchronous = is_synchronous(to, of)
    cdef Work work
    current_ensure(NULL if queue is None else queue.context)
    if wait or synchronous:
        wait_before(queue, to, of, synchronous, until)
    else:
        if queue is None:
            queue = stream_default()
        if of.device is not None:
            buffer_readable(of.device, False)
    if synchronous:
        queue = None
    work = copy_rows(to, to_pitch, of, of_pitch, row, rows, queue)
    if queue is not None and wait:
        work_wait(work, queue, until)


def fill(
    target, value=0, *, offset=0, nbytes=None, Stream stream=None, bint wait=True,
    timeout_ms=None,
):
    """Set each byte of a Buffer or an Array, or of a part of it, to one value from 0 to 255.

    The fill is queued on `stream`, or else on the buffer's own stream.  The call returns when the
    fill is done, or at once if `wait` is false.  `timeout_ms` is as in `copy`.
    """
    cdef int64_t until = until_of(timeout_ms)
    cdef Side to = side_of(target, True, "target")
    if not to.on_device:
        raise TypeError(f"target must be a Buffer or an Array, not {type(target).__name__}")
    side_part(to, offset, "offset")
    cdef size_t count = to.size if nbytes is None else bytes_given(nbytes, "nbytes")
    cdef aclError status
    cdef aclrtStream raw
    if not hasattr(value, "__index__"):
        raise TypeError(f"value must be an int, not {type(value).__name__}")
    if not 0 <= value <= 255:
        raise ValueError(f"value must be 0 to 255, not {value}")
    if count > to.size:
        raise ValueError(f"nbytes must be at most {to.size}, not {count}")
    cdef int32_t byte = value
    cdef Stream queue = stream_of(stream, to, None)
    cdef Work work
    if wait:
        current_ensure(NULL if queue is None else queue.context)
        wait_before(queue, to, None, False, until)
    elif queue is None:
        queue = stream_default()
    if queue is None:
        with nogil:
            status = aclrtMemset(to.address, to.size, byte, count)
        check(status, "aclrtMemset")
        side_fresh(to, count)
        return
    stream_raw(queue, &raw)
    work = work_open(to, None, queue, "a fill")
    with nogil:
        status = aclrtMemsetAsync(to.address, to.size, byte, count, raw)
    work_queued(work)
    check(status, "aclrtMemsetAsync")
    side_wrote(to, work, count)
    if wait:
        work_wait(work, queue, until)


def to_bytes(Buffer source not None, *, timeout_ms=None):
    """Return the content of device memory as bytes; `timeout_ms` is as in `copy`."""
    cdef int64_t until = until_of(timeout_ms)
    cdef Side of = side_of(source, False, "source")
    cdef bytes content = PyBytes_FromStringAndSize(NULL, of.size)
    cdef Side to = Side.__new__(Side)
    to.address = PyBytes_AS_STRING(content)     # allowed: no other code has a reference to it yet
    to.size = of.size
    copy_wait(to, of, of.size, stream_of(None, to, of), until)
    return content


def to_numpy(Buffer source not None, dtype="uint8", shape=None, *, timeout_ms=None):
    """Return the content of device memory as a new NumPy array.

    Bytes behind the last whole item are left out.

    `timeout_ms` is as in `copy`.
    """
    import numpy
    kind = numpy.dtype(dtype)
    if kind.hasobject or kind.itemsize == 0:
        raise TypeError(f"dtype must be of plain items of at least one byte, not {dtype!r}")
    if shape is None:
        shape = source.size // kind.itemsize
    array = numpy.empty(shape, kind)
    copy(array.reshape(-1).view("uint8"), source, nbytes=array.nbytes, timeout_ms=timeout_ms)
    return array
