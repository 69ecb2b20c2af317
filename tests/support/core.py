"""The allocator as ACL sees it: five pointers, called through ctypes; and texts of a pool's blocks.

A `Door` looks up the allocator that is registered for a stream, so it calls the functions that GE would call.  ctypes
releases the GIL during each call; GE's threads do not hold the GIL either.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import acl
import acl.sim
from support.calls import api

__all__ = [
    "Door", "MIB", "Made", "Slow", "UNIT", "blocks_at", "contents", "layout", "open_door", "physical",
    "physical_base",
]

UNIT = 512
MIB = 1 << 20

_base = 0


@pytest.fixture(autouse=True)
def physical_base() -> None:
    """Free dropped objects of other tests, and exclude the memory that is then in use from `physical`.

    Otherwise a garbage collection during this test would free their memory, and `physical` would be too small.
    """
    global _base
    if acl.sim.physical_bytes() > 0:
        gc.collect()
        for ordinal in reversed(range(acl.Device.count())):
            device = acl.Device(ordinal)
            device.use()
            device.synchronize()        # frees memory that was dropped while a stream used it
    _base = acl.sim.physical_bytes()


def physical() -> int:
    """Return the device memory that was reserved since the test began, by the simulator's accounting."""
    return acl.sim.physical_bytes() - _base


_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_ADVISE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Door:
    """The allocator that is registered for a stream: the five values that ACL has, and methods that call them."""

    def __init__(self, stream: acl.Stream | int) -> None:
        found = acl.allocator_of(stream)
        assert found is not None, "nothing is registered for the stream"
        self.values = tuple(found[:5])
        self.object = found.object
        self._alloc, self._free = _ALLOC(found.alloc), _FREE(found.free)
        self._advise, self._address = _ADVISE(found.alloc_advise), _ADDRESS(found.get_addr)

    def alloc(self, size: int) -> int:
        """Allocate a block and return it; 0 if that fails."""
        return self._alloc(self.object, size) or 0

    def advise(self, size: int, address: int) -> int:
        return self._advise(self.object, size, address) or 0

    def free(self, block: int) -> None:
        self._free(self.object, block)

    def address(self, block: int) -> int:
        return self._address(block) or 0

    def take(self, size: int) -> tuple[int, int]:
        """Allocate a block; return the block and its address.  GE does this in two calls too."""
        block = self.alloc(size)
        assert block, f"{size} bytes could not be had"
        address = self.address(block)
        assert address and address % UNIT == 0
        return block, address


@contextmanager
def open_door(device: int = 0, **options: Any) -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    """Context manager: yield a pool, a stream for which it is registered, and their `Door`; close all at the end."""
    with acl.Pool(device, **options) as pool, acl.Stream(device) as stream:
        pool.register(stream)
        yield pool, stream, Door(stream)
        pool.unregister(stream)


Made = tuple[acl.Pool, acl.Stream, Door]


def layout(pool: acl.Pool, stream: acl.Stream | int | None = None, unit: int = MIB) -> str:
    """Return a stream's blocks in address order, as state and size in units, such as "L3 F1 L2".

    States are L(ive), C(ached), F(ree), W(aiting) for a pending free, M(oving).  Holes are left out.  Address ranges
    are separated by "|".
    """
    parts: list[str] = []
    after = None
    for block in pool.blocks(stream):
        if after is not None and block.address != after:
            parts.append("|")
        after = block.address + block.size
        if block.state != "hole":
            amount = block.size / unit
            parts.append(f"{block.state[0].upper()}{amount:g}")
    text = " ".join(parts)
    while "| |" in text:
        text = text.replace("| |", "|")
    return text.strip(" |")


def blocks_at(pool: acl.Pool, stream: acl.Stream | int | None, state: str) -> list[int]:
    """Return the addresses of a stream's blocks in a state."""
    return [block.address for block in pool.blocks(stream) if block.state == state]


class Slow:
    """Work that keeps a stream busy until `go_on` is called or its `with` block ends: the stream waits for a notify.

    The wait uses neither Python nor the only thread for host callbacks, so several streams can be busy at one time.
    """

    def __init__(self, stream: acl.Stream) -> None:
        self._stream = stream
        self._signal = acl.Stream(stream.device)
        self._notify = ctypes.c_void_p()
        assert api.aclrtCreateNotify(ctypes.byref(self._notify), 0) == 0
        assert api.aclrtWaitAndResetNotify(self._notify, stream.handle, 0) == 0
        self._held = True

    def go_on(self) -> None:
        """Let the stream continue; any thread may call this."""
        if self._held:
            self._held = False
            acl.Device(self._signal.device).use()
            assert api.aclrtRecordNotify(self._notify, self._signal.handle) == 0

    def __enter__(self) -> Slow:
        assert not self._stream.query()
        return self

    def __exit__(self, *error: object) -> None:
        self.go_on()
        self._stream.synchronize()
        self._signal.close()
        assert api.aclrtDestroyNotify(self._notify) == 0


def contents(address: int, size: int) -> bytes:
    """Return bytes of the simulator's device memory, all of which must be mapped."""
    return ctypes.string_at(address, size)
