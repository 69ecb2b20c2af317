"""Late callbacks, and callbacks with garbage, are refused, also after the registration or the pool has ended."""

import ctypes
import gc

import pytest
from support.child import run_python
from support.core import MIB, Door, physical, physical_base  # noqa: F401

import acl
from acl.pool._registry import strays

pytestmark = pytest.mark.usefixtures("no_leaks")

SIZES = (64, 4096, 1 << 20, 9 << 20)

LATE = """
import gc
import acl
from support.core import Door
pool, stream = acl.Pool(0, debug={debug!r}), acl.Stream()
pool.register(stream)
door = Door(stream)
blocks = [door.alloc(size) for size in (64, 4096, 1 << 20, 9 << 20)]
assert all(blocks)
pool.unregister(stream)
for block in blocks:
    door.free(block)
    door.free(block)
pool.close()
print([door.alloc(size) for size in (64, 9 << 20)])
del pool
stream.close()
gc.collect()
for again in range(3):
    for block in blocks:
        door.free(block)
        door.address(block)
    print([door.alloc(64), door.advise(64, 4096), door.alloc(9 << 20)])
    pool, stream = acl.Pool(0), acl.Stream()            # others take what there is to take
    pool.register(stream)
    other = Door(stream)
    assert other.object != door.object
    taken = [other.alloc(size) for size in (64, 4096, 1 << 20, 9 << 20)]
    for block in blocks:
        door.free(block)
    assert pool.stats().allocated == sum((512, 4096, 1 << 20, 9 << 20)), pool.stats().allocated
    for block in taken:
        other.free(block)
    pool.unregister(stream)
    pool.close()
    stream.close()
"""


@pytest.mark.parametrize("debug", [None, "all", "sample:2"])
def test_calls_after_the_pools_end_are_refused(debug: str | None) -> None:
    child = run_python(LATE.format(debug=debug))
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout.split("\n")[:-1] == ["[0, 0]"] + ["[0, 0, 0]"] * 3


GARBAGE = """
import ctypes
import gc
import acl
from acl.pool._registry import strays
from support.core import Door

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
on_heap, freed, small = libc.malloc(1 << 20), libc.malloc(1 << 20), libc.malloc(64)
libc.free(freed)
libc.free(small)
zeros = libc.mmap(None, 1 << 20, 3, 0x22, -1, 0)
local = ctypes.c_uint64(7)

pool, stream = acl.Pool(0, debug={debug!r}), acl.Stream()
other_pool, other_stream = acl.Pool(0), acl.Stream()
pool.register(stream)
other_pool.register(other_stream)
door, other = Door(stream), Door(other_stream)
mine, foreign = door.alloc(4096), other.alloc(4096)
addresses = [0, 1, 0x10, 0xdeadbeef000, on_heap, freed, small, zeros, zeros + (1 << 19), id(door),
             ctypes.addressof(local), 1 << 47, 1 << 63, (1 << 64) - 1, (1 << 64) - 64]
# Inside, past and between what is there; a slot, and a slab, that nobody has used.
arenas = [door.object + step for step in (
    1, 8, 64, 1 << 12, (1 << 17) - 1, 1 << 32, -(1 << 17), -64, 1 << 47)] + [mine, mine + 64]
blocks = [mine + step for step in (1, 8, 16, 32, 63, 64 << 20, 100 << 30, -(1 << 40))]
blocks += [door.object, other.object]

def attack(dead):
    before = strays()
    for allocator in addresses + arenas:
        assert [door._alloc(allocator, size) for size in (0, 64, 9 << 20, (1 << 64) - 1)] == [None] * 4
        assert door._advise(allocator, 64, allocator) is None
        for block in (mine, foreign, *addresses):
            door._free(allocator, block)
    counted = (len(addresses) + len(arenas)) * (7 + len(addresses))
    assert strays() == before + counted, (strays() - before, counted)
    for block in addresses + blocks:
        assert door._address(block) is None, hex(block)
    assert strays() == before + counted + len(addresses) + len(blocks)
    before = strays()
    for block in addresses + blocks + [foreign]:
        door.free(block)                # the allocator is one: its own count has these
    assert strays() == before

def refused():
    return pool.stats().total("refused")

attack(False)
assert refused() == len(addresses) + len(blocks) + 1, refused()
assert pool.stats().allocated >= 4096 == other_pool.stats().allocated
assert door.address(mine) and pool.check() == other_pool.check() == 0
pool.unregister(stream)
attack(False)
assert refused() == 2 * (len(addresses) + len(blocks) + 1)
door.free(mine)
pool.close()
attack(False)
del pool
stream.close()
gc.collect()
attack(True)
assert other.address(foreign) and other_pool.check() == 0 and other_pool.stats().allocated == 4096
other.free(foreign)
other_pool.unregister(other_stream)
other_pool.close()
del other_pool
gc.collect()
attack(True)
print("done")
"""


@pytest.mark.parametrize("debug", [None, "all", "sample:2"])
def test_garbage_pointers_are_refused_and_counted_by_every_callback(debug: str | None) -> None:
    """The calls are made before and after the stream is unregistered, the pool closed, and the pool deleted."""
    child = run_python(GARBAGE.format(debug=debug))
    assert (child.returncode, child.stdout) == (0, "done\n"), child.stderr


@pytest.mark.parametrize("debug", [None, "all"])
def test_null_pointers_are_refused_by_every_callback(debug: str | None) -> None:
    with acl.Pool(0, debug=debug) as pool, acl.Stream() as stream:
        pool.register(stream)
        found = acl.allocator_of(stream)
        assert found is not None
        alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(found.alloc)
        advise = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(found.alloc_advise)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(found.free)
        address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(found.get_addr)
        block = alloc(found.object, 4096)
        before = strays()
        assert alloc(None, 64) is None
        assert advise(None, 64, None) is None
        assert address(None) is None
        free(None, None)
        free(None, block)
        free(found.object, None)
        assert pool.stats().allocated >= 4096
        assert pool.stats().total("refused") == 1
        assert strays() == before + 5
        free(found.object, block)
        pool.unregister(stream)


@pytest.mark.release_only      # a sanitizer maps memory of its own, which VmSize counts too
def test_many_destroyed_pools_leave_little_host_memory_behind() -> None:
    """Of a destroyed pool only the arenas to which ACL has pointers are kept, with one host page each.

    Later pools use the addresses of the slabs of such arenas.
    """
    def mapped() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmSize"))

    def turn() -> None:
        with acl.Stream() as stream:
            pool = acl.Pool(0)
            pool.register(stream)
            door = Door(stream)
            door.free(door.alloc(MIB))
            pool.unregister(stream)
            pool.close()
        del pool
        gc.collect()

    for _ in range(10):
        turn()
    before = mapped()
    for _ in range(100):
        turn()
    assert mapped() - before < 100 << 10                    # KiB; less than one of the 100 slabs of 1 GiB
    assert physical() == 0
