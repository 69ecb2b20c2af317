"""Measure the demo: serve the same requests in three ways, and check every output.

Each stream has a thread that serves its share of the requests one after another, as a server does.  The streams share
the models.  Calls of the streams' allocators are timed in C (`_watch`).  The bytes taken from the device are read from
the simulator's accounting.  Only the simulator can be used, because the models are ONNX files.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import acl
from acl import sim
from acl.tools.bench._loops import ticks_per_ns
from acl.tools.demo._watch import Tally, Watch
from acl.tools.demo.models import Request
from acl.tools.onnx_writer import Builder

__all__ = ["WAYS", "Measured", "PythonAllocator", "measure"]

#: The ways to serve the requests: name, and text in the table.
WAYS = {
    "none": "no allocator registered",
    "python": "Python allocator (ctypes)",
    "pool": "acl.Pool",
}
# The calls that allocate device memory, of which a pool makes few.
DEVICE_CALLS = ("aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocPhysical")
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class PythonAllocator:
    """A simple allocator in Python, called through ctypes: free lists for sizes that are powers of two.

    It serves one stream, whose order makes it safe to use a freed block again.
    """

    def __init__(self) -> None:
        self.idle: dict[int, list[int]] = {}
        self.live: dict[int, int] = {}
        self.functions = (ALLOC(self.alloc), FREE(self.free), ADDRESS(lambda block: block))

    def alloc(self, _: int, size: int) -> int | None:
        rounded = max(512, 1 << (size - 1).bit_length())
        if self.idle.get(rounded):
            block = self.idle[rounded].pop()
        else:
            block, status = acl.rt.malloc(rounded, 0)
            if status:
                return None
        self.live[block] = rounded
        return block

    def free(self, _: int, block: int) -> None:
        self.idle.setdefault(self.live.pop(block), []).append(block)

    def addresses(self) -> list[int]:
        """Return the addresses of the three functions."""
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self.functions]

    def close(self) -> None:
        """Free all cached blocks of the device."""
        for blocks in self.idle.values():
            for block in blocks:
                acl.rt.free(block)


@dataclass
class Measured:
    """The measurements of one way.

    Attributes
    ----------
    latencies_ms
        Milliseconds of each request, in the order in which the requests were finished.
    device_calls, device_calls_late
        Number of allocations of device memory, in all requests and in the second half of the requests.
    reserved, requested
        One element for each request.  `reserved`: bytes taken from the device when the request was finished.
        `requested`: the most bytes that were live at one time during each stream's last request, summed over streams.
    reserved_peak, requested_peak
        The most bytes taken from the device, and the sum over all streams of each stream's most live bytes.
    callbacks, callback_ms
        Number of calls of the allocator's functions, and the milliseconds spent in them.
    callback_p50_ns, callback_p99_ns
        Nanoseconds of one such call: median, and 99th percentile.
    wrong
        A text for each wrong output.
    """

    way: str
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    device_calls: int = 0
    device_calls_late: int = 0
    reserved: list[int] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    reserved_peak: int = 0
    requested_peak: int = 0
    callbacks: int = 0
    callback_ms: float = 0.0
    callback_p50_ns: float = 0.0
    callback_p99_ns: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def waste(self) -> float:
        """Reserved bytes for each requested byte, both at their peaks."""
        return self.reserved_peak / max(self.requested_peak, 1)

    def summary(self) -> dict[str, Any]:
        """Return the numbers, for the table and for JSON."""
        p50, p99 = np.percentile(self.latencies_ms, [50, 99])
        return {
            "way": self.way, "what": WAYS[self.way], "requests": len(self.latencies_ms),
            "seconds": self.seconds, "latency_p50_ms": float(p50), "latency_p99_ms": float(p99),
            "device_mallocs": self.device_calls, "device_mallocs_second_half": self.device_calls_late,
            "peak_reserved": self.reserved_peak, "peak_requested": self.requested_peak,
            "waste": self.waste, "callbacks": self.callbacks, "callback_ms": self.callback_ms,
            "callback_p50_ns": self.callback_p50_ns, "callback_p99_ns": self.callback_p99_ns,
            "wrong_outputs": len(self.wrong),
        }


class _Lane:
    """One stream with its allocator, and the bytes that were requested from it."""

    def __init__(self, way: str, pool: acl.Pool | None, stack: ExitStack) -> None:
        self.stream = stack.enter_context(acl.Stream(0))
        self.tally = Tally()
        self.peak = self.latest = 0
        self.watch: Watch | None = None
        self.python: PythonAllocator | None = None
        if way == "python":
            self.python = PythonAllocator()
            stack.callback(self.python.close)
            alloc, free, address = self.python.addresses()
            self.watch = Watch(self.stream.handle, 1, alloc, free, address, self.tally)
        elif pool is not None:
            pool.register(self.stream)
            ours = acl.allocator_of(self.stream)
            assert ours is not None
            self.watch = Watch(
                self.stream.handle, ours.object, ours.alloc, ours.free, ours.get_addr, self.tally)

    def close(self, pool: acl.Pool | None) -> None:
        if pool is not None:
            pool.unregister(self.stream)
        elif self.watch is not None:
            self.watch.unregister()


def difference(got: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return what is wrong with the outputs, or an empty text."""
    for i, (mine, right) in enumerate(zip(got, expected, strict=True)):
        if mine.shape != right.shape:
            return f"output {i} has the shape {mine.shape}, expected {right.shape}"
        if not np.allclose(mine, right, rtol=1e-3, atol=1e-4):
            return f"output {i} is off by {np.abs(mine - right).max():.3g}"
    return ""


