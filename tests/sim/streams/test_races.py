"""The order checker: a table of small programs in C and Python, each correct and with one wait missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.binaries import compiled
from support.child import run_child

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "c"))
import programs

CASES = [
    "event_plain", "event_ex", "event_too_early", "event_recorded_again", "event_flagged", "event_flag_later",
    "event_transitive", "event_after_read", "event_synchronize", "event_query", "stream_synchronize",
    "stream_query", "device_synchronize", "stream_destroy", "notify", "notify_count", "value", "value_write",
    "host_function", "host_function_held", "stream_forced", "freed", "freed_unrun", "freed_pinned", "unmapped",
    "mapped_twice", "pool_block", "host_copy", "neighbours", "columns", "readers", "graph_inside",
    "graph_outside", "graph_freed",
]
#: The kind of finding in the wrong program, if it is not two tasks without an order.
FINDINGS = {"freed": "freed", "freed_unrun": "freed", "freed_pinned": "freed", "graph_freed": "freed",
            "stream_forced": "freed", "unmapped": "unmapped"}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("races")
    how = programs.mode()
    return programs.compile_program(programs.HERE / "races.c", folder, *programs.simulator(folder, how), how)


def findings(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_case(program: Path, case: str, which: str, path: Path) -> subprocess.CompletedProcess[str]:
    # The programs do not destroy their events and graphs.
    watched = {"ACL_SIM_RACES": "1", "ACL_SIM_RACES_FAIL": "1", "ACL_SIM_RACES_JSON": str(path),
               "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}
    return subprocess.run([str(program), case, which], capture_output=True, text=True, timeout=120,
                          env={**programs.environment(programs.mode()), **watched})


def test_table_of_race_programs_names_each_program_of_the_file(program: Path) -> None:
    listed = subprocess.run([str(program)], capture_output=True, text=True, check=True,
                            env=programs.environment(programs.mode())).stdout
    assert listed.split() == CASES


@pytest.mark.parametrize("case", CASES)
def test_program_with_the_necessary_wait_gets_no_race_report(program: Path, case: str, tmp_path: Path) -> None:
    done = run_case(program, case, "right", tmp_path / "found")
    assert (done.returncode, done.stdout, done.stderr, findings(tmp_path / "found")) == (0, "", "", [])


@pytest.mark.parametrize("case", CASES)
def test_program_without_the_necessary_wait_gets_one_race_report(program: Path, case: str, tmp_path: Path) -> None:
    done = run_case(program, case, "wrong", tmp_path / "found")
    found = findings(tmp_path / "found")
    assert [one["finding"] for one in found] == [FINDINGS.get(case, "order")]
    assert done.returncode == 1
    assert done.stderr.startswith("acl.sim: race 1: ")
    assert "acl.sim: races: 1 found" in done.stderr
    assert "stream" in found[0]["first"]
    assert all(found[0][end]["queued_at"] for end in ("first", "second"))


def test_race_report_has_the_tag_that_the_program_supplies(program: Path, tmp_path: Path) -> None:
    done = run_case(program, "event_plain", "wrong", tmp_path / "found")
    assert '  tag the "batch"\n' in done.stderr
    assert findings(tmp_path / "found")[0]["tag"] == 'the "batch"'


def test_race_check_is_off_by_default(program: Path) -> None:
    done = subprocess.run([str(program), "event_plain", "wrong"], capture_output=True, text=True,
                          env=programs.environment(programs.mode()))
    assert (done.returncode, done.stderr) == (0, "")


# --- from Python: the pool, operators, kernels, models ------------------------------------------------

HEAD = """
import json, sys
import acl, acl.sim
acl.Device(0).use()
right = sys.argv[1] == "right"
one, two = acl.Stream(), acl.Stream()
"""

KERNEL = """
import ctypes
module = acl.Module(open(sys.argv[2], "rb").read())
nothing = module.kernel("nothing", (ctypes.c_void_p,))
memory = acl.Buffer(4096)
"""

PYTHON = {
    "copy": """
source, target = acl.Buffer(4096), acl.Buffer(4096)
acl.fill(source, 1, stream=one, wait=False)
if right:
    two.wait_event(one.record())
acl.copy_async(target, source, stream=two)
""",
    # The pool must be told which other streams use its block.
    "pool": """
pool = acl.Pool(0)
buffer = pool.alloc(4096, one)
if right:
    pool.record_stream(buffer, two)
assert acl.rt.memset_async(buffer.address, 4096, 1, 4096, two.handle) == 0
buffer = None
again = pool.alloc(4096, one)
acl.fill(again, 2, stream=one, wait=False)
""",
    "operator": """
