"""DLPack between PyTorch, torch_npu and us, with the real wheels: an optional lane."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]


def run(code: str) -> list[str]:
    """Run code with torch_npu on the simulator, check that it exits cleanly, and return the lines that it printed."""
    start = "import torch, torch_npu, numpy, acl\ntorch.npu.set_device(0)\n"
    line = [sys.executable, "-m", "acl.tools.sim", "--", sys.executable, "-c", start + code]
    done = subprocess.run(line, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("Warning: ")]


def test_torch_imports_host_memory_through_dlpack() -> None:
    assert run("""
host = acl.HostBuffer(64)
tensor = torch.from_dlpack(host)
tensor[:] = torch.arange(64, dtype=torch.uint8)
print(bytes(host) == bytes(range(64)), tensor.data_ptr() == host.address)
pinned = acl.pinned_empty((3, 4), "float32")
pinned[:] = 5
print(torch.from_dlpack(pinned).sum().item(), torch.from_numpy(pinned).shape)
""") == ["True True", "60.0 torch.Size([3, 4])"]


def test_torch_npu_tensor_is_imported_through_dlpack() -> None:
    assert run("""
tensor = torch.arange(20.).reshape(4, 5).npu()
torch.npu.synchronize()
array = acl.from_dlpack(tensor)
print(array.address == tensor.data_ptr(), array.shape, array.dtype)
del tensor
print(array.numpy().sum())
capsule = torch.utils.dlpack.to_dlpack(torch.ones(7).npu())
print(acl.from_dlpack(capsule).shape)
""") == ["True (4, 5) float32", "190.0", "(7,)"]


def test_torch_npu_imports_pool_memory_through_dlpack() -> None:
    assert run("""
pool = acl.Pool(0)
array = pool.empty((2, 3), "float32")
acl.copy(array.buffer, numpy.arange(6, dtype="float32"))
tensor = torch.from_dlpack(array)
print(tensor.device, tensor.shape, tensor.data_ptr() == array.address)
del array
assert pool.stats().allocated > 0
del tensor
print(pool.stats().allocated)
""") == ["npu:0 torch.Size([2, 3]) True", "0"]
