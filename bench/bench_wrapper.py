"""The time that a wrapper adds to a call of the C API: `python bench/bench_wrapper.py [--json FILE]`.

For each call, three ways are timed in one run: the bare C call in a C loop, the pyACL function (`acl.rt.*`), and the
method of this package's object.  The last two run in a Python loop, whose own cost is subtracted.  What they take more
than the bare call is their overhead.  No device is measured: the C call's own time is that of the simulator.

Under pytest (`pytest bench/bench_wrapper.py`) the calls are pytest-benchmark cases.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest

import acl
from acl.tools.bench import _calls

LOOPS = 20_000
ROUNDS = 9


class World:
    """The objects that the calls work on."""

    def __init__(self) -> None:
        acl.Device(0).use()
        self.stream, self.event = acl.Stream(), acl.Event()
        self.source, self.target = acl.Buffer(4096), acl.Buffer(4096)
        self.stream.record(self.event)
        self.stream.synchronize()

    def bare(self) -> dict[str, Callable[[int], tuple[float, int]]]:
        """Return the C loops, by name."""
        stream, event = self.stream.handle, self.event.handle
        target, source = self.target.address, self.source.address
        return {
            "get_device": _calls.get_device,
            "stream_query": lambda loops: _calls.stream_query(loops, stream),
            "event_query": lambda loops: _calls.event_query(loops, event),
            "record_event": lambda loops: _calls.record_event(loops, event, stream),
            "malloc_free": lambda loops: _calls.malloc_free(loops, 4096),
            "memcpy": lambda loops: _calls.memcpy(loops, target, source, 4096),
        }

    def pyacl(self) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the functions of the pyACL surface, with their arguments."""
        rt = acl.rt
        stream, event = self.stream.handle, self.event.handle
        target, source = self.target.address, self.source.address
        return {
            "get_device": (rt.get_device, ()),
            "stream_query": (rt.stream_query, (stream,)),
            "event_query": (rt.query_event_status, (event,)),
            "record_event": (rt.record_event, (event, stream)),
            "memcpy": (rt.memcpy, (target, 4096, source, 4096, 3)),
        }

    def objects(self) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the methods of this package's objects, with their arguments."""
        return {
            "get_device": (acl.Device.current, ()),
            "stream_query": (self.stream.query, ()),
            "event_query": (self.event.query, ()),
            "record_event": (self.event.record, (self.stream,)),
            "malloc_free": (acl.Buffer, (4096,)),
            "memcpy": (acl.copy, (self.target, self.source)),
        }


def loop_seconds(call: Callable[..., Any] | None, arguments: tuple[Any, ...], loops: int) -> float:
    """Return the seconds of a Python loop of calls; if the call is None, of an empty loop."""
    start = time.perf_counter()
    if call is None:
        for _ in repeat(None, loops):
            pass
    else:
        for _ in repeat(None, loops):
            call(*arguments)
    return time.perf_counter() - start


def rounds_ns(measure: Callable[[], float]) -> list[float]:
    """Return the nanoseconds of one call in each round."""
    return [measure() / LOOPS * 1e9 for _ in range(ROUNDS)]


def drain(world: World) -> None:
    world.stream.synchronize()


def rows(world: World) -> Iterator[dict[str, Any]]:
    """Yield one row for each call: for each kind, the nanoseconds (median, least, all rounds) and the overhead."""
    empty = statistics.median(rounds_ns(lambda: loop_seconds(None, (), LOOPS)))
    pyacl, objects = world.pyacl(), world.objects()
    for name, bare in world.bare().items():
        kinds = {"bare": rounds_ns(lambda bare=bare: bare(LOOPS)[0])}
        drain(world)
        for kind, calls in (("pyacl", pyacl), ("object", objects)):
            if name in calls:
                call, arguments = calls[name]
                kinds[kind] = [
                    ns - empty
                    for ns in rounds_ns(lambda c=call, a=arguments: loop_seconds(c, a, LOOPS))
                ]
                drain(world)
        row: dict[str, Any] = {"call": name}
        for kind, values in kinds.items():
            row[kind] = {"median": statistics.median(values), "least": min(values), "all": values}
            if kind != "bare":
                row[kind]["overhead"] = row[kind]["median"] - row["bare"]["median"]
        yield row


@contextmanager
def world_open() -> Iterator[World]:
    world = World()
    yield world
    world.stream.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round of every call")
    choice = parser.parse_args()
    with world_open() as world:
        found = list(rows(world))
    print(
        f"{'ns a call (median)':20} {'bare C':>8} {'acl.rt':>8} {'adds':>6} {'object':>8} {'adds':>6}"
    )
    for row in found:
        line = f"{row['call']:20} {row['bare']['median']:8.1f}"
        for kind in ("pyacl", "object"):
            if kind in row:
                line += f" {row[kind]['median']:8.1f} {row[kind]['overhead']:6.1f}"
            else:
                line += f" {'':8} {'':6}"
        print(line)
    if choice.json:
        choice.json.write_text(
            json.dumps({"python": sys.version, "loops": LOOPS, "rows": found}, indent=1)
        )
    return 0


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with world_open() as made:
        yield made


@pytest.mark.parametrize("kind", ["pyacl", "object"])
@pytest.mark.parametrize(
    "name", ["get_device", "stream_query", "event_query", "record_event", "memcpy"]
)
def test_bench_wrapper(benchmark: Any, world: World, kind: str, name: str) -> None:
    call, arguments = getattr(world, "pyacl" if kind == "pyacl" else "objects")()[name]
    benchmark(call, *arguments)
    drain(world)


if __name__ == "__main__":
    sys.exit(main())
