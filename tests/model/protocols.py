"""Checks the package's protocols between threads in every execution that ARMv8 allows.

    python tests/model/protocols.py         # exit code 0: all cases are as expected

There are two kinds of cases.  A case that holds is a protocol as in the sources: no execution may have a wrong outcome.
A control case lacks one part of a protocol: a wrong outcome must be found, or the checker would not notice errors.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from memory_model import Event, Execution, Value, allowed, barrier, exchange, membarrier, read, write

LOCK: dict[str, Value] = {"owner": "T", "busy": 0, "spin": 0}
SECTIONS = itertools.count()
Thread = list[Event]


# ---- the biased lock: acl/core/lock.h ----------------------------------------------------------

def section() -> Thread:
    """Return the steps of a critical section: it reads the value that the previous section wrote, and writes one."""
    return [read("data"), write("data", next(SECTIONS))]


def biased(*, release: bool = True, second_look: bool = True) -> Thread:
    """Return the steps of lock_enter_biased that succeeds, and of lock_leave_biased."""
    looks = [read("owner", "T")] if second_look else []
    return [read("owner", "T"), write("busy", 1), *looks, *section(), write("busy", 0, release=release)]


def backs_off() -> Thread:
    """Return the steps of lock_enter_biased that finds, at its second read, that it is not the owner any more."""
    return [read("owner", "T"), write("busy", 1), read("owner", "none"), write("busy", 0, release=True)]


def spin() -> Thread:
    return exchange("spin", 0, 1, acquire=True)


def leave() -> Thread:
    return [write("spin", 0, release=True)]


def revokes(*, process_wide: bool = True, acquire: bool = True) -> Thread:
    """Return the steps of lock_enter in another thread while there is an owner."""
    stop = membarrier() if process_wide else barrier()
    waits = [write("owner", "none"), stop, read("busy", 0, acquire=acquire)]
    return [*spin(), read("owner", "T"), *waits, *section(), *leave()]


def plain(owner: Value | None = None) -> Thread:
    """Return the steps of lock_enter while there is no owner; at the end, `owner` (if given) becomes the owner."""
    bias = [] if owner is None else [write("owner", owner)]
    return [*spin(), read("owner", "none"), *section(), *bias, *leave()]


def steps_down() -> Thread:
    return [read("owner", "T"), *spin(), read("owner", "T"), write("owner", "none"), *leave()]


def overlap(execution: Execution) -> bool:
    """Return True if two sections ran at the same time: one has not read the value that the previous one wrote."""
    order = execution.order.get("data", ())
    before = dict(zip(order, (None, *order), strict=False))
    return any(
        execution.source[first] is not before[second]
        for first, second in ((r, w) for r in execution.source if r.place == "data"
                              for w in order if w.thread == r.thread and w.number == r.number + 1)
    )


def lock_cases() -> list[tuple[str, bool, list[Thread], dict[str, Value], bool]]:
    unowned = {**LOCK, "owner": "none"}
    return [
        ("lock: owner, another revokes", True, [biased(), revokes()], LOCK, False),
        ("lock: owner, another revokes (x86)", True, [biased(), revokes()], LOCK, True),
        ("lock: owner backs off and spins, another revokes", True, [[*backs_off(), *plain()], revokes()], LOCK, False),
        ("lock: former owner sees that, another revokes", True,
         [[read("owner", "none"), *plain()], revokes()], LOCK, False),
        ("lock: owner twice, another revokes", True, [[*biased(), *biased()], revokes()], LOCK, False),
        ("lock: owner, then backs off and spins, another revokes", True,
         [[*biased(), *backs_off(), *plain()], revokes()], LOCK, False),
        ("lock: owner, another revokes, a third spins", True, [biased(), revokes(), plain()], LOCK, False),
        ("lock: owner backs off, another revokes, a third spins", True,
         [[*backs_off(), *plain()], revokes(), plain()], LOCK, False),
        ("lock: owner backs off and becomes owner again, another revokes", True,
         [[*backs_off(), *plain("T"), *biased()], revokes()], LOCK, False),
        ("lock: a thread becomes owner, another spins", True, [[*plain("T"), *biased()], plain()], unowned, False),
        ("lock: a thread becomes owner, another revokes", True, [[*plain("T"), *biased()], revokes()], unowned, False),
        ("lock: owner steps down, another spins", True, [[*biased(), *steps_down()], plain()], LOCK, False),
        ("lock: owner is too late to step down, another revokes", True,
         [[*biased(), read("owner", "T"), *spin(), read("owner", "none"), *leave()], revokes()], LOCK, False),
        ("lock: owner revokes itself, another spins", True, [[*biased(), *revokes()], plain()], LOCK, False),
        ("lock: spinning threads", True, [plain(), plain(), plain()], unowned, False),
        ("lock without membarrier", False, [biased(), revokes(process_wide=False)], LOCK, False),
        ("lock without membarrier (x86)", False, [biased(), revokes(process_wide=False)], LOCK, True),
        ("lock, `busy` read without acquire", False, [biased(), revokes(acquire=False)], LOCK, False),
        ("lock, `busy` cleared without release", False, [biased(release=False), revokes()], LOCK, False),
        ("lock without the second look", False, [biased(second_look=False), revokes()], LOCK, False),
        ("lock, spin lock left without release", False,
         [[*spin(), *section(), write("spin", 0)], [*spin(), *section(), *leave()]], unowned, False),
    ]


# ---- publications ------------------------------------------------------------------------------

def by_address(first: Event, *rest: Event) -> Thread:
    """Return a read, and further reads through the pointer that it returned."""
    for event in rest:
        event.address_of = first
    return [first, *rest]


def message(release: bool = True, acquire: bool = True) -> list[Thread]:
    """count_publish and count_read: an entry is written, then the length; a reader of the length must see the entry."""
    return [
        [write("entry", 1), write("count", 1, release=release)],
        [read("count", 1, acquire=acquire), read("entry", 0)],
    ]


def table(release: bool = True, old_entry: bool = False) -> list[Thread]:
    """arenas_grow, then arena_place, and a reader of `pool.arenas`.

    A reader of the new count must not see the old table.  A reader of the old count must not see an empty new table.
    """
    grow = [write("copied", 1), write("table", "new", release=release), write("room", 2, release=True)]
    place = [write("entry", 1), write("count", 2, release=release)]
    if old_entry:
        return [[*grow, *place], by_address(read("table", "new"), read("copied", 0))]
    return [[*grow, *place], [read("count", 2, acquire=True), read("table", "old")]]


def pointer(release: bool = True) -> list[Thread]:
    """pointer_publish of an arena, a capture or a context, and a reader that reads a field through the pointer."""
    return [
        [write("field", 1), *leave(), write("pointer", 1, release=release)],
        by_address(read("pointer", 1, acquire=True), read("field", 0)),
    ]


def inherit(release: bool = True, by_device_first: bool = True) -> list[Thread]:
    """arena_inherit and arena_is_of: an arena gets a new stream.

    No thread may take it for the former stream's arena.
    """
    looks = [read("by_device", 0, acquire=True), read("stream", "former")]
    return [
        [write("stream", "new"), write("context", 1), write("by_device", 0, release=release)],
        looks if by_device_first else looks[::-1],
    ]


def vacant(acquire: bool = True) -> list[Thread]:
    """arena_end and arena_vacant: an arena whose stream has ended is not vacant while a block of it is live."""
    ends = [write("settled", 1), write("by_device", 1, release=True)]
    return [
        [*spin(), write("live", 1), *leave(), *spin(), *ends, *leave()],
        [read("by_device", 1, acquire=acquire), read("settled", 1), read("live", 0)],
    ]


def capturing(acquire: bool = True) -> list[Thread]:
    """capture_begin and alloc_captured: a thread that sees the mode must see the capture's arena."""
    return [
        [write("capture", 1, release=True), *spin(), write("mode", 1, release=True), *leave()],
        [read("mode", 1, acquire=acquire), read("capture", 0, acquire=acquire)],
    ]


