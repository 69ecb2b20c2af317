"""`acl.media` without CANN's module: the two memory functions that many programs use.

On a device, image and video processing needs CANN's own module.  The simulator has no hardware for it.  But
programs that only allocate memory with `dvpp_malloc` run unchanged: here it returns ordinary device memory.
Using any other name of `media` raises an error that says what is missing.
"""

from __future__ import annotations

from acl import rt
from acl.pyacl import _vendor

__all__ = ["dvpp_free", "dvpp_malloc"]


def __getattr__(name: str) -> object:
    """Raise AttributeError for a name that only CANN's module has."""
    raise AttributeError(_vendor.absence("acl.media", name))


def dvpp_malloc(size: int) -> tuple[int, int]:
    """dev_ptr, ret = acl.media.dvpp_malloc(size)"""
    if not isinstance(size, int):
        raise TypeError("acl.media.dvpp_malloc args parse failed")
    return rt.malloc(size, 0)


def dvpp_free(dev_ptr: int) -> int:
    """ret = acl.media.dvpp_free(dev_ptr)"""
    if not isinstance(dev_ptr, int):
        raise TypeError("acl.media.dvpp_free args parse failed")
    return rt.free(dev_ptr)
