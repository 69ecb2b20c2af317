"""The workloads of `aclpool bench`, as loads for the compiled loops.

W1  hot pair: allocate 64 KiB, read the address, free.
W2  mixed: 256 slots; each step replaces the block of a random slot; 32 sizes from 512 B to 4 MiB; warm.
W3  random sizes: 1000 slots; each step replaces the block of a random slot; sizes uniform from 1 B to 8 MiB.
W4  W2 on several threads at once.
W5  dynamic-shape inference: a synthetic transformer of 32 layers, another sequence length each step.

All random numbers come from seeds that are part of the definition; each run draws new replacements.  A run replaces
each slot's block at least four times on average, because a shorter run would measure only the few slots that it uses.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence

from acl.tools.bench._loops import EVENT_BYTES, Load, Subject

__all__ = ["HOT_SIZE", "Inference", "day", "distinct_sizes", "inference", "live_blocks", "mixed", "packed",
           "random_sizes", "tenant"]

HOT_SIZE = 64 << 10
LAYERS, HIDDEN, INNER, HEADS = 32, 4096, 11008, 32
LONGEST = 2048
MATMUL_WORKSPACE = 16 << 20
STEPS_PER_SLOT = 4
MIXED_SLOTS, MIXED_SIZES = 256, [int(512 * 8192 ** (i / 31)) for i in range(32)]     # 512 B to 4 MiB
RANDOM_SLOTS, RANDOM_SIZES = 1000, range(1, (8 << 20) + 1)
SMALL_SIZES = range(512, 4097, 512)
LARGE_SLOTS, LARGE_SIZES = 32, range(1 << 20, (64 << 20) + 1, 1 << 20)
EVENT = struct.Struct("=QII")
assert EVENT.size == EVENT_BYTES


def packed(rows: Sequence[tuple[int, int]]) -> bytes:
    """Return events of one stream as bytes for the loops, from rows (size, slot); size 0 is a free."""
    return b"".join([EVENT.pack(size, slot, 0) for size, slot in rows])


# ---- replacements ----

def replacing(subject: Subject, slots: int, sizes: Sequence[int], count: int, seed: int) -> Load:
    """Return a load of random replacements with all slots in use, and at least four replacements for each slot."""
    load = Load.random(subject, slots, sizes, max(count, STEPS_PER_SLOT * slots), seed)
    load.fill()
    return load


def mixed(subject: Subject, count: int, seed: int = 2) -> Load:
    """Return W2 with all slots in use.  All replacements are drawn at once, so that no thread pauses to draw."""
    load = Load.random(subject, MIXED_SLOTS, MIXED_SIZES, max(count, STEPS_PER_SLOT * MIXED_SLOTS), seed, 1 << 20)
    load.fill()
    return load


def random_sizes(subject: Subject, count: int, seed: int = 3) -> Load:
    """Return W3 with all slots in use."""
    return replacing(subject, RANDOM_SLOTS, RANDOM_SIZES, count, seed)


def live_blocks(subject: Subject, live: int, count: int, seed: int = 6) -> Load:
    """Return a load that replaces random blocks of `live` small ones; it shows the cost while many blocks are live."""
    return replacing(subject, live, SMALL_SIZES, count, seed)


def distinct_sizes(subject: Subject, distinct: int, slots: int, count: int, seed: int = 7) -> Load:
    """Return a load of replacements in `slots` slots, with `distinct` sizes (multiples of 512 B); 1 slot: hot pairs."""
    load = Load.random(subject, slots, range(512, 512 * distinct + 1, 512),
                       max(count, STEPS_PER_SLOT * max(slots, distinct)), seed)
    load.fill()
    return load


def tenant(subject: Subject, large: bool, count: int, seed: int = 8) -> Load:
    """Return the load of one of two tenants: 4,096 blocks of at most 4 KiB, or 32 blocks of 1 to 64 MiB."""
    if large:
        return replacing(subject, LARGE_SLOTS, LARGE_SIZES, count, seed)
    return replacing(subject, 4096, SMALL_SIZES, count, seed)


# ---- events ----

class Inference:
    """Writes the events of a model's run, in the order in which GE (CANN's graph engine) allocates and frees."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.spare: list[int] = []
        self.slots = 0
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0

    def take(self, size: int) -> int:
        """Write an allocation and return its slot, which identifies the block."""
        slot = self.spare.pop() if self.spare else self.slots
        self.slots = max(self.slots, slot + 1)
        self.rows.append((size, slot))
        self.sizes[slot] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        return slot

    def give(self, *slots: int) -> None:
        """Write frees of the blocks of these slots, in this order."""
        for slot in slots:
            self.rows.append((0, slot))
            self.live -= self.sizes.pop(slot)
            self.spare.append(slot)

    def tensor(self, rows: int, columns: int) -> int:
        """Write the allocation of an fp16 tensor, padded as GE pads it; return its slot."""
        return self.take((rows * columns * 2 + 31) // 32 * 32 + 32)

    def op(self, rows: int, columns: int, workspace: int, last_uses: tuple[int, ...] = ()) -> int:
        """Run one operator: allocate its output and workspace, free the workspace and the tensors last used here."""
        output = self.tensor(rows, columns)
        scratch = self.take((workspace + 511) // 512 * 512)
        self.give(scratch, *last_uses)
        return output

    def layer(self, tokens: int, residual: int) -> tuple[int, int, int]:
        """Run a decoder layer; return the new residual, and the keys and values, which are freed later."""
        norm = self.op(tokens, HIDDEN, 4 * tokens)
        query = self.op(tokens, HIDDEN, MATMUL_WORKSPACE)
        key = self.op(tokens, HIDDEN, MATMUL_WORKSPACE)
        value = self.op(tokens, HIDDEN, MATMUL_WORKSPACE, (norm,))
        attention = self.op(tokens, HIDDEN, 32 * tokens * HEADS, (query,))
        projected = self.op(tokens, HIDDEN, MATMUL_WORKSPACE, (attention,))
        middle = self.op(tokens, HIDDEN, 512, (residual, projected))
        norm = self.op(tokens, HIDDEN, 4 * tokens)
        gate = self.op(tokens, INNER, MATMUL_WORKSPACE)
        up = self.op(tokens, INNER, MATMUL_WORKSPACE, (norm,))
        active = self.op(tokens, INNER, 512, (gate, up))
        down = self.op(tokens, HIDDEN, MATMUL_WORKSPACE, (active,))
        return self.op(tokens, HIDDEN, 512, (middle, down)), key, value

    def step(self, tokens: int) -> None:
        """Run the model once; keys and values are freed in the order of their allocation, at the end."""
        residual = self.tensor(tokens, HIDDEN)
        kept: list[int] = []
        for _ in range(LAYERS):
            residual, key, value = self.layer(tokens, residual)
            kept += (key, value)
        logits = self.op(1, 32000, MATMUL_WORKSPACE, (residual,))
        self.give(*kept, logits)


def inference(seed: int = 5, steps: int = 64) -> tuple[bytes, int]:
    """Return W5: the events of `steps` runs with random sequence lengths, and the peak of the live bytes."""
    lengths = random.Random(seed)
    model = Inference()
    for _ in range(steps):
        model.step(lengths.randint(1, LONGEST))
    return packed(model.rows), model.peak


def day(seed: int = 9, ticks: int = 20_000) -> tuple[bytes, int]:
    """Return the events of a service's day, and the peak of the live bytes.

    A request is one block of 4 KiB to 16 MiB.  Four are live at night, 200 at noon.  All are freed at the end.
    """
    chance = random.Random(seed)
    model = Inference()
    live: list[int] = []

    def end_one() -> None:
        model.give(live.pop(chance.randrange(len(live))))

    for tick in range(ticks):
        wanted = 4 + int(196 * math.sin(math.pi * tick / ticks) ** 2)
        for _ in range(2 if live else 0):       # in each step, up to two requests end
            if live:
                end_one()
        while len(live) > wanted:
            end_one()
        while len(live) < wanted:
            live.append(model.take(int(4096 * 4096 ** chance.random())))
    model.give(*live)
    return packed(model.rows), model.peak