def late_slot(process_wide: bool = True) -> list[Thread]:
    """bind_all: a slot is read without ordering; a call through it must see the library's complete data."""
    stop = [membarrier()] if process_wide else []
    return [
        [write("library", 1), *stop, write("slot", 1, release=True)],
        [read("slot", 1), read("library", 0)],
    ]


def leaving(ordered: bool = True) -> list[Thread]:
    """guard_run and guard_close: either the callback sees that Python is closed, or guard_close sees the callback."""
    def enter(place: str) -> Thread:
        return exchange(place, 0, 1, acquire=True, release=True) if ordered else [write(place, 1)]
    return [
        [*enter("inside"), read("closed", 0, acquire=ordered)],
        [write("closed", 1, release=ordered), read("inside", 0, acquire=ordered)],
    ]


def list_of_threads(locked: bool = True) -> list[Thread]:
    """Two threads put a freed block on an arena's list under its lock: no block may be lost."""
    def push(block: int) -> Thread:
        body = [read("head"), write("head", block)]
        return [*spin(), *body, *leave()] if locked else body
    return [push(1), push(2)]


def lost(execution: Execution) -> bool:
    """Return True if both threads read the same head of the list, so that one block is lost."""
    seen = [w for r, w in execution.source.items() if r.place == "head"]
    return seen[0] is seen[1]


