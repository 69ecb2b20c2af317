"""The order of calls for dynamic shapes in CANN's documentation, as a C program with a model of this test."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.programs import compile_program, run_program

from acl.tools.onnx_writer import Builder

SOURCE = Path(__file__).parents[2] / "examples/c/dynamic_shape.c"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def model() -> bytes:
    b = Builder()
    h = b.add("MatMul", b.input("x", "float32", ["rows", 8]), b.constant(np.ones((8, 16), np.float32)))
    b.add("Softmax", b.add("Relu", h), axis=-1, outputs=["y"])
    b.output("y")
    return b.to_bytes()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_program(SOURCE, tmp_path)


def test_dynamic_shape_example_prints_its_shapes_and_frees_its_blocks(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model.om").write_bytes(model())
    done = run_program(program, str(tmp_path / "model.om"), "3", "100", "3", "100")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[3, 8] -> [3, 16], 192 bytes", "[100, 8] -> [100, 16], 6400 bytes"]
    assert lines[4] == "12 blocks from 6 mallocs, 0 still out"


def test_dynamic_shape_example_names_a_missing_model(program: Path) -> None:
    done = run_program(program, "missing.om", "3")
    assert done.returncode == 1
    assert "missing.om" in done.stderr and "145002" in done.stderr
