"""The pytest plugin on projects without a framework; a new pytest process runs each project."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from support.child import run_child

pytestmark = pytest.mark.subprocess_heavy

#: A plugin of the projects, which stores the outcome of each test, and its reason.
OUTCOMES = '''
import json, os
told = {}

def pytest_runtest_logreport(report):
    if report.outcome != "passed" or report.when == "call":
        told.setdefault(report.nodeid.split("::")[-1], []).append([report.when, report.outcome, report.longreprtext or
            str(report.longrepr or ""), dict(report.sections)])

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        open(os.path.join(os.path.dirname(__file__), "told.json"), "w").write(json.dumps(told))
'''
Outcomes = dict[str, list[tuple[str, str, str, dict[str, str]]]]


def project(folder: Path, tests: str, *options: str, ini: str = "", **variables: str) -> Outcomes:
    """Run the tests with the plugin; return, for each test, its important phases with outcome, text and sections."""
    (folder / "conftest.py").write_text(OUTCOMES)
    (folder / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(ini))
    (folder / "test_it.py").write_text(textwrap.dedent(tests))
    done = run_child(
        "-m", "pytest", "-p", "aclpool_pytest", "-p", "no:cacheprovider", *options, str(folder), **variables)
    assert (folder / "told.json").exists(), done.stdout + done.stderr
    told: Outcomes = json.loads((folder / "told.json").read_text())
    told["output"] = [("", str(done.returncode), done.stdout + done.stderr, {})]
    return told


def short(outcomes: Outcomes) -> dict[str, str]:
    """Return each test's outcome in one or two words; the phase is named if it is not the call of the test."""
    words = {name: [outcome if when == "call" else f"{when} {outcome}" for when, outcome, _, _ in phases]
             for name, phases in outcomes.items() if name != "output"}
    return {name: ", ".join(found) for name, found in words.items()}


WORLDS = """
    import pytest
    import aclpool as acl

    kept = []

    @pytest.mark.acl_world(colour="blue")
    def test_world_without_such_a_setting():
        pass

    @pytest.mark.acl_world(devices=3, capacity="none")
    def test_world_of_no_size():
        pass

    @pytest.mark.acl_world(devices=3, capacity="none")
    def test_world_of_no_size_again():
        pass

    def test_counts_begin_at_zero(acl_sim):
        assert "aclrtMalloc" not in acl_sim.counters()
        acl_sim.fault("aclrtMalloc", every=1)
        acl_sim.configure(latency="memory")

    def test_faults_of_another_test_are_over(acl_sim):
        acl.Buffer(100).close()
        assert acl_sim.counters()["aclrtMalloc"] == 1
        assert acl_sim.configuration()["latency"] == "off"

    @pytest.mark.acl_world(devices=3, capacity="1GiB", soc="Ascend310P3")
    def test_world_of_three():
        assert acl.Device.count() == 3 and acl.Device(2).memory_info()[1] == 1 << 30
        acl.Buffer(100).close()

    def test_world_of_the_run():
        assert acl.Device.count() == 2 and acl.Device(0).memory_info()[1] == 8 << 30

    @pytest.mark.acl_fault("aclrtMalloc", nth=2)
    def test_second_call_fails():
        acl.Buffer(100).close()
        with pytest.raises(acl.OutOfMemoryError):
            acl.Buffer(100)

    @pytest.mark.acl_fault("aclrtMalloc", nth=2)
    def test_fault_that_is_missed():
        acl.Buffer(100).close()

    @pytest.mark.acl_trace
    def test_calls_are_shown():
        acl.Buffer(100).close()
        assert 0

    @pytest.fixture(scope="module")
    def lasting():
        yield acl.Buffer(100)

    @pytest.fixture
    def passing():
        with acl.Buffer(100) as made:
            yield made

    @pytest.mark.acl_leaks
    def test_fixtures_are_no_leaks(lasting, passing):
        pass

    @pytest.mark.acl_leaks
    def test_leaves_an_event():
        kept.append(acl.Event())

    @pytest.mark.acl_world(devices=4)
    def test_world_while_memory_is_live():
        pass

"""


def test_each_test_has_a_fresh_world(tmp_path: Path) -> None:
    told = project(tmp_path, WORLDS, ini="acl_settings = capacity=8GiB\n")
    assert short(told) == {
        "test_world_without_such_a_setting": "setup failed",
        "test_world_of_no_size": "setup failed",
        "test_world_of_no_size_again": "setup failed",
        "test_counts_begin_at_zero": "passed",
        "test_faults_of_another_test_are_over": "passed",
        "test_world_of_three": "passed",
        "test_world_of_the_run": "passed",
        "test_second_call_fails": "passed",
        "test_fault_that_is_missed": "failed",
        "test_calls_are_shown": "failed",
        "test_fixtures_are_no_leaks": "passed",
        "test_leaves_an_event": "passed, teardown failed",
        "test_world_while_memory_is_live": "setup failed",
    }
    assert "'colour'" in told["test_world_without_such_a_setting"][0][2]
    assert "aclrtMalloc:nth=2: no call failed" in told["test_fault_that_is_missed"][0][2]
    calls = told["test_calls_are_shown"][0][3]["Captured calls call"].splitlines()
    assert {"aclrtMalloc 0", "aclrtFree 0"} <= {" ".join(line.split()[:2]) for line in calls}
    assert "left at the end of the test: 1 event" in told["test_leaves_an_event"][1][2]
    assert "bytes of device 0, 1 event" in told["test_world_while_memory_is_live"][0][2]


