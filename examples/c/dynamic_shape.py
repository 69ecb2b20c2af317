"""Writes the model that dynamic_shape.c runs: ``python dynamic_shape.py MODEL``."""

import sys
from pathlib import Path

import numpy as np

from acl.samples import Builder

b = Builder()
h = b.add("MatMul", b.input("x", "float32", ["rows", 8]), b.constant(np.ones((8, 16), np.float32)))
b.add("Softmax", b.add("Relu", h), axis=-1, outputs=["y"])
b.output("y", "float32", ["rows", 16])
Path(sys.argv[1]).write_bytes(b.to_bytes())
