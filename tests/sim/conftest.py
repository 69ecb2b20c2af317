"""Fixtures of the simulator's tests.

Tests that want an extra package are not collected where it is missing: the base set-up skips nothing.
"""

import ctypes
import importlib.util
from collections.abc import Iterator

import pytest
from support.calls import api, out

collect_ignore = [] if importlib.util.find_spec("onnxruntime") else ["models/test_onnxruntime.py"]


@pytest.fixture
def device() -> None:
    """Device 0 is current."""
    assert api.aclInit(None) in (0, 100002)
    assert api.aclrtSetDevice(0) == 0


@pytest.fixture
def raw_stream(device: None) -> Iterator[int]:
    """The handle of a stream of the C API."""
    made = out()
    assert api.aclrtCreateStream(ctypes.byref(made)) == 0
    yield made.value
    assert api.aclrtDestroyStream(made) == 0
