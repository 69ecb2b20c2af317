"""acl.sim: configuration, faults, counters and traces, set by calls and by environment variables."""

from __future__ import annotations

import ast
import ctypes
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from support.calls import api, out
from support.child import run_child, run_python
from support.memory import DEVICE, GRANULE, Location, PhysicalProp, PoolProps, made


@pytest.fixture(autouse=True)
def _device(sim: ModuleType) -> None:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0


def malloc(size: int = 64) -> int:
    """Call aclrtMalloc, free the memory, and return the status of the allocation."""
    address = out()
    code: int = api.aclrtMalloc(ctypes.byref(address), size, 0)
    if code == 0:
        assert api.aclrtFree(address) == 0
    return code


def test_fault_with_nth_fails_that_call_once(sim: ModuleType) -> None:
    with sim.fault("aclrtMalloc", nth=3, code=507899) as fault:
        assert [malloc() for _ in range(5)] == [0, 0, 507899, 0, 0]
    assert fault.hits == 1
    assert malloc() == 0


def test_fault_with_every_fails_each_kth_call(sim: ModuleType) -> None:
    with sim.fault("aclrtMalloc", every=3) as fault:
        assert [malloc() for _ in range(7)] == [0, 0, 207001, 0, 0, 207001, 0]
    assert fault.hits == 2


def test_fault_with_a_probability_is_repeatable(sim: ModuleType) -> None:
    runs = []
    for seed in (1, 1, 2):
        with sim.fault("aclrtMalloc", p=0.3, seed=seed):
            runs.append([malloc() != 0 for _ in range(200)])
    assert runs[0] == runs[1] != runs[2]
    assert 30 < sum(runs[0]) < 90


def test_fault_hits_only_as_often_as_times_says(sim: ModuleType) -> None:
    with sim.fault("aclrtMalloc", times=2):
        assert [malloc() for _ in range(4)] == [207001, 207001, 0, 0]


def test_fault_counts_the_calls_of_each_function_separately(sim: ModuleType) -> None:
    stream = out()
    with sim.fault("aclrtCreateStream", nth=1), sim.fault("aclrtMalloc", nth=2):
        assert malloc() == 0
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 507899
        assert malloc() == 207001


def test_function_that_allocates_fails_as_out_of_memory_by_default(sim: ModuleType) -> None:
    place = out()
    with sim.fault("aclrtMemAllocManaged"), sim.fault("aclrtMallocHost"):
        assert api.aclrtMemAllocManaged(ctypes.byref(place), 4096, 1) == 207001
        assert api.aclrtMallocHost(ctypes.byref(place), 4096) == 207001


def test_fault_of_all_functions_counts_their_calls_together(sim: ModuleType) -> None:
    count = ctypes.c_uint32()
    with sim.fault("*", nth=2, code=507000):
        codes = [api.aclrtSynchronizeDevice(), api.aclrtGetDeviceCount(ctypes.byref(count)), malloc()]
    assert codes == [0, 507000, 0]


def test_fault_makes_a_function_that_returns_a_pointer_return_null(sim: ModuleType) -> None:
    with sim.fault("aclrtAllocatorCreateDesc"):
        assert api.aclrtAllocatorCreateDesc() is None


def test_fault_can_be_removed_twice_and_describes_itself(sim: ModuleType) -> None:
    fault = sim.fault("aclrtMalloc", nth=9)
    assert "active" in repr(fault)
    fault.remove()
    fault.remove()
    assert "removed" in repr(fault)


@pytest.mark.parametrize("rule", ["nope", "aclrtMalloc:nth=0", "aclrtMalloc:p=2", "aclrtMalloc:x=1", "aclrtMalloc:nth",
                                  "device0:lost=0", "device0:lost=-3"])
