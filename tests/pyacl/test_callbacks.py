"""Python callables that C calls: reports, host functions, states, exceptions, hooks."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.child import run_python

import acl
import acl.sim

BLOCK, NO_BLOCK = 1, 0


def soon(true: Callable[[], object]) -> None:
    """Wait until `true()` returns true because of another thread."""
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)


@pytest.fixture
def queue() -> Iterator[int]:
    """Yield a stream of device 0."""
    assert acl.rt.set_device(0) == 0
    stream, ret = acl.rt.create_stream()
    assert ret == 0
    yield stream
    assert acl.rt.destroy_stream(stream) == 0


@pytest.fixture
def reported(queue: int) -> Iterator[int]:
    """Yield the stream while a thread processes its reports."""
    stop = threading.Event()

    def process(given: list[int]) -> None:
        acl.rt.set_device(given[0])
        while not stop.is_set():
            acl.rt.process_report(50)

    thread, ret = acl.util.start_thread(process, [0])
    assert ret == 0
    assert acl.rt.subscribe_report(thread, queue) == 0
    yield queue
    assert acl.rt.unsubscribe_report(thread, queue) == 0
    stop.set()
    assert acl.util.stop_thread(thread) == 0


def test_launch_callback_runs_on_the_processing_thread(reported: int) -> None:
    seen: list[Any] = []
    given = [1, "two"]
    ret = acl.rt.launch_callback(lambda data: seen.append((data, threading.get_ident())), given, BLOCK, reported)
    assert ret == 0
    assert acl.rt.synchronize_stream(reported) == 0
    assert seen[0][0] is given
    assert seen[0][1] != threading.get_ident()


def test_callbacks_run_in_stream_order(reported: int) -> None:
    seen: list[int] = []
    for i in range(50):
        assert acl.rt.launch_callback(seen.append, i, BLOCK, reported) == 0
    assert acl.rt.synchronize_stream(reported) == 0
    assert seen == list(range(50))


def test_a_threading_thread_can_process_reports(queue: int) -> None:
    seen: list[int] = []
    stop = threading.Event()
    ready = threading.Event()

    def process() -> None:
        acl.rt.set_device(0)
        ready.set()
        while not stop.is_set():
            acl.rt.process_report(50)

    worker = threading.Thread(target=process)
    worker.start()
    assert ready.wait(10)
    assert acl.rt.subscribe_report(worker.ident, queue) == 0
    assert acl.rt.launch_callback(seen.append, 3, BLOCK, queue) == 0
    assert acl.rt.synchronize_stream(queue) == 0
    assert acl.rt.unsubscribe_report(worker.ident, queue) == 0
    stop.set()
    worker.join()
    assert seen == [3]


def test_launched_callback_is_released_after_its_call(reported: int) -> None:
    class Given:
        pass

    given = Given()
    alive = weakref.ref(given)
    assert acl.rt.launch_callback(lambda data: None, given, BLOCK, reported) == 0
    del given
    assert acl.rt.synchronize_stream(reported) == 0
    soon(lambda: gc.collect() >= 0 and alive() is None)     # freed on the other thread, after C returned


def test_failed_launch_keeps_no_reference_to_its_callback() -> None:
    class Given:
        pass

    given = Given()
    alive = weakref.ref(given)
    assert acl.rt.launch_callback(lambda data: None, given, BLOCK, 0x1234) != 0
    del given
    gc.collect()
    assert alive() is None


def test_an_exception_in_a_callback_goes_to_the_unraisable_hook(
    reported: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: caught.append((hook.exc_type, hook.object)))

    def fail(data: Any) -> None:
        raise LookupError(data)

    assert acl.rt.launch_callback(fail, 1, BLOCK, reported) == 0
    assert acl.rt.synchronize_stream(reported) == 0
    soon(lambda: caught)
    assert caught == [(LookupError, fail)]


def test_launch_without_subscriber_is_refused(queue: int) -> None:
    assert acl.rt.launch_callback(print, [], BLOCK, queue) == 107015


def test_launch_host_func_calls_the_function_with_its_argument(queue: int) -> None:
    seen: list[Any] = []
    assert acl.rt.launch_host_func(queue, seen.append, {"a": 1}) == 0
    assert acl.rt.synchronize_stream(queue) == 0
    assert seen == [{"a": 1}]


def test_wait_for_a_stream_releases_the_gil(queue: int) -> None:
    gate = threading.Event()
    assert acl.rt.launch_host_func(queue, lambda given: gate.wait(30), None) == 0
    threading.Timer(0.02, gate.set).start()
    assert acl.rt.synchronize_stream(queue) == 0        # would hang if the GIL were held
    assert gate.is_set()


def test_stream_state_callback_is_registered_and_removed_by_name() -> None:
    acl.rt.set_device(0)
    seen: list[Any] = []
    assert acl.rt.reg_stream_state_callback("pyacl-test", lambda *given: seen.append(given), "mine") == 0
    stream, _ = acl.rt.create_stream()
    acl.rt.destroy_stream(stream)
    assert [given[0] for given in seen] == [stream, stream]
    assert {given[2] for given in seen} == {"mine"}
    assert acl.rt.reg_stream_state_callback("pyacl-test", None, None) == 0
    stream, _ = acl.rt.create_stream()
    acl.rt.destroy_stream(stream)
    assert len(seen) == 2


def test_device_states_are_told_by_name() -> None:
    seen: list[Any] = []
    assert acl.rt.reg_device_state_callback("pyacl-test", lambda *given: seen.append(given), 5) == 0
    assert acl.rt.set_device(1) == 0
    assert acl.rt.reset_device(1) == 0
    assert acl.rt.set_device(0) == 0
    assert acl.rt.reg_device_state_callback("pyacl-test", None, None) == 0
    assert {given[0] for given in seen} >= {1}
    assert {given[2] for given in seen} == {5}


@pytest.mark.parametrize("function", [
    acl.rt.reg_stream_state_callback, acl.rt.reg_device_state_callback, acl.rt.set_device_task_abort_callback,
])
def test_state_callbacks_must_be_callable(function: Any) -> None:
    with pytest.raises(TypeError, match="argument 2 is not callable"):
        function("name", 7, None)


def test_init_and_finalize_callbacks() -> None:
    done = run_python("""
        import acl
        seen = []
        def on_init(config, given): seen.append(("init", given))
        def on_end(given): seen.append(("end", given))
        assert acl.init_callback_register(65535, on_init, 1) == 0
        assert acl.init_callback_register(65535, on_init, 2) == 0
        assert acl.finalize_callback_register(65535, on_end, 3) == 0
        assert acl.init() == 0
        assert acl.finalize() == 0
        assert acl.init_callback_unregister(65535, on_init) == 0
        assert acl.init_callback_unregister(65535, print) == 100000
        print(seen)
    """)
    assert done.stdout == "[('init', 1), ('init', 2), ('end', 3)]\n", done.stderr


def test_a_second_init_callback_of_a_type_is_refused() -> None:
    done = run_python("""
        import acl
        print(acl.init_callback_register(0, print, 1), acl.init_callback_register(0, print, 2))
    """)
    assert done.stdout == "0 500000\n", done.stderr


def test_a_failing_init_callback_is_the_result_of_init() -> None:
    done = run_python("""
        import acl
        assert acl.init_callback_register(65535, lambda config, given: given, 1234) == 0
        print(acl.init())
    """)
    assert done.stdout == "1234\n", done.stderr


def test_callback_is_called_when_a_graph_is_destroyed(queue: int) -> None:
    seen: list[Any] = []
    assert acl.mdl.ri_capture_begin(queue, 2) == 0
    graph, ret = acl.mdl.ri_capture_end(queue)
    assert ret == 0
    assert acl.mdl.ri_destroy_register_callback(graph, seen.append, "gone") == 0
    assert acl.mdl.ri_destroy_register_callback(graph, seen.append, "too") == 0
    assert acl.mdl.ri_destroy_unregister_callback(graph, print) == 100000
    assert acl.mdl.ri_destroy(graph) == 0
    assert seen == ["gone", "too"]


def test_exception_callback_can_be_set_and_removed() -> None:
    assert acl.rt.set_exception_info_callback(lambda info: None) == 0
    assert acl.rt.set_exception_info_callback(None) == 0
    assert acl.rt.set_exception_info_callback() == 0
    with pytest.raises(TypeError, match="argument 1 is not callable"):
        acl.rt.set_exception_info_callback(3)


def test_an_exception_of_a_task_reaches_every_callback(queue: int) -> None:
    seen: list[Any] = []

    def on_exception(info: int) -> None:
        seen.append((acl.rt.get_device_id_from_exception_info(info),
                     acl.rt.get_error_code_from_exception_info(info)))

    assert acl.rt.set_exception_info_callback(on_exception) == 0
    assert acl.rt.exception_info_callback_register(on_exception) == 0
    acl.sim.fail_stream(queue, 507015)
    assert acl.rt.synchronize_stream(queue) == 507015
    assert seen == [(0, 507015), (0, 507015)]
    assert acl.rt.exception_info_callback_unregister(on_exception) == 0
    assert acl.rt.set_exception_info_callback(None) == 0


def test_several_exception_callbacks_can_be_registered() -> None:
    first, second = [], []
    assert acl.rt.exception_info_callback_register(first.append) == 0
    assert acl.rt.exception_info_callback_register(second.append) == 0
    assert acl.rt.exception_info_callback_unregister(print) == 100000
    assert acl.rt.exception_info_callback_unregister(first.append) == 0
    assert acl.rt.exception_info_callback_unregister(second.append) == 0


@pytest.mark.parametrize(("seconds", "ends"), [(0.1, {"", "done\n"}), (600, {""})])
def test_process_exit_waits_for_a_short_callback_and_not_for_a_long_one(seconds: float, ends: set[str]) -> None:
    """The exit waits half a second for a callback; on a slow machine, the test tries several times."""
    found = set()
    for _ in range(20 * len(ends) - 19):
        done = run_python(f"""
            import atexit, threading, time, acl
            acl.rt.set_device(0)
            stream, _ = acl.rt.create_stream()
            started, leaving = threading.Event(), threading.Event()
            def slow(given):
                started.set()
                leaving.wait()
                time.sleep({seconds})
                print("done", flush=True)
            acl.rt.launch_host_func(stream, slow, None)
            started.wait()
            atexit.register(leaving.set)
        """, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        found.add(done.stdout)
        if "done\n" in found:
            break
    assert found <= ends and max(found) == max(ends)


def test_a_callback_waiting_at_exit_does_no_harm() -> None:
    done = run_python("""
        import acl
        acl.init(); acl.rt.set_device(0)
        stream, _ = acl.rt.create_stream()
        def process(given):
            acl.rt.set_device(0)
            while True:
                acl.rt.process_report(1000)
        thread, _ = acl.util.start_thread(process, [])
        acl.rt.subscribe_report(thread, stream)
        for i in range(100):
            acl.rt.launch_callback(lambda data: None, i, 0, stream)
        print("end")
    """, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
