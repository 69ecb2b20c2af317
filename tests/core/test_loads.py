"""Hard loads: the ratio of reserved to live bytes, slow allocations, and driver calls once shapes repeat.

They run on the core test harness, which makes millions of allocations per second.  `tests/support/loads.py` makes
the loads; recorded traces are also used if they exist.  The checked bounds are from bench/decisions.md.
"""

import random
from pathlib import Path

import numpy as np
import pytest
from support.loads import LOADS
from support.replays import Replay, made

from acl.tools._rig import Rig, function_addresses
from acl.tools.bench import _loops
from acl.tools.bench.workloads import inference
from acl.tools.replay.trace import Trace, load_trace

PAGE = 2 << 20
TRACES = sorted((Path(__file__).parents[3] / "shared" / "traces").glob("*.npz"))
SEED = 7


@pytest.mark.skipif(not TRACES, reason="no recorded traces beside the project")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_trace_wastes_at_most_2_percent_of_the_memory(path: Path) -> None:
    replay = Replay(load_trace(path))
    _, slow = replay.once()
    assert replay.ratio() <= 1.02
    assert slow <= 0.005
    _, slow = replay.once()
    assert slow <= 0.001


@pytest.mark.parametrize(("name", "steps", "most"), [
    ("decoder", 40, 1.02), ("convnet", 150, 1.02), ("scatter", 2000, 1.05), ("moe", 40, 1.10),
    ("residual", 150, 1.08), ("encoder", 150, 1.12),
])
def test_hard_load_wastes_little_memory_and_is_seldom_slow(name: str, steps: int, most: float) -> None:
    """The allowed ratio is above 1.02 if the live peak is a few hundred pages, because of partly used pages."""
    replay = Replay(made(LOADS[name], steps, SEED))
    _, slow = replay.once()
    assert replay.ratio() <= most
    assert slow <= 0.005


def test_long_lived_tiny_blocks_do_not_pin_free_pages() -> None:
    replay = Replay(made(LOADS["drift"], 500, SEED))
    replay.once()
    assert replay.rig.physical()[1] <= replay.trace.live_peak() * 1.05 + 8 * PAGE


def test_streams_that_are_idle_alternately_share_their_memory() -> None:
    trace = made(LOADS["mixed_streams"], 60, SEED)
    replay = Replay(trace)
    _, slow = replay.once()
    assert slow <= 0.005
    assert replay.rig.physical()[1] <= 1.10 * trace.joint_live_peak()
    assert replay.rig.physical()[1] < 0.95 * trace.live_peak()


def in_turn(traces: list[Trace]) -> Trace:
    """Return a trace with a stream for each of `traces`.

    The streams run one step each in turn, until one of them has no more steps.
    """
    rows, first = [], 0
    for stream, trace in enumerate(traces):
        rows.append(np.stack([trace.op, trace.id + first, trace.size, trace.step, np.full(len(trace), stream)]))
        first += int(trace.id.max()) + 1
    events = np.concatenate(rows, axis=1)
    events = events[:, events[3] < min(int(trace.step.max()) for trace in traces)]
    events = events[:, np.lexsort((np.arange(events.shape[1]), events[4], events[3]))]
    kept = events[:, np.isin(events[1], events[1][events[0] == 1], invert=True)]
    kept[0] = 1                                     # keep the frees of the blocks that are live at the end
    return Trace("in turn", *np.concatenate([events, kept], axis=1))


@pytest.mark.skipif(not TRACES, reason="no recorded traces beside the project")
@pytest.mark.parametrize("names", ["bcde", "abce", "cd"])
def test_networks_that_run_steps_alternately_share_their_memory(names: str) -> None:
    trace = in_turn([load_trace(path) for path in TRACES if path.stem[0] in names])
    replay = Replay(trace)
    _, slow = replay.once()
    assert slow <= 0.005
    _, slow = replay.once()
    assert slow <= 0.001
    assert replay.rig.physical()[1] <= 1.10 * trace.joint_live_peak()


@pytest.mark.parametrize(("name", "steps", "rounds"), [
    ("decoder", 20, 4), ("encoder", 80, 4), ("convnet", 80, 4), ("residual", 80, 5), ("drift", 200, 4),
    ("scatter", 400, 5), ("moe", 30, 8), ("moe", 3, 28),
])
def test_repeated_shapes_need_no_driver_call(name: str, steps: int, rounds: int) -> None:
    """After `rounds` iterations, no driver call is made; `rounds` is larger for loads with a small live peak."""
    replay = Replay(made(LOADS[name], steps, SEED))
    calls = [replay.once()[0] for _ in range(rounds + 2)]
    assert calls[rounds:] == [0, 0], calls


@pytest.mark.parametrize(("name", "steps"), [("convnet", 80), ("drift", 200)])
@pytest.mark.parametrize("count", [1, 100])
def test_iterations_end_although_long_lived_blocks_stay_allocated(name: str, steps: int, count: int) -> None:
    """An iteration ends even if the pool is never empty, because a service keeps weights, caches and buffers."""
    replay, sizes = Replay(made(LOADS[name], steps, SEED)), random.Random(SEED)
    for _ in range(count):
        replay.rig.alloc(sizes.choice([65536, 300000, 3 << 20, 9 << 20]))
    calls = [replay.once()[0] for _ in range(8)]
    assert calls[6:] == [0, 0], calls


def test_changing_shapes_get_no_aliases_after_the_pool_has_grown() -> None:
    """Each iteration has another sequence length, so an alias is seldom used again."""
    events, live_peak = inference()
    rig = Rig()
    load = _loops.Load.events([_loops.Subject("W5", rig.arena(), *function_addresses())], events)
    for _ in range(4):
        calls = sum(rig.calls().values())
        _loops.run_here(load, 1)
    assert rig.physical()[1] <= 1.03 * live_peak
    assert sum(rig.calls().values()) == calls


@pytest.mark.skipif(not TRACES, reason="no recorded traces beside the project")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_repeated_recorded_trace_needs_no_driver_call(path: Path) -> None:
    replay = Replay(load_trace(path))
    calls = [replay.once()[0] for _ in range(6)]
    assert calls[4:] == [0, 0], calls
    assert replay.ratio() <= 1.02


def test_million_events_do_not_exhaust_the_addresses() -> None:
    trace = made(LOADS["scatter"], 1500, SEED)
    replay = Replay(trace)
    for _ in range(7):
        replay.once()
    assert replay.rig.stats()["ranges"] == 2
    assert replay.rig.calls()["reserve"] == 2


def test_page_moves_of_a_decoder_load_seldom_wait_for_a_stream() -> None:
    """If reserved memory did not exceed the live peak, a few pages would move back and forth, with a wait each time."""
    replay = Replay(made(LOADS["decoder"], 60, SEED))
    replay.once()
    assert replay.rig.calls()["sync"] <= replay.trace.allocations // 1000
