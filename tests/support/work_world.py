"""Random tests of queued work on one pool: a list of actions runs in a `World`, and a failing list can be shortened.

Each buffer is filled and read in stream order.  So if two buffers use one piece of memory at a time, bytes are wrong.
An action is a name and a number, which is the seed of all its random choices.  So removing an action does not change
the choices of the other actions, and a list that fails can be shortened by removing parts of it (`shortest`).
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import acl
import acl.sim
from support.calls import api, out
from support.core import MIB, Door

__all__ = ["Action", "Settings", "World", "actions_of", "fails", "run", "shortest"]

KIB = 1 << 10
EDGE = 512
TO_HOST = 2
RELAXED = 2
UNMAP_FAILED = 507899       # status of a sleep that could unmap only some of its pages
SIZES = [3 * KIB, 300 * KIB, 700 * KIB, MIB + 5 * KIB, 2 * MIB, 5 * MIB]
FAULTS = ["aclrtRecordEvent", "aclrtCreateEventExWithFlag", "aclrtMapMem", "aclrtUnmapMem", "aclrtMallocPhysical",
          "aclrtStreamQuery", "aclrtQueryEventStatus", "aclrtSynchronizeStreamWithTimeout",
          "aclrtSynchronizeDeviceWithTimeout", "aclrtMallocHost", "aclrtFreePhysical", "aclrtReserveMemAddress",
          "aclrtMemcpyAsync", "aclrtCreateStream", "aclrtSynchronizeStream", "aclrtSetCurrentContext",
          "aclrtGetCurrentContext", "aclrtMallocAlign32", "aclrtFree", "aclmdlRICaptureGetInfo"]

Action = tuple[str, int]


@dataclass(frozen=True)
class Settings:
    """The options of a world's pool; `early`: blocks are freed before the work on them is launched."""

    options: dict[str, Any] = field(default_factory=dict)
    early: bool = False

    @classmethod
    def of(cls, seed: int) -> Settings:
        kinds: list[dict[str, Any]] = [
            {}, {}, {"views": "always"}, {"views": False}, {"steal": False}, {"segments": True},
            {"early_frees": True}, {"early_frees": True, "views": "always"}, {"debug": "sample:3"},
            {"watch_captures": True}, {"limit": None}, {"granule": "4MiB", "limit": "64MiB"}]
        options = {"limit": "40MiB", **kinds[seed % len(kinds)]}
        return cls(options, bool(options.get("early_frees")))


class Lane:
    """A stream of one of the two contexts; `hold` stops its work until `go_on`."""

    def __init__(self, world: World, context: acl.Context) -> None:
        self.world, self.context = world, context
        context.use()
        self.stream = acl.Stream()
        self.signal = acl.Stream()
        self.notifies: list[ctypes.c_void_p] = []
        self.held = False
        self.graph: Graph | None = None         # the graph that is being captured on the stream
        self.pending: list[Callable[[], None]] = []         # work that a framework's queue has not launched yet
        world.pool.register(self.stream)
        self.door = Door(self.stream)

    def hold(self) -> None:
        if not self.held and self.graph is None:
            self.context.use()
            # A new notify for each hold: if one were recorded twice before a wait, the second record would be lost.
            self.notifies.append(ctypes.c_void_p())
            assert api.aclrtCreateNotify(ctypes.byref(self.notifies[-1]), 0) == 0
            assert api.aclrtWaitAndResetNotify(self.notifies[-1], self.stream.handle, 0) == 0
            self.held = True

    def go_on(self) -> None:
        if self.held:
            self.context.use()
            assert api.aclrtRecordNotify(self.notifies[-1], self.signal.handle) == 0
            self.held = False

    def launch(self) -> None:
        """Launch the work of the framework's queue on the stream."""
        for work in self.pending:
            work()
        self.pending.clear()

    def settle(self) -> None:
        self.launch()
        self.go_on()
        self.context.use()
        self.stream.synchronize()

    def end(self) -> None:
        """Launch all work, let the stream continue, and destroy it without a wait."""
        self.launch()
        self.go_on()
        self.context.use()
        self.world.pool.unregister(self.stream)
        self.stream.close()
        self.signal.close()
        assert all(api.aclrtDestroyNotify(notify) == 0 for notify in self.notifies)


