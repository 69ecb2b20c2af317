"""Copies between host and device, and fills: whole buffers, parts of them, arrays.

A synchronous copy is done when it returns.  If a buffer belongs to a stream (a pool's does), the
copy is queued on that stream and then waited for, so it can't overtake work that is queued there.
An asynchronous copy needs a stream and pinned host memory (`HostBuffer`, or an array over it); with
any other host memory it waits, as the runtime gives no guarantee for it.

Any object with the buffer protocol is a host side, without a copy of its own; it has to be
contiguous.  Nothing here orders two streams against each other: that is `wait_event`.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from acl._buffer cimport Buffer, HostBuffer, pending_add
from acl._device cimport current_ensure
from acl._error cimport check
from acl._libacl cimport (
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
from acl._stream cimport Stream, stream_raw
from libc.stdint cimport int32_t

__all__ = ["copy", "copy_2d", "copy_async", "fill", "to_bytes", "to_numpy"]


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Side:
    """One side of a copy: where it is, how long, and what has to live until it is done."""

    cdef char *address
    cdef size_t size
    cdef bint on_device
    cdef Buffer device          # or None
    cdef HostBuffer pinned      # or None
    cdef PyObject **slot        # of a NumPy array in pinned memory: its `pending`, or NULL
    cdef Py_buffer view         # of any other host object
    cdef bint has_view

    def __dealloc__(self):
        if self.has_view:
            PyBuffer_Release(&self.view)


cdef int pinned_find(Side side, object thing) except -1:
    """Set what an array or memory view shows: a HostBuffer, or pinned memory of NumPy's own."""
    last = thing
    while thing is not None and not isinstance(thing, HostBuffer):
        last = thing
        thing = thing.obj if isinstance(thing, memoryview) else getattr(thing, "base", None)
    side.pinned = thing
    if thing is None and array_pending is not NULL:
        side.slot = array_pending(last)
    return 0


cdef Side array_side(object thing, str name):
    """What has no buffer protocol: an Array, that is its bytes."""
    from acl._array import Array

    cdef Side side
    if not isinstance(thing, Array):
        raise TypeError(
            f"{name} must be a Buffer, an Array, a HostBuffer, or an object with the buffer "
            f"protocol, not {type(thing).__name__}")
    side = side_of(thing.buffer, True, name)
    side.size = thing.nbytes
    return side


def content_of(source, what):
    """A copy of a file's bytes, which a caller gave in the place of its path."""
    try:
        return bytes(memoryview(source))
    except TypeError:                           # bytes(3) would be three zeros
        kind = type(source).__name__
        raise TypeError(f"source must be a path or {what} content, not {kind}") from None


cdef size_t bytes_given(object value, str name) except? <size_t> -1:
    """A number of bytes that a caller named."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not 0 <= value.__index__() < 1 << 63:
        raise ValueError(f"{name} must be at least 0 and below 2**63, not {value}")
    return value.__index__()


cdef Side side_of(object thing, bint writable, str name):
    cdef Side side = Side.__new__(Side)
    if isinstance(thing, Buffer):
        side.device = <Buffer> thing
        side.device.open_check()
        side.address = <char *> side.device.address
        side.size = side.device.size
        side.on_device = True
        return side
    if isinstance(thing, HostBuffer):
        side.pinned = <HostBuffer> thing
        side.pinned.open_check()
        side.address = <char *> side.pinned.address
        side.size = side.pinned.size
        return side
    flags = PyBUF_ANY_CONTIGUOUS | PyBUF_WRITABLE if writable else PyBUF_ANY_CONTIGUOUS
    try:
        PyObject_GetBuffer(thing, &side.view, flags)
    except (BufferError, ValueError) as error:
        wanted = "writable and contiguous" if writable else "contiguous"
        raise ValueError(f"{name} must be {wanted}: {error}") from None
    except TypeError:
        return array_side(thing, name)
    side.has_view = True
    side.address = <char *> side.view.buf
    side.size = <size_t> side.view.len      # never negative
    pinned_find(side, thing)
    return side


cdef int side_part(Side side, object given, str name) except -1:
    """Leave the first bytes out, as many as the argument says."""
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
    """Whether the runtime can't queue the copy: pageable memory, or host to host."""
    return is_pageable(to) or is_pageable(of) or not (to.on_device or of.on_device)


cdef Stream stream_of(Stream given, Side target, Side source):
    """The stream that a copy goes to: the one given, else a buffer's own, else None."""
    if given is not None:
        return given
    if target.device is not None and target.device.stream is not None:
        return target.device.stream
    return None if source is None or source.device is None else source.device.stream


cdef int pending_wait(object pending, Stream stream) except -1:
    """Wait for asynchronous copies queued on other streams than this one."""
    for other in pending if isinstance(pending, list) else [pending]:
        if other is not stream and not (<Stream> other).is_closed:
            (<Stream> other).wait_done()
    return 0


