"""An array in device memory: a buffer with a shape and an element type, but without arithmetic."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from acl.pool._pool import Pool
    from acl.runtime._buffer import Buffer
    from acl.runtime._stream import Stream

__all__ = ["Array", "extents_of", "item_bytes", "stream_memory"]

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e5m2": 1, "float8_e4m3fn": 1, "float8_e8m0fnu": 1,
}


def item_bytes(dtype: Any) -> int:
    """Return the bytes of one element; `dtype` is a name such as ``"float16"``, or an object with `itemsize`."""
    size = getattr(dtype, "itemsize", None)
    if isinstance(size, int):
        return size
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    if name not in ITEM_BYTES:
        raise ValueError(f"dtype must be one of {', '.join(ITEM_BYTES)}, or a NumPy dtype, not {dtype!r}")
    return ITEM_BYTES[name]


def extents_of(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a tuple; a single number is the length of a vector."""
    if hasattr(shape, "__index__"):
        return (shape.__index__(),)
    try:
        return tuple([extent.__index__() for extent in shape])
    except (AttributeError, TypeError):
        raise TypeError(f"shape must be an int or ints, not {shape!r}") from None


def stream_memory(nbytes: int, stream: Stream, tag: str | None = None, owner: str | None = None) -> Buffer:
    """Allocate memory for use on a stream: from the pool that is registered for the stream, else from the driver.

    If a tag scope is open, the memory gets the scope's tag.  Otherwise its tag is `owner` if that tag has a budget in
    the pool, else `tag`.
    """
    from acl.pool._registry import pool_of
    from acl.pool._tags import tag_open
    from acl.runtime._buffer import Buffer

    pool = pool_of(stream.handle)
    if pool is not None and not pool.closed:
        if owner in pool.budgeted:
            tag = owner
        return pool.alloc(max(nbytes, 1), stream, tag=None if tag_open(pool) else tag)
    return Buffer(max(nbytes, 1), stream=stream)


class Array:
    """An array in device memory; `Pool.empty` returns one.

    Attributes
    ----------
    buffer : Buffer
        The memory; closing the array closes it.
    shape : tuple of int
        Extents; ``()`` for one element.
    dtype
        The element type: the object that the caller gave.
    nbytes : int
        Bytes of all elements.
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "nbytes", "shape")

    def __init__(self, pool: Pool, shape: int | tuple[int, ...], dtype: Any = "float32",
                 stream: Stream | None = None, tag: str | None = None) -> None:
        extents = extents_of(shape)
        if any(extent < 0 for extent in extents):
            raise ValueError(f"shape must not have negative extents: {shape!r}")
        self.shape = extents
        self.dtype = dtype
        self.nbytes = self.nbytes_of(extents, dtype)
        self.buffer: Buffer = pool.alloc(self.nbytes, stream, tag=tag)

    @classmethod
    def of(cls, buffer: Buffer, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array that uses a buffer's memory; raise ValueError if the buffer is too small."""
        array = cls.__new__(cls)
        array.shape = tuple(shape)
        array.dtype = dtype
        array.nbytes = cls.nbytes_of(array.shape, dtype)
        if array.nbytes > buffer.size:
            raise ValueError(f"shape {shape} of {dtype} needs {array.nbytes} bytes, the buffer has {buffer.size}")
        array.buffer = buffer
        return array

    @staticmethod
    def nbytes_of(shape: tuple[int, ...], dtype: Any) -> int:
        """Return the bytes of an array of a shape and type."""
        return prod(shape) * item_bytes(dtype)

    @property
    def address(self) -> int:
        """The device address of the first element."""
        return self.buffer.address

    @property
    def __npu_array_interface__(self) -> dict[str, Any]:
        """The shape, type, address and stream handle, in the form of CUDA's array interface."""
        from acl.pool._dlpack import npu_interface

        return npu_interface(self.buffer, self.shape, self.dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type for NPUs (kDLExtDev), and the number of the device."""
        from acl.pool._dlpack import device_of

        return device_of(self.buffer)

    def __dlpack__(
        self, *, stream: Stream | int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        """Return the array in a DLPack capsule, for another library.

        Parameters
        ----------
        stream : Stream, int or None
            The consumer's stream.  It waits for the work queued on the array's stream, and the memory
            is not used again before the consumer's work is done.  If None, the host waits for the
            array's stream.  If -1, nothing is ordered.
        max_version : tuple of int, optional
            The newest version of DLPack that the consumer supports.
        dl_device : tuple of int, optional
            ``(1, 0)`` for a copy on the host; otherwise it must be the array's own device.
        copy : bool, optional
            True to copy, False not to; None copies only if the device differs.
        """
        from acl.pool._dlpack import export

        return export(self.buffer, self.shape, self.dtype, stream, max_version, dl_device, copy)

    def numpy(self, *, timeout_ms: int | None = None) -> Any:
        """Return a copy of the content as a NumPy array, made in the order of the buffer's stream.

        Raises `acl.TimeoutError` if that takes longer than `timeout_ms`.
        """
        from acl.runtime._copy import to_numpy
        from acl.runtime._tensor import host_dtype

        dtype = host_dtype(self.dtype) if isinstance(self.dtype, str) else self.dtype
        return to_numpy(self.buffer, dtype, self.shape, timeout_ms=timeout_ms)

    def anumpy(self, *, timeout: float | None = None) -> Coroutine[Any, Any, Any]:
        """Copy the content as `numpy` does, in a coroutine without blocking the loop; `timeout` is in seconds."""
        from acl.execution._await import array_numpy

        return array_numpy(self, timeout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a copy of the content as a NumPy array; `numpy.asarray` calls this."""
        if copy is False:
            raise ValueError("an Array is on the device: without a copy it cannot be a NumPy array")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        self.buffer.close()

    def __enter__(self) -> Array:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an Array without dimensions has no len()")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Array {self.dtype} {self.shape}>"
