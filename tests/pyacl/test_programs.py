"""Whole programs in pyACL's style, unchanged, with `python` and with `aclpool run`, with and without a pool."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.child import run_child

from acl.tools.onnx_writer import Builder

PROGRAMS = Path(__file__).parent / "programs"
WAYS = {
    "python": [],
    "run": ["-m", "aclpool", "run"],
    "pool": ["-m", "aclpool", "run", "--pool"],
}


def start(way: str, program: str, *arguments: str) -> str:
    """Run a program, check that it succeeds and writes nothing to stderr, and return its output."""
    done = run_child(*WAYS[way], str(PROGRAMS / program), *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return re.split(r"^pool of device|^no stream", done.stdout, flags=re.M)[0]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the paths of three .om files of y = relu(x @ w): for a fixed shape, for a few shapes, for any shape."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for name, rows, metadata in (("fixed", 2, {}), ("geared", "n", {"dynamic_batch_size": "1,2,4"}), ("any", "n", {})):
        model = Builder()
        x = model.input("x", "float32", [rows, 4])
        weight = model.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
        model.output(model.add("Relu", model.add("MatMul", x, weight)), "float32", [rows, 3])
        made[name] = str(folder / f"{name}.om")
        Path(made[name]).write_bytes(model.to_bytes(metadata))
    return made


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("size", ["1", "4097", "3000000"])
def test_pyacl_program_that_copies_memory_gives_the_right_output(way: str, size: str) -> None:
    out = start(way, "memory_copies.py", "--memory_size", size, "--cycles", "2")
    half = "[1]" if size == "1" else "[1 7]"
    assert out.splitlines()[:4] == [
        f"host [7] {size}", f"device [7] {size}", f"half {half} {size}", "taken at least True"]
    assert out.endswith("run success\n")


def test_pyacl_program_with_two_streams_gives_the_right_output(way: str) -> None:
    out = start(way, "two_streams.py", "1000000")
    assert out == "second stream read [7] 1000000\nhost source {7}\nevent 1 0\nrun success!\n"


def test_pyacl_program_with_callbacks_gives_the_right_output(way: str) -> None:
    out = start(way, "callbacks.py")
    assert out == f"{[(i, {i}) for i in range(8)]}\nfinalize 0\n"


def test_pyacl_program_with_contexts_gives_the_right_output(way: str) -> None:
    out = start(way, "contexts.py")
    assert out == ("devices 2 0\n0 (0, 0, [0, 1, 2])\n1 (1, 1, [10, 11, 12])\n2 (0, 0, [20, 21, 22])\n"
                   "3 (1, 1, [30, 31, 32])\nforeign stream 107003\nown stream 0 0\n0 0 0 0\nfinalize 0\n")


def test_pyacl_program_with_its_own_memory_pool_gives_the_right_output(way: str) -> None:
    out = start(way, "own_pool.py")
    assert out == ("b'ABCD'\nb'at the very end!'\nnonsense dest_max 0\n[100, 101, 102] [0, 64, 224]\n"
                   "free 0 again 0 0\n")


def test_pyacl_program_with_careless_arguments_gets_the_documented_results(way: str) -> None:
    out = start(way, "careless.py").splitlines()
    expected = [
        "init 0 again True", "set 0", "extra (0, 0) 0", "stored True",
        "probing ['bytes_to_ptr', 'ptr_to_bytes', 'numpy_to_ptr'] False False", "root True True True",
        "all of one call 0", "device to device by the wrong kind 0", "read on the host b'xxxx'", "free 0 none 100000",
        "TypeError acl.rt.free args parse failed", "TypeError argument 2 is not list", "no model True",
        "bad stream True True", "stream 0 twice True",
    ]
    assert out[:len(expected)] == expected
    assert out[-2:] == ["negative 0 True", "reset 0 0 again True"]


def test_pyacl_program_with_sleep_mode_gives_the_right_output(way: str) -> None:
    out = start(way, "sleep_mode.py")
    assert out == "asleep\nawake {9}\n{'id': 0, 'type': 1} 0\n0\n"


def test_pyacl_program_with_a_model_helper_gives_the_right_output(way: str, models: dict[str, str]) -> None:
    out = start(way, "model_helper.py", models["fixed"], models["geared"])
    lines = out.splitlines()
    assert lines[:5] == ["input x 2 [2, 4] 0 2", "output [2, 3] 0 0", "batch None sync True", "batch None async True",
                         "Resources released successfully."]
    assert "gears ({'batchCount': 3, 'batch': [1, 2, 4]}, 0)" in lines
    assert [line for line in lines if line.startswith("batch")] == [
        f"batch {batch} {how} True" for batch in (None, 1, 2, 4) for how in ("sync", "async")]
    assert lines[-2:] == ["Resources released successfully.", "finalize 0"]


def test_pyacl_program_with_dynamic_shapes_gives_the_right_output(way: str, models: dict[str, str]) -> None:
    out = start(way, "dynamic_shapes.py", models["any"])
    rows = [f"{n} [{n}, 3] True True True" for n in (1, 7, 300, 2, 301)]
    assert out.splitlines() == ["sizes 0 0", *rows, "finalize 0"]


def test_pyacl_program_with_a_single_operator_gives_the_right_output(way: str) -> None:
    out = start(way, "single_op.py")
    assert out.splitlines() == ["attributes 0 0 0 0 0 0 0 0", "Add True", "Mul True", "cast True",
                                "no such operator True", "half 1.5", "finalize 0"]


def test_pyacl_program_with_a_python_allocator_gives_the_right_output(models: dict[str, str]) -> None:
    out = start("python", "python_allocator.py", models["any"])
    assert out.splitlines() == ["0 0 0 0 0 0", "3 True asked True", "50 True asked True", "8 True asked True",
                                "unregister 0 balanced True live {}", "finalize 0"]