def test_impossible_fault_rules_are_refused(sim: ModuleType, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        sim.Fault(rule)


def test_message_of_an_injected_fault_says_that_it_was_ordered(sim: ModuleType) -> None:
    with sim.fault("aclrtMalloc"):
        assert malloc() == 207001
    assert "aclrtMalloc failed with 207001: a fault was ordered" in api.aclGetRecentErrMsg().decode()


def test_faults_from_many_threads_are_counted_once(sim: ModuleType) -> None:
    with sim.fault("aclrtGetDeviceCount", every=10) as fault:
        failed = []

        def work() -> None:
            count = ctypes.c_uint32()
            for _ in range(500):
                if api.aclrtGetDeviceCount(ctypes.byref(count)):
                    failed.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(failed) == 200 == fault.hits


def test_counters_give_the_number_of_calls_of_each_function(sim: ModuleType) -> None:
    sim.reset_counters()
    for _ in range(3):
        malloc()
    assert sim.counters() == {"aclrtMalloc": 3, "aclrtFree": 3}


def test_control_api_gives_live_handles_and_memory(sim: ModuleType) -> None:
    before, used = sim.live_handles(), sim.physical_bytes()
    address, event = out(), out()
    assert api.aclrtMalloc(ctypes.byref(address), 1 << 20, 0) == 0
    assert api.aclrtCreateEvent(ctypes.byref(event)) == 0
    assert sim.live_handles().get("event", 0) == before.get("event", 0) + 1
    assert sim.physical_bytes() >= used + (1 << 20)
    assert api.aclrtFree(address) == 0
    assert api.aclrtDestroyEvent(event) == 0
    assert sim.live_handles() == before
    assert sim.physical_bytes() == used
    assert sim.physical_peak() >= used + (1 << 20)


def test_a_lost_device_answers_with_the_code(sim: ModuleType) -> None:
    with sim.device_lost(0, 507901):
        assert malloc() == 507901
    assert malloc() == 0


def test_device_lost_by_a_fault_works_after_the_fault(sim: ModuleType) -> None:
    with sim.Fault("device0:lost=507901") as fault:
        assert malloc() == 507901
        assert malloc() == 507901
        assert fault.hits == 2
    assert malloc() == 0
    assert fault.hits == 2
    fault.remove()
    assert malloc() == 0


def test_device_lost_by_two_faults_works_after_both_are_removed(sim: ModuleType) -> None:
    first, second = sim.Fault("device0:lost=507901"), sim.Fault("device0:lost=507899")
    first.remove()
    assert malloc() == 507899
    second.remove()
    assert malloc() == 0


def test_the_end_of_the_newer_loss_leaves_the_code_of_the_older(sim: ModuleType) -> None:
    first, second = sim.Fault("device0:lost=507901"), sim.Fault("device0:lost=507899")
    assert malloc() == 507899
    second.remove()
    assert malloc() == 507901
    first.remove()
    assert malloc() == 0


def test_a_fault_removed_after_a_reset_ends_no_newer_one(sim: ModuleType) -> None:
    old = sim.fault("aclrtMalloc")
    sim.reset()
    with sim.fault("aclrtMalloc", code=507899) as new:
        old.remove()
        assert malloc() == 507899
    assert (old.hits, new.hits) == (0, 1)


def test_a_removed_fault_keeps_its_hits(sim: ModuleType) -> None:
    with sim.fault("aclrtMalloc") as first:
        malloc()
    with sim.fault("aclrtMalloc") as second:
        malloc()
        malloc()
    assert (first.hits, second.hits) == (1, 2)


def test_fault_added_while_the_last_one_is_removed_takes_effect(sim: ModuleType) -> None:
    """Each thread's fault hits the call of this thread, even if the other thread removes its fault at that time."""
    missed: list[str] = []

    def work(name: str, argument: object) -> None:
        call = getattr(api, name)
        for _ in range(20000):
            with sim.fault(name, code=507899):
                if call(ctypes.byref(argument)) != 507899:
                    missed.append(name)

    threads = [threading.Thread(target=work, args=("aclrtGetDevice", ctypes.c_int32())),
               threading.Thread(target=work, args=("aclrtGetDeviceCount", ctypes.c_uint32()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []


def test_lost_device_stays_lost_after_a_device_reset(sim: ModuleType) -> None:
    assert api.aclrtSetDevice(1) == 0
    with sim.Fault("device1:lost=507899"):
        assert api.aclrtResetDeviceForce(1) == 0
        assert api.aclrtSetDevice(1) == 0
        assert malloc() == 507899
        assert api.aclrtResetDevice(1) == 0
    assert api.aclrtSetDevice(1) == 0
    assert malloc() == 0
    assert api.aclrtResetDevice(1) == 0
    assert api.aclrtSetDevice(0) == 0


def test_reset_of_the_simulator_ends_a_lost_device_fault(sim: ModuleType) -> None:
    fault = sim.Fault("device0:lost=507899")
    sim.reset()
    assert malloc() == 0
    fault.remove()
    assert malloc() == 0


def test_a_lost_device_has_no_virtual_memory_either(sim: ModuleType) -> None:
    """Calls for virtual memory have the device as an argument, so the thread's current device has no effect."""
    prop = PhysicalProp(attribute=4, location=Location(0, DEVICE))
    base, handle = out(), made("aclrtMallocPhysical", GRANULE, ctypes.byref(prop), 0)
    assert api.aclrtReserveMemAddress(ctypes.byref(base), GRANULE, 0, None, 1) == 0
    with sim.device_lost(0):
        assert api.aclrtMallocPhysical(ctypes.byref(out()), GRANULE, ctypes.byref(prop), 0) == 507899
        assert api.aclrtMapMem(base, GRANULE, 0, handle, 0) == 507899
    assert api.aclrtMapMem(base, GRANULE, 0, handle, 0) == 0
    for call, value in (("aclrtUnmapMem", base), ("aclrtFreePhysical", handle), ("aclrtReleaseMemAddress", base)):
        assert getattr(api, call)(value) == 0


def test_failed_stream_returns_its_error_to_the_program(sim: ModuleType) -> None:
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    sim.fail_stream(stream.value, 507015)
    assert api.aclrtSynchronizeStream(stream) == 507015
    api.aclrtDestroyStream(stream)


def test_trace_file_has_a_line_for_each_call(sim: ModuleType, tmp_path: Path) -> None:
    with sim.trace(tmp_path / "calls") as path:
        malloc()
        with sim.fault("aclrtMalloc"):
            malloc()
    malloc()
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [(line[2], line[3]) for line in lines] == [
        ("aclrtMalloc", "0"), ("aclrtFree", "0"), ("aclrtMalloc", "207001"),
    ]
    assert all(float(line[0]) >= 0 and int(line[1]) > 0 for line in lines)


FAMILY = """
import ctypes, subprocess, sys
from acl import sim
library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
count = ctypes.c_uint32()
for _ in range(3):
    assert library.aclrtGetDeviceCount(ctypes.byref(count)) == 0
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def test_trace_and_counters_of_a_child_program_are_added(tmp_path: Path) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    run_child(str(tmp_path / "family.py"), ACL_SIM_TRACE=str(tmp_path / "trace"),
              ACL_SIM_COUNTERS=str(tmp_path / "counters")).check_returncode()
    assert (tmp_path / "trace").read_text().count("aclrtGetDeviceCount 0 ") == 6
    lines = (tmp_path / "counters").read_text().splitlines()
    assert [json.loads(line)["aclrtGetDeviceCount"] for line in lines] == [3, 3]


def test_trace_and_counters_with_the_process_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    run_child(str(tmp_path / "family.py"), ACL_SIM_TRACE=str(tmp_path / "trace.%p"),
              ACL_SIM_COUNTERS=str(tmp_path / "counters.%p.json")).check_returncode()
    traces, counters = sorted(tmp_path.glob("trace.*")), sorted(tmp_path.glob("counters.*"))
    assert [path.read_text().count("aclrtGetDeviceCount 0 ") for path in traces] == [3, 3]
    assert [json.loads(path.read_text())["aclrtGetDeviceCount"] for path in counters] == [3, 3]
    assert {path.suffix[1:] for path in traces} == {path.name.split(".")[1] for path in counters}


def test_a_forked_child_counts_and_traces_its_own_calls(tmp_path: Path) -> None:
    run_python("""
        import ctypes, os
        from acl import sim
        library = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        count = ctypes.c_uint32()
        library.aclrtGetDeviceCount(ctypes.byref(count))
        child = os.fork()
        if child == 0:
            library.aclrtGetDeviceCount(ctypes.byref(count))
            os._exit(sim.counters()["aclrtGetDeviceCount"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    """, ACL_SIM_TRACE=str(tmp_path / "trace.%p")).check_returncode()
    assert [path.read_text().count("aclrtGetDeviceCount") for path in tmp_path.glob("trace.*")] == [1, 1]


def test_sim_run_overwrites_earlier_trace_and_counter_files(tmp_path: Path) -> None:
    trace, counters = tmp_path / "trace", tmp_path / "counters"
    for _ in range(2):
        run_tool("--trace", str(trace), "--counters", str(counters), "--", sys.executable, "-c",
                 PROGRAM).check_returncode()
    assert trace.read_text().count("aclrtGetDeviceCount") == 1
    assert json.loads(counters.read_text())["aclrtGetDeviceCount"] == 1


def test_trace_file_that_cannot_be_written_is_refused(sim: ModuleType) -> None:
    with pytest.raises(ValueError, match="cannot write"), sim.trace("/nonexistent/folder/trace"):
        pass


def fastest(work: Callable[[], None]) -> float:
    """Run `work` 30 times and return the shortest time in seconds."""
    times = []
    for _ in range(30):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def test_latency_has_a_price_for_each_sort_of_call(sim: ModuleType) -> None:
    """All forms of asynchronous copies cost the same; host-only calls are free; pools and managed memory are not."""
    stream, here, there = out(), made("aclrtMalloc", 4096, 0), made("aclrtMalloc", 4096, 0)
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    props = PoolProps(location=Location(0, DEVICE))
    pool, block = made("aclrtMemPoolCreate", ctypes.byref(props)), out()

    def handle() -> None:
        api.aclrtDestroyStreamConfigHandle(api.aclrtCreateStreamConfigHandle())

    def plain() -> None:
        assert api.aclrtMemcpyAsync(here, 64, there, 64, 3, stream) == 0

    def rows() -> None:
        assert api.aclrtMemcpy2dAsync(here, 64, there, 64, 64, 2, 3, stream) == 0

    def managed() -> None:
        assert api.aclrtFree(made("aclrtMemAllocManaged", 4096, 1)) == 0

    def pooled() -> None:
        assert api.aclrtMemPoolMallocAsync(ctypes.byref(block), 1 << 20, pool, stream) == 0
        assert api.aclrtMemPoolFreeAsync(block, stream) == 0

    def device() -> None:
        assert malloc() == 0

    works = (handle, plain, rows, managed, pooled, device)
    free = {work: fastest(work) for work in works}
    sim.configure(latency="pcie")
    priced = {work: fastest(work) for work in works}
    sim.configure(latency="off")
    cost = {work: priced[work] - free[work] for work in works}
    assert cost[handle] < cost[device] / 10
    assert abs(cost[rows] - cost[plain]) < cost[device] / 20
    assert cost[managed] > cost[device] / 2
    assert cost[pooled] > cost[device] / 50
    assert api.aclrtSynchronizeStream(stream) == 0
    assert api.aclrtMemPoolDestroy(pool) == 0
    for address in (here, there):
        assert api.aclrtFree(address) == 0
    assert api.aclrtDestroyStream(stream) == 0


def test_latency_makes_calls_take_longer(sim: ModuleType) -> None:
    def device() -> None:
        assert malloc() == 0

    off = fastest(device)
    sim.configure(latency="memory")
    assert sim.configuration()["latency"] == "memory"
    assert fastest(device) > off + 150e-6
    sim.configure(latency="off")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("8GiB", str(8 << 30)), ("512M", str(512 << 20)), (4096, "4096"), ("1.5k", "1536"),
     ("8G, 4gb", f"{8 << 30},{4 * 10**9}"), (["1K", 2048], "1024,2048")],
)
def test_memory_sizes_of_devices_may_be_texts_or_ints(sim: ModuleType, text: object, parsed: str) -> None:
    assert sim.parse_sizes(text) == parsed


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "8Q", [], "1G,,2G"])
def test_impossible_memory_sizes_of_devices_are_refused(sim: ModuleType, text: object) -> None:
    with pytest.raises(ValueError):
        sim.parse_sizes(text)


def test_configuration_returns_each_setting() -> None:
    done = run_python("""
        from acl import sim
        sim.configure(allocators=False, device_code="skip")
        print(sorted(sim.configuration()) == sorted(sim._SETTINGS))
        print(sim.configuration()["allocators"], sim.configuration()["device_code"])
    """)
    assert done.stdout.split() == ["True", "0", "skip"], done.stderr


def test_configuring_a_device_in_use_is_refused(sim: ModuleType) -> None:
    with pytest.raises(ValueError, match="only while no device is in use"):
        sim.configure(devices=3)
    assert sim.configuration()["devices"] == "2"


def test_unknown_setting_of_the_simulator_is_refused(sim: ModuleType) -> None:
    with pytest.raises(TypeError, match="no setting 'colour'"):
        sim.configure(colour="red")


def test_configure_sets_devices_memory_chip_and_cann_version_and_refuses_wrong_values() -> None:
    done = run_python("""
        from acl import sim
        sim.configure(devices=4, capacity=["8GiB", "4GiB"], soc="Ascend310P3", cann="8.5.0", strict=True)
        print(sim.configuration())
        for wrong in (dict(devices=99), dict(soc="Toaster"), dict(latency="warp"), dict(strict=7)):
            try:
                sim.configure(**wrong)
            except ValueError as error:
                print("refused", error)
        print(sim.configuration()["devices"], sim.configuration()["soc"])
    """)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"'capacity': '{8 << 30},{4 << 30},{4 << 30},{4 << 30}'" in lines[0]
    assert [line.split()[0] for line in lines[1:5]] == ["refused"] * 4
    assert lines[5] == "4 Ascend310P3"


def test_every_chip_can_be_chosen(sim: ModuleType) -> None:
    code = """
        import ctypes
        from acl import sim
        for name in sim.socs():
            sim.configure(soc=name)
            lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
            lib.aclrtGetSocName.restype = ctypes.c_char_p
            compatible = ctypes.c_int32(-1)
            assert lib.aclrtCheckArchCompatibility(name.encode(), ctypes.byref(compatible)) == 0
            print(lib.aclrtGetSocName().decode(), compatible.value)
    """
    done = run_python(code)
    assert done.stdout.split("\n")[:-1] == [f"{name} 1" for name in sim.socs()], done.stderr


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_child("-m", "acl.tools.sim", *arguments)


PROGRAM = (
    "import ctypes as c; l = c.CDLL('libascendcl.so'); n = c.c_uint32(); l.aclrtGetDeviceCount(c.byref(n));"
    "l.aclInit(None); p = c.c_void_p();"
    "print(n.value, l.aclrtSetDevice(0), l.aclrtMalloc(c.byref(p), c.c_size_t(64), 0))"
)


def test_sim_run_finds_the_library_by_name() -> None:
    done = run_tool("--devices", "5", "--", sys.executable, "-c", PROGRAM)
    assert done.stdout.split() == ["5", "0", "0"], done.stderr


def test_sim_run_returns_the_exit_status_of_the_program() -> None:
    assert run_tool("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


@pytest.mark.parametrize(
    "option, value, text",
    [
        ("--soc", "nonsense", "--soc: "),
        ("--faults", "aclrtNope:nth=1", "the simulator has no function aclrtNope"),
        ("--faults", "aclrtMalloc:nth=1,aclrtMalloc:nth=x", "expected FUNCTION:KEY=NUMBER"),
        ("--latency", "warp", "no latency preset is called warp"),
        ("--devices", "100", "--devices: "),
    ],
)
def test_sim_run_refuses_settings_that_the_library_refuses(option: str, value: str, text: str) -> None:
    done = run_tool(option, value, "--", sys.executable, "-c", "print('ran')")
    assert done.returncode == 2
    assert text in done.stderr and "ran" not in done.stdout
    assert len(done.stderr.splitlines()) == 1


def test_simulator_without_devices_says_so_in_its_error() -> None:
    done = run_tool("--devices", "0", "--", sys.executable, "-c", "import acl; acl.Device(0).use()")
    assert "there are no devices" in done.stderr


def test_sim_run_orders_faults_and_writes_counters(tmp_path: Path) -> None:
    counters, trace = tmp_path / "counters.json", tmp_path / "trace"
    done = run_tool("--faults", "aclrtMalloc:nth=1:code=207001", "--counters", str(counters), "--trace", str(trace),
                    "--", sys.executable, "-c", PROGRAM)
    assert done.stdout.split() == ["2", "0", "207001"], done.stderr
    assert json.loads(counters.read_text())["aclrtMalloc"] == 1
    assert "aclrtMalloc 207001" in trace.read_text()


def test_sim_run_takes_pinned_memory_without_a_limit() -> None:
    code = "from acl import sim; print(sim.configuration()['pinned'])"
    done = run_tool("--pinned", "unlimited", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, "unlimited\n"), done.stderr


def test_sim_run_says_what_is_wrong() -> None:
    assert run_tool("--").returncode == 2
    missing = run_tool("--", "no-such-program")
    assert missing.returncode == 127
    assert "no-such-program: not found" in missing.stderr
    assert "--devices: expected a number, got 'x'" in run_tool("--devices", "x", "--", "true").stderr
    refused = run_tool("--capacity", "lots", "--", "true").stderr
    assert "capacity must look like '8GiB' or '512 MiB', not 'lots'" in refused


def test_a_wrong_variable_fails_aclinit() -> None:
    done = run_python("""
        import ctypes
        from acl import sim
        lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
        print(lib.aclInit(None), lib.aclGetRecentErrMsg().decode())
    """, ACL_SIM_DEVICES="many")
    assert "100000" in done.stdout
    assert "ACL_SIM_DEVICES is 'many', expected a number" in done.stdout


@pytest.mark.parametrize(("visible", "capacities"), [
    ("1", [4]), ("0,1", [8, 4]), ("1,0", [4, 8]), ("1,5,0", [4]), ("1,1", [4]), ("", [8, 4]), ("x", []), ("1x", []),
    ("-1", [])])
def test_process_sees_the_devices_that_the_variable_names(visible: str, capacities: list[int]) -> None:
    done = run_python("""
        import acl
        print([acl.Device(i).memory_info()[1] >> 30 for i in range(acl.Device.count())])
    """, ASCEND_RT_VISIBLE_DEVICES=visible, ACL_SIM_MEMORY="8G,4G")
    assert done.stdout.strip() == str(capacities), done.stderr


IDENTITIES = """
import ctypes
from support.calls import api, out
PHY_CHIP_ID = 402
api.aclInit(None)
def ask(name, *given):
    number = out(ctypes.c_int32)
    code = getattr(api, name)(*given, ctypes.byref(number))
    return number.value if code == 0 else code
def device(user):
    bus, uuid, chip = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16), out(ctypes.c_int64)
    assert api.aclrtDeviceGetPCIBusId(user, bus, 16) == 0
    assert api.aclrtDeviceGetUuid(user, uuid) == 0
    assert api.aclrtGetDeviceInfo(user, PHY_CHIP_ID, ctypes.byref(chip)) == 0
    found = [ask("aclrtGetLogicDevIdByUserDevId", user), ask("aclrtGetPhyDevIdByUserDevId", user), chip.value]
    found += [ask("aclrtGetUserDevIdByLogicDevId", found[0]), ask("aclrtGetUserDevIdByPhyDevId", found[1]),
              ask("aclrtDeviceGetByPCIBusId", bus.value)]
    return found, bus.value.decode(), uuid.raw.hex()
count = out(ctypes.c_uint32)
assert api.aclrtGetDeviceCount(ctypes.byref(count)) == 0
print([device(user) for user in range(count.value)])
print([ask("aclrtGetUserDevIdByLogicDevId", card) for card in range(4)])
print([ask("aclrtDeviceGetByPCIBusId", b"0000:8%d:00.0" % card) for card in range(4)])
print([ask("aclrtGetLogicDevIdByPhyDevId", card) for card in range(5)])
"""


def test_device_has_the_numbers_of_its_card() -> None:
    """Number, bus address and UUID of a device are those of the card that ASCEND_RT_VISIBLE_DEVICES lists."""
    done = run_python(IDENTITIES, ACL_SIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="2,0")
    devices, users, buses, cards = map(ast.literal_eval, done.stdout.splitlines())
    assert [one[:2] for one in devices] == [
        ([2, 2, 2, 0, 0, 0], "0000:82:00.0"), ([0, 0, 0, 1, 1, 1], "0000:80:00.0")]
    assert users == [1, 107001, 0, 107001]
    assert buses == users
    assert cards == [0, 1, 2, 3, 107001]
    whole = ast.literal_eval(run_python(IDENTITIES, ACL_SIM_DEVICES="4").stdout.splitlines()[0])
    assert [one[2] for one in devices] == [whole[2][2], whole[0][2]]


def test_devices_of_other_numbers_are_one_card_in_two_processes(tmp_path: Path) -> None:
    """One process can use only card 1, as its device 0; another process can use both cards.

    Memory that the first process takes on its device 0 is missing on device 1 of the other process.
    """
    done = run_python("""
        import os, subprocess, sys
        import acl
        free = lambda: [acl.Device(i).memory_info()[0] for i in (0, 1)]
        acl.Device(1).use()
        before = free()
        child = subprocess.Popen(
            [sys.executable, "-c", "import acl; b = acl.Buffer(1 << 30); print(1, flush=True); input()"],
            env={**os.environ, "ASCEND_RT_VISIBLE_DEVICES": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        print([(a - b) >> 30 for a, b in zip(before, free())])
        child.communicate(b"end")
    """, ACL_SIM_SHARED=str(tmp_path / "cards"), ACL_SIM_MEMORY="8G")
    assert done.stdout.strip() == "[0, 1]", done.stderr


MADE_AGAIN = """
import ctypes
from support.calls import api, out
api.aclInit(None)
api.aclrtSetDevice(0)
made = {"aclrtCreateStream": "aclrtDestroyStream", "aclrtCreateEvent": "aclrtDestroyEvent"}
for create, destroy in made.items():
    values = []
    for _ in range(3):
        handle = out()
        assert getattr(api, create)(ctypes.byref(handle)) == 0
        if create == "aclrtCreateStream":
            event = out()
            assert api.aclrtCreateEvent(ctypes.byref(event)) == 0
            assert api.aclrtRecordEvent(event, handle) == 0
            assert api.aclrtDestroyEvent(event) == 0
        values.append(handle.value)
        assert getattr(api, destroy)(handle) == 0
    print(len(set(values)))
"""


def test_reused_handle_is_the_last_one_destroyed() -> None:
    assert run_python(MADE_AGAIN, ACL_SIM_REUSE_HANDLES="").stdout.split() == ["3", "3"]
    assert run_python(MADE_AGAIN, ACL_SIM_REUSE_HANDLES="1").stdout.split() == ["1", "1"]
