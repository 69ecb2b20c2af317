"""Questions about streams: which stream's allocator is called, in which thread and when; captures; chips; exits."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import acl
from acl import mdl, rt
from acl.tools.apart import python_command
from acl.tools.doctor.deep.answers import Answer, Say, ask_child
from acl.tools.doctor.deep.memory import ON_DEVICE, must, properties, read, write

__all__ = ["ask_captures", "ask_chip", "ask_cores", "ask_exits", "ask_streams"]

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
ADVISE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
RUNS = 8


class Watched:
    """An allocator that calls `aclrtMalloc` and stores the kind and the thread of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.functions = (ALLOC(self.alloc), FREE(self.free), ADVISE(lambda _, size, address: self.alloc(_, size)),
                          ADDRESS(lambda block: block))

    def alloc(self, _: int, size: int) -> int | None:
        self.calls.append(("alloc", threading.get_native_id()))
        block, status = rt.malloc(max(size, 1), 0)
        return block if status == 0 else None

    def free(self, _: int, block: int) -> None:
        self.calls.append(("free", threading.get_native_id()))
        rt.free(block)

    def register(self, stream: int) -> tuple[int, int]:
        """Register the allocator for a stream; return the descriptor, and the first status that is not 0, else 0."""
        desc = rt.allocator_create_desc()
        pointers: list[Any] = [ctypes.cast(function, ctypes.c_void_p).value for function in self.functions]
        alloc, free, advise, address = pointers
        for status in (rt.allocator_set_obj_to_desc(desc, 1), rt.allocator_set_alloc_func_to_desc(desc, alloc),
                       rt.allocator_set_free_func_to_desc(desc, free),
                       rt.allocator_set_alloc_advise_func_to_desc(desc, advise),
                       rt.allocator_set_get_addr_from_block_func_to_desc(desc, address),
                       rt.allocator_register(stream, desc)):
            if status:
                return desc, status
        return desc, 0

    @contextmanager
    def on(self, stream: int) -> Iterator[Watched]:
        """Context manager: register the allocator for a stream; unregister it at the end of the block."""
        desc, status = self.register(stream)
        must(status, "registering an allocator")
        try:
            yield self
        finally:
            rt.synchronize_device()
            rt.allocator_unregister(stream)
            rt.allocator_destroy_desc(desc)

    def take(self) -> Counter[str]:
        """Return the number of calls of each kind since the last `take`."""
        found = Counter(kind for kind, _ in self.calls)
        self.calls.clear()
        return found


def work(stream: acl.Stream | None) -> None:
    """Run an operator that needs a workspace on a stream."""
    x = np.ones((64, 64), np.float32)
    run = acl.Op("MatMul", transpose_x1=False, transpose_x2=False)(x, x, outputs=[((64, 64), "float32")], stream=stream)
    (product,) = run
    if not np.array_equal(product.numpy(), x * 64):
        raise ArithmeticError("a product of ones is wrong")
    product.close()


def ask_streams(say: Say) -> Answer:
    """Question: if an allocator is registered for one stream, work of which streams calls it?

    A stream that has worked without an allocator may keep its workspace.  So new streams are made for each
    registration. No new default stream can be made, so it is registered first.
    """
    facts: dict[str, Any] = {}
    with acl.Device(0):
        default = must(rt.ctx_get_current_default_stream(), "aclrtCtxGetCurrentDefaultStream")
        for name in ("default", "made"):
            say(f"registered for the {name} stream")
            with acl.Stream(0) as made, acl.Stream(0) as other:
                places = {"made": made, "default": acl.Stream.default(), "another": other}
                with Watched().on(default if name == "default" else made.handle) as watched:
                    for place in sorted(places, key=lambda place: place != name):
                        work(places[place])
                        facts[f"{name}, run on {place}"] = watched.take()["alloc"]
        with acl.Stream(0) as late:
            work(late)
            with Watched().on(late.handle) as watched:
                work(late)
                facts["registered after its first work"] = watched.take()["alloc"]
    own = [facts["made, run on made"], facts["default, run on default"]]
    foreign = [pair for pair, count in facts.items() if ", run on " in pair and len(set(pair.split(", run on "))) == 2
               and count]
    text = (f"work on a stream asks the allocator of that stream: {own[0]} blocks (default stream: {own[1]}); "
            f"registered after its first work: {facts['registered after its first work']}; asked by work on another "
            f"stream: {', '.join(foreign) or 'never'}")
    return Answer("bad" if foreign else "ok" if own[0] else "note", text, facts)


