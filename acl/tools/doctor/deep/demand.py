"""Compares three allocators on this device, with the allocations that the demo's models make.

The models are ONNX files, which only the simulator runs.  So a process on the simulator serves the demo's requests and
records the allocations of the stream's pool.  The recorded sizes are then allocated with the real library.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import acl
from acl import rt
from acl.tools.doctor.deep.answers import Answer, RefusedError, Say, ask_child
from acl.tools.doctor.deep.memory import must

__all__ = ["ask_demo", "record"]

REQUESTS = 24
#: A list of allocations and frees.  A positive number: bytes of a new block.  Zero or negative: the block whose number
#: (from 0) is the absolute value is freed.
Demand = list[int]


def record(say: Say) -> Answer:
    """Question for the simulator: record which allocations the demo's models make on one stream."""
    from acl.tools.demo import models as demo_models

    models = {"encoder": demo_models.encoder(), "detector": demo_models.detector()}
    with acl.Pool(0, limit="4GiB") as pool, acl.Stream(0) as stream:
        pool.register(stream)
        loaded = {name: acl.Model(model.to_bytes()) for name, model in models.items()}
        with pool.record(stacks=False) as recording:
            for request in demo_models.requests(REQUESTS, 0):
                for result in loaded[request.model].run_async(request.inputs, stream):
                    result.close()
                stream.synchronize()
        events = recording.events
        for model in loaded.values():
            model.close()
        pool.unregister(stream)
    numbers: dict[int, int] = {}
    demand: Demand = []
    count = 0
    for event in events:
        if event.kind == "alloc" and not event.before:
            demand.append(max(event.bytes, 1))
            numbers[event.address] = count
            count += 1
        elif event.kind == "free" and event.address in numbers:
            demand.append(-numbers.pop(event.address))
    return Answer("ok", f"{count} blocks", {"demand": demand})


def device_free() -> int:
    free, _ = must(rt.get_mem_info(1), "aclrtGetMemInfo")
    return int(free)


def play(demand: Demand, alloc: Callable[[int], Any], free: Callable[[Any], object]) -> dict[str, float]:
    """Make all allocations and frees twice, the second time with a clock.

    Return `device_mib`, the MiB by which the device's free memory was lowest in the first pass, in comparison with the
    start (looked at in every 16th step); and `ns_per_pair`, the nanoseconds of an allocation and a free in the second.
    """
    before = least = device_free()
    nanoseconds = 0
    for turn in range(2):
        blocks: list[Any] = []
        live: set[int] = set()
        spent = 0
        for step, size in enumerate(demand):
            start = time.perf_counter_ns()
            if size > 0:
                blocks.append(alloc(size))
                spent += time.perf_counter_ns() - start
                live.add(len(blocks) - 1)
            else:
                free(blocks[-size])
                spent += time.perf_counter_ns() - start
                blocks[-size] = None
                live.discard(-size)
            if turn == 0 and step % 16 == 0:
                least = min(least, device_free())
        least = min(least, device_free())
        for number in live:
            free(blocks[number])
            blocks[number] = None
        nanoseconds = spent
    pairs = sum(size > 0 for size in demand)
    return {"device_mib": round((before - least) / (1 << 20), 2), "ns_per_pair": round(nanoseconds / max(pairs, 1))}


def peak(demand: Demand) -> int:
    """Return the most bytes that are live at one time."""
    sizes = [size for size in demand if size > 0]
    live = most = 0
    for size in demand:
        live += size if size > 0 else -sizes[-size]
        most = max(most, live)
    return most


def through_torch(demand: Demand) -> dict[str, float]:
    """Play the allocations with torch_npu's caching allocator, as tensors of bytes; return the result of `play`."""
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch_npu")        # makes the device known to torch

    def tensor(size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8, device="npu:0")

    tensor(1)
    return play(demand, tensor, lambda block: None)


def ask_demo(say: Say) -> Answer:
    """Question: what do the demo's allocations cost with the driver, the pool, and torch_npu's allocator?"""
    say("recording what the models ask for, on the simulator")
    recorded = ask_child(f"{__name__}:record", 60, {"ACL_BACKEND": "sim", "ACL_LIBRARY": ""})
    if recorded.verdict != "ok":
        raise RefusedError(f"the demo's requests were not recorded: {recorded.text}")
    demand: Demand = recorded.facts["demand"]
    facts: dict[str, Any] = {"blocks": sum(size > 0 for size in demand), "live_mib": round(peak(demand) / (1 << 20), 2)}
    with acl.Device(0):
        say("the driver alone")
        facts["no allocator"] = play(demand, lambda size: must(rt.malloc(size, 0), "aclrtMalloc"), rt.free)
        say("the pool")
        with acl.Pool(0) as pool, acl.Stream(0) as stream:
            facts["acl.Pool"] = play(demand, lambda size: pool.alloc(size, stream), lambda block: block.close())
    say("torch_npu")
    try:
        facts["torch_npu"] = through_torch(demand)
    except Exception as error:
        facts["torch_npu"] = f"not compared: {type(error).__name__}: {error}".splitlines()[0]
    text = "; ".join(f"{name}: {row}" if isinstance(row, str) else
                     f"{name}: {row['device_mib']} MiB, {row['ns_per_pair']} ns for alloc and free from Python"
                     for name, row in facts.items() if isinstance(row, dict | str))
    return Answer("ok", f"{facts['blocks']} blocks, {facts['live_mib']} MiB live at the peak; {text}", facts)
