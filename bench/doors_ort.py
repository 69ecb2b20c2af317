"""Compare ONNX Runtime's allocators with this package's host pool: `python bench/doors_ort.py [--json FILE]`.

Each allocator (`WAYS`) does the same work in a new process: requests to an encoder and a detector (the demo's models)
in turn, each with random batch, length and image size, with one thread for the operators.  In each round every
allocator is measured once.  The table has the least time of the rounds, and the medians of the memory.

* `live peak`: most bytes of tensors at one time, as this package's pool counts them.
* `peak RSS`: the most by which the process's resident memory exceeded its size after the sessions had run one small
  request (VmHWM, after a reset).
* `after`: by how much the resident memory exceeds that size when all requests are done.
* `trimmed`: as `after`, but measured after `trim()` or, for ONNX Runtime's arenas, after a run that shrinks the arena.
* `time`: CPU seconds of the requests, operators included.

Not measured: several threads, GPU or NPU providers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

MIB = 1 << 20
WAYS = ("arena", "arena same-as-requested", "malloc", "ours", "ours 256 KiB")
SEED = 11


def requests(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests to both models in turn, with shapes drawn anew each time."""
    rng = np.random.default_rng(SEED)
    for number in range(count):
        batch = int(rng.integers(1, 9))
        if number % 2:
            height, width = (16 * int(n) for n in rng.integers(10, 60, 2))
            yield "detector", {"image": np.zeros((batch, 3, height, width), np.float32)}
        else:
            length = int(rng.integers(16, 513))
            tokens = np.zeros((batch, length, 64), np.float32)
            yield "encoder", {"tokens": tokens, "mask": np.ones((batch, length), np.float32)}


def resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def options_for(way: str) -> Any:
    import onnxruntime

    import acl.ort

    options = onnxruntime.SessionOptions()
    if way.startswith("ours"):
        acl.ort.session_options(options)
    elif way == "malloc":
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
    elif way == "arena same-as-requested":
        # Registers ONNX Runtime's arena, which grows by exact sizes instead of powers of two.
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return options


def environment_set(way: str) -> None:
    import onnxruntime

    import acl.ort

    if way.startswith("ours"):
        acl.ort.install(granule="256KiB" if "256" in way else "2MiB", arenas=1)
    elif way == "arena same-as-requested":
        info = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT)
        onnxruntime.create_and_register_allocator(info, onnxruntime.OrtArenaCfg(0, 1, -1, -1))


def trim(way: str, sessions: dict[str, Any]) -> None:
    import onnxruntime

    import acl.ort

    if way.startswith("ours"):
        acl.ort.trim()
    elif way.startswith("arena"):
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        for name, inputs in requests(2):
            sessions[name].run(None, inputs, options)


def child(way: str, count: int) -> dict[str, float]:
    """Run the work in one way, and return the measurements."""
    import onnxruntime

    import acl.ort
    from acl.tools.demo.models import detector, encoder

    environment_set(way)
    models = {"encoder": encoder(4).to_bytes(), "detector": detector().to_bytes()}
    sessions = {
        name: onnxruntime.InferenceSession(model, options_for(way), providers=["CPUExecutionProvider"])
        for name, model in models.items()
    }
    sessions["encoder"].run(None, {"tokens": np.zeros((1, 2, 64), np.float32), "mask": np.ones((1, 2), np.float32)})
    sessions["detector"].run(None, {"image": np.zeros((1, 3, 32, 32), np.float32)})
    work = list(requests(count))
    for _, inputs in work:
        for array in inputs.values():
            array.fill(0.5)  # makes the inputs resident, so that they are not counted
    start = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    began = time.process_time()
    for name, inputs in work:
        sessions[name].run(None, inputs)
    spent = time.process_time() - began
    found: dict[str, float] = {"seconds": spent, "peak": resident("VmHWM") - start, "after": resident("VmRSS") - start}
    if way.startswith("ours"):
        stats = acl.ort.stats()
        found |= {"live_peak": stats.requested_peak, "reserved_peak": stats.reserved_peak, "slow": stats.slow}
    trim(way, sessions)
    return found | {"trimmed": resident("VmRSS") - start}


def measure(count: int, rounds: int) -> dict[str, dict[str, float]]:
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            line = [sys.executable, __file__, "--child", way, "--requests", str(count)]
            done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=900)
            rows[way].append(json.loads(done.stdout.splitlines()[-1]))
    return {
        way: {
            key: min(row[key] for row in found) if key == "seconds" else statistics.median(row[key] for row in found)
            for key in found[0]
        }
        for way, found in rows.items()
    }


def table(found: dict[str, dict[str, float]]) -> str:
    live = found["ours"]["live_peak"]
    lines = [
        f"live peak {live / MIB:.1f} MiB",
        "| allocator | peak RSS, MiB | over live peak | after, MiB | trimmed, MiB | time, s |",
        "|---|---|---|---|---|---|",
    ]
    for way, row in found.items():
        lines.append(
            f"| {way} | {row['peak'] / MIB:.1f} | {row['peak'] / live:.2f} | {row['after'] / MIB:.1f} | "
            f"{row['trimmed'] / MIB:.1f} | {row['seconds']:.2f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child, given.requests)))
        return 0
    found = measure(given.requests, given.rounds)
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
