from collections.abc import Coroutine
from typing import Any

from acl.runtime._array import Array
from acl.runtime._buffer import Buffer
from acl.runtime._stream import Stream
from acl.runtime._work import Work

__all__ = ["acopy", "copy", "copy_2d", "copy_async", "fill", "to_bytes", "to_numpy"]

def copy(
    target: Any,
    source: Any,
    *,
    target_offset: int = 0,
    source_offset: int = 0,
    nbytes: int | None = None,
    stream: Stream | None = None,
    timeout_ms: int | None = None,
) -> None: ...
def acopy(target: Any, source: Any, *, timeout: float | None = None) -> Coroutine[Any, Any, None]: ...
def copy_work(target: Any, source: Any, stream: Stream | None = None) -> Work | None: ...
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
    timeout_ms: int | None = None,
) -> None: ...
def fill(
    target: Buffer | Array,
    value: int = 0,
    *,
    offset: int = 0,
    nbytes: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
    timeout_ms: int | None = None,
) -> None: ...
def to_bytes(source: Buffer, *, timeout_ms: int | None = None) -> bytes: ...
def to_numpy(
    source: Buffer, dtype: Any = "uint8", shape: int | tuple[int, ...] | None = None, *,
    timeout_ms: int | None = None,
) -> Any: ...
