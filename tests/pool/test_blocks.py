"""Blocks from the callbacks registered with ACL, on the simulator: rounding, joining, cache, advice, bad pointers."""

import itertools

import pytest
from support.core import (  # noqa: F401
    MIB,
    UNIT,
    Door,
    Made,
    blocks_at,
    layout,
    open_door,
    physical,
    physical_base,
)

import acl
from acl.inside._snapshot import BlockInfo

pytestmark = pytest.mark.usefixtures("no_leaks")


def live(pool: acl.Pool, stream: acl.Stream) -> list[BlockInfo]:
    return [block for block in pool.blocks(stream) if block.state == "live"]


@pytest.mark.parametrize(("asked", "given"), [
    (0, 512), (1, 512), (511, 512), (512, 512), (513, 1024), (1024, 1024), (65536, 65536),
    (524288, 524288), (524289, 524800), (MIB - 1, MIB), (3 * MIB + 1, 3 * MIB + 512),
])
def test_block_sizes_are_rounded_up_to_multiples_of_512_bytes(made: Made, asked: int, given: int) -> None:
    pool, stream, door = made
    block = door.alloc(asked)
    [info] = live(pool, stream)
    assert (info.size, info.requested) == (given, asked)
    assert pool.stats().allocated == given
    assert pool.stats().requested == asked
    door.free(block)


def test_every_address_is_a_multiple_of_512_and_blocks_do_not_overlap(made: Made) -> None:
    _, _, door = made
    sizes = [1, 513, 4096, 70000, 524288, 524289, MIB + 7, 5 * MIB]
    taken = [(door.take(size), size) for size in sizes * 3]
    spans = sorted((address, address + size) for (_, address), size in taken)
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
    assert all(address % UNIT == 0 for address, _ in spans)
    for (block, _), _ in taken:
        door.free(block)


def test_freed_block_is_joined_with_free_neighbours_on_both_sides(made: Made) -> None:
    pool, stream, door = made
    a, b, c, d = (door.alloc(2 * MIB) for _ in range(4))
    assert layout(pool, stream) == "L2 L2 L2 L2"
    door.free(a)
    door.free(c)
    assert layout(pool, stream) == "F2 L2 F2 L2"
    door.free(b)
    assert layout(pool, stream) == "F6 L2"
    door.free(d)
    assert layout(pool, stream) == "F8"


def test_smallest_free_block_that_fits_is_allocated(made: Made) -> None:
    pool, stream, door = made
    held = [door.alloc(size * MIB) for size in (6, 1, 2, 1, 4, 2)]
    for index in (0, 2, 4):
        door.free(held[index])
    assert layout(pool, stream) == "F6 L1 F2 L1 F4 L2"
    block = door.alloc(3 * MIB)
    assert layout(pool, stream) == "F6 L1 F2 L1 L3 F1 L2"
    again = door.alloc(2 * MIB)
    assert layout(pool, stream) == "F6 L1 L2 L1 L3 F1 L2"
    for one in (block, again, held[1], held[3], held[5]):
        door.free(one)
    assert layout(pool, stream) == "F16"


def test_remainder_of_a_split_block_is_kept_and_joined_again(made: Made) -> None:
    pool, stream, door = made
    whole = door.alloc(4 * MIB)
    door.free(whole)
    part = door.alloc(3 * MIB)
    assert layout(pool, stream) == "L3 F1"
    door.free(part)
    assert layout(pool, stream) == "F4"


def test_small_blocks_are_cached_and_the_last_one_freed_is_reused_first(made: Made) -> None:
    pool, stream, door = made
    first, second, third = (door.alloc(4096) for _ in range(3))
    door.free(first)
    door.free(second)
    assert len(blocks_at(pool, stream, "cached")) == 2
    before = pool.stats()
    assert door.alloc(4096) == second
    assert door.alloc(4000) == first  # rounds to the same units
    after = pool.stats()
    assert after.hits - before.hits == 2
    assert after.driver_calls == before.driver_calls
    for block in (first, second, third):
        door.free(block)


