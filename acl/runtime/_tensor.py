"""The description of a model's inputs and outputs (`TensorInfo`), and ACL's element types by name.

This module uses no device.  It imports NumPy only in functions that need it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["BIT_TYPES", "DTYPE_CODES", "DTYPE_NAMES", "TensorInfo", "dtype_name", "host_dtype"]

#: ACL's code of each element type that an array can have.
DTYPE_CODES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
    "float8_e5m2": 35, "float8_e4m3fn": 36, "float8_e8m0fnu": 37,
}
#: Element types that NumPy lacks (the package ml_dtypes has them), with the NumPy type that holds their bits.
BIT_TYPES = {"bfloat16": "uint16", "float8_e5m2": "uint8", "float8_e4m3fn": "uint8", "float8_e8m0fnu": "uint8"}
DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}


class TensorInfo(NamedTuple):
    """An input or output of a model.

    Attributes
    ----------
    name : str
        The name of the input or output in the model.
    dtype : str
        The element type, such as ``"float32"``.
    shape : tuple of int
        The dimensions; -1 for a dimension that may change from run to run.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def dynamic(self) -> bool:
        """True if a dimension may change."""
        return any(extent < 0 for extent in self.shape)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return True if an array with this shape is a valid input; a declared -1 accepts every number."""
        return len(shape) == len(self.shape) and all(
            mine < 0 or mine == given for mine, given in zip(self.shape, shape, strict=True))

    def __str__(self) -> str:
        extents = ", ".join("any" if extent < 0 else str(extent) for extent in self.shape)
        return f"{self.dtype} [{extents}]"


def dtype_name(dtype: Any) -> str:
    """Return the name of an element type, given as a name or as anything that NumPy accepts."""
    if isinstance(dtype, str) and dtype in DTYPE_CODES:
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    if name in DTYPE_CODES:
        return str(name)
    import numpy

    name = numpy.dtype(dtype).name
    if name not in DTYPE_CODES:
        raise TypeError(f"dtype must be one of {', '.join(DTYPE_CODES)}, not {dtype!r}")
    return str(name)


def host_dtype(name: str) -> str:
    """Return the NumPy type for an element type; if NumPy lacks the type, an unsigned integer of its size."""
    return BIT_TYPES.get(name, name)
