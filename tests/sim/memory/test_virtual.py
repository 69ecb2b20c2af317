"""Virtual memory: mappings and their bytes, access rights, and the memory that they cost."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from support.calls import api, out
from support.child import run_python
from support.memory import DEVICE, GRANULE, AccessDesc, Location, PhysicalProp, made, read, write

from acl import sim

RT = 107000


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    before = sim.physical_bytes(), sim.live_handles().get("physical", 0)
    yield
    assert (sim.physical_bytes(), sim.live_handles().get("physical", 0)) == before


def prop(device: int = 0, attribute: int = 4, place: int = DEVICE) -> PhysicalProp:
    return PhysicalProp(attribute=attribute, location=Location(device, place))


def physical(size: int = GRANULE, **where: int) -> int:
    return made("aclrtMallocPhysical", size, ctypes.byref(prop(**where)), 0)


def reserve(size: int) -> int:
    return made("aclrtReserveMemAddress", size, 0, None, 1)


def map_at(address: int, handle: int, size: int = GRANULE) -> None:
    assert api.aclrtMapMem(address, size, 0, handle, 0) == 0, api.aclGetRecentErrMsg()


def unmap(*addresses: int) -> None:
    for address in addresses:
        assert api.aclrtUnmapMem(address) == 0


def free(*handles: int) -> None:
    for handle in handles:
        assert api.aclrtFreePhysical(handle) == 0


def release(base: int) -> None:
    assert api.aclrtReleaseMemAddress(base) == 0


def test_a_reservation_costs_nothing_and_is_aligned() -> None:
    before = sim.physical_bytes()
    base = reserve(72 << 30)
    small = reserve(512)  # torch_npu probes with this size
    assert base % GRANULE == small % GRANULE == 0
    assert sim.physical_bytes() == before
    release(base)
    release(small)
    assert api.aclrtReleaseMemAddress(base) == RT


def test_a_wish_for_an_address_is_granted_if_it_is_free() -> None:
    base = reserve(GRANULE)
    release(base)
    address = out()
    assert api.aclrtReserveMemAddress(ctypes.byref(address), GRANULE, 0, base, 1) == 0
    assert address.value == base
    other = out()
    assert api.aclrtReserveMemAddress(ctypes.byref(other), GRANULE, 0, base, 1) == 0
    assert other.value != base
    release(base)
    release(other.value)


def test_bytes_come_along_with_their_handle() -> None:
    base, handles = reserve(4 * GRANULE), [physical(), physical()]
    for slot, handle in enumerate(handles):
        map_at(base + slot * GRANULE, handle)
        write(base + slot * GRANULE + 100, b"handle %d" % slot)
    unmap(base, base + GRANULE)
    map_at(base + 3 * GRANULE, handles[0])
    map_at(base, handles[1])
    assert read(base + 3 * GRANULE + 100, 8) == b"handle 0"
    assert read(base + 100, 8) == b"handle 1"
    unmap(base, base + 3 * GRANULE)
    free(*handles)
    release(base)


def test_one_handle_at_two_places_is_the_same_memory() -> None:
    base, handle = reserve(2 * GRANULE), physical()
    map_at(base, handle)
    map_at(base + GRANULE, handle)
    write(base, b"once")
    assert read(base + GRANULE, 4) == b"once"
    unmap(base, base + GRANULE)
    free(handle)
    release(base)


def test_new_memory_does_not_show_through_a_freed_one() -> None:
    base, first = reserve(GRANULE), physical()
    map_at(base, first)
    write(base, b"old" * 1000)
    unmap(base)
    second = physical()  # while the first handle still has its memory
    map_at(base, second)
    write(base, b"new")
    unmap(base)
    map_at(base, first)
    assert read(base, 3) == b"old"
    unmap(base)
    free(first, second)
    release(base)


def test_freeing_before_unmapping_only_drops_the_handle() -> None:
    before = sim.physical_bytes()
    base, handle = reserve(GRANULE), physical()
    map_at(base, handle)
    free(handle)
    assert api.aclrtFreePhysical(handle) == 107017
    write(base, b"still here")
    assert read(base, 10) == b"still here"
    assert sim.physical_bytes() == before + GRANULE
    unmap(base)
    assert sim.physical_bytes() == before
    release(base)


def test_a_retained_handle_keeps_the_memory() -> None:
    before = sim.physical_bytes()
    base, handle = reserve(GRANULE), physical()
    map_at(base, handle)
    write(base, b"kept")
    again = made_from(base + 4096)
    assert again == handle
    free(handle)
    unmap(base)
    assert sim.physical_bytes() == before + GRANULE
    map_at(base, again)
    assert read(base, 4) == b"kept"
    free(again)
    another = made_from(base)  # no handle was left
    unmap(base)
    map_at(base, another)
    assert read(base, 4) == b"kept"
    free(another)
    unmap(base)
    release(base)


def made_from(address: int) -> int:
    handle = out()
    assert api.aclrtMemRetainAllocationHandle(address, ctypes.byref(handle)) == 0
    assert handle.value is not None
    return int(handle.value)


def test_properties_come_back() -> None:
    for where in ({"device": 1, "attribute": 13}, {"place": 0, "attribute": 2}):
        handle, told = physical(**where), PhysicalProp()
        assert api.aclrtMemGetAllocationPropertiesFromHandle(handle, ctypes.byref(told)) == 0
        assert bytes(told) == bytes(prop(**where))
        free(handle)


def test_a_piece_of_many_granules() -> None:
    size = 10 * GRANULE
    base, handle = reserve(3 * size), physical(size)
    map_at(base + size, handle, size)
    write(base + 2 * size - 3, b"end")
    assert api.aclrtMemcpy(base + 2 * size - 3, 64, b"x" * 64, 64, 1) == RT
    address, told = out(), out(ctypes.c_size_t)
    assert api.aclrtMemGetAddressRange(base + size + 12345, ctypes.byref(address), ctypes.byref(told)) == 0
    assert (address.value, told.value) == (base + size, size)
    assert api.aclrtUnmapMem(base + size + GRANULE) == RT
    unmap(base + size)
    free(handle)
    release(base)


def test_copies_cross_mappings_but_not_holes() -> None:
    base, handles = reserve(3 * GRANULE), [physical(), physical()]
    map_at(base, handles[0])
    map_at(base + GRANULE, handles[1])
    write(base + GRANULE - 4, b"straddle")
    assert read(base + GRANULE - 4, 8) == b"straddle"
    assert api.aclrtMemset(base, 3 * GRANULE, 0, 2 * GRANULE + 1) == RT
    unmap(base + GRANULE)
    assert api.aclrtMemcpy(base + GRANULE - 4, 8, b"straddle", 8, 1) == RT
    unmap(base)
    free(*handles)
    release(base)


def test_reservation_maps_memory_of_one_device_at_a_time() -> None:
    base, here, there = reserve(2 * GRANULE), physical(), physical(device=1)
    map_at(base, here)
    assert api.aclrtMapMem(base + GRANULE, GRANULE, 0, there, 0) == RT
    unmap(base)
    map_at(base, there)  # allowed: nothing of device 0 is mapped in it any more
    unmap(base)
    free(here, there)
    release(base)


def test_host_memory_can_be_mapped_too() -> None:
    before = sim.physical_bytes()
    base, handle = reserve(GRANULE), physical(place=0, attribute=2)
    map_at(base, handle)
    assert sim.physical_bytes() == before
    ctypes.memmove(base, b"host", 4)
    assert read(base, 4) == b"host"
    unmap(base)
    free(handle)
    release(base)


def test_access() -> None:
    base, handle, flag = reserve(GRANULE), physical(), out(ctypes.c_uint64)
    here, there, host = Location(0, DEVICE), Location(1, DEVICE), Location(0, 0)

    def told(location: Location) -> int:
        assert api.aclrtMemGetAccess(base, ctypes.byref(location), ctypes.byref(flag)) == 0
        return int(flag.value)

    def allow(location: Location, flags: int) -> None:
        assert api.aclrtMemSetAccess(base, GRANULE, ctypes.byref(AccessDesc(flags, location)), 1) == 0

    assert api.aclrtMemMapNoAccess(base, GRANULE, 0, handle, 0) == 0
    assert [told(here), told(there), told(host)] == [0, 0, 0]
    assert api.aclrtMemset(base, 64, 1, 64) == RT
    allow(here, 3)
    write(base, b"rw")
    allow(here, 1)
    assert read(base, 2) == b"rw"
    assert api.aclrtMemset(base, 64, 1, 64) == RT
    allow(there, 3)
    allow(host, 1)
    assert [told(here), told(there), told(host)] == [1, 3, 1]
    unmap(base)
    map_at(base, handle)
    assert told(here) == 3
    unmap(base)
    free(handle)
    release(base)


def test_selected_link_maps_the_same_memory_again() -> None:
    base, handles = reserve(4 * GRANULE), [physical(), physical()]
    map_at(base, handles[0])
    map_at(base + GRANULE, handles[1])
    assert api.aclrtMemMapSelectedLink(base + 2 * GRANULE, 2 * GRANULE, base, 1) == 0
    write(base + GRANULE, b"link")
    assert read(base + 3 * GRANULE, 4) == b"link"
    free(*handles)
    unmap(*(base + i * GRANULE for i in range(4)))
    release(base)


# ---- numbers ----


def kernel_mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("acl-sim-physical" in line for line in maps)


def test_neighbours_are_one_mapping_of_the_kernel() -> None:
    count = 512
    bases = [reserve(count * GRANULE), reserve(count * GRANULE)]
    before = kernel_mappings()
    handles = []
    for i in range(count):  # two ranges grow alternately
        for base in bases:
            handles.append(physical())
            map_at(base + i * GRANULE, handles[-1])
    assert kernel_mappings() - before == 2
    for base in bases:
        unmap(*(base + i * GRANULE for i in range(count)))
    for base in bases:  # each mapped where it was: still one mapping for each range
        for i in range(count):
            map_at(base + i * GRANULE, handles[2 * i + bases.index(base)])
    assert kernel_mappings() - before == 2
    for base in bases:
        unmap(*(base + i * GRANULE for i in range(count)))
        release(base)
    free(*handles)


def test_all_of_a_device_in_granules() -> None:
    count = (32 << 30) // GRANULE - sim.physical_bytes() // GRANULE - 1
    base = reserve(count * GRANULE)
    handles = [physical() for _ in range(count)]
    for i, handle in enumerate(handles):
        map_at(base + i * GRANULE, handle)
    write(base + (count - 1) * GRANULE, b"last")
    more, address = prop(), out()
    assert api.aclrtMallocPhysical(ctypes.byref(address), 2 * GRANULE, ctypes.byref(more), 0) == 207001
    for i, handle in enumerate(handles):
        unmap(base + i * GRANULE)
        free(handle)
    release(base)


@pytest.mark.release_only            # sanitizers map memory too, and crash at the limit
@pytest.mark.parametrize("others", [0, 1, 2])
def test_the_systems_limit_of_mappings_is_named(others: int) -> None:
    done = run_python(f"""
        import ctypes, mmap, sys
        with open(sys.executable, "rb") as file:  # so that the limit is met within a pair of mappings, or not
            others = [mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ) for _ in range({others})]
        """ + """
        from support.calls import api, out
        from support.memory import DEVICE, GRANULE, Location, PhysicalProp, made
        limit = int(open("/proc/sys/vm/max_map_count").read())
        count = min(limit, 70000)
        if limit > 70000:
            raise SystemExit("too many to try")
        api.aclInit(None), api.aclrtSetDevice(0)
        prop = PhysicalProp(attribute=4, location=Location(0, DEVICE))
        base = made("aclrtReserveMemAddress", 2 * count * GRANULE, 0, None, 1)
        code, done = 0, 0
        while code == 0 and done < count:
            handle = made("aclrtMallocPhysical", GRANULE, ctypes.byref(prop), 0)
            code = api.aclrtMapMem(base + 2 * done * GRANULE, GRANULE, 0, handle, 0)
            done += code == 0
        text = api.aclGetRecentErrMsg().decode()
        assert (code, f"vm.max_map_count = {limit}" in text) == (207005, True), (code, text)
        for place in range(8):
            assert api.aclrtUnmapMem(base + 2 * place * GRANULE) == 0, "unmapping always works"
        assert api.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0, "room again"
        print(done > limit // 2 - 1000)
        """, ACL_SIM_MEMORY="160G", timeout=300)
    assert done.stdout.strip() == "True" or "too many to try" in done.stderr, done.stderr


def test_pages_of_freed_memory_go_back() -> None:
    import os

    def backed() -> int:
        total = 0
        for entry in os.scandir("/proc/self/fd"):
            try:
                if "memfd:acl-sim-physical" in os.readlink(entry.path):
                    total += os.stat(entry.path).st_blocks * 512
            except FileNotFoundError:
                continue
        return total

    start = backed()
    base, handle = reserve(64 * GRANULE), physical(64 * GRANULE)
    map_at(base, handle, 64 * GRANULE)
    assert api.aclrtMemset(base, 64 * GRANULE, 1, 64 * GRANULE) == 0
    assert backed() - start >= 64 * GRANULE
    unmap(base)
    assert backed() - start >= 64 * GRANULE  # the handle still holds the memory
    free(handle)
    assert backed() - start < GRANULE
    release(base)