def publication_cases() -> list[tuple[str, bool, list[Thread], dict[str, Value]]]:
    tables: dict[str, Value] = {"table": "old"}
    streams: dict[str, Value] = {"stream": "former", "by_device": 1}
    held: dict[str, Value] = {"spin": 1}
    return [
        ("list that grows", True, message(), {}),
        ("list that grows, without release", False, message(release=False), {}),
        ("list that grows, without acquire", False, message(acquire=False), {}),
        ("table that is replaced, new count", True, table(), tables),
        ("table that is replaced, old count", True, table(old_entry=True), tables),
        ("table that is replaced, without release", False, table(release=False), tables),
        ("table that is replaced, old count, without release", False, table(release=False, old_entry=True), tables),
        ("pointer to an arena, a capture or a context", True, pointer(), held),
        ("pointer to an arena, a capture or a context, without release", False, pointer(release=False), held),
        ("arena that a new stream inherits", True, inherit(), streams),
        ("arena that a new stream inherits, without release", False, inherit(release=False), streams),
        ("arena that a new stream inherits, stream read first", False, inherit(by_device_first=False), streams),
        ("arena of an ended stream, with a live block", True, vacant(), {}),
        ("arena of an ended stream, with a live block, without acquire", False, vacant(acquire=False), {}),
        ("mode and capture", True, capturing(), {}),
        ("mode and capture, without acquire", False, capturing(acquire=False), {}),
        ("function bound late", True, late_slot(), {}),
        ("function bound late, without membarrier", False, late_slot(process_wide=False), {}),
        ("callbacks at the exit", True, leaving(), {}),
        ("callbacks at the exit, with plain fields", False, leaving(ordered=False), {}),
    ]


# ---- the checker itself ------------------------------------------------------------------------

def classic_cases() -> list[tuple[str, bool, list[Thread], dict[str, Value], bool]]:
    """Return litmus tests, whose answers are published.

    The sources are "Simplifying ARM Concurrency" (Pulte et al., 2018) and "x86-TSO" (Sewell et al., 2010).
    """
    def store_buffering(between: Callable[[], Thread]) -> list[Thread]:
        return [[write("x", 1), *between(), read("y", 0)], [write("y", 1), *between(), read("x", 0)]]

    def load_buffering(value: Value | None = None) -> list[Thread]:
        return [[read("x", 1), write("y", 1)], [read("y", 1), write("x", 1)]]

    def writes_seen_by_two(acquire: bool) -> list[Thread]:
        return [[write("x", 1)], [write("y", 1)],
                [read("x", 1, acquire=acquire), read("y", 0)], [read("y", 1, acquire=acquire), read("x", 0)]]

    none: dict[str, Value] = {}
    return [
        ("SB", False, store_buffering(list), none, False),
        ("SB (x86)", False, store_buffering(list), none, True),
        ("SB+dmbs", True, store_buffering(lambda: [barrier()]), none, False),
        ("LB+ctrls", True, load_buffering(), none, False),
        ("MP", False, message(False, False), none, False),
        ("MP (x86)", True, message(False, False), none, True),
        ("MP+rel+acq", True, message(), none, False),
        ("MP+rel+po", False, message(acquire=False), none, False),
        ("IRIW", False, writes_seen_by_two(False), none, False),
        ("IRIW+acqs", True, writes_seen_by_two(True), none, False),
        ("CoRR", True, [[write("x", 1)], [read("x", 1), read("x", 0)]], none, False),
    ]


def seen(_: Execution) -> bool:
    """Return True: if the reads can return the given values, the outcome is wrong."""
    return True


def cases() -> list[tuple[str, bool, list[Thread], dict[str, Value], bool, Callable[[Execution], bool]]]:
    """Return all cases: name, True if it holds, threads, initial values, True for x86, test for a wrong outcome."""
    return [
        *((*case, seen) for case in classic_cases()),
        *((*case, overlap) for case in lock_cases()),
        *((*case, False, seen) for case in publication_cases()),
        ("list of other threads", True, list_of_threads(), {}, False, lost),
        ("list of other threads, without a lock", False, list_of_threads(locked=False), {}, False, lost),
    ]


def main(names: Sequence[str]) -> int:
    """Check all cases, or those whose names contain a word of the command line; return the exit code."""
    wrong = tried = 0
    for name, holds, threads, initial, x86, violated in cases():
        if names and not any(word in name for word in names):
            continue
        found = allowed(threads, initial, violated, x86)
        # A lock that no thread can pass would have no wrong outcome either.  So test that some execution is allowed.
        stuck = violated is not seen and not allowed(threads, initial, x86=x86)
        expected = found != holds and not stuck
        tried += 1
        wrong += not expected
        said = "no execution" if stuck else "wrong outcome found" if found else "holds"
        print(f"{said:20s} {name}{'' if expected else '   <-- NOT AS EXPECTED'}")
    print(f"{tried} cases, {wrong} not as expected")
    return 1 if wrong or not tried else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
