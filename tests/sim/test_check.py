"""`aclpool sim check`: small programs in C, each in a right form and in one with a mistake, and programs in Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.child import run_python

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "c"))
import programs

import acl
from acl import sim
from acl.tools import sim_check

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: For each case the rule that is reported for its wrong program.
RULES = {
    "overflow_copy": "overflow", "overflow_read": "overflow", "overflow_async": "overflow",
    "overflow_set": "overflow", "overflow_small": "overflow", "overflow_exact": "overflow",
    "overflow_pinned": "overflow", "overflow_by_host": "overflow", "overflow_managed": "overflow",
    "overflow_rows": "overflow",
    "freed_copy": "use-after-free", "freed_async": "use-after-free", "freed_reused": "use-after-free",
    "freed_pinned": "use-after-free", "freed_in_use": "freed-in-use", "freed_twice": "double-free",
    "freed_twice_pinned": "double-free", "freed_inside": "wrong-free", "freed_stranger": "wrong-free",
    "freed_as_device": "wrong-free", "freed_as_pinned": "wrong-free", "nowhere": "invalid-address",
    "kind_to_device": "wrong-kind", "kind_on_host": "wrong-kind", "kind_async": "wrong-kind",
    "host_reads": "host-access", "host_writes": "host-access", "host_reads_freed": "use-after-free",
    "order": "order", "host_rewrites": "host-rewrite", "destroyed_event_in_use": "destroyed-in-use",
    "deadlock": "deadlock", "deadlock_long": "deadlock",
    "destroyed_stream": "use-after-destroy", "destroyed_event": "use-after-destroy",
    "destroyed_twice": "use-after-destroy", "destroyed_description": "use-after-destroy",
    "leak_block": "leak", "leak_pinned": "leak", "leak_stream": "leak", "leak_event": "leak",
    "leak_context": "leak", "unfinished": "unfinished", "leak_description": "leak", "leak_physical": "leak",
    "unwritten": "uninitialised", "unwritten_part": "uninitialised", "unwritten_carried": "uninitialised",
    "unwritten_async": "uninitialised", "unwritten_again": "uninitialised", "unwritten_between_rows": "uninitialised",
    "unwritten_after_rows": "uninitialised", "unwritten_rows_carried": "uninitialised",
    "unwritten_overlap": "uninitialised", "unwritten_indirect": "uninitialised",
    "unwritten_described": "uninitialised",
}
#: Cases whose program is killed by the wrong access, as with a card.
DEADLY = {"host_reads", "host_writes", "host_reads_freed"}

pytestmark = pytest.mark.release_only      # a sanitizer has its own memory and signal handler


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    how = programs.mode()
    return programs.compile_program(programs.HERE / "misuse.c", folder, *programs.simulator(folder, how), how)


def check(*arguments: str | Path, cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    """Run `aclpool sim check ARGUMENTS` in a folder without the sources of `acl`."""
    env = programs.environment(programs.mode())
    return subprocess.run([sys.executable, "-m", "acl.tools.cli", "sim", "check", *map(str, arguments)],
                          capture_output=True, text=True, timeout=programs.TIMEOUT_S, env=env, cwd=cwd)


def reports(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["reports"]


def test_rules_has_each_case_of_the_program(program: Path) -> None:
    listed = subprocess.run([str(program)], capture_output=True, text=True, check=True,
                            env=programs.environment(programs.mode())).stdout
    assert listed.split() == list(RULES)


def test_rules_are_each_found_by_a_program() -> None:
    assert set(RULES.values()) == set(sim_check.RULES)


def run_case(program: Path, case: str, which: str, path: Path) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run a program without the command `check`, which would take most of the time. Return its outcome and reports."""
    watched = {"ACL_SIM_CHECK": "all", "ACL_SIM_CHECK_JSON": str(path), "ACL_SIM_CHECK_TEXT": "0"}
    done = subprocess.run([str(program), case, which], capture_output=True, text=True, timeout=programs.TIMEOUT_S,
                          env={**programs.environment(programs.mode()), **watched})
    written = path.read_text().splitlines() if path.exists() else []
    return done, [sim_check.resolved(json.loads(line), sim_check.Lines()) for line in written]


