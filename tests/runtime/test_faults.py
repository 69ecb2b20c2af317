"""The fault matrix: each C function that the wrapper calls fails once, in every use that reaches it.

The functions are read from the sources, so a new call is tested without a change of this file.  If no action below
reaches a function, the function's test fails.
"""

import gc
from collections.abc import Callable
from types import ModuleType

import pytest
from support.child import run_python
from support.sources import calls, checked

import acl
import acl.sim

MODULES = ("_device", "_stream", "_buffer", "_copy", "_callback", "_work")
CALLED = sorted(set().union(*(calls(module) for module in MODULES)))
CHECKED = set().union(*(checked(module) for module in MODULES)) & set(CALLED)
# Functions that are called only at the start, at the end, or with an older CANN; they are tested in child processes.
ELSEWHERE = {
    "aclInit",
    "aclFinalizeReference",
    "aclrtLaunchCallback",
    "aclrtProcessReport",
    "aclrtSubscribeReport",
    "aclrtUnSubscribeReport",
}
# `Device.healthy` returns False if this function fails; `test_device.py` tests the status for which it raises.
ANSWERS = {"aclrtQueryDeviceStatus"}
# If one of these functions fails, its object still exists (for a context, also its default stream).
LEAVES_ONE = {
    "aclrtDestroyContext",
    "aclrtDestroyEvent",
    "aclrtDestroyStream",
    "aclrtFree",
    "aclrtFreeHost",
}


def device_action() -> None:
    with acl.Device(1) as device:
        device.synchronize()
        device.synchronize(timeout_ms=1000)
        device.memory_info()
        assert device.healthy() in (True, False)
        device.stream_priorities()
        assert isinstance(device.name, str)
    acl.Device.count()
    acl.Device.current()


def reset_action() -> None:
    with acl.Device(0):
        acl.Device(1).use()
        acl.Device(1).reset()


def reset_force_action() -> None:
    acl.Device(1).use()
    try:
        acl.Device(1).reset(force=True)
    finally:
        acl.Device(0).use()


def context_action() -> None:
    before = acl.Context.current()
    try:
        context = acl.Context(0)
        with context:
            pass
        context.close()
    finally:
        if before is not None:
            acl.Device(0).use()


def context_current_action() -> None:
    acl.Context(None).close()
    acl.Device(0).use()


def stream_action() -> None:
    with (
        acl.Stream(stop_on_failure=True) as stream,
        acl.Event(timing=True) as start,
        acl.Event(timing=True) as end,
    ):
        start.record(stream)
        stream.record(end)
        stream.wait_event(end)
        stream.query()
        stream.synchronize()
        stream.synchronize(timeout_ms=1000)
        end.query()
        end.synchronize()
        end.synchronize(timeout_ms=1000)
        start.elapsed_ms(end)
        stream.launch(len, ())
        stream.synchronize()
        stream.abort()


def buffer_action() -> None:
    with (
        acl.Stream() as stream,
        acl.HostBuffer(64) as host,
        acl.Buffer(64, stream=stream) as buffer,
    ):
        acl.copy(buffer, host)
        acl.copy_async(buffer, host)
        acl.fill(buffer, 1)
        acl.copy_2d(buffer, 8, host, 8, 4, 8)
    with acl.Buffer(64) as plain:
        acl.copy(plain, bytes(64))
        acl.fill(plain, 1)
        acl.copy_2d(plain, 8, bytes(64), 8, 4, 8)


def drop_action() -> None:
    things = [acl.Stream(), acl.Event(), acl.Buffer(64), acl.HostBuffer(64)]
    things.clear()
    gc.collect()


ACTIONS = [
    device_action,
    reset_action,
    reset_force_action,
    context_action,
    context_current_action,
    stream_action,
    buffer_action,
    drop_action,
]


def settle() -> None:
    """Create the default context of every device, and make device 0 current through the wrapper."""
    for ordinal in reversed(range(acl.Device.count())):
        acl.Device(ordinal).use()
    acl.Stream.default()
    gc.collect()


def uses(sim: ModuleType, action: Callable[[], None], function: str) -> int:
    """Return how many times an action calls a function if nothing fails."""
    settle()
    sim.reset_counters()
    action()
    count: int = sim.counters().get(function, 0)
    return count


