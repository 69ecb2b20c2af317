from typing import NamedTuple
from weakref import WeakValueDictionary

from acl.pool._pool import Pool
from acl.runtime._stream import Stream

__all__ = ["Allocator", "allocator_of", "every", "open_pools", "pool_of", "registered"]

every: WeakValueDictionary[int, Pool]
registered: dict[int, Pool]

def open_pools(device: int | None = None) -> list[Pool]: ...
def pool_of(stream: int) -> Pool | None: ...

class Allocator(NamedTuple):
    object: int
    alloc: int
    free: int
    alloc_advise: int
    get_addr: int
    pool: Pool | None

def stream_ended(handle: int) -> None: ...
def strays() -> int: ...
def stream_fault(handle: int) -> int: ...
def allocator_of(stream: Stream | int | None) -> Allocator | None: ...
