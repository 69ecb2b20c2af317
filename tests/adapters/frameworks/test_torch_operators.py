"""The operators of PyTorch that docs/operators.md lists, one by one; and torch_npu's checker of streams."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import torch_operators

from acl import sim

pytestmark = [
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

RACE = """
import torch, torch_npu
stream, x = torch.npu.Stream(), torch.zeros(64).npu()
x += 1
{wait}
with torch.npu.stream(stream):
    y = x * 1
torch.npu.synchronize()
print("done", y.cpu().min().item())
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "acl.tools.sim", "--", sys.executable, *arguments],
                          env={**os.environ, **variables}, capture_output=True, text=True, timeout=600)


def test_operators_that_are_listed_are_those_that_give_torchs_results() -> None:
    done = run(str(Path(torch_operators.__file__)), ASCEND_LAUNCH_BLOCKING="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert sorted(found["right"]) == sim.operators()["torch"], found["failed"]


@pytest.mark.parametrize(("wait", "reports"), [("", True), ("stream.wait_stream(torch.npu.current_stream())", False)])
def test_sanitizer_of_torch_npu_finds_a_missing_wait(wait: str, reports: bool) -> None:
    done = run("-c", RACE.format(wait=wait), TORCH_NPU_SANITIZER="1")
    assert ("done 1.0" in done.stdout) is not reports
    assert ("SanitizerErrors" in done.stderr) is reports
