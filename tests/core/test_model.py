"""A state machine: the pool and a simple model of it, step by step, with the checker after each.

Blocks are freed in any order, also on a wrong stream, which is refused.  Blocks are shared and captured, and their
frees are deferred.  The driver fails, is busy, or runs out of memory.  Hypothesis shortens a failing sequence and
prints how to repeat it.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from acl.tools._rig import Rig

PAGE = 2 << 20
STREAMS = st.integers(1, 3)
SIZES = st.one_of(
    st.integers(0, 4096), st.integers(0, 1 << 20), st.integers(1 << 20, 12 * PAGE),
    st.sampled_from([512, 65536, 524288, 524289, PAGE, 8 * PAGE]),
)
CALLS = st.sampled_from([
    "reserve", "physical", "free_physical", "map", "unmap", "malloc", "free", "sync", "query", "event", "mem_info",
    "capture_info",
])
UNLOADING = 4


class PoolMachine(RuleBasedStateMachine):
    """The model is a dict: for each live block its start address, end address and stream."""

    blocks = Bundle("blocks")

    @initialize(
        limit=st.sampled_from([0, 48 * PAGE]), capacity=st.sampled_from([64 * PAGE, 1 << 40]),
        granule=st.sampled_from([65536, PAGE]), segments=st.booleans(), steals=st.booleans(),
        early=st.booleans(), views=st.booleans(),
    )
    def start(
        self, limit: int, capacity: int, granule: int, segments: bool, steals: bool, early: bool, views: bool
    ) -> None:
        self.rig = Rig(
            limit=limit, capacity=capacity, granule=granule, segments=segments, steals=steals, early_frees=early,
            views=views, virtual_bytes=1 << 28, headroom=0)
        self.limit = limit
        self.live: dict[int, tuple[int, int, int]] = {}
        self.captures: dict[int, int] = {}
        self.unloading = False

    @rule(target=blocks, size=SIZES, stream=STREAMS, tag=st.sampled_from([0, 0, 1, 7]))
    def alloc(self, size: int, stream: int, tag: int) -> tuple[int, int]:
        block = self.rig.alloc(size, stream, tag)
        if not block:
            return 0, stream
        assert block not in self.live, "handed out twice"
        start = self.rig.address(block)
        end = start + max(size, 1)
        assert start and start % 512 == 0
        for other, (low, high, _) in self.live.items():
            assert end <= low or high <= start, f"overlaps block {other:#x}"
        self.live[block] = (start, end, stream)
        return block, stream

    @rule(block=consumes(blocks))
    def free(self, block: tuple[int, int]) -> None:
        number, stream = block
        assert self.rig.free(number, stream) == (number in self.live)
        self.live.pop(number, None)
        assert not self.rig.free(number, stream)

    @rule(block=blocks, other=STREAMS)
    def free_on_the_wrong_stream(self, block: tuple[int, int], other: int) -> None:
        if other != block[1]:
            assert not self.rig.free(block[0], other)

    @rule(block=blocks, other=STREAMS)
    def share(self, block: tuple[int, int], other: int) -> None:
        if block[0] in self.live:
            self.rig.share(block[0], other, block[1])

    @rule(stream=STREAMS)
    def poll(self, stream: int) -> None:
        self.rig.poll(stream)

    @rule()
    def sync_waiting(self) -> None:
        self.rig.sync_waiting()

    @rule(call=CALLS, at=st.integers(1, 4), code=st.sampled_from([207001, 507899, 507046]))
    def fault(self, call: str, at: int, code: int) -> None:
        self.rig.set(fail=call, at=at, code=code)

    @rule(busy=st.booleans())
    def busy(self, busy: bool) -> None:
        self.rig.set(busy=busy)

    @rule(to=st.sampled_from([0, 10 * PAGE]), wait=st.booleans(), drained=st.booleans())
    def trim(self, to: int, wait: bool, drained: bool) -> None:
        self.rig.trim(to, wait, drained)

    @rule()
    def decay(self) -> None:
        self.rig.decay()

    @rule(stream=STREAMS)
    def capture(self, stream: int) -> None:
        if stream in self.captures:
            self.rig.capture_end(stream)
            self.rig.capture_release(self.captures.pop(stream))
        else:
            self.captures[stream] = self.rig.capture_begin(stream)

    @rule(stream=STREAMS)
    def home(self, stream: int) -> None:
        self.rig.home(stream)

    @rule(stream=STREAMS)
    def unload(self, stream: int) -> None:
        self.unloading = not self.unloading
        for each in (1, 2, 3):
            self.rig.set_mode(each, **({"set": UNLOADING} if self.unloading else {"clear": UNLOADING}))

    @invariant()
    def whole(self) -> None:
        if not hasattr(self, "rig"):
            return
        assert self.rig.check() == 0
        assert self.rig.faults() == 0, "a view that is shared, stale, or gone too early"
        reserved, physical = self.rig.reserved(), self.rig.physical()[0]
        assert reserved == physical, "the books of the pool and of the device differ"
        assert not self.limit or reserved <= self.limit

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.set(busy=False)
        for call in ("unmap", "free", "free_physical", "sync", "event", "release"):
            self.rig.set(fail=call, at=0)
        for stream, capture in self.captures.items():
            self.rig.capture_end(stream)
            self.rig.capture_release(capture)
        for stream in (1, 2, 3):
            self.rig.set_mode(stream, clear=UNLOADING)
        for block, (_, _, stream) in self.live.items():
            assert self.rig.free(block, stream)
        assert self.rig.sync_waiting()
        self.rig.trim(drained=True)
        assert self.rig.check() == 0
        assert self.rig.reserved() == self.rig.physical()[0] == 0, "something leaked"


STEPS = int(os.environ.get("ACLPOOL_MODEL_STEPS", "20000"))
PoolMachine.TestCase.settings = settings(
    max_examples=max(1, STEPS // 100), stateful_step_count=100, deadline=None, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestPool = PoolMachine.TestCase
