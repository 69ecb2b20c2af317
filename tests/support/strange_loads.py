"""Loads of kinds that the allocator was not tuned on, made from a seed; in the form of `support.loads`.

They are: nets of full depth whose shapes change every few steps; caches that each step allocates again, or that are
freed late; streams that alternate at random, or of which only one runs at a time; and hard sizes (just above a whole
number of pages, huge blocks among tiny ones, a tiny live block after each large one).
"""

from __future__ import annotations

from collections.abc import Callable

from support.loads import MIB, WORKSPACE, Recorder, layers

__all__ = ["STRANGE", "interleaved"]

PAGE = 2 * MIB


def dropped(t: Recorder, live: list[int]) -> None:
    """Free a live block, chosen at random."""
    index = t.random.randrange(len(live))
    live[index], live[-1] = live[-1], live[index]
    t.give(live.pop())


class Outputs:
    """Output buffers as in a service: they are allocated before a step and freed two steps later."""

    def __init__(self, t: Recorder) -> None:
        self.t = t
        self.held: list[list[int]] = []

    def start(self, *sizes: int) -> None:
        self.held.append([self.t.take(size) for size in sizes])

    def end(self) -> None:
        self.t.step += 1
        if len(self.held) > 2:
            self.t.give(*self.held.pop(0))


def residual_block(t: Recorder, x: int, batch: int, channels: int, pixels: int) -> int:
    """Add two normalised convolutions with a residual connection, and return the result."""
    out = x
    for _ in range(2):
        norm = t.tensor(batch, channels, pixels)
        if out != x:
            t.give(out)
        act = t.tensor(batch, channels, pixels)
        t.give(norm)
        out = t.tensor(batch, channels, pixels)
        t.work(WORKSPACE + min(32 * MIB, 9 * channels * 2 * 32 * 64))
        t.give(act)
    added = t.tensor(batch, channels, pixels)
    t.give(out, x)
    return added


def diffusion_step(t: Recorder, batch: int, height: int, width: int) -> None:
    """Add a step of a UNet with attention; the results of all levels are live at the lowest one."""
    skips, channels, pixels = [], 320, height * width
    x = t.tensor(batch, channels, pixels)
    t.work()
    for depth in (0, 2, 10):
        for _ in range(2):
            x = residual_block(t, x, batch, channels, pixels)
            for _ in range(depth):
                inner = t.tensor(batch, pixels, 8 * channels)
                t.work()
                gated = t.tensor(batch, pixels, 4 * channels)
                t.give(inner)
                out = t.tensor(batch, channels, pixels)
                t.work()
                t.give(gated, x)
                x = out
            skips.append((t.tensor(batch, channels, pixels), channels, pixels))
        if depth < 10:
            pixels //= 4
            channels *= 2
            x, old = t.tensor(batch, channels, pixels), x
            t.give(old)
    for skip, channels, pixels in reversed(skips):
        joined = t.tensor(batch, 2 * channels, pixels)
        t.give(skip, x)
        x = residual_block(t, joined, batch, channels, pixels)
    t.give(x)


def diffusion(t: Recorder, shapes: int) -> None:
    """Add a diffusion model: pictures of one size for a few steps, then of another size."""
    outputs = Outputs(t)
    for _ in range(shapes):
        batch, height, width = 2 * t.random.randrange(1, 5), *(4 * t.random.randrange(16, 41) for _ in "hw")
        for _ in range(t.random.randrange(2, 12)):
            outputs.start(batch * 4 * height * width * 2)
            diffusion_step(t, batch, height, width)
            outputs.end()


def buckets(t: Recorder, steps: int) -> None:
    """Add an encoder that gets batches of few different shapes, in any order."""
    outputs = Outputs(t)
    for _ in range(steps):
        tokens = t.random.choice((1, 2, 4, 8, 16, 32)) * t.random.choice((64, 128, 256, 384, 512))
        outputs.start(tokens * 2048, 65536)
        layers(t, 24, tokens, 1024, 4096, 1024, 512, gated=False)
        outputs.end()


def regrown(t: Recorder, steps: int) -> None:
    """Add caches that each step allocates again, one token longer, as a concatenation does."""
    running: list[list[int]] = []       # per request: tokens, steps left, then the cache's tensors
    for _ in range(steps):
        if len(running) < 4 and t.random.random() < 0.05:
            running.append([t.random.randrange(16, 700), t.random.randrange(20, 200)])
        for request in running:
            request[0] += 1
            request[1] -= 1
            for layer in range(12):
                new = t.take(request[0] * 16384 + 32)
                if len(request) < 14:
                    request.append(new)
                else:
                    t.give(request[2 + layer])
                    request[2 + layer] = new
                t.work()
        for request in [r for r in running if r[1] <= 0]:
            t.give(*request[2:])
            running.remove(request)


def concatenated(t: Recorder, steps: int) -> None:
    """Add caches as `regrown` does, of more sequences, and keep the old tensors until all new ones are allocated."""
    running: list[list[int]] = []       # per request: tokens, steps left, then the cache's tensors
    for _ in range(steps):
        if len(running) < 8:
            running.append([t.random.randrange(16, 700), t.random.randrange(100, 800)])
        for request in running:
            old = request[2:]
            tokens, left = request[0] + 1, request[1] - 1
            request[:] = [tokens, left, *(t.take(tokens * 16384 + 32) for _ in range(4))]
            t.give(*old)
        for request in [r for r in running if r[1] <= 0]:
            t.give(*request[2:])
            running.remove(request)


