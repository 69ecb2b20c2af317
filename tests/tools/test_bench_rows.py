"""Each row of `aclpool bench` changes with the measured property, and uses every slot and thread that it names."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.child import run_python

from acl.tools.bench import _peers
from acl.tools.bench import workloads as bench_workloads
from acl.tools.bench._loops import Load, Subject, run_here
from acl.tools.bench.cases import NAMES, Case, Wanted, cases_of
from acl.tools.bench.measure import Effort, overlap, warm_up
from acl.tools.bench.report import merged, with_floor
from acl.tools.bench.runs import RUNS, Job, measure_case
from acl.tools.bench.subjects import Candidate, Opened, candidate_of

EFFORT = Effort(rounds=1, samples=3, run_ns=500_000, least=500, warm_runs=3, warm_ns=100_000_000)
WAIT_NS = 2_000
ANYBODY = Candidate("anybody", lambda: Opened(_peers.floor()), scaled=True, from_python=True)
TRACE = bench_workloads.packed([(1 << 20, slot) for slot in range(50)] + [(0, slot) for slot in range(50)])
WANTED = Wanted(live=(100, 5_000), distinct=(10, 100), threads=(1, 2), traces={"t": 2})
CASES = [case for name in NAMES for case in cases_of(name, ANYBODY, WANTED)]


def job_of(case: Case, opened: Opened, candidate: Candidate = ANYBODY, effort: Effort = EFFORT) -> Job:
    """Return the job that the command would create for the case."""
    peak = 50 << 20
    if case.workload in ("W5", "day"):
        events: tuple[bytes, ...] = (bench_workloads.inference(steps=1)[0],)
    else:
        events = (TRACE,) * case.parameters.get("threads", 1) if case.workload == "trace" else ()
    return Job(case, candidate, opened, effort, False, events, 2 if case.workload == "trace" else 1, peak)


def ns_of(case: Case, opened: Opened, effort: Effort = EFFORT) -> float:
    """Return the smallest sample of the case's row, in nanoseconds."""
    (row,) = measure_case(job_of(case, opened, effort=effort))
    return min(row["samples"])


def opened_with(make: Callable[[], Subject], call: Callable[[int], Any]) -> Opened:
    return Opened(make(), make, call=call)


def slow_call(wait_ns: int) -> Callable[[int], None]:
    """Return a Python function that uses `wait_ns` of processor time."""
    def call(size: int) -> None:
        end = time.thread_time_ns() + wait_ns
        while time.thread_time_ns() < end:
            pass
    return call


def test_every_workload_has_a_case_and_a_way_to_measure_it() -> None:
    assert set(RUNS) == set(NAMES) == {case.workload for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_slower_allocator_gives_a_larger_result_in_every_row(case: Case) -> None:
    plain = ns_of(case, opened_with(_peers.floor, lambda size: None))
    wait = max(WAIT_NS, 10 * int(plain))        # the plain time may be long on a busy machine
    slowed = ns_of(case, opened_with(lambda: _peers.slowed(_peers.floor(), wait), slow_call(wait)))
    assert slowed > 0.8 * wait / (2 if "tenants" in case.id else 1), f"{plain} ns, and with {wait} ns more {slowed} ns"


@pytest.mark.parametrize("case", [case for case in CASES if case.workload in ("W2", "W3", "live", "sizes")
                                  and case.parameters.get("what") != "hot pair"], ids=lambda case: case.id)
def test_benchmark_run_replaces_the_block_of_every_slot(case: Case) -> None:
    (row,) = measure_case(job_of(case, Opened(_peers.floor())))
    assert row["slots"] in (256, 1000, 100, 5_000, 64)
    assert row["slots_touched"] > 0.95 * row["slots"]


@pytest.mark.parametrize("name", ["live/anybody/live_blocks=5000/what=random replacement",
                                  "W4/anybody/threads=2/arena=own/thread=foreign",
                                  "tenants/anybody/thread=foreign/what=large blocks"])
def test_benchmark_run_that_does_not_use_every_slot_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_workloads, "STEPS_PER_SLOT", 0)
    case = next(case for case in CASES if case.id == name)
    with pytest.raises(AssertionError, match="a run replaced the blocks of"):
        measure_case(job_of(case, Opened(_peers.floor()), effort=replace(EFFORT, run_ns=1, least=300)))


