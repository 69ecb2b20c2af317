"""No memory gets two owners: not after a double free of a guarded block, and not if pages without memory seem free."""

import threading

import pytest
from support.child import run_python
from support.core import MIB, Door, Slow

import acl
from acl.pool._findings import reports

SIZE = 5000

NO_DESCRIPTORS = """
import resource
import acl.inside._books
from acl.tools._rig import Rig

PAGE = 2 << 20
found = []
for spare in range(1, 9):
    rig = Rig(virtual_bytes=1 << 28)
    rig.alloc(4 * PAGE, 1)
    with open("/proc/self/status") as status:
        data = int([line for line in status if line.startswith("VmData")][0].split()[1]) << 10
    small = [rig.alloc(512, 1) for _ in range(900)]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data, hard))
    while block := rig.alloc(512, 1):
        small.append(block)
    for block in small[-spare:]:
        rig.free(block, 1)
    rig.alloc(1024, 1)                      # flushes the cache: some descriptors are spare
    rig.set(fail="map", at=3)
    refused = rig.alloc(8 * PAGE, 1) == 0
    found.append((refused, rig.check()))
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
print(set(found))
"""


@pytest.mark.release_only      # a sanitizer needs more memory than the RLIMIT_DATA of this test allows
def test_pages_without_memory_are_not_free_where_no_descriptor_is_left() -> None:
    """If the driver fills only a part of a placement, and no descriptor is left to cut it, invariant I6 still holds."""
    child = run_python(NO_DESCRIPTORS)
    assert (child.stdout.strip(), child.stderr) == ("{(True, 0)}", "")


def test_a_double_free_under_the_guard_has_one_owner_at_most() -> None:
    """The second free is made while the first one is half done and waits for the stream."""
    before = reports()["double free"]
    with acl.Pool(0, debug="all") as pool, acl.Stream() as stream:
        pool.register(stream)
        door = Door(stream)
        blocks = [door.alloc(SIZE) for _ in range(33)]
        for block in blocks[:32]:
            door.free(block)                # fills the quarantine: 32 blocks
        victim = blocks[32]
        with Slow(stream) as slow:
            first = threading.Thread(target=door.free, args=(victim,))
            first.start()
            first.join(0.3)                 # by now it should wait for the stream; if not, the test passes too
            door.free(victim)
            slow.go_on()
            first.join(300)
        assert reports()["double free"] == before + 1
        owners = [door.alloc(SIZE) for _ in range(100)]
        for block in [door.alloc(SIZE + 1000) for _ in range(40)]:
            door.free(block)                # pushes all earlier blocks out of the quarantine
        owners += [door.alloc(SIZE) for _ in range(100)]
        assert len(set(owners)) == 200
        for block in owners:
            door.free(block)
        pool.unregister(stream)


def test_segments_are_taken_from_the_pools_device() -> None:
    with acl.Pool(0, segments=True) as pool, acl.Stream(0) as own:
        acl.Device(1).use()
        before = [acl.sim.physical_bytes(device) for device in (0, 1)]
        with pool.alloc(8 * MIB, own):
            after = [acl.sim.physical_bytes(device) for device in (0, 1)]
        acl.Device(0).use()
    assert after[0] > before[0]
    assert after[1] == before[1]
