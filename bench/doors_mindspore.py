"""MindSpore's allocator against ours, in one run: `python bench/doors_mindspore.py [--json FILE]`.

Each row is a process of its own on the simulator: tensors of changing sizes go to the device and are
dropped, thirty alive at a time; no operators, which want CANN's libraries.  Reserved is the peak of the
simulator's physical books; live the peak of the tensors' bytes; calls are those that make device memory.
Time is CPU time of the process, copies included, the least of the rounds.

MindSpore keeps what its tensors give back in front of either.  Needs MindSpore 2.7.1 or later.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

__all__ = ["DOORS", "main", "run"]

#: What is run around the work.
DOORS = {
    "MindSpore's own": "contextlib.nullcontext()",
    "acl.mindspore.mem_pool()": "ms.runtime.use_mem_pool(acl.mindspore.mem_pool())",
}

CODE = """
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
calls = sim.counters()
print("RESULT", json.dumps(dict(
    seconds=min(seconds), reserved=sim.physical_peak(), live=peak,
    calls=sum(calls.get(name, 0) for name in ("aclrtMalloc", "aclrtMallocPhysical", "aclrtMapMem")))))
"""


def run(door: str, rounds: int = 4) -> dict[str, float]:
    """One row.

    Raises
    ------
    RuntimeError
        With what the process said, if it failed.
    """
    code = CODE.format(door=DOORS[door], rounds=rounds)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env={**os.environ, "ACL_BACKEND": "sim", "GLOG_v": "3"},
        capture_output=True, text=True, timeout=600)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, float] = json.loads(line[7:])
            return {**found, "ratio": found["reserved"] / found["live"]}
    raise RuntimeError(f"{door}: {done.stderr[-2000:]}")


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write every row there")
    parser.add_argument("--rounds", type=int, default=4, help="of the work; the least time counts")
    options = parser.parse_args(argv)
    rows = {door: run(door, options.rounds) for door in DOORS}
    base = next(iter(rows.values()))["seconds"]
    print("| allocator | live MiB | reserved MiB | ratio | time | calls that make memory |\n|---|---|---|---|---|---|")
    for door, row in rows.items():
        print(f"| {door} | {row['live'] / 2**20:.1f} | {row['reserved'] / 2**20:.1f} | {row['ratio']:.3f} "
              f"| {row['seconds'] / base:.2f} | {row['calls']:.0f} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
