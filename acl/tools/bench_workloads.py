"""The workloads of `aclpool bench`, as events for the compiled loops.

W1  hot pair: allocate 64 KiB, read the address, free.
W2  mixed: 256 slots, a random one's block replaced at each step, 32 sizes from 512 B to 4 MiB, warm.
W3  random sizes: uniform from 1 B to 8 MiB, 1000 slots, a random one's block replaced at each step.
W4  W2 on several threads at once.
W5  dynamic-shape inference: a synthetic transformer of 32 layers, another sequence length each step.

All randomness comes from seeds that are part of the definition. NumPy is imported when a workload
is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HOT_SIZE", "Replacements", "inference", "live_blocks", "mixed", "random_sizes", "sizes_cycle"]

HOT_SIZE = 64 << 10
LAYERS, HIDDEN, INNER, HEADS = 32, 4096, 11008, 32
LONGEST = 2048
MATMUL_WORKSPACE = 16 << 20


@dataclass(frozen=True)
class Replacements:
    """Events for `Load.replace`, and the most bytes that are live while they run from the start."""

    events: bytes
    steps: int
    live_peak: int


def event_array(count: int) -> NDArray[Any]:
    import numpy as np

    return np.zeros(count, np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")]))


def replacements(slots: NDArray[Any], sizes: NDArray[Any], slot_count: int) -> Replacements:
    """Events that give each slot its first block and then replace blocks at random."""
    import numpy as np

    events = event_array(len(sizes))
    events["slot"] = np.concatenate([np.arange(slot_count), slots])
    events["size"] = sizes
    # What each event frees: the size of the event before it in the same slot.
    order = np.argsort(events["slot"], kind="stable")
    slot, size = events["slot"][order], events["size"][order].astype(np.int64)
    freed = np.empty(len(sizes), np.int64)
    freed[order] = np.concatenate([[0], np.where(slot[1:] == slot[:-1], size[:-1], 0)])
    peak = int(np.cumsum(events["size"].astype(np.int64) - freed).max())
    return Replacements(events.tobytes(), len(sizes), peak)


def mixed(seed: int = 2, steps: int = 1 << 17) -> Replacements:
    """W2."""
    import numpy as np

    random = np.random.default_rng(seed)
    choice = np.geomspace(512, 4 << 20, 32).astype(np.int64)
    return replacements(random.integers(0, 256, steps), choice[random.integers(0, 32, steps + 256)], 256)


def random_sizes(seed: int = 3, steps: int = 500_000) -> Replacements:
    """W3: a million operations, half of them allocations."""
    import numpy as np

    random = np.random.default_rng(seed)
    sizes = random.integers(1, (8 << 20) + 1, steps + 1000)
    return replacements(random.integers(0, 1000, steps), sizes, 1000)


def live_blocks(count: int, seed: int = 6, steps: int = 1 << 17) -> Replacements:
    """`count` small blocks, replaced at random: what the cost looks like beside many live blocks."""
    import numpy as np

    random = np.random.default_rng(seed)
    sizes = 512 * random.integers(1, 9, count + steps)
    return replacements(random.integers(0, count, steps), sizes, count)


def sizes_cycle(distinct: int, seed: int = 7, steps: int = 1 << 17) -> bytes:
    """Hot pairs (alloc, free, alloc, free ...) of sizes drawn from `distinct` multiples of 512 B."""
    import numpy as np

    random = np.random.default_rng(seed)
    choice = 512 * (1 + np.arange(distinct))
    events = event_array(2 * steps)
    events["size"][::2] = choice[random.integers(0, distinct, steps)]
    return events.tobytes()


class Inference:
    """Writes the events of a step as GE would: outputs and workspace, launch, frees at last use."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.spare: list[int] = []
        self.slots = 0
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0

    def take(self, size: int) -> int:
        """Allocate; the slot stands for the block."""
        slot = self.spare.pop() if self.spare else self.slots
        self.slots = max(self.slots, slot + 1)
        self.rows.append((size, slot))
        self.sizes[slot] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        return slot

    def give(self, *slots: int) -> None:
        """Free in this order."""
        for slot in slots:
            self.rows.append((0, slot))
            self.live -= self.sizes.pop(slot)
            self.spare.append(slot)

    def tensor(self, rows: int, columns: int) -> int:
        """An fp16 tensor, padded as GE pads it."""
        return self.take((rows * columns * 2 + 31) // 32 * 32 + 32)

    def op(self, rows: int, columns: int, workspace: int, last_uses: tuple[int, ...] = ()) -> int:
        """One operator: its output, its workspace for the launch, then what nobody needs any more."""
        output = self.tensor(rows, columns)
        scratch = self.take((workspace + 511) // 512 * 512)
        self.give(scratch, *last_uses)
        return output

    def layer(self, tokens: int, residual: int) -> tuple[int, int, int]:
        """A decoder layer; returns the new residual and the keys and values that outlive it."""
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
        """One run of the model; keys and values go first in, first out at its end."""
        residual = self.tensor(tokens, HIDDEN)
        kept: list[int] = []
        for _ in range(LAYERS):
            residual, key, value = self.layer(tokens, residual)
            kept += (key, value)
        logits = self.op(1, 32000, MATMUL_WORKSPACE, (residual,))
        self.give(*kept, logits)


def inference(seed: int = 5, steps: int = 64) -> tuple[bytes, int]:
    """W5: the events of `steps` runs with random sequence lengths, and the peak of live bytes."""
    import random

    lengths = random.Random(seed)
    model = Inference()
    for _ in range(steps):
        model.step(lengths.randint(1, LONGEST))
    events = event_array(len(model.rows))
    events["size"] = [size for size, _ in model.rows]
    events["slot"] = [slot for _, slot in model.rows]
    return events.tobytes(), model.peak
