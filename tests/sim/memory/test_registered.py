"""Host memory that the user registers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from support.calls import api, out
from support.memory import MemoryScene, PtrAttributes, read

REGISTERED, NOT_REGISTERED = 507910, 507911


@pytest.fixture
def scene() -> Iterator[MemoryScene]:
    made = MemoryScene()
    yield made
    api.aclrtHostUnregister(made.page)
    made.close()


def location(address: int) -> tuple[int, int]:
    attributes = PtrAttributes()
    assert api.aclrtPointerGetAttributes(address, ctypes.byref(attributes)) == 0
    return attributes.location.type, attributes.location.id


def test_locations(scene: MemoryScene) -> None:
    assert location(scene.device + 5) == (1, 0)
    assert location(scene.mapped) == (1, 0)
    assert location(scene.pinned) == (0, 0)
    assert location(scene.managed) == (3, 0)
    assert location(scene.page) == (2, 0)
    assert location(scene.free_place) == (2, 0)
    assert api.aclrtHostRegister(scene.page, 4096, 0, scene.out) == 0
    assert location(scene.page + 4095) == (0, 0)
    assert location(scene.page + 4096) == (2, 0)
    assert api.aclrtHostUnregister(scene.page) == 0
    assert location(scene.page) == (2, 0)


@pytest.mark.parametrize("kind", [0, 4, 8, 12])
def test_register_gives_the_devices_address(scene: MemoryScene, kind: int) -> None:
    there = out()
    assert api.aclrtHostRegister(scene.page, 4096, kind, ctypes.byref(there)) == 0
    ctypes.memset(scene.page, 3, 64)
    assert api.aclrtMemcpy(scene.device, 64, there, 64, 3) == 0
    assert read(scene.device, 64) == b"\3" * 64
    again = out()
    assert api.aclrtHostGetDevicePointer(scene.page, ctypes.byref(again), 0) == 0
    assert again.value == there.value
    assert api.aclrtHostRegister(scene.page, 4096, kind, ctypes.byref(again)) == 0  # again: the same address
    assert again.value == there.value
    assert api.aclrtHostUnregister(scene.page) == 0
    assert api.aclrtHostUnregister(scene.page) == NOT_REGISTERED
    assert api.aclrtHostGetDevicePointer(scene.page, ctypes.byref(again), 0) == 107000


def test_registering_again_with_flags_is_refused(scene: MemoryScene) -> None:
    assert api.aclrtHostRegisterV2(scene.page, 4096, 2) == 0
    for flag in (2, 4, 8, 0x10000000, 0x10000002):
        assert api.aclrtHostRegisterV2(scene.page, 4096, flag) == REGISTERED
    assert api.aclrtHostRegisterV2(scene.page + 4092, 100, 2) == REGISTERED  # overlaps
    assert api.aclrtHostRegisterV2(scene.page + 4096, 100, 2) == 0
    assert api.aclrtHostUnregister(scene.page + 4096) == 0
    assert api.aclrtHostUnregister(scene.page) == 0


def test_pinned_without_mapping_has_no_device_address(scene: MemoryScene) -> None:
    there = out()
    assert api.aclrtHostRegisterV2(scene.page, 4096, 0x10000000) == 0
    assert api.aclrtHostGetDevicePointer(scene.page, ctypes.byref(there), 0) == 107000
    assert api.aclrtHostUnregister(scene.page) == 0


def test_pinned_memory_is_ordinary_memory(scene: MemoryScene) -> None:
    ctypes.memset(scene.pinned, 0x41, 65536)
    assert ctypes.string_at(scene.pinned + 65534, 2) == b"AA"
    assert scene.pinned % 512 == 0


def test_memory_types(scene: MemoryScene) -> None:
    result = out(ctypes.c_uint32, 9)
    both = (ctypes.c_void_p * 2)(scene.device, scene.mapped)
    mixed = (ctypes.c_void_p * 2)(scene.device, scene.pinned)
    for addresses, kind, expected in [(both, 2, 1), (mixed, 2, 0), (both, 8, 0), (both, 10, 1)]:
        assert api.aclrtCheckMemType(ctypes.addressof(addresses), 2, kind, ctypes.byref(result), 0) == 0
        assert result.value == expected
