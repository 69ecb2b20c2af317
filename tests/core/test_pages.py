"""Slow allocations: fallback steps, page moves, limits, faults at each driver call, captures, segments, trims.

The pool runs on the core test harness (`Rig`): the tests set what the driver answers, and count its calls.
"""

import random

import pytest

from acl.tools._rig import CALL_NAMES, Rig

PAGE = 2 << 20
WAITING, SPARE, GROW, OWN, IDLE, DRIVER, OTHERS, NONE = range(8)
NO_MEMORY, TIMEOUT, UNSUPPORTED, BROKEN = 207001, 507046, 207000, 507899


def rungs(rig: Rig, stream: int = 1) -> dict[int, int]:
    """Return, for each fallback step, the number of slow allocations that it served, if any."""
    return {i: n for i, n in enumerate(rig.stats(stream)["counters"]["rungs"]) if n}


def split_free(rig: Rig, pages: int = 12) -> int:
    """Make free pages in two places with a live block between them, and return this block."""
    low, keep, high = rig.alloc(pages * PAGE), rig.alloc(PAGE), rig.alloc(pages * PAGE)
    rig.free(low)
    rig.free(high)
    return keep


def test_new_pool_gets_its_pages_from_the_driver() -> None:
    rig = Rig()
    rig.alloc(20 * PAGE)
    assert rungs(rig) == {GROW: 1}
    assert rig.reserved() == rig.physical()[0] == 20 * PAGE
    assert rig.calls()["sync"] == 0


def test_free_pages_of_a_stream_move_after_one_synchronisation() -> None:
    rig = Rig(views=False)
    split_free(rig)
    assert rig.alloc(20 * PAGE)
    assert rungs(rig)[OWN] == 1
    assert rig.calls()["sync"] == 1
    assert rig.reserved() == 25 * PAGE
    assert rig.check() == 0


def test_spare_frames_are_used_before_new_ones() -> None:
    rig = Rig()
    keep = rig.alloc(12 * PAGE, stream=2)
    rig.set(fail="free_physical", at=1, code=BROKEN)
    rig.free(keep, stream=2)
    rig.trim()                                      # the driver refuses the first frame, which becomes spare
    calls = rig.calls()["physical"]
    rig.alloc(PAGE)
    assert rig.calls()["physical"] == calls
    assert rungs(rig) == {SPARE: 1}


def test_pages_of_an_idle_stream_are_taken_before_the_pool_grows() -> None:
    rig = Rig()
    rig.free(rig.alloc(40 * PAGE, stream=2), stream=2)
    assert rig.alloc(40 * PAGE, stream=1)
    assert rungs(rig) == {IDLE: 1}
    assert rig.reserved() == 40 * PAGE
    assert rig.calls()["sync"] == 0 and rig.calls()["query"] == 1
    assert rig.stats(2)["counters"]["donated"] == 40


