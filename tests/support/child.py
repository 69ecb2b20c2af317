"""Runs Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import acl

__all__ = ["child_environment", "run_python"]


def child_environment(**changes: str) -> dict[str, str]:
    """The environment of a child that imports the same `acl` and runs it on the simulator.

    A change to an empty value takes the variable away.
    """
    here = str(Path(acl.__file__).parent.parent)
    variables = {**os.environ, "ACL_BACKEND": "sim", "PYTHONPATH": here, **changes}
    return {name: value for name, value in variables.items() if value}


def run_python(
    code: str, *, timeout: float = 60, arguments: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code with these changes to the environment; its exit code and output."""
    return subprocess.run(
        [sys.executable, *arguments, "-c", textwrap.dedent(code)],
        env=child_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd="/",
    )
