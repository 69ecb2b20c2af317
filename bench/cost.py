"""Count the instructions of the pool's operations, from small cases to large ones.

Every operation goes through the C function pointers that ACL is given, into a pool on the page
driver of `acl.tools._rig`, which only does the accounting. Callgrind counts what runs between the entry of
such a function and its return: the lock, the pool's own work and the calls of that driver, not the
loop. It counts the spin lock, as valgrind refuses the memory barrier of the biased one. An operation is flat
if its largest case takes at most 1.5 times the instructions of its smallest.

`--pauses` times each single call instead, without callgrind: beside 100,000 live blocks, with the same
calls on several new pools. The least time of each call counts, so that other work of the machine
is left out; the longest of these times is the pause.

    python bench/cost.py [--only NAME,...] [--pauses]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acl.tools._rig import Rig, function_addresses
from acl.tools.bench._loops import Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAT = 1.5
HOT = 64 << 10
MIB = 1 << 20
COUNTED = ("on_alloc", "on_free")

Case = tuple[Callable[[], None], int]       # the function to count, and the number of operations in it


@dataclass(frozen=True)
class Operation:
    """A kind of call: a function that sets up a case of some size, the sizes, and the title in the table."""

    make: Callable[[int], Case]
    sizes: tuple[int, ...]
    title: str


class Bench:
    """A pool on the accounting driver, and the function pointers of its arenas."""

    def __init__(self, **options: int) -> None:
        self.rig = Rig(audit=False, **options)
        self.subjects: dict[int, Subject] = {}

    def arena(self, stream: int = 1) -> Subject:
        """Return the function pointers of a stream's arena."""
        if stream not in self.subjects:
            self.subjects[stream] = Subject("aclpool", self.rig.arena(stream), *function_addresses())
        return self.subjects[stream]

    def live(self, count: int, low: int = 512, high: int = 4096, seed: int = 1) -> list[int]:
        """Allocate `count` blocks of random sizes on the first stream, and return them."""
        sizes = np.random.default_rng(seed).integers(low, high + 1, count)
        take = self.arena().take
        return [take(int(size)) for size in sizes]

    def shared(self, count: int, streams: int = 8) -> list[int]:
        """Allocate blocks on the first stream, each of which one of `streams` other streams uses too."""
        blocks = self.live(count)
        for index, block in enumerate(blocks):
            self.rig.share(block, 2 + index % streams)
        return blocks


# ---- the operations: each sets up a case, and returns what is to be counted ----

def hot_pair(live: int) -> Case:
    """Allocate 64 KiB and free it, beside live blocks."""
    bench = Bench()
    bench.live(live)
    arena = bench.arena()
    arena.give(arena.take(HOT))

    def run() -> None:
        for _ in range(500):
            arena.give(arena.take(HOT))
    return run, 500


def replace(live: int, low: int, high: int) -> Case:
    """Free a random live block, allocate another of a random size."""
    bench = Bench()
    blocks = bench.live(live, low, high)
    draw = random.Random(3)
    arena = bench.arena()
    for _ in range(1000):
        index = draw.randrange(live)
        arena.give(blocks[index])
        blocks[index] = arena.take(draw.randint(low, high))

    def run() -> None:
        for _ in range(2000):
            index = draw.randrange(live)
            arena.give(blocks[index])
            blocks[index] = arena.take(draw.randint(low, high))
    return run, 2000


def frees_in_order(live: int, size: int) -> Case:
    """Free all blocks in the order of their addresses."""
    bench = Bench()
    blocks = sorted(bench.live(live, size, size), key=bench.arena().address_of)
    arena = bench.arena()
    arena.give(arena.take(3 * MIB))             # a slow allocation chooses the sentinel

    def run() -> None:
        for block in blocks:
            arena.give(block)
    return run, live


def misses(live: int) -> Case:
    """Allocate 3 MiB for which pages must be mapped, beside live blocks."""
    bench = Bench()
    bench.live(live, 3 * MIB, 3 * MIB)
    arena = bench.arena()

    def run() -> None:
        for _ in range(100):
            arena.take(3 * MIB)
    return run, 100


