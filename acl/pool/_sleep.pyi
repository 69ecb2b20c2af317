from collections.abc import Iterable

from acl.inside._snapshot import SleepReport
from acl.pool._pool import Pool

__all__ = ["pool_sleep", "pool_wake"]

def asleep_text(pool: Pool) -> str: ...
def pool_sleep(
    pool: Pool, tags: str | Iterable[str] | None, offload: bool | str | Iterable[str], drained: bool
) -> SleepReport: ...
def pool_wake(pool: Pool, tags: str | Iterable[str] | None) -> SleepReport: ...
