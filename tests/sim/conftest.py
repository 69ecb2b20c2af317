"""Tests that want an extra package are not collected where it is missing: the base set-up skips nothing."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("onnxruntime") else ["test_onnxruntime.py"]
