"""Aliases: a page that is mapped at several addresses, reactivated mappings, old mappings that are unmapped.

The tests use the core test harness (`Rig`), which sees each mapping.  `faults` counts mappings laid over others,
mappings removed while work could still use them, and live pages that share a frame.
"""

import random

import pytest

from acl.tools._rig import Rig

PAGE = 2 << 20
OWN, DRIVER = 3, 5
BROKEN, NO_MEMORY = 507899, 207001


def split_free(rig: Rig, pages: int = 12) -> int:
    """Make free pages in two places with a live block between them, and return this block."""
    low, keep, high = rig.alloc(pages * PAGE), rig.alloc(PAGE), rig.alloc(pages * PAGE)
    rig.free(low)
    rig.free(high)
    return keep


def whole(rig: Rig) -> bool:
    return rig.check() == 0 and rig.faults() == 0


def test_free_pages_get_an_alias_without_a_wait() -> None:
    rig = Rig(views=2)
    split_free(rig)
    rig.set(busy=True)
    maps = rig.calls()["map"]
    assert rig.alloc(20 * PAGE)
    assert rig.calls()["sync"] == rig.calls()["query"] == rig.calls()["unmap"] == 0
    assert rig.calls()["map"] == maps + 8               # 12 pages are in place, 8 get an alias
    assert rig.reserved() == rig.physical()[0] == 25 * PAGE
    assert rig.stats()["counters"]["rungs"][OWN] == 1
    assert rig.views() == (25, 8, 8)
    assert whole(rig)


def turn(rig: Rig) -> None:
    """Allocate and free a large block, then two smaller ones, in the same memory."""
    rig.free(rig.alloc(20 * PAGE))
    assert whole(rig)
    parts = [rig.alloc(12 * PAGE), rig.alloc(12 * PAGE)]
    assert all(parts) and whole(rig)
    for part in parts:
        rig.free(part)
    rig.home()                                          # the pool does this when no block is live
    assert whole(rig) and rig.views()[2] == 0


def test_reactivated_mapping_needs_no_driver_call() -> None:
    rig = Rig(views=2)
    split_free(rig)
    turn(rig)
    rig.set(busy=True)
    turn(rig)
    calls, recalls = rig.calls(), rig.stats()["counters"]["recalls"]
    for _ in range(5):
        turn(rig)
    assert rig.calls() == calls
    assert rig.stats()["counters"]["recalls"] >= recalls + 5
    assert rig.reserved() == 25 * PAGE


def test_allocation_from_reactivated_mappings_is_not_counted_as_slow() -> None:
    rig = Rig(views=2)
    split_free(rig)
    turn(rig)
    turn(rig)
    before = rig.stats()
    large = rig.try_alloc(20 * PAGE)                    # reactivates mappings: it may not call the driver
    after = rig.stats()
    assert large and after["counters"]["recalls"] == before["counters"]["recalls"] + 1
    assert after["counters"]["slow"] == before["counters"]["slow"]
    assert after["frees"] == before["frees"] and after["live_blocks"] == before["live_blocks"] + 1


def test_mapping_of_a_frame_in_use_is_not_reactivated() -> None:
    rig = Rig(views=2)
    split_free(rig)
    large = rig.alloc(20 * PAGE)
    assert rig.alloc(12 * PAGE)                         # 4 free pages are left, so 8 must be new
    assert rig.reserved() == 33 * PAGE
    assert whole(rig)
    rig.free(large)
    assert whole(rig)