def misses_of_streams(streams: int) -> Case:
    """As `misses`, but on random streams of a pool with many streams, each of which has a live block."""
    bench = Bench(virtual_bytes=1 << 34)
    for stream in range(1, streams + 1):
        bench.arena(stream).take(3 * MIB)
    draw = random.Random(4)

    def run() -> None:
        for _ in range(100):
            bench.arena(draw.randint(1, streams)).take(3 * MIB)
    return run, 100


def hot_pair_of_streams(streams: int) -> Case:
    """Allocate 64 KiB and free it, on streams in random order."""
    bench = Bench(virtual_bytes=1 << 34)
    for stream in list(range(1, streams + 1)) * 20:             # often enough that each lock gets its owner
        bench.arena(stream).give(bench.arena(stream).take(HOT))
    draw = random.Random(4)

    def run() -> None:
        for _ in range(500):
            arena = bench.arena(draw.randint(1, streams))
            arena.give(arena.take(HOT))
    return run, 500


def shared_frees(waiting: int) -> Case:
    """Free blocks that another, busy stream uses."""
    bench = Bench()
    blocks = bench.shared(waiting)
    Rig.set(busy=True)
    arena = bench.arena()

    def run() -> None:
        for block in blocks:
            arena.give(block)
    return run, waiting


def misses_beside_waiting(waiting: int) -> Case:
    """Allocate 3 MiB for which pages must be mapped, while the frees of shared blocks are pending."""
    bench = Bench()
    blocks = bench.shared(waiting)
    Rig.set(busy=True)
    arena = bench.arena()
    for block in blocks:
        arena.give(block)
    arena.take(3 * MIB)

    def run() -> None:
        for _ in range(100):
            arena.take(3 * MIB)
    return run, 100


def releases(waiting: int) -> Case:
    """Allocate 3 MiB once, when all pending frees are complete; the miss releases them.  Counted per freed block."""
    bench = Bench()
    blocks = bench.shared(waiting)
    arena = bench.arena()
    for block in blocks:
        arena.give(block)
    return lambda: arena.take(3 * MIB) and None, waiting


LIVE = (100, 1_000, 10_000, 100_000)
WAITING = (10, 100, 1_000, 10_000)
STREAMS = (2, 10, 18)                       # under valgrind a process has addresses for only 32 arenas
OPERATIONS = {
    "hot": Operation(hot_pair, LIVE, "hot pair, live blocks"),
    "small": Operation(lambda n: replace(n, 512, 4096), LIVE, "replace 0.5-4 KiB, live blocks"),
    "medium": Operation(lambda n: replace(n, 16 << 10, 256 << 10), LIVE, "replace 16-256 KiB, live blocks"),
    "large": Operation(lambda n: replace(n, MIB, 4 * MIB), LIVE[:3], "replace 1-4 MiB, live blocks"),
    "order-small": Operation(lambda n: frees_in_order(n, 2048), LIVE, "free 2 KiB in order, live blocks"),
    "order-large": Operation(lambda n: frees_in_order(n, MIB), LIVE, "free 1 MiB in order, live blocks"),
    "miss": Operation(misses, LIVE, "miss of 3 MiB, live blocks"),
    "hot-streams": Operation(hot_pair_of_streams, STREAMS, "hot pair, streams"),
    "miss-streams": Operation(misses_of_streams, STREAMS, "miss of 3 MiB, streams"),
    "shared": Operation(shared_frees, WAITING, "free a shared block, waiting"),
    "miss-waiting": Operation(misses_beside_waiting, WAITING, "miss of 3 MiB, waiting"),
    "release": Operation(releases, WAITING, "release by a miss, waiting"),
}


# ---- counting ----

def child(names: Sequence[str], sizes: Sequence[int]) -> None:
    """Run the cases; called in a process under callgrind.

    Callgrind writes its counts to a file, and starts again from 0, at each call of `Rig.mapped`.  So each case makes
    two files: the first counts what prepares the case, the second the case itself.
    """
    for name in names:
        for size in sizes or OPERATIONS[name].sizes:
            run, count = OPERATIONS[name].make(size)
            Rig.mapped()
            run()
            Rig.mapped()
            print(name, size, count, flush=True)


