"""The amount and the kind of memory that a request takes, the remaining memory, and that all of it is returned."""

from __future__ import annotations

import ctypes
import os

import pytest
from support.calls import api, out
from support.child import run_python
from support.memory import PtrAttributes, config, made

from acl import sim

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HUGE_FIRST, HUGE_ONLY, NORMAL_ONLY = 0, 1, 2

pytestmark = pytest.mark.usefixtures("device")


def size_of(address: int) -> int:
    """Return the size that the driver reports for the block at `address`."""
    base, size = out(), out(ctypes.c_size_t)
    assert api.aclrtMemGetAddressRange(address, ctypes.byref(base), ctypes.byref(size)) == 0
    assert base.value == address
    return int(size.value)


def page_of(address: int) -> int:
    attributes = PtrAttributes()
    assert api.aclrtPointerGetAttributes(address, ctypes.byref(attributes)) == 0
    return int(attributes.page_size)


def charged(function: str, *arguments: object) -> int:
    """Return how many bytes of device memory a call takes; the memory is freed again."""
    before = sim.physical_bytes()
    address = made(function, *arguments)
    added = sim.physical_bytes() - before
    assert api.aclrtFree(address) == 0
    assert sim.physical_bytes() == before
    return added


SIZES = [1, 31, 32, 33, 63, 64, 100, 512, 4096, 65536, MIB - 32, MIB, 3 * MIB]


@pytest.mark.parametrize("size", SIZES)
def test_malloc_pads_and_aligns(size: int) -> None:
    aligned = (size + 31) // 32 * 32
    for function, expected in [("aclrtMalloc", aligned + 32), ("aclrtMallocCached", aligned + 32),
                               ("aclrtMallocAlign32", aligned)]:
        address = made(function, size, HUGE_FIRST)
        assert (size_of(address), address % 512) == (expected, 0)
        assert api.aclrtFree(address) == 0
    for function in ("aclrtMallocWithCfg", "aclrtMallocForTaskScheduler"):
        address = made(function, size, HUGE_FIRST, None)
        assert (size_of(address), address % 512) == (aligned, 0)
        assert api.aclrtFree(address) == 0


@pytest.mark.parametrize(("soc", "padding"), [("Ascend910B1", 32), ("Ascend310P3", 32), ("Ascend950PR_9599", 0)])
def test_padding_is_the_chips(soc: str, padding: int) -> None:
    done = run_python("""
        import ctypes
        from support.calls import api, out
        api.aclInit(None), api.aclrtSetDevice(0)
        sizes = []
        for asked in (1, 32, 33):
            address, size = out(), out(ctypes.c_size_t)
            api.aclrtMalloc(ctypes.byref(address), asked, 0)
            api.aclrtMemGetAddressRange(address, None, ctypes.byref(size))
            sizes.append(size.value)
        print(sizes)
        """, ACL_SIM_SOC=soc)
    assert done.stdout.strip() == str([32 + padding, 32 + padding, 64 + padding]), done.stderr


@pytest.mark.parametrize(("size", "policy", "page"), [
    (MIB - 32, HUGE_FIRST, 4 * KIB), (MIB, HUGE_FIRST, 2 * MIB), (5 * MIB, HUGE_FIRST, 2 * MIB),
    (100, HUGE_ONLY, 2 * MIB), (5 * MIB, HUGE_ONLY, 2 * MIB), (5 * MIB, NORMAL_ONLY, 4 * KIB),
    (5 * MIB, 3, 4 * KIB), (5 * MIB, 4, 4 * KIB), (5 * MIB, 5, 4 * KIB), (5 * MIB, 99, 2 * MIB), (5 * MIB, 6, GIB),
])
def test_pages_of_malloc(size: int, policy: int, page: int) -> None:
    address = made("aclrtMalloc", size, policy)
    assert page_of(address) == page
    assert api.aclrtFree(address) == 0
    taken = charged("aclrtMalloc", size, policy)
    assert taken % page == 0 and size + 32 <= taken + (32 if page == GIB else 0) < size + 32 + page


