"""Argument rules of virtual memory, sharing, pools and managed memory: rows as in test_rules_memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api
from support.memory import DEVICE as ON_DEVICE
from support.memory import GRANULE, AccessDesc, Location, MemoryScene, PhysicalProp, PoolProps
from support.rules import code_of

P, RT, DEVICE, HANDLE = 100000, 107000, 107001, 107017
OTHER_CONTEXT, UNSUPPORTED, NO_MEMORY, INTERNAL = 107003, 207000, 207001, 507000
NULL = None
MOST = 2**64 - 1


class Scene(MemoryScene):
    """The objects of MemoryScene, and access descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.readwrite = AccessDesc(3, Location(0, ON_DEVICE))
        self.bad_access = AccessDesc(2, Location(0, ON_DEVICE))
        self.bad_place = AccessDesc(3, Location(99, ON_DEVICE))
        self.here = Location(0, ON_DEVICE)
        self.nowhere = Location(0, 3)
        ctypes.memset(self.host, 1, 64)  # so that a number that is read from it is not 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def managed_location(kind: int, number: int) -> int:
    """Return an aclrtMemManagedLocation as an integer, because it is passed in one register."""
    return kind | (number & 0xFFFFFFFF) << 32


HERE, ON_HOST = managed_location(1, 0), managed_location(2, 0)

