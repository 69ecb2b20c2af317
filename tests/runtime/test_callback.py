"""Python functions on streams: their thread, order, exceptions, and the objects that they keep alive."""

import gc
import sys
import threading
import weakref
from types import ModuleType

import pytest
from support.child import run_python

import acl


class Thing:
    """An object to which a weak reference can be made."""


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets the exceptions passed to sys.unraisablehook."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(args.exc_value))
    return seen


def test_callback_runs_on_another_thread_with_its_arguments(stream: acl.Stream) -> None:
    seen: list[object] = []
    stream.launch(lambda *arguments: seen.append((threading.get_ident(), arguments)), 1, "two")
    stream.synchronize()
    [(thread, arguments)] = seen
    assert thread != threading.get_ident()
    assert arguments == (1, "two")


def test_exception_in_a_callback_is_reported_and_raised_by_the_next_synchronize(
    stream: acl.Stream, unraisable: list[object]
) -> None:
    def fail() -> None:
        raise KeyError("lost?")

    stream.launch(fail)
    with pytest.raises(KeyError, match="lost"):
        stream.synchronize()
    assert [type(error) for error in unraisable] == [KeyError]
    stream.synchronize()


def test_exceptions_of_callbacks_are_each_raised_once_in_order(
    stream: acl.Stream, unraisable: list[object]
) -> None:
    def fail(number: int) -> None:
        raise ValueError(number)

    for number in range(3):
        stream.launch(fail, number)
    for number in range(3):
        with pytest.raises(ValueError, match=str(number)):
            stream.synchronize()
    stream.synchronize()
    assert len(unraisable) == 3


def test_stream_goes_on_after_an_exception_in_a_callback(stream: acl.Stream, unraisable: list[object]) -> None:
    done: list[int] = []
    stream.launch(lambda: 1 / 0)
    stream.launch(done.append, 1)
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
    assert done == [1]


def test_launch_of_an_object_that_is_not_callable_is_refused(stream: acl.Stream) -> None:
    with pytest.raises(TypeError, match="function must be callable, not int"):
        stream.launch(3)  # type: ignore[arg-type]


def test_objects_held_by_a_callback_are_dropped_in_the_launching_thread(stream: acl.Stream) -> None:
    thing, where = Thing(), []
    watch = weakref.finalize(thing, lambda: where.append(threading.get_ident()))
    stream.launch(lambda held: None, thing)
    del thing
    stream.synchronize()
    assert where == [threading.get_ident()]
    assert not watch.alive


def test_failed_launch_keeps_no_reference_to_its_arguments(stream: acl.Stream, sim: ModuleType) -> None:
    thing = Thing()
    gone = weakref.ref(thing)
    with sim.fault("aclrtLaunchHostFunc", nth=1), pytest.raises(acl.AclError):
        stream.launch(lambda held: None, thing)
    del thing
    gc.collect()
    assert gone() is None


def test_stream_can_be_dropped_while_a_callback_is_queued(no_leaks: None) -> None:
    done: list[int] = []
    made = acl.Stream()
    made.launch(done.append, 1)
    del made
    gc.collect()
    acl.Device(0).synchronize()
    assert done == [1]


def test_a_callback_may_hold_its_stream(no_leaks: None) -> None:
    made, seen = acl.Stream(), []
    made.launch(lambda held: seen.append(held.closed), made)
    made.synchronize()
    assert seen == [False]
    made.close()


OLD_CANN = """
    import threading, time, acl
    from acl.bind.generated import _libacl
    assert not _libacl.functions()["aclrtLaunchHostFunc"]
    done = []
    with acl.Stream() as stream, acl.Stream() as other:
        for number in range(20):
            stream.launch(done.append, number)
        other.launch(done.append, "other")
        stream.synchronize()
        other.synchronize()
        print(sorted(map(str, done)) == sorted([*map(str, range(20)), "other"]))
        print([n for n in done if n != "other"] == list(range(20)))
        import sys
        sys.unraisablehook = lambda args: print("reported", args.exc_value)
        stream.launch(lambda: 1 / 0)
        try:
            stream.synchronize()
        except ZeroDivisionError:
            print("raised")
    print(threading.active_count())
"""


def test_callbacks_work_on_a_cann_without_host_functions() -> None:
    done = run_python(OLD_CANN, ACL_WITHOUT="newer")
    assert done.stdout.split("\n")[:-1] == [
        "True",
        "True",
        "reported division by zero",
        "raised",
        "1",
    ], done.stderr
    assert done.returncode == 0
