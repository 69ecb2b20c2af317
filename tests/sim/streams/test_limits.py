"""The limits of a device: streams, events, pinned memory; and the speed of copies over the link."""

from __future__ import annotations

import ctypes
import time
from types import ModuleType

import pytest
from support.calls import api, out
from support.child import run_python

MIB = 1 << 20

MAKE = """
    import ctypes
    from acl import sim
    api = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    api.aclGetRecentErrMsg.restype = ctypes.c_char_p
    api.aclInit(None)
    api.aclrtSetDevice(0)

    def most(make, *arguments):
        "How many there can be, and what the one after them gives."
        made = []
        while True:
            handle = ctypes.c_void_p()
            status = make(ctypes.byref(handle), *arguments)
            if status:
                return made, status
            made.append(handle)

    def left(ask):
        number = ctypes.c_uint32()
        assert ask(ctypes.byref(number)) == 0
        return number.value
"""


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize(("soc", "streams"), [("Ascend310B1", 512), ("Ascend310P3", 1024)])
def test_streams_above_the_chips_number_are_refused(soc: str, streams: int) -> None:
    done = run_python(MAKE + """
    before = left(api.aclrtGetStreamAvailableNum)
    made, status = most(api.aclrtCreateStream)
    print(before, len(made), status, left(api.aclrtGetStreamAvailableNum))
    print(api.aclGetRecentErrMsg().decode())
    api.aclrtDestroyStream(made[0])
    print(left(api.aclrtGetStreamAvailableNum), len(most(api.aclrtCreateStream)[0]))
    context = ctypes.c_void_p()
    print(api.aclrtCreateContext(ctypes.byref(context), 0))     # its default stream is one too many
    api.aclrtSetDevice(1)
    print(left(api.aclrtGetStreamAvailableNum))
    """, ACL_SIM_SOC=soc)
    numbers, text, _, again, context, other = done.stdout.splitlines()
    assert numbers == f"{streams - 1} {streams - 1} 207008 0", done.stderr
    assert f"device 0 has {streams} streams, the most of {soc}" in text
    assert (again, context, other) == ("1 1", "207008", str(streams - 1))


@pytest.mark.subprocess_heavy
def test_streams_of_a_context_that_ends_can_be_made_again() -> None:
    done = run_python(MAKE + """
    context = ctypes.c_void_p()
    for _ in range(3):
        assert api.aclrtCreateContext(ctypes.byref(context), 0) == 0
        print(len(most(api.aclrtCreateStream)[0]))
        assert api.aclrtDestroyContext(context) == 0
    api.aclrtSetDevice(0)
    print(left(api.aclrtGetStreamAvailableNum))
    """, ACL_SIM_SOC="Ascend310B1")
    assert done.stdout.split() == ["510", "510", "510", "511"], done.stderr


@pytest.mark.subprocess_heavy
def test_events_with_an_id_are_65536_a_device_and_others_are_not_limited() -> None:
    done = run_python(MAKE + """
    made, status = most(api.aclrtCreateEvent)
    print(len(made), status, left(api.aclrtGetEventAvailNum))
    handle = ctypes.c_void_p()
    print(api.aclrtCreateEventWithFlag(ctypes.byref(handle), 1))
    print(api.aclrtCreateEventExWithFlag(ctypes.byref(handle), 1))
    api.aclrtDestroyEvent(made.pop())
    api.aclrtDestroyEvent(handle)
    print(left(api.aclrtGetEventAvailNum), api.aclrtCreateEventWithFlag(ctypes.byref(handle), 1))
    api.aclrtSetDevice(1)
    print(left(api.aclrtGetEventAvailNum))
    """)
    assert done.stdout.split() == ["65536", "207007", "0", "207007", "0", "1", "0", "65536"], done.stderr


@pytest.mark.subprocess_heavy
def test_pinned_memory_above_its_limit_is_refused_with_what_is_left() -> None:
    done = run_python(MAKE + """
    import acl
    size = ctypes.c_size_t(1 << 20)
    made, status = most(api.aclrtMallocHost, size)
    print(len(made), status)
    print(api.aclGetRecentErrMsg().decode().splitlines()[0])
    api.aclrtFreeHost(made.pop())
    print(len(most(api.aclrtMallocHost, size)[0]), acl.sim.configuration()["pinned"])
    """, ACL_SIM_PINNED="4M")
    first, text, second = done.stdout.splitlines()
    assert (first, second) == ("4 207001", f"1 {4 * MIB}"), done.stderr
    assert "1048576 bytes of pinned host memory, with 0 left of 4194304 (ACL_SIM_PINNED)" in text


