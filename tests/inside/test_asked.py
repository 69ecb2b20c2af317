"""ACL_POOL_RECORD: a program is recorded without a change of its code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.child import run_child, run_python

from acl.inside._asked import Asked, record_asked
from acl.tools.replay.trace import load_trace

PROGRAM = """
    import os, signal, sys
    import acl

    def serve(pool, count):
        for _ in range(count):
            pool.alloc(3000, tag="request").close()

    one, two = acl.Pool(0, name="one"), acl.Pool(0, name="two")
    serve(one, 5)
    if "signal" in sys.argv:
        os.kill(os.getpid(), signal.SIGUSR1)
        serve(one, 2)
        os._exit(0)                 # as if killed: no exit handlers
    serve(two, 3)
"""


def sizes(path: Path) -> list[int]:
    with np.load(path) as data:
        return [int(size) for size in data["size"][data["op"] == 0]]


def test_program_is_recorded_by_an_environment_variable(tmp_path: Path) -> None:
    done = run_python(PROGRAM, ACL_POOL_RECORD=str(tmp_path / "run.npz"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-two.npz", "run.npz"]
    assert len(sizes(tmp_path / "run.npz")) == 5 and len(sizes(tmp_path / "run-two.npz")) == 3
    with np.load(tmp_path / "run.npz") as data:
        meta = json.loads(bytes(data["meta"]))
    assert any(function == "serve" for _, _, function in meta["frames"]) and "request" in meta["tags"]


def test_signal_saves_the_recording_made_so_far(tmp_path: Path) -> None:
    done = run_python(PROGRAM, arguments=(), ACL_POOL_RECORD=f"{tmp_path}/run-{{pid}}.npz,signal=USR1,stacks=none")
    assert (done.returncode, done.stderr) == (0, "")
    found = list(tmp_path.iterdir())
    assert len(found) == 2 and "{pid}" not in found[0].name
    script = tmp_path / "service.py"
    script.write_text("\n".join(line[4:] for line in PROGRAM.splitlines()), encoding="utf-8")
    done = run_child(str(script), "signal", ACL_POOL_RECORD=f"{tmp_path}/killed.npz,signal=SIGUSR1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(sizes(tmp_path / "killed.npz")) == 5 and sizes(tmp_path / "killed-two.npz") == []


def test_recording_file_that_cannot_be_written_does_not_stop_the_program(tmp_path: Path) -> None:
    done = run_python(PROGRAM, ACL_POOL_RECORD=str(tmp_path / "nowhere" / "run.npz"))
    assert done.returncode == 0
    assert done.stderr.count("acl: ACL_POOL_RECORD:") == 3 and done.stderr.count("FileNotFoundError") == 2
    assert done.stderr.startswith(f"acl: ACL_POOL_RECORD: there is no folder {tmp_path}/nowhere to save in\n")


def test_forked_child_writes_no_recording(tmp_path: Path) -> None:
    done = run_python("""
        import os, sys
        import acl
        pool = acl.Pool(0)
        pool.alloc(100).close()
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        pool.alloc(200).close()
    """, ACL_POOL_RECORD=str(tmp_path / "run.npz"))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(sizes(tmp_path / "run.npz")) == 2


def test_recording_variable_is_parsed_into_file_capacity_stacks_and_signal() -> None:
    assert record_asked("a.npz") == Asked("a.npz")
    assert record_asked("a.pickle,stacks=none,capacity=12,signal=USR2") == (
        Asked("a.pickle", 12, False, signal.SIGUSR2))


@pytest.mark.parametrize("text", [
    "a.txt", "", "a.npz,", "a.npz,capacity=0", "a.npz,capacity=many", "a.npz,stacks=perl", "a.npz,signal=NEVER",
    "a.npz,signal=_DFL", "a.npz,colour=red",
])
def test_wrong_recording_variable_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ACL_POOL_RECORD must be FILE\[,capacity=N\]"):
        record_asked(text)


def test_wrong_recording_variable_is_refused_when_a_pool_is_made() -> None:
    done = run_python("""
        import acl
        try:
            acl.Pool(0)
        except ValueError as error:
            print(error)
    """, ACL_POOL_RECORD="run.txt")
    assert "FILE must end in .npz, .pickle or .pkl, not 'run.txt'" in done.stdout


@pytest.mark.parametrize("handled", [False, True])
def test_sigterm_saves_the_recording_and_the_leak_report(tmp_path: Path, handled: bool) -> None:
    code = f"""
import os, signal, sys
import acl
if {handled}:
    signal.signal(signal.SIGTERM, lambda *of: sys.exit(7))
pool = acl.Pool(0, name="served")
kept = pool.alloc(5000, tag="kept")
print("ready", flush=True)
signal.pause()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "ACL_BACKEND": "sim", "ACL_POOL_RECORD": str(tmp_path / "run.npz"),
             "ACL_POOL_LEAKS": str(tmp_path / "leaks.txt")}, cwd="/")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == (7 if handled else -signal.SIGTERM), said
    assert "Traceback" not in said
    assert "served on device 0 has 1 block" in (tmp_path / "leaks.txt").read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["leaks.txt", "run.npz"]
    assert load_trace(tmp_path / "run.npz").allocations == 1