@pytest.mark.parametrize("case", RULES)
def test_right_program_is_not_reported(program: Path, case: str, tmp_path: Path) -> None:
    done, found = run_case(program, case, "right", tmp_path / "found")
    assert (done.returncode, done.stdout, done.stderr, found) == (0, "", "", [])


@pytest.mark.parametrize("case", RULES)
def test_wrong_program_is_reported_with_its_places(program: Path, case: str, tmp_path: Path) -> None:
    done, found = run_case(program, case, "wrong", tmp_path / "found")
    assert done.returncode == (-signal.SIGSEGV if case in DEADLY else 0), done.stderr
    assert {one["rule"] for one in found} == {RULES[case]}
    for one in found:
        assert one["places"] and one["message"]
        lines = [line for place in one["places"] for line in place["stack"]]
        assert any("misuse.c:" in line and line.endswith((f" in {case}", " in begin")) for line in lines), one


def test_command_tells_reports_and_a_deadly_signal(program: Path) -> None:
    done = check("--", program, "host_writes", "wrong")
    assert done.returncode == 1
    assert done.stderr.startswith("acl.sim: check: host-access: the program ")
    assert "was ended by signal 11" in done.stderr
    assert done.stderr.endswith("aclpool sim check: 1 report (mem 1)\n")
    done = check("--", program, "host_writes", "right")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "aclpool sim check: no reports\n")


def test_check_report_names_the_calls_that_allocated_and_freed(program: Path, tmp_path: Path) -> None:
    check("--report", tmp_path / "found", "--", program, "freed_copy", "wrong")
    (found,) = reports(tmp_path / "found")
    assert [place["what"].split(":")[0] for place in found["places"]] == [
        "aclrtMemcpy", "freed by aclrtFree", "allocated by aclrtMalloc"]
    assert "16384 bytes" in found["message"]


def test_check_tools_report_only_the_requested_rules(program: Path) -> None:
    for tool, case in (("mem", "leak_block"), ("leak", "freed_twice"), ("mem,leak", "unwritten"), ("init", "order")):
        done = check("--tool", tool, "--", program, case, "wrong")
        assert (done.returncode, done.stderr) == (0, "aclpool sim check: no reports\n"), (tool, case)


def test_status_is_the_programs_unless_there_are_reports(program: Path, tmp_path: Path) -> None:
    assert check("--error-exitcode", "7", "--", program, "leak_event", "wrong").returncode == 7
    assert check("--error-exitcode", "0", "--", program, "leak_event", "wrong").returncode == 0
    script = tmp_path / "ends.sh"
    script.write_text("#!/bin/sh\nexit 5\n")
    script.chmod(0o755)
    assert check("--", script).returncode == 5
    script.write_text("#!/bin/sh\nkill -TERM $$\n")
    done = check("--", script)
    assert done.returncode == 128 + signal.SIGTERM
    assert "ended by signal 15" in done.stderr


