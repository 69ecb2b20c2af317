"""An axiomatic checker: it finds every execution of a few threads that the memory model of ARMv8 (or x86) allows.

A *place* is a memory location.  An execution is a choice: from which write each read gets its value (`rf`), and in
which order the writes of each place become visible (`co`).  It is allowed if

- each single place behaves as if the threads' steps ran one after the other (`coherent`),
- no other write is between the read and the write of an atomic exchange, and
- the order that the program requires, together with what threads see of each other, has no cycle.

The program requires on ARMv8:

- an acquiring read is before all later steps of its thread;
- a releasing write is after all earlier steps of its thread, and before a later acquiring read;
- a barrier is after all earlier and before all later steps of its thread;
- a read is before each write that depends on it by a branch, and before a read whose address it returned.

On x86 all steps of a thread are in order, except a write and a later read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Event", "Execution", "allowed", "barrier", "exchange", "executions", "membarrier", "read", "write"]

Value = int | str
Edge = tuple[int, int]


@dataclass(eq=False)
class Event:
    """A step of a thread, such as a read or a write."""

    kind: str                       # "R", "W", "barrier", "membarrier"
    place: str = ""
    value: Value | None = None      # for a read: the value with which the thread continues here; None: any value
    acquire: bool = False
    release: bool = False
    address_of: Event | None = None     # the read that returned this event's address, or None
    exchanged: Event | None = None      # for the write of an exchange: its read
    thread: int = -1
    number: int = -1


@dataclass
class Execution:
    """An execution: the write that each read took its value from, and the order of the writes of each place."""

    source: dict[Event, Event | None] = field(default_factory=dict)     # None: the initial value
    order: dict[str, tuple[Event, ...]] = field(default_factory=dict)


def read(place: str, value: Value | None = None, *, acquire: bool = False, address_of: Event | None = None) -> Event:
    return Event("R", place, value, acquire=acquire, address_of=address_of)


def write(place: str, value: Value, *, release: bool = False) -> Event:
    return Event("W", place, value, release=release)


def exchange(place: str, before: Value, after: Value, *, acquire: bool = False, release: bool = False) -> list[Event]:
    """Return the events of an atomic exchange that reads the value `before` and writes `after`."""
    first = read(place, before, acquire=acquire)
    return [first, Event("W", place, after, release=release, exchanged=first)]


def barrier() -> Event:
    return Event("barrier")


def membarrier() -> Event:
    """Return the event of the system call membarrier: a barrier here, and at some point of each other thread."""
    return Event("membarrier")


def acyclic(count: int, edges: Sequence[Edge]) -> bool:
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for a, b in edges:
        after[a].append(b)
        missing[b] += 1
    ready = [n for n in range(count) if missing[n] == 0]
    seen = 0
    while ready:
        seen += 1
        for b in after[ready.pop()]:
            missing[b] -= 1
            if missing[b] == 0:
                ready.append(b)
    return seen == count


def asked_for(a: Event, b: Event, x86: bool) -> bool:
    """Return True if the program requires the order of two events of a thread; `a` is the earlier one."""
    if "barrier" in a.kind or "barrier" in b.kind:
        return True
    if x86:
        return (a.kind, b.kind) != ("W", "R") or a.exchanged is not None
    if a.acquire or b.release or b.exchanged is a or b.address_of is a:
        return True
    if a.kind == "W":
        return a.release and b.acquire
    # If the value of a read decides by a branch whether later steps are done, that orders later writes only.
    return b.kind == "W" and a.value is not None


def merges(lists: list[list[Event]]) -> Iterator[tuple[Event, ...]]:
    """Yield every order of all events that keeps the order within each list."""
    lists = [events for events in lists if events]
    if not lists:
        yield ()
    for index, events in enumerate(lists):
        for rest in merges([*lists[:index], events[1:], *lists[index + 1:]]):
            yield (events[0], *rest)


def choices(threads: Sequence[Sequence[Event]], place: str, initial: Value) -> Iterator[tuple[
        dict[Event, Event | None], tuple[Event, ...], list[Edge]]]:
    """Yield each coherent choice for one place: the sources of its reads, the order of its writes, and edges.

    The edges are the orders between threads that follow from the choice.
    """
    mine = [[e for e in thread if e.place == place] for thread in threads]
    reads = [e for events in mine for e in events if e.kind == "R"]
    within = [(a.number, b.number) for events in mine for a, b in itertools.combinations(events, 2)]
    for order in merges([[e for e in events if e.kind == "W"] for events in mine]):
        at: dict[Event | None, int] = {event: index for index, event in enumerate(order)}
        sources = [
            [w for w in (None, *order) if r.value is None or r.value == (initial if w is None else w.value)]
            for r in reads
        ]
        for chosen in itertools.product(*sources):
            source = dict(zip(reads, chosen, strict=True))
            if any(w.exchanged is not None and at[w] != at.get(source[w.exchanged], -1) + 1 for w in order):
                continue
            pairs = list(itertools.combinations(order, 2))
            pairs += [(w, r) for r, w in source.items() if w is not None]
            pairs += [(r, w) for r, taken in source.items() for w in order[at.get(taken, -1) + 1:]]
            edges = [(a.number, b.number) for a, b in pairs]
            if acyclic(sum(map(len, threads)), within + edges):
                # A thread may see its own write early, except the write of an exchange by an acquiring read.
                seen = [(a.number, b.number) for a, b in pairs
                        if a.thread != b.thread or (a.exchanged is not None and b.acquire)]
                yield source, order, seen


def membarrier_places(threads: Sequence[Sequence[Event]]) -> Iterator[list[Edge]]:
    """Yield the edges for each choice of the points, in the other threads, at which membarriers act."""
    single = []
    for event in itertools.chain.from_iterable(threads):
        if event.kind != "membarrier":
            continue
        options = []
        others = [thread for number, thread in enumerate(threads) if number != event.thread]
        for cut in itertools.product(*[range(len(thread) + 1) for thread in others]):
            edges = []
            for thread, place in zip(others, cut, strict=True):
                edges += [(e.number, event.number) for e in thread[:place]]
                edges += [(event.number, e.number) for e in thread[place:]]
            options.append(edges)
        single.append(options)
    for chosen in itertools.product(*single):
        yield list(itertools.chain.from_iterable(chosen))


def executions(threads: Sequence[Sequence[Event]], initial: dict[str, Value], x86: bool = False) -> Iterator[Execution]:
    """Yield all allowed executions in which each read with a given value returns this value."""
    events = list(itertools.chain.from_iterable(threads))
    for number, event in enumerate(events):
        event.number = number
        event.thread = next(i for i, thread in enumerate(threads) if event in thread)
    program = [
        (a.number, b.number) for thread in threads for a, b in itertools.combinations(thread, 2) if asked_for(a, b, x86)
    ]
    barriers = list(membarrier_places(threads))
    places = sorted({event.place for event in events if event.place})
    options = [list(choices(threads, place, initial.get(place, 0))) for place in places]

    def extend(index: int, edges: list[Edge], found: Execution) -> Iterator[Execution]:
        if not acyclic(len(events), edges):
            return
        if index == len(places):
            if any(acyclic(len(events), edges + more) for more in barriers):
                yield found
            return
        for source, order, seen in options[index]:
            yield from extend(index + 1, edges + seen, Execution(
                {**found.source, **source}, {**found.order, places[index]: order}))

    yield from extend(0, program, Execution())


def allowed(threads: Sequence[Sequence[Event]], initial: dict[str, Value],
            wrong: Callable[[Execution], bool] = lambda _: True, x86: bool = False) -> bool:
    """Return True if an allowed execution is wrong."""
    return any(wrong(execution) for execution in executions(threads, initial, x86))
