from typing import Any

from acl.runtime._array import Array
from acl.runtime._buffer import Buffer
from acl.runtime._stream import Stream

__all__ = ["copy", "copy_2d", "copy_async", "fill", "to_bytes", "to_numpy"]

def copy(
    target: Any,
    source: Any,
    *,
    target_offset: int = 0,
    source_offset: int = 0,
    nbytes: int | None = None,
    stream: Stream | None = None,
) -> None: ...
def copy_async(
    target: Any,
    source: Any,
    stream: Stream | None = None,
    *,
    target_offset: int = 0,
    source_offset: int = 0,
    nbytes: int | None = None,
) -> None: ...
def copy_2d(
    target: Any,
    target_pitch: int,
    source: Any,
    source_pitch: int,
    width: int,
    height: int,
    *,
    stream: Stream | None = None,
    wait: bool = True,
) -> None: ...
def fill(
    target: Buffer | Array,
    value: int = 0,
    *,
    offset: int = 0,
    nbytes: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
) -> None: ...
def to_bytes(source: Buffer) -> bytes: ...
def to_numpy(
    source: Buffer, dtype: Any = "uint8", shape: int | tuple[int, ...] | None = None
) -> Any: ...
