"""`acl.media` where CANN's module is not: the two memory functions that plain programs use.

On a device, image and video processing needs CANN's own module.  On the simulator there is no such
hardware, but programs that only take their device memory by `dvpp_malloc` run as they are: it is
device memory like any other.  Nothing else of `media` is here, and a program that asks for more is
told at once what it needs.
"""

from __future__ import annotations

from acl import rt
from acl.pyacl import _vendor

__all__ = ["dvpp_free", "dvpp_malloc"]


def __getattr__(name: str) -> object:
    """Only CANN's module has it."""
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
