"""The pytest plugin with torch_npu from PyPI: the example project, and what happens after an operator failed."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from support.child import run_child

pytestmark = [
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

EXAMPLE = Path(__file__).parents[3] / "examples/npu_tests"

FAILURES = """
import pytest
import torch

kept = []

def right():
    return torch.equal((torch.arange(3.0).npu() * 2).cpu(), torch.arange(3.0) * 2)

def test_device_is_right():
    assert right()

@pytest.mark.acl_fault("aclopCompileAndExecute", nth=1)
def test_operator_fails_alone():
    with pytest.raises(RuntimeError):
        torch.ones(3).npu() * 2

def test_right_after_an_operator():
    assert right()

def test_stream_fails_and_nobody_looks(acl_sim):
    acl_sim.fail_stream(torch.npu.current_stream().npu_stream)

def test_right_after_a_stream():
    assert right()

@pytest.mark.acl_world(breaks=True)
def test_stream_fails_on_purpose(acl_sim):
    acl_sim.fail_stream(torch.npu.current_stream().npu_stream)
    with pytest.raises(RuntimeError):
        torch.npu.synchronize()

def test_device_is_chosen():
    torch.npu.set_device(1)
    assert right()

def test_device_of_another_test_is_not_kept():
    assert torch.npu.current_device() == 0

@pytest.mark.acl_leaks
def test_nothing_is_left():
    event = torch.npu.Event()
    event.record()
    torch.npu.Stream()
    assert right()

@pytest.mark.acl_leaks
def test_memory_is_left():
    kept.append(torch.empty(1 << 20, device="npu"))

@pytest.mark.acl_world(devices=5)
def test_world_that_cannot_be():
    pass
"""


def outcomes(folder: Path, *options: str) -> tuple[dict[str, str], str]:
    """Run pytest in a folder; return the outcome of each test, and the output."""
    done = run_child("-m", "pytest", "-p", "aclpool_pytest", "-p", "no:cacheprovider", "-rA", "--color=no", *options,
                     str(folder), ACL_BACKEND="", LD_LIBRARY_PATH="", timeout=120)
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+)", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    told: dict[str, str] = {}
    for word, name in found:
        told[name] = f"{told[name]} {word}" if name in told else word
    return told, done.stdout


def test_example_project_passes(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "project")
    told, output = outcomes(tmp_path / "project")
    assert list(told.values()) == ["PASSED"] * 5, output


def test_failure_belongs_to_its_test_and_the_next_are_right(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILURES)
    told, output = outcomes(tmp_path)
    wrong = {name: word for name, word in told.items() if word != "PASSED"}
    assert wrong == {
        "test_stream_fails_and_nobody_looks": "FAILED",
        "test_memory_is_left": "PASSED ERROR",
        "test_world_that_cannot_be": "ERROR",
    }, output
    assert len(told) == 11
    assert re.search(r"left at the end of the test: \d+ bytes of device 0\n", output)
    assert "torch_npu uses a device of this process" in output


QUEUED = """
import pytest
import torch

@pytest.mark.acl_fault("aclopCompileAndExecute", nth=1)
def test_operator_fails_and_nobody_looks():
    torch.ones(3).npu() * 2

def test_after_an_operator():
    assert (torch.ones(3).npu() * 2).sum().item() == 6
"""


@pytest.mark.parametrize(("fresh", "after"), [("test", "ERROR"), ("process", "PASSED")])
def test_queue_that_failed_serves_no_further_test(tmp_path: Path, fresh: str, after: str) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nacl_blocking = false\nacl_fresh = {fresh}\n")
    (tmp_path / "test_it.py").write_text(QUEUED)
    told, output = outcomes(tmp_path)
    assert told == {"test_operator_fails_and_nobody_looks": "FAILED", "test_after_an_operator": after}, output
    assert "torch_npu at the end of the test: " in output
    assert ("torch_npu is not right in this process since" in output) == (after == "ERROR")
