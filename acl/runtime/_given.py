"""Conversion of a user's values to bytes for the device: arrays, numbers, names and paths.

Models, operators, kernels and copies convert their host values here, so that all of them convert in
one way and give equal error messages.  A conversion that would change a value is refused: one that
drops a fraction, overflows, or ignores that the value has another byte order than the machine.

NumPy is imported only in functions that handle arrays.  torch is never imported: a tensor is
recognised by the module name of its class.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acl.bind._error import InvalidArgumentError
from acl.runtime._tensor import BIT_TYPES, DTYPE_CODES, host_dtype

if TYPE_CHECKING:
    from acl.runtime._stream import Stream
    from acl.runtime._tensor import TensorInfo

__all__ = ["argument", "c_path", "c_text", "given_array", "host_array", "input_error", "is_path", "packed"]

_INVALID = 100000                               # ACL_ERROR_INVALID_PARAM
_DLPACK_CPU, _DLPACK_EXTENSION = 1, 12          # DLPack's device types of the host and of an NPU

_Simple: Any = ctypes.c_int.__mro__[1]
_Pointer: Any = ctypes.POINTER(ctypes.c_int).__mro__[1]
_CTYPES = (_Simple, _Pointer, ctypes.Structure, ctypes.Union, ctypes.Array)


# ---- names and paths ----------------------------------------------------------------------------

def c_text(value: Any, name: str) -> bytes:
    """Return a str as bytes for C; `name` is the argument's name in messages."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name} must be a str without NUL, not {value!r}")
    return value.encode()


def is_path(value: Any) -> bool:
    """Return True if a value is a path.

    This function is in Python, because Cython's `isinstance` returns true if the Python code of `os.PathLike`
    raises an exception, for example that of a signal handler.
    """
    return isinstance(value, (str, os.PathLike))


def c_path(value: Any, name: str) -> bytes:
    """Return a path as bytes for C; `name` is the argument's name in messages."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"{name} must be a path without NUL, not {value!r}")
    return encoded


# ---- arrays -------------------------------------------------------------------------------------

def input_error(message: str) -> InvalidArgumentError:
    """Return the exception for an input that a run does not accept; `message` says why."""
    error = InvalidArgumentError(_INVALID, "the check of an input", message)
    error.args = (message,)                     # only the text, because no function of ACL failed
    return error


def given_array(value: Any, what: str, stream: Stream) -> Any:
    """Return an `Array` if the value is NPU memory of another library with DLPack, else a value for `host_array`.

    The other library orders its work before the stream.  torch_npu does not do that, so its tensors are returned
    as they are, and `host_array` refuses them.
    """
    kind = type(value)
    if not hasattr(kind, "__dlpack_device__") or kind.__module__.partition(".")[0] in ("numpy", "torch", "acl"):
        return value
    place = value.__dlpack_device__()[0]
    if place == _DLPACK_EXTENSION:
        from acl.pool._dlpack import from_dlpack

        try:
            return from_dlpack(value, stream=stream)
        except BufferError as error:
            raise input_error(f"{what}: {error}") from error
    if place != _DLPACK_CPU:
        raise input_error(f"{what}: memory of DLPack's device type {place} is neither the host's nor an NPU's")
    import numpy

    return value if hasattr(value, "dtype") and hasattr(value, "__array__") else numpy.from_dlpack(value)


def host_array(value: Any, what: str, info: TensorInfo | None = None) -> tuple[Any, str]:
    """Return a NumPy array in C's order and the machine's byte order, and the name of its type on the device.

    Parameters
    ----------
    value
        An array or tensor on the host, numbers, or bytes.
    what : str
        The value's name in messages, such as ``"input 'x'"``.
    info : TensorInfo, optional
        The element type that the array must have.  If NumPy lacks the type, the array holds its bits as integers.
        An array of another type is refused, and so is a number whose value would change.  Bytes get the shape of
        `info`.
    """
    import numpy

    kind = ""
    if type(value).__module__.partition(".")[0] == "torch":
        value, kind = _of_tensor(value, what)
    if isinstance(value, (bytes, bytearray)) or _is_bytes(value):
        value = _of_bytes(value, what, info)
    elif not hasattr(value, "dtype"):
        value = _of_numbers(value, what, info)
    kind = kind or value.dtype.name
    if info is None and (kind not in DTYPE_CODES or value.dtype.hasobject):
        raise input_error(f"{what}: no operator takes {value.dtype}")
    if info is not None and kind not in (info.dtype, host_dtype(info.dtype)):
        raise input_error(f"{what}: expected {info}, got {value.dtype} {list(value.shape)}")
    if value.dtype.name in BIT_TYPES:                   # a type of the package ml_dtypes
        value = value.view(BIT_TYPES[kind])
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return numpy.ascontiguousarray(value).reshape(value.shape), info.dtype if info is not None else kind


def _is_bytes(value: Any) -> bool:
    """Return True if a value is memory without an element type: a HostBuffer, or a memory view of bytes."""
    from acl.runtime._buffer import HostBuffer

    return isinstance(value, HostBuffer) or (isinstance(value, memoryview) and value.format == "B")


def _of_tensor(value: Any, what: str) -> tuple[Any, str]:
    """Return a torch tensor as an array, and its type's name.  If NumPy lacks the type, the array holds its bits."""
    if str(value.device.type) != "cpu":
        raise input_error(
            f"{what}: the tensor is on {value.device}; take acl.from_dlpack(tensor), or tensor.cpu()")
    value = value.detach().contiguous()
    kind = str(value.dtype).removeprefix("torch.")
    if kind not in DTYPE_CODES:
        raise input_error(f"{what}: no array on the device takes {value.dtype}")
    if kind in BIT_TYPES:
        bits = BIT_TYPES[kind]
        integers = {"uint16": "int16", "uint8": "uint8"}[bits]     # older versions of torch have no uint16
        return value.view(getattr(sys.modules["torch"], integers)).numpy().view(bits), kind
    return value.numpy(), kind


