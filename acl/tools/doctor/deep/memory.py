"""Questions about device memory: addresses, granularity, pages, and the time of the driver's calls."""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import acl
from acl import rt
from acl.tools.doctor.deep.answers import Answer, RefusedError, Say

__all__ = ["ask_addresses", "ask_granularity", "ask_pages", "ask_prices"]

MIB = 1 << 20
GRANULE = 2 * MIB
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
#: By the value of the pool's option `pages`: the `aclrtMemAttr` of the physical memory that it requests.
ATTRIBUTES = {"huge": 4, "normal": 5, "huge1g": 10}
TRIES = 30


def must(result: Any, call: str) -> Any:
    """Return a pyACL function's result without its status; raise RefusedError if the status is not 0."""
    *values, status = result if isinstance(result, tuple) else (result,)
    if status != 0:
        raise RefusedError(f"{call} returned {status}")
    return values[0] if len(values) == 1 else values


def properties(pages: str = "huge") -> dict[str, Any]:
    """Return the properties of physical memory on device 0, as `malloc_physical` takes them."""
    return {"handleType": 0, "allocationType": 0, "memAttr": ATTRIBUTES[pages], "location": {"id": 0, "type": 1},
            "reserve": 0}


@contextmanager
def two_addresses(size: int) -> Iterator[list[int]]:
    """Context manager: map one handle of physical memory at two addresses, and give the list of them.

    At the end, the addresses that are still in the list are unmapped.
    """
    handle = must(rt.malloc_physical(size, properties(), 0), "aclrtMallocPhysical")
    places: list[int] = []
    mapped: list[int] = []
    try:
        for _ in range(2):
            places.append(must(rt.reserve_mem_address(size, 0, 0, 1), "aclrtReserveMemAddress"))
            must(rt.map_mem(places[-1], size, 0, handle, 0), "aclrtMapMem")
            mapped.append(places[-1])
        yield mapped
    finally:
        for place in mapped:
            rt.unmap_mem(place)
        for place in places:
            rt.release_mem_address(place)
        rt.free_physical(handle)


def write(address: int, values: np.ndarray[Any, Any]) -> None:
    must(rt.memcpy(address, values.nbytes, values.ctypes.data, values.nbytes, TO_DEVICE), "aclrtMemcpy")


