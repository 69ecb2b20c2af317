"""Compile and load kernels, and launch them with plain numbers and with device arguments (V2).

On the simulator a kernel binary is a host shared object (see acl_sim_kernel.h), compiled here with
gcc from kernels/*.c.
"""

import ctypes
import os
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl

FOLDER = Path(__file__).parent / "kernels"


def compiled() -> bytes:
    """Return the kernels as a shared object."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernels.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", f"-I{acl.include_dir()}", "-o", str(target),
             *map(str, sorted(FOLDER.glob("*.c")))], check=True)
        return target.read_bytes()


rng = np.random.default_rng(0)
with acl.Stream(0) as stream, acl.Pool(0) as pool, acl.Module(compiled()) as module:
    pool.register(stream)

    # Pass numbers of Python: the C types of the kernel's parameters are stated once.
    count = 100_000
    a, b = (rng.standard_normal(count).astype(np.float32) for _ in range(2))
    left, right, total = (pool.empty(count, "float32", stream) for _ in range(3))
    acl.copy(left.buffer, a)
    acl.copy(right.buffer, b)
    pointer = ctypes.c_void_p
    add = module.kernel("vector_add", (pointer, pointer, pointer, ctypes.c_uint32))
    add.launch(8, left, right, total, count, stream=stream)
    assert np.array_equal(total.numpy(), a + b)
    print(f"vector_add: {count} sums by 8 blocks")

    # Launch it with arguments that are already in device memory: aclrtLaunchKernelV2.
    packed = struct.pack("QQQI", left.address, right.address, total.address, count)
    with pool.alloc(len(packed), stream) as arguments:
        acl.copy(arguments, packed)
        add.launch_device(3, arguments, nbytes=len(packed), stream=stream)
        assert np.array_equal(total.numpy(), a + b)
    print("vector_add: again, its arguments on the device")

    # Pass NumPy scalars: each has a size of its own, so no C types are needed.
    m, n, k = 70, 50, 90
    x, y = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    first, second, product = (pool.empty(s, "float32", stream) for s in ((m, k), (k, n), (m, n)))
    acl.copy(first.buffer, x)
    acl.copy(second.buffer, y)
    module.kernel("tiled_matmul").launch(
        4, first, second, product, np.uint32(m), np.uint32(n), np.uint32(k), stream=stream)
    assert np.allclose(product.numpy(), x @ y, atol=1e-4)
    print(f"tiled_matmul: [{m}, {k}] x [{k}, {n}] by 4 blocks")

    for array in (left, right, total, first, second, product):
        array.close()