def turned(pages: int = 40) -> Rig:
    """Return a pool in which two streams had a burst each; the second one uses the pages of the first."""
    rig = Rig()
    for stream in 1, 2:
        for block in [rig.alloc(pages // 4 * PAGE, stream) for _ in range(4)]:
            rig.free(block, stream)
    assert rig.reserved() == pages * PAGE
    return rig


def test_burst_takes_as_many_pages_at_once_as_the_last_burst_needed() -> None:
    rig = turned()
    assert rig.alloc(10 * PAGE)
    calls = rig.calls()
    assert all(rig.alloc(10 * PAGE) for _ in range(3))
    assert rig.calls() == calls
    assert rig.stats(2)["counters"]["donated"] == 40
    assert rig.reserved() == 40 * PAGE
    assert rig.check() == 0


def test_pages_taken_in_advance_are_not_put_at_inactive_mappings() -> None:
    """Pages taken for a whole burst are not put into holes that have an inactive mapping of another page."""
    rig = turned()
    for size in 30, 7, 25, 11:
        rig.free(split_free(rig, size // 2))
        for stream in 2, 1:
            rig.free(rig.alloc(size * PAGE, stream), stream)
        assert rig.check() == 0


@pytest.mark.parametrize("at", [11, 12, 25, 40])
def test_page_taken_in_advance_becomes_spare_if_its_mapping_is_refused(at: int) -> None:
    rig = turned()
    rig.set(fail="map", at=at, code=BROKEN)
    assert rig.alloc(10 * PAGE)
    assert rig.stats(1)["reserved"] == (at - 1) * PAGE
    assert rig.reserved() == rig.physical()[0] == 40 * PAGE
    assert rig.check() == 0
    rig.set()
    assert all(rig.alloc(10 * PAGE) for _ in range(3))
    assert rig.reserved() == 40 * PAGE


def test_busy_stream_is_waited_for_only_when_the_limit_is_reached() -> None:
    rig = Rig(limit=60 * PAGE)
    rig.free(rig.alloc(40 * PAGE, stream=2), stream=2)
    rig.set(busy=True)                              # pages of stream 2 are in use: the driver must serve
    assert rig.alloc(20 * PAGE, stream=1)
    assert rungs(rig) == {DRIVER: 1}
    assert rig.alloc(20 * PAGE, stream=1) == 0      # over the limit, and stream 2 does not become idle
    assert rig.stats(2)["counters"]["sync_failures"] >= 1
    rig.set(busy=False)
    assert rig.alloc(20 * PAGE, stream=1)
    assert rig.check() == 0


def test_the_limit_counts_reserved_bytes() -> None:
    rig = Rig(limit=16 * PAGE)
    blocks = [rig.alloc(4 * PAGE) for _ in range(4)]
    assert all(blocks)
    assert rig.alloc(PAGE) == 0
    assert rig.reserved() == rig.physical()[1] == 16 * PAGE
    assert rig.last_oom()["limit"] == 16 * PAGE
    rig.free(blocks[0])
    assert rig.alloc(3 * PAGE)


def test_allocation_above_the_limit_takes_no_driver_memory() -> None:
    rig = Rig(limit=16 * PAGE)
    assert rig.alloc(17 * PAGE) == 0
    assert rig.reserved() == 0 and rig.calls()["physical"] == 0


def test_pages_of_a_failed_allocation_are_returned_to_the_driver() -> None:
    rig = Rig(capacity=10 * PAGE)
    assert rig.alloc(20 * PAGE) == 0
    assert rig.reserved() == rig.physical()[0] == 0
    assert rig.alloc(10 * PAGE)


def test_allocation_during_a_capture_synchronises_no_stream() -> None:
    rig = Rig()
    split_free(rig)
    rig.free(rig.alloc(30 * PAGE, stream=2), stream=2)
    rig.set(capturing=7)
    syncs = rig.calls()["sync"], rig.calls()["query"]
    assert rig.alloc(40 * PAGE)                     # 24 free pages are its own, 30 belong to stream 2
    assert rungs(rig)[DRIVER] == 1
    assert (rig.calls()["sync"], rig.calls()["query"]) == syncs


@pytest.mark.parametrize("options", [{"steals": False}, {"early_frees": True}], ids=["steal off", "early frees"])
def test_pages_do_not_move_with_steal_off_or_early_frees(options: dict[str, bool]) -> None:
    rig = Rig(**options)
    split_free(rig)
    unmaps = rig.calls()["unmap"]
    assert rig.alloc(20 * PAGE)
    assert rig.alloc(20 * PAGE, stream=2)
    assert rig.calls()["unmap"] == unmaps == 0 and rig.calls()["sync"] == 0
    assert rig.check() == 0


def test_a_block_longer_than_a_range_gets_one_of_its_own() -> None:
    rig = Rig(virtual_bytes=16 * PAGE)
    assert rig.alloc(100 * PAGE)
    assert rig.check() == 0


def test_random_allocations_do_not_exhaust_the_addresses() -> None:
    rig = Rig(virtual_bytes=1 << 30)
    choose = random.Random(3)
    live: list[int] = []
    for _ in range(4000):
        if len(live) > 8 or (live and choose.random() < 0.5):
            rig.free(live.pop(choose.randrange(len(live))))
        else:
            live.append(rig.alloc(choose.randrange(PAGE, 24 * PAGE)))
            assert live[-1]
    assert rig.layout().count("|") <= 1
    assert rig.check() == 0


def test_free_segments_are_released_for_a_larger_allocation() -> None:
    rig = Rig(segments=True, capacity=40 * PAGE)
    a, b = rig.alloc(15 * PAGE), rig.alloc(15 * PAGE)
    rig.free(a)
    rig.free(b)
    assert rig.alloc(30 * PAGE)
    assert rig.calls()["sync"] >= 1
    assert rig.reserved() == 30 * PAGE
    assert rig.check() == 0


def test_free_segments_of_another_stream_are_released_for_an_allocation() -> None:
    rig = Rig(segments=True, capacity=40 * PAGE)
    rig.free(rig.alloc(30 * PAGE, stream=2), stream=2)
    assert rig.alloc(30 * PAGE, stream=1)
    assert rungs(rig) == {OTHERS: 1}
    assert rig.check() == 0


def test_trim_to_a_size_keeps_so_many_bytes_reserved() -> None:
    rig = Rig()
    keep = split_free(rig)
    assert rig.trim(to=10 * PAGE) == 15 * PAGE
    assert rig.reserved() == rig.physical()[0] == 10 * PAGE
    assert rig.trim() == 9 * PAGE
    rig.free(keep)
    assert rig.trim() == PAGE


def test_decay_step_releases_pages_unused_since_the_last_step() -> None:
    rig = Rig()
    block = rig.alloc(50 * PAGE)
    rig.free(block)
    assert rig.decay() == 0                         # the pages were needed since the last decay step
    keep = rig.alloc(10 * PAGE)
    assert rig.decay() >= 39 * PAGE
    assert rig.reserved() <= 11 * PAGE
    assert rig.free(keep) and rig.check() == 0
    assert rig.stats()["allocated_peak"] == 50 * PAGE


def test_pool_with_live_blocks_is_not_destroyed() -> None:
    rig = Rig()
    block = rig.alloc(10 * PAGE)
    assert not rig.destroy()
    rig.free(block)
    assert rig.destroy()
    assert rig.physical()[0] == 0 and rig.calls()["release"] == rig.calls()["reserve"]


def exercise(rig: Rig) -> list[tuple[int, int]]:
    """Make every driver call of slow allocations, and return the blocks that are live at the end, with their streams.

    The pool grows, moves pages within an arena and between arenas, refuses an allocation, and trims.
    """
    live: list[tuple[int, int]] = []

    def alloc(pages: int, stream: int) -> int:
        block = rig.alloc(pages * PAGE, stream)
        if block:
            live.append((block, stream))
        return block

    def free(block: int, stream: int) -> None:
        if block:
            live.remove((block, stream))
            assert rig.free(block, stream)

    for stream in (1, 2):
        low, _, high = alloc(12, stream), alloc(1, stream), alloc(12, stream)
        free(low, stream)
        free(high, stream)
    alloc(20, 1)
    alloc(30, 2)
    free(alloc(3, 1), 1)
    rig.trim(to=PAGE)
    return live


@pytest.mark.parametrize("segments", [False, True], ids=["pages", "segments"])
@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("call", [name for name in CALL_NAMES if name != "event"])
def test_failure_of_any_driver_call_leaves_the_pool_consistent(call: str, at: int, segments: bool) -> None:
    rig = Rig(capacity=(90 if segments else 60) * PAGE, headroom=PAGE, segments=segments, virtual_bytes=1 << 30)
    rig.set(fail=call, at=at, code=NO_MEMORY if call in ("physical", "malloc", "map") else BROKEN)
    live = exercise(rig)
    assert rig.check() == 0
    rig.set(fail=call, at=0)
    again = rig.alloc(2 * PAGE)
    assert again and rig.free(again)                # the next allocation works
    for block, stream in live:
        assert rig.free(block, stream)
    assert rig.check() == 0
    rig.trim()
    assert rig.reserved() == rig.physical()[0] == 0, "something leaked"


def test_load_of_the_fault_test_makes_8_kinds_of_driver_calls() -> None:
    for call in ("reserve", "physical", "map", "unmap", "sync", "free_physical", "query", "mem_info"):
        rig = Rig(capacity=60 * PAGE, headroom=PAGE, virtual_bytes=1 << 30)
        exercise(rig)
        assert rig.calls()[call] >= 1, call


def test_hole_as_long_as_the_request_is_filled() -> None:
    """The search skips a run of pages only if the run is too short."""
    rig = Rig()
    rig.alloc(PAGE)
    middle = rig.alloc(4 * PAGE)
    rig.alloc(PAGE)
    address = rig.address(middle)
    rig.free(middle)
    rig.trim()
    assert rig.address(rig.alloc(4 * PAGE)) == address


@pytest.mark.parametrize("pages", [30, 100])
def test_repeated_shapes_converge_without_driver_calls(pages: int) -> None:
    """The last passes make no driver call, however many pages have moved in the first pass."""
    choose = random.Random(11)
    rig = Rig()
    script = []
    for _ in range(300):
        script.append(choose.randrange(PAGE // 2, pages * PAGE))
    for _ in range(60):
        calls = sum(rig.calls().values())
        live: list[int] = []
        for size in script:
            live.append(rig.alloc(size))
            if len(live) > 9:
                rig.free(live.pop(size % 9))
        for block in live:
            rig.free(block)
        calls = sum(rig.calls().values()) - calls
        if calls == 0:
            break
    assert calls == 0


def test_alternating_small_and_large_allocations_need_no_driver_call() -> None:
    rig = Rig()
    for _ in range(3):
        for size in (1000, 3 * PAGE // 2):
            rig.free(rig.alloc(size))
    calls = rig.calls()
    for size in (1000, 3 * PAGE // 2):
        rig.free(rig.alloc(size))
    assert rig.calls() == calls


def test_page_skipped_because_of_a_pending_free_is_found_by_a_later_allocation() -> None:
    rig = Rig(limit=10 * PAGE)
    block, _small = rig.alloc(PAGE, stream=2), rig.alloc(1000, stream=2)
    assert rig.share(block, other=3, stream=2)
    held = [rig.alloc(PAGE) for _ in range(8)]
    rig.set(busy=True)
    rig.free(block, stream=2)
    assert rig.alloc(PAGE) == 0                                 # fails: the free of `block` is pending
    rig.set(busy=False)
    assert rig.poll(stream=2) == 1
    assert rig.alloc(PAGE) != 0 and rig.check() == 0 and len(held) == 8


def test_pages_of_one_of_30_idle_streams_are_found_before_the_pool_fails() -> None:
    rig = Rig(limit=64 * PAGE)
    blocks = {stream: rig.alloc(2 * PAGE, stream=stream) for stream in range(2, 32)}
    rig.free(blocks.pop(17), stream=17)
    held = [rig.alloc(PAGE) for _ in range(6)]
    assert all(held) and rig.alloc(PAGE) == 0 and rig.check() == 0


def test_each_slow_allocation_searches_some_of_30_idle_streams() -> None:
    """The remaining idle streams are searched only if the driver has no memory left."""
    rig = Rig(limit=240 * PAGE)
    blocks = {stream: rig.alloc(8 * PAGE, stream=stream) for stream in range(2, 32)}
    rig.free(blocks.pop(3), stream=3)
    held = [rig.alloc(PAGE) for _ in range(8)]
    assert all(held) and sum(rungs(rig).values()) == 8 and rungs(rig)[IDLE] > 0 and rig.check() == 0
