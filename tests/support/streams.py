"""Streams that C code makes and destroys, so that the package knows only their handles."""

from __future__ import annotations

import ctypes

import acl
from support.calls import api, out

__all__ = ["destroy", "made"]


def made() -> int:
    """Return the handle of a stream that this package did not make."""
    acl.Device(0).use()
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    return int(stream.value)


def destroy(handle: int) -> None:
    acl.Device(0).use()
    assert api.aclrtDestroyStream(ctypes.c_void_p(handle)) == 0
