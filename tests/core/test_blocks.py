"""Blocks: sizes, the cache, best fit, coalescing, refused arguments.  They run on the core test harness."""

import random
from collections.abc import Sequence

import pytest

from acl.tools._rig import Rig

UNIT = 512
LARGE = 1025 * UNIT          # the smallest block that is not cached
PAGE = 2 << 20


def large_start(rig: Rig, pages: int = 4) -> None:
    """Map `pages` pages of the range for large blocks; all of them are free afterwards."""
    rig.free(rig.alloc(pages * PAGE))


def test_among_equal_fits_the_lowest_address_wins() -> None:
    rig = Rig()
    large_start(rig, 8)
    blocks = []
    for _ in range(3):
        blocks.append(rig.alloc(1500 * UNIT))
        rig.alloc(LARGE)
    for block in (blocks[1], blocks[0], blocks[2]):
        rig.free(block)
    assert rig.alloc(1500 * UNIT) and rig.layout().startswith("L1500 L1025 F1500")


def test_second_free_of_a_block_returns_false() -> None:
    rig = Rig()
    block = rig.alloc(1000)
    assert rig.free(block)
    assert not rig.free(block)


def test_tags_are_counted_by_live_bytes() -> None:
    rig = Rig()
    blocks = [rig.alloc(1000, tag=3), rig.alloc(LARGE, tag=3), rig.alloc(10, tag=5)]
    assert rig.check() == 0
    for block in blocks:
        assert rig.free(block)
        assert rig.check() == 0
    assert rig.alloc(1000)
    assert rig.check() == 0


def test_try_alloc_calls_no_driver() -> None:
    rig = Rig()
    assert rig.try_alloc(1000) == 0
    block = rig.alloc(1000)
    rig.free(block)
    calls = rig.calls()
    assert rig.try_alloc(1000) == block
    assert rig.try_alloc(3 * PAGE) == 0
    assert rig.calls() == calls


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_allocations_keeps_the_invariants(seed: int) -> None:
    print("seed", seed)
    choose = random.Random(seed)
    rig = Rig(virtual_bytes=1 << 31)
    live: list[int] = []
    spans: dict[int, tuple[int, int]] = {}
    for _ in range(1500):
        if live and choose.random() < 0.48:
            block = live.pop(choose.randrange(len(live)))
            del spans[block]
            assert rig.free(block)
        else:
            size = int(min(8 * PAGE, choose.lognormvariate(12, 3)))
            block = rig.alloc(size)
            start = rig.address(block)
            assert all(start + max(size, 1) <= a or b <= start for a, b in spans.values())
            spans[block] = (start, start + max(size, 1))
            live.append(block)
        assert rig.check() == 0
    for block in live:
        assert rig.free(block)
    assert rig.stats()["allocated"] == 0
    assert rig.trim() and rig.reserved() == 0 and rig.physical()[0] == 0


def test_small_blocks_of_rare_sizes_are_put_into_bins_when_freed() -> None:
    """In the cache, a block of a rare size would stay unused, and not be joined with its neighbours before a flush."""
    rig = Rig()
    sizes = [512 * units for units in range(1, 301)]
    cached = []
    for _ in range(2):
        blocks = [rig.alloc(size) for size in sizes]
        for block in blocks:
            rig.free(block)
        cached.append(rig.stats()["cached"])
        while rig.stats()["cached"] > 0:
            rig.alloc(500 << 10)
    assert cached[0] == sum(sizes) > 10 * cached[1] and rig.check() == 0
    often = [rig.alloc(sizes[7]) for _ in range(2)]
    rig.free(often[1])
    assert rig.stats()["cached"] >= sizes[7], "the second one came soon after the first"


@pytest.mark.parametrize("sizes", [range(64, 80), range(65, 80, 2), [1, 63, 64, 1023, 1024]])
def test_a_flush_reaches_every_size_in_the_cache(sizes: Sequence[int]) -> None:
    """A flush searches sizes in groups.  So this also tests a group in which only one size has cached blocks."""
    rig = Rig()
    for cached in sizes:
        for block in [rig.alloc(units * UNIT) for units in sizes]:
            rig.free(block)
        kept = [rig.alloc(units * UNIT) for units in sizes if units != cached]
        assert rig.stats()["cached"] == cached * UNIT
        rig.trim()
        assert rig.stats()["cached"] == 0
        for block in kept:
            rig.free(block)
    assert rig.check() == 0
