"""The documentation of the simulator lists exactly the functions that the simulator lacks."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from support.calls import table

from acl import sim

PAGE = Path(__file__).parents[2] / "docs/simulator.md"


def absent() -> set[str]:
    """Return the functions of the API table that neither library exports."""
    libraries = [ctypes.CDLL(f"{sim.library_dir()}/{name}", ctypes.RTLD_GLOBAL)
                 for name in ("libascendcl.so", "libacl_op_compiler.so")]
    names = [row["name"] for row in table()["functions"]]
    return {name for name in names if not any(hasattr(library, name) for library in libraries)}


def documented() -> set[str]:
    """Return the function names in the last table of the page."""
    rows = PAGE.read_text().split("| absent |")[1].splitlines()
    return {name for row in rows if "|" in row for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the tests")
def test_page_lists_the_functions_that_the_simulator_lacks() -> None:
    assert documented() == absent()
    assert f"And {len(absent())} of CANN's {len(table()['functions'])} functions are absent" in PAGE.read_text()
