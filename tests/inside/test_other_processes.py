"""Out-of-memory reports name the other processes that hold memory of the device, and never wait long for one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.child import child_environment, run_child
from support.top_peer import answering

import acl
from acl.inside import _books, _processes, _top
from acl.inside._oom import OomProcess
from acl.inside._processes import Asked, process_of, report_with_others
from acl.inside._snapshot import readable
from acl.tools import cli

MIB = 1 << 20
# Holds 500 MiB in a pool, or in a buffer outside pools, until its input ends.
HOLDER = """
import sys
import acl
acl.Device(0).use()
if sys.argv[1] == "pool":
    pool = acl.Pool(0, name="llm", decay_ms=0)
    kept = pool.alloc("100MiB")
    pool.alloc("400MiB").close()
else:
    kept = acl.Buffer(500 << 20)
print("ready", flush=True)
sys.stdin.read()
"""
# A program in which two allocations fail.  It prints the report of the second.
OBSERVER = """
import json, sys
from dataclasses import asdict
import acl
from acl.inside import _processes
_processes.WITHIN = float(sys.argv[1])
asked, connected = [], _processes.connected
_processes.connected = lambda path: asked.append(path) or connected(path)
_processes.FRESH = 0
pool = acl.Pool(0, name="service")
for _ in range(2):
    try:
        pool.alloc("600MiB")
    except acl.OutOfMemoryError as error:
        report = error.report
assert pool.last_oom() == report
told = {"pids": [one.pid for one in report.processes], "others": report.other_processes, "asked": len(asked),
        "unknown": report.unknown_bytes, "details": report.details(), "first": None}
if report.processes:
    told["first"] = asdict(report.processes[0])
print(json.dumps(told))
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new folder with a short path for the sockets; nothing is known of other processes at first and at last."""
    def forget() -> None:
        Asked.when, Asked.found, Asked.silent = float("-inf"), {}, {}

    with tempfile.TemporaryDirectory(dir="/tmp" if os.access("/tmp", os.W_OK) else None) as chosen:
        monkeypatch.setenv("ACL_POOL_TOP_DIR", chosen)
        forget()
        yield Path(chosen)
        forget()


@contextlib.contextmanager
def holder(environment: dict[str, str], where: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds memory of the shared card."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, where], env={**environment, **more}, text=True, cwd="/",
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.communicate(timeout=300)


@pytest.fixture
def card(folder: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of processes that share one card of 1 GiB."""
    return child_environment(ACL_SIM_SHARED=str(tmp_path / "cards"), ACL_SIM_MEMORY="1G")


def observed(card: dict[str, str], within: float = 60) -> dict[str, Any]:
    """Run a process that finds no memory on the card; return what its report says."""
    done = run_child("-c", OBSERVER, str(within), **card)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


# ---- two processes ----

@pytest.mark.subprocess_heavy
def test_out_of_memory_report_names_the_process_that_holds_memory_and_its_unused_bytes(card: dict[str, str]) -> None:
    with holder(card, "pool", ACL_POOL_TOP="1") as child:
        told = observed(card)
        assert told["pids"] == [child.pid]
        first = told["first"]
        assert first["pools"] == ["llm"] and first["answered"] and HOLDER.split()[0] in first["command"]
        assert first["reserved"] >= 500 * MIB
        assert 100 * MIB <= first["reserved"] - first["unused"] < 100 * MIB + 64       # `alloc` adds up to 63 bytes
        assert first["reserved"] + first["outside"] == told["others"] and told["unknown"] == 0
        assert f"process {child.pid} (" in told["details"] and "are unused in llm" in told["details"]
        assert f"`aclpool trim {child.pid}`" in told["details"]
        assert cli.main(["trim", str(child.pid)]) == 0          # what the report advises is enough here
        done = run_child("-c", "import acl; print(acl.Pool(0).alloc('600MiB').size)", **card)
        assert done.stdout == f"{600 * MIB}\n", done.stderr


@pytest.mark.subprocess_heavy
def test_out_of_memory_report_counts_processes_that_top_does_not_see(card: dict[str, str]) -> None:
    with holder(card, "buffer"):
        told = observed(card)
    assert told["pids"] == [] and told["asked"] == 0
    assert told["unknown"] == told["others"] >= 500 * MIB
    assert f"  all other processes, and the system: {readable(told['others'])}\n" in told["details"]


@pytest.mark.subprocess_heavy
def test_socket_of_a_killed_process_does_not_disturb_the_report(card: dict[str, str], folder: Path) -> None:
    with holder(card, "pool", ACL_POOL_TOP="1") as child, holder(card, "buffer"):
        child.kill()
        child.wait()
        assert list(folder.glob(f"{child.pid}-*.sock"))
        told = observed(card)
    assert told["pids"] == [] and told["asked"] == 2
    assert told["unknown"] == told["others"] >= 500 * MIB


@pytest.mark.subprocess_heavy
def test_process_that_does_not_answer_is_named_and_asked_only_once(card: dict[str, str]) -> None:
    with holder(card, "pool", ACL_POOL_TOP="1") as child:
        child.send_signal(signal.SIGSTOP)
        told = observed(card, within=0.01)
    assert told["pids"] == [child.pid] and told["first"]["answered"] is False
    assert told["asked"] == 1
    assert f"  process {child.pid} did not answer\n" in told["details"]
    assert "  all other processes, and the system: " in told["details"]
    assert told["unknown"] == told["others"] >= 500 * MIB


# ---- whom it asks, and when ----

