"""`aclpool bench`: the loops, the meter, the candidates, the command line and its JSON."""

from __future__ import annotations

import json
import platform
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.child import run_child

import acl
import acl.sim
from acl.tools import bench as bench_command
from acl.tools import cli, outputs, plots
from acl.tools.bench import _meter, _peers
from acl.tools.bench import instructions as bench_instructions
from acl.tools.bench import report as bench_report
from acl.tools.bench import workloads as bench_workloads
from acl.tools.bench._loops import EVENT_BYTES, Load, Subject, instructions_available, run_foreign, run_here, run_python
from acl.tools.bench.about import about_file, about_ours
from acl.tools.bench.cases import Case
from acl.tools.bench.measure import Effort, fitting_count, fitting_passes, latencies, percentile, sample_alone
from acl.tools.bench.subjects import CANDIDATES, PoolUnderTest, candidate_of, choose

KEYS = {
    "workload", "allocator", "threads", "thread", "arena", "ns_per_pair", "ns_per_pair_min", "p50_ns", "p99_ns",
    "p999_ns", "worst_ns", "reserved_ratio", "over_floor", "instructions", "pairs", "samples", "stable", "overlap",
}


def events_of(*rows: tuple[int, int, int]) -> bytes:
    return np.array(list(rows), np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")])).tobytes()


def counting() -> tuple[Subject, list[str]]:
    """Return an allocator and the log of its calls; its blocks are objects with a `ptr`."""
    log: list[str] = []

    class Block:
        def __init__(self, size: int) -> None:
            self.ptr = 4096
            self.size = size
            log.append(f"+{size}")

        def __del__(self) -> None:
            log.append(f"-{self.size}")

    return _peers.python("log", Block), log


# ---- loops ----

def test_benchmark_pair_is_one_alloc_and_one_free() -> None:
    subject, log = counting()
    run_here(Load.pairs(subject, 64, 3), 1)
    assert log == ["+64", "-64"] * 3


def test_benchmark_replacement_frees_before_it_allocates() -> None:
    subject, log = counting()
    load = Load.replace(subject, events_of((10, 0, 0), (20, 1, 0), (30, 0, 0)), 3)
    load.fill()
    assert log == ["+10", "+20"]
    run_here(load, 1)
    assert log[2:] == ["-10", "+10", "-20", "+20", "-10", "+30"]
    load.close()
    assert sorted(log[8:]) == ["-20", "-30"]
    assert load.held == 0


def test_events_run_in_order_on_their_streams_allocator() -> None:
    first, second = counting(), counting()
    load = Load.events([first[0], second[0]], events_of((7, 0, 0), (8, 1, 1), (0, 0, 0), (0, 1, 1)))
    run_here(load, 2)
    assert first[1] == ["+7", "-7"] * 2
    assert second[1] == ["+8", "-8"] * 2
    assert load.allocations == 2


def test_load_can_be_run_in_parts() -> None:
    subject, log = counting()
    load = Load.events([subject], events_of((1, 0, 0), (2, 1, 0), (0, 0, 0), (0, 1, 0)))
    load.step(0, 1)
    assert log == ["+1"]
    load.step(1, 3)
    assert log == ["+1", "+2", "-1", "-2"]
    with pytest.raises(ValueError, match="events 3 to 5 of 4"):
        load.step(3, 2)


def test_failed_benchmark_allocation_is_counted_and_not_freed() -> None:
    def refuse(size: int) -> Any:
        raise MemoryError

    load = Load.events([_peers.python("none", refuse)], events_of((1, 0, 0), (0, 0, 0)))
    run_here(load, 3)
    assert load.failures == 3


@pytest.mark.parametrize(("rows", "complaint"), [
    ([(1, 0, 1)], "stream 1, but 1 allocators"),
    ([], "at least one event"),
])
def test_wrong_benchmark_events_are_refused(rows: list[tuple[int, int, int]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Load.events([_peers.floor()], events_of(*rows))


def test_a_slot_of_two_streams_is_refused() -> None:
    with pytest.raises(ValueError, match="slot 3 belongs to another stream"):
        Load.events([_peers.floor(), _peers.floor()], events_of((1, 3, 0), (0, 3, 0), (1, 3, 1)))


def test_each_benchmarked_allocator_has_its_own_copy_of_the_loops() -> None:
    floor = _peers.floor()
    other = Subject("other", 0, *(id(object) + i for i in range(3)))        # never called
    seats = [Load.pairs(subject, 64, 1).seat for subject in (floor, other, _peers.floor(), other)]
    assert seats[0] == seats[2] != seats[1] == seats[3]


def test_a_null_function_is_refused() -> None:
    with pytest.raises(ValueError, match="the free function is NULL"):
        Subject("broken", 0, 1, 0, 1)


def test_events_have_the_size_that_numpy_gives_them() -> None:
    assert len(events_of((1, 2, 0))) == EVENT_BYTES


def test_floor_allocator_costs_less_than_a_fifth_of_ctypes_calls() -> None:
    effort = Effort(samples=3)
    ctypes_candidate = next(candidate for candidate in CANDIDATES if candidate.name == "ctypes")
    floor = sample_alone(Load.pairs(_peers.floor(), 512, 20_000), effort)
    with ctypes_candidate.open() as opened:
        slow = sample_alone(Load.pairs(opened.subject, 512, 2_000), effort)
    assert min(floor.cpu_ns) * 5 < min(slow.cpu_ns)


@pytest.mark.parametrize("run", [run_python, run_foreign])
def test_benchmark_loads_started_together_each_do_all_their_work(run: Any) -> None:
    logs = [counting() for _ in range(3)]
    results = run([Load.pairs(subject, 8, 5) for subject, _ in logs], 2)
    assert [len(samples) for samples in results] == [2, 2, 2]
    assert all(log == ["+8", "-8"] * 10 for _, log in logs)


def test_two_foreign_threads_share_an_arena() -> None:
    under_test = PoolUnderTest()
    subject = under_test.subject()
    loads = [bench_workloads.mixed(subject, 1 << 17, seed=i) for i in range(2)]
    run_foreign(loads, 12, _peers.context())
    assert [load.failures for load in loads] == [0, 0]
    assert [load.held for load in loads] == [256, 256]
    for load in loads:
        load.close()
    under_test.close()


# ---- measuring ----

def test_percentiles_are_read_from_the_histogram() -> None:
    histogram = [(1_000_000, 98), (2_000_000, 1), (9_000_000, 1)]
    half, most, all_of_it = (percentile(histogram, share) for share in (0.5, 0.99, 0.999))
    assert half is not None and most is not None and all_of_it is not None
    assert most == pytest.approx(2 * half, rel=0.01)
    assert all_of_it == pytest.approx(9 * half, rel=0.01)
    assert percentile([], 0.5) is None


def test_latencies_count_every_call() -> None:
    load = Load.replace(_peers.floor(), events_of((8, 0, 0), (8, 1, 0)), 1000)
    load.fill()
    alloc, free = load.latencies()
    assert sum(count for _, count in alloc) == sum(count for _, count in free) == 1000
    values = latencies(load)
    assert values["p50_ns"] is not None and values["p999_ns"] is not None
    assert values["p50_ns"] <= values["p999_ns"]


def test_single_slow_call_in_100000_changes_the_worst_latency_and_not_p9999() -> None:
    class Recorded:
        def latencies(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
            histogram = [(1_000_000, 99_999), (50_000_000, 1)]
            return histogram, histogram[:1]

    values = latencies(Recorded())  # type: ignore[arg-type]
    typical, worst = values["p9999_ns"], values["worst_ns"]
    assert typical is not None and worst is not None
    assert typical == values["p50_ns"] == values["free_worst_ns"]
    assert worst == pytest.approx(50 * typical, rel=0.01)


def test_memory_meter_agrees_with_the_simulator() -> None:
    under_test = PoolUnderTest()
    subject = under_test.subject()
    acl.sim.reset_counters()
    before = _meter.readings()
    blocks = [subject.take(size << 20) for size in (1, 30, 7)]
    assert all(blocks)
    counted = acl.sim.counters()
    for name, (calls, _, _) in _meter.readings().items():
        assert calls - before.get(name, (0, 0, 0))[0] == counted.get(name, 0), name
    assert _meter.total()[0] > sum(calls for calls, _, _ in before.values())
    for block in blocks:
        subject.give(block)
    under_test.close()


def test_stopped_memory_meter_counts_nothing() -> None:
    acl.Device(0).use()
    before = _meter.total()
    subject = _peers.runtime()
    subject.give(subject.take(4096))
    assert _meter.total() == before


def test_a_short_list_is_played_until_a_sample_is_long_enough() -> None:
    subject, log = counting()
    load = Load.events([subject], events_of((1, 0, 0), (0, 0, 0)))
    passes = fitting_passes(load, Effort(run_ns=10_000_000))
    assert passes > 50
    assert fitting_passes(load, Effort(run_ns=1)) == 1
    log.clear()
    sampled = sample_alone(load, Effort(samples=2, warm_runs=1), 7)
    assert log == ["+1", "-1"] * 7 * 3
    assert len(sampled.cpu_ns) == 2
    assert len(sample_alone(load, Effort(run_ns=1)).cpu_ns) == 1       # one repetition takes longer than run_ns
    log.clear()
    latencies(load, 5)
    assert log == ["+1", "-1"] * 5


def test_the_number_of_pairs_follows_from_the_time_of_one() -> None:
    def make(count: int) -> Load:
        return Load.pairs(_peers.slowed(_peers.floor(), 2_000), 64, max(count, 500))

    # 500 pairs take about 1 ms, so about 10,000 fit into 20 ms; the bound allows for a machine ten times slower.
    assert fitting_count(make, Effort(run_ns=20_000_000, least=10), 10**6) > 1_000
    assert fitting_count(make, Effort(run_ns=20_000_000, least=10), 77) == 77
    assert fitting_count(make, Effort(run_ns=1, least=10), 77) == 10


# ---- workloads ----

def draws(load: Load, sizes: list[int]) -> None:
    """Check that the load has had about as many live bytes as its slots and the mean of its sizes give."""
    assert load.live_peak is not None
    mean = sum(sizes) / len(sizes) * load.slots
    assert 0.5 * mean < load.live_peak < 2 * mean


def test_w2_has_256_slots_and_32_sizes() -> None:
    sizes = bench_workloads.MIXED_SIZES
    assert (len(set(sizes)), sizes[0], sizes[-1]) == (32, 512, 4 << 20)
    load = bench_workloads.mixed(_peers.floor(), 20_000)
    assert load.slots == load.held == 256
    draws(load, sizes)


def test_workload_w3_keeps_a_thousand_blocks_live() -> None:
    load = bench_workloads.random_sizes(_peers.floor(), 5_000)
    assert load.slots == load.held == 1000
    draws(load, [1, 8 << 20])


def test_workload_w5_frees_all_blocks_that_it_allocates() -> None:
    events, live_peak = bench_workloads.inference(steps=2)
    load = Load.events([_peers.floor()], events)
    run_here(load, 1)
    assert load.held == 0
    assert load.allocations > 2 * 32 * 20
    assert live_peak > 32 * 2 * 4096


def test_workloads_are_equal_in_every_run() -> None:
    peaks = [bench_workloads.mixed(_peers.floor(), 2_000).live_peak for _ in range(2)]
    assert peaks[0] == peaks[1]
    assert bench_workloads.inference(steps=1) == bench_workloads.inference(steps=1)


# ---- which objects are accepted as an allocator ----

def test_benchmark_reports_version_and_file_of_the_c_library() -> None:
    with candidate_of("glibc").open() as opened:
        about = opened.about
    assert about["version"] == platform.libc_ver()[1]
    assert Path(about["file"]).is_file()
    assert about["build"] is None
    assert not about.get("build_id") or int(about["build_id"], 16)


def test_benchmark_reports_version_and_build_of_aclpool() -> None:
    assert about_ours() == {"version": acl.__version__, "build": _peers.build_type()}
    assert _peers.build_type() in ("release", "debug", "sanitize", "tsan", "coverage")


def test_a_file_tells_its_compiler_and_its_linkers_identity() -> None:
    about = about_file(Path(_peers.__file__))
    assert about["file"] == _peers.__file__
    assert "GCC" in about["compiler"] or "clang" in about["compiler"]


ELF = b"\x7fELF\x02\x01"


@pytest.mark.parametrize("content", [b"", ELF[:4], ELF + bytes(80), ELF + b"\xff" * 80],
                         ids=["empty", "short", "zeros", "ones"])
def test_file_that_is_not_a_valid_elf_file_is_reported_by_name_only(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    assert about_file(tmp_path / "x.so") == {"file": str(tmp_path / "x.so")}


# ---- the command ----

def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_child("-m", "acl.tools.cli", "bench", "--quick", *arguments, timeout=300)


def test_bench_json_to_standard_output_prints_nothing_else() -> None:
    done = bench("--json", "-", "--workloads", "W1,W5", "--peers", "ctypes,glibc", "--rounds", "2",
                 "--repeats", "2")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["machine"]["backend"] == "sim"
    rows = document["results"]
    assert {row["allocator"] for row in rows} == {"floor", "aclpool", "ctypes", "glibc"}
    assert {(row["workload"], row["thread"]) for row in rows} == {("W1", "python"), ("W1", "foreign"), ("W5", None)}
    for row in rows:
        assert row.keys() >= KEYS
        assert row["ns_per_pair"] > 0 and row["failures"] == 0
        assert len(row["samples"]) == 2
        assert all(len(run) in (1, 2) for run in row["samples"])        # one sample if the run takes long
    by_name = {row["allocator"]: row for row in rows if row["workload"] == "W5"}
    assert by_name["aclpool"]["reserved_ratio"] >= 1
    assert by_name["floor"]["over_floor"] == 1
    assert by_name["floor"]["ns_per_pair"] < by_name["ctypes"]["ns_per_pair"]
    assert "W1/aclpool/size=65536/thread=foreign" in done.stderr


def test_bench_prints_a_table_on_the_terminal(tmp_path: Path) -> None:
    done = bench("--workloads", "W1", "--peers", "none", "--rounds", "1", "--json", str(tmp_path / "b.json"),
                 "--plot", str(tmp_path / "b.svg"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("W1 hot pair"))
    assert [line.split()[0] for line in lines[first + 2:first + 6]] == ["floor", "floor", "aclpool", "aclpool"]
    assert "ns/pair: an allocation, its address read, and its free, in nanoseconds" in done.stdout
    assert json.loads((tmp_path / "b.json").read_text())["quick"] is True
    assert (tmp_path / "b.svg").stat().st_size > 500


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--peers", "malloc9000"], "no allocator is called malloc9000"),
    (["--workloads", "W9"], "expected some of W1"), (["--workloads", ""], "expected some of W1"),
    (["--threads", "two"], "expected numbers from 1 to 256, got 'two'"),
    (["--threads", "0"], "expected numbers"),
    (["--repeats", "0"], "--repeats: expected at least 1, got 0"),
    (["--rounds", "0"], "--rounds: expected at least 1, got 0"),
    (["--filter", "W2/nobody"], "no row's name contains 'W2/nobody'"),
    (["--sweep", "colour=1"], "--sweep: expected one of size"),
    (["--sweep", "size=big"], "--sweep size: expected numbers"),
    (["--library", "lib.so"], "--library: expected NAME=FILE:MALLOC:FREE, got 'lib.so'"),
    (["--subject", "policy:lru"], "expected policy:NAME, one of exact"),
    (["--subject", "pool:granule"], "expected option=value, got 'granule'"),
    (["--subject", "glibc"], "an allocator is called glibc already"),
    (["--trace", "/no/such.npz"], "No such file"),
    (["--plot", "chart.pdf"], "--plot: expected a file ending in"),
    (["--plot-memory", "chart.pdf"], "--plot-memory: expected a file ending in"),
    (["--plot-latency", "/no/such/x.svg"], "--plot-latency: expected a file in a folder that exists"),
    (["--json", "/no/such/x"], "--json: expected a file in a folder that exists"),
])
def test_bench_names_wrong_arguments(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""


@pytest.mark.parametrize(("arguments", "status", "key"), [
    (["--peers", "all", "--filter", "/rmm/"], 0, "unavailable"),
    (["--peers", "rmm"], 1, "failed"),
])
def test_missing_allocator_is_an_error_only_if_it_was_requested_by_name(
    arguments: list[str], status: int, key: str
) -> None:
    done = run_child("-m", "acl.tools.cli", "bench", *arguments, "--workloads", "W1", "--json", "-", "--rounds", "1")
    missing = [row for row in json.loads(done.stdout)["results"] if row["allocator"] == "rmm"
               and row.get("ns_per_pair") is None]
    if missing:
        assert done.returncode == status, done.stderr
    for row in missing:
        assert row[key]
        assert row.keys() >= {"workload", "allocator", "threads", "ns_per_pair", "p99_ns", "reserved_ratio"}


OWN = """
class Counted:
    version = "mine 1"

    def allocate(self, size):
        class Block:
            ptr = 4096
        return Block()
"""
START = """
import os, sys
from acl.tools.cli import main
os.chdir({folder!r})
sys.exit(main(["bench", "--quick", "--rounds", "1", "--repeats", "1", "--workloads", "W1", "--json", "-", *{more!r}]))
"""


def bench_in(folder: Path, *more: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run the command in a folder that contains another `acl`, as the root of a clone does."""
    (folder / "acl").mkdir()
    (folder / "acl/__init__.py").write_text("raise ImportError('the acl of the folder, not the installed one')")
    (folder / "own_allocator.py").write_text(OWN)
    done = run_child("-c", START.format(folder=str(folder), more=more))
    return done.returncode, json.loads(done.stdout)["results"] if done.stdout else [], done.stderr


def test_benchmark_processes_find_the_installed_package_and_modules_of_the_user(tmp_path: Path) -> None:
    code, rows, errors = bench_in(tmp_path, "--peers", "none", "--filter", "thread=python", "--subject",
                                  "own_allocator:Counted", "--subject", "pool:granule=4MiB", "--library",
                                  "mine=libc.so.6:malloc:free")
    assert code == 0, (errors, [row.get("failed") for row in rows])
    assert {row["allocator"]: row["version"] for row in rows}.items() >= {"own_allocator:Counted": "mine 1"}.items()
    assert {row["allocator"] for row in rows} == {
        "floor", "aclpool", "own_allocator:Counted", "pool:granule=4MiB", "mine"}
    assert all(row["ns_per_pair"] > 0 for row in rows)


def test_policies_of_a_checkout_can_be_measured_in_its_root() -> None:
    more = ("--peers", "none", "--filter", "thread=python", "--subject", "policy:torch")
    done = run_child("-c", START.format(folder=str(Path(__file__).parents[2]), more=more))
    assert done.returncode == 0, done.stderr
    rows = {row["allocator"]: row for row in json.loads(done.stdout)["results"]}
    assert rows["policy:torch"]["ns_per_pair"] > 0


@pytest.mark.release_only
@pytest.mark.skipif(not bench_instructions.available(), reason="valgrind is not installed")
def test_instructions_of_a_preloaded_allocator_are_counted(tmp_path: Path) -> None:
    code, rows, errors = bench_in(tmp_path, "--peers", "none", "--filter", "mine/size=65536/thread=python", "--library",
                                  "mine=libc.so.6:malloc:free", "--instructions")
    assert code == 0, errors
    assert [row["allocator"] for row in rows] == ["mine"]
    assert 20 < rows[0]["instructions"] < 2000


def test_instructions_that_cannot_be_counted_fail_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(candidate: Any, job: dict[str, Any], folder: Path) -> float:
        raise RuntimeError("it does not run under valgrind")

    monkeypatch.setattr(bench_instructions, "count", fails)
    found = [(choose("none")[0], Case("W1", "floor", {"thread": thread})) for thread in ("python", "foreign")]
    rounds: dict[str, list[dict[str, Any]]] = {case.id: [{}] for _, case in found}
    with TemporaryDirectory() as folder:
        bench_command.count_instructions(found, Effort(), rounds, bench_command.Lists(Path(folder), True, {}))
    assert [row.get("failed") for (row,) in rounds.values()] == [
        "W1/floor/thread=python: --instructions: it does not run under valgrind", None]


@pytest.mark.skipif(instructions_available() or not bench_instructions.available(), reason="the processor counts them")
def test_instruction_count_without_a_countable_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--instructions", "--workloads", "handover,python"]) == 2
    assert "--instructions: counted in rows of W1" in capsys.readouterr().err


def test_allocator_that_cannot_be_opened_fails_and_the_others_are_measured(tmp_path: Path) -> None:
    code, rows, _ = bench_in(tmp_path, "--peers", "none", "--filter", "thread=python", "--subject",
                             "own_allocator:Absent", "--library", "no=/no/such.so:malloc:free")
    assert code == 1
    failed = {row["allocator"]: row["failed"] for row in rows if row.get("failed")}
    assert "has no attribute 'Absent'" in failed["own_allocator:Absent"]
    assert "no file /no/such.so" in failed["no"]
    assert {row["allocator"] for row in rows if row.get("ns_per_pair")} == {"floor", "aclpool"}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_trace_is_played_by_real_allocators(tmp_path: Path, threads: int) -> None:
    blocks = np.arange(400)
    trace = {"op": np.tile([0, 1], 400), "id": np.repeat(blocks, 2), "size": np.repeat(blocks % 7 * 4096 + 512, 2),
             "stream": np.repeat(blocks % 2, 2)}
    np.savez(tmp_path / "own.npz", **trace)
    done = bench("--trace", str(tmp_path / "own.npz"), "--peers", "glibc", "--rounds", "1", "--repeats", "1", "--json",
                 "-", "--filter", f"threads={threads}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["results"]
    assert [(row["allocator"], row["trace"], row["threads"]) for row in rows] == [
        (name, "own", threads) for name in ("floor", "aclpool", "glibc")]
    assert rows[0]["pairs"] == 400 / threads


def test_bench_lists_names_of_rows_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--list", "--peers", "none", "--workloads", "W1", "--sweep", "size=512,1MiB"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "W1/floor/size=512/thread=python", "W1/floor/size=512/thread=foreign"]


def test_floor_and_aclpool_are_always_among_the_candidates() -> None:
    assert [candidate.name for candidate in choose("none")] == ["floor", "aclpool"]
    assert [candidate.name for candidate in choose("glibc")] == ["floor", "aclpool", "glibc"]


def test_allocator_entry_point_can_be_named_as_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [SimpleNamespace(name="mine", value="package.module:factory")]
    groups = {"aclpool.allocators": offered}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: groups[group])
    chosen = choose("mine,glibc")
    assert [candidate.name for candidate in chosen] == ["floor", "aclpool", "glibc", "mine"]
    assert chosen[-1].spec == "mine=package.module:factory"
    with pytest.raises(ValueError, match=r"no allocator is called other; there are all, none and floor.* mine$"):
        choose("other")


def test_the_programs_of_the_c_table_run() -> None:
    done = run_child(str(Path(__file__).parents[2] / "bench/c_table/run.py"), "--pairs", "2000")
    assert done.returncode == 0, done.stderr
    for where, calls in (("C", "alloc, free"), ("C++", "try_alloc, free"), ("Cython", "pool.take, drop"),
                         ("ctypes", "alloc, free"), ("Python", "pool.alloc, drop")):
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"{where:<8}{calls:<22}"))
        assert float(line.split()[-3]) > 0


# ---- plots ----

def drawing() -> plots.Drawing:
    return plots.bars("ns & <more>", [("W1", [("floor", 3.0), ("ctypes", 325.4)])])


def test_an_svg_is_well_formed() -> None:
    root = ElementTree.fromstring(plots.svg(drawing()))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "ns & <more>" in texts and "325.4" in texts


def row_with(**more: Any) -> dict[str, Any]:
    return {"workload": "W2", "allocator": "mine", "thread": "python", "ns_per_pair": 12.5, **more}


def test_plot_shows_latency_and_memory(tmp_path: Path) -> None:
    histogram = [(10.0, 990), (500.0, 9), (9_000_000.0, 1)]
    rows = [row_with(histogram_ns={"alloc": histogram}, reserved_ratio=1.25), row_with(rss_ratio=2.0),
            row_with(ns_per_pair=None, reserved_ratio=9.0)]
    for draw in (bench_report.plot_latency, bench_report.plot_memory):
        draw(rows, str(tmp_path / f"{draw.__name__}.svg"))
        assert "W2 mine" in (tmp_path / f"{draw.__name__}.svg").read_text()
    chart = plots.points("t", "x", "y", [("a", 3.0, 1.0), ("b", 2000.0, 4.0)])
    boxes = sorted((shape for shape in chart.shapes if isinstance(shape, plots.Box)), key=lambda box: box.x)
    assert boxes[0].y > boxes[1].y
    assert all(0 <= box.x <= chart.width and 0 <= box.y <= chart.height for box in boxes)


def test_plot_lines_stay_on_the_canvas() -> None:
    chart = plots.lines("t", "x", "y", [("a", [0, 5, 10], [3, 900, 0]), ("b", [0, 10], [1, 1])])
    for shape in chart.shapes:
        if isinstance(shape, plots.Path):
            assert all(0 <= x <= chart.width and 0 <= y <= chart.height for x, y in shape.points)


def test_plot_labels_stay_on_the_canvas_and_do_not_overlap() -> None:
    names = [f"allocator {number}" for number in range(20)]
    for chart in (plots.lines("t", "x", "y", [(name, [0, 1], [1, 2]) for name in names]),
                  plots.points("t", "x", "y", [(name, 50.0, 1.1) for name in names])):
        texts = [shape for shape in chart.shapes if isinstance(shape, plots.Text) and shape.text in names]
        assert len(texts) == 20
        for text in texts:
            assert 0 <= text.x <= chart.width - 8 * len(text.text)
            assert not any(other is not text and abs(other.y - text.y) < 10
                           and abs(other.x - text.x) < 8 * len(text.text) for other in texts)


def test_plot_file_that_does_not_end_in_svg_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^--plot: expected a file ending in \.svg, got 'a\.png'$"):
        outputs.check_plot("--plot", "a.png")
