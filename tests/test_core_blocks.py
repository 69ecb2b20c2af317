"""Blocks: sizes, the cache, best fit, coalescing, what is refused.  Driven on books, without a device."""

import random

import pytest

from acl.tools._rig import Rig

UNIT = 512
LARGE = 1025 * UNIT          # the smallest block that is not cached
PAGE = 2 << 20


def large_start(rig: Rig, pages: int = 4) -> None:
    """Map some pages of the large range, all free."""
    rig.free(rig.alloc(pages * PAGE))


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (512, 1), (513, 2), (LARGE - UNIT, 1024)])
def test_sizes_are_rounded_up_to_512(size: int, units: int) -> None:
    rig = Rig()
    assert rig.alloc(size)
    assert rig.layout("small").split()[0] == f"L{units}"


def test_an_impossible_size_is_answered_with_null() -> None:
    rig = Rig()
    for size in (1 << 46, (1 << 64) - 1, (1 << 64) - 511):
        assert rig.alloc(size) == 0
    assert rig.check() == 0
    assert rig.stats()["counters"]["failures"] == 3


def test_an_address_is_aligned_and_never_null() -> None:
    rig = Rig()
    for size in (1, 700, LARGE, 3 * PAGE + 5):
        address = rig.address(rig.alloc(size))
        assert address and address % 512 == 0


def test_a_freed_small_block_is_reused_whole() -> None:
    rig = Rig()
    first = rig.alloc(5000)
    keep = rig.alloc(5000)
    rig.free(first)
    assert rig.layout("small").split()[:2] == ["C10", "L10"]
    calls = rig.calls()
    assert rig.alloc(5000) == first
    assert rig.stats()["counters"]["hits"] == 1
    assert rig.calls() == calls
    assert rig.address(first) < rig.address(keep)


def test_the_cache_is_last_in_first_out() -> None:
    rig = Rig()
    blocks = [rig.alloc(4096) for _ in range(4)]
    for block in blocks:
        rig.free(block)
    assert [rig.alloc(4096) for _ in range(4)] == blocks[::-1]


def test_large_blocks_are_cut_and_joined_at_once() -> None:
    rig = Rig()
    large_start(rig)
    a, b, c = (rig.alloc(LARGE) for _ in range(3))
    assert rig.layout() == "L1025 L1025 L1025 F13309"
    rig.free(b)
    assert rig.layout() == "L1025 F1025 L1025 F13309"
    rig.free(a)
    assert rig.layout() == "F2050 L1025 F13309"
    rig.free(c)
    assert rig.layout() == "F16384"
    assert rig.check() == 0


def test_the_best_fit_is_taken() -> None:
    rig = Rig()
    large_start(rig, 8)
    sizes = (3000, 1100, 2000)
    blocks = []
    for size in sizes:
        blocks.append(rig.alloc(size * UNIT))
        rig.alloc(LARGE)                        # keeps neighbours apart
    for block in blocks:
        rig.free(block)
    assert rig.layout().startswith("F3000 L1025 F1100 L1025 F2000 L1025")
    rig.alloc(1900 * UNIT)
    assert rig.layout().startswith("F3000 L1025 F1100 L1025 L1900 F100 L1025")


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


def test_small_blocks_pin_no_large_pages() -> None:
    rig = Rig()
    small = [rig.alloc(512) for _ in range(100)]
    big = rig.alloc(8 * PAGE)
    rig.free(big)
    assert rig.trim() == 8 * PAGE
    assert all(rig.free(block) for block in small)


def test_a_miss_flushes_the_cache_before_it_grows() -> None:
    rig = Rig()
    blocks = [rig.alloc(512 * 1024) for _ in range(4)]        # the whole first page of small blocks
    for block in blocks:
        rig.free(block)
    calls = rig.calls()
    assert rig.alloc(256 * 1024)
    assert rig.calls() == calls
    assert rig.stats()["counters"]["flushes"] == 1


def test_foreign_pointers_are_refused() -> None:
    rig = Rig()
    block = rig.alloc(1000)
    for pointer in (0, 1, 12345, block + 8, block + 64, block - 64, 1 << 63, (1 << 64) - 64, rig.arena()):
        assert not rig.free(pointer)
    assert rig.free(block)
    assert rig.check() == 0
    assert rig.stats()["counters"]["refused"] == 9


@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_double_free_is_refused(size: int) -> None:
    rig = Rig()
    block = rig.alloc(size)
    assert rig.free(block)
    assert not rig.free(block)
    assert rig.check() == 0


def test_a_block_of_another_stream_is_refused() -> None:
    rig = Rig()
    block = rig.alloc(1000, stream=1)
    assert not rig.free(block, stream=2)
    assert rig.free(block, stream=1)


def test_advice_is_followed_where_the_address_is_free() -> None:
    rig = Rig()
    large_start(rig)
    first = rig.alloc(LARGE)
    wanted = rig.address(first) + 4000 * UNIT
    block = rig.alloc_at(LARGE, wanted)
    assert rig.address(block) == wanted
    assert rig.layout() == "L1025 F2975 L1025 F11359"
    assert rig.check() == 0


@pytest.mark.parametrize("offset", [0, 100, 1 << 50])
def test_advice_that_cannot_be_followed_is_an_ordinary_allocation(offset: int) -> None:
    rig = Rig()
    large_start(rig)
    taken = rig.address(rig.alloc(LARGE))
    block = rig.alloc_at(LARGE, taken + offset)
    assert block and rig.address(block) != taken + offset
    assert rig.check() == 0


def test_live_requested_and_their_peaks() -> None:
    rig = Rig()
    a, b = rig.alloc(1000), rig.alloc(LARGE + 1)
    stats = rig.stats()
    assert stats["allocated"] == 1024 + LARGE + UNIT
    assert stats["requested"] == 1000 + LARGE + 1
    assert stats["live_blocks"] == 2
    rig.free(a)
    rig.free(b)
    stats = rig.stats()
    assert (stats["allocated"], stats["requested"], stats["live_blocks"], stats["frees"]) == (0, 0, 0, 2)
    assert stats["allocated_peak"] == 1024 + LARGE + UNIT
    assert stats["requested_peak"] == 1000 + LARGE + 1


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


def test_a_large_block_advised_among_small_ones_goes_back_there() -> None:
    rig = Rig()
    small = rig.alloc(1000)
    address = rig.address(small) + 1024
    large = rig.alloc_at(1 << 20, address)
    assert rig.address(large) == address
    assert rig.free(large)
    assert rig.check() == 0
    again = rig.alloc_at(1 << 20, address)
    assert rig.address(again) == address and rig.check() == 0
