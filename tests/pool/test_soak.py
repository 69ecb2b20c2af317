"""Four streams run at the same time for long, with trims and decay steps: the memory in use does not grow.

Every test run has a short form; `ACLPOOL_LONG=1` runs ten minutes (marker `long`).  The loads are recorded
traces if they exist, else synthetic ones.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.core import MIB, Door, physical, physical_base  # noqa: F401
from support.loads import Recorder, decoder, moe

import acl

LONG = os.environ.get("ACLPOOL_LONG") == "1"
TRACES = Path(__file__).parents[3] / "shared" / "traces"
Event = tuple[int, int, int]


def made(maker: Any, seed: int, steps: int) -> list[Event]:
    recorder = Recorder("soak", seed)
    maker(recorder, steps, 4)
    return [event[:3] for event in recorder.events]


def recorded(name: str, steps: int) -> list[Event]:
    """Return the first steps of a recorded trace. `play` frees the blocks that are live after them."""
    with np.load(TRACES / f"{name}.npz") as trace:
        keep = trace["step"] < steps
        return list(zip(*(trace[key][keep].tolist() for key in ("op", "id", "size")), strict=True))


def loads() -> list[list[Event]]:
    if TRACES.is_dir():
        return [recorded("e_deepseekmoe", 4), recorded("a_llama7b_contbatch", 12)] * 2
    return [made(moe, 1, 3), made(decoder, 2, 3), made(moe, 3, 3), made(decoder, 4, 3)]


def play(door: Door, events: list[Event]) -> None:
    """Play a load once through the registered callbacks, and free the blocks that are live at its end."""
    live: dict[int, int] = {}
    for op, number, size in events:
        if op == 0:
            live[number] = door.take(size)[0]
        elif number in live:
            door.free(live.pop(number))
    for block in live.values():
        door.free(block)


def host_kib() -> int:
    """Return the resident anonymous memory of this process, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])
    return 0


def whole(pool: acl.Pool) -> bool:
    """Return True if all invariants hold.  Try several times, because a decay step may hold frames for a moment."""
    for _ in range(1000):
        if pool.check() == 0:
            return True
        time.sleep(0.01)
    return False


def empty(pool: acl.Pool) -> bool:
    """Trim the pool until it has no memory left; return False if 1,000 trims do not suffice.

    One trim may not suffice, because a decay step may be running.
    """
    for _ in range(1000):
        pool.trim()
        if pool.stats().reserved == 0 == physical():
            return True
        time.sleep(0.01)
    return False


def soak(seconds: float) -> None:
    events = loads()
    streams = [acl.Stream(0) for _ in events]
    failures: list[BaseException] = []
    with acl.Pool(0, decay_ms=50) as pool:
        for stream in streams:
            pool.register(stream)
        doors = [Door(stream) for stream in streams]

        def work(which: int, end: float) -> None:
            try:
                acl.Device(0).use()
                while time.monotonic() < end:
                    play(doors[which], events[which])
                    streams[which].synchronize()
                    pool.trim(64 * MIB, idle=True)
            except BaseException as error:
                failures.append(error)

        def round_of_all(length: float) -> tuple[int, int, int]:
            end = time.monotonic() + length
            threads = [threading.Thread(target=work, args=(i, end)) for i in range(len(doors))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures
            assert whole(pool)
            assert pool.stats().allocated == 0
            assert empty(pool)
            gc.collect()
            return len(os.listdir("/proc/self/fd")), sum(acl.sim.live_handles().values()), host_kib()

        round_of_all(seconds / 8)
        files, handles, host = round_of_all(seconds / 8)
        for _ in range(3):
            later_files, later_handles, later_host = round_of_all(seconds / 4)
            assert later_files <= files
            assert later_handles <= handles
            assert later_host < host + 64 * 1024, "host memory drifts"
        for stream in streams:
            pool.unregister(stream)
            stream.close()


@pytest.mark.usefixtures("no_leaks")
def test_repeated_load_of_four_streams_leaves_no_memory_behind() -> None:
    soak(8)


if LONG:

    @pytest.mark.long
    @pytest.mark.usefixtures("no_leaks")
    def test_load_of_ten_minutes_leaves_no_memory_drift() -> None:
        soak(600)