def test_suppressions_remove_the_reports_that_they_match(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text("# the event of that function\nleak:*in leak_event\n")
    done = check("--suppressions", file, "--", program, "leak_event", "wrong")
    assert (done.returncode, done.stderr) == (0, "aclpool sim check: no reports; 1 suppressed\n")
    assert check("--suppressions", file, "--", program, "leak_stream", "wrong").returncode == 1


@pytest.mark.parametrize(("given", "message"), [
    (("--tool", "memory"), "--tool: expected some of mem,order,leak,init, or all, got 'memory'"),
    (("--error-exitcode", "256"), "--error-exitcode: expected 0 to 255, got '256'"),
    (("--report", "missing/file"), "--report: expected a file in a folder that exists"),
    (("--suppressions", "missing"), "--suppressions: missing: "),
])
def test_option_that_makes_no_sense_is_refused(given: tuple[str, str], message: str, tmp_path: Path) -> None:
    done = check(*given, "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"aclpool sim check: {message}")


def test_suppression_without_a_known_rule_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text("leek:*\n")
    done = check("--suppressions", file, "--", "true")
    assert done.returncode == 2
    assert "known:1: expected RULE:PATTERN" in done.stderr


def test_sarif_names_rule_file_and_line(program: Path, tmp_path: Path) -> None:
    check("--sarif", tmp_path / "found", "--", program, "freed_twice", "wrong")
    document = json.loads((tmp_path / "found").read_text())
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(sim_check.RULES)
    (found,) = run["results"]
    assert found["ruleId"] == "double-free"
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("misuse.c")
    assert place["region"]["startLine"] > 1
    assert [one["message"]["text"].split(":")[0] for one in found["relatedLocations"]] == [
        "freed by aclrtFree", "allocated by aclrtMalloc"]


PYTHON = """
import sys
import acl, acl.rt
acl.init()
acl.rt.set_device(0)
memory, _ = acl.rt.malloc(4096, 2)
host, _ = acl.rt.malloc_host(4096)
{wrong}
acl.rt.free(memory)
acl.rt.free_host(host)
acl.rt.reset_device(0)
acl.finalize()
"""


@pytest.mark.parametrize(("wrong", "rule"), [
    ("pass", None),
    ("acl.rt.memcpy(memory + 4, 4096, host, 4096, 1)", "overflow"),
    ("acl.rt.free(memory)", "double-free"),
    ("acl.rt.memcpy(memory, 4096, host, 4096, 2)", "wrong-kind"),
    ("acl.rt.memcpy(host, 4096, memory, 4096, 2)", "uninitialised"),
    ("acl.rt.create_event()", "leak"),
    ("s, _ = acl.rt.create_stream(); acl.rt.destroy_stream(s); acl.rt.synchronize_stream(s)", "use-after-destroy"),
])
def test_check_report_names_lines_of_a_python_program(wrong: str, rule: str | None, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PYTHON.format(wrong=wrong))
    done = check("--report", tmp_path / "found", "--", sys.executable, script)
    found = reports(tmp_path / "found")
    assert {one["rule"] for one in found} == ({rule} if rule else set()), done.stderr
    line = 1 + PYTHON.split("\n").index("{wrong}") + (rule == "double-free")    # reported at the second free
    for one in found[:1]:
        assert one["places"][0]["stack"][0] == f"{script}:{line} in <module>"


def test_objects_of_python_at_its_end_are_not_leaks(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import acl\nstream, memory = acl.Stream(0), acl.Buffer(4096)\n")
    done = check("--", sys.executable, script)
    assert (done.returncode, done.stderr) == (0, "aclpool sim check: no reports\n")


FRAMEWORK = """
#include "acl/acl.h"
void begin(void)
{
    aclrtStream stream;
    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
}
void end(void)
{
    aclrtResetDevice(0);
    aclFinalize();
}
"""


@pytest.mark.parametrize(("end", "rules"), [
    ("framework.end()", []),
    ("runtime.aclrtResetDevice(0)", ["leak"]),
    ("runtime.aclFinalize()", ["leak"]),
    ("import acl; acl.finalize()", ["leak"]),
])
def test_objects_of_python_are_leaks_if_the_program_ends_acl_and_not_a_framework(
    end: str, rules: list[str], tmp_path: Path
) -> None:
    source, library, script = tmp_path / "framework.c", tmp_path / "libframework.so", tmp_path / "program.py"
    source.write_text(FRAMEWORK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", f"-I{acl.include_dir()}", "-o", library, source,
                    f"-L{sim.library_dir()}", "-lascendcl"], check=True)
    script.write_text(f"import ctypes\nframework = ctypes.CDLL({str(library)!r})\nframework.begin()\n"
                      f"runtime = ctypes.CDLL('libascendcl.so')\n{end}\n")
    done = check("--report", tmp_path / "found", "--", sys.executable, script)
    assert [one["rule"] for one in reports(tmp_path / "found")] == rules, done.stderr


def test_interrupt_ends_the_program_and_the_reports_stay(program: Path, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import time, acl, acl.rt\nacl.init()\nacl.rt.set_device(0)\nacl.rt.free(4096)\n"
                      "print('ready', flush=True)\ntime.sleep(600)\n")
    env = programs.environment(programs.mode())
    command = [sys.executable, "-m", "acl.tools.cli", "sim", "check", "--", sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=HERE,
                          start_new_session=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "acl.sim: check: wrong-free: aclrtFree" in errors
    assert errors.endswith("aclpool sim check: 1 report (mem 1)\n")


def test_equal_check_reports_of_two_processes_are_counted_once(program: Path, tmp_path: Path) -> None:
    script = tmp_path / "twice.sh"
    script.write_text(f"#!/bin/sh\n{program} leak_event wrong\n{program} leak_event wrong\n")
    script.chmod(0o755)
    done = check("--", script)
    assert done.stderr.endswith("aclpool sim check: 1 report (leak 1)\n")


def test_process_without_the_command_reports_to_its_standard_error(program: Path) -> None:
    done = subprocess.run([str(program), "freed_twice", "wrong"], capture_output=True, text=True,
                          env={**programs.environment(programs.mode()), "ACL_SIM_CHECK": "mem"})
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("acl.sim: check: double-free: aclrtFree(")


def test_unknown_tool_in_the_environment_is_named(program: Path) -> None:
    done = subprocess.run([str(program), "freed_twice", "right"], capture_output=True, text=True,
                          env={**programs.environment(programs.mode()), "ACL_SIM_CHECK": "memory"})
    assert "ACL_SIM_CHECK: 'memory' is not a tool" in done.stderr


def test_device_that_grows_forgets_its_freed_blocks(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("""
import acl.rt, acl.sim
acl.sim.configure(capacity="64MiB")
for capacity in ("64GiB", "256GiB"):
    acl.rt.set_device(0)
    memory, status = acl.rt.malloc(1 << 20, 2)
    assert status == 0
    acl.rt.free(memory)
    acl.rt.reset_device(0)
    acl.sim.configure(capacity=capacity)
acl.rt.set_device(0)
for _ in range(5000):                    # more than are kept
    acl.rt.free(acl.rt.malloc(32, 2)[0])
assert acl.rt.free(memory) != 0
""")
    done = check("--report", tmp_path / "found", "--", sys.executable, script)
    assert [one["rule"] for one in reports(tmp_path / "found")] == ["wrong-free"], done.stderr


def test_event_of_the_ex_kind_may_be_destroyed_while_tasks_use_the_event(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("""
import threading
import acl
gate = threading.Event()
with acl.Stream(0) as one, acl.Stream(0) as two:
    one.launch(lambda: gate.wait(60))
    two.wait_event(one.record())         # the event is destroyed here
    gate.set()
    two.synchronize()
""")
    done = check("--", sys.executable, script)
    assert (done.returncode, done.stderr) == (0, "aclpool sim check: no reports\n")


#: Examples of this project, which make no mistake.
CLEAN = ["bundle.py", "dynamic_shape.py", "kernel_launch.py", "several_streams.py", "single_op_workspaces.py"]


@pytest.mark.parametrize("name", CLEAN)
def test_examples_in_python_are_not_reported(name: str) -> None:
    done = check("--", sys.executable, ROOT / "examples" / name)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "aclpool sim check: no reports"), done.stderr


@pytest.mark.parametrize("name", [path.name for path in programs.examples() if path.name != "errors.c"])
def test_examples_in_c_are_not_reported(name: str, tmp_path: Path) -> None:
    how = programs.mode()
    made = programs.compile_program(programs.HERE / "examples" / name, tmp_path,
                                    *programs.simulator(tmp_path, how), how, ["-lm"])
    done = check("--", made, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "aclpool sim check: no reports"), done.stderr


def test_thread_sanitizer_knows_the_order_of_streams(tmp_path: Path) -> None:
    """The program is built with ThreadSanitizer, the simulator without it."""
    libraries, headers = programs.simulator(tmp_path, programs.mode())
    made = programs.compile_program(programs.HERE / "pipeline_tsan.c", tmp_path, libraries, headers, "tsan")
    env = {**programs.environment(programs.mode()), "TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(made), *arguments], capture_output=True, text=True, env=env,
                              timeout=programs.TIMEOUT_S)

    right = run()
    assert (right.returncode, right.stderr) == (0, "")
    assert run("wrong").returncode == 66


def test_address_sanitizer_knows_the_ends_of_pinned_blocks(tmp_path: Path) -> None:
    """The program is built with AddressSanitizer, the simulator without it."""
    libraries, headers = programs.simulator(tmp_path, programs.mode())
    made = programs.compile_program(programs.HERE / "pinned_asan.c", tmp_path, libraries, headers, "asan")
    env = {**programs.environment(programs.mode()), "ASAN_OPTIONS": "detect_leaks=0:exitcode=66",
           "ACL_SIM_CHECK": "all"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(made), *arguments], capture_output=True, text=True, env=env,
                              timeout=programs.TIMEOUT_S)

    right, wrong = run(), run("wrong")
    assert (right.returncode, right.stderr) == (0, "")
    assert wrong.returncode == 66
    assert "use-after-poison" in wrong.stderr
    assert "pinned_asan.c:18" in wrong.stderr


CALLERS = """
#include <acl/acl.h>
#include <stdlib.h>

static aclrtStream stream;
static char *memory, *back;

__attribute__((noinline)) static void copy(void)
{
    (void)aclrtMemcpyAsync(back, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    (void)aclrtSynchronizeStream(stream);
    (void)aclrtMemcpy(back, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_HOST);
}

__attribute__((noinline)) static void twice(void)
{
    copy();
    copy();
}

int main(void)
{
    (void)aclInit(NULL);
    (void)aclrtSetDevice(0);
    (void)aclrtCreateStream(&stream);
    (void)aclrtMalloc((void **)&memory, 64, 0);
    (void)aclrtMallocHost((void **)&back, 64);
    for (int i = 0; i < 20; i++) {
        copy();
        twice();
        twice();
    }
}
"""


def test_place_has_the_lines_of_all_its_callers(tmp_path: Path) -> None:
    """A function is called from five places at two depths of the stack; each place is found, and once."""
    how = programs.mode()
    (tmp_path / "callers.c").write_text(CALLERS)
    program = programs.compile_program(tmp_path / "callers.c", tmp_path, *programs.simulator(tmp_path, how), how)
    check("--tool", "init", "--report", tmp_path / "found", "--", program)
    stacks = [tuple(int(line.split("callers.c:")[1].split()[0]) for line in one["places"][0]["stack"]
                    if "callers.c" in line) for one in reports(tmp_path / "found")]
    callers = [(29,), (17, 30), (18, 30), (17, 31), (18, 31)]
    assert sorted(stacks) == sorted((line, *caller) for line in (10, 12) for caller in callers)


FORKING = """
#include <acl/acl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    static char memory[8];
    (void)words;
    aclDataBuffer *buffer = aclCreateDataBuffer(memory, sizeof memory);
    pid_t child = fork();
    if (child == 0) {
        if (count > 1) {
            (void)aclCreateDataBuffer(memory, sizeof memory);
        }
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    aclDestroyDataBuffer(buffer);
    return status;
}
"""


def test_forked_child_is_reported_only_for_leaks_of_its_own_objects(tmp_path: Path) -> None:
    how = programs.mode()
    (tmp_path / "forking.c").write_text(FORKING)
    program = programs.compile_program(tmp_path / "forking.c", tmp_path, *programs.simulator(tmp_path, how), how)
    done = [subprocess.run([str(program), *words], capture_output=True, text=True, timeout=programs.TIMEOUT_S,
                           env={**programs.environment(how), "ACL_SIM_CHECK": "leak"}) for words in ([], ["leak"])]
    assert (done[0].returncode, done[0].stderr) == (0, "")
    assert done[1].stderr.startswith("acl.sim: check: leak: 1 data_buffer not destroyed"), done[1].stderr


TAG_CALLS = """
import ctypes
from acl import sim
library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
TAG = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
asked = []

@TAG
def tag(address, text, size):
    asked.append(address)
    if len(asked) == 1:
        library.aclrtFree(other)                # a finding of its own
    return 0

assert library.aclInit(None) == 0 and library.aclrtSetDevice(0) == 0
block, other = ctypes.c_void_p(), ctypes.c_void_p()
for made in block, other:
    assert library.aclrtMalloc(ctypes.byref(made), ctypes.c_size_t(512), 0) == 0
    assert library.aclrtFree(made) == 0
library.acl_sim_races_tags(tag)
library.aclrtFree(block)
print(len(asked))
"""


def test_wrong_call_made_by_a_tag_function_is_reported() -> None:
    done = run_python(TAG_CALLS, ACL_SIM_CHECK="mem", timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert done.stderr.count("check: double-free") == 2


OPERATORS = """
import ctypes, numpy as np
from support.calls import api
from support.memory import made
from support.models import device_array, tensor_desc
def call(name, inputs, out):
    for memory, x, constant in inputs:
        desc = tensor_desc(x)
        assert not constant or api.aclSetTensorConst(desc, x.ctypes.data, x.nbytes) == 0
        descs.append(desc)
        buffers.append(api.aclCreateDataBuffer(memory, x.nbytes))
    made_out = tensor_desc(out[1]), api.aclCreateDataBuffer(out[0], out[1].nbytes)
    n = len(inputs)
    assert api.aclopExecuteV2(name, n, pointers(descs), pointers(buffers), 1, pointers(made_out[:1]),
                              pointers(made_out[1:]), None, stream) == 0, api.aclGetRecentErrMsg()
    assert api.aclrtSynchronizeStream(stream) == 0
    for desc in (*descs, made_out[0]):
        api.aclDestroyTensorDesc(desc)
    for buffer in (*buffers, made_out[1]):
        assert api.aclDestroyDataBuffer(buffer) == 0
def pointers(values):
    return (ctypes.c_void_p * len(values))(*values)
def ints(*values):
    return None, np.array(values, np.int64), True
descs, buffers = [], []
api.aclInit(None)
api.aclrtSetDevice(0)
stream, memory, y = made("aclrtCreateStream"), made("aclrtMalloc", 64, 0), np.ones(16, np.float32)
x = device_array(y)
{code}
"""


@pytest.mark.parametrize(("code", "rules"), [
    ('call(b"ZerosLike", [(memory, y, False)], (memory, y))', []),
    ('call(b"Neg", [(memory, y, False)], (memory, y))', ["uninitialised"]),
    ('rows = ints(4), ints(4), ints(0)\n'
     'call(b"ViewCopy", [(memory, y, False), *rows, (x, y[:4], False), ints(4), ints(1), ints(0)], (memory, y))', []),
    ('rows = ints(4), ints(4), ints(0)\n'
     'call(b"ViewCopy", [(x, y, False), *rows, (memory, y[:4], False), ints(4), ints(1), ints(0)], (x, y))',
     ["uninitialised"]),
])
def test_operator_that_does_not_use_the_values_of_an_input_does_not_read_it(
    code: str, rules: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n" + OPERATORS.replace("{code}", code))
    done = check("--tool", "init", "--report", tmp_path / "found", "--", sys.executable, script)
    assert (done.returncode, [one["rule"] for one in reports(tmp_path / "found")]) == (bool(rules), rules), done.stderr
