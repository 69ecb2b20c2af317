from types import TracebackType
from typing import Any

from acl.pool._pinned import PinnedPool

__all__ = ["NumpyPool", "numpy_pool"]

HANDLER_NAME: str

class NumpyPool:
    handler: Any
    pool: PinnedPool
    def __init__(self, pool: PinnedPool) -> None: ...
    def __enter__(self) -> PinnedPool: ...
    def __exit__(
        self, *error: type[BaseException] | BaseException | TracebackType | None
    ) -> None: ...

def numpy_pool(pool: PinnedPool | None = None) -> NumpyPool: ...
