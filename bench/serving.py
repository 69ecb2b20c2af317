"""Measure the example service under a load of changing shapes: with the pool, and with the driver's allocator.

    python bench/serving.py [--seconds 8] [--rounds 3] [--latency memory] [--only "pool, faults"]

Needs `wrk` (Debian has it) and `aclpool[serve]`.  In each round, each of `RUNS` is measured once, in a new process; the
medians over the rounds are printed.  The simulator counts the device memory in use, and the calls that allocate and
free it.  The load generator, the server and the simulated device share the machine's cores.  So requests per second
can only be compared between rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVING = Path(__file__).resolve().parents[1] / "examples/serving"
MEMORY_CALLS = (
    "aclrtMalloc", "aclrtMallocAlign32", "aclrtFree", "aclrtMallocPhysical", "aclrtFreePhysical", "aclrtMapMem",
    "aclrtUnmapMem", "aclrtReserveMemAddress", "aclrtReleaseMemAddress",
)
FAULTS = {
    "aclrtMallocPhysical": {"p": 0.2, "seed": 1}, "aclrtMalloc": {"p": 0.01, "seed": 1},
    "aclrtSynchronizeStreamWithTimeout": {"p": 0.01, "seed": 2, "code": 507015},
    "aclmdlExecuteAsync": {"p": 0.01, "seed": 3, "code": 207001},
}
# For each run: how to allocate, the device's latency, faults, and the number of connections.
RUNS: dict[str, dict[str, Any]] = {
    "pool": {},
    "driver's allocator": {"pool": False},
    "pool, faults": {"faults": True},
    "pool, faults and a device that goes": {"faults": True, "lost": True},
    "pool, swaps": {"swap": True},
    "pool, overload": {"connections": 200, "queue": 32},
    "pool, little memory": {"connections": 64, "limit": "16MiB"},
}


async def sample_lags(lags: list[float]) -> None:
    """Append the lag of the event loop, in seconds, to `lags`, a hundred times a second."""
    while True:
        due = time.perf_counter() + 0.01
        await asyncio.sleep(0.01)
        lags.append(time.perf_counter() - due)


def late_ms(lags: list[float]) -> float:
    """Return the 99th percentile of lags in seconds, in milliseconds."""
    return 1e3 * statistics.quantiles(lags, n=100)[-1]


@contextmanager
def served(way: dict[str, Any]) -> Iterator[tuple[Any, int, list[float]]]:
    """Run the service in this process, on a thread.

    Yields the engine, the port, and the lags of its event loop in seconds.
    """
    import uvicorn

    sys.path.insert(0, str(SERVING))
    from app import application
    from task import TextTask

    from acl.serving import Engine, Options

    task = TextTask()
    engine = Engine(Options(
        pool=way.get("pool", True), limit=way.get("limit", "256MiB"), queue=way.get("queue", 256)))
    engine.load("text", task)
    server = uvicorn.Server(uvicorn.Config(application(engine, task), port=0, log_level="error", access_log=False))
    lags: list[float] = []

    async def main() -> None:
        sampler = asyncio.ensure_future(sample_lags(lags))
        try:
            await server.serve()
        finally:
            sampler.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield engine, server.servers[0].sockets[0].getsockname()[1], lags
    finally:
        server.should_exit = True
        thread.join()


def wrk(port: int, seconds: int, connections: int) -> dict[str, Any]:
    """Run the load generator, and return what its script wrote."""
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", SERVING / "requests.lua", f"http://127.0.0.1:{port}",
         "--", "1", "192"], capture_output=True, text=True, timeout=seconds + 60, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def settle(engine: Any) -> None:
    """Wait until every accepted request is answered."""
    while engine.promised or engine.queue:
        time.sleep(0.01)


def watch(samples: list[int], stop: threading.Event) -> None:
    """Append the bytes of device memory in use to `samples`, ten times a second."""
    from acl import sim

    while not stop.wait(0.1):
        samples.append(sim.physical_bytes())


def lose(stop: threading.Event) -> None:
    """Make the device lost for a fifth of a second, about every other second."""
    from acl import sim

    while not stop.wait(1.8):
        with sim.device_lost(0):
            stop.wait(0.2)


def swap(engine: Any, stop: threading.Event) -> None:
    """Load a new version of the model every second."""
    while not stop.wait(1):
        engine.load("text", engine.models["text"].task)


def measure(way: dict[str, Any], seconds: int, latency: str) -> dict[str, Any]:
    """Measure one run in this process; return the measurements by name."""
    import logging

    from acl import sim

    logging.disable(logging.WARNING)
    with served(way) as (engine, port, lags):
        wrk(port, 1, 8)                                     # warm-up
        settle(engine)
        sim.configure(latency=latency)
        faults = [sim.fault(name, **rule) for name, rule in FAULTS.items()] if way.get("faults") else []
        before, samples, stop = sim.counters(), [], threading.Event()
        counts = dict(engine.counts)
        sim.reset_physical_peak()
        others = [threading.Thread(target=watch, args=(samples, stop))]
        others += [threading.Thread(target=lose, args=(stop,))] if way.get("lost") else []
        others += [threading.Thread(target=swap, args=(engine, stop))] if way.get("swap") else []
        lags.clear()
        time.sleep(1)
        found_idle = late_ms(lags)
        lags.clear()
        for thread in others:
            thread.start()
        try:
            found = wrk(port, seconds, way.get("connections", 16))
        finally:
            stop.set()
            for thread in others:
                thread.join()
        found["lag_idle_ms"], found["lag_ms"] = found_idle, late_ms(lags)
        after = sim.counters()
        found["faults"] = sum(fault.hits for fault in faults)
        for fault in faults:
            fault.remove()
        settle(engine)
        found["lanes_recovered"] = engine.counts["faults"] - counts.get("faults", 0)
        for name in ("accepted", "answered", "failed", "ooms"):
            found[name] = engine.counts[name] - counts.get(name, 0)
    half = len(samples) // 2
    found["peak_bytes"] = sim.physical_peak()
    found["grew_bytes"] = max(samples[half:]) - max(samples[:half]) if half else 0
    found["memory_calls"] = sum(after.get(name, 0) - before.get(name, 0) for name in MEMORY_CALLS)
    return found


def run_child(name: str, seconds: int, latency: str) -> dict[str, Any]:
    """Measure one run in a new process; return the measurements by name."""
    done = subprocess.run(
        [sys.executable, __file__, "--inside", name, "--seconds", str(seconds), "--latency", latency],
        env={**os.environ, "ACL_BACKEND": "sim"}, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: dict[str, dict[str, float]]) -> str:
    """Return the medians of the measurements as a Markdown table."""
    lines = [
        "| run | answered/s | p50 ms | p99 ms | loop lag p99 ms: idle, load | refused | lost | device peak MiB "
        "| grew MiB | memory calls / answer |",
        "|---|---|---|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        refused = row["status_429"] + row["status_503"]
        lines.append(
            f"| {name} | {row['ok'] / row['seconds']:.0f} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} "
            f"| {row['lag_idle_ms']:.1f}, {row['lag_ms']:.1f} | {refused:.0f} "
            f"| {row['accepted'] - row['answered']:.0f} | {row['peak_bytes'] / 2**20:.1f} "
            f"| {row['grew_bytes'] / 2**20:.1f} | {row['memory_calls'] / max(row['answered'], 1):.2f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", default="memory", help="the simulated driver's: off, pcie, memory")
    parser.add_argument("--json", help="where to write every run")
    parser.add_argument("--only", action="append", choices=RUNS, help="only this run; may be given again")
    parser.add_argument("--inside", choices=RUNS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(measure(RUNS[given.inside], given.seconds, given.latency)))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in given.only or RUNS}
    for _ in range(given.rounds):
        for name, done in runs.items():
            done.append(run_child(name, given.seconds, given.latency))
    if given.json:
        Path(given.json).write_text(json.dumps(runs, indent=1))
    print(table({name: {key: statistics.median(one[key] for one in done) for key in done[0]}
                 for name, done in runs.items()}))
    bad = [name for name, done in runs.items() for one in done
           if one["accepted"] != one["answered"] or one["failed"] or one["status_500"] or one["other"] or one["wrong"]]
    print("\n".join(f"{name}: lost or failed requests" for name in bad), end="")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