def failures(
    sim: ModuleType, action: Callable[[], None], function: str, nth: int
) -> acl.AclError | None:
    """Run an action whose nth call of a function fails. Return its error."""
    settle()
    with sim.fault(function, nth=nth, code=507899) as fault:
        try:
            action()
        except acl.AclError as error:
            error.__context__ = None
            return error.with_traceback(None)  # the frames of a traceback would keep the action's objects alive
        finally:
            assert fault.hits == 1
    return None


def leaked(sim: ModuleType, before: dict[str, int]) -> dict[str, int]:
    """Return the change of the number of live handles since `before`, by kind."""
    settle()
    after = sim.live_handles()
    more = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in before.keys() | after.keys()}
    return {kind: count for kind, count in more.items() if count}


@pytest.mark.parametrize("function", sorted(set(CALLED) - ELSEWHERE))
def test_failure_of_each_runtime_function_is_handled_in_each_use(function: str, sim: ModuleType) -> None:
    reached = 0
    for action in ACTIONS:
        for nth in range(1, uses(sim, action, function) + 1):
            reached += 1
            settle()
            handles, used = sim.live_handles(), sim.physical_bytes()
            error = failures(sim, action, function, nth)
            if error is not None:
                assert (error.code, error.name) == (507899, "ACL_ERROR_RT_DRV_INTERNAL_ERROR")
                assert error.function == function
            more = leaked(sim, handles)
            if function in LEAVES_ONE:
                assert sum(more.values()) <= (2 if function == "aclrtDestroyContext" else 1)
            else:
                assert (more, sim.physical_bytes()) == ({}, used)
            action()
    assert reached, f"no action reaches {function}"


@pytest.mark.parametrize("function", sorted(CHECKED - ELSEWHERE - ANSWERS))
def test_failure_of_each_checked_runtime_function_raises_an_error(function: str, sim: ModuleType) -> None:
    errors = [
        failures(sim, action, function, nth)
        for action in ACTIONS[:-1]
        for nth in range(1, uses(sim, action, function) + 1)
    ]
    assert any(error is not None and error.function == function for error in errors)


def test_every_runtime_function_that_is_called_is_checked_or_listed_as_exempt() -> None:
    # If one of these functions fails, the user's call succeeds: no name, no context or no device is a valid result.
    answers = {"aclrtGetCurrentContext", "aclrtGetDevice", "aclrtGetSocName"}
    assert set(CALLED) - CHECKED - answers - LEAVES_ONE == {
        "aclFinalizeReference",
        "aclrtProcessReport",
        "aclrtUnSubscribeReport",
    }


def test_first_use_raises_the_error_of_acl_init_and_the_next_use_works() -> None:
    done = run_python(
        """
        import acl
        try:
            acl.Stream()
        except acl.AclError as error:
            print(error.code, error.function)
        acl.Stream().close()
    """,
        ACL_SIM_FAULTS="aclInit:nth=1:code=500000",
    )
    assert (done.stdout.split(), done.returncode) == (["500000", "aclInit"], 0), done.stderr


def test_failing_finalize_at_process_exit_prints_nothing() -> None:
    done = run_python("""
        import acl, acl.sim
        from acl.bind.generated import _libacl
        if _libacl.functions()["aclFinalizeReference"]:
            acl.sim.fault("aclFinalizeReference", code=500000)
        acl.Stream().close()
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    "function", ["aclrtLaunchCallback", "aclrtSubscribeReport", "aclrtUnSubscribeReport"]
)
def test_launch_on_an_older_cann_raises_the_failure_of_its_callback_functions(function: str) -> None:
    done = run_python(
        """
        import acl, threading, acl.sim
        acl.Stream.default()
        before = acl.sim.live_handles()
        with acl.Stream() as stream:
            try:
                stream.launch(print, "called")
                stream.synchronize()
            except acl.AclError as error:
                print(error.code, error.function)
        print(threading.active_count(), acl.sim.live_handles() == before)
    """,
        ACL_WITHOUT="newer",
        ACL_SIM_FAULTS=f"{function}:nth=1:code=507899",
    )
    first = "called" if function == "aclrtUnSubscribeReport" else f"507899 {function}"
    assert done.stdout.splitlines() == [first, "1 True"], done.stderr
    assert done.returncode == 0
