"""`aclpool trim PID`: a running service returns idle memory; the command says why a process cannot be asked."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.child import child_environment

import acl
from acl.inside import _top
from acl.tools import cli, trim
from acl.tools.top import sample as top_sample

MIB = 1 << 20
SERVICE = """
import sys, acl
pool = acl.Pool(device=0, name="llm")
kept = pool.alloc("3MiB")
pool.alloc("90MiB").close()
print(pool.stats().reserved, flush=True)
sys.stdin.readline()
print(pool.stats().reserved, flush=True)
"""


@contextlib.contextmanager
def answering(folder: Path, said: bytes) -> Iterator[int]:
    """Serve a socket in the name of another living process, and yield its id.

    The socket answers one caller with `said`.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"{os.getppid()}-0.sock"))
        listener.listen()

        def run() -> None:
            caller = listener.accept()[0]
            with caller:
                caller.recv(64)
                caller.sendall(said)

        thread = threading.Thread(target=run)
        thread.start()
        yield os.getppid()
        thread.join()


def refused(pid: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message of the command for a process that it cannot ask."""
    assert cli.main(["trim", str(pid)]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    return error


@pytest.mark.subprocess_heavy
def test_trim_command_makes_a_service_return_idle_memory_and_prints_the_bytes(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", SERVICE], text=True, cwd="/", stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE,
                             env=child_environment(ACL_POOL_TOP="1", ACL_POOL_TOP_DIR=str(folder)))
    assert child.stdout is not None
    before = int(child.stdout.readline())
    assert cli.main(["trim", "--json", str(child.pid)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert cli.main(["trim", str(child.pid)]) == 0
    again = capsys.readouterr().out
    after = int(child.communicate("\n", timeout=300)[0])
    assert told == {"process": child.pid, "given": before - after, "pools": [
        {"name": "llm", "device": 0, "given": before - after, "reserved": after, "error": ""}]}
    assert before - after >= 86 * MIB and after >= 3 * MIB
    assert again == f"llm (device 0): 0 B given back, {after // MIB}.00 MiB still reserved\n"


def test_trim_command_reports_a_missing_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert refused(gone.pid, capsys) == f"aclpool trim: PID: there is no process {gone.pid}\n"
    assert "there is no process 0" in refused(0, capsys)


def test_trim_command_reports_a_process_of_another_user(
        folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4242)
    assert (f"process {os.getpid()} belongs to user {owner}; only that user and root may ask it, and this is user "
            f"{owner + 4242}") in refused(os.getpid(), capsys)


def test_trim_command_reports_a_folder_that_other_users_can_write_to(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o777)
    assert f"{folder}: expected a folder" in refused(os.getppid(), capsys)


def test_trim_command_reports_a_process_without_a_socket(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(os.getppid(), capsys)
    assert f"process {os.getppid()} has no socket in {folder}: start it with ACL_POOL_TOP=1" in said


@pytest.mark.parametrize(("said", "told"), [
    (b"", "did not answer"), ([], "another version"), ({}, "did not answer as a service does"),
    ({**_top.FORMAT, "pools": []}, "has no pool"), ({**_top.FORMAT, "pools": [{"name": "a"}]}, "another version"),
    ({**_top.FORMAT, "error": "expected one of snapshot"}, "refuses: expected one of snapshot"),
])
def test_trim_command_reports_an_answer_without_returned_bytes(
        folder: Path, capsys: pytest.CaptureFixture[str], said: Any, told: str) -> None:
    with answering(folder, said if isinstance(said, bytes) else json.dumps(said).encode()) as pid:
        error = refused(pid, capsys)
    assert error.startswith(f"aclpool trim: process {pid} ") and told in error


def test_trim_command_reports_a_failing_pool_beside_the_others(
        folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        name, device = "bad", 1

        def trim(self, *, idle: bool) -> int:
            raise acl.AclError(507899, "aclrtUnmapMem", "the device is lost")

    class Gone(Failing):
        def trim(self, *, idle: bool) -> int:
            raise RuntimeError("the pool is closed")

    with acl.Pool(0, name="good") as pool, acl.serve_top() as server:
        monkeypatch.setattr("acl.pool._pool.open_pools", lambda: [Failing(), Gone(), pool])
        told = top_sample.exchange(Path(server.path), "trim")
    with answering(folder, json.dumps(told).encode()) as pid:
        assert cli.main(["trim", str(pid)]) == 1
    out, error = capsys.readouterr()
    assert out == "good (device 0): 0 B given back, 0 B still reserved\n"
    assert error.startswith("aclpool trim: bad (device 1): ") and "507899" in error and error.count("\n") == 1


def test_trim_command_shows_service_texts_without_control_characters() -> None:
    one = {"name": "a\x1b", "device": 0, "given": 1, "reserved": 2, "error": "b\n"}
    (shown,) = trim.pools_of({**_top.FORMAT, "pools": [one]}, 1)
    assert (shown["name"], shown["error"]) == ("a\\x1b", "b\\x0a")
