"""Aliases on the simulator: queued work sees its own bytes, although its pages have other addresses now."""

import ctypes
from collections.abc import Iterator

import pytest
from support.calls import api
from support.core import MIB, Door, Slow, open_door, physical, physical_base  # noqa: F401

import acl
from acl.inside._top import pool_numbers
from acl.tools.top.sample import served

TO_HOST = 2


@pytest.fixture
def made() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    with open_door(limit="64MiB") as parts:
        yield parts


class Use:
    """A block with queued work that fills it with one byte and reads it back; `turns` frees it before the work runs."""

    def __init__(self, stream: acl.Stream, door: Door, size: int, value: int) -> None:
        self.stream, self.value, self.size = stream, value, size
        self.host = ctypes.c_void_p()
        assert api.aclrtMallocHost(ctypes.byref(self.host), ctypes.c_size_t(size)) == 0
        self.block, self.address = door.take(size)
        where, count = ctypes.c_void_p(self.address), ctypes.c_size_t(size)
        assert api.aclrtMemsetAsync(where, count, value, count, stream.handle) == 0
        assert api.aclrtMemcpyAsync(self.host, count, where, count, TO_HOST, stream.handle) == 0

    def right(self) -> bool:
        """True if the block had the filled bytes when it was read.  Valid when the stream is done."""
        return ctypes.string_at(self.host, self.size) == bytes([self.value]) * self.size

    def close(self) -> None:
        self.stream.synchronize()                               # a queued copy writes to the host memory
        assert api.aclrtFreeHost(self.host) == 0


def turns(stream: acl.Stream, door: Door, count: int) -> list[Use]:
    """Use some pages at changing addresses: blocks of 10 and 2 MiB, then of 16 and 3 MiB, in turn."""
    uses: list[Use] = []
    keep: list[int] = []
    for turn in range(count):
        sizes = (10, 2, 10) if turn % 2 == 0 else (16, 3)
        made = [Use(stream, door, size * MIB, len(uses) + i + 1) for i, size in enumerate(sizes)]
        if turn == 0:
            keep.append(made[1].block)
        for use in made:
            if use.block not in keep:
                door.free(use.block)
        uses += made
    door.free(keep[0])
    return uses


def test_queued_work_sees_its_own_bytes_through_any_alias(made: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = made
    with Slow(stream):
        uses = turns(stream, door, 6)
        assert pool.check() == 0
        calls = pool.stats().driver_calls
        assert calls.get("aclrtUnmapMem", 0) == 0
        assert pool.stats().total("syncs") == 0     # no work has run, and the pool did not wait
    assert len({use.address for use in uses}) > 3
    assert pool.stats().reserved < 40 * MIB
    for use in uses:
        assert use.right(), use.value
        use.close()


def test_trim_waits_for_the_stream_and_removes_all_aliases(made: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = made
    uses = turns(stream, door, 4)
    pool.trim()
    assert pool.stats().reserved == physical() == 0
    assert pool.stats().driver_calls["aclrtMapMem"] == pool.stats().driver_calls["aclrtUnmapMem"]
    for use in uses:
        assert use.right()
        use.close()


def test_reactivated_mappings_are_counted(made: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = made
    for use in turns(stream, door, 2) + turns(stream, door, 2) + turns(stream, door, 2):
        use.close()
    stats = pool.stats()
    assert stats.recalls == stats.total("recalls")
    assert stats.allocations == stats.hits + stats.fits + stats.recalls + stats.slow
    assert stats.recalls > 0 and stats.total("frees") == stats.allocations
    assert served(pool_numbers(pool)["streams"]) == stats.allocations == pool.histograms().sizes.total


def test_allocation_from_reactivated_mappings_is_recorded_as_a_fit(made: tuple[acl.Pool, acl.Stream, Door]) -> None:
    """The recorded paths of the allocations agree with the counts of the pool."""
    pool, stream, door = made
    with pool.record() as recording:
        for use in turns(stream, door, 2) + turns(stream, door, 2) + turns(stream, door, 2):
            use.close()
    stats = pool.stats()
    paths = [event.path for event in recording.events if event.kind == "alloc"]
    assert stats.recalls > 0
    assert (paths.count("hit"), paths.count("fit"), paths.count("slow")) == (
        stats.hits, stats.fits + stats.recalls, stats.slow)


@pytest.mark.parametrize("options", [{"views": False}, {"steal": False}])
def test_aliases_can_be_switched_off_by_an_option(options: dict[str, bool]) -> None:
    with open_door(limit="64MiB", **options) as (pool, stream, door):
        uses = turns(stream, door, 4)
        stream.synchronize()
        assert pool.stats().recalls == 0
        for use in uses:
            assert use.right()
            use.close()
