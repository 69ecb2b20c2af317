"""Fixtures of the simulator's tests.

Tests that need an extra package are not collected if it is missing, so no test of a basic installation is skipped.
"""

import ctypes
import importlib.util
from collections.abc import Iterator

import pytest
from support.calls import api, out

collect_ignore = [] if importlib.util.find_spec("onnxruntime") else ["models/test_onnxruntime.py"]


@pytest.fixture
def device() -> None:
    """Make device 0 current."""
    assert api.aclInit(None) in (0, 100002)
    assert api.aclrtSetDevice(0) == 0


@pytest.fixture
def raw_stream(device: None) -> Iterator[int]:
    """Create a stream through the C API and return its handle."""
    made = out()
    assert api.aclrtCreateStream(ctypes.byref(made)) == 0
    yield made.value
    assert api.aclrtDestroyStream(made) == 0