@pytest.mark.subprocess_heavy
def test_host_memory_of_each_kind_is_refused_by_the_limit_of_pinned_memory() -> None:
    """Managed memory and physical host memory count too.

    The error for physical host memory must not name `device 64`, the simulator's internal number of the host.
    """
    done = run_python(MAKE + """
    from support.memory import Location, PhysicalProp
    wanted = PhysicalProp(attribute=4, location=Location(0, 0))
    made, size = ctypes.c_void_p(), 8 << 20
    calls = {"aclrtMallocHost": [size], "aclrtMemAllocManaged": [size, 1],
             "aclrtMallocPhysical": [size, ctypes.byref(wanted), 0]}
    for name, rest in calls.items():
        print(getattr(api, name)(ctypes.byref(made), *rest), api.aclGetRecentErrMsg().decode().splitlines()[0])
    """, ACL_SIM_PINNED="4M")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["207001"] * 3, done.stderr
    for line in lines:
        assert f"{8 * MIB} bytes of pinned host memory, with {4 * MIB} left of {4 * MIB} (ACL_SIM_PINNED)" in line


@pytest.mark.subprocess_heavy
def test_pinned_memory_limit_can_be_configured_and_is_absent_by_default() -> None:
    done = run_python("""
        import acl
        print(acl.sim.configuration()["pinned"])
        acl.sim.configure(pinned="1GiB")
        print(acl.sim.configuration()["pinned"])
        acl.sim.configure(pinned="unlimited")
        print(acl.sim.configuration()["pinned"])
        for wrong in ("0", "x"):
            try:
                acl.sim.configure(pinned=wrong)
            except ValueError as error:
                print("pinned" in str(error))
    """)
    assert done.stdout.split() == ["unlimited", str(1 << 30), "unlimited", "True", "True"], done.stderr


@pytest.fixture
def ends(sim: ModuleType) -> tuple[int, int, int, int]:
    """Return device memory, pinned memory and other device memory of one MiB each, and a stream."""
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    device, pinned, other, stream = out(), out(), out(), out()
    assert api.aclrtMalloc(ctypes.byref(device), MIB, 0) == 0
    assert api.aclrtMallocHost(ctypes.byref(pinned), MIB) == 0
    assert api.aclrtMalloc(ctypes.byref(other), MIB, 0) == 0
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    yield device.value, pinned.value, other.value, stream.value
    assert api.aclrtDestroyStream(stream) == 0
    assert api.aclrtFree(device) == api.aclrtFree(other) == api.aclrtFreeHost(pinned) == 0


def test_copies_over_the_link_take_as_long_as_its_rate_says(sim: ModuleType, ends: tuple[int, int, int, int]) -> None:
    """The test checks only the least time of a copy, which holds on a busy machine, too.

    Without the latency model, a copy takes a hundredth of this time.
    """
    device, pinned, other, stream = ends
    sim.configure(latency="pcie:10MB")
    assert sim.configuration()["latency"] == "pcie:10MB"
    size = ctypes.c_size_t(MIB)
    seconds = MIB / 10e6
    for dst, src, kind in ((device, pinned, 1), (pinned, device, 2)):
        begin = time.perf_counter()
        assert api.aclrtMemcpy(ctypes.c_void_p(dst), size, ctypes.c_void_p(src), size, kind) == 0
        middle = time.perf_counter()
        assert api.aclrtMemcpyAsync(ctypes.c_void_p(dst), size, ctypes.c_void_p(src), size, kind,
                                    ctypes.c_void_p(stream)) == 0
        assert api.aclrtSynchronizeStream(ctypes.c_void_p(stream)) == 0
        assert middle - begin >= seconds and time.perf_counter() - middle >= seconds
    sim.configure(latency="pcie:1MB")           # over the link this copy inside the device would take 1 s
    begin = time.perf_counter()
    assert api.aclrtMemcpy(ctypes.c_void_p(other), size, ctypes.c_void_p(device), size, 3) == 0
    inside = time.perf_counter() - begin
    begin = time.perf_counter()
    assert api.aclrtMemcpy(ctypes.c_void_p(device), size, ctypes.c_void_p(pinned), size, 1) == 0
    assert inside < time.perf_counter() - begin


@pytest.mark.parametrize("wrong", ["pcie:", "pcie:fast", "pcie:10", "memory:1GB", "off:1GB", "pcie:1GB:2", "pc"])
def test_impossible_latency_setting_is_refused(sim: ModuleType, wrong: str) -> None:
    with pytest.raises(ValueError, match="no latency preset is called"):
        sim.configure(latency=wrong)
    assert sim.configuration()["latency"] == "off"