import numpy as np
add = acl.Op("Add")
pool = acl.Pool(0)
arrays = [pool.empty(64, "float32", one) for _ in range(2)]
acl.fill(arrays[0].buffer, 1, stream=one, wait=False)
if right:
    two.wait_event(one.record())
add(*arrays, stream=two)
two.synchronize()
""",
    "kernel": KERNEL + """
nothing.launch(1, memory, stream=one)
if right:
    two.wait_event(one.record())
acl.fill(memory, 1, stream=two, wait=False)
""",
    # With declared accesses, two kernels that write are a race, but two that read are not.
    "kernel_declared": KERNEL + """
acl.sim.declare_kernel("nothing", 0, 4096, writes=not right)
address = memory.address
nothing.launch(1, address, stream=one)
nothing.launch(1, address, stream=two)
""",
    "model": """
import numpy as np
from acl.tools.onnx_writer import Builder
builder = Builder()
x = builder.input("x", "float32", [4])
builder.output(builder.add("Add", x, x), "float32", [4])
pool = acl.Pool(0)
source = pool.empty(4, "float32", one)
acl.fill(source.buffer, 0, stream=one, wait=False)
if right:
    two.wait_event(one.record())
with acl.Model(builder.to_bytes()) as model:
    model.run_async([source], two)
    two.synchronize()
""",
}
END = """
one.synchronize()
two.synchronize()
print(json.dumps([sorted(found[end]["name"] for end in ("first", "second")) for found in acl.sim.races()]))
"""
NAMES = {"copy": ["memcpy", "memset"], "pool": ["memset", "memset"], "operator": ["memset", "operator"],
         "kernel": ["kernel", "memset"], "kernel_declared": ["kernel", "kernel"], "model": ["memset", "model node"]}


@pytest.mark.parametrize("case", PYTHON)
@pytest.mark.parametrize("which", ["right", "wrong"])
def test_python_program_without_the_necessary_wait_gets_a_race_report(case: str, which: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(HEAD + PYTHON[case] + END)
    if "kernel" in case:
        compiled("ACL_SIM_KERNEL_PARAMS(nothing, 8);\nACL_SIM_KERNEL(nothing) { (void)args; }\n", tmp_path)
    done = run_child(str(path), which, str(tmp_path / "k.so"), ACL_SIM_RACES="1",
                     ACL_SIM_RACES_JSON=str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ([] if which == "right" else [NAMES[case]])


def test_race_report_names_lines_of_python(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(HEAD + PYTHON["copy"])
    done = run_child(str(path), "wrong", ACL_SIM_RACES="1", ACL_SIM_RACES_JSON=str(tmp_path / "found"))
    lines = path.read_text().splitlines()
    found = findings(tmp_path / "found")
    assert done.returncode == 0, done.stderr
    assert [one["finding"] for one in found] == ["order"]
    for end, text in (("first", "acl.fill"), ("second", "acl.copy_async")):
        where = found[0][end]["queued_at"][0]
        assert where.endswith(" in <module>") and where.startswith(f"{path}:")
        assert lines[int(where.removeprefix(f"{path}:").split()[0]) - 1].startswith(text)


def test_race_check_command_exits_with_1_and_writes_json(program: Path, tmp_path: Path) -> None:
    found = tmp_path / "found"
    command = ["-m", "acl.tools.cli", "sim", "run", "--races", "--json", str(found), "--", str(program), "event_plain"]
    assert run_child(*command, "right").returncode == 0
    assert findings(found) == []
    done = run_child(*command, "wrong")
    assert done.returncode == 1
    assert [one["finding"] for one in findings(found)] == ["order"]


def test_json_option_without_the_race_check_is_refused() -> None:
    done = run_child("-m", "acl.tools.cli", "sim", "run", "--json", "found", "--", "true")
    assert (done.returncode, done.stderr) == (2, "aclpool sim run: --json: expected with --races\n")


def test_forked_child_reports_no_races(tmp_path: Path) -> None:
    code = HEAD + PYTHON["copy"] + """
import os
child = os.fork()
if child == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    path = tmp_path / "program.py"
    path.write_text(code)
    done = run_child(str(path), "wrong", ACL_SIM_RACES="1", ACL_SIM_RACES_FAIL="1")
    assert (done.returncode, done.stdout) == (1, "0\n")
    assert done.stderr.count("acl.sim: races: 1 found") == 1


def test_muted_race_reports_do_not_change_the_exit_status(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(HEAD + "with acl.sim.races_muted():\n    " + PYTHON["copy"].strip().replace("\n", "\n    ") + END)
    done = run_child(str(path), "wrong", ACL_SIM_RACES="1", ACL_SIM_RACES_FAIL="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
