"""An array in a pool's memory: a buffer with a shape and a type, and no arithmetic."""

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
    """Bytes of one element: of a name such as ``"float16"``, or of anything with an `itemsize`."""
    size = getattr(dtype, "itemsize", None)
    if isinstance(size, int):
        return size
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    if name not in ITEM_BYTES:
        raise ValueError(f"dtype must be one of {', '.join(ITEM_BYTES)}, or a NumPy dtype, not {dtype!r}")
    return ITEM_BYTES[name]


def extents_of(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """A shape as a tuple; one number is a vector's."""
    if hasattr(shape, "__index__"):
        return (shape.__index__(),)
    try:
        return tuple([extent.__index__() for extent in shape])
    except (AttributeError, TypeError):
        raise TypeError(f"shape must be an int or ints, not {shape!r}") from None


def stream_memory(nbytes: int, stream: Stream, tag: str | None = None, owner: str | None = None) -> Buffer:
    """Memory whose use a stream orders: of the pool that is registered there, else of the driver.

    Without an open scope its tag is `owner`, if that has a budget in the pool, else `tag`.
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
    """What `Pool.empty` returns.

    Attributes
    ----------
    buffer : Buffer
        The memory; closed with the array.
    shape : tuple of int
        Extents; ``()`` for one element.
    dtype
        As it was given.
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
        """An array in a buffer's memory, which must be large enough."""
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
        """Bytes of an array of that shape and type."""
        return prod(shape) * item_bytes(dtype)

    @property
    def address(self) -> int:
        """The device address of the first element."""
        return self.buffer.address

    @property
    def __npu_array_interface__(self) -> dict[str, Any]:
        """Shape, type and address, in the form of CUDA's array interface; the stream as a handle."""
        from acl.pool._dlpack import npu_interface

        return npu_interface(self.buffer, self.shape, self.dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device type of DLPack's extensions, and the ordinal."""
        from acl.pool._dlpack import device_of

        return device_of(self.buffer)

    def __dlpack__(
        self, *, stream: Stream | int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        """The array in a DLPack capsule, for another library.

        Parameters
        ----------
        stream : Stream, int or None
            The consumer's stream: it waits for what is queued on ours, and the memory, once freed,
            for it.  None waits on the host; -1 orders nothing.
        max_version : tuple of int, optional
            The newest DLPack that the consumer knows.
        dl_device : tuple of int, optional
            ``(1, 0)`` for a copy on the host; else only the array's own device.
        copy : bool, optional
            Whether to copy; None: only if the device differs.
        """
        from acl.pool._dlpack import export

        return export(self.buffer, self.shape, self.dtype, stream, max_version, dl_device, copy)

    def numpy(self, *, timeout_ms: int | None = None) -> Any:
        """The content as a new NumPy array, in the order of the buffer's stream.

        Raises `acl.TimeoutError` if that takes longer than `timeout_ms`.
        """
        from acl.runtime._copy import to_numpy
        from acl.runtime._tensor import host_dtype

        dtype = host_dtype(self.dtype) if isinstance(self.dtype, str) else self.dtype
        return to_numpy(self.buffer, dtype, self.shape, timeout_ms=timeout_ms)

    def anumpy(self, *, timeout: float | None = None) -> Coroutine[Any, Any, Any]:
        """Coroutine: `numpy` that does not block the event loop; `timeout` is in seconds."""
        from acl.execution._await import array_numpy

        return array_numpy(self, timeout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For `numpy.asarray`: the content, copied from the device."""
        if copy is False:
            raise ValueError("an Array is on the device: without a copy it cannot be a NumPy array")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
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
