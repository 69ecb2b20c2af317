"""Traces, coverage, and environment variables that had no effect."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType

import pytest
from support.calls import api, out
from support.child import child_environment, run_child, run_python

from acl.sim import functions
from acl.tools.sim_trace import Call, calls, chrome, coverage, files

ROOT = Path(__file__).parents[2]

CALLS = """
    import ctypes
    from acl import sim
    library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    count = ctypes.c_uint32()
    library.aclrtGetDeviceCount(ctypes.byref(count))
    library.aclrtGetDeviceCount(None)
"""


@pytest.fixture(autouse=True)
def _device(sim: ModuleType) -> None:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0


def traced(sim: ModuleType, path: Path, work: object) -> list[Call]:
    """Run `work` with a trace and return the calls that it made."""
    with sim.trace(path):
        work()                                      # type: ignore[operator]
    return calls([path])


def test_trace_has_arguments_and_what_a_call_put_out(sim: ModuleType, tmp_path: Path) -> None:
    address = out()

    def work() -> None:
        assert api.aclrtMalloc(ctypes.byref(address), 100, 0) == 0
        assert api.aclrtFree(address) == 0
        assert api.aclrtMalloc(None, 100, 0) == 100000

    malloc, free, refused = traced(sim, tmp_path / "trace", work)
    at = hex(address.value or 0)
    assert malloc.arguments == f"devPtr=->{at}, size=100, policy=0"
    assert free.arguments == f"devPtr={at}"
    assert (refused.status, refused.arguments) == (100000, "devPtr=NULL, size=100, policy=0")
    assert malloc.process == os.getpid() and malloc.thread == threading.get_native_id()
    assert malloc.seconds <= free.seconds <= refused.seconds
    assert malloc.seconds + malloc.microseconds / 1e6 <= free.seconds + 2e-6
    api.aclGetRecentErrMsg()


def test_trace_has_the_stream_and_the_task_that_a_call_queued(sim: ModuleType, tmp_path: Path) -> None:
    stream, event, number, task = out(), out(), ctypes.c_int32(), ctypes.c_uint32()
    assert api.aclrtCreateEvent(ctypes.byref(event)) == 0

    def work() -> None:
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
        assert api.aclrtRecordEvent(event, stream) == 0
        assert api.aclrtGetThreadLastTaskId(ctypes.byref(task)) == 0
        assert api.aclrtStreamGetId(stream, ctypes.byref(number)) == 0
        assert api.aclrtSynchronizeStream(stream) == 0
        assert api.aclrtDestroyStream(stream) == 0
        assert api.aclrtSynchronizeDevice() == 0

    found = {call.function: call for call in traced(sim, tmp_path / "trace", work)}
    assert api.aclrtDestroyEvent(event) == 0
    assert found["aclrtCreateStream"].arguments == f"stream=->{hex(stream.value or 0)}"
    assert (found["aclrtCreateStream"].stream, found["aclrtCreateStream"].task) == (number.value, None)
    assert (found["aclrtRecordEvent"].stream, found["aclrtRecordEvent"].task) == (number.value, task.value)
    assert (found["aclrtSynchronizeStream"].stream, found["aclrtSynchronizeStream"].task) == (number.value, None)
    assert (found["aclrtDestroyStream"].stream, found["aclrtSynchronizeDevice"].stream) == (None, None)


def test_trace_of_a_call_within_a_callback_keeps_both_calls(sim: ModuleType, tmp_path: Path) -> None:
    """aclrtProcessReport calls the user's function, which itself calls the library."""
    stream, seen = out(), []
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def back(_: int) -> None:
        count = ctypes.c_uint32()
        seen.append(api.aclrtGetDeviceCount(ctypes.byref(count)))

    def work() -> None:
        thread = ctypes.c_uint64(threading.get_ident())
        assert api.aclrtSubscribeReport(thread, stream) == 0
        assert api.aclrtLaunchCallback(back, None, 1, stream) == 0
        assert api.aclrtProcessReport(10000) == 0
        assert api.aclrtSynchronizeStream(stream) == 0
        assert api.aclrtUnSubscribeReport(thread, stream) == 0

    found = {call.function: call for call in traced(sim, tmp_path / "trace", work)}
    assert api.aclrtDestroyStream(stream) == 0
    outer, inner = found["aclrtProcessReport"], found["aclrtGetDeviceCount"]
    assert seen == [0] and outer.arguments == "timeout=10000"
    assert outer.seconds <= inner.seconds and inner.microseconds <= outer.microseconds


