"""Loads with which a pool converges late, because of small peaks, many streams or long-lived blocks.

They have the form of `support.loads`.  Each is a service that repeats its requests.  When its shapes repeat, a pass
over the load should need no driver call and no wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from support.loads import MIB, Recorder, attention, layers, mlp
from support.strange_loads import interleaved

__all__ = ["RESTLESS"]


# --- one stream, small peaks ---

def small_net(t: Recorder, steps: int) -> None:
    """Add a small convolution net with batches of different sizes; its live peak is some tens of MiB."""
    for _ in range(steps):
        batch, side = t.random.randrange(1, 9), t.random.choice((64, 96, 128, 160))
        x = t.tensor(batch, 3, side, side)
        channels = 32
        for _ in range(5):
            side //= 2
            for _ in range(2):
                y = t.tensor(batch, channels, side, side)
                t.work(2 * MIB + batch * side * side * 9)
                z = t.tensor(batch, channels, side, side)
                t.give(x)
                t.work(MIB)
                x = t.tensor(batch, channels, side, side)
                t.give(y, z)
            channels *= 2
        t.work(4 * MIB)
        t.give(x)
        t.step += 1


def small_text(t: Recorder, steps: int) -> None:
    """Add a small text encoder, while weights of medium sizes are live."""
    for _ in range(6):
        t.take(t.random.randrange(MIB, 6 * MIB))
    for _ in range(steps):
        layers(t, 6, t.random.randrange(16, 2049), 384, 1536, 384, 512, gated=False)


def backward(t: Recorder, steps: int) -> None:
    """Add training steps, in which each result of the forward pass is live until the backward pass uses it."""
    sizes = [t.random.randrange(300, 6000) * 1024 for _ in range(24)]
    gradients = [t.take(size) for size in sizes[::3]]
    for _ in range(steps):
        batch = t.random.randrange(4, 17)
        kept = []
        for size in sizes:
            kept.append(t.take(size * batch // 16 + 32))
            t.work(3 * MIB)
        grad = t.take(MIB)
        for activation in reversed(kept):
            following = t.take(t.sizes[activation])
            t.work(2 * MIB)
            t.give(activation, grad)
            grad = following
        t.give(grad)
        t.step += 1
    t.give(*gradients)


def proposals(t: Recorder, steps: int) -> None:
    """Add a detector: a backbone, then up to 120 tensors whose sizes depend on the image."""
    for _ in range(steps):
        features = [t.take((side * side * 256 + t.random.randrange(65536)) * 2) for side in (96, 48, 24, 12)]
        found = []
        for _ in range(t.random.randrange(20, 120)):
            found.append(t.take(int(t.random.lognormvariate(12.5, 1.2)) + 32))
            t.work(512 * 1024)
            if len(found) > 30:
                t.give(found.pop(t.random.randrange(len(found))))
        t.work(8 * MIB)
        t.give(*features, *found)
        t.step += 1


def subgraphs(t: Recorder, steps: int) -> None:
    """Add a graph net: sampled subgraphs of three hops, four of them prefetched."""
    ahead: list[list[int]] = []
    for _ in range(steps):
        nodes, batch = t.random.randrange(500, 3000), []
        for _hop in range(3):
            batch += [t.tensor(nodes, 256), t.tensor(nodes * 8, width=8)]
            nodes = int(nodes * (1.2 + t.random.random()))
        ahead.append(batch)
        if len(ahead) > 4:
            batch = ahead.pop(0)
            x = t.tensor(nodes, 128)
            for block in reversed(batch):
                y = t.take(t.sizes[block] // 2 + 32)
                t.work(2 * MIB)
                t.give(block, x)
                x = y
            t.give(x)
        t.step += 1


def beams(t: Recorder, steps: int) -> None:
    """Add a beam search: each step copies the caches of all beams to new tensors."""
    for _ in range(steps):
        width, tokens = t.random.randrange(1, 6), t.random.randrange(8, 64)
        caches = [t.tensor(width, tokens, 1024) for _ in range(12)]
        for token in range(6):
            for layer in range(12):
                x = t.tensor(width, 1024)
                new = t.tensor(width, tokens + token + 1, 1024)
                t.work(MIB)
                t.give(caches[layer], x)
                caches[layer] = new
        t.give(*caches)
        t.step += 1


def adapters(t: Recorder, steps: int) -> None:
    """Add a small net and up to 14 adapters of random sizes; if there are more, one of the eight oldest is freed."""
    loaded: list[int] = []
    for _ in range(steps):
        if t.random.random() < 0.3:
            loaded.append(t.take(int(t.random.uniform(0.4, 7) * MIB)))
            if len(loaded) > 14:
                t.give(loaded.pop(t.random.randrange(8)))
        layers(t, 3, t.random.randrange(1, 600), 1024, 2816, 1024, 512, gated=True)


def frames(t: Recorder, steps: int) -> None:
    """Add work on a video: a ring of decoded frames, and a net that reads the newest eight frames."""
    ring: list[int] = []
    height = 720
    for number in range(steps):
        if number % 40 == 0:
            height = t.random.choice((480, 720, 1080))
        ring.append(t.take(height * height * 16 // 9 * 3))
        if len(ring) > 8:
            t.give(ring.pop(0))
        scaled = [t.take(224 * 224 * 6 + 32) for _ in ring]
        x = t.take(t.random.randrange(2, 12) * MIB)
        t.work(4 * MIB)
        t.give(*scaled)
        y = t.take(t.sizes[x] // 2)
        t.work(4 * MIB)
        t.give(x, y)
        t.step += 1


def shuffled(t: Recorder, steps: int) -> None:
    """Add steps that allocate sixty blocks of random sizes and free them in a random order."""
    for _ in range(steps):
        live = [t.take(int(t.random.lognormvariate(13.8, 1.1)) + 32) for _ in range(60)]
        t.random.shuffle(live)
        t.give(*live)
        t.step += 1


# --- one stream, long-lived blocks ---

def prefix_cache(t: Recorder, steps: int) -> None:
    """Add caches of prefixes, each of a random medium size, kept up to a budget of 400 MiB."""
    kept: list[int] = []
    held = 0
    for _ in range(steps):
        kept.append(t.take(t.random.randrange(1, 280) * 32768 + 32))
        held += t.sizes[kept[-1]]
        layers(t, 2, t.random.randrange(16, 400), 1024, 2816, 1024, 512, gated=True)
        while held > 400 * MIB:
            gone = kept.pop(min(int(t.random.expovariate(0.08)), len(kept) - 1))
            held -= t.sizes[gone]
            t.give(gone)


def jagged(t: Recorder, steps: int) -> None:
    """Add batches of a recommender with tables of jagged features; a few are live, and freed in random order."""
    alive: list[int] = []
    for _ in range(steps):
        for _ in range(26):
            alive.append(t.take(int(t.random.lognormvariate(14.2, 0.9)) + 32))
            t.work(t.random.randrange(1, 3) * MIB)
        t.random.shuffle(alive)
        while len(alive) > 70:
            t.give(alive.pop())
        t.step += 1


def concatenating(t: Recorder, steps: int) -> None:
    """Add caches that each step allocates again, one token longer."""
    running: list[list[int]] = []       # per request: tokens, steps left, then the caches
    for _ in range(steps):
        if len(running) < 4:
            running.append([t.random.randrange(16, 400), t.random.randrange(20, 200)])
        for request in running:
            request[0] += 1
            request[1] -= 1
            for layer in range(8):
                new = t.take(request[0] * 16384 + 32)
                if len(request) < 10:
                    request.append(new)
                else:
                    t.give(request[2 + layer])
                    request[2 + layer] = new
                t.work(MIB)
        for request in [r for r in running if r[1] <= 0]:
            t.give(*request[2:])
            running.remove(request)
        t.step += 1


def sessions(t: Recorder, steps: int) -> None:
    """Add states of users: blocks of random medium sizes that are freed after random times."""
    ends: list[tuple[int, int]] = []
    for step in range(steps):
        for _ in range(4):
            ends.append((step + 1 + int(t.random.expovariate(0.04)), t.take(t.random.randrange(400, 7000) * 1024)))
        t.give(*(block for end, block in ends if end <= step))
        ends = [entry for entry in ends if entry[0] > step]
        t.step += 1


# --- several streams ---

def growing(t: Recorder, depth: int, hidden: int, chunk: int) -> Iterator[Callable[[int], None]]:
    """Yield the steps of a decoder.  Its cache grows by chunks until it is freed; then it grows again."""
    cache: list[int] = []
    while True:
        limit = t.random.randrange(3, 14)

        def step(tokens: int, limit: int = limit) -> None:
            if t.random.random() < 0.25:
                cache.append(t.take(chunk))
            x = t.tensor(tokens, hidden)
            for _ in range(depth):
                block = attention(t, tokens, hidden, hidden // 4, 512)
                t.give(x)
                x = mlp(t, tokens, hidden, 3 * hidden, gated=True)
                t.give(block)
            t.give(x)
            if len(cache) > limit:
                t.give(*cache)
                cache.clear()
        yield step


def speculative(t: Recorder, steps: int) -> None:
    """Add a small decoder, which proposes some tokens on one stream, and a larger one, which checks them on another."""
    draft, target = growing(t, 2, 512, MIB), growing(t, 6, 2048, 3 * MIB)
    for _ in range(steps):
        ahead = t.random.randrange(2, 7)
        t.stream = 0
        for _ in range(ahead):
            next(draft)(t.random.choice((1, 1, 1, 256)))
        t.stream = 1
        next(target)(t.random.choice((ahead, ahead, 512)))
        t.step += 1


def three_at_once(t: Recorder, steps: int) -> None:
    interleaved(t, [
        lambda part: layers_of(part, steps, 12, 1024, 2048),
        lambda part: small_net(part, 3 * steps),
        lambda part: layers_of(part, steps, 6, 2048, 1024)], 30)


def layers_of(t: Recorder, steps: int, depth: int, hidden: int, most: int) -> None:
    for _ in range(steps):
        layers(t, depth, t.random.randrange(1, most), hidden, 4 * hidden, hidden, 512, gated=False)


def one_of_three(t: Recorder, steps: int) -> None:
    """Add three nets on three streams that run at the same time: two repeat their shapes, one has random shapes."""
    def fixed(hidden: int) -> Callable[[Recorder], None]:
        def run(part: Recorder) -> None:
            for step in range(steps):
                layers(part, 8, (64, 256, 1024)[step % 3], hidden, 3 * hidden, hidden, 512, gated=True)
        return run

    interleaved(t, [fixed(1024), fixed(1536), lambda part: layers_of(part, steps, 12, 1024, 2048)], 60)


def ranking(t: Recorder, steps: int) -> None:
    """Add retrieval on one stream, ranking on a second, and a few long-lived results on a third."""
    kept: list[int] = []
    for _ in range(steps):
        t.stream = 0
        layers(t, 4, t.random.randrange(16, 512), 768, 3072, 768, 512, gated=False)
        t.stream = 1
        layers(t, 4, t.random.randrange(256, 4096), 384, 1536, 384, 512, gated=False)
        t.stream = 2
        kept.append(t.take(t.random.randrange(100, 3000) * 1024))
        if len(kept) > 10:
            t.give(kept.pop(0))


def stages(t: Recorder, steps: int) -> None:
    """Add a pipeline over four streams: each stage keeps its results until its next step."""
    held: list[tuple[int, ...]] = [() for _ in range(4)]
    for _ in range(steps):
        for stage in range(4):
            t.stream = stage
            t.give(*held[stage])
            held[stage] = tuple(t.take(t.random.choice((1, 2, 5, 9)) * MIB + 32) for _ in range(3))
            for _ in range(5):
                a = t.take(t.random.randrange(500, 9000) * 1024)
                t.work(3 * MIB)
                b = t.take(t.sizes[a] // 2)
                t.give(a, b)
        t.step += 1


def large_nets(t: Recorder) -> list[Callable[[], None]]:
    """Return three decoders whose steps need several hundred MiB each, and little memory between two steps."""
    def net(depth: int, hidden: int, most: int) -> Callable[[], None]:
        def step() -> None:
            layers(t, depth, t.random.randrange(most // 2, most), hidden, 4 * hidden, hidden, 512, gated=True)
        return step

    return [net(8, 4096, 4096), net(12, 3072, 6144), net(6, 5120, 3072)]


def large_in_turn(t: Recorder, steps: int) -> None:
    """Add the large nets; each runs one step, then the next one does."""
    nets = large_nets(t)
    kept: list[list[int]] = [[] for _ in nets]
    for step in range(steps):
        t.stream = step % len(nets)
        nets[t.stream]()
        kept[t.stream].append(t.take(20 * MIB + t.stream))
        t.give(*kept[t.stream][:-4])
        del kept[t.stream][:-4]


def large_at_random(t: Recorder, steps: int) -> None:
    """Add the large nets; one, chosen at random, runs for some steps."""
    nets = large_nets(t)
    for _ in range(steps // 3):
        t.stream = t.random.randrange(len(nets))
        for _ in range(t.random.randrange(1, 6)):
            nets[t.stream]()


RESTLESS: dict[str, Callable[[Recorder, int], None]] = {
    load.__name__: load for load in (
        small_net, small_text, backward, proposals, subgraphs, beams, adapters, frames, shuffled,
        prefix_cache, jagged, concatenating, sessions,
        speculative, three_at_once, one_of_three, ranking, stages, large_in_turn, large_at_random)
}
