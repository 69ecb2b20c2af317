"""`python -m tools.sample_text`: the texts that it finds, and that a seed gives the same sample again."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = '''"""A module."""

# Two lines
# of one comment.
size = 3    # bytes
# type: ignore
# ---- a section ----


def test_pool_closed_twice_is_refused():
    """Close it."""
    raise ValueError(f"size must be {size} or more")
'''
C = """/* A file. */
int size;   /* bytes */
int f(void) { return fail("size %d is too small", size); }
"""


@pytest.fixture(scope="module")
def sampler() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sample_text", ROOT / "tools/sample_text.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_texts_of_a_python_file_are_found(sampler: ModuleType) -> None:
    found = sorted((one.line, one.kind, one.text) for one in sampler.prose(sampler.in_python("a.py", PYTHON)))
    assert found == [
        (1, "docstring", "A module."), (3, "comment", "Two lines\nof one comment."),
        (5, "comment", "size = 3    # bytes"),
        (10, "test", "test_pool_closed_twice_is_refused"), (11, "docstring", "Close it."),
        (12, "message", "size must be {size} or more"),
    ]


def test_texts_of_a_c_file_are_found(sampler: ModuleType) -> None:
    found = sorted((one.line, one.kind, one.text) for one in sampler.prose(sampler.in_c("a.c", C)))
    assert found == [(1, "comment", "A file."), (2, "comment", "int size;   /* bytes */"),
                     (3, "message", "size %d is too small")]


def test_same_seed_gives_the_same_sample() -> None:
    line = [sys.executable, "-m", "tools.sample_text", "5", "--seed", "3", "--room", "tests/pool"]
    first, second = (subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in "12")
    assert first == second and first.count("tests/pool/") == 5
