"""Compare torch_npu's allocators with this package's, in one run: `python bench/doors_torch.py [--json FILE]`.

Each row is measured in a new process on the simulator.  The work:

empties   makes and drops tensors of changing sizes, without operators
streams   makes and drops such tensors on four streams in turn
net       runs a transformer with changing numbers of tokens

The columns:

live      the peak of the bytes that torch requested
reserved  the peak of the simulator's physical accounting
ratio     reserved / live
time      CPU time of the thread that requests the memory, the least of the rounds; operators run on other threads
calls     the driver calls of the last round that allocate or free memory, or wait

The simulator's latency is off: driver calls cost less here than on a device.

Needs torch and torch_npu of one version, and a machine without other work.
"""

from __future__ import annotations

import argparse
import sys

from doors import CALLS_OF, COLUMNS, TIME, Row, child, main

__all__ = ["DOORS", "WORK", "measure"]

#: For each allocator: the code that is run before `import torch`, and the environment variables.
DOORS: dict[str, tuple[str, dict[str, str]]] = {
    "torch_npu's own": ("from acl.adapters._preload import preload; preload()", {}),
    "torch_npu's own, expandable": (
        "from acl.adapters._preload import preload; preload()", {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}),
    "acl.torch.install()": ("acl.torch.install()", {}),
    "acl.torch.mem_pool()": ("POOL = acl.torch.mem_pool(acl.Pool(0))", {}),
}

COMMON = """
import contextlib, json, random, sys, time
import aclpool as acl
import acl.sim as sim
POOL = None
{start}
import torch
import torch.nn as nn
torch.npu.set_device(0)
torch.set_grad_enabled(False)
torch.manual_seed(0)
KIB, MIB = 1 << 10, 1 << 20
"""

WORK = {
    "empties": """
def prepare():
    pass

def work(numbers):
    live = [None] * 150
    for step in range(6000):
        size = int(2 ** numbers.uniform(9, 25))
        live[numbers.randrange(150)] = torch.empty(size, dtype=torch.uint8, device="npu")
""",
    "streams": """
STREAMS = []

def prepare():
    STREAMS.extend(torch.npu.Stream() for _ in range(4))

def work(numbers):
    for turn in range(24):
        live = [None] * 60
        with torch.npu.stream(STREAMS[turn % 4]):
            for step in range(250):
                size = int(2 ** numbers.uniform(9, 25))
                live[numbers.randrange(60)] = torch.empty(size, dtype=torch.uint8, device="npu")
        del live
""",
    "net": """
class Layer(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.one, self.two, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads

    def forward(self, x):
        batch, tokens, width = x.shape
        split = lambda t: t.view(batch, tokens, self.heads, -1).transpose(1, 2)
        y = self.one(x)
        scores = split(self.q(y)) @ split(self.k(y)).transpose(-1, -2)
        y = (torch.softmax(scores, -1) @ split(self.v(y))).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.o(y)
        return x + self.down(torch.relu(self.up(self.two(x))))

def prepare():
    global net
    net = nn.Sequential(*[Layer() for _ in range(3)]).npu()

def work(numbers):
    for _ in range(16):
        net(torch.zeros(2, numbers.randrange(8, 512), 128, device="npu"))
    torch.npu.synchronize()
""",
}

MEASURE = """
around = torch.npu.use_mem_pool(POOL) if POOL is not None else contextlib.nullcontext()
with around:
    prepare()
    torch.npu.synchronize()
    seconds = []
    for round_ in range({rounds}):
        before = driver_calls()
        started = time.thread_time()
        work(random.Random({seed}))
        seconds.append(time.thread_time() - started)
    torch.npu.synchronize()
    after = driver_calls()
stats = torch.npu.memory_stats()
print("RESULT", json.dumps(dict(
    seconds=min(seconds), reserved=sim.physical_peak(), live=stats["requested_bytes.all.peak"],
    calls=after - before)))
"""


def measure(options: argparse.Namespace) -> list[Row]:
    rows = []
    for work in options.work or WORK:
        for door, (start, environment) in DOORS.items():
            code = CALLS_OF + COMMON.replace("{start}", start) + WORK[work]
            code += MEASURE.replace("{rounds}", str(options.rounds)).replace("{seed}", "1")
            rows.append({"work": work, "allocator": door, **child(f"{work}, {door}", code, environment=environment)})
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", action="append", choices=sorted(WORK), help="only this; may be given again")


if __name__ == "__main__":
    columns = [*COLUMNS, TIME, ("driver calls", lambda row: f"{row['calls']:.0f}")]
    sys.exit(main(__doc__, measure, columns, arguments))