@pytest.mark.parametrize(("policy", "page"), [
    (3, 2 * MIB), (4, 2 * MIB), (5, 4 * KIB), (0x100, 2 * MIB), (0x102, 4 * KIB), (0x1002, 4 * KIB),
    (0x100002, 4 * KIB), (0x200000, 2 * MIB),
])
def test_pages_of_malloc_with_config(policy: int, page: int) -> None:
    address = made("aclrtMallocWithCfg", 5 * MIB, policy, None)
    assert page_of(address) == page
    assert api.aclrtFree(address) == 0


@pytest.mark.parametrize(("attributes", "code"), [
    ([(0, 0)], 0), ([(1, 33)], 0), ([(1, 65535)], 0), ([(2, 0)], 0), ([(2, 1)], 107000), ([(2, 99)], 107000),
    ([(3, 0)], 107000), ([(3, 1)], 107000), ([(4, 0)], 107000), ([(-1, 0)], 107000),
    ([(1, 3), (2, 0)], 0), ([(1, 3), (3, 0)], 107000),
    ([(2, 0), (2, 1)], 107000), ([(2, 1), (2, 0)], 0),  # of two attributes of a kind the last one counts
])
def test_attributes_of_malloc(attributes: list[tuple[int, int]], code: int) -> None:
    cfg, address = config(*attributes), out()
    assert api.aclrtMallocWithCfg(ctypes.byref(address), 100, 0, ctypes.byref(cfg)) == code
    if code == 0:
        assert api.aclrtFree(address) == 0


def test_attributes_without_an_array() -> None:
    address = out()
    one, none = config((0, 0)), config()
    one.attributes = none.attributes = None
    assert api.aclrtMallocWithCfg(ctypes.byref(address), 100, 0, ctypes.byref(one)) == 100000
    assert api.aclrtMallocWithCfg(ctypes.byref(address), 100, 0, ctypes.byref(none)) == 107000
    assert api.aclrtMallocHostWithCfg(ctypes.byref(address), 100, ctypes.byref(one)) == 107000


@pytest.mark.parametrize(("attribute", "code"), [((1, 5), 0), ((3, 0), 0), ((3, 1), 0), ((0, 0), 107000),
                                                 ((2, 0), 107000), ((9, 0), 107000)])
def test_attributes_of_pinned_memory(attribute: tuple[int, int], code: int) -> None:
    cfg, address = config(attribute), out()
    assert api.aclrtMallocHostWithCfg(ctypes.byref(address), 100, ctypes.byref(cfg)) == code
    if code == 0:
        assert api.aclrtFreeHost(address) == 0


# ---- the existing memory ----


def memory_info(attribute: int) -> tuple[int, int]:
    free, total = out(ctypes.c_size_t), out(ctypes.c_size_t)
    assert api.aclrtGetMemInfo(attribute, ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value


def test_memory_info_adds_up() -> None:
    held = [made("aclrtMalloc", 100, 0), made("aclrtMalloc", 5 * MIB, HUGE_ONLY),
            made("aclrtMalloc", 5 * MIB, NORMAL_ONLY)]
    everything, huge, normal = memory_info(1), memory_info(4), memory_info(5)
    assert everything == (huge[0] + normal[0], huge[1] + normal[1])
    assert everything[1] - everything[0] == sim.physical_bytes()
    assert memory_info(12) == normal and memory_info(13) == huge
    assert memory_info(0) == (0, 0)  # a chip with HBM reports no DDR
    for address in held:
        assert api.aclrtFree(address) == 0


def test_hbm_means_ddr_on_a_chip_without() -> None:
    done = run_python("""
        import ctypes
        from support.calls import api, out
        api.aclInit(None), api.aclrtSetDevice(0)
        def info(attribute):
            free, total = out(ctypes.c_size_t), out(ctypes.c_size_t)
            code = api.aclrtGetMemInfo(attribute, ctypes.byref(free), ctypes.byref(total))
            return code, total.value
        print(info(0) == info(1) == (0, 1 << 30), info(10)[0])
        """, ACL_SIM_SOC="Ascend310P3", ACL_SIM_MEMORY="1G")
    assert done.stdout.split() == ["True", "207000"], done.stderr


class Usage(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 32), ("current", ctypes.c_uint64), ("peak", ctypes.c_uint64),
                ("reserved", ctypes.c_size_t * 8)]


