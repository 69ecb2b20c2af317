"""Plays a trace on a new pool of the core test harness, pass by pass, with millions of allocations per second."""

from __future__ import annotations

from collections.abc import Callable

from acl.tools._rig import Rig, function_addresses
from acl.tools.bench import _loops
from acl.tools.replay.trace import Trace
from support.loads import Recorder

__all__ = ["Replay", "made"]


class Replay:
    """A trace and the pool on which it is played."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.rig = Rig()
        addresses = function_addresses()
        subjects = [
            _loops.Subject(str(i), self.rig.arena(i + 1), *addresses) for i in range(trace.streams)]
        self.load = _loops.Load.events(subjects, trace.events())

    def slow(self) -> int:
        return sum(self.rig.stats(i + 1)["counters"]["slow"] for i in range(self.trace.streams))

    def once(self) -> tuple[int, float]:
        """Play the trace once. Return its driver calls, and the share of slow allocations."""
        calls, slow = sum(self.rig.calls().values()), self.slow()
        _loops.run_here(self.load, 1)
        assert self.load.failures == 0
        assert self.rig.check() == 0
        return sum(self.rig.calls().values()) - calls, (self.slow() - slow) / self.trace.allocations

    def ratio(self) -> float:
        """Return the ratio of the peak of reserved bytes to the joint live peak of all streams."""
        return float(self.rig.physical()[1] / self.trace.joint_live_peak())


def made(load: Callable[[Recorder, int], object], count: int, seed: int) -> Trace:
    """Return the trace of a load; print its seed."""
    print("seed", seed)
    recorder = Recorder(load.__name__, seed)
    load(recorder, count)
    recorder.finish()
    return Trace(recorder.name, **recorder.columns())
