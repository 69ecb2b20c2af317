"""Runs Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

__all__ = ["run_python"]


def run_python(
    code: str, *, timeout: float = 60, arguments: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code with these extra environment variables; its exit code and output.

    A variable with an empty value is taken away.
    """
    variables = {**os.environ, "ACL_BACKEND": "sim", **environment}
    return subprocess.run(
        [sys.executable, *arguments, "-c", textwrap.dedent(code)],
        env={name: value for name, value in variables.items() if value},
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd="/",
    )