def read(address: int, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = np.zeros_like(like)
    must(rt.memcpy(found.ctypes.data, found.nbytes, address, found.nbytes, TO_HOST), "aclrtMemcpy")
    return found


def through_copies(first: int, second: int) -> bool:
    """Return True if data that is copied to one address is read at the other."""
    one, two = np.arange(1024, dtype=np.float32), np.arange(1024, dtype=np.float32) * 3
    write(first, one)
    same = np.array_equal(read(second, one), one)
    write(second, two)
    return same and np.array_equal(read(first, two), two)


def through_stream(first: int, second: int) -> bool:
    """Return True if a task on a stream sees the bytes that an earlier task wrote through the other address."""
    with acl.Stream(0) as stream:
        must(rt.memset_async(first, 4096, 7, 4096, stream.handle), "aclrtMemsetAsync")
        must(rt.memcpy_async(first + MIB, 4096, second, 4096, ON_DEVICE, stream.handle), "aclrtMemcpyAsync")
        stream.synchronize()
    sevens = np.full(4096, 7, np.uint8)
    return np.array_equal(read(second + MIB, sevens), sevens)


def through_kernels(first: int, second: int) -> bool:
    """Return True if an operator reads at one address what another operator wrote at the other address."""
    ones = np.ones(1024, np.float32)
    write(first, ones)
    with acl.Stream(0) as stream:
        def array(address: int) -> acl.Array:
            return acl.Array.of(acl.Buffer.from_address(address, ones.nbytes), ones.shape, "float32")

        for source, target in ((first, first + MIB), (second + MIB, second)):
            acl.Op("Add")(array(source), array(source), outputs=[array(target)], stream=stream)
        stream.synchronize()
    return np.array_equal(read(first, ones), ones * 4)


def ask_addresses(say: Say) -> Answer:
    """Question: can one handle be mapped at two addresses, and do copies, tasks and kernels see the same bytes?"""
    found: dict[str, str] = {}
    with acl.Device(0), two_addresses(GRANULE) as mapped:
        first, second = mapped
        for name, look in (("copies", through_copies), ("queued tasks", through_stream), ("kernels", through_kernels)):
            say(name)
            try:
                found[name] = "same bytes" if look(first, second) else "OTHER BYTES"
            except (acl.AclError, MemoryError, RefusedError) as error:
                found[name] = f"refused: {error}"
        must(rt.unmap_mem(mapped.pop(0)), "aclrtUnmapMem")
        ones = np.ones(16, np.float32)
        write(second, ones)
        found["one unmapped"] = "the other goes on" if np.array_equal(read(second, ones), ones) else "OTHER BYTES"
    wrong = [name for name, text in found.items() if text == "OTHER BYTES"]
    told = [name for name, text in found.items() if text.startswith("refused")]
    advice = "; use Pool(views=False)" if wrong else ""
    return Answer("bad" if wrong else "note" if told else "ok",
                  "; ".join(f"{name}: {text}" for name, text in found.items()) + advice, dict(found))


def ask_granularity(say: Say) -> Answer:
    """Question: which unit of physical memory does the driver report for each kind of page, and which can be mapped?"""
    facts: dict[str, Any] = {}
    with acl.Device(0):
        for pages in ATTRIBUTES:
            say(pages)
            told = {name: (size if status == 0 else f"status {status}") for name, (size, status) in (
                (name, rt.mem_get_allocation_granularity(properties(pages), option))
                for name, option in (("minimum", 0), ("recommended", 1)))}
            facts[pages] = {**told, "mapped": [size >> 10 for size in (4096, 65536, GRANULE) if maps(size, pages)]}
    text = "; ".join(f"{pages}: minimum {units(row['minimum'])}, recommended {units(row['recommended'])}, can be "
                     f"mapped: {', '.join(f'{size} KiB' for size in row['mapped']) or 'none of 4, 64, 2048 KiB'}"
                     for pages, row in facts.items())
    usable = facts["huge"]["mapped"] and facts["huge"]["minimum"] == GRANULE
    return Answer("ok" if usable else "note", text, facts)


def units(size: int | str) -> str:
    return size if isinstance(size, str) else f"{size >> 10} KiB"


def maps(size: int, pages: str) -> bool:
    """Return True if physical memory of this size can be allocated, and mapped at a reserved address.

    The memory and the address are given back afterwards; whether that succeeds does not change the result.
    """
    handle, status = rt.malloc_physical(size, properties(pages), 0)
    if status != 0:
        return False
    place, status = rt.reserve_mem_address(size, 0, 0, 1)
    if status == 0:
        status = rt.map_mem(place, size, 0, handle, 0)
        if status == 0:
            rt.unmap_mem(place)
        rt.release_mem_address(place)
        rt.free_physical(handle)
        return bool(status == 0)
    rt.free_physical(handle)
    return False


def ask_pages(say: Say) -> Answer:
    """Question: what is the host's page size, how are addresses aligned, and which pages can a pool use?"""
    facts: dict[str, Any] = {"host_page": os.sysconf("SC_PAGE_SIZE")}
    with acl.Device(0):
        pinned = must(rt.malloc_host(100), "aclrtMallocHost")
        facts["pinned_alignment"] = pinned & -pinned
        must(rt.free_host(pinned), "aclrtFreeHost")
        block = must(rt.malloc(100, 0), "aclrtMalloc")
        facts["device_alignment"] = block & -block
        must(rt.free(block), "aclrtFree")
        for pages in ATTRIBUTES:
            say(pages)
            try:
                granule = "1GiB" if pages == "huge1g" else None
                with (acl.Pool(0, limit="2GiB", pages=pages, granule=granule) as pool,      # type: ignore[arg-type]
                      pool.alloc(MIB)):
                    facts[f"pool_{pages}"] = f"{pool.stats().reserved >> 10} KiB for 1 MiB"
            except (acl.AclError, MemoryError, ValueError) as error:
                facts[f"pool_{pages}"] = f"refused: {error}".splitlines()[0]
    facts["locked_limit"] = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    text = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items())
    return Answer("note" if facts["pool_huge"].startswith("refused") else "ok", text, facts)