def test_cached_block_serves_allocations_of_its_own_size_only(made: Made) -> None:
    pool, stream, door = made
    block = door.alloc(4096)
    door.free(block)
    cached = blocks_at(pool, stream, "cached")
    others = [door.alloc(size) for size in (3584, 4608, 512)]
    assert blocks_at(pool, stream, "cached") == cached
    assert block not in others
    for other in others:
        door.free(other)


def test_the_cache_is_joined_before_the_pool_grows(made: Made) -> None:
    pool, _, door = made
    held = [door.alloc(128 << 10) for _ in range(16)]  # they fill a page completely
    for block in held:
        door.free(block)
    reserved = pool.stats().reserved
    block = door.alloc(512 << 10)
    assert pool.stats().reserved == reserved
    assert pool.stats().total("flushes") >= 1
    door.free(block)


def test_small_and_large_blocks_have_separate_address_ranges(made: Made) -> None:
    pool, stream, door = made
    pairs = [(door.alloc(MIB), door.alloc(512)) for _ in range(8)]
    text = layout(pool, stream)
    assert "|" in text, text
    for large, _ in pairs:
        door.free(large)
    assert pool.trim() >= 8 * MIB  # no small block lies in a page of the large ones
    for _, small in pairs:
        door.free(small)


def test_trim_returns_all_free_pages_to_the_device(made: Made) -> None:
    pool, stream, door = made
    kept, given = door.take(4 * MIB)[0], door.take(6 * MIB)[0]
    door.free(given)
    assert pool.trim() == 6 * MIB
    assert pool.stats().reserved == 4 * MIB == physical()
    assert layout(pool, stream) == "L4"
    door.free(kept)
    assert pool.trim() == 4 * MIB
    assert pool.stats().reserved == 0 == physical()


@pytest.mark.parametrize("offset", [0, 512, 100, -MIB, 1 << 45])
def test_block_with_an_advised_address_does_not_overlap_a_live_block(made: Made, offset: int) -> None:
    _, _, door = made
    taken, address = door.take(4 * MIB)
    other = door.advise(MIB, address + offset)
    assert other not in (0, taken)
    at = door.address(other)
    assert at + MIB <= address or at >= address + 4 * MIB
    door.free(other)
    door.free(taken)


@pytest.mark.parametrize("size", [512, 4 * MIB])
def test_a_double_free_is_refused_and_counted(made: Made, size: int) -> None:
    pool, _, door = made
    block, other = door.alloc(size), door.alloc(size)
    door.free(block)
    door.free(block)
    assert pool.stats().total("refused") == 1
    assert pool.check() == 0
    again, fresh = door.alloc(size), door.alloc(size)
    assert len({again, fresh, other}) == 3
    assert pool.stats().allocated == 3 * size
    for one in (again, fresh, other):
        door.free(one)


def test_foreign_pointers_are_refused_and_nothing_changes(made: Made) -> None:
    pool, stream, door = made
    block, address = door.take(MIB)
    before = layout(pool, stream)
    bad = [1, 8, 4096, address, block + 8, block - 64, block + (1 << 29), 2**63, 2**64 - 64, door.object]
    for pointer in bad:
        door.free(pointer)
    assert pool.stats().total("refused") == len(bad)
    assert layout(pool, stream) == before
    door.free(block)
    assert pool.stats().allocated == 0


def test_a_block_of_another_stream_is_refused(made: Made) -> None:
    pool, _, door = made
    with acl.Stream() as second:
        pool.register(second)
        other = Door(second)
        block = door.alloc(MIB)
        other.free(block)
        assert pool.stats().total("refused") == 1
        assert pool.stats().allocated == MIB
        door.free(block)
        pool.unregister(second)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**64 - 511, 1 << 46])
