"""Single operators: one of the library, and one with its own kernel and workspaces.

The function that `Op.compiler` decorates is called for each new set of shapes. It returns the kernel to run, the
number of blocks, the arguments besides inputs and outputs, and the sizes of the workspaces.
"""

import os
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl

SOURCE = Path(__file__).parent / "kernels" / "workspace_sum.c"
PARTS, BYTES = 64, 8


def compiled() -> bytes:
    """Return the kernel as a shared object, which is the simulator's form of device code."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "sum.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", f"-I{acl.include_dir()}", "-o", str(target), str(SOURCE)],
                       check=True)
        return target.read_bytes()


asked: list[int] = []
rng = np.random.default_rng(0)
with acl.Stream(0) as stream, acl.Pool(0) as pool:
    pool.register(stream)

    a, b = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    (total,) = acl.Op("Add")(a, b, stream=stream)
    assert np.array_equal(total.numpy(), a + b)
    print(f"Add: {a.shape} + {b.shape} -> {total.shape}")
    total.close()

    acl.Op.add_kernel("WorkspaceSum", "sum_f32", "workspace_sum", compiled())

    @acl.Op.compiler("WorkspaceSum")
    def choose(
        inputs: tuple[acl.TensorInfo, ...], outputs: tuple[acl.TensorInfo, ...], choice: acl.KernelChoice,
    ) -> None:
        count = int(np.prod(inputs[0].shape))
        asked.append(count)
        choice.use("sum_f32", 1, args=struct.pack("Q", count), workspaces=[PARTS * BYTES, BYTES])

    for count in (10, 1000, 100_000):
        x = rng.standard_normal(count).astype(np.float32)
        (result,) = acl.Op("WorkspaceSum")(x, outputs=[((1,), "float32")], stream=stream)
        assert np.isclose(result.numpy()[0], x.sum(dtype=np.float64), rtol=1e-5, atol=1e-4)
        print(f"WorkspaceSum of {count}: {result.numpy()[0]:.4f}, with workspaces of {PARTS * BYTES} and {BYTES} bytes")
        result.close()
    acl.Op.remove_compiler("WorkspaceSum")
    assert asked == [10, 1000, 100_000]