cdef int wait_others(Stream stream, Side target, Side source) except -1:
    """Before a synchronous copy on `stream`: what other streams do with the memory comes first."""
    cdef Side side
    for side in (target, source):
        if side is None:
            continue
        if side.pinned is not None and side.pinned.pending is not None:
            pending_wait(side.pinned.pending, stream)
            side.pinned.pending = None
        if side.slot is not NULL and side.slot[0] is not NULL:
            pending_wait(<object> side.slot[0], stream)
            slot_set(side.slot, None)
        if side.device is None:
            continue
        if side.device.stream is not None and side.device.stream is not stream:
            side.device.stream.wait_done()
        if side.device.pending is not None:
            pending_wait(side.device.pending, stream)
            side.device.pending = None
    return 0


cdef int slot_set(PyObject **slot, object pending) noexcept:
    """Store an object in a place of C's, which owns a reference; None for nothing."""
    cdef PyObject *before = slot[0]
    if pending is None:
        slot[0] = NULL
    else:
        Py_INCREF(pending)
        slot[0] = <PyObject *> pending
    Py_XDECREF(before)
    return 0


cdef void side_keep(Side side, Stream stream) noexcept:
    """Let the memory's close wait for what was queued on the stream."""
    if side is None:
        return
    if side.device is not None:
        side.device.pending = pending_add(side.device.pending, stream)
    elif side.pinned is not None:
        side.pinned.pending = pending_add(side.pinned.pending, stream)
    elif side.slot is not NULL:
        pending = None if side.slot[0] is NULL else <object> side.slot[0]
        slot_set(side.slot, pending_add(pending, stream))


cdef int queue_wait(Stream stream, Side target, Side source) except -1:
    """Wait for what was just queued; if that fails, closing the memory has to wait for it."""
    try:
        return stream.wait_done()
    except BaseException:
        side_keep(target, stream)
        side_keep(source, stream)
        raise


cdef size_t count_of(Side target, Side source, object nbytes) except? 0:
    """How many bytes to copy; raises if a side is too short."""
    cdef size_t count = source.size if nbytes is None else bytes_given(nbytes, "nbytes")
    if count > source.size:
        raise ValueError(f"nbytes must be at most the source's {source.size}, not {count}")
    if count > target.size:
        raise ValueError(f"the target must have room for {count} bytes, not {target.size}")
    return count


cdef int copy_queue(Side target, Side source, size_t count, Stream stream) except -1:
    cdef aclError status
    cdef aclrtStream raw
    cdef aclrtMemcpyKind kind = kind_of(target, source)
    stream_raw(stream, &raw)
    with nogil:
        status = aclrtMemcpyAsync(target.address, target.size, source.address, count, kind, raw)
    return check(status, "aclrtMemcpyAsync")


cdef int copy_now(Side target, Side source, size_t count) except -1:
    cdef aclError status
    cdef aclrtMemcpyKind kind = kind_of(target, source)
    with nogil:
        status = aclrtMemcpy(target.address, target.size, source.address, count, kind)
    return check(status, "aclrtMemcpy")


cdef int copy_wait(Side target, Side source, size_t count, Stream stream) except -1:
    """Copy in the stream's order and wait; memory the runtime may not read later waits first."""
    wait_others(stream, target, source)
    if stream is None:
        current_ensure(NULL)
        return copy_now(target, source, count)
    if is_synchronous(target, source):
        stream.wait_done()
        return copy_now(target, source, count)
    copy_queue(target, source, count, stream)
    return queue_wait(stream, target, source)


def copy(
    target, source, *, target_offset=0, source_offset=0, nbytes=None, Stream stream=None,
):
    """Copy memory and wait until it is done.

    Parameters
    ----------
    target, source : Buffer, Array, HostBuffer, or any contiguous object with the buffer protocol
        The target must be writable.  Bytes are copied, whatever an Array's type.
    target_offset, source_offset : int
        Bytes to leave out at the start of each.
    nbytes : int, optional
        How many bytes; all of the source after its offset if not given.
    stream : Stream, optional
        Where to queue the copy; else the buffers' own stream, if one has any.
    """
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    side_part(to, target_offset, "target_offset")
    side_part(of, source_offset, "source_offset")
    cdef size_t count = count_of(to, of, nbytes)
    copy_wait(to, of, count, stream_of(stream, to, of))


