"""A model whose batch and length change from request to request, with memory from a pool of this package.

On the simulator the model is an ONNX file, made here; on an NPU, give the path of an .om file whose
input is [n, 16] float32: ``python dynamic_shape.py model.om``.
"""

import os
import sys

import numpy as np

if len(sys.argv) == 1:
    os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl
from acl.samples import Builder

weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)


def made_model() -> bytes:
    """Return the model y = softmax(relu(x) @ weight), for x of [n, 16]."""
    b = Builder()
    x = b.input("x", "float32", ["n", 16])
    b.add("Softmax", b.add("MatMul", b.add("Relu", x), b.constant(weight)), axis=-1, outputs=["y"])
    b.output("y", "float32", ["n", 4])
    return b.to_bytes()


def expected(x: np.ndarray) -> np.ndarray:
    scores: np.ndarray = np.exp(np.maximum(x, 0) @ weight)
    shares: np.ndarray = scores / scores.sum(axis=-1, keepdims=True)
    return shares


rng = np.random.default_rng(0)
with acl.Stream(0) as stream, acl.Pool(0) as pool:
    pool.register(stream)
    with acl.Model(sys.argv[1] if len(sys.argv) > 1 else made_model()) as model:
        print(model)
        for rows in (1, 300, 7, 128, 2, 300, 7):
            x = rng.standard_normal((rows, 16)).astype(np.float32)
            (y,) = model(x, stream=stream)
            assert y.shape == (rows, 4) and np.allclose(y, expected(x), atol=1e-5)
            print(f"x {x.shape} -> y {y.shape}")
        stats = pool.stats()
    print(f"{stats.allocations} allocations, {stats.slow} of them asked the driver; "
          f"{stats.requested_peak:,} bytes asked for at most, {stats.reserved_peak:,} reserved")