def timed(call: Callable[[], Any], undo: Callable[[Any], Any], name: str) -> tuple[float, float]:
    """Return the median microseconds of a call, and of the call that undoes it."""
    there, back = [], []
    for _ in range(TRIES):
        start = time.perf_counter()
        found = call()
        middle = time.perf_counter()
        value = must(found, name)
        begin = time.perf_counter()
        status = undo(value)
        end = time.perf_counter()
        if status != 0:
            raise RefusedError(f"giving back after {name} returned {status}")
        there.append(middle - start)
        back.append(end - begin)
    return statistics.median(there) * 1e6, statistics.median(back) * 1e6


def by_size(call: Callable[[int], Any], undo: Callable[[Any], Any], name: str) -> tuple[list[float], float]:
    """Measure a call with two sizes.

    Return its price as [microseconds, microseconds per MiB], and the microseconds of the call that undoes it.
    """
    small, back = timed(lambda: call(GRANULE), undo, name)
    large, _ = timed(lambda: call(32 * GRANULE), undo, name)
    slope = max((large - small) / 62, 0.0)
    return [round(max(small - 2 * slope, 0.0), 3), round(slope, 4)], back


def ask_prices(say: Say) -> Answer:
    """Question: how long does each driver call of the pool take?  The answer has a file for `replay --latency`."""
    prices: dict[str, float | list[float]] = {}
    with acl.Device(0), acl.Stream(0) as stream:
        def price(name: str, call: Callable[[], Any], undo: Callable[[Any], Any] = lambda value: 0,
                  back: str = "") -> None:
            there, other = timed(call, undo, name)
            prices[name] = round(there, 3)
            if back:
                prices[back] = round(other, 3)

        say("memory")
        malloc, back = by_size(lambda size: rt.malloc(size, 0), rt.free, "aclrtMalloc")
        prices.update(aclrtMalloc=malloc, aclrtMallocAlign32=malloc, aclrtFree=round(back, 3))
        price("aclrtGetMemInfo", lambda: rt.get_mem_info(1))
        say("virtual memory")
        try:
            physical, back = by_size(lambda size: rt.malloc_physical(size, properties(), 0), rt.free_physical,
                                     "aclrtMallocPhysical")
            prices.update(aclrtMallocPhysical=physical, aclrtFreePhysical=round(back, 3))
            price("aclrtReserveMemAddress", lambda: rt.reserve_mem_address(GRANULE, 0, 0, 1), rt.release_mem_address,
                  "aclrtReleaseMemAddress")
            price_mapping(price)
        except RefusedError as error:
            say(str(error))
        say("streams and events")
        handle = stream.handle
        price("aclrtSynchronizeStream", lambda: rt.synchronize_stream(handle))
        price("aclrtSynchronizeStreamWithTimeout", lambda: rt.synchronize_stream_with_timeout(handle, 1000))
        price("aclrtSynchronizeDevice", rt.synchronize_device)
        price("aclrtStreamQuery", lambda: rt.stream_query(handle))
        price("aclrtCreateEventExWithFlag", lambda: rt.create_event_ex_with_flag(1), rt.destroy_event,
              "aclrtDestroyEvent")
        event = must(rt.create_event_ex_with_flag(1), "aclrtCreateEventExWithFlag")
        price("aclrtRecordEvent", lambda: rt.record_event(event, handle))
        price("aclrtStreamWaitEvent", lambda: rt.stream_wait_event(handle, event))
        stream.synchronize()
        price("aclrtQueryEventStatus", lambda: rt.query_event_status(event))
        price("aclrtSynchronizeEvent", lambda: rt.synchronize_event(event))
        rt.destroy_event(event)
    text = ", ".join(f"{name.removeprefix('aclrt')} {one[0] if isinstance(one, list) else one:g} us"
                     for name, one in prices.items())
    virtual = "aclrtMapMem" in prices
    return Answer("ok" if virtual else "note", text + ("" if virtual else "; no virtual memory"), {"prices": prices},
                  {"latency.json": json.dumps(prices, indent=2) + "\n"})


def price_mapping(price: Callable[..., None]) -> None:
    """Add the prices of mapping and unmapping one handle at one address, repeated."""
    handle = must(rt.malloc_physical(GRANULE, properties(), 0), "aclrtMallocPhysical")
    place = must(rt.reserve_mem_address(GRANULE, 0, 0, 1), "aclrtReserveMemAddress")
    price("aclrtMapMem", lambda: rt.map_mem(place, GRANULE, 0, handle, 0), lambda value: rt.unmap_mem(place),
          "aclrtUnmapMem")
    rt.release_mem_address(place)
    rt.free_physical(handle)
