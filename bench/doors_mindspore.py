"""Compare MindSpore's allocator with this package's, in one run: `python bench/doors_mindspore.py [--json FILE]`.

Each row is measured in a new process on the simulator.  Tensors of changing sizes are copied to the device and dropped,
thirty live at a time.  There are no operators, because they need CANN's libraries.  The columns:

live      the peak of the tensors' bytes
reserved  the peak of the simulator's physical accounting
time      CPU time of the process, copies included, the least of the rounds
calls     the driver calls that allocate or free memory, or wait

In both rows MindSpore itself keeps the memory of freed tensors.  Needs MindSpore 2.7.1 or later.
"""

from __future__ import annotations

import argparse
import sys

from doors import CALLS_OF, COLUMNS, TIME, Row, child, main

__all__ = ["DOORS", "measure"]

#: The context in which the work runs.
DOORS = {
    "MindSpore's own": "contextlib.nullcontext()",
    "acl.mindspore.mem_pool()": "ms.runtime.use_mem_pool(acl.mindspore.mem_pool())",
}

CODE = """{calls_of}
import contextlib, json, random, time
import aclpool as acl
import acl.mindspore, acl.sim as sim
import mindspore as ms
import numpy as np

ms.set_device("Ascend", 0)
peak = 0

def work(numbers):
    global peak
    live = {{}}
    for step in range(300):
        size = int(2 ** numbers.uniform(9, 22))
        live[numbers.randrange(30)] = ms.Tensor(np.ones(size, np.uint8)).to("Ascend")
        peak = max(peak, sum(one.size for one in live.values()))
    for one in live.values():
        one.asnumpy()

with {door}:
    seconds = []
    for _ in range({rounds}):
        started = time.process_time()
        work(random.Random(2))
        seconds.append(time.process_time() - started)
ms.runtime.synchronize()
print("RESULT", json.dumps(dict(
    seconds=min(seconds), reserved=sim.physical_peak(), live=peak, calls=driver_calls())))
"""


def measure(options: argparse.Namespace) -> list[Row]:
    return [
        {"work": "300 tensors to the device", "allocator": door,
         **child(door, CODE.format(door=around, rounds=options.rounds, calls_of=CALLS_OF))}
        for door, around in DOORS.items()
    ]


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, [*COLUMNS, TIME, ("driver calls", lambda row: f"{row['calls']:.0f}")], rounds=4))
