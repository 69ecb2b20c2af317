"""`import acl` is quick, and loads nothing heavy.

Measured as processor time of whole interpreters against a bare one in the same run, the least of
several, so that a busy machine does not decide.
"""

import os
import subprocess
import sys

import pytest
from support.child import child_environment, run_python


def processor_ms(code: str) -> float:
    """The least processor time of an interpreter that runs some code."""
    least = float("inf")
    for _ in range(10):
        child = subprocess.Popen([sys.executable, "-c", code], cwd="/", env=child_environment())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        least = min(least, (used.ru_utime + used.ru_stime) * 1e3)
    return least


@pytest.mark.release_only
def test_import_costs_less_than_30_ms() -> None:
    bare = processor_ms("pass")
    assert processor_ms("import acl") - bare < 30


@pytest.mark.parametrize("name", ["acl", "aclpool"])
def test_nothing_heavy_is_imported(name: str) -> None:
    done = run_python(
        f"import sys; before = set(sys.modules); import {name}; print(*set(sys.modules) - before)"
    )
    loaded = set(done.stdout.split())
    assert name in loaded
    heavy = {
        "numpy",
        "ctypes",
        "asyncio",
        "subprocess",
        "argparse",
        "json",
        "torch",
        "shutil",
        "tempfile",
    }
    heavy |= {"importlib.abc", "importlib.resources", "inspect", "dataclasses", "logging"}
    assert loaded & heavy == set()
