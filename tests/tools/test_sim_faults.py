"""`aclpool sim faults --sweep`: a program that handles one failure well, and the others badly."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.child import child_environment, run_child
from support.programs import compile_program

from acl.tools.sim_faults import rules

pytestmark = [pytest.mark.subprocess_heavy, pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")]

#: The program ends with status 3 if aclrtMalloc fails; crashes if it gets no stream; hangs if it gets no event; leaks
#: memory, stream and event if a copy fails; ignores the status of its last calls.
PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
#include "acl/acl.h"

int main(void)
{
    void *memory = NULL;
    char bytes[64] = {0};
    aclrtStream stream;
    aclrtEvent event;
    if (aclInit(NULL) != 0 || aclrtSetDevice(0) != 0 || aclrtMalloc(&memory, 64, 0) != 0) {
        return 3;
    }
    if (aclrtCreateStream(&stream) != 0) {
        abort();
    }
    if (aclrtCreateEvent(&event) != 0) {
        pause();
    }
    for (int i = 0; i < 5; i++) {
        if (aclrtMemcpy(memory, 64, bytes, 64, ACL_MEMCPY_HOST_TO_DEVICE) != 0) {
            return 4;
        }
    }
    (void)aclrtDestroyEvent(event);
    (void)aclrtDestroyStream(stream);
    (void)aclrtFree(memory);
    return 0;
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "careless.c").write_text(PROGRAM)
    return compile_program(folder / "careless.c", folder)


def sweep(*arguments: str) -> tuple[int, str, str]:
    done = run_child("-m", "acl.tools.cli", "sim", "faults", "--sweep", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_sweep_lists_what_crashed_hung_leaked_or_was_not_noticed(program: Path) -> None:
    code, written, told = sweep("--timeout", "20", "--jobs", "4", "--json", "-", "--", str(program))
    document = json.loads(written)
    found = {run["rule"]: run for run in document["runs"]}
    outcomes = {rule: run["outcome"] for rule, run in found.items()}
    assert code == 1, told
    assert outcomes == {
        "aclInit:nth=1": "failed", "aclrtSetDevice:nth=1": "failed", "aclrtMalloc:nth=1": "failed",
        "aclrtCreateStream:nth=1": "crashed", "aclrtCreateEvent:nth=1": "hung",
        "aclrtMemcpy:nth=1": "leaked", "aclrtMemcpy:nth=2": "leaked", "aclrtMemcpy:nth=5": "leaked",
        "aclrtDestroyEvent:nth=1": "unnoticed", "aclrtDestroyStream:nth=1": "unnoticed", "aclrtFree:nth=1": "unnoticed",
    }
    assert found["aclrtMalloc:nth=1"]["status"] == 3
    assert len(found["aclrtMemcpy:nth=2"]["leaks"]) == 3
    assert "crashed    aclrtCreateStream:nth=1 (SIGABRT)" in told
    assert told.splitlines()[-1] == "11 runs: 1 crashed, 1 hung, 3 leaked, 3 unnoticed, 3 failed"
    assert document["counts"]["leaked"] == 3


def test_sweep_of_chosen_functions_with_a_code_ends_with_0_if_they_are_answered(program: Path) -> None:
    code, _, told = sweep("--only", "aclrtM*lloc", "--code", "207018", "--", str(program))
    assert (code, told) == (0, "1 runs: 1 failed\n")


def test_sweep_of_a_program_that_fails_by_itself_is_refused() -> None:
    code, _, told = sweep("--", "python", "-c", "raise SystemExit('no luck')")
    assert code == 2 and "undisturbed the program ended with 1, expected 0" in told and "no luck" in told


def test_sweep_of_a_program_without_calls_is_refused() -> None:
    code, _, told = sweep("--", "true")
    assert code == 2 and "called no function that fits '*'" in told


def test_fault_sweep_of_two_processes_reports_the_process_whose_call_failed(program: Path) -> None:
    """The second process makes another call, so it reports that the rule made none of its calls fail."""
    code, written, _ = sweep("--only", "aclrtDestroyEvent", "--json", "-", "--", "sh", "-c",
                             f"{program}; {sys.executable} -c 'import acl; acl.Device.count()'")
    assert (code, json.loads(written)["counts"]["unnoticed"]) == (0, 1)


def test_sweep_that_is_interrupted_waits_for_no_run(program: Path, tmp_path: Path) -> None:
    """Without an event, the program hangs until the sweep ends it."""
    script = tmp_path / "script.sh"
    script.write_text(f'case "$ACL_SIM_FAULTS" in *Event*) touch {tmp_path}/begun;; esac\nexec {program}\n')
    child = subprocess.Popen(
        [sys.executable, "-m", "acl.tools.cli", "sim", "faults", "--sweep", "--only", "aclrtCreateEvent", "--timeout",
         "1000", "--", "sh", str(script)],
        env=child_environment(), cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 200
    while not (tmp_path / "begun").exists() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    if child.poll() is not None or not (tmp_path / "begun").exists():
        child.kill()
        pytest.fail(f"the sweep did not begin its hanging run: {child.communicate()[1].decode()}")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=200)
    assert child.returncode not in (0, 1)


@pytest.mark.parametrize(("option", "value"), [("--jobs", "0"), ("--timeout", "-1"), ("--timeout", "soon"),
                                               ("--code", "x"), ("--json", "/nonexistent/file")])
def test_sweep_refuses_values_that_make_no_sense(option: str, value: str) -> None:
    code, _, told = sweep(option, value, "--", "true")
    assert code == 2 and f"{option}: expected" in told and "Traceback" not in told


def test_sweep_tries_the_first_second_and_last_call() -> None:
    assert rules({"a": 1, "b": 2, "c": 9}, "*", None) == [
        "a:nth=1", "b:nth=1", "b:nth=2", "c:nth=1", "c:nth=2", "c:nth=9"]
    assert rules({"a": 1, "b": 1}, "b", "7") == ["b:nth=1:code=7"]
