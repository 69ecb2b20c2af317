from types import TracebackType

from acl.pool._pool import Pool

__all__ = ["Tagging", "tag_open"]

def tag_open(pool: Pool) -> bool: ...

class Tagging:
    @property
    def pool(self) -> Pool: ...
    def __enter__(self) -> Tagging: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None: ...
