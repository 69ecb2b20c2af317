"""`aclpool replay`: traces, policies, the pool's accounting, the command line."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_child
from support.slow_policies import SlowExact, SlowTorch
from support.small_traces import random_trace

import acl
import acl.sim
from acl.tools import cli
from acl.tools.bench._loops import Load, run_here
from acl.tools.replay.measure import replay_policy, replay_pool, timing_of, whole_passes
from acl.tools.replay.policies import POLICY_NAMES, load_policies
from acl.tools.replay.price import PRICES, load_prices, priced_ms
from acl.tools.replay.trace import TraceError, closed_trace, load_trace, repeat_trace, save_trace, trace_of_rows

KEYS = {
    "events", "ns_per_event", "ns_per_event_host", "driver_ms_modelled", "live_peak", "reserved_peak", "ratio",
    "steals", "slow_path_share", "driver_calls",
}
SHARED = Path(__file__).parents[2] / "../shared/traces"


def trace_file(path: Path, **arrays: Any) -> Path:
    columns: dict[str, Any] = {"op": [0, 1], "id": [5, 5], "size": [512, 512], "step": [0, 0], "stream": [0, 0]}
    columns |= arrays
    with path.open("wb") as file:
        np.savez(file, **{name: np.array(column) for name, column in columns.items() if column is not None})
    return path


# ---- traces ----

def test_saved_trace_can_be_read_again(tmp_path: Path) -> None:
    trace = random_trace(1, 300, streams=3)
    save_trace(tmp_path / "t.npz", trace)
    again = load_trace(tmp_path / "t.npz")
    for name in ("op", "id", "size", "stream"):
        assert getattr(trace, name).tolist() == getattr(again, name).tolist()


def test_live_peak_of_a_trace_is_the_sum_of_the_peaks_of_its_streams() -> None:
    rows = [(0, 0, 100, 0), (1, 0, 100, 0), (0, 1, 70, 1), (0, 2, 5, 0), (1, 1, 70, 1), (1, 2, 5, 0)]
    trace = trace_of_rows("two", rows)
    assert trace.live_peak() == 170
    assert trace.joint_live_peak() == 100


def test_trace_slots_are_reused_but_never_by_two_streams() -> None:
    trace = random_trace(2, 1000, streams=3)
    events = np.frombuffer(trace.events(), np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")]))
    owner: dict[int, int] = {}
    held: set[int] = set()
    for size, slot, stream in events.tolist():
        assert owner.setdefault(slot, stream) == stream
        assert (slot in held) == (size == 0)
        held ^= {slot}
    assert not held
    assert len(owner) < trace.allocations / 2


def test_repeated_trace_has_new_blocks_in_each_pass() -> None:
    trace = repeat_trace(random_trace(3, 200), 3)
    assert len(trace) == 600
    assert len(set(trace.id[trace.op == 0].tolist())) == 300


@pytest.mark.parametrize(("arrays", "complaint"), [
    ({"op": [0, 2]}, "op 2"),
    ({"op": [0, 0]}, "allocated twice"),
    ({"id": [5, 6]}, "block 6 is freed but not live"),
    ({"size": [512, 513]}, "another size"),
    ({"stream": [0, 1]}, "another size or stream"),
    ({"size": None}, "no array 'size'"),
    ({"op": [0]}, "different shapes"),
    ({"op": [], "id": [], "size": [], "step": [], "stream": []}, "no events"),
])
def test_a_trace_that_contradicts_itself_is_refused(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        load_trace(trace_file(tmp_path / "t.npz", **arrays))


@pytest.mark.parametrize(("arrays", "complaint"), [
    ({"size": [512.0, 512.0]}, "array 'size': expected whole numbers, got float64"),
    ({"id": ["a", "a"]}, "array 'id': expected whole numbers, got <U1"),
    ({"size": [-1, -1]}, "a size below 0: -1"),
    ({"size": [2**62, 2**62]}, r"sizes of 2\*\*63 bytes and more in all"),
    (dict.fromkeys(("op", "id", "size", "step", "stream"), 1), "arrays of different shapes"),
])
def test_arrays_that_are_no_events_are_refused(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        load_trace(trace_file(tmp_path / "t.npz", **arrays))


def test_damaged_trace_file_is_read_or_refused_with_a_trace_error(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    save_trace(path, random_trace(9, 400))
    whole = path.read_bytes()
    seed = 20261118
    rng = np.random.default_rng(seed)
    refused = 0
    for _ in range(150):
        content = bytearray(whole)
        for at in rng.integers(2, len(whole), 4):
            content[at] = rng.integers(256)
        path.write_bytes(content[:rng.integers(2, len(whole) + 1)] if rng.random() < 0.3 else content)
        try:
            load_trace(path)
        except TraceError:
            refused += 1
    assert refused > 75, f"seed {seed}"


def test_trace_file_that_declares_terabyte_arrays_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("op", "id", "size"):
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(TraceError, match="not a trace"):
        load_trace(path)


def test_blocks_that_a_trace_leaves_live_are_freed_at_its_end() -> None:
    rows = [(0, 0, 100, 0), (0, 1, 70, 1), (1, 0, 100, 0), (0, 2, 5, 0)]
    trace = closed_trace(trace_of_rows("open", rows))
    assert trace.op.tolist() == [0, 0, 1, 0, 1, 1]
    assert trace.id.tolist()[4:] == [1, 2]
    assert trace.size.tolist()[4:] == [70, 5]
    assert trace.stream.tolist()[4:] == [1, 0]
    assert len(closed_trace(trace)) == len(trace)


@pytest.mark.parametrize(("content", "complaint"), [
    (b"", "file: the file is empty"), (b"PK", "file: not a trace"), (b"PK\x03\x04 and no zip", "file: not a trace"),
    (b"\x80\x04 and no pickle", "file: neither an npz nor a memory snapshot$"),
    (b"text", "file: neither an npz nor a memory snapshot$"),
])
def test_replay_refuses_files_of_other_formats(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=complaint):
        load_trace(path)


def snapshot(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"segments": [], "device_traces": [[], entries]}


def test_a_memory_snapshot_becomes_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot([
        {"action": "free_completed", "addr": 1, "size": 99, "stream": 0, "frames": []},
        {"action": "segment_alloc", "addr": 4096, "size": 1 << 21, "stream": 0, "frames": []},
        {"action": "alloc", "addr": 4096, "size": 1000, "stream": 0, "frames": []},
        {"action": "alloc", "addr": 8192, "size": 2000, "stream": 77, "frames": []},
        {"action": "free_requested", "addr": 4096, "size": 1000, "stream": 0, "frames": []},
        {"action": "free_completed", "addr": 4096, "size": 1000, "stream": 0, "frames": []},
    ])))
    trace = load_trace(path)
    assert trace.op.tolist() == [0, 0, 1, 1]
    assert trace.size.tolist() == [1000, 2000, 1000, 2000]
    assert trace.stream.tolist() == [0, 1, 0, 1]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/should-not-be-there",)


@pytest.mark.parametrize("ending", ["csv", "json", "npz"])
def test_a_trace_is_exported_and_read_back(ending: str, tmp_path: Path) -> None:
    trace = random_trace(8, 300, streams=3)
    save_trace(tmp_path / "t.npz", trace)
    out = tmp_path / f"out.{ending}"
    assert run_cli(str(tmp_path / "t.npz"), "--export", str(out)) == 0
    again = load_trace(out)
    for name in ("op", "id", "size", "step", "stream"):
        assert getattr(trace, name).tolist() == getattr(again, name).tolist(), name


@pytest.mark.parametrize("text", [
    "op,id,size\nalloc,7,4096\nalloc,8,512\nfree,7,\nfree,8,\n",
    "id,op,size,note\n7,0,4096,x\n8,0,512,y\n7,1,4096,z\n8,1,512,\n",
    '[{"op": "alloc", "id": 7, "size": 4096}, {"op": 0, "id": 8, "size": 512}, {"op": "free", "id": 7},'
    ' {"op": 1, "id": 8}]',
    ' {"op": [0, 0, 1, 1], "id": [7, 8, 7, 8], "size": [4096, 512, 4096, 512]}',
])
def test_a_trace_in_text_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(text)
    trace = load_trace(path)
    assert (trace.op.tolist(), trace.id.tolist()) == ([0, 0, 1, 1], [7, 8, 7, 8])
    assert trace.size.tolist() == [4096, 512, 4096, 512]


@pytest.mark.parametrize(("text", "complaint"), [
    ("op,id\nalloc,7\n", "no column 'size'"), ("op,id,size\nmalloc,7,1\n", "event 0: expected op"),
    ("op,id,size\nalloc,7,1e99\n", "event 0: expected op"), ("op,id,size\nalloc,7,-1\n", "a size below 0"),
    ("op,id,size\nalloc,7,99999999999999999999\n", "event 0: expected op"), ("op,id,size\n", "no events"),
    ("op,id,size\nfree,7,1\n", "block 7 is freed but not live"), ("[1, 2]", "expected an object of arrays"),
    ("{", "not JSON"), ("[" * 100_000, "not JSON"), ('{"op": [0], "id": [1]}', "expected arrays op, id and size"),
    ('{"op": [0], "id": [1, 2], "size": [1]}', "of one length"), ('[{"op": [], "id": 1, "size": 1}]', "event 0"),
])
def test_text_file_that_is_not_a_trace_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(text)
    with pytest.raises(TraceError, match=complaint):
        load_trace(path)


def test_a_snapshot_cannot_run_code(tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(snapshot([{"action": "alloc", "addr": Evil()}])))
    with pytest.raises(TraceError, match=r"the pickle wants posix\.system"):
        load_trace(path)


@pytest.mark.parametrize("content", [[], {"device_traces": []}, {"device_traces": [[{"addr": 1}]]},
                                     {"device_traces": [[{"action": "alloc", "addr": 1}]]},
                                     {"device_traces": [1, 2]},
                                     {"device_traces": [[{"action": "alloc", "addr": 1, "size": -3}]]},
                                     {"device_traces": [[{"action": "alloc", "addr": 1, "size": 2**70}]]}])
def test_pickle_file_that_is_not_a_snapshot_is_refused(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(TraceError):
        load_trace(path)


# ---- policies ----

@pytest.mark.parametrize(("name", "model"), [("exact", SlowExact), ("torch", SlowTorch)])
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_policy_agrees_with_a_slow_model(name: str, model: Any, seed: int) -> None:
    trace = random_trace(seed)
    slow = model()
    blocks: dict[int, Any] = {}
    for op, block, size in zip(trace.op.tolist(), trace.id.tolist(), trace.size.tolist(), strict=True):
        if op == 0:
            blocks[block] = slow.alloc(size)
        else:
            slow.release(blocks.pop(block))
    fast = replay_policy(name, trace, PRICES).numbers
    assert fast["reserved_peak"] == slow.reserved
    assert fast["growths"] == fast["driver_calls"] == slow.growths


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_live_blocks_of_a_policy_do_not_overlap(name: str) -> None:
    choose = np.random.default_rng(5)
    rivals = load_policies()
    subject = rivals.Policy(name, rivals.Ledger(limit=64 << 20)).subject()
    live: dict[int, tuple[int, int]] = {}
    for size in choose.integers(1, 4 << 20, 3000).tolist():
        if live and (len(live) > 30 or choose.random() < 0.4):
            block = list(live)[int(choose.integers(len(live)))]
            subject.give(block)
            del live[block]
        block = subject.take(size)
        if not block:
            continue
        start = subject.address_of(block)
        assert all(start + size <= other or other + length <= start for other, length in live.values())
        live[block] = (start, size)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_policy_keeps_its_limit_with_other_driver_calls_and_with_failures(name: str) -> None:
    trace = random_trace(21, streams=2)
    free = replay_policy(name, trace, PRICES).numbers
    limit = trace.live_peak() * 2 // 3
    limited = replay_policy(name, trace, PRICES, limit=limit).numbers
    assert limited["reserved_peak"] <= limit
    assert limited["failures"] > 0 == free["failures"]
    assert limited["driver_calls"] != free["driver_calls"]


@pytest.mark.parametrize("name", ["exact", "pow2", "buddy"])
def test_policy_needs_no_driver_call_in_later_passes_of_a_trace(name: str) -> None:
    passes = replay_policy(name, random_trace(22), PRICES, passes=3).numbers["passes"]
    assert passes[0]["driver_calls"] > 0
    assert [p["driver_calls"] for p in passes[1:]] == [0, 0]


def test_replay_frees_all_its_blocks() -> None:
    trace = random_trace(23)
    rivals = load_policies()
    load = Load.events([rivals.Policy("torch", rivals.Ledger()).subject()], trace.events())
    run_here(load, 2)
    assert load.held == 0


def test_an_unknown_policy_is_refused() -> None:
    rivals = load_policies()
    assert rivals.POLICIES == POLICY_NAMES
    with pytest.raises(ValueError, match="expected one of exact"):
        rivals.Policy("best", rivals.Ledger())


def test_policies_outside_of_a_checkout_are_refused_with_the_folder(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    from acl.tools.bench.subjects import candidate_of
    from acl.tools.replay import policies

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policies, "__file__", str(tmp_path / "acl/tools/replay/policies.py"))
    load_policies.cache_clear()
    try:
        assert run_cli(small_trace, "--policy", "torch") == 2
        said = capsys.readouterr().err
        assert f"bench/policies of aclpool's repository; run this in its root, not in {tmp_path}" in said
        with pytest.raises(ValueError, match="bench/policies"):
            candidate_of("policy:torch")
        assert run_cli(small_trace, "--runs", "1", "--json", str(tmp_path / "ours.json")) == 0
    finally:
        load_policies.cache_clear()


# ---- prices ----

def test_driver_call_prices_are_per_call_and_per_mib() -> None:
    calls = {"aclrtMalloc": (2, 3 << 20), "unknown": (5, 0)}
    assert priced_ms(calls, {"aclrtMalloc": (10.0, 2.0)}) == pytest.approx(0.026)


def test_latency_file_replaces_entries_of_the_price_table(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    path.write_text('{"aclrtMalloc": 7, "aclrtMapMem": [1, 2.5]}')
    prices = load_prices(path)
    assert prices["aclrtMalloc"] == (7.0, 0.0)
    assert prices["aclrtMapMem"] == (1.0, 2.5)
    assert prices["aclrtFree"] == PRICES["aclrtFree"]


@pytest.mark.parametrize("text", ["[]", "{", '{"aclrtMalloc": "soon"}', '{"aclrtMalloc": -1}', '{"aclrtMalloc": [1]}'])
def test_a_bad_latency_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "l.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"l\.json"):
        load_prices(path)


def test_failed_replay_row_is_marked() -> None:
    from acl.tools.replay import document_of, table

    trace = random_trace(5)
    whole = replay_policy("torch", trace, PRICES)
    short = replay_policy("torch", trace, PRICES, limit=whole.numbers["reserved_peak"] // 4)
    whole.numbers["passes"] = short.numbers["passes"] = []
    text = table(document_of(trace, whole, {"torch": (whole, short)}))
    assert short.numbers["failures"] > 0 and text.count(" ms*") == 1
    assert "not that of the whole work" in text
    assert "*" not in table(document_of(trace, whole, {"torch": (whole, whole)}))


# ---- the pool ----

def test_pool_serves_a_trace_and_returns_all_memory() -> None:
    trace = random_trace(31, streams=2)
    acl.Device(0).use()
    before = acl.sim.physical_bytes()
    numbers = replay_pool(trace, PRICES, runs=1).numbers
    assert numbers["failures"] == 0
    assert numbers["events"] == len(trace)
    assert trace.joint_live_peak() <= numbers["reserved_peak"]
    assert (numbers["live_peak"], numbers["live_peak_sum"]) == (trace.joint_live_peak(), trace.live_peak())
    assert numbers["ratio"] >= 1
    assert numbers["ratio"] == pytest.approx(numbers["reserved_peak"] / numbers["live_peak"], abs=1e-3)
    assert 0 < numbers["slow_path_share"] < 1
    assert sum(numbers["driver_calls_by_name"].values()) == numbers["driver_calls"]
    assert acl.sim.physical_bytes() == before


def test_reserved_peak_of_a_replay_equals_that_of_the_simulator() -> None:
    trace = random_trace(32)
    acl.Device(0).use()
    before = acl.sim.physical_bytes()
    replay = replay_pool(trace, PRICES, runs=1)
    assert replay.numbers["reserved_peak"] == acl.sim.physical_peak() - before
    assert max(replay.reserved) <= replay.numbers["reserved_peak"]
    assert replay.at[-1] == len(trace)


def test_replay_reports_the_time_of_the_median_run() -> None:
    runs = [[(30.0, 9.0), (20.0, 3.0)], [(11.0, 5.0), (10.0, 5.0)], [(90.0, 2.0), (80.0, 2.0)]]
    middle, numbers = timing_of(runs)
    assert middle == runs[1]
    assert numbers == {"ns_per_event": 10.5, "ns_per_event_host": 5.0, "ns_per_event_host_best": 2.0,
                       "ns_per_event_host_runs": [6.0, 5.0, 2.0]}


def test_replay_time_of_a_run_includes_its_slow_parts() -> None:
    fast, slow = [(10.0, 100.0), (0.0, 900.0)], [(20.0, 900.0), (0.0, 100.0)]
    assert whole_passes([fast, slow], 10) == [(101.0, 100.0), (102.0, 100.0)]


def test_replay_total_is_the_host_time_and_the_modelled_driver_time() -> None:
    numbers = replay_pool(random_trace(34), PRICES, passes=2, runs=1).numbers
    host_ms = numbers["ns_per_event_host"] * numbers["events"] / 1e6
    assert numbers["total_ms_modelled"] == pytest.approx(host_ms + numbers["driver_ms_modelled"], abs=0.01)


def test_waste_of_streams_that_peak_alternately_is_relative_to_their_joint_peak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for stream in (0, 1) for number in range(8)
            for row in ((0, 8 * stream + number, 16 << 20, stream), (1, 8 * stream + number, 16 << 20, stream))]
    path = tmp_path / "turns.npz"
    save_trace(path, trace_of_rows("turns", rows))
    assert run_cli(str(path), "--runs", "1") == 0
    head, _, line = capsys.readouterr().out.splitlines()[:3]
    assert "live peak 16 MiB (each stream's own added up: 32)" in head
    assert float(line.split()[8]) >= 1


def test_replay_reports_driver_calls_of_each_pass() -> None:
    numbers = replay_pool(random_trace(33), PRICES, passes=3, runs=1).numbers
    passes = numbers["passes"]
    assert len(passes) == 3
    assert sum(p["driver_calls"] for p in passes) == numbers["driver_calls"]
    assert passes[2]["driver_calls"] < passes[0]["driver_calls"]


# ---- the command ----

def run_cli(*arguments: str) -> int:
    return cli.main(["replay", *arguments])


@pytest.fixture
def small_trace(tmp_path: Path) -> str:
    path = tmp_path / "small.npz"
    save_trace(path, random_trace(41, 600))
    return str(path)


def test_replay_json_to_standard_output_prints_nothing_else(small_trace: str) -> None:
    root = str(Path(__file__).parents[2])           # root of the checkout, where the policies are
    code = f"import os, sys, acl.tools.cli as cli; os.chdir({root!r}); sys.exit(cli.main(sys.argv[1:]))"
    done = run_child("-c", code, "replay", small_trace, "--json", "-", "--policy", "all", "--runs", "1", timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document.keys() >= KEYS
    assert set(document["policies"]) == set(POLICY_NAMES)
    for numbers in document["policies"].values():
        assert numbers.keys() >= KEYS
        assert numbers["limited"].keys() >= KEYS | {"limit"}
        assert numbers["limited"]["reserved_peak"] <= document["reserved_peak"]


def test_replay_prints_a_table_and_writes_its_files(
    small_trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("r.json", "p.svg", "q.svg")]
    code = run_cli(small_trace, "--json", files[0], "--plot", files[1], "--plot", files[2], "--policy", "torch,buddy",
                   "--repeat", "2", "--runs", "1")
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["aclpool", "torch"]
    assert any(line.startswith("buddy") for line in lines)
    assert json.loads(Path(files[0]).read_text()).keys() >= KEYS
    assert "<svg" in Path(files[1]).read_text()
    assert Path(files[2]).read_text() == Path(files[1]).read_text()


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--policy", "best"], "--policy: expected some of exact"),
    (["--repeat", "0"], "--repeat: expected at least 1, got 0"),
    (["--runs", "-1"], "--runs"),
    (["--plot", "x.pdf"], "--plot: expected a file ending in"),
    (["--plot", "/no/such/x.svg"], "--plot: expected a file in a folder that exists"),
    (["--json", "/no/such/x"], "--json: expected a file in a folder that exists, got '/no/such/x'"),
    (["--limit", "3Q"], "--limit must look like '8GiB'"),
    (["--limit", "1MiB"], "--limit: expected at least one granule"),
    (["--granule", "3MiB"], "--granule: expected a power of two"),
    (["--granule", "auto"], "--granule: auto is chosen by --limit, and none is given"),
    (["--latency", "/nowhere"], "/nowhere"), (["--peers", "nobody"], "no allocator is called nobody"),
    (["--library", "x"], "--library: expected NAME=FILE:MALLOC:FREE"),
    (["--export", "out.txt"], "a trace's name ends in .csv, .json or .npz"),
    (["--export", "/no/such/x.csv"], "--export: expected a file in a folder that exists"),
])
def test_replay_names_wrong_arguments(
    small_trace: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(small_trace, *arguments) == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""


def test_real_allocators_are_timed_beside_the_pool(small_trace: str) -> None:
    done = run_child("-m", "acl.tools.cli", "replay", small_trace, "--runs", "1", "--json", "-", "--library",
                     "mine=libc.so.6:malloc:free", "--subject", "pool:granule=4MiB", "--peers", "glibc")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["allocators"]
    assert [row["allocator"] for row in rows] == ["floor", "glibc", "mine", "pool:granule=4MiB"]
    assert all(row["ns_per_event"] > 0 for row in rows)
    assert rows[3]["reserved_peak"] >= rows[3]["live_peak"] > 0


def test_missing_real_allocator_is_an_error(small_trace: str) -> None:
    done = run_child("-m", "acl.tools.cli", "replay", small_trace, "--runs", "1", "--library",
                     "no=/no/x.so:malloc:free")
    assert done.returncode == 1
    assert "no: not available: no file /no/x.so" in done.stdout


def test_each_replay_pass_starts_without_live_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.npz"
    save_trace(path, trace_of_rows("open", [(0, number, 8 << 20, 0) for number in range(8)]))
    assert run_cli(str(path), "--json", "-", "--repeat", "4", "--runs", "1", "--policy", "torch") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["live_peak"] == document["reserved_peak"] == 64 << 20
    assert document["policies"]["torch"]["reserved_peak"] < 128 << 20


def test_full_disk_gives_a_message_and_not_a_traceback(small_trace: str) -> None:
    done = run_child("-m", "acl.tools.cli", "replay", small_trace, "--json", "/dev/full", "--runs", "1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "aclpool: [Errno 28] No space left on device"


def test_replay_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("/nowhere/trace.npz") == 2
    assert "/nowhere/trace.npz" in capsys.readouterr().err


# ---- the traces of real networks ----

@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not beside the project")
@pytest.mark.parametrize(("name", "policy", "reserved", "growths"), [
    ("a_llama7b_contbatch", "exact", 18674, 1670), ("a_llama7b_contbatch", "torch", 4180, 65),
    ("b_bert_base", "pow2", 1632, 125), ("b_bert_base", "torch", 1270, 19), ("b_bert_base", "buddy", 768, 13),
    ("c_retinanet_r50", "exact", 53101, 3660), ("c_retinanet_r50", "torch", 2666, 22),
    ("d_sd15_unet_vae", "torch", 3924, 32), ("e_deepseekmoe", "torch", 898, 24),
    ("e_deepseekmoe", "arena", 764, 47),
])
def test_a_policy_agrees_with_the_table_beside_the_traces(name: str, policy: str, reserved: int, growths: int) -> None:
    numbers = replay_policy(policy, load_trace(SHARED / f"{name}.npz"), PRICES).numbers
    assert round(numbers["reserved_peak"] / (1 << 20)) == pytest.approx(reserved, abs=1)
    assert numbers["growths"] == growths