def prefixes(t: Recorder, steps: int) -> None:
    """Add decoding with caches of prefixes, kept up to a budget; older ones are more likely to be freed."""
    kept: list[int] = []
    held = 0
    for _ in range(steps):
        tokens = t.random.randrange(1, 48) + (t.random.randrange(1, 3000) if t.random.random() < 0.15 else 0)
        kept.append(t.take(tokens * 32768 + 32))
        held += t.sizes[kept[-1]]
        layers(t, 4, tokens, 4096, 14336, 1024, 512, gated=True)
        while held > 1500 * MIB:
            gone = kept.pop(min(int(t.random.expovariate(0.1)), len(kept) - 1))
            held -= t.sizes[gone]
            t.give(gone)


def decoding(t: Recorder, steps: int) -> None:
    """Add a long run of decode steps: requests begin and end, their caches grow in chunks of 4 MiB."""
    running: list[list[int]] = []
    for _ in range(steps):
        while len(running) < 32 and t.random.random() < 0.1:
            running.append([t.random.randrange(20, 2000), *(t.take(4 * MIB) for _ in range(t.random.randrange(1, 5)))])
        layers(t, 4, max(1, len(running)), 4096, 14336, 1024, 512, gated=True)
        for request in running:
            request[0] -= 1
            if request[0] % 256 == 0:
                request.append(t.take(4 * MIB))
        for request in [r for r in running if r[0] <= 0]:
            t.give(*request[1:])
            running.remove(request)


def above_pages(t: Recorder, count: int) -> None:
    """Add blocks of a whole number of pages plus 512 bytes."""
    live: list[int] = []
    for _ in range(count):
        if len(live) > 60 or (live and t.random.random() < 0.47):
            dropped(t, live)
        else:
            live.append(t.take(t.random.randrange(1, 12) * PAGE + 512))


def huge_and_tiny(t: Recorder, count: int) -> None:
    """Add huge and tiny blocks alternately, of which a dozen are live."""
    live: list[int] = []
    for number in range(count):
        live.append(t.take(t.random.randrange(64, 200) * MIB if number % 2 else t.random.randrange(1, 65536)))
        if len(live) > 12:
            dropped(t, live)


def left_between(t: Recorder, rounds: int) -> None:
    """Add a block of 4 KiB after each large block; the large blocks are freed first."""
    stay: list[int] = []
    for _ in range(rounds):
        large = []
        for _ in range(20):
            large.append(t.take(int(t.random.lognormvariate(15.5, 1)) + 600000))
            stay.append(t.take(4096))
        t.give(*large)
        while len(stay) > 5000:
            t.give(stay.pop(0))


def tenants(t: Recorder, bursts: int) -> None:
    """Add four streams: one at a time allocates blocks of a random scale, and then keeps a few of them."""
    kept: dict[int, list[int]] = {stream: [] for stream in range(4)}
    for _ in range(bursts):
        t.stream = t.random.randrange(4)
        scale, live = t.random.choice((0.1, 1, 1, 4)), []
        for _ in range(t.random.randrange(200, 1500)):
            if live and (len(live) > 80 or t.random.random() < 0.45):
                dropped(t, live)
            else:
                live.append(t.take(int(scale * t.random.lognormvariate(14, 1.6)) + 32))
        while kept[t.stream] and t.random.random() < 0.8:
            t.give(kept[t.stream].pop())
        stays = t.random.randrange(6)
        kept[t.stream] += live[:stays]
        t.give(*live[stays:])


def interleaved(t: Recorder, nets: list[Callable[[Recorder], None]], quantum: int) -> None:
    """Add each net on its own stream; they alternate after a random number of events, less than `quantum`."""
    parts = []
    for stream, net in enumerate(nets):
        part = Recorder(t.name, t.random.randrange(1 << 30))
        part.stream = stream
        net(part)
        part.finish()
        parts.append((part, iter(part.events), {}))
    while parts:
        at = t.random.randrange(len(parts))
        part, events, numbers = parts[at]
        t.stream = part.stream
        for _ in range(t.random.randrange(1, quantum)):
            op, block, size, *_ = next(events, (2, 0, 0))
            if op == 0:
                numbers[block] = t.take(size)
            elif op == 1:
                t.give(numbers.pop(block))
            else:
                del parts[at]
                break


def two_nets(t: Recorder, steps: int) -> None:
    """Add a large encoder and a small decoder, each at its own pace."""
    def encoder(part: Recorder) -> None:
        for _ in range(steps):
            layers(part, 24, part.random.randrange(1, 33) * part.random.randrange(16, 513), 1024, 4096, 1024, 512,
                   gated=False)

    def decoder(part: Recorder) -> None:
        for _ in range(3 * steps):
            layers(part, 16, part.random.randrange(1, 2048), 2048, 5632, 512, 512, gated=True)

    interleaved(t, [encoder, decoder], 40)


STRANGE: dict[str, Callable[[Recorder, int], None]] = {
    "diffusion": diffusion, "buckets": buckets, "regrown": regrown, "concatenated": concatenated, "prefixes": prefixes,
    "decoding": decoding, "above_pages": above_pages, "huge_and_tiny": huge_and_tiny, "left_between": left_between,
    "tenants": tenants, "two_nets": two_nets,
}