def test_usage_is_told_by_kind_the_largest_first() -> None:
    address = made("aclrtMalloc", 64 * MIB, 0)
    rows, count = (Usage * 8)(), out(ctypes.c_size_t)
    assert api.aclrtGetMemUsageInfo(0, ctypes.addressof(rows), 8, ctypes.byref(count)) == 0
    told = {row.name.decode(): row.current for row in rows[:count.value]}
    assert set(told) == {"MALLOC", "PHYSICAL", "POOL"}
    assert sum(told.values()) == sim.physical_bytes()
    assert [row.current for row in rows[:3]] == sorted(told.values(), reverse=True)
    assert all(row.peak >= row.current for row in rows[:3])
    assert api.aclrtGetMemUsageInfo(0, ctypes.addressof(rows), 1, ctypes.byref(count)) == 0 and count.value == 1
    assert api.aclrtFree(address) == 0


def test_peak_and_its_reset() -> None:
    sim.reset_physical_peak()
    start = sim.physical_bytes()
    assert sim.physical_peak() == start
    address = made("aclrtMalloc", 8 * MIB, HUGE_ONLY)
    assert api.aclrtFree(address) == 0
    assert (sim.physical_peak(), sim.physical_bytes()) == (start + 10 * MIB, start)  # 8 MiB and padding: 5 pages
    sim.reset_physical_peak()
    assert sim.physical_peak() == start


# ---- running out ----


def test_out_of_memory_and_back() -> None:
    done = run_python("""
        import ctypes
        from support.calls import api, out
        MIB = 1 << 20
        api.aclInit(None), api.aclrtSetDevice(0)
        def take(size, policy=0):
            address = out()
            code = api.aclrtMallocAlign32(ctypes.byref(address), size, policy)
            return code or address.value
        blocks = [take(16 * MIB, 1) for _ in range(5)]
        assert blocks[4] == 207001 and min(blocks[:4]) > 207001, blocks
        assert take(1) == 207001
        other = out(); api.aclrtSetDevice(1)
        assert api.aclrtMalloc(ctypes.byref(other), 16 * MIB, 0) == 0, "the other device has its own"
        api.aclrtSetDevice(0)
        assert api.aclrtFree(blocks[1]) == 0
        assert take(16 * MIB + 32, 1) == 207001, "does not fit in whole huge pages"
        assert take(16 * MIB, 1) > 207001
        print("ok")
        """, ACL_SIM_MEMORY="64M")
    assert done.stdout.strip() == "ok", done.stderr


def test_huge_first_falls_back_to_normal_pages() -> None:
    done = run_python("""
        import ctypes
        from support.calls import api, out
        from support.memory import PtrAttributes
        MIB = 1 << 20
        api.aclInit(None), api.aclrtSetDevice(0)
        small, big = out(), out()
        assert api.aclrtMallocAlign32(ctypes.byref(small), 4096, 2) == 0
        assert api.aclrtMallocAlign32(ctypes.byref(big), 64 * MIB - 8192, 1) == 207001
        assert api.aclrtMallocAlign32(ctypes.byref(big), 64 * MIB - 8192, 0) == 0
        attributes = PtrAttributes()
        api.aclrtPointerGetAttributes(big, ctypes.byref(attributes))
        print(attributes.page_size)
        """, ACL_SIM_MEMORY="64M")
    assert done.stdout.strip() == "4096", done.stderr


def test_physical_memory_pools_and_malloc_share_the_capacity() -> None:
    done = run_python("""
        import ctypes
        from support.calls import api, out
        from support.memory import DEVICE, Location, PhysicalProp, PoolProps, made
        MIB = 1 << 20
        api.aclInit(None), api.aclrtSetDevice(0)
        stream = made("aclrtCreateStream")
        prop, props = PhysicalProp(attribute=4, location=Location(0, DEVICE)), PoolProps(location=Location(0, DEVICE))
        handle = made("aclrtMallocPhysical", 32 * MIB, ctypes.byref(prop), 0)
        pool = made("aclrtMemPoolCreate", ctypes.byref(props))
        inside = made("aclrtMemPoolMallocAsync", 20 * MIB, pool, stream)
        address = out()
        codes = [api.aclrtMalloc(ctypes.byref(address), 16 * MIB, 0),
                 api.aclrtMemPoolMallocAsync(ctypes.byref(address), 16 * MIB, pool, stream),
                 api.aclrtMallocPhysical(ctypes.byref(address), 16 * MIB, ctypes.byref(prop), 0)]
        api.aclrtFreePhysical(handle)
        print(codes, api.aclrtMalloc(ctypes.byref(address), 32 * MIB, 0))
        """, ACL_SIM_MEMORY="64M")
    assert done.stdout.strip() == "[207001, 207001, 207001] 0", done.stderr