@dataclass(eq=False)
class Held:
    """A live block: its lane, and the value that all of its bytes must have."""

    lane: Lane
    value: int
    tag: str
    address: int
    size: int
    buffer: acl.Buffer | None = None
    block: int = 0
    graph: Graph | None = None


@dataclass(eq=False)
class Graph:
    """A captured graph: the results that its reads must have, and its memory in the pool."""

    lane: Lane
    capture: Any
    handle: Any = None
    reads: list[tuple[acl.HostBuffer, int]] = field(default_factory=list)
    ran: bool = False


class World:
    """A pool with lanes, the live blocks, and the results that the queued reads must have at the end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        acl.Device(0).use()
        home = acl.Context.current()
        assert home is not None
        self.home = home
        self.away = acl.Context(0)
        home.use()
        self.pool = acl.Pool(0, sync_timeout_ms=5, **settings.options)
        self.lanes = [Lane(self, context) for context in (home, home, self.away)]
        self.live: list[Held] = []
        self.graphs: list[Graph] = []
        self.asleep: set[str] = set()
        self.reads: list[tuple[acl.HostBuffer, int, str]] = []
        self.values = 0
        self.random = random.Random(0)

    # ---- helpers of the actions

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Context manager: sometimes let a driver call fail.  The block must contain only calls of the pool."""
        if self.random.random() < 0.85:
            yield
            return
        with acl.sim.fault(self.random.choice(FAULTS), nth=self.random.randint(1, 5), times=1):
            yield

    def anywhere(self) -> None:
        """Make one of the two contexts current, chosen at random."""
        self.random.choice([self.home, self.away]).use()

    def awake(self) -> list[Held]:
        return [one for one in self.live if one.tag not in self.asleep and one.graph is None]

    def value(self) -> int:
        self.values = self.values % 250 + 1
        return self.values

    def settle(self) -> None:
        """Wait for all work.  First let all lanes continue, because one may wait for an event of another."""
        for lane in self.lanes:
            if lane.graph is not None:
                self.capture_end(lane)
            lane.launch()
            lane.go_on()
        for lane in self.lanes:
            lane.settle()
        for context in (self.away, self.home):          # work of destroyed streams may still run
            context.use()
            assert api.aclrtSynchronizeDevice() == 0

    def fill(self, lane: Lane, address: int, size: int, value: int) -> None:
        lane.context.use()
        assert api.aclrtMemsetAsync(address, size, value, size, lane.stream.handle) == 0

    def copy_out(self, lane: Lane, address: int, size: int) -> acl.HostBuffer:
        """Queue a read of both ends of a block; return the host memory into which they are copied."""
        host = acl.HostBuffer(2 * EDGE)
        lane.context.use()
        for index, place in enumerate((0, size - EDGE)):
            assert api.aclrtMemcpyAsync(
                host.address + index * EDGE, EDGE, address + place, EDGE, TO_HOST, lane.stream.handle) == 0
        return host

    def read(self, held: Held, lane: Lane) -> None:
        host = self.copy_out(lane, held.address, held.size)
        self.reads.append((host, held.value, f"{held.address:#x} of value {held.value}"))

    def give(self, held: Held) -> None:
        """Free a live block: close its buffer if it has one, else free it through the callbacks."""
        if held.buffer is not None:
            held.buffer.close()
        else:
            held.lane.door.free(held.block)

    def free_one(self, held: Held) -> None:
        self.live.remove(held)
        if (held.tag not in self.asleep and held.graph is None and held.lane in self.lanes
                and held.lane.graph is None):
            self.read(held, held.lane)
        self.anywhere()
        with self.failing():
            self.give(held)

    # ---- the actions

    def alloc(self) -> None:
        """Allocate a buffer through `Pool.alloc`."""
        lane = self.random.choice(self.lanes)
        tag = self.random.choice(["a", "b"])
        if tag in self.asleep:
            return
        size = self.random.choice(SIZES)
        self.anywhere()
        try:
            with self.failing():
                buffer = self.pool.alloc(size, lane.stream, tag=tag)
        except acl.AclError:
            return
        self.keep(Held(lane, self.value(), tag, buffer.address, size, buffer=buffer, graph=lane.graph))

    def keep(self, held: Held) -> None:
        self.live.append(held)
        self.fill(held.lane, held.address, held.size, held.value)
        if held.graph is not None:
            host = self.copy_out(held.lane, held.address, held.size)
            held.graph.reads.append((host, held.value))

    def take(self) -> None:
        """Allocate a block through the callbacks; with early frees, work on it may be launched after it was freed."""
        lane = self.random.choice(self.lanes)
        if lane.graph is not None or "" in self.asleep:
            return
        size = self.random.choice(SIZES)
        lane.context.use()
        with self.failing():
            block = lane.door.alloc(size)
        if not block:
            return
        held = Held(lane, self.value(), "", lane.door.address(block), size, block=block)
        if not self.settings.early:
            self.keep(held)
            return

        def work() -> None:
            self.fill(lane, held.address, held.size, held.value)
            self.read(held, lane)

        lane.pending.append(work)
        if self.random.random() < 0.5:
            with self.failing():
                lane.door.free(block)
        else:
            lane.launch()
            self.live.append(held)

    def launch(self) -> None:
        self.random.choice(self.lanes).launch()

    def share(self) -> None:
        """Let another lane read a buffer after the work of its own lane."""
        found = [one for one in self.awake() if one.buffer is not None and one.lane in self.lanes
                 and one.lane.graph is None]
        if not found:
            return
        held, lane = self.random.choice(found), self.random.choice(self.lanes)
        if lane.context is not held.lane.context or lane.graph is not None:
            return
        held.lane.context.use()
        with acl.Event() as event:
            event.record(held.lane.stream)
            lane.stream.wait_event(event)
        self.read(held, lane)
        self.anywhere()
        self.pool.record_stream(held.buffer, lane.stream)

    def free(self) -> None:
        if self.live:
            self.free_one(self.random.choice(self.live))

    def free_elsewhere(self) -> None:
        """Free a block in a new thread, which has no context and is the owner of no lock."""
        if not self.live:
            return
        held = self.random.choice(self.live)
        thread = threading.Thread(target=self.free_one, args=(held,))
        thread.start()
        thread.join()

    def together(self) -> None:
        """Run a thread for each lane at the same time, and one that trims."""
        for lane in self.lanes:                 # so that no lane waits for an event of a stopped lane
            lane.launch()
            lane.go_on()
        seeds = [self.random.randrange(1 << 30) for _ in self.lanes]
        wrong: list[str] = []
        threads = [threading.Thread(target=self.alone, args=(lane, seed, wrong))
                   for lane, seed in zip(self.lanes, seeds, strict=True) if lane.graph is None]
        threads.append(threading.Thread(target=self.trims, args=(seeds[0],)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        self.home.use()

    def trims(self, seed: int) -> None:
        chance = random.Random(seed)
        self.home.use()
        for _ in range(10):
            self.pool.trim(chance.choice([0, 20 * MIB]), idle=chance.random() < 0.5)

    def alone(self, lane: Lane, seed: int, wrong: list[str]) -> None:
        """Use a lane in one thread; if another thread gets memory of this one, append a text to `wrong`."""
        chance = random.Random(seed)
        mine: list[Held] = []
        reads: list[tuple[acl.HostBuffer, int]] = []
        lane.context.use()
        try:
            for _ in range(40):
                if chance.random() < 0.5 and mine:
                    held = mine.pop(chance.randrange(len(mine)))
                    reads.append((self.copy_out(lane, held.address, held.size), held.value))
                    lane.door.free(held.block)
                    continue
                size = chance.choice(SIZES)
                block = lane.door.alloc(size)
                if block:
                    mine.append(Held(lane, chance.randint(1, 250), "", lane.door.address(block), size, block=block))
                    self.fill(lane, mine[-1].address, size, mine[-1].value)
            for held in mine:
                reads.append((self.copy_out(lane, held.address, held.size), held.value))
                lane.door.free(held.block)
            assert api.aclrtSynchronizeStream(lane.stream.handle) == 0
            wrong += [f"{value} in a thread" for host, value in reads if bytes(host) != bytes([value]) * (2 * EDGE)]
        except BaseException as error:
            wrong.append(repr(error))

    def hold(self) -> None:
        self.random.choice(self.lanes).hold()

    def go_on(self) -> None:
        self.random.choice(self.lanes).go_on()

    def renew(self) -> None:
        """Destroy a stream whose buffers are live and whose queued work may still use them, and make a new one."""
        index = self.random.randrange(len(self.lanes))
        lane = self.lanes[index]
        if self.random.random() < 0.5:
            self.settle()
        else:                                   # destroy it while its work runs; that waits for no stopped stream
            for one in self.lanes:
                if one.graph is not None:
                    self.capture_end(one)
                one.launch()
                one.go_on()
        lane.end()
        self.lanes[index] = Lane(self, lane.context)

    def unload(self) -> None:
        self.home.use()
        with self.pool.unloading():
            for _ in range(3):
                self.free()
            self.home.use()

    def sleep(self) -> None:
        self.home.use()
        tag = self.random.choice(["a", "b"])
        if "debug" in self.settings.options:
            return                              # guarded blocks cannot sleep
        if tag in self.asleep or tag not in self.pool.stats().tags:
            return
        if any(lane.graph is not None for lane in self.lanes):
            return
        try:
            with self.failing():
                self.pool.sleep(tag)
            self.asleep.add(tag)
        except acl.AclError as error:
            if error.code == UNMAP_FAILED:
                self.asleep.add(tag)

    def wake(self) -> None:
        self.home.use()
        for tag in sorted(self.asleep):
            with suppress(acl.AclError):
                with self.failing():
                    self.pool.wake(tag)
                self.asleep.discard(tag)

    def trim(self) -> None:
        self.anywhere()
        with self.failing():
            self.pool.trim(self.random.choice([0, 10 * MIB]), idle=self.random.random() < 0.5)

    def decay(self) -> None:
        self.anywhere()
        with self.failing():
            self.pool.decay_tick()

    def capture(self) -> None:
        """Begin the capture of a graph on a lane, or end the lane's capture if there is one."""
        lane = self.random.choice(self.lanes)
        if lane.graph is not None:
            self.capture_end(lane)
            return
        if lane.held or self.asleep or lane.pending:
            return
        lane.context.use()
        capture = self.pool.capture(lane.stream)
        capture.__enter__()
        lane.graph = Graph(lane, capture)
        assert api.aclmdlRICaptureBegin(lane.stream.handle, RELAXED) == 0

    def capture_end(self, lane: Lane) -> None:
        graph = lane.graph
        assert graph is not None
        lane.context.use()
        graph.handle = out()
        assert api.aclmdlRICaptureEnd(lane.stream.handle, ctypes.byref(graph.handle)) == 0
        graph.capture.__exit__(None, None, None)
        lane.graph = None
        self.graphs.append(graph)

    def run_graph(self) -> None:
        """Execute a graph on its lane, after the work that is queued there."""
        found = [one for one in self.graphs if one.lane in self.lanes and one.lane.graph is None]
        if not found or self.asleep:
            return
        graph = self.random.choice(found)
        graph.lane.context.use()
        assert api.aclmdlRIExecuteAsync(graph.handle, graph.lane.stream.handle) == 0
        graph.ran = True

    def release(self) -> None:
        """Wait for all work and destroy a graph."""
        if not self.graphs:
            return
        graph = self.random.choice(self.graphs)
        self.verify()
        self.home.use()
        self.release_graph(graph)

    def release_graph(self, graph: Graph) -> None:
        self.graphs.remove(graph)
        assert api.aclmdlRIDestroy(graph.handle) == 0
        for held in [one for one in self.live if one.graph is graph]:
            self.live.remove(held)
            self.give(held)
        with self.failing():
            self.pool.release_capture(graph.capture)
        for host, _ in graph.reads:
            host.close()

    def verify(self) -> None:
        self.settle()
        for host, value, name in self.reads:
            assert bytes(host) == bytes([value]) * (2 * EDGE), name
            host.close()
        self.reads.clear()
        for graph in self.graphs:
            for host, value in graph.reads if graph.ran else ():
                assert bytes(host) == bytes([value]) * (2 * EDGE), f"{value} in a graph"
                ctypes.memset(host.address, 0, 2 * EDGE)
            graph.ran = False

    def step(self, action: Action) -> None:
        name, number = action
        self.random.seed(number)
        getattr(self, name)()
        broken = self.pool.check()
        assert broken == 0, f"I{broken} after {name}"

    def end(self) -> None:
        self.verify()
        self.home.use()
        for graph in list(self.graphs):
            self.release_graph(graph)
        for held in self.live:
            self.give(held)
        limit = time.monotonic() + 30               # several trims may be needed: each waits for at most 5 ms
        # A pool with guards keeps freed blocks in quarantine.
        while self.pool.stats().reserved and "debug" not in self.settings.options:
            self.pool.trim(drained=self.settings.early)
            assert time.monotonic() < limit, self.pool.stats().streams
        assert self.pool.check() == 0

    def leave(self) -> None:
        """Free everything, in whatever state a failure has left the world."""
        for lane in self.lanes:
            with suppress(Exception):
                if lane.graph is not None:
                    self.capture_end(lane)
            with suppress(Exception):
                lane.go_on()
        for lane in self.lanes:
            with suppress(Exception):
                lane.end()
        self.live.clear()
        self.home.use()
        self.pool.close()
        self.away.close()


WEIGHTS = {
    "alloc": 26, "take": 12, "free": 22, "free_elsewhere": 3, "share": 10, "hold": 6, "go_on": 8, "launch": 5,
    "trim": 4, "decay": 1, "unload": 2, "renew": 1.5, "sleep": 2, "wake": 3, "capture": 4, "run_graph": 4, "release": 1,
    "together": 0.5, "verify": 2}


def actions_of(seed: int, count: int) -> list[Action]:
    """Return `count` random actions of a seed."""
    chance = random.Random(seed)
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [(name, chance.randrange(1 << 30)) for name in names]


def run(settings: Settings, actions: list[Action]) -> None:
    """Run actions in a new world; raise an error if bytes or an invariant of the pool are wrong."""
    with ExitStack() as stack:
        world = World(settings)
        stack.callback(world.leave)
        for action in actions:
            world.step(action)
        world.end()


def fails(settings: Settings, actions: list[Action]) -> str:
    """Run actions and return the error, or an empty string."""
    try:
        run(settings, actions)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shortest(actions: list[Action], failing: Callable[[list[Action]], object], limit_s: float = 120) -> list[Action]:
    """Return a shorter list that still fails: remove actions, first many at a time, then single ones, for `limit_s`."""
    end = time.monotonic() + limit_s
    length = len(actions) // 2
    while length > 0:
        at = 0
        while at < len(actions) and time.monotonic() < end:
            fewer = actions[:at] + actions[at + length:]
            if failing(fewer):
                actions = fewer
            else:
                at += length
        length //= 2
    return actions