class Counted:
    """An allocator that records the requested sizes and the largest number of live blocks."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.live = self.most = 0

    def subject(self) -> Subject:
        """Return the allocator for the loops."""
        return _peers.python("counted", self.allocate)

    def allocate(self, size: int) -> Any:
        """Allocate and return a block."""
        counted = self

        class Block:
            ptr = 4096

            def __del__(self) -> None:
                counted.live -= 1

        self.sizes.append(size)
        self.live += 1
        self.most = max(self.most, self.live)
        return Block()


ALONE = [case for case in CASES if case.parameters.get("threads", 1) == 1 and case.parameters.get("thread") != "foreign"
         and case.workload not in ("W2", "W3")]


@pytest.mark.parametrize("case", ALONE, ids=[case.id for case in ALONE])
def test_benchmark_row_makes_the_allocations_that_its_name_says(case: Case) -> None:
    counted = Counted()
    effort = replace(EFFORT, least=20, samples=1, warm_runs=1, run_ns=10_000)
    job = job_of(case, Opened(counted.subject(), counted.subject, call=counted.allocate), effort=effort)
    (row,) = RUNS[case.workload](job)
    assert counted.live == 0
    if job.events:
        wanted = [size for size, _, _ in bench_workloads.EVENT.iter_unpack(job.events[0]) if size]
        assert len(wanted) == row["pairs"]
        assert counted.sizes == wanted * (len(counted.sizes) // len(wanted))
    elif case.workload == "live":
        assert counted.most == case.parameters["live_blocks"] + (case.parameters["what"] == "hot pair")
    elif case.workload == "sizes":
        assert len(set(counted.sizes)) == case.parameters["distinct_sizes"]
        assert counted.most == (1 if case.parameters["what"] == "hot pair" else 64)
    else:
        assert set(counted.sizes) == {bench_workloads.HOT_SIZE}
        assert counted.most == 1 and len(counted.sizes) >= row["pairs"]


class Watched:
    """An allocator that records which threads allocate, and which threads free."""

    def __init__(self) -> None:
        self.allocated: set[int] = set()
        self.freed_by_itself: set[bool] = set()     # for blocks of other threads: did their own thread free them?
        self.home = threading.get_ident()

    def subject(self) -> Subject:
        """Return the allocator for the loops."""
        watched = self

        class Block:
            ptr = 4096

            def __init__(self, size: int) -> None:
                self.thread = threading.get_ident()
                watched.allocated.add(self.thread)

            def __del__(self) -> None:
                if self.thread != watched.home:
                    watched.freed_by_itself.add(self.thread == threading.get_ident())

        return _peers.python("watched", Block)


@pytest.mark.parametrize("case", [case for case in CASES if case.parameters.get("threads", 1) > 1
                                  or case.workload in ("handover", "tenants")], ids=lambda case: case.id)
def test_every_thread_of_a_row_works(case: Case) -> None:
    watched = Watched()
    effort = replace(EFFORT, least=20, samples=1, warm_runs=1, run_ns=10_000)
    subject = watched.subject()
    RUNS[case.workload](job_of(case, Opened(subject, lambda: subject), replace(ANYBODY, python=True), effort))
    if case.workload == "handover":
        assert watched.freed_by_itself == {False}
    else:
        assert len(watched.allocated - {watched.home}) >= 2


def test_replacement_cost_does_not_fall_with_more_live_blocks() -> None:
    times = []
    for live in (100, 200_000):
        with candidate_of("aclpool").open() as opened:
            load = bench_workloads.live_blocks(opened.subject, live, 400_000)
            run_here(load, 1)
            times.append(min(cpu for cpu, _, _ in run_here(load, 3)) / load.allocations)
            assert load.touched is not None and load.touched > 0.8 * live
            load.close()
    assert times[1] > 0.8 * times[0], f"{times[0]} ns beside 100 blocks, {times[1]} beside 200,000"


def test_random_sizes_differ_between_runs_and_are_equal_between_loads() -> None:
    def sizes(runs: int) -> list[list[int]]:
        asked: list[int] = []

        class Block:
            ptr = 4096

            def __init__(self, size: int) -> None:
                asked.append(size)

        load = Load.random(_peers.python("log", Block), 4, range(512, 51_201, 512), 20, 1, 6)
        found = []
        for _ in range(runs):
            run_here(load, 1)
            found.append(asked[:])
            asked.clear()
        load.close()
        return found

    first, second = sizes(2)
    assert len(first) == len(second) == 20
    assert first != second
    assert sizes(2) == [first, second]


@pytest.mark.parametrize(("slots", "sizes", "count"), [(0, [512], 1), (1, [], 1), (1, [0], 1), (1, range(0), 1),
                                                       (1, range(9), 1), (1, [512], 0)])
def test_random_loads_without_slots_sizes_or_events_are_refused(slots: int, sizes: Any, count: int) -> None:
    with pytest.raises(ValueError, match="random replacements want slots"):
        Load.random(_peers.floor(), slots, sizes, count, 1)


def test_the_live_peak_is_the_most_that_was_asked_for_at_one_time() -> None:
    live, most = {}, 0

    class Block:
        ptr = 4096

        def __init__(self, size: int) -> None:
            nonlocal most
            live[id(self)] = size
            most = max(most, sum(live.values()))

        def __del__(self) -> None:
            del live[id(self)]

    load = Load.random(_peers.python("log", Block), 5, [10, 200, 3000], 300, 3, 64)
    load.fill()
    run_here(load, 2)
    assert load.live_peak == most
    assert load.touched == 5
    load.close()
    assert not live


def test_benchmark_writes_only_to_its_blocks_and_counts_only_events_that_ran() -> None:
    live, most, beyond = 0, 0, 0

    class Block:
        def __init__(self, size: int) -> None:
            nonlocal live, most
            self.size = size
            self.memory = ctypes.create_string_buffer(size + (64 << 10))
            self.ptr = ctypes.addressof(self.memory)
            live += size
            most = max(most, live)

        def __del__(self) -> None:
            nonlocal live, beyond
            live -= self.size
            beyond += any(self.memory.raw[self.size:])

    load = Load.random(_peers.python("log", Block), 8, [5_000, 13_000, 40_000], 100, 5, 64)
    load.fill()
    load.latencies()
    most = live
    load.touch(10)
    assert load.live_peak == most
    load.close()
    assert live == beyond == 0


WRITTEN = """
from acl.tools.bench import measure
from acl.tools.bench._loops import Load
from acl.tools.bench.subjects import candidate_of
measure.give_back_heap()
base = measure.resident("VmRSS")
with candidate_of("glibc").open() as opened:
    load = Load.random(opened.subject, 64, [1 << 20], 64, 1)
    load.fill()
    print(measure.touched_peak(load, 64, base))
    load.close()
