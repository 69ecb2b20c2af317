"""The pool behind frameworks that take a pluggable allocator."""

from typing import TypedDict

from acl.pool._pool import Pool

__all__ = [
    "SEATS", "attach", "empty", "failure", "hook", "path", "pools", "refused", "reset", "segments", "share", "stats",
]

SEATS: int
held: dict[tuple[int, int], Pool]

class _Stat(TypedDict):
    """One counter, as torch keeps it."""

    current: int
    peak: int
    allocated: int
    freed: int

class _Stats(TypedDict):
    """A front's counters; lists are: all blocks, those of at most 1 MiB, the larger ones."""

    blocks: list[_Stat]
    bytes: list[_Stat]
    requested: list[_Stat]
    reserved: list[_Stat]
    pages: list[_Stat]
    ooms: int
    retries: int
    driver_allocs: int
    driver_frees: int

def path() -> str: ...
def attach(pool: Pool | None, *, early: bool, own: bool = False, blind: bool = False) -> int: ...
def pools(seat: int = 0) -> dict[int, Pool]: ...
def hook(
    *, drain: int | None = None, marks: tuple[int, int, int] | None = None, throw_memory: int | None = None,
    throw_refusal: int | None = None,
) -> None: ...
def failure() -> tuple[int, str] | None: ...
def share(address: int, stream: int) -> bool: ...
def empty(seat: int = 0) -> None: ...
def reset(device: int, *, peaks: bool, seat: int = 0) -> None: ...
def refused() -> int: ...
def stats(device: int, *, seat: int = 0) -> _Stats | None: ...
def segments(device: int, *, seat: int = 0) -> list[tuple[int, bool, list[tuple[int, int, str, int]]]]: ...
