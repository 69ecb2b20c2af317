from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from acl.execution._run import Run
from acl.runtime._array import Array
from acl.runtime._stream import Stream
from acl.runtime._tensor import TensorInfo

__all__ = ["KernelChoice", "Op"]

_Chooser = Callable[[tuple[TensorInfo, ...], tuple[TensorInfo, ...], KernelChoice], object]
_C = TypeVar("_C", bound=_Chooser)

@final
class KernelChoice:
    def use(
        self, kernel_id: str, blocks: int, args: bytes = b"", workspaces: Sequence[int] = ()
    ) -> None: ...

@final
class Op:
    def __init__(self, kind: str, **attributes: Any) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def attributes(self) -> dict[str, Any]: ...
    def __call__(
        self,
        *inputs: Any,
        outputs: Sequence[Array | tuple[int | tuple[int, ...], Any]] | None = None,
        stream: Stream | None = None,
    ) -> Run: ...
    @staticmethod
    def add_kernel(kind: str, kernel_id: str, name: str, binary: bytes) -> None: ...
    @staticmethod
    def compiler(kind: str) -> Callable[[_C], _C]: ...
    @staticmethod
    def remove_compiler(kind: str) -> None: ...
