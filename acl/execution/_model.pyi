import os
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, final

from acl.execution._run import Run
from acl.runtime._array import Array
from acl.runtime._buffer import Buffer
from acl.runtime._device import Device
from acl.runtime._stream import Stream
from acl.runtime._tensor import TensorInfo

__all__ = ["Model"]


@final
class Model:
    def __init__(
        self, source: str | os.PathLike[str] | bytes, device: int | Device = 0, *, name: str | None = None
    ) -> None: ...
    @staticmethod
    def instances(
        source: str | os.PathLike[str] | bytes, count: int, device: int | Device = 0, *, name: str | None = None
    ) -> list[Model]: ...
    @property
    def device(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[TensorInfo, ...]: ...
    @property
    def outputs(self) -> tuple[TensorInfo, ...]: ...
    @property
    def closed(self) -> bool: ...
    def __call__(
        self, *inputs: Any, stream: Stream | None = None, out: Sequence[Array | Buffer | None] | None = None,
        timeout_ms: int | None = None, **named: Any,
    ) -> tuple[Any, ...]: ...
    def arun(
        self, *inputs: Any, stream: Stream | None = None, out: Sequence[Array | Buffer | None] | None = None,
        timeout: float | None = None, **named: Any,
    ) -> Coroutine[Any, Any, tuple[Any, ...]]: ...
    def run_async(
        self, inputs: Sequence[Any] | Mapping[str, Any] | Any, stream: Stream | None = None, *,
        out: Sequence[Array | Buffer | None] | None = None,
    ) -> Run: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
    def __exit__(
        self, *error: type[BaseException] | BaseException | TracebackType | None
    ) -> None: ...