def _of_bytes(value: Any, what: str, info: TensorInfo | None) -> Any:
    """Return bytes as an array of the wanted type and shape."""
    import numpy

    if info is None:
        raise input_error(f"{what}: bytes have no element type; take numpy.frombuffer")
    try:
        return numpy.frombuffer(value, host_dtype(info.dtype)).reshape(info.shape)
    except ValueError as error:
        raise input_error(f"{what}: expected {info}, got {memoryview(value).nbytes} bytes: {error}") from None


def _of_numbers(value: Any, what: str, info: TensorInfo | None) -> Any:
    """Return numbers as an array of the wanted type; raise an error if a number's value would change."""
    import numpy

    kind = type(value).__name__
    try:
        found = numpy.asarray(value)
    except ValueError as error:
        raise input_error(f"{what}: expected {info or 'numbers'}, got {kind}: {error}") from None
    if info is None:
        return found
    if found.dtype.kind not in "biufc":
        raise input_error(f"{what}: expected {info}, got {kind} ({found.dtype})")
    if info.dtype == "bfloat16" and found.dtype.kind != "c":
        return _bfloat16(found)
    if info.dtype in BIT_TYPES:
        return _float8(found, what, info)
    target = numpy.dtype(host_dtype(info.dtype))
    if found.dtype.kind in "biu" and target.kind in "biu":
        made = found.astype(target)
        if not (made == found).all():
            raise input_error(f"{what}: expected {info}, got {value!r}: a number does not fit")
        return made
    if found.size and not numpy.can_cast(found.dtype, target, "same_kind"):
        raise input_error(f"{what}: expected {info}, got {kind} of {found.dtype}")
    return found.astype(target)


def _bfloat16(found: Any) -> Any:
    """Return numbers as the bits of bfloat16 values, rounded to nearest, ties to even."""
    import numpy

    single = found.astype("float32")
    bits = single.view("uint32").astype("uint64")
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")
    return numpy.where(numpy.isnan(single), numpy.uint16(0x7FC0), rounded)


