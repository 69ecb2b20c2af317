"""Helpers of the tests of the simulator's memory: C structures, and a scene with one object of each kind."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from support.calls import api, out

__all__ = [
    "GRANULE", "AccessDesc", "BatchAttr", "Config", "Location", "MemoryScene", "PhysicalProp", "PoolProps",
    "PtrAttributes", "config", "made", "read", "write",
]

GRANULE = 2 << 20
HOST, DEVICE = 0, 1
H2D, D2H = 1, 2


class Location(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("type", ctypes.c_int)]


class PtrAttributes(ctypes.Structure):
    _fields_ = [("location", Location), ("page_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32 * 4)]


class PhysicalProp(ctypes.Structure):
    _fields_ = [
        ("handle_type", ctypes.c_int), ("allocation_type", ctypes.c_int), ("attribute", ctypes.c_int),
        ("location", Location), ("reserve", ctypes.c_uint64),
    ]


class AccessDesc(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_int), ("location", Location), ("reserved", ctypes.c_uint8 * 12)]


class PoolProps(ctypes.Structure):
    _fields_ = [
        ("allocation_type", ctypes.c_int), ("handle_type", ctypes.c_int), ("location", Location),
        ("max_size", ctypes.c_size_t), ("reserved", ctypes.c_ubyte * 32),
    ]


class BatchAttr(ctypes.Structure):
    _fields_ = [("dst", Location), ("src", Location), ("reserved", ctypes.c_uint8 * 16)]


class Attribute(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("value", ctypes.c_uint32 * 2)]


class Config(ctypes.Structure):
    _fields_ = [("attributes", ctypes.c_void_p), ("count", ctypes.c_size_t)]


def config(*attributes: tuple[int, int]) -> Config:
    """Return an aclrtMallocConfig with attributes of these kinds and values."""
    rows = (Attribute * max(1, len(attributes)))()
    for row, (kind, value) in zip(rows, attributes, strict=False):
        row.kind, row.value[0] = kind, value
    made = Config(ctypes.addressof(rows), len(attributes))
    made.keep = rows
    return made


def made(function: str, *arguments: Any) -> int:
    """Call a function whose first argument is a pointer for the result, and return the result."""
    result = out()
    assert getattr(api, function)(ctypes.byref(result), *arguments) == 0, api.aclGetRecentErrMsg()
    assert result.value is not None
    return int(result.value)


def write(address: int, data: bytes) -> None:
    """Copy bytes to device memory."""
    assert api.aclrtMemcpy(address, len(data), data, len(data), H2D) == 0, api.aclGetRecentErrMsg()


def read(address: int, size: int) -> bytes:
    """Return bytes of device memory."""
    buffer = ctypes.create_string_buffer(size)
    assert api.aclrtMemcpy(buffer, size, address, size, D2H) == 0, api.aclGetRecentErrMsg()
    return buffer.raw


class MemoryScene:
    """One object of each kind that memory functions accept; `close` frees all of them."""

    def __init__(self) -> None:
        api.aclInit(None)
        assert api.aclrtSetDevice(0) == 0
        self._undo: list[tuple[str, int]] = []
        self.buffer = (ctypes.c_ubyte * 16384)()
        self.out = ctypes.addressof(self.buffer)
        self.garbage = self.out + 8192
        self.host = self.out + 12288
        self._pages = mmap.mmap(-1, 8192)
        self._view = (ctypes.c_ubyte * 8192).from_buffer(self._pages)
        self.page = ctypes.addressof(self._view)
        self.stream = self.take("aclrtCreateStream", "aclrtDestroyStream")
        self.dead = made("aclrtCreateStream")
        assert api.aclrtDestroyStream(self.dead) == 0
        self.device = self.take("aclrtMalloc", "aclrtFree", max(65536, 4 * mmap.PAGESIZE), 0)
        self.other = self.take("aclrtMalloc", "aclrtFree", 65536, 0)
        self.pinned = self.take("aclrtMallocHost", "aclrtFreeHost", 65536)
        self.prop = PhysicalProp(attribute=4, location=Location(0, DEVICE))
        self.reserved = self.take("aclrtReserveMemAddress", "aclrtReleaseMemAddress", 4 * GRANULE, 0, None, 1)
        self.handle = self.take("aclrtMallocPhysical", "aclrtFreePhysical", GRANULE, ctypes.byref(self.prop), 0)
        self.mapped = self.reserved
        assert api.aclrtMapMem(self.mapped, GRANULE, 0, self.handle, 0) == 0
        self._undo.append(("aclrtUnmapMem", self.mapped))
        self.free_place = self.reserved + GRANULE
        self.pool_props = PoolProps(location=Location(0, DEVICE))
        self.pool = self.take("aclrtMemPoolCreate", "aclrtMemPoolDestroy", ctypes.byref(self.pool_props))
        self.managed = self.take("aclrtMemAllocManaged", "aclrtFree", 65536, 1)

    def take(self, function: str, undo: str, *arguments: Any) -> int:
        """Create an object and return it; `close` will pass it to the function `undo`."""
        result = made(function, *arguments)
        self._undo.append((undo, result))
        return result

    def close(self) -> None:
        assert api.aclrtSynchronizeDevice() == 0
        for function, thing in reversed(self._undo):
            assert getattr(api, function)(thing) == 0, (function, api.aclGetRecentErrMsg())
        del self._view
        self._pages.close()