def cores(say: Say) -> Answer:
    """Part of `ask_cores`: with `MAX_RUNTIME_CORE_NUMBER` set, which threads call the allocator, and when?

    The facts: `allocs` and `threads` until the last launch has returned; `other_threads`, those other than this one;
    `late`, the calls after the last launch.
    """
    with acl.Device(0), acl.Stream(0) as stream, Watched().on(stream.handle) as watched:
        here = threading.get_native_id()
        for _ in range(RUNS):
            work(stream)
        calls = list(watched.calls)
        stream.synchronize()
        late = len(watched.calls) - len(calls)
    threads = {thread for _, thread in calls}
    return Answer("ok", "", {"allocs": sum(kind == "alloc" for kind, _ in calls), "threads": len(threads),
                             "other_threads": len(threads - {here}), "late": late})


def ask_cores(say: Say) -> Answer:
    """Question: does `MAX_RUNTIME_CORE_NUMBER` change which threads call an allocator, or delay its frees?"""
    facts: dict[str, Any] = {}
    for number in ("1", "2", "4"):
        say(f"MAX_RUNTIME_CORE_NUMBER={number}")
        found = ask_child(f"{__name__}:cores", 20, {"MAX_RUNTIME_CORE_NUMBER": number})
        facts[number] = found.facts if found.verdict == "ok" else f"{found.verdict}: {found.text}"
    failed = [number for number, row in facts.items() if isinstance(row, str)]
    text = "; ".join(f"{number}: {row}" if isinstance(row, str) else
                     f"{number}: {row['allocs']} allocations from {row['threads']} threads, {row['other_threads']} of "
                     f"them not the caller's, {row['late']} calls after the last launch"
                     for number, row in facts.items())
    early = any(row["other_threads"] or row["late"] for row in facts.values() if not isinstance(row, str))
    advice = "; pools need early_frees=True for numbers above 1 (the default reads the variable)" if early else ""
    return Answer("note" if failed or early else "ok", text + advice, facts)


def ask_captures(say: Say) -> Answer:
    """Question: can captured tasks be executed repeatedly, and is memory allocated and freed in a capture?"""
    facts: dict[str, Any] = {}
    sevens = np.full(4096, 7, np.uint8)
    with acl.Device(0), acl.Stream(0) as stream, acl.Buffer(8192) as buffer:
        say("copies")
        must(mdl.ri_capture_begin(stream.handle, 0), "aclmdlRICaptureBegin")
        try:
            must(rt.memcpy_async(buffer.address + 4096, 4096, buffer.address, 4096, ON_DEVICE, stream.handle),
                 "aclrtMemcpyAsync in a capture")
        finally:
            graph, status = mdl.ri_capture_end(stream.handle)
        must(status, "aclmdlRICaptureEnd")
        facts["replays"] = 0
        for value in (7, 9):
            write(buffer.address, sevens * 0 + value)
            must(mdl.ri_execute(graph, -1), "aclmdlRIExecute")
            facts["replays"] += int(np.array_equal(read(buffer.address + 4096, sevens), sevens * 0 + value))
        must(mdl.ri_destroy(graph), "aclmdlRIDestroy")
        say("an operator and its allocator")
        try:
            facts["in a capture"] = captured_operator(stream)
        except (acl.AclError, MemoryError) as error:
            facts["in a capture"] = f"refused: {error}".splitlines()[0]
    good = facts["replays"] == 2
    return Answer("ok" if good else "bad", f"a graph of copies ran right {facts['replays']} of 2 times; an operator "
                  f"inside a capture: {facts['in a capture']}", facts)


