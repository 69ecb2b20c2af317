"""The checker of invariants: each test breaks one field, and the checker must return the number of its invariant."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import acl
from acl.tools._rig import Rig

PAGE = 2 << 20


def scene() -> tuple[Rig, dict[str, int]]:
    """Return a pool with a block in each state, and these blocks by name.

    A large live block lies between two free ones and a hole follows; one small block is live, one is cached.
    """
    rig = Rig(virtual_bytes=1 << 30)
    low, live, high = (rig.alloc(2 * PAGE) for _ in range(3))
    rig.free(low)
    rig.free(high)
    small, cached = rig.alloc(1000, tag=1), rig.alloc(2000)
    rig.free(cached)
    assert rig.check() == 0
    hole = rig.neighbour(rig.neighbour(live))
    return rig, {"live": live, "free": low, "small": small, "cached": cached, "hole": hole}


BREAKS: list[tuple[str, int, Callable[[Rig, dict[str, int]], None]]] = [
    ("contiguity by address", 1, lambda rig, at: rig.spoil("addr", at["live"], 512)),
    ("contiguity by size", 1, lambda rig, at: rig.spoil("size", at["live"], 512)),
    ("contiguity by link", 1, lambda rig, at: rig.spoil("prev", at["live"])),
    ("coalesced", 2, lambda rig, at: rig.spoil("state", at["live"], 2)),
    ("binned by map", 3, lambda rig, at: rig.spoil("maps", change=7)),
    ("binned by the way back", 3, lambda rig, at: rig.spoil("back", rig.neighbour(at["live"]))),
    ("cached", 4, lambda rig, at: rig.spoil("cache", change=4)),
    ("backing", 6, lambda rig, at: rig.spoil("frame", at["live"])),
    ("accounting of live bytes", 7, lambda rig, at: rig.spoil("live", change=512)),
    ("accounting of requested bytes", 7, lambda rig, at: rig.spoil("asked", change=-1)),
    ("accounting of a block's request", 7, lambda rig, at: rig.spoil("requested", at["live"], 3)),
    ("accounting of a tag", 7, lambda rig, at: rig.spoil("tag", change=512)),
    ("pages", 8, lambda rig, at: rig.spoil("pages")),
    ("holes", 9, lambda rig, at: rig.spoil("holes")),
    ("holes by the way back", 9, lambda rig, at: rig.spoil("back", at["hole"])),
    ("source", 11, lambda rig, at: rig.spoil("reserved", change=PAGE)),
    ("mappings by their number", 13, lambda rig, at: rig.spoil("shadows")),
    ("mappings by a search of later", 13, lambda rig, at: rig.spoil("stamp", at["live"])),
    ("a wait that never began", 14, lambda rig, at: rig.spoil("rested")),
    ("a mapping that a wait to come has left", 14, lambda rig, at: rig.spoil("vacated", at["live"])),
    ("sleeping bytes", 15, lambda rig, at: rig.spoil("asleep", change=512)),
    ("a block that sleeps without a record", 15, lambda rig, at: rig.spoil("sleeping", at["live"])),
    ("peaks", 12, lambda rig, at: rig.spoil("live_peak", change=-4 * PAGE - 4096)),
]


@pytest.mark.parametrize(("what", "number", "break_it"), BREAKS, ids=[one[0] for one in BREAKS])
def test_corrupted_field_is_reported_with_the_number_of_its_invariant(
    what: str, number: int, break_it: Callable[[Rig, dict[str, int]], None]
) -> None:
    rig, at = scene()
    break_it(rig, at)
    assert rig.check() == number, what


def test_misaligned_block_violates_invariant_i5() -> None:
    rig, at = scene()
    above = rig.neighbour(at["live"])
    rig.spoil("size", at["live"], -256)
    rig.spoil("addr", above, -256)
    rig.spoil("size", above, 256)
    assert rig.check() == 5


def test_free_block_in_no_bin_violates_invariant_i3() -> None:
    rig, at = scene()
    rig.spoil("state", at["small"], 2)              # changes LIVE to FREE; the block is in no list
    assert rig.check() in (3, 2)


def test_pending_free_without_a_stream_use_violates_invariant_i10() -> None:
    rig, at = scene()
    assert rig.share(at["live"], 2)
    rig.set(busy=True)
    rig.free(at["live"])
    assert rig.check() == 0
    rig.spoil("waiting")
    assert rig.check() == 10


def test_each_invariant_has_a_test_that_breaks_it() -> None:
    text = (Path(acl.__file__).parent / "core" / "types.pxd").read_text()
    listed = {int(number) for number in re.findall(r"^    I(\d+) ", text, re.M)}
    assert {number for _, number, _ in BREAKS} | {5, 10} == listed