def copy_async(
    target, source, Stream stream=None, *, target_offset=0, source_offset=0, nbytes=None,
):
    """Queue a copy on a stream, and return at once if the host side is pinned.

    Both sides stay valid until the copy is done: closing one of them waits.  With host memory that
    is not pinned the call returns when the copy is done.  Parameters as in `copy`; without a
    `stream` the buffers' own is taken, else the default stream.
    """
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    side_part(to, target_offset, "target_offset")
    side_part(of, source_offset, "source_offset")
    cdef size_t count = count_of(to, of, nbytes)
    cdef Stream queue = stream_of(stream, to, of)
    if queue is None:
        queue = Stream.default()
    if is_synchronous(to, of):
        queue.wait_done()
        copy_now(to, of, count)
        return
    copy_queue(to, of, count, queue)
    side_keep(to, queue)
    side_keep(of, queue)


cdef int pitch_check(Side side, size_t pitch, size_t width, size_t height, str name) except -1:
    """Rows of `width` bytes, `pitch` apart, must fit into a side."""
    if width > pitch:
        raise ValueError(f"{name}_pitch must be at least the width {width}, not {pitch}")
    # Division instead of multiplication: the product may not fit.
    if width > side.size or (height > 1 and (side.size - width) // (height - 1) < pitch):
        raise ValueError(
            f"{name} must have room for {height} rows of {width} bytes {pitch} apart, "
            f"not {side.size} bytes"
        )
    return 0


cdef int copy_rows(
    Side to, size_t to_pitch, Side of, size_t of_pitch, size_t width, size_t height, Stream stream
) except -1:
    """Queue rows on a stream, or copy them at once if it is None."""
    cdef aclError status
    cdef aclrtStream raw
    cdef aclrtMemcpyKind kind = kind_of(to, of)
    if stream is None:
        current_ensure(NULL)
        with nogil:
            status = aclrtMemcpy2d(
                to.address, to_pitch, of.address, of_pitch, width, height, kind
            )
        return check(status, "aclrtMemcpy2d")
    stream_raw(stream, &raw)
    with nogil:
        status = aclrtMemcpy2dAsync(
            to.address, to_pitch, of.address, of_pitch, width, height, kind, raw
        )
    return check(status, "aclrtMemcpy2dAsync")


def copy_2d(
    target, size_t target_pitch, source, size_t source_pitch, size_t width, size_t height, *,
    Stream stream=None, bint wait=True,
):
    """Copy `height` rows of `width` bytes, that lie a pitch apart on each side.

    Queued on `stream`, or the buffers' own, and waited for unless `wait` is false; then, too, it is
    waited for if a host side is not pinned.
    """
    cdef Side to = side_of(target, True, "target")
    cdef Side of = side_of(source, False, "source")
    if width == 0 or height == 0:
        return
    pitch_check(to, target_pitch, width, height, "target")
    pitch_check(of, source_pitch, width, height, "source")
    cdef Stream queue = stream_of(stream, to, of)
    cdef bint synchronous = is_synchronous(to, of)
    if wait or synchronous:
        wait_others(queue, to, of)
    elif queue is None:
        queue = Stream.default()
    if synchronous and queue is not None:
        queue.wait_done()
        queue = None
    copy_rows(to, target_pitch, of, source_pitch, width, height, queue)
    if queue is not None and wait:
        queue_wait(queue, to, of)
    elif queue is not None:
        side_keep(to, queue)
        side_keep(of, queue)


def fill(target, value=0, *, offset=0, nbytes=None, Stream stream=None, bint wait=True):
    """Set bytes of device memory, a Buffer or an Array, to one value, 0 to 255.

    Queued on `stream`, or the buffer's own, and waited for unless `wait` is false.
    """
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
    if wait:
        wait_others(queue, to, None)
    elif queue is None:
        queue = Stream.default()
    if queue is None:
        current_ensure(NULL)
        with nogil:
            status = aclrtMemset(to.address, to.size, byte, count)
        check(status, "aclrtMemset")
        return
    stream_raw(queue, &raw)
    with nogil:
        status = aclrtMemsetAsync(to.address, to.size, byte, count, raw)
    check(status, "aclrtMemsetAsync")
    if wait:
        queue_wait(queue, to, None)
    else:
        side_keep(to, queue)


def to_bytes(Buffer source not None):
    """The device memory's content, as bytes."""
    cdef Side of = side_of(source, False, "source")
    cdef bytes content = PyBytes_FromStringAndSize(NULL, of.size)
    cdef Side to = Side.__new__(Side)
    to.address = PyBytes_AS_STRING(content)     # new and not yet shown to anybody: ours to fill
    to.size = of.size
    copy_wait(to, of, of.size, stream_of(None, to, of))
    return content


def to_numpy(Buffer source not None, dtype="uint8", shape=None):
    """The device memory's content as a new NumPy array; as many whole items as fit."""
    import numpy
    kind = numpy.dtype(dtype)
    if shape is None:
        shape = source.size // kind.itemsize
    array = numpy.empty(shape, kind)
    copy(array.reshape(-1).view("uint8"), source, nbytes=array.nbytes)
    return array
