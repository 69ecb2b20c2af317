"""Tensors of PyTorch and torch_npu, and objects with DLPack, as inputs of `Model` and `Op`: an optional lane."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from support.child import child_environment

pytestmark = [
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="could not import 'torch'"),
]

START = """
import numpy, torch
import acl
from acl.tools.onnx_writer import Builder

made = Builder()
x, y = made.input("x", "float32", ["n", 3]), made.input("y", "float32", ["n", 3])
made.output(made.add("Add", x, y), "float32", ["n", 3])
"""


def run(code: str, start: str = START) -> list[str]:
    """Run code on the simulator, check that it exits cleanly, and return the lines that it printed."""
    line = [sys.executable, "-m", "acl.tools.sim", "--", sys.executable, "-c", start + code]
    done = subprocess.run(line, env=child_environment(), capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("Warning: ")]


def test_model_takes_cpu_tensors_and_objects_with_dlpack() -> None:
    assert run("""
class Owner:                                        # has DLPack and nothing else
    def __init__(self, array):
        self.array = array
    def __dlpack__(self, **named):
        return self.array.__dlpack__(**named)
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

with acl.Model(made.to_bytes({})) as model, acl.Stream(0) as stream, acl.Pool(0) as pool:
    pool.register(stream)
    a, b = torch.arange(6.).reshape(2, 3), torch.ones(2, 3)
    print(model(a, b, stream=stream)[0].tolist())
    print(model(x=a, y=b, stream=stream)[0].tolist())
    print(model(a.T.contiguous().T, b, stream=stream)[0].tolist())      # not contiguous
    print(model(a.requires_grad_().detach(), Owner(numpy.ones((2, 3), "float32")), stream=stream)[0].tolist())
    (array,) = model.run_async({"x": a.detach(), "y": b}, stream)
    print(type(array).__name__, numpy.asarray(array).tolist(), torch.from_dlpack(array.numpy()).sum().item())
    (again,) = model.run_async({"x": array, "y": b}, stream)            # an Array on the device
    print(numpy.asarray(again).sum())
    pool.unregister(stream)
""") == ["[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]"] * 4 + ["Array [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] 21.0", "27.0"]


def test_operator_takes_cpu_tensors() -> None:
    assert run("""
with acl.Stream(0) as stream:
    a, b = torch.arange(6.).reshape(2, 3), torch.ones(2, 3)
    (out,) = acl.Op("Add")(a, b, stream=stream, outputs=[((2, 3), "float32")])
    print(numpy.asarray(out).tolist())
""") == ["[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]"]


def test_tensor_of_another_type_is_an_invalid_argument_that_names_the_input() -> None:
    (said,) = run("""
with acl.Model(made.to_bytes({})) as model, acl.Stream(0) as stream:
    try:
        model(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3), stream=stream)
    except acl.InvalidArgumentError as error:
        print(isinstance(error, ValueError), error)
""")
    assert said.startswith("True ") and "'x'" in said and "int64" in said and "float32" in said


@pytest.mark.torch_npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed")
def test_model_takes_npu_tensors_as_arrays_and_refuses_them_as_they_are() -> None:
    """torch_npu's DLPack does not order torch's work before the run, so the user does it."""
    start = START.replace("import numpy, torch\n", "import numpy, torch, torch_npu\ntorch.npu.set_device(0)\n")
    assert run("""
a, b = torch.arange(6.).reshape(2, 3).npu(), torch.ones(2, 3).npu()
with acl.Model(made.to_bytes({})) as model, acl.Stream(0) as stream:
    try:
        model(a, b, stream=stream)
    except acl.InvalidArgumentError as error:
        print(error)
    torch.npu.synchronize()
    print(model(acl.from_dlpack(a), acl.from_dlpack(b), stream=stream)[0].tolist())
    (out,) = acl.Op("Add")(acl.from_dlpack(a), acl.from_dlpack(b), stream=stream, outputs=[((2, 3), "float32")])
    print(numpy.asarray(out).tolist())
""", start) == ["input 'x': the tensor is on npu:0; take acl.from_dlpack(tensor), or tensor.cpu()"] + [
        "[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]"] * 2
