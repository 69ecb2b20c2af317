"""Starts Python in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import acl

__all__ = ["child_environment", "run_child", "run_python"]

TESTS = Path(__file__).parents[1]


def child_environment(**changes: str) -> dict[str, str]:
    """Return an environment in which a child can import `support` and this `acl`, on the simulator.

    `changes` set variables; an empty value removes one.  pytest's own variables are removed, because a pytest that the
    child starts would otherwise behave as a worker of this run.
    """
    path = os.pathsep.join(map(str, [Path(acl.__file__).parents[1], TESTS]))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables = {**ours, "ACL_BACKEND": "sim", "PYTHONPATH": path, **changes}
    return {name: value for name, value in variables.items() if value}


def run_child(
    *arguments: str, timeout: float = 300, text: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` with these changes to the environment; return its exit code and output."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=child_environment(**environment),
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd="/",
    )


def run_python(
    code: str, *, timeout: float = 300, arguments: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a child process, as `run_child` does.

    If the plugin `gc_always` is on, the child's garbage collector also runs after every allocation.
    """
    always = "import gc; gc.set_threshold(1, 1, 1)\n" if "ACLPOOL_GC_ALWAYS" in os.environ else ""
    return run_child(*arguments, "-c", always + textwrap.dedent(code), timeout=timeout, **environment)