def captured_operator(stream: acl.Stream) -> str:
    """Return a text about the allocator's calls while an operator is captured on its stream."""
    ones = np.ones((64, 64), np.float32)
    with acl.Buffer(ones.nbytes) as source, acl.Buffer(ones.nbytes) as target, Watched().on(stream.handle) as watched:
        write(source.address, ones)
        given, taken = (acl.Array.of(each, ones.shape, "float32") for each in (source, target))
        operator = acl.Op("MatMul", transpose_x1=False, transpose_x2=False)
        must(mdl.ri_capture_begin(stream.handle, 0), "aclmdlRICaptureBegin")
        try:
            operator(given, given, outputs=[taken], stream=stream)
        finally:
            graph, status = mdl.ri_capture_end(stream.handle)
        inside = watched.take()
        must(status, "aclmdlRICaptureEnd")
        must(mdl.ri_execute(graph, -1), "aclmdlRIExecute")
        right = np.array_equal(read(target.address, ones), ones * 64)
        must(mdl.ri_destroy(graph), "aclmdlRIDestroy")
        return (f"{inside['alloc']} blocks asked for and {inside['free']} freed while it was captured, "
                f"{watched.take()['alloc']} while it ran; its result is {'right' if right else 'WRONG'}")


def registers() -> str:
    """Return a text about the library's answer to a registration on this chip."""
    with acl.Stream(0) as stream:
        desc, status = Watched().register(stream.handle)
        if status == 0:
            rt.allocator_unregister(stream.handle)
        rt.allocator_destroy_desc(desc)
    return f"refused with {status}" if status else "accepted"


def chip(say: Say) -> Answer:
    """Part of `ask_chip`: the chip's name, registration and virtual memory, as in the simulator's table of chips."""
    with acl.Device(0) as device:
        _, status = rt.mem_get_allocation_granularity(properties(), 0)
        place, reserved = rt.reserve_mem_address(2 << 20, 0, 0, 1)
        if reserved == 0:
            rt.release_mem_address(place)
        return Answer("ok", "", {"chip": device.name, "registration": registers(),
                                 "virtual memory": "there" if reserved == 0 else f"refused with {reserved}",
                                 "granularity": "told" if status == 0 else f"refused with {status}"})


def ask_chip(say: Say) -> Answer:
    """Question: does this chip accept a registered allocator, as the simulator's table says?  (310 chips may not.)"""
    facts = chip(say).facts
    text = ", ".join(f"{name}: {value}" for name, value in facts.items())
    if acl.backend() == "sim":
        chips = {}
        for name in ("Ascend310B1", "Ascend310P3", "Ascend910A"):
            found = ask_child(f"{__name__}:chip", 20, {"ACL_SIM_SOC": name})
            chips[name] = found.facts.get("registration", found.verdict)
        return Answer("ok", f"{text}; the simulator's chips: {chips}", {**facts, "chips": chips})
    found = ask_child(f"{__name__}:chip", 20, {"ACL_BACKEND": "sim", "ACL_LIBRARY": "", "ACL_SIM_SOC": facts["chip"]})
    if found.verdict != "ok":
        return Answer("note", f"{text}; the simulator does not know this chip: {found.text}", facts)
    other = [f"{name}: {value} in the simulator" for name, value in found.facts.items() if facts[name] != value]
    return Answer("note" if other else "ok", f"{text}; {'; '.join(other) or 'as in the simulator'}",
                  {**facts, "simulator": found.facts})


def ask_exits(say: Say) -> Answer:
    """Question: how does a process with a pool, memory and queued work exit, and how long does that take?"""
    facts: dict[str, Any] = {}
    for how, expected in (("closed", 0), ("open", 0), ("_exit", 0), ("exception", 3), ("SIGTERM", -signal.SIGTERM)):
        say(how)
        started = time.monotonic()
        command = python_command("acl.tools.doctor.deep.leave", how)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
            status: int | str = done.returncode
        except subprocess.TimeoutExpired:
            status = "hung"
        facts[how] = {"status": status, "expected": expected, "seconds": round(time.monotonic() - started, 2)}
    wrong = [how for how, row in facts.items() if row["status"] != row["expected"]]
    text = ", ".join(f"{how}: status {row['status']} in {row['seconds']} s" for how, row in facts.items())
    return Answer("bad" if wrong else "ok", text + (f"; unexpected: {', '.join(wrong)}" if wrong else ""), facts)