def quantile(took: Sequence[tuple[int, int]], share: float) -> int:
    """Return the ticks that the fraction `share` of the calls did not exceed; 0 if there are no calls."""
    wanted = share * sum(count for _, count in took)
    for limit, count in took:
        wanted -= count
        if wanted <= 0:
            return limit
    return 0


def device_calls() -> int:
    counted = sim.counters()
    return sum(counted.get(name, 0) for name in DEVICE_CALLS)


class _Service:
    """Serves the requests of one way and records the measurements."""

    def __init__(self, measured: Measured, models: dict[str, acl.Model], work: Sequence[Request],
                 expected: Sequence[Sequence[Any]], told: Callable[[int], None]) -> None:
        self.measured, self.models, self.work, self.expected, self.told = measured, models, work, expected, told
        self.lock = threading.Lock()
        self.base = sim.physical_bytes()
        self.calls = device_calls()
        self.failed: list[BaseException] = []

    def serve(self, lane: _Lane, lanes: Sequence[_Lane], mine: Sequence[int]) -> None:
        """The body of a stream's thread: serve its share of the requests."""
        try:
            for number in mine:
                elapsed = self.answer(lane, number)
                lane.latest = lane.tally.reset_peak()
                lane.peak = max(lane.peak, lane.latest)
                self.note(elapsed, lanes)
        except BaseException as error:
            self.failed.append(error)

    def answer(self, lane: _Lane, number: int) -> float:
        request, right = self.work[number], self.expected[number]
        nbytes = sum(a.nbytes for a in request.inputs) + 4 * sum(a.size for a in right)
        lane.tally.add(nbytes)
        start = time.perf_counter()
        results = self.models[request.model].run_async(request.inputs, lane.stream)
        got = [result.numpy() for result in results]
        elapsed = time.perf_counter() - start
        for result in results:
            result.close()
        lane.tally.take(nbytes)
        wrong = difference(got, right)
        if wrong:
            self.measured.wrong.append(f"request {number}, {request.model} {request.shapes}: {wrong}")
        return elapsed

    def note(self, elapsed: float, lanes: Sequence[_Lane]) -> None:
        with self.lock:
            m = self.measured
            m.latencies_ms.append(elapsed * 1e3)
            m.reserved.append(sim.physical_bytes() - self.base)
            m.requested.append(sum(lane.latest for lane in lanes))
            if len(m.latencies_ms) == len(self.work) // 2:
                m.device_calls_late = device_calls()
            self.told(len(m.latencies_ms))

    def finish(self, lanes: Sequence[_Lane], started: float) -> None:
        if self.failed:
            raise self.failed[0]
        m = self.measured
        m.seconds = time.perf_counter() - started
        calls = device_calls()
        m.device_calls, m.device_calls_late = calls - self.calls, calls - m.device_calls_late
        m.reserved_peak = sim.physical_peak() - self.base
        m.requested_peak = sum(lane.peak for lane in lanes)
        m.callbacks = sum(lane.tally.calls for lane in lanes)
        scale = ticks_per_ns()[0]
        m.callback_ms = sum(lane.tally.ticks for lane in lanes) / scale / 1e6
        took = sorted(pair for lane in lanes for pair in lane.tally.took)
        m.callback_p50_ns, m.callback_p99_ns = (quantile(took, q) / scale for q in (0.5, 0.99))


def measure(way: str, models: dict[str, Builder], work: Sequence[Request], expected: Sequence[Sequence[Any]],
            streams: int, told: Callable[[int], None]) -> Measured:
    """Serve the requests on `streams` streams in one of the `WAYS`, and return the measurements.

    Parameters
    ----------
    expected : sequence of sequence of array
        The correct outputs of each request.
    told : callable
        Called with the number of requests that are done.
    """
    measured = Measured(way)
    with ExitStack() as stack:
        pool = stack.enter_context(acl.Pool(0)) if way == "pool" else None
        lanes = [_Lane(way, pool, stack) for _ in range(streams)]
        for lane in lanes:
            stack.callback(lane.close, pool)
        loaded = {name: stack.enter_context(acl.Model(model.to_bytes())) for name, model in models.items()}
        for model in loaded.values():
            # A model's first run allocates memory to find its output shapes, without the allocator.  Run it before.
            model(*[np.zeros([extent if extent > 0 else 16 for extent in info.shape], info.dtype)
                    for info in model.inputs])
        sim.reset_physical_peak()
        service = _Service(measured, loaded, work, expected, told)
        started = time.perf_counter()
        threads = [threading.Thread(target=service.serve, args=(lane, lanes, range(i, len(work), streams)))
                   for i, lane in enumerate(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        service.finish(lanes, started)
    return measured