ALONE = """
    import os
    import pytest
    import aclpool as acl

    first = []

    def test_uses_a_device():
        first.append(acl.Buffer(100))

    @pytest.mark.acl_world(devices=3, process=True)
    def test_has_a_process_of_its_own():
        assert acl.Device.count() == 3 and not first
        acl.Buffer(100)

    @pytest.mark.acl_world(process=True)
    def test_process_dies_alone():
        print("said before")
        os.kill(os.getpid(), 11)

    @pytest.mark.acl_world(process=True)
    def test_reads_what_was_not_written():
        acl.to_bytes(acl.Buffer(100))

    @pytest.mark.acl_check(allow=["uninitialised:*"])
    def test_may_read_what_was_not_written():
        acl.to_bytes(acl.Buffer(100))

    def test_stays_in_the_process():
        assert first and acl.Device.count() == 2
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_marked_tests_have_processes_of_their_own(tmp_path: Path, workers: tuple[str, ...]) -> None:
    told = project(tmp_path, ALONE, "--acl-check", "--dist=loadfile", *workers)
    assert short(told) == {
        "test_uses_a_device": "passed",
        "test_has_a_process_of_its_own": "passed",
        "test_process_dies_alone": "failed",
        "test_reads_what_was_not_written": "failed",
        "test_may_read_what_was_not_written": "passed",
        "test_stays_in_the_process": "passed",
    }
    assert "ended by signal 11" in told["test_process_dies_alone"][0][2]
    assert told["test_process_dies_alone"][0][3] == {"Captured stdout call": "said before\n"}
    text = told["test_reads_what_was_not_written"][0][2]
    assert text.count("check: uninitialised") == 1 and "in test_reads_what_was_not_written" in text
    assert "_pytest" not in text


LEFT_BEHIND = """
    import multiprocessing
    import os
    import signal
    import time
    import pytest

    FOLDER = os.path.dirname(__file__)

    def note(name, text):
        with open(os.path.join(FOLDER, name), "w") as file:
            file.write(text)

    def lag():
        time.sleep(100)
        note("ended", "")

    @pytest.mark.acl_world(process=True)
    def test_leaves_a_process():
        left = multiprocessing.get_context("fork").Process(target=lag, daemon=True)
        left.start()
        note("left", str(left.pid))

    @pytest.mark.acl_world(process=True)
    def test_ends_the_process_that_was_left():
        assert not os.path.exists(os.path.join(FOLDER, "ended"))
        with open(os.path.join(FOLDER, "left")) as file:
            os.kill(int(file.read()), signal.SIGKILL)
"""


def test_process_that_a_test_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    assert short(project(tmp_path, LEFT_BEHIND)) == {
        "test_leaves_a_process": "passed", "test_ends_the_process_that_was_left": "passed"}


LIKE_TORCH = """
    import ctypes
    import importlib.util
    import os
    import sys

    def test_plugin_is_idle_at_first():
        assert importlib.util.find_spec("torch_npu")
        assert "acl" not in sys.modules and "aclpool" not in sys.modules

    def test_libraries_are_there_before_torch_npu():
        import torch_npu
        ctypes.CDLL("libhccl.so")
        assert os.environ["ASCEND_LAUNCH_BLOCKING"] == "1"

    def test_torch_npu_without_the_simulator():
        try:
            ctypes.CDLL("libhccl.so")
        except OSError:
            return
        assert 0
"""


def test_simulator_comes_with_torch_npu(tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text('import ctypes\nctypes.CDLL("libascendcl.so")\n')
    told = project(tmp_path, LIKE_TORCH, "-W", "error", ACL_BACKEND="", LD_LIBRARY_PATH="")
    assert short(told) == {
        "test_plugin_is_idle_at_first": "passed",
        "test_libraries_are_there_before_torch_npu": "passed",
        "test_torch_npu_without_the_simulator": "failed",
    }
    assert "aclpool: on the simulator" in told["output"][0][2]


OFF = """
    import sys
    import pytest

    @pytest.mark.acl_world(devices=3)
    def test_wants_the_simulator():
        assert 0

    def test_nothing_is_wanted():
        assert "acl" not in sys.modules
"""


def test_plugin_that_is_off_skips_what_wants_it(tmp_path: Path) -> None:
    told = project(tmp_path, OFF, "--acl-simulator=off")
    assert short(told) == {"test_wants_the_simulator": "setup skipped", "test_nothing_is_wanted": "passed"}
    assert "acl_simulator is off" in told["test_wants_the_simulator"][0][2]


@pytest.mark.parametrize(("ini", "text"), [
    ("acl_fresh = never", "acl_fresh: expected one of test, module, process, got 'never'"),
    ("acl_check = memory", "acl_check: expected all, or some of mem,order,leak,init, got 'memory'"),
    ("acl_simulator = on\nacl_settings = devices", "acl_suppressions: expected NAME=VALUE, got 'devices'"),
])
def test_setting_without_sense_is_refused(tmp_path: Path, ini: str, text: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + ini)
    done = run_child("-m", "pytest", "-p", "aclpool_pytest", str(tmp_path))
    assert text in done.stderr and done.returncode == 4