@pytest.mark.subprocess_heavy
def test_traces_of_two_processes_are_merged_in_order(tmp_path: Path) -> None:
    for _ in range(2):
        run_python(CALLS, ACL_SIM_TRACE=str(tmp_path / "trace.%p")).check_returncode()
    (tmp_path / "trace.old").write_text("not a trace")
    pattern = str(tmp_path / "trace.%p")
    merged = calls(files([pattern]))
    assert len(merged) == 4 and len({call.process for call in merged}) == 2
    assert [call.seconds for call in merged] == sorted(call.seconds for call in merged)
    done = run_child("-m", "acl.tools.cli", "sim", "trace", pattern)
    assert done.stdout.count("aclrtGetDeviceCount(count=NULL) = 100000 [") == 2, done.stderr


@pytest.mark.subprocess_heavy
def test_chrome_trace_has_an_event_for_each_call(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("5.000002 7 aclrtMalloc 207001 6 10.500 - - size=1\n"
                                    "5.000001 7 aclrtRecordEvent 0 6 1.000 3 4 event=0x1, stream=0x2\n")
    done = run_child("-m", "acl.tools.cli", "sim", "trace", str(tmp_path / "trace"), "--chrome", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    first, second = json.loads((tmp_path / "made").read_text())["traceEvents"]
    assert [first[key] for key in ("ph", "name", "ts", "pid", "tid")] == ["X", "aclrtRecordEvent", 0, 6, 7]
    assert first["args"] == {"status": 0, "stream": 3, "task": 4, "arguments": "event=0x1, stream=0x2"}
    assert (second["ts"], second["dur"], second["cat"]) == (1.0, 10.5, "failed")
    assert chrome([]) == {"traceEvents": [], "displayTimeUnit": "ms"}


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize(("verb", "text"), [("trace", "expected a line of a trace"),
                                            ("coverage", "expected a line of --coverage or --counters")])
def test_damaged_files_are_named_with_their_line(tmp_path: Path, verb: str, text: str) -> None:
    (tmp_path / "file").write_text("{}\nnonsense\n" if verb == "coverage" else "nonsense\n")
    done = run_child("-m", "acl.tools.cli", "sim", verb, str(tmp_path / "file"))
    assert done.returncode == 2 and text in done.stderr
    assert f"file:{2 if verb == 'coverage' else 1}:" in done.stderr and "Traceback" not in done.stderr
    gone = run_child("-m", "acl.tools.cli", "sim", verb, str(tmp_path / "none.%p"))
    assert gone.returncode == 2 and "there is no such file" in gone.stderr


@pytest.mark.subprocess_heavy
def test_coverage_of_two_processes_counts_calls_by_status(tmp_path: Path) -> None:
    for _ in range(2):
        run_python(CALLS, ACL_SIM_COVERAGE=str(tmp_path / "coverage")).check_returncode()
    run_python(CALLS, ACL_SIM_COUNTERS=str(tmp_path / "counters.%p")).check_returncode()
    assert dict(coverage([tmp_path / "coverage"])["aclrtGetDeviceCount"]) == {"0": 2, "100000": 2}
    both = files([str(tmp_path / "coverage"), str(tmp_path / "counters.%p")])
    assert dict(coverage(both)["aclrtGetDeviceCount"]) == {"0": 2, "100000": 2, "": 2}
    done = run_child("-m", "acl.tools.cli", "sim", "coverage", str(tmp_path / "coverage"), "--missing")
    head, line, *rest = done.stdout.splitlines()
    assert head == f"1 of {len(functions())} functions were called"
    assert line.split(maxsplit=2) == ["aclrtGetDeviceCount", "4", "0 2, 100000 2"]
    assert "  aclrtMalloc" in rest and "  aclrtGetDeviceCount" not in rest
    done = run_child("-m", "acl.tools.cli", "sim", "coverage", "--json", str(tmp_path / "coverage"))
    report = json.loads(done.stdout)
    assert report["functions"] == {"aclrtGetDeviceCount": {"0": 2, "100000": 2}}
    assert len(report["missing"]) == len(functions()) - 1


@pytest.mark.subprocess_heavy
def test_coverage_from_many_threads_loses_no_call(tmp_path: Path) -> None:
    run_python("""
        import ctypes, threading
        from acl import sim
        library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        def work():
            count = ctypes.c_uint32()
            for turn in range(2000):
                library.aclrtGetDeviceCount(ctypes.byref(count))
                library.aclrtSynchronizeStream(ctypes.c_void_p(turn + 1))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """, ACL_SIM_COVERAGE=str(tmp_path / "coverage")).check_returncode()
    found = coverage([tmp_path / "coverage"])
    assert dict(found["aclrtGetDeviceCount"]) == {"0": 8000} and found["aclrtSynchronizeStream"].total() == 8000


@pytest.mark.subprocess_heavy
def test_forked_child_covers_its_own_calls(tmp_path: Path) -> None:
    run_python(CALLS + """
    import os
    child = os.fork()
    if child == 0:
        import sys
        library.aclrtGetDeviceCount(ctypes.byref(count))
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""", ACL_SIM_COVERAGE=str(tmp_path / "coverage")).check_returncode()
    lines = [json.loads(line) for line in (tmp_path / "coverage").read_text().splitlines()]
    assert lines == [{"aclrtGetDeviceCount": {"0": 1}}, {"aclrtGetDeviceCount": {"0": 1, "100000": 1}}]


@pytest.mark.subprocess_heavy
def test_unknown_variable_of_the_simulator_is_reported() -> None:
    done = run_python(CALLS, ACL_SIM_FUALTS="aclrtMalloc", ACL_SIM_SOC="Ascend910B1")
    assert re.findall(r"ACL_SIM_\w+", done.stderr) == ["ACL_SIM_FUALTS"]
    assert "is not a variable of the simulator" in done.stderr


def test_variables_that_are_known_are_those_that_sources_read_and_the_page_lists(sim: ModuleType) -> None:
    library = sim._sim()
    library.acl_sim_variable.restype, library.acl_sim_variable.argtypes = ctypes.c_char_p, [ctypes.c_size_t]
    known, index = set(), 0
    while (name := library.acl_sim_variable(index)) is not None:
        known.add(name.decode())
        index += 1
    read = set()
    for source in (ROOT / "acl/sim").glob("*/*.c"):
        if source.name != "environment.c":
            read |= set(re.findall(r'"(ACL_SIM_[A-Z_]+)"', source.read_text()))
    read |= set(re.findall(r'getenv\("(ACL_SIM_[A-Z_]+)"\)', (ROOT / "acl/sim/control/environment.c").read_text()))
    assert read == known
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert {name for name in known if f"`{name}" not in pages} == set()


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize(("rule", "told"), [
    ("aclrtGetDeviceCount:nth=3", "aclrtGetDeviceCount:nth=3 made no call fail; calls of aclrtGetDeviceCount: 2"),
    ("aclrtMalloc:every=1", "aclrtMalloc:every=1 made no call fail; calls of aclrtMalloc: 0"),
    ("*:nth=9", "*:nth=9 made no call fail"),
    ("device0:lost=507899", "device0:lost=507899 made no call fail"),
])
def test_fault_rule_that_made_no_call_fail_is_reported_at_the_end(rule: str, told: str) -> None:
    done = run_python(CALLS, ACL_SIM_FAULTS=f"aclrtGetDeviceCount:nth=1,{rule}")
    assert done.stderr == f"acl.sim: ACL_SIM_FAULTS: {told}\n"


@pytest.mark.subprocess_heavy
def test_fault_rule_that_the_program_removed_is_not_reported() -> None:
    """`sim.reset` removes all rules, and a removed rule that hit no call is not reported at the end of the process."""
    done = run_python("    from acl import sim\n    sim.reset()" + CALLS, ACL_SIM_FAULTS="aclrtMalloc:nth=1")
    assert done.stderr == ""


@pytest.mark.subprocess_heavy
def test_fault_rules_of_a_process_without_calls_are_not_reported() -> None:
    done = run_python('import ctypes; from acl import sim; ctypes.CDLL(sim.library_dir() + "/libascendcl.so")',
                      ACL_SIM_FAULTS="aclrtMalloc:nth=3")
    assert done.stderr == ""


@pytest.mark.subprocess_heavy
def test_files_of_sim_run_are_written_in_the_folder_of_its_call(tmp_path: Path) -> None:
    """The files are in the folder of the caller, although the program changes to another one, as ctest does."""
    (tmp_path / "inner").mkdir()
    code = (f"import os, subprocess, sys; os.chdir({str(tmp_path / 'inner')!r}); "
            f"subprocess.run([sys.executable, '-c', {textwrap.dedent(CALLS)!r}], check=True)")
    done = subprocess.run([sys.executable, "-m", "acl.tools.sim", "--trace", "trace", "--coverage", "seen.%p",
                           "--counters", "counters", "--", sys.executable, "-c", code],
                          cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    names = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"inner", "trace", "seen", "counters"} and list((tmp_path / "inner").iterdir()) == []
