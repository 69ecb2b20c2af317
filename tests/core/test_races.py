"""Threads that use a pool during its slow operations: steals, frees by other threads, trims, changes of mode.

CI also runs these tests built for ThreadSanitizer (lane `threads`), and with the invariants checked after each step
(lane `sanitize`).  There, `ACLPOOL_TURNS` makes the tests shorter.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support.core import Door, physical, physical_base  # noqa: F401
from support.team import Team

import acl
from acl.tools._rig import Rig, function_addresses
from acl.tools.bench import _peers

PAGE = 2 << 20
TURNS = int(os.environ.get("ACLPOOL_TURNS") or 8000)


def rig_doors(rig: Rig, streams: list[int]) -> list[tuple[int, int, int, int]]:
    alloc, free, address = function_addresses()
    return [(rig.arena(stream), alloc, free, address) for stream in streams]


def nothing(rig: Rig, streams: list[int]) -> None:
    pass


def trims(rig: Rig, streams: list[int]) -> None:
    rig.trim(to=8 * PAGE)
    rig.decay()


def looks(rig: Rig, streams: list[int]) -> None:
    for stream in streams:
        rig.stats(stream)
        assert rig.check_arena(stream) == 0
    rig.last_oom()


def modes(rig: Rig, streams: list[int]) -> None:
    """Switch the mode of a model unload on and off, which defers frees, and synchronise the device to complete them."""
    rig.set_mode(streams[0], 4, 0)
    rig.set_mode(streams[0], 0, 4)
    rig.sync_waiting()


def shares(rig: Rig, streams: list[int]) -> None:
    """Free a block that another stream uses too, while other threads allocate and free."""
    block = rig.alloc(3000, streams[0])
    assert block and rig.share(block, 77, streams[0])
    rig.free(block, streams[0])
    rig.poll(streams[0])


MEANWHILE: list[Callable[[Rig, list[int]], None]] = [nothing, trims, looks, modes, shares]


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=[one.__name__ for one in MEANWHILE])
@pytest.mark.parametrize("streams", [[1], [1, 2, 3]], ids=["one arena", "own arenas"])
@pytest.mark.parametrize("takes_any", [False, True], ids=["foreign frees", "any"])
def test_threads_beside_a_concurrent_operation_leave_the_pool_consistent(
    meanwhile: Callable[[Rig, list[int]], None], streams: list[int], takes_any: bool
) -> None:
    rig = Rig(limit=96 * PAGE)
    team = Team(rig_doors(rig, streams), workers=3, turns=TURNS, most=12 << 20, takes_any=takes_any)
    while team.running():
        meanwhile(rig, streams)
    team.end()
    meanwhile(rig, streams)
    rig.sync_waiting()
    assert rig.check() == 0
    assert all(rig.stats(stream)["allocated"] == 0 for stream in streams)
    rig.trim()
    assert (rig.check(), rig.reserved()) == (0, 0)


def test_pages_move_between_the_arenas_of_threads() -> None:
    rig = Rig(limit=48 * PAGE)
    team = Team(rig_doors(rig, [1, 2, 3]), workers=3, turns=TURNS, most=16 << 20)
    team.end()
    assert rig.check() == 0
    assert sum(rig.stats(stream)["counters"]["donated"] for stream in (1, 2, 3)) > 0


@pytest.mark.parametrize("takes_any", [False, True], ids=["foreign frees", "any"])
def test_threads_never_write_to_a_block_of_another_thread(takes_any: bool) -> None:
    """The test runs on the simulator, because its addresses have memory, and with a limit, so that pages move."""
    with acl.Pool(0, limit=64 << 20) as pool, acl.Stream(0) as first, acl.Stream(0) as second:
        streams = (first, second)
        for stream in streams:
            pool.register(stream)
        doors = [(door.object, *door.values[1:3], door.values[4]) for door in map(Door, streams)]
        team = Team(doors, workers=2, turns=TURNS, most=4 << 20, touch=True, takes_any=takes_any,
                    context=_peers.context())
        while team.running():
            pool.trim(16 << 20, idle=True)
            assert pool.stats().reserved <= 64 << 20
        team.end()
        assert team.spoiled == 0
        assert (pool.check(), pool.stats().allocated) == (0, 0)
        pool.trim()
        assert physical() == 0
        for stream in streams:
            pool.unregister(stream)