"""


def test_written_blocks_are_resident() -> None:
    """Measure in a new process, because the kernel may reclaim pages of a large process during the measurement."""
    peak = run_python(WRITTEN).stdout.strip()
    assert peak == "None" or 32 << 20 < int(peak) < 200 << 20


# ---- conditions that make a row uncertain ----

@pytest.mark.parametrize(("windows", "of", "share"), [
    ([(0, 100), (0, 100)], None, 1.0), ([(0, 100), (50, 150)], None, 0.5), ([(0, 10), (20, 30)], None, 0.0),
    ([(0, 100), (0, 50)], None, 0.5), ([(10, 60), (0, 100)], 0, 1.0), ([(10, 60), (0, 100)], 1, 0.5),
])
def test_overlap_is_the_share_of_time_in_which_all_threads_ran(
    windows: list[tuple[int, int]], of: int | None, share: float
) -> None:
    assert overlap(windows, of) == pytest.approx(share)


def test_warm_up_ends_when_three_runs_agree_and_reports_if_none_agree() -> None:
    times = iter([900.0, 300.0, 100.0, 101.0, 99.0, 5.0])
    assert (warm_up(lambda: next(times), Effort())).items() >= {"warm_up_runs": 5, "stable": True}.items()
    falling = iter([2.0 ** -i for i in range(100)])
    assert (warm_up(lambda: next(falling), Effort())).items() >= {"warm_up_runs": 30, "stable": False}.items()


def round_of(*samples: float, **more: Any) -> dict[str, Any]:
    return {"workload": "W4", "allocator": "x", "samples": list(samples), "stable": True, "overlap": 1.0,
            "floor_around_ns": [3.0, 3.0], "failures": 0, **more}


def test_a_row_is_the_median_of_its_processes_with_their_spread() -> None:
    row = merged([round_of(10, 11, 90), round_of(20, 20, 20), round_of(5, 12, 13)])
    assert (row["ns_per_pair"], row["ns_per_pair_low"], row["ns_per_pair_high"]) == (12, 11, 20)
    assert row["ns_per_pair_min"] == 5
    assert row["samples"] == [[10, 11, 90], [20, 20, 20], [5, 12, 13]]


@pytest.mark.parametrize(("more", "mark"), [
    ({}, None), ({"overlap": 0.89}, "o"), ({"stable": False}, "w"), ({"floor_around_ns": [3.0, 3.6]}, "d"),
])
def test_an_unsure_row_is_marked(more: dict[str, Any], mark: str | None) -> None:
    quiet = [merged([round_of(10)]) for _ in range(4)]
    assert with_floor([*quiet, merged([round_of(10, **more)])])[-1]["mark"] == mark


# ---- user-defined allocators ----

class Mine:
    """An allocator that a factory may return; its blocks have an address in `ptr`."""

    version = "7"

    def allocate(self, size: int) -> Any:
        """Return a block: an object with the address in `ptr`."""
        return SimpleNamespace(ptr=4096)


class Callbacks:
    """An allocator that a factory may return; its `alloc` and `free` are C function pointers."""

    def __init__(self) -> None:
        import ctypes

        self.alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(lambda state, size: 4096)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda state, block: None)
        self.closed = False

    def close(self) -> None:
        """Store that the command has closed the allocator."""
        self.closed = True


@pytest.mark.parametrize("factory", ["Mine", "Callbacks"])
def test_allocator_returned_by_a_factory_is_measured(factory: str) -> None:
    candidate = candidate_of(f"mine={__name__}:{factory}")
    assert candidate.name == "mine"
    with candidate.open() as opened:
        (row,) = measure_case(job_of(Case("W1", "mine", {"size": 512, "thread": "python"}), opened, candidate,
                                     replace(EFFORT, least=50, run_ns=1000)))
    assert min(row["samples"]) > 0
    assert row["version"] == ("7" if factory == "Mine" else None)


class Pointless:
    """An allocator whose blocks have no address."""

    def allocate(self, size: int) -> bytearray:
        """Return a block that C cannot use."""
        return bytearray(size)


def test_a_block_without_an_address_is_refused() -> None:
    with pytest.raises(TypeError, match=r"allocate\(512\) gave a bytearray without ptr"):
        candidate_of(f"{__name__}:Pointless").open()


def test_factory_that_returns_no_allocator_gets_an_error_that_names_the_methods() -> None:
    with pytest.raises(TypeError, match=r"neither allocate\(size\) nor alloc"):
        candidate_of("builtins:object").open()