@pytest.mark.parametrize("seed", range(6))
def test_streams_that_alias_and_steal_frames_leave_the_pool_consistent(seed: int) -> None:
    print("seed", seed)
    choose = random.Random(seed)
    rig = Rig(views=2, limit=90 * PAGE)
    live: list[tuple[int, int]] = []
    for step in range(1500):
        stream = 1 + step // 20 % 3
        mine = [held for held in live if held[1] == stream]
        while len(mine) > choose.randrange(2, 6):
            held = mine.pop(choose.randrange(len(mine)))
            live.remove(held)
            rig.free(held[0], stream=stream)
        block = rig.alloc(choose.randrange(PAGE // 2, 14 * PAGE), stream=stream)
        if block:
            live.append((block, stream))
        assert whole(rig), step


def test_trim_removes_all_mappings_of_a_released_frame() -> None:
    rig = Rig(views=2)
    keep = split_free(rig)
    rig.free(rig.alloc(20 * PAGE))
    assert rig.trim() == 24 * PAGE
    assert rig.views() == (1, 0, 0)
    assert rig.mapped() == 1
    assert whole(rig)
    rig.free(keep)
    assert rig.destroy()
    assert Rig.mapped() == 0


def test_free_frames_return_to_their_first_mapping_when_no_block_is_live() -> None:
    rig = Rig(views=2)
    keep = split_free(rig)
    large = rig.alloc(20 * PAGE)
    rig.free(keep)
    assert rig.views()[2] == 8
    rig.free(large)
    assert rig.views()[2] == 0
    assert rig.layout() == f"F{25 * 4096}"
    assert whole(rig)


FEW_PLACES = 100 * PAGE         # bytes of addresses; so few that `churn` fills them with inactive mappings


def churn(rig: Rig, seed: int, steps: int = 400) -> None:
    """Allocate and free odd sizes, so that holes with inactive mappings lie beside partly used pages."""
    print("seed", seed)
    choose = random.Random(seed)
    live: list[int] = []
    for _ in range(steps):
        if len(live) > 6 or (live and choose.random() < 0.45):
            rig.free(live.pop(choose.randrange(len(live))))
        else:
            live.append(rig.alloc(choose.randrange(PAGE // 2, 12 * PAGE)))
        assert whole(rig)
    for block in live:
        rig.free(block)


@pytest.mark.parametrize("seed", range(4))
def test_inactive_mapping_is_kept_while_other_addresses_are_free(seed: int) -> None:
    """If the pool unmapped the old mapping for a better placement, each iteration would have to wait."""
    rig = Rig(views=2)
    churn(rig, seed)
    assert rig.views()[1] > 0
    assert rig.calls()["unmap"] == rig.calls()["sync"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_inactive_mapping_is_unmapped_only_after_its_stream_was_synchronised(seed: int) -> None:
    rig = Rig(views=2, virtual_bytes=FEW_PLACES)
    churn(rig, seed)                                    # `whole` fails if a mapping is removed too early
    assert rig.calls()["unmap"] > 0 and rig.calls()["sync"] > 0
    assert whole(rig)


@pytest.mark.parametrize("seed", range(4))
def test_refused_unmap_of_an_old_mapping_is_tried_again(seed: int) -> None:
    rig = Rig(views=2, virtual_bytes=FEW_PLACES)
    rig.set(fail="unmap", at=1, times=1000, code=BROKEN)
    churn(rig, seed)
    assert rig.calls()["unmap"] > 0
    rig.trim()
    assert whole(rig) and rig.reserved() == rig.physical()[0] > 0
    rig.set(fail="unmap", at=0)
    rig.trim()
    assert whole(rig) and rig.reserved() == rig.physical()[0] == rig.mapped() == 0


@pytest.mark.parametrize("limit", [0, 44 * PAGE])
@pytest.mark.parametrize("seed", range(4))
def test_the_invariants_hold_in_the_middle_of_each_driver_call(seed: int, limit: int) -> None:
    rig = Rig(views=2, limit=limit)
    rig.look()
    churn(rig, seed)
    assert rig.calls()["map"] > 100
    assert rig.broken() is None


@pytest.mark.parametrize("seed", range(4))
def test_pool_with_early_frees_grows_instead_of_unmapping_inactive_mappings(seed: int) -> None:
    rig = Rig(views=2, early_frees=True, virtual_bytes=FEW_PLACES)
    churn(rig, seed)
    assert rig.calls()["unmap"] == rig.calls()["sync"] == 0


def test_inactive_mapping_of_a_busy_stream_is_not_unmapped() -> None:
    rig = Rig(views=2)
    rig.set(busy=True)
    churn(rig, 1)
    assert rig.calls()["unmap"] == 0 and rig.stats()["counters"]["failures"] == 0


@pytest.mark.parametrize("options", [{"views": False}, {"steals": False}, {"segments": True}],
                         ids=["views off", "steal off", "segments"])
def test_pages_get_no_alias_if_aliases_are_switched_off(options: dict[str, bool]) -> None:
    rig = Rig(**options)
    split_free(rig)
    assert rig.alloc(20 * PAGE)
    assert rig.views()[1] == 0
    assert whole(rig)


def test_pool_with_early_frees_makes_and_reuses_aliases_but_never_unmaps() -> None:
    rig = Rig(views=2, early_frees=True)
    split_free(rig)
    rig.set(busy=True)
    for _ in range(4):
        rig.free(rig.alloc(20 * PAGE))
        for block in [rig.alloc(12 * PAGE), rig.alloc(12 * PAGE)]:
            rig.free(block)
    assert rig.reserved() == 25 * PAGE
    assert rig.calls()["unmap"] == rig.calls()["sync"] == rig.calls()["query"] == 0
    assert whole(rig)


def test_captured_graph_gets_no_alias_of_the_streams_pages() -> None:
    rig = Rig(views=2)
    keep = split_free(rig)
    capture = rig.capture_begin()
    rig.set(capturing=7)
    assert rig.alloc(20 * PAGE)
    assert rig.reserved() == 45 * PAGE                  # the graph uses none of the stream's 24 free pages
    assert rig.calls()["sync"] == rig.calls()["unmap"] == 0
    rig.set(capturing=0)
    rig.capture_end()
    assert capture and rig.free(keep) and whole(rig)


def test_pages_move_if_the_driver_refuses_a_second_mapping() -> None:
    rig = Rig(views=2)
    rig.set(single=True)
    held = []
    for _ in range(5):
        keep = split_free(rig)
        large = rig.alloc(20 * PAGE)
        assert large and whole(rig)
        held += [keep, large]
    assert rig.calls()["sync"] > 0 and rig.views()[1] == 0
    refused = rig.stats()
    for block in held:
        assert rig.free(block)
    assert refused["counters"]["failures"] == 0 and whole(rig)


def test_aliases_are_made_again_after_one_refused_mapping() -> None:
    rig = Rig(views=2)
    split_free(rig)
    rig.set(fail="map", at=1, code=BROKEN)
    assert rig.alloc(20 * PAGE)                         # served by a page move instead
    assert rig.calls()["sync"] == 1
    split_free(rig)
    assert rig.alloc(22 * PAGE)
    assert rig.calls()["sync"] == 1 and rig.views()[1] > 0
    assert whole(rig)


@pytest.mark.parametrize("at", range(1, 24))
@pytest.mark.parametrize("call", ["map", "unmap", "physical", "sync"])
def test_driver_failure_while_aliases_exist_leaves_the_pool_consistent(call: str, at: int) -> None:
    rig = Rig(views=2, virtual_bytes=40 * PAGE, limit=34 * PAGE)
    rig.set(fail=call, at=at, code=NO_MEMORY if call == "map" else BROKEN)
    live = [split_free(rig, 6)]
    for pages in (10, 12, 5, 16, 3):
        block = rig.alloc(pages * PAGE)
        assert whole(rig)
        if block and pages % 2:
            live.append(block)
        elif block:
            rig.free(block)
    rig.set(fail=call, at=0)
    for block in live:
        rig.free(block)
    assert whole(rig)
    rig.trim()
    rig.trim()
    assert rig.reserved() == rig.physical()[0] == 0
    assert rig.mapped() == 0


@pytest.mark.parametrize("at", range(1, 29))
def test_an_unmap_that_is_refused_once_leaves_no_mapping_behind(at: int) -> None:
    """A frame moves to another arena; all its mappings in the first arena must be removed.

    A mapping that was left would keep the frame's memory even after the pool has given the frame to the driver.
    """
    rig = Rig(views=2, limit=25 * PAGE)
    split_free(rig)
    rig.free(rig.alloc(20 * PAGE))
    rig.set(fail="unmap", at=rig.calls()["unmap"] + at, code=BROKEN)
    assert rig.alloc(20 * PAGE, 2)                      # takes pages of the other arena, with all their mappings
    assert whole(rig)
    assert rig.mapped() * PAGE == rig.reserved() == rig.physical()[0]


@pytest.mark.parametrize("at", range(1, 29))
def test_frame_is_released_only_after_its_last_mapping_is_removed(at: int) -> None:
    """The driver keeps the memory of a frame until the frame's last mapping is removed.

    A pool that released the frame earlier would count memory as returned that the driver still has.
    """
    rig = Rig(views=2, limit=25 * PAGE)
    split_free(rig)
    rig.free(rig.alloc(20 * PAGE))
    rig.set(fail="unmap", at=at, times=1000, code=BROKEN)
    block = rig.alloc(20 * PAGE, 2)
    assert whole(rig)
    if block:
        rig.free(block)
    rig.trim()
    assert whole(rig) and rig.reserved() == rig.physical()[0]
    rig.set(fail="unmap", at=0)
    assert rig.alloc(20 * PAGE, 2)
    assert whole(rig) and rig.mapped() * PAGE == rig.reserved() == rig.physical()[0]


def test_invariant_check_finds_a_frame_with_two_active_mappings() -> None:
    rig = Rig(views=2)
    split_free(rig)
    block = rig.alloc(20 * PAGE)
    assert rig.check() == 0
    rig.spoil("view", block)
    assert rig.check() in (6, 13)