# ---- giving back ----


def backed_bytes() -> int:
    """Return the bytes that the files behind device memory occupy."""
    total = 0
    for entry in os.scandir("/proc/self/fd"):
        try:
            if "memfd:acl-sim" in os.readlink(entry.path):
                total += os.stat(entry.path).st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def test_untouched_memory_costs_nothing_and_freed_memory_goes_back() -> None:
    start = backed_bytes()
    address = made("aclrtMalloc", 256 * MIB, 0)
    assert backed_bytes() - start < MIB
    assert api.aclrtMemset(address, 256 * MIB, 1, 256 * MIB) == 0
    assert backed_bytes() - start >= 200 * MIB
    assert api.aclrtFree(address) == 0
    assert backed_bytes() - start < MIB


def test_memory_of_many_small_blocks_is_given_back() -> None:
    start = backed_bytes()
    blocks = [made("aclrtMalloc", 512 * KIB, 0) for _ in range(256)]
    for block in blocks:
        assert api.aclrtMemset(block, 512 * KIB, 1, 512 * KIB) == 0
    assert backed_bytes() - start >= 96 * MIB  # up to 16 MiB of each page size may have been kept before
    for block in blocks:
        assert api.aclrtFree(block) == 0
    assert backed_bytes() - start <= 20 * MIB


def test_neighbours_keep_their_bytes_when_a_block_goes_back() -> None:
    blocks = [made("aclrtMalloc", 300, 0) for _ in range(64)]
    for number, block in enumerate(blocks):
        assert api.aclrtMemset(block, 300, number, 300) == 0
    for block in blocks[::2]:
        assert api.aclrtFree(block) == 0
    for _ in range(40):  # enough frees that the simulator gives freed ranges back to the system
        address = made("aclrtMalloc", 900 * KIB, 0)
        assert api.aclrtFree(address) == 0
    for number, block in enumerate(blocks):
        if number % 2:
            assert ctypes.string_at(block, 300) == bytes([number]) * 300
            assert api.aclrtFree(block) == 0


def test_blocks_below_a_page_have_addresses_for_the_whole_device() -> None:
    """Blocks smaller than a page have their own range of addresses; its length limits their total size."""
    done = run_python("""
        import ctypes
        from support.calls import api
        from support.memory import made
        assert api.aclInit(None) == 0 and api.aclrtSetDevice(0) == 0
        small, page = made("aclrtMallocAlign32", 64, 2), made("aclrtMallocAlign32", 4096, 2)
        print(page - small >= 200 << 30)
    """, ACL_SIM_MEMORY="200G")
    assert done.stdout == "True\n", done.stdout + done.stderr


def test_a_device_that_grew_has_addresses_for_all_of_it() -> None:
    """If a device without live blocks gets a higher capacity, its next request reserves addresses for that capacity."""
    done = run_python("""
        import ctypes
        from acl import sim
        from support.calls import api
        from support.memory import made
        def distance():
            assert api.aclrtSetDevice(0) == 0
            blocks = made("aclrtMallocAlign32", 64, 2), made("aclrtMallocAlign32", 4096, 2)
            for block in blocks:
                assert api.aclrtFree(block) == 0
            assert api.aclrtResetDevice(0) == 0
            return blocks[1] - blocks[0]
        assert api.aclInit(None) == 0
        before = distance()
        sim.configure(capacity="300GiB")
        assert before < 300 << 30 <= distance(), before
        sim.configure(strict=True)
        assert distance() >= 300 << 30
    """, ACL_SIM_MEMORY="1G")
    assert done.returncode == 0, done.stderr