def parts(folder: Path) -> list[int]:
    """Return the instructions that each of callgrind's files counts, in the order in which the files were written."""
    found: dict[int, int] = {}
    for file in folder.glob("out.*"):
        match = re.search(r"^(?:summary|totals): (\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        if match and file.suffix[1:].isdigit():
            found[int(file.suffix[1:])] = int(match[1])
    return [found[number] for number in sorted(found)]


def count(names: Sequence[str], sizes: Sequence[int] = ()) -> dict[str, list[tuple[int, float]]]:
    """Return, for each operation by name, a list of (size, instructions per call) with one element per size.

    The sizes are `sizes`, or if that is empty the sizes of the operation.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                   "--collect-atstart=no", "--dump-before=*Rig*mapped",
                   *(f"--toggle-collect=__pyx_f_3acl_5_core_{each}" for each in COUNTED),
                   sys.executable, __file__, "--child", ",".join(names), ",".join(map(str, sizes))]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "ACL_BACKEND": "sim"})
        if done.returncode:
            raise SystemExit(f"bench/cost.py: callgrind failed:\n{done.stderr}")
        counted = parts(folder)[1::2]
    result: dict[str, list[tuple[int, float]]] = {}
    for line, instructions in zip(done.stdout.splitlines(), counted, strict=True):
        operation, size, operations = line.split()
        result.setdefault(operation, []).append((int(size), instructions / int(operations)))
    return result


def report(counted: dict[str, list[tuple[int, float]]]) -> Iterator[str]:
    """Yield a line for each operation: instructions per call at each size, and the last size's over the first's."""
    for name, cases in counted.items():
        ratio = cases[-1][1] / cases[0][1]
        cells = "  ".join(f"{size:>7,}: {each:>9,.0f}" for size, each in cases)
        yield f"{OPERATIONS[name].title:34}{cells}   x {ratio:.2f}{'' if ratio <= FLAT else '  NOT FLAT'}"


# ---- pauses ----

def call_times(low: int, high: int, live: int, steps: int) -> NDArray[Any]:
    """Return the nanoseconds of each call: `live` allocations, then `steps` times a free and an allocation."""
    draw = np.random.default_rng(5)
    sizes = draw.integers(low, high + 1, live + steps).tolist()
    slots = draw.integers(0, live, steps).tolist()
    arena = Bench().arena()
    take, give, now = arena.take, arena.give, time.perf_counter_ns
    times = np.zeros(live + 2 * steps, np.int64)
    blocks = []
    for index in range(live):
        began = now()
        blocks.append(take(sizes[index]))
        times[index] = now() - began
    for step, slot in enumerate(slots):
        began = now()
        give(blocks[slot])
        middle = now()
        blocks[slot] = take(sizes[live + step])
        times[live + 2 * step:live + 2 * step + 2] = middle - began, now() - middle
    return times


def pauses(live: int = 100_000, steps: int = 100_000, runs: int = 7) -> Iterator[str]:
    """Yield a line for each range of sizes: the longest call, and percentiles, in microseconds."""
    for title, low, high in (("0.5-4 KiB", 512, 4096), ("16-256 KiB", 16 << 10, 256 << 10),
                             ("64 KiB-1 MiB", 64 << 10, MIB), ("1-4 MiB", MIB, 4 * MIB)):
        times = np.min([call_times(low, high, live, steps) for _ in range(runs)], axis=0) / 1000
        filling, replacing = times[:live], times[live:]
        yield (f"{title:14} {live:,} live: filling at most {filling.max():.1f} us, replacing p99.9 "
               f"{np.quantile(replacing, 0.999):.1f}, p99.99 {np.quantile(replacing, 0.9999):.1f}, "
               f"at most {replacing.max():.1f} us")


def main(arguments: list[str]) -> int:
    """Count and print; return 1 if an operation is not flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(OPERATIONS), help="operations, by name")
    parser.add_argument("--pauses", action="store_true", help="time single calls beside 100,000 live blocks")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("sizes", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        child(options.names.split(","), [int(size) for size in options.sizes.split(",") if size])
        return 0
    if options.pauses:
        for line in pauses():
            print(line, flush=True)
        return 0
    flat = True
    for name in options.only.split(","):
        for line in report(count([name])):      # one process for each operation, as valgrind has few addresses
            print(line, flush=True)
            flat = flat and "NOT FLAT" not in line
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
