"""Short traces for the tools' tests, made from a seed."""

from __future__ import annotations

import random

from acl.tools.replay.trace import Trace, trace_of_rows

__all__ = ["random_trace"]


def random_trace(seed: int, events: int = 2000, streams: int = 1, largest: int = 30 << 20) -> Trace:
    """Return a trace with random sizes (half of them small) and lifetimes; every block is freed at the end."""
    print(f"seed {seed}")
    choose = random.Random(seed)
    rows: list[tuple[int, int, int, int]] = []
    live: list[tuple[int, int, int]] = []
    count = 0
    while len(rows) < events - len(live):
        if live and choose.random() < 0.48:
            rows.append((1, *live.pop(choose.randrange(len(live)))))
        else:
            size = choose.randint(1, 1 << 20) if choose.random() < 0.5 else choose.randint(1, largest)
            live.append((count, size, choose.randrange(streams)))
            rows.append((0, *live[-1]))
            count += 1
    rows += [(1, *block) for block in live]
    return trace_of_rows(f"random_{seed}", rows)
