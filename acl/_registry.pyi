from typing import NamedTuple

from acl._pool import Pool
from acl._stream import Stream

__all__ = ["Allocator", "allocator_of", "registered"]

registered: dict[int, Pool]

class Allocator(NamedTuple):
    object: int
    alloc: int
    free: int
    alloc_advise: int
    get_addr: int
    pool: Pool | None

def allocator_of(stream: Stream | int | None) -> Allocator | None: ...
