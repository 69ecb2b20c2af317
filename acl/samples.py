"""Small ONNX models to try the package with, and what builds and checks them; nothing is downloaded or installed.

    model = acl.Model(acl.samples.encoder().to_bytes())

`encoder` and `detector` return a `Builder` with a model of random weights from a fixed seed: the results mean nothing,
but `evaluate` computes them with NumPy.  A `Builder` also writes ONNX files of your own.
"""

from __future__ import annotations

from acl.tools.demo.models import WIDTH, Request, detector, encoder, requests
from acl.tools.numpy_ops import evaluate
from acl.tools.onnx_writer import Builder

__all__ = ["Builder", "Request", "WIDTH", "detector", "encoder", "evaluate", "requests"]
