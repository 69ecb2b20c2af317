"""Allocation traces that are hard on an allocator, made from a seed.

Each function adds events to a `Recorder`, whose arrays have the form of `acl.tools.replay.trace.Trace`.  Sizes are
those that GE, CANN's graph engine, requests: a tensor's bytes are rounded up to a multiple of 32, plus 32; workspaces
are multiples of 512.  The loads were found hard in simulations: deep nets, streams with peaks at different times,
sizes that drift, tiny blocks that live long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

__all__ = ["LOADS", "Recorder", "convnet", "decoder", "drift", "encoder", "mixed_streams", "moe", "residual", "scatter"]

MIB = 1 << 20
WORKSPACE = 16 * MIB


class Recorder:
    """Collects the events of a trace."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.stream = 0
        self.step = 0
        self.events: list[tuple[int, int, int, int, int]] = []
        self.sizes: list[int] = []
        self.streams: list[int] = []

    def take(self, size: int) -> int:
        """Allocate a block and return its id."""
        block = len(self.sizes)
        self.sizes.append(size)
        self.streams.append(self.stream)
        self.events.append((0, block, size, self.step, self.stream))
        return block

    def tensor(self, *shape: int, width: int = 2) -> int:
        """Allocate as many bytes as GE does for a tensor of this shape; return the block's id."""
        count = width
        for extent in shape:
            count *= extent
        return self.take((count + 31) // 32 * 32 + 32)

    def give(self, *blocks: int) -> None:
        """Free blocks."""
        for block in blocks:
            self.events.append((1, block, self.sizes[block], self.step, self.streams[block]))

    def finish(self) -> None:
        """Free all live blocks, so that the trace can be repeated."""
        freed = {block for op, block, *_ in self.events if op}
        self.give(*(block for block in range(len(self.sizes)) if block not in freed))

    def work(self, size: int = WORKSPACE) -> None:
        """Allocate a workspace and free it immediately, as GE does for one launch."""
        self.give(self.take((size + 511) // 512 * 512))

    def columns(self) -> dict[str, np.ndarray]:
        """Return the events as arrays `op`, `id`, `size`, `step`, `stream`."""
        op, block, size, step, stream = zip(*self.events, strict=True)
        return {"op": np.array(op, np.uint8), "id": np.array(block, np.uint32), "size": np.array(size, np.uint64),
                "step": np.array(step, np.uint32), "stream": np.array(stream, np.uint8)}


def attention(t: Recorder, tokens: int, hidden: int, kv: int, context: int) -> int:
    """Add an attention layer, from the normalisation of its input to the projection; return the result's block."""
    norm = t.tensor(tokens, hidden)
    parts = []
    for width in (hidden, kv, kv):
        parts.append(t.tensor(tokens, width))
        t.work()
    t.give(norm)
    turned = [t.tensor(tokens, hidden), t.tensor(tokens, kv)]
    t.give(parts[0], parts[1])
    out = t.tensor(tokens, hidden)
    t.work(WORKSPACE + tokens * min(context, 128) * 64)
    t.give(parts[2], *turned)
    projected = t.tensor(tokens, hidden)
    t.work()
    t.give(out)
    return projected


def mlp(t: Recorder, tokens: int, hidden: int, inner: int, gated: bool) -> int:
    norm = t.tensor(tokens, hidden)
    up = t.tensor(tokens, inner)
    t.work()
    if gated:
        gate = t.tensor(tokens, inner)
        t.work()
        act = t.tensor(tokens, inner)
        t.give(gate, up)
    else:
        act = t.tensor(tokens, inner)
        t.give(up)
    t.give(norm)
    down = t.tensor(tokens, hidden)
    t.work()
    t.give(act)
    return down


def layers(t: Recorder, count: int, tokens: int, hidden: int, inner: int, kv: int, context: int, gated: bool) -> None:
    """Add one pass of a net: embedding, layers with a residual connection each, and head."""
    inputs = [t.tensor(tokens, width=8), t.tensor(tokens, width=8)]
    x = t.tensor(tokens, hidden)
    for _ in range(count):
        for block in (attention(t, tokens, hidden, kv, context), -1):
            if block < 0:
                block = mlp(t, tokens, hidden, inner, gated)
            added = t.tensor(tokens, hidden)
            t.give(block, x)
            x = added
    logits = t.tensor(min(tokens, 64), 32000)
    t.work()
    t.give(x, logits, *inputs)
    t.step += 1


def requests(t: Recorder, chunk: int, most: int) -> Iterator[int]:
    """Yield the tokens of each step of continuous batching; KV chunks are freed at the end of their request."""
    running: list[list[int]] = []       # per request: tokens left, tokens in the last chunk, then the chunks
    while True:
        tokens = 0
        while len(running) < most and tokens < 4096 and t.random.random() < 0.35:
            prompt = max(1, min(4095, int(t.random.lognormvariate(5.5, 1.2))))
            running.append([t.random.randrange(8, 400), prompt % 256,
                            *(t.take(chunk) for _ in range(prompt // 256 + 1))])
            tokens += prompt
        for request in running:
            request[0] -= 1
            request[1] += 1
            if request[1] % 256 == 0:
                request.append(t.take(chunk))
        for request in [r for r in running if r[0] <= 0]:
            t.give(*request[2:])
            running.remove(request)
        yield max(1, tokens + len(running))


def decoder(t: Recorder, steps: int, depth: int = 80, hidden: int = 8192, inner: int = 28672) -> Callable[[], None]:
    source = requests(t, 25 * MIB, 24)

    def step() -> None:
        layers(t, depth, next(source), hidden, inner, 1024, 2048, gated=True)

    for _ in range(steps):
        step()
    return step


def encoder(t: Recorder, steps: int, depth: int = 24, hidden: int = 1024) -> Callable[[], None]:
    def step() -> None:
        tokens = t.random.randrange(1, 65) * t.random.randrange(16, 513)
        layers(t, depth, max(16, tokens // 4), hidden, 4 * hidden, hidden, 512, gated=False)

    for _ in range(steps):
        step()
    return step


def convnet(t: Recorder, steps: int) -> Callable[[], None]:
    def step() -> None:
        batch, side = t.random.randrange(1, 9), t.random.randrange(10, 26) * 32
        aspect = 1 + t.random.random() * 0.7
        height, width = side, int(side * aspect) // 32 * 32
        x = t.tensor(batch, 3, height, width)
        channels, kept = 64, []
        for stage in range(5):
            height, width = (height + 1) // 2, (width + 1) // 2
            for _ in range(1 if stage == 0 else 4):
                skip = t.tensor(batch, channels, height, width)
                a = t.tensor(batch, channels // 4, height, width)
                t.work(WORKSPACE // 4 + batch * height * width * 18)
                b = t.tensor(batch, channels // 4, height, width)
                t.work(WORKSPACE + batch * height * width * 18)
                t.give(a)
                c = t.tensor(batch, channels, height, width)
                t.work()
                t.give(b, x)
                x = t.tensor(batch, channels, height, width)
                t.give(c, skip)
            kept.append(t.tensor(batch, 256, height, width))
            channels *= 2
        t.give(x)
        for feature in reversed(kept):
            scores = t.tensor(batch, height * width, 91)
            t.work()
            t.give(scores, feature)
        t.step += 1

    for _ in range(steps):
        step()
    return step


def moe(t: Recorder, steps: int, depth: int = 8, hidden: int = 2048) -> Callable[[], None]:
    source = requests(t, 3 * MIB, 24)

    def step() -> None:
        tokens = next(source)
        x = t.tensor(tokens, hidden)
        for _ in range(depth):
            block = attention(t, tokens, hidden, hidden, 512)
            routed = []
            for _ in range(32):
                load = int(tokens * 6 / 64 * t.random.paretovariate(1.5))
                if load:
                    part = t.tensor(min(load, tokens), hidden)
                    inner = t.tensor(min(load, tokens), 1408)
                    t.work()
                    routed.append(t.tensor(min(load, tokens), hidden))
                    t.work()
                    t.give(inner, part)
            added = t.tensor(tokens, hidden)
            t.give(block, x, *routed)
            x = added
        t.give(x)
        t.step += 1

    for _ in range(steps):
        step()
    return step


def drift(t: Recorder, steps: int, depth: int = 12) -> Callable[[], None]:
    """Add a net whose length drifts up and down while tiny blocks stay live for very different times."""
    stay: list[tuple[int, int]] = []
    count = [0]

    def step() -> None:
        count[0] += 1
        length = 256 + int(1500 * (1 + np.sin(count[0] / 90)) / 2) + t.random.randrange(0, 64)
        layers(t, depth, length, 2048, 5632, 2048, 512, gated=True)
        for _ in range(6):
            age = 1 + int(t.random.paretovariate(0.7) * 4)
            stay.append((count[0] + min(age, 4000), t.take(t.random.choice((32, 64, 512, 1500, 4096, 20000)))))
        for entry in [e for e in stay if e[0] <= count[0]]:
            t.give(entry[1])
            stay.remove(entry)

    for _ in range(steps):
        step()
    return step


def scatter(t: Recorder, steps: int) -> Callable[[], None]:
    """Add blocks with random sizes and random lifetimes."""
    live: list[int] = []

    def step() -> None:
        for _ in range(100):
            if len(live) > 400 or (live and t.random.random() < 0.45):
                index = t.random.randrange(len(live))
                live[index], live[-1] = live[-1], live[index]
                t.give(live.pop())
            else:
                live.append(t.take(min(64 * MIB, max(1, int(t.random.lognormvariate(12.5, 2.5))))))
        t.step += 1

    for _ in range(steps):
        step()
    return step


def residual(t: Recorder, steps: int) -> Callable[[], None]:
    """Add an encoder and a decoder with skips: all results of the encoder are live when the decoder begins."""
    def step() -> None:
        batch, side = t.random.randrange(1, 5), t.random.randrange(4, 17) * 8
        skips = []
        channels = 320
        x = t.tensor(batch, channels, side, side)
        for _level in range(4):
            for _ in range(3):
                y = t.tensor(batch, channels, side, side)
                t.work()
                z = t.tensor(batch, channels, side, side)
                t.work()
                t.give(y)
                skips.append(z)
            side = max(1, side // 2)
            channels = min(1280, channels * 2)
            following = t.tensor(batch, channels, side, side)
            t.give(x)
            x = following
        for skip in reversed(skips):
            joined = t.take(t.sizes[skip] * 2)
            t.give(skip)
            y = t.take(t.sizes[skip])
            t.work()
            t.give(joined, x)
            x = y
        t.give(x)
        t.step += 1

    for _ in range(steps):
        step()
    return step


def mixed_streams(t: Recorder, turns: int) -> None:
    """Add four nets on four streams; one runs, the others are idle and keep their long-lived blocks."""
    makers = (decoder, encoder, convnet, moe)
    nets = []
    for stream, maker in enumerate(makers):
        t.stream = stream
        nets.append(maker(t, 0, depth=12, hidden=4096, inner=11008) if maker is decoder else maker(t, 0))
    for turn in range(turns):
        t.stream = turn % len(nets)
        for _ in range(t.random.randrange(2, 8)):
            nets[t.stream]()


LOADS: dict[str, Callable[[Recorder, int], object]] = {
    "decoder": decoder, "encoder": encoder, "convnet": convnet, "moe": moe, "drift": drift, "scatter": scatter,
    "residual": residual, "mixed_streams": mixed_streams,
}