ROWS: list[tuple[str, list[Any], int]] = [
    # The next rows test calls that reserve and release addresses.
    ("aclrtReserveMemAddress", [NULL, GRANULE, 0, NULL, 0], P),
    ("aclrtReserveMemAddress", ["out", 0, 0, NULL, 0], P),
    ("aclrtReserveMemAddress", ["out", GRANULE, 0, NULL, 2], P),
    ("aclrtReserveMemAddress", ["out", GRANULE, 4096, NULL, 1], RT),
    ("aclrtReserveMemAddress", ["out", MOST, 0, NULL, 1], NO_MEMORY),
    ("aclrtReserveMemAddressNoUCMemory", [NULL, GRANULE, 0, NULL, 0], P),
    ("aclrtReserveMemAddressNoUCMemory", ["out", 0, 0, NULL, 0], P),
    ("aclrtReserveMemAddressNoUCMemory", ["out", GRANULE, 0, NULL, 2], P),
    ("aclrtReleaseMemAddress", [NULL], P),
    ("aclrtReleaseMemAddress", ["garbage"], RT),
    ("aclrtReleaseMemAddress", ["reserved+2097152"], RT),
    ("aclrtReleaseMemAddress", ["reserved"], RT),  # something is mapped in it
    # The next rows test calls for physical memory.
    ("aclrtMallocPhysical", [NULL, GRANULE, "prop", 0], P),
    ("aclrtMallocPhysical", ["out", GRANULE, NULL, 0], P),
    ("aclrtMallocPhysical", ["out", 0, "prop", 0], P),
    ("aclrtMallocPhysical", ["out", GRANULE, "prop", 1], P),
    ("aclrtMallocPhysical", ["out", 100, "prop", 0], RT),
    ("aclrtMallocPhysical", ["out", 1 << 50, "prop", 0], NO_MEMORY),
    ("aclrtFreePhysical", [NULL], P),
    ("aclrtFreePhysical", ["garbage"], HANDLE),
    ("aclrtFreePhysical", ["stream"], HANDLE),
    ("aclrtMemGetAllocationGranularity", [NULL, 0, "out"], P),
    ("aclrtMemGetAllocationGranularity", ["prop", 0, NULL], P),
    ("aclrtMemGetAllocationGranularity", ["prop", 2, "out"], RT),
    ("aclrtMemGetAllocationGranularity", ["prop", 0xFFFF, "out"], RT),
    ("aclrtMemGetAllocationGranularity", ["prop", 1, "out"], 0),
    ("aclrtMemGetAllocationPropertiesFromHandle", [NULL, "out"], P),
    ("aclrtMemGetAllocationPropertiesFromHandle", ["handle", NULL], P),
    ("aclrtMemGetAllocationPropertiesFromHandle", ["garbage", "out"], HANDLE),
    ("aclrtMemGetAllocationPropertiesFromHandle", ["handle", "out"], 0),
    # The next rows test calls that map and unmap memory.
    ("aclrtMapMem", [NULL, GRANULE, 0, "handle", 0], P),
    ("aclrtMapMem", ["free_place", GRANULE, 0, NULL, 0], P),
    ("aclrtMapMem", ["free_place", 0, 0, "handle", 0], P),
    ("aclrtMapMem", ["free_place", GRANULE, 0, "handle", 1], P),
    ("aclrtMapMem", ["free_place", GRANULE, 0, "garbage", 0], HANDLE),
    ("aclrtMapMem", ["free_place", GRANULE, 4096, "handle", 0], RT),
    ("aclrtMapMem", ["free_place", 4096, 0, "handle", 0], RT),
    ("aclrtMapMem", ["free_place", 2 * GRANULE, 0, "handle", 0], RT),
    ("aclrtMapMem", ["free_place+4096", GRANULE, 0, "handle", 0], RT),
    ("aclrtMapMem", ["mapped", GRANULE, 0, "handle", 0], RT),  # already mapped
    ("aclrtMapMem", ["device", GRANULE, 0, "handle", 0], RT),  # not reserved
    ("aclrtMemMapNoAccess", [NULL, GRANULE, 0, "handle", 0], P),
    ("aclrtMemMapNoAccess", ["free_place", GRANULE, 0, NULL, 0], P),
    ("aclrtMemMapNoAccess", ["free_place", 0, 0, "handle", 0], P),
    ("aclrtMemMapNoAccess", ["free_place", GRANULE, 0, "handle", 1], P),
    ("aclrtUnmapMem", [NULL], P),
    ("aclrtUnmapMem", ["garbage"], RT),
    ("aclrtUnmapMem", ["free_place"], RT),
    ("aclrtUnmapMem", ["mapped+4096"], RT),
    ("aclrtMemRetainAllocationHandle", [NULL, "out"], P),
    ("aclrtMemRetainAllocationHandle", ["mapped", NULL], P),
    ("aclrtMemRetainAllocationHandle", ["free_place", "out"], RT),
    ("aclrtMemRetainAllocationHandle", ["device", "out"], RT),
    # The next rows test access rights of mappings.
    ("aclrtMemSetAccess", [NULL, GRANULE, "readwrite", 1], RT),
    ("aclrtMemSetAccess", ["mapped", GRANULE, NULL, 1], RT),
    ("aclrtMemSetAccess", ["mapped", 0, "readwrite", 1], RT),
    ("aclrtMemSetAccess", ["mapped", GRANULE, "readwrite", 0], RT),
    ("aclrtMemSetAccess", ["mapped", GRANULE, "bad_access", 1], RT),
    ("aclrtMemSetAccess", ["mapped", GRANULE, "bad_place", 1], DEVICE),
    ("aclrtMemSetAccess", ["mapped", 2 * GRANULE, "readwrite", 1], RT),
    ("aclrtMemSetAccess", ["mapped", 4096, "readwrite", 1], RT),
    ("aclrtMemSetAccess", ["free_place", GRANULE, "readwrite", 1], RT),
    ("aclrtMemSetAccess", ["mapped", GRANULE, "readwrite", 1], 0),
    ("aclrtMemGetAccess", [NULL, "here", "out"], P),
    ("aclrtMemGetAccess", ["mapped", NULL, "out"], P),
    ("aclrtMemGetAccess", ["mapped", "here", NULL], P),
    ("aclrtMemGetAccess", ["mapped", "nowhere", "out"], RT),
    ("aclrtMemGetAccess", ["free_place", "here", "out"], RT),
    ("aclrtMemGetAccess", ["mapped", "here", "out"], 0),
    # The next rows test links between devices.
    ("aclrtMemMapSelectedLink", [NULL, 64, "mapped", 0], P),
    ("aclrtMemMapSelectedLink", ["free_place", 64, NULL, 0], P),
    ("aclrtMemMapSelectedLink", ["free_place", 0, "mapped", 0], P),
    ("aclrtMemMapSelectedLink", ["free_place", GRANULE, "mapped", 2], P),
    ("aclrtMemMapSelectedLink", ["free_place", GRANULE, "mapped+4096", 0], RT),
    ("aclrtMemMapSetLink", [NULL, 0], P),
    ("aclrtMemMapSetLink", ["garbage", 0], HANDLE),
    ("aclrtMemMapSetLink", ["handle", 4], RT),
    ("aclrtMemMapSetLink", ["handle", 1], 0),
    # The next rows test shareable handles.
    ("aclrtMemExportToShareableHandle", [NULL, 0, 0, "out"], P),
    ("aclrtMemExportToShareableHandle", ["handle", 2, 0, "out"], P),
    ("aclrtMemExportToShareableHandle", ["handle", 0, 0, NULL], P),
    ("aclrtMemExportToShareableHandle", ["garbage", 0, 2, "out"], RT),
    ("aclrtMemExportToShareableHandle", ["garbage", 0, 0, "out"], HANDLE),
    ("aclrtMemExportToShareableHandle", ["handle", 0, 1, "out"], 0),
    ("aclrtMemExportToShareableHandleV2", [NULL, 0, 1, "out"], P),
    ("aclrtMemExportToShareableHandleV2", ["handle", 0, 1, NULL], P),
    ("aclrtMemExportToShareableHandleV2", ["garbage", 2, 1, "out"], RT),
    ("aclrtMemExportToShareableHandleV2", ["garbage", 0, 0, "out"], RT),
    ("aclrtMemExportToShareableHandleV2", ["garbage", 0, 3, "out"], RT),
    ("aclrtMemExportToShareableHandleV2", ["handle", 0, 2, "out"], 0),
    ("aclrtMemImportFromShareableHandle", [1, 0, NULL], P),
    ("aclrtMemImportFromShareableHandle", [1, 99, "out"], DEVICE),
    ("aclrtMemImportFromShareableHandle", [1, 0, "out"], RT),
    ("aclrtMemImportFromShareableHandleV2", [NULL, 1, 0, "out"], P),
    ("aclrtMemImportFromShareableHandleV2", ["host", 1, 0, NULL], P),
    ("aclrtMemImportFromShareableHandleV2", ["host", 1, 1, "out"], P),
    ("aclrtMemImportFromShareableHandleV2", ["host", 3, 0, "out"], RT),
    ("aclrtMemImportFromShareableHandleV2", ["host", 1, 0, "out"], RT),
    ("aclrtMemImportFromShareableHandleV2", ["garbage", 2, 0, "out"], RT),
    ("aclrtMemSetPidToShareableHandle", [1, NULL, 1], P),
    ("aclrtMemSetPidToShareableHandle", [1, "host", 0], P),
    ("aclrtMemSetPidToShareableHandle", [1, "host", 1], RT),
    ("aclrtMemSetPidToShareableHandleV2", [NULL, 1, "host", 1], P),
    ("aclrtMemSetPidToShareableHandleV2", ["garbage", 1, NULL, 1], P),
    ("aclrtMemSetPidToShareableHandleV2", ["garbage", 1, "host", 0], P),
    ("aclrtMemSetPidToShareableHandleV2", ["garbage", 3, "host", 1], RT),
    # The next rows test keys by which processes share memory.
    ("aclrtIpcMemGetExportKey", [NULL, 64, "out", 65, 0], P),
    ("aclrtIpcMemGetExportKey", ["device", 64, NULL, 65, 0], P),
    ("aclrtIpcMemGetExportKey", ["device", 0, "out", 65, 0], RT),
    ("aclrtIpcMemGetExportKey", ["device", 64, "out", 0, 0], RT),
    ("aclrtIpcMemGetExportKey", ["device", 64, "out", 64, 0], RT),
    ("aclrtIpcMemGetExportKey", ["device", 64, "out", 65, 2], RT),
    ("aclrtIpcMemGetExportKey", ["device+4096", 64, "out", 65, 0], RT),  # a part of a block
    ("aclrtIpcMemGetExportKey", ["device", 1 << 20, "out", 65, 0], RT),
    ("aclrtIpcMemGetExportKey", ["pinned", 64, "out", 65, 0], RT),
    ("aclrtIpcMemGetExportKey", ["device", 64, "out", 65, 1], 0),
    ("aclrtIpcMemImportByKey", [NULL, b"key", 0], P),
    ("aclrtIpcMemImportByKey", ["out", NULL, 0], P),
    ("aclrtIpcMemImportByKey", ["out", b"key", 2], RT),
    ("aclrtIpcMemImportByKey", ["out", b"key", 0], RT),
    ("aclrtIpcMemImportByKey", ["out", b"acl-sim-ipc-0000000000000001", 0], RT),
    ("aclrtIpcMemClose", [NULL], P),
    ("aclrtIpcMemClose", [b"key"], RT),
    ("aclrtIpcMemSetImportPid", [NULL, "host", 1], P),
    ("aclrtIpcMemSetImportPid", [b"key", NULL, 1], P),
    ("aclrtIpcMemSetImportPid", [b"key", "host", 0], RT),
    ("aclrtIpcMemSetImportPid", [b"key", "host", 1], RT),
    ("aclrtIpcMemSetAttr", [NULL, 0, 0], RT),
    ("aclrtIpcMemSetAttr", [b"key", 0, 0], RT),
    ("aclrtIpcMemSetAttr", [b"key", 1, 0], RT),
    ("aclrtIpcMemImportPidInterServer", [NULL, NULL, 0], RT),
    ("aclrtIpcMemImportPidInterServer", [b"key", "host", 1], UNSUPPORTED),
    # The next rows test memory pools.
    ("aclrtMemPoolCreate", [NULL, "pool_props"], P),
    ("aclrtMemPoolCreate", ["out", NULL], P),
    ("aclrtMemPoolDestroy", [NULL], P),
    ("aclrtMemPoolDestroy", ["garbage"], INTERNAL),
    ("aclrtMemPoolMallocAsync", [NULL, 64, "pool", "stream"], P),
    ("aclrtMemPoolMallocAsync", ["out", 64, NULL, "stream"], P),
    ("aclrtMemPoolMallocAsync", ["out", 64, "pool", NULL], P),
    ("aclrtMemPoolMallocAsync", ["out", 0, "garbage", "garbage"], 0),
    ("aclrtMemPoolMallocAsync", ["out", 64, "garbage", "stream"], INTERNAL),
    ("aclrtMemPoolMallocAsync", ["out", 64, "pool", "dead"], HANDLE),
    ("aclrtMemPoolMallocAsync", ["out", MOST, "pool", "stream"], RT),
    ("aclrtMemPoolMallocAsync", ["out", 1 << 50, "pool", "stream"], INTERNAL),
    ("aclrtMemPoolFreeAsync", [NULL, "stream"], P),
    ("aclrtMemPoolFreeAsync", ["device", "dead"], HANDLE),
    ("aclrtMemPoolSetAttr", [NULL, 4, "out"], P),
    ("aclrtMemPoolSetAttr", ["pool", 4, NULL], RT),
    ("aclrtMemPoolSetAttr", ["garbage", 4, "out"], RT),
    ("aclrtMemPoolSetAttr", ["pool", 0, "out"], INTERNAL),
    ("aclrtMemPoolSetAttr", ["pool", 9, "out"], INTERNAL),
    ("aclrtMemPoolSetAttr", ["pool", 5, "out"], INTERNAL),  # read only
    ("aclrtMemPoolSetAttr", ["pool", 7, "out"], INTERNAL),
    ("aclrtMemPoolSetAttr", ["pool", 6, "host"], INTERNAL),  # accepts only 0
    ("aclrtMemPoolSetAttr", ["pool", 8, "host"], INTERNAL),
    ("aclrtMemPoolSetAttr", ["pool", 4, "host"], INTERNAL),  # larger than the pool
    ("aclrtMemPoolSetAttr", ["pool", 6, "garbage"], 0),
    ("aclrtMemPoolSetAttr", ["pool", 1, "host"], 0),
    ("aclrtMemPoolGetAttr", [NULL, 4, "out"], P),
    ("aclrtMemPoolGetAttr", ["pool", 4, NULL], RT),
    ("aclrtMemPoolGetAttr", ["garbage", 4, "out"], RT),
    ("aclrtMemPoolGetAttr", ["pool", 0, "out"], INTERNAL),
    ("aclrtMemPoolGetAttr", ["pool", 9, "out"], INTERNAL),
    ("aclrtMemPoolGetAttr", ["pool", 5, "out"], 0),
    ("aclrtMemPoolTrimTo", [NULL, 0], P),
    ("aclrtMemPoolTrimTo", ["garbage", 0], INTERNAL),
    ("aclrtMemPoolTrimTo", ["pool", 1 << 50], INTERNAL),
    ("aclrtMemPoolTrimTo", ["pool", 0], 0),
    # The next rows test managed memory.
    ("aclrtMemAllocManaged", [NULL, 64, 1], P),
    ("aclrtMemAllocManaged", ["out", 64, 0], P),
    ("aclrtMemAllocManaged", ["out", 64, 2], P),
    ("aclrtMemAllocManaged", ["out", 0, 1], RT),
    ("aclrtMemManagedAdvise", [NULL, 64, 0, HERE], P),
    ("aclrtMemManagedAdvise", ["managed", 0, 0, HERE], P),
    ("aclrtMemManagedAdvise", ["managed", 64, 6, HERE], RT),
    ("aclrtMemManagedAdvise", ["managed", 64, 2, managed_location(1, 99)], RT),
    ("aclrtMemManagedAdvise", ["managed", 64, 2, managed_location(1, -1)], RT),
    ("aclrtMemManagedAdvise", ["managed", 64, 2, managed_location(0, 0)], RT),
    ("aclrtMemManagedAdvise", ["device", 64, 0, HERE], RT),
    ("aclrtMemManagedAdvise", ["managed", 1 << 30, 0, HERE], RT),
    ("aclrtMemManagedAdvise", ["managed", 64, 2, ON_HOST], 0),
    ("aclrtMemManagedPrefetchAsync", [NULL, 64, HERE, 0, "stream"], P),
    ("aclrtMemManagedPrefetchAsync", ["managed", 0, HERE, 0, "stream"], P),
    ("aclrtMemManagedPrefetchAsync", ["managed", 64, HERE, 1, "stream"], P),
    ("aclrtMemManagedPrefetchAsync", ["managed", 64, HERE, 0, "dead"], HANDLE),
    ("aclrtMemManagedPrefetchAsync", ["managed", 64, managed_location(7, 0), 0, "stream"], RT),
    ("aclrtMemManagedPrefetchAsync", ["pinned", 64, HERE, 0, "stream"], RT),
    ("aclrtMemManagedGetAttr", [1, NULL, 64, "out", 4], P),
    ("aclrtMemManagedGetAttr", [1, "managed", 64, NULL, 4], P),
    ("aclrtMemManagedGetAttr", [1, "managed", 0, "out", 4], P),
    ("aclrtMemManagedGetAttr", [0, "managed", 64, "out", 4], RT),
    ("aclrtMemManagedGetAttr", [9, "managed", 64, "out", 4], RT),
    ("aclrtMemManagedGetAttr", [1, "managed", 64, "out", 8], RT),
    ("aclrtMemManagedGetAttr", [3, "managed", 64, "out", 6], RT),
    ("aclrtMemManagedGetAttr", [1, "device", 64, "out", 4], RT),
    ("aclrtMemManagedGetAttrs", [NULL, 1, "managed", 64, "out", "host"], P),
    ("aclrtMemManagedGetAttrs", ["host", 1, NULL, 64, "out", "host"], P),
    ("aclrtMemManagedGetAttrs", ["host", 1, "managed", 64, NULL, "host"], P),
    ("aclrtMemManagedGetAttrs", ["host", 1, "managed", 64, "out", NULL], P),
    ("aclrtMemManagedGetAttrs", ["host", 1, "managed", 0, "out", "host"], P),
    ("aclrtMemManagedGetAttrs", ["host", 0, "managed", 64, "out", "host"], RT),
    ("aclrtMemManagedPrefetchBatchAsync", [NULL, "host", 1, "host", "garbage", 1, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", NULL, 1, "host", "garbage", 1, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 0, "host", "garbage", 1, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 1, NULL, "garbage", 1, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 1, "host", NULL, 1, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 1, "host", "garbage", 0, 0, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 1, "host", "garbage", 1, 1, "stream"], P),
    ("aclrtMemManagedPrefetchBatchAsync", ["out", "host", 1, "host", "garbage", 2, 0, "stream"], RT),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_rule(scene: Scene, row: tuple[str, list[Any], int]) -> None:
    function, arguments, code = row
    assert code_of(scene, function, arguments) == code, api.aclGetRecentErrMsg()


# The memAttr values that aclrtMallocPhysical refuses, on the device and on the host.
ON_DEVICE_REFUSED = {-1, 0, 1, 2, 3, 6, 7, 8, 9, 11, 18, 19}
ON_HOST_REFUSED = {-1, 0, 1, 8, 9, 11, 18, 19}


@pytest.mark.parametrize(("place", "refused"), [(1, ON_DEVICE_REFUSED), (0, ON_HOST_REFUSED), (4, ON_HOST_REFUSED)])
def test_attributes_of_physical_memory(scene: Scene, place: int, refused: set[int]) -> None:
    for function in ("aclrtMallocPhysical", "aclrtMemGetAllocationGranularity"):
        for attribute in range(-1, 20):
            prop = PhysicalProp(attribute=attribute, location=Location(0, place))
            if function == "aclrtMallocPhysical":
                code = api.aclrtMallocPhysical(scene.out, 1 << 30, ctypes.byref(prop), 0)
                if code == 0:
                    assert api.aclrtFreePhysical(ctypes.c_void_p.from_address(scene.out).value) == 0
            else:
                code = api.aclrtMemGetAllocationGranularity(ctypes.byref(prop), 0, scene.out)
            assert (code == P) == (attribute in refused), (function, attribute, code)


@pytest.mark.parametrize(("field", "value", "code"), [
    ("handle_type", 1, P), ("handle_type", 2, P), ("allocation_type", 1, P),
    ("location", Location(0, 2), P), ("location", Location(0, 3), P), ("location", Location(0, 5), RT),
    ("location", Location(99, 1), DEVICE), ("location", Location(1, 1), 0), ("location", Location(0, 0), 0),
])
def test_properties_of_physical_memory(scene: Scene, field: str, value: Any, code: int) -> None:
    setattr(scene.prop, field, value)
    assert api.aclrtMallocPhysical(scene.out, GRANULE, ctypes.byref(scene.prop), 0) == code
    if code == 0:
        assert api.aclrtFreePhysical(ctypes.c_void_p.from_address(scene.out).value) == 0


@pytest.mark.parametrize(("props", "code"), [
    (PoolProps(allocation_type=1, location=Location(0, 1)), P),
    *[(PoolProps(location=Location(0, place)), P) for place in (0, 2, 3, 4, 99)],
    (PoolProps(location=Location(99, 1)), DEVICE),
    (PoolProps(location=Location(0, 1), max_size=1 << 60), NO_MEMORY),
    (PoolProps(location=Location(0, 1), max_size=100), 0),
    (PoolProps(location=Location(1, 1), max_size=1 << 20), 0),
])
def test_properties_of_pools(scene: Scene, props: PoolProps, code: int) -> None:
    assert api.aclrtMemPoolCreate(scene.out, ctypes.byref(props)) == code
    if code == 0:
        assert api.aclrtMemPoolDestroy(ctypes.c_void_p.from_address(scene.out).value) == 0


def test_reserved_bytes_of_pool_properties(scene: Scene) -> None:
    scene.pool_props.reserved[31] = 1
    assert api.aclrtMemPoolCreate(scene.out, ctypes.byref(scene.pool_props)) == P


def test_pool_on_a_stream_of_another_context(scene: Scene) -> None:
    context = ctypes.c_void_p()
    assert api.aclrtCreateContext(ctypes.byref(context), 0) == 0
    codes = [api.aclrtMemPoolMallocAsync(scene.out, 64, scene.pool, scene.stream),
             api.aclrtMemPoolFreeAsync(scene.device, scene.stream)]
    assert api.aclrtDestroyContext(context) == 0
    assert api.aclrtSetDevice(0) == 0
    assert codes == [OTHER_CONTEXT, OTHER_CONTEXT]


def test_soc_without_virtual_memory() -> None:
    from support.child import run_python

    done = run_python("""
        import ctypes
        from acl import sim
        lib = ctypes.CDLL(str(sim.library_dir()) + "/libascendcl.so")
        place = ctypes.c_void_p()
        print(lib.aclrtReserveMemAddress(ctypes.byref(place), ctypes.c_size_t(4096), ctypes.c_size_t(0), None,
                                         ctypes.c_uint64(0)))
        """, ACL_SIM_SOC="Ascend910A")
    assert done.stdout.split() == ["207000"], done.stderr
