"""The question that the first pool of each device asks: does one frame show the same bytes at two addresses?"""

import subprocess
from pathlib import Path

import pytest
from support.child import run_python

import acl

# A driver that gives the second mapping of a frame memory of its own.
DRIVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <acl/acl.h>
aclError aclrtMapMem(void *at, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    static aclrtDrvMemHandle last;
    aclError (*map)(void *, size_t, size_t, aclrtDrvMemHandle, uint64_t) = dlsym(RTLD_NEXT, "aclrtMapMem");
    aclrtPhysicalMemProp prop = {.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED, .memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {0, ACL_MEM_LOCATION_TYPE_DEVICE}};
    if (handle == last && aclrtMallocPhysical(&handle, size, &prop, 0) != 0) {
        return 1;
    }
    last = handle;
    return map(at, size, offset, handle, flags);
}
"""
# Three pools in turn.  Of each: whether aliases served allocations, and the result of `check`.
PROGRAM = """
    import logging, sys
    logging.basicConfig(format="%(name)s: %(message)s", stream=sys.stdout)
    import acl
    from support.core import MIB, open_door, physical
    asked = 0
    for _ in range(3):
        before = acl.sim.counters()
        with open_door(limit="64MiB") as (pool, stream, door):
            asked += any(acl.sim.counters().get(call, 0) > before.get(call, 0) for call in
                         ("aclrtReserveMemAddress", "aclrtMallocPhysical"))
            for _ in range(3):
                first, keep, last = (door.take(size * MIB)[0] for size in (10, 2, 10))
                door.free(first)
                door.free(last)
                for block in [door.take(size * MIB)[0] for size in (16, 3)] + [keep]:
                    door.free(block)
            print(pool.stats().recalls > 0, pool.check())
    print(f"asked {asked}, left {physical() // MIB}")
"""
WARNING = ("acl.pool: device 0: memory mapped at two addresses shows different bytes; pools there use no aliases, "
           "as with views=False\n")


def lines(**environment: str) -> str:
    done = run_python(PROGRAM, **environment)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    simulator = Path(acl.sim.library_dir()) / "libascendcl.so"
    (folder / "driver.c").write_text(DRIVER)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{acl.include_dir()}", "-o", folder / "libascendcl.so",
         folder / "driver.c", "-Wl,--no-as-needed", simulator, f"-Wl,-rpath,{simulator.parent}"], check=True)
    return folder / "libascendcl.so"


def test_pools_of_a_device_that_shows_the_same_bytes_use_aliases() -> None:
    assert lines() == "True 0\n" * 3 + "asked 1, left 0\n"


def test_pools_of_a_device_that_shows_other_bytes_use_no_aliases_and_warn_once(driver: Path) -> None:
    found = lines(ACL_BACKEND="cann", ACL_LIBRARY=str(driver))
    assert found == WARNING + "False 0\n" * 3 + "asked 1, left 2\n"       # the driver above keeps a frame


@pytest.mark.parametrize("fault", [
    "aclrtReserveMemAddress:nth=1", "aclrtMallocPhysical:nth=1", "aclrtMapMem:nth=1", "aclrtMapMem:nth=2",
    "aclrtMemcpy:nth=1", "aclrtMemcpy:nth=2", "aclrtMemcpy:nth=3", "aclrtMemcpy:nth=4",
])
def test_device_that_could_not_answer_is_asked_again_and_nothing_is_lost(fault: str) -> None:
    assert lines(ACL_SIM_FAULTS=fault) == "True 0\n" * 3 + "asked 2, left 0\n"


@pytest.mark.parametrize("fault", ["aclrtUnmapMem:nth=1", "aclrtUnmapMem:nth=2", "aclrtFreePhysical:nth=1"])
def test_frame_that_the_driver_does_not_take_back_is_lost_once(fault: str) -> None:
    assert lines(ACL_SIM_FAULTS=fault) == "True 0\n" * 3 + "asked 1, left 2\n"


def test_addresses_that_the_driver_does_not_take_back_are_lost_once() -> None:
    assert lines(ACL_SIM_FAULTS="aclrtReleaseMemAddress:nth=1") == "True 0\n" * 3 + "asked 1, left 0\n"


def test_pools_without_aliases_do_not_ask() -> None:
    done = run_python("""
        import acl
        for options in ({"views": False}, {"steal": False}, {"segments": True}):
            acl.Pool(0, **options).close()
        print(acl.sim.counters().get("aclrtMapMem", 0))
        acl.Pool(0).close()
        print(acl.sim.counters()["aclrtMapMem"])
    """)
    assert (done.stdout, done.stderr) == ("0\n2\n", "")