@pytest.fixture
def taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device say that other processes hold 3 GiB."""
    monkeypatch.setattr(_processes, "bytes_of_others", lambda device: 3 << 30)
    monkeypatch.setattr(_processes, "WITHIN", 60)


def refused(pool: acl.Pool) -> acl.OomReport:
    """Ask a pool for more than the device has, and return the report."""
    with pytest.raises(acl.OutOfMemoryError) as raised:
        pool.alloc(1 << 45)
    report = raised.value.report
    assert isinstance(report, acl.OomReport)
    return report


def document(**changes: Any) -> dict[str, Any]:
    """Return the answer of a process with one pool on device 0."""
    pool = {"name": "llm", "device": 0, "card": 0, "reserved": 8 * MIB, "requested": 6 * MIB, "asleep": MIB}
    device = {"device": 0, "card": 0, "process": 3 * MIB}
    return {**_top.FORMAT, "pid": os.getppid(), "command": "serve\x1b", "backend": "sim", "pools": [pool | changes],
            "devices": [device]}


def test_process_on_the_same_card_is_asked_once_for_reports_in_short_order(
        taken: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "FRESH", float("inf"))
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()) as asked:
        Asked.when = float("-inf")
        reports = [refused(pool) for _ in range(3)]
        assert asked == [b"snapshot\n"]
        assert {report.processes for report in reports} == {
            (OomProcess(os.getppid(), "serve\\x1b", ("llm",), 8 * MIB, 3 * MIB, 3 * MIB),)}
        assert reports[0].unknown_bytes == (3 << 30) - 11 * MIB
        assert pool.last_oom() == reports[-1]


@pytest.mark.parametrize("said", [
    b"", b"\xff{", b"[" * 100_000, b"[]", b"{}", b"null", json.dumps({**_top.FORMAT, "pid": 1}).encode(),
    json.dumps(document(reserved=-1)).encode(), json.dumps(document(requested="much")).encode(),
])
def test_odd_answer_of_another_process_does_not_disturb_the_report(taken: None, folder: Path, said: bytes) -> None:
    with acl.Pool(0) as pool, answering(folder, said) as asked:
        report = refused(pool)
    assert asked == [b"snapshot\n"]
    assert not any(one.answered for one in report.processes)
    assert report.unknown_bytes == 3 << 30


def test_answer_that_is_too_long_is_not_read_to_its_end(
        taken: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "MOST_BYTES", 100)
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()):
        assert not any(one.answered for one in refused(pool).processes)


@pytest.mark.parametrize("error", [OSError, MemoryError, ValueError])
def test_failure_while_others_are_asked_leaves_the_report_as_it_is(
        taken: None, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(now: float) -> None:
        raise error

    monkeypatch.setattr(_processes, "ask_now", fail)
    with acl.Pool(0) as pool:
        report = refused(pool)
        assert (report.other_processes, report.processes) == (-1, ())


def test_folder_that_other_users_can_write_to_is_not_used_for_reports(taken: None, folder: Path) -> None:
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()) as asked:
        folder.chmod(0o777)
        assert refused(pool).processes == () and asked == []
        folder.chmod(0o700)


def test_socket_of_another_user_is_not_asked(
        taken: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "peer_of", lambda caller: os.geteuid() + 4242)
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()) as asked:
        assert refused(pool).processes == ()
    assert b"snapshot\n" not in asked


def test_report_of_a_pool_stopped_by_its_limit_asks_nobody(taken: None, folder: Path) -> None:
    with acl.Pool(0, "4MiB") as pool, answering(folder, json.dumps(document()).encode()) as asked:
        with pytest.raises(acl.OutOfMemoryError) as raised:
            pool.alloc("8MiB")
        assert raised.value.report is not None and raised.value.report.stopped == ("limit",)
    assert asked == []


def test_snapshot_for_top_asks_nobody(taken: None, folder: Path) -> None:
    """Two processes whose allocations fail would otherwise ask each other in a ring."""
    with acl.Pool(0, name="asks nobody") as pool, answering(folder, json.dumps(document()).encode()) as asked:
        refused(pool)
        asked.clear()
        Asked.when = float("-inf")
        told = _top.snapshot()
    assert "asks nobody" in [one["name"] for one in told["pools"]] and asked == []


def test_report_takes_no_device_memory(taken: None, folder: Path, sim: ModuleType) -> None:
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()):
        before = sim.physical_bytes()
        assert refused(pool).processes
        assert sim.physical_bytes() == before


def test_lost_device_asks_nobody(taken: None, folder: Path) -> None:
    with acl.Pool(0) as pool, answering(folder, json.dumps(document()).encode()) as asked:
        report = refused(pool)
        asked.clear()
        Asked.when = float("-inf")
        lost = acl.OomReport(**{**vars(report), "code": 507010, "stopped": ("driver",)})
        assert report_with_others(lost) is lost
    assert asked == []


@pytest.mark.parametrize(("changes", "held"), [
    ({}, True), ({"card": 3}, False), ({"card": -1}, True), ({"card": -1, "device": 2}, False),
])
def test_only_memory_of_the_same_card_counts(changes: dict[str, Any], held: bool) -> None:
    told = document(**changes)
    told["devices"] = []
    found = process_of(os.getppid(), told, 0, 0, "sim")
    assert (found is not None) == held
    assert process_of(os.getppid(), told, 0, 0, "cann") is None       # a simulated device is no real one


def test_card_is_the_number_of_a_device_on_the_machine() -> None:
    done = run_child("-c", "from acl.inside import _books; import acl; acl.init(); print(_books.card(0))",
                     ASCEND_RT_VISIBLE_DEVICES="1", ACL_SIM_DEVICES="2")
    assert done.stdout == "1\n", done.stderr
    assert _books.card(99) == -1