def _float8(found: Any, what: str, info: TensorInfo) -> Any:
    """Return numbers as the bits of an 8-bit float, rounded by ml_dtypes; raise an error if one overflows."""
    import numpy

    try:
        ml_dtypes = import_module("ml_dtypes")
    except ImportError:
        raise TypeError(f"{what}: expected {info}, got numbers: they need the package ml_dtypes; "
                        "else give their bits, an array of uint8") from None
    if found.dtype.kind == "c":
        raise input_error(f"{what}: expected {info}, got {found.dtype}")
    with numpy.errstate(all="ignore"):
        made = found.astype(getattr(ml_dtypes, info.dtype))
        single = made.astype("float32")
    if (numpy.isfinite(found) & ~numpy.isfinite(single)).any():
        raise input_error(f"{what}: expected {info}: a number does not fit")
    return made.view("uint8")


# ---- arguments of kernels -----------------------------------------------------------------------

@functools.lru_cache(maxsize=256)
def _struct(kinds: tuple[Any, ...]) -> type[ctypes.Structure]:
    """Return a ctypes class for a C struct with members of these types, in the C compiler's layout."""
    fields = [(f"argument_{i}", kind) for i, kind in enumerate(kinds)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def packed(values: list[Any]) -> tuple[bytes, list[bytes]]:
    """Return ctypes arguments as the bytes of one C struct, and as a list with the bytes of each argument."""
    made = _struct(tuple(type(value) for value in values))(*values)
    return bytes(made), [bytes(value) for value in values]


def argument(value: Any, kind: Any, index: int) -> Any:
    """Return an argument as a ctypes object, of the type `kind` if the kernel's types are known."""
    if kind is not None:
        return value if isinstance(value, kind) else _converted(value, kind, index)
    if isinstance(value, _CTYPES):
        return value
    if _is_scalar(value):
        return _of_scalar(value, index)
    raise TypeError(
        f"argument {index} must be a Buffer, an Array, or a ctypes or NumPy scalar, not "
        f"{type(value).__name__}: a kernel's numbers have sizes (or name the types once, module.kernel(name, types))")


def _is_scalar(value: Any) -> bool:
    """Return True for a NumPy scalar, without importing NumPy."""
    return hasattr(value, "dtype") and any(kind.__name__ == "generic" for kind in type(value).__mro__)


def _of_scalar(value: Any, index: int) -> Any:
    """Return a ctypes object with the bytes and the alignment of a NumPy scalar."""
    dtype = value.dtype
    if not dtype.isnative or dtype.kind not in "biufcV" or dtype.hasobject:
        raise TypeError(f"argument {index}: no kernel takes {dtype}")
    units: dict[int, Any] = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64,
             16: ctypes.c_longdouble}
    unit = units[dtype.alignment]
    whole = unit * (dtype.itemsize // ctypes.sizeof(unit))
    return whole.from_buffer_copy(value.tobytes())


def _converted(value: Any, kind: Any, index: int) -> Any:
    """Return a number or a scalar as an object of a ctypes type; raise an error if its value would change."""
    given = value.value if isinstance(value, _Simple) else value.item() if _is_scalar(value) else value
    try:
        made = kind(*given) if isinstance(given, (list, tuple)) else kind(given)
    except (TypeError, ValueError) as error:
        name = getattr(kind, "__name__", kind)
        raise TypeError(f"argument {index}: {name} does not take {value!r} ({error})") from None
    now = getattr(made, "value", None)
    lost = isinstance(given, int) and isinstance(now, (int, bool)) and now != given
    overflown = isinstance(given, (int, float)) and isinstance(now, float) and math.isinf(now)
    if lost or (overflown and not math.isinf(given)):
        raise ValueError(f"argument {index}: {value!r} does not fit {kind.__name__}")
    return made