def test_allocation_of_an_absurd_size_returns_null_and_changes_nothing(made: Made, size: int) -> None:
    pool, _, door = made
    assert door.alloc(size) == 0
    assert door.advise(size, 4096) == 0
    assert pool.check() == 0
    assert physical() == 0
    block = door.alloc(512)
    assert block
    door.free(block)


@pytest.mark.parametrize("bits", range(46, 64))
def test_allocation_of_an_absurd_size_takes_none_of_the_free_blocks(made: Made, bits: int) -> None:
    pool, _, door = made
    blocks = [door.alloc(size) for size in (512, 20480, 512, MIB, 512, 3 * MIB) for _ in range(8)]
    for block in blocks[8:16] + blocks[24:32]:
        door.free(block)
    small = [door.alloc(400 << 10) for _ in range(4)]       # moves the free small blocks from the cache to the bins
    assert door.alloc(1 << bits) == 0
    assert door.alloc((1 << bits) + 513) == 0
    assert pool.check() == 0
    for block in blocks[:8] + blocks[16:24] + blocks[32:] + small:
        door.free(block)


def test_peaks_are_the_most_bytes_that_were_live_at_one_time(made: Made) -> None:
    pool, _, door = made
    a, b = door.alloc(4 * MIB), door.alloc(2 * MIB - 100)
    door.free(a)
    c = door.alloc(MIB)
    stats = pool.stats()
    assert stats.allocated_peak == 6 * MIB - 100 // UNIT * UNIT
    assert stats.requested_peak == 6 * MIB - 100
    assert stats.reserved_peak >= stats.reserved >= stats.allocated
    pool.reset_peak()
    assert pool.stats().allocated_peak == pool.stats().allocated
    door.free(b)
    door.free(c)


def test_stream_statistics_count_every_allocation_and_free(made: Made) -> None:
    pool, _, door = made
    for size in (512, 512, 4096, MIB, 3 * MIB, MIB):
        door.free(door.alloc(size))
    [stats] = pool.stats().streams
    assert stats.hits + stats.fits + stats.slow == 6 == stats.frees
    assert stats.live_blocks == 0 == stats.allocated
    assert stats.cached + stats.free == stats.reserved == pool.stats().reserved


def test_full_address_range_is_followed_by_a_second_range() -> None:
    with open_door(virtual="32MiB") as (pool, stream, door):
        held = [door.alloc(6 * MIB) for _ in range(8)]
        assert all(held)
        assert "|" in layout(pool, stream)
        assert pool.check() == 0
        for block in held:
            door.free(block)
        assert pool.trim() == 48 * MIB


def test_pool_without_virtual_memory_allocates_from_segments() -> None:
    with open_door(segments=True) as (pool, _, door):
        held = [door.alloc(size) for size in (512, MIB, 20 * MIB, 3 * MIB)]
        assert all(held)
        assert pool.check() == 0
        calls = pool.stats().driver_calls
        assert calls["aclrtMapMem"] == 0 < calls["aclrtMalloc"]
        for block in held:
            door.free(block)
        pool.trim()
        assert physical() == 0 == pool.stats().reserved
        assert pool.check() == 0


def test_pool_uses_segments_if_the_driver_lacks_virtual_memory(sim: object) -> None:
    with acl.sim.fault("aclrtReserveMemAddress", code=207000), open_door() as (pool, _, door):
        block = door.alloc(MIB)
        assert block
        assert pool.stats().driver_calls["aclrtMalloc"] == 1
        door.free(block)


def test_headroom_bytes_are_left_free_on_the_device() -> None:
    free, _ = acl.Device(0).memory_info()
    with open_door(headroom=free - 8 * MIB) as (_, _, door):
        held = [door.alloc(4 * MIB) for _ in range(4)]
        assert [bool(block) for block in held] == [True, True, False, False]
        assert physical() == 8 * MIB
        for block in held[:2]:
            door.free(block)
