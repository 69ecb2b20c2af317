"""The doctor's self-tests: each does a small task on the device, times it, and returns a finding with advice.

Every check makes the objects that it needs and closes them.  If one check fails, the others still run.  A time is the
best of a few tries, so that the first use of a device does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import acl
from acl.tools.doctor.findings import Finding

__all__ = ["CHECKS", "check_allocate", "check_copy", "check_launch", "check_pool", "check_register"]

MIB = 1 << 20
TRIES = 5
REPORT = "see the message; if it is not clear, report it with this machine's CANN version"


def best_of(action: Callable[[], object], tries: int = TRIES) -> float:
    """Run `action` several times; return the shortest time in seconds."""
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def check_allocate() -> Finding:
    """Allocate memory from the driver, and free it."""
    seconds = best_of(lambda: acl.Buffer(MIB).close())
    return Finding("allocate", "ok", f"1 MiB from the driver and back in {micro(seconds)}",
                   times={"allocate_us": seconds * 1e6})


def check_copy() -> Finding:
    """Copy bytes to the device and back, compare them, and measure the speed."""
    size = 16 * MIB
    with acl.Stream() as stream, acl.Buffer(size) as there, acl.HostBuffer(size) as out, acl.HostBuffer(size) as back:
        pattern = bytes(range(256)) * 16
        memoryview(out)[:] = pattern * (size // len(pattern))

        def send() -> None:
            acl.copy_async(there, out, stream)
            stream.synchronize()

        def receive() -> None:
            acl.copy_async(back, there, stream)
            stream.synchronize()

        there_s, back_s = best_of(send), best_of(receive)
        same = bytes(out) == bytes(back)
    if not same:
        return Finding("copy", "bad", "copied bytes came back changed",
                       "check the device's health (npu-smi info), then its driver")
    rates = f"{size / there_s / 1e9:.1f} GB/s to the device, {size / back_s / 1e9:.1f} GB/s back"
    return Finding("copy", "ok", f"16 MiB of pinned memory: {rates}",
                   times={"to_device_us": there_s * 1e6, "to_host_us": back_s * 1e6})


def check_launch() -> Finding:
    """Launch a callback on a stream, and run an operator."""
    called: list[bool] = []
    with acl.Stream() as stream:
        def callback() -> None:
            stream.launch(called.append, True)
            with stream.record() as event:
                event.synchronize(timeout_ms=10_000)

        seconds = best_of(callback)
        stream.synchronize()
        if len(called) != TRIES:
            return Finding("launch", "bad", "a callback was not called", REPORT)
        return operator_finding(stream, seconds)


def operator_finding(stream: acl.Stream, callback_s: float) -> Finding:
    """Run a single operator; return a finding with its time and the callback's time."""
    import numpy as np

    times = {"callback_us": callback_s * 1e6}
    text = f"a callback in {micro(callback_s)}"
    ones = np.ones(8, np.float32)

    def add() -> None:
        (total,) = acl.Op("Add")(ones, ones, stream=stream)
        if total.numpy().tolist() != [2.0] * 8:
            raise ArithmeticError("1 + 1 is not 2 on this device")
        total.close()

    try:
        seconds = best_of(add)
    except (acl.AclError, MemoryError) as error:     # MemoryError: the library has no functions for operators
        advice = "single operators need the operator packages of this chip (kernels): install them, or do without"
        return Finding("launch", "note", f"{text}; no operator: {error}", advice, times=times)
    times["operator_us"] = seconds * 1e6
    return Finding("launch", "ok", f"{text}, an operator with its copies in {micro(seconds)}", times=times)


def check_pool() -> Finding:
    """Test a pool: it maps a page, uses a block again, and gives the page back in a trim."""
    with acl.Pool(acl.Device.current() or 0, limit="64MiB", name="doctor") as pool:

        def grow() -> None:
            pool.alloc(3 * MIB).close()
            pool.trim()

        first = best_of(grow)
        hit = best_of(lambda: pool.alloc(4096).close(), 50)
        calls = pool.stats().driver_calls
        freed = pool.trim()
    times = {"first_us": first * 1e6, "hit_us": hit * 1e6}
    text = f"a block from the cache in {micro(hit)}, one with new memory in {micro(first)}"
    if freed == 0 and calls["aclrtMallocPhysical"]:
        return Finding("pool", "bad", "a trim gave nothing back", REPORT, times=times)
    if not calls["aclrtMallocPhysical"]:
        advice = ("this chip or library has no virtual memory (aclrtReserveMemAddress): the pool works in segments, "
                  "which wastes more; nothing to be done but a newer CANN or chip")
        return Finding("pool", "note", f"{text}; in segments", advice, times=times)
    return Finding("pool", "ok", f"{text}; on virtual memory", times=times)


def check_register() -> Finding:
    """Test whether ACL calls an allocator that is registered for a stream."""
    import numpy as np

    with acl.Pool(acl.Device.current() or 0, limit="64MiB", name="doctor") as pool, acl.Stream() as stream:
        try:
            pool.register(stream)
        except acl.NotSupportedError as error:
            advice = ("models of dynamic shape take their memory from GE's own allocator: acl.Pool serves your inputs "
                      "and outputs all the same; a newer CANN or another chip may support it")
            return Finding("register", "note", f"not supported here: {error}", advice)

        def again() -> None:
            pool.unregister(stream)
            pool.register(stream)

        seconds = best_of(again)
        times = {"register_us": seconds * 1e6}
        before = pool.stats().allocations
        try:
            x = np.ones((8, 8), np.float32)
            multiply = acl.Op("MatMul", transpose_x1=False, transpose_x2=False)
            (product,) = multiply(x, x, outputs=[((8, 8), "float32")], stream=stream)
            product.numpy()
            asked = pool.stats().allocations - before
            product.close()
        except (acl.AclError, MemoryError):
            asked = -1
        pool.unregister(stream)
    text = f"a pool is registered in {micro(seconds)}"
    if asked < 0:
        return Finding("register", "ok", f"{text}; not tried by an operator, as none runs here", times=times)
    return Finding("register", "ok", f"{text}; an operator on the stream took {asked} blocks from it", times=times)


#: The self-tests, in the order in which they run.
CHECKS: tuple[tuple[str, Callable[[], Finding]], ...] = (
    ("allocate", check_allocate), ("copy", check_copy), ("launch", check_launch), ("pool", check_pool),
    ("register", check_register),
)
