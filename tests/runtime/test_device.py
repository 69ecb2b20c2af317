"""Device and Context: which of them is current in a thread."""

import re
import threading
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from support.child import run_python
from support.requests import small_model

import acl
from acl import Array
from acl.runtime import _device
from acl.tools.onnx_writer import Builder


def in_thread(function: object) -> object:
    """Call a function in a new thread. Return its result or its exception."""
    answers: list[object] = []

    def body() -> None:
        try:
            answers.append(function())  # type: ignore[operator]
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return answers[0]


def test_device_has_a_count_and_a_name(sim: ModuleType) -> None:
    assert acl.Device.count() == 2
    assert acl.Device(0).name == "Ascend910B1"


def test_a_new_thread_has_no_device() -> None:
    assert in_thread(acl.Device.current) is None
    assert in_thread(acl.Context.current) is None


def test_current_device_is_separate_for_each_thread() -> None:
    acl.Device(0).use()
    assert in_thread(lambda: (acl.Device(1).use(), acl.Device.current())[1]) == acl.Device(1)
    assert acl.Device.current() == acl.Device(0)


def test_objects_made_in_a_new_thread_use_device_0() -> None:
    assert in_thread(lambda: acl.Stream().device) == 0


def test_with_block_of_a_device_restores_the_earlier_device() -> None:
    acl.Device(0).use()
    with acl.Device(1), acl.Device(0), acl.Device(1):
        assert acl.Device.current() == acl.Device(1)
    assert acl.Device.current() == acl.Device(0)


def test_with_block_of_a_device_restores_the_earlier_device_after_an_error() -> None:
    acl.Device(0).use()
    with pytest.raises(ZeroDivisionError), acl.Device(1):
        raise ZeroDivisionError
    assert acl.Device.current() == acl.Device(0)


def test_use_of_a_missing_device_raises_an_error_with_a_hint() -> None:
    with pytest.raises(acl.InvalidArgumentError) as raised:
        acl.Device(77).use()
    assert raised.value.code == 107001
    assert "Device.count()" in raised.value.hint


@pytest.mark.parametrize(("device", "error"), [("0", TypeError), (1.0, TypeError), (-1, ValueError)])
def test_a_context_names_the_device_that_it_refuses(device: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="device must be"):
        acl.Context(device)  # type: ignore[arg-type]


def test_negative_device_ordinal_is_refused() -> None:
    with pytest.raises(ValueError, match="ordinal must be 0 or more, and below 2"):
        acl.Device(-1)


def test_health_query_takes_no_memory_and_keeps_the_current_device(sim: ModuleType, no_leaks: None) -> None:
    acl.Device(0).use()
    free, _ = acl.Device(1).memory_info()
    assert acl.Device(1).healthy() is True and acl.Device.current() == acl.Device(0)
    with sim.device_lost(1):
        assert (acl.Device(1).healthy(), acl.Device(0).healthy()) == (False, True)
    assert acl.Device(1).healthy() and acl.Device(1).memory_info()[0] == free
    assert in_thread(lambda: (acl.Device(1).healthy(), acl.Device.current())) == (True, None)


def test_health_query_that_fails_raises_an_error(sim: ModuleType) -> None:
    with sim.fault("aclrtQueryDeviceStatus", nth=1, code=500000), pytest.raises(acl.AclError, match="500000"):
        acl.Device(0).healthy()


def test_health_query_of_a_missing_device_raises_an_error() -> None:
    with pytest.raises(acl.InvalidArgumentError):
        acl.Device(77).healthy()


def test_memory_info_of_a_device_does_not_depend_on_the_current_device(no_leaks: None) -> None:
    acl.Device(0).use()
    free, total = acl.Device(1).memory_info()
    with acl.Buffer(64 << 20):
        assert acl.Device(1).memory_info() == (free, total)
        assert acl.Device(0).memory_info()[0] <= free - (64 << 20)
    assert acl.Device.current() == acl.Device(0)


def test_device_synchronize_waits_for_queued_work(stream: acl.Stream) -> None:
    gate, done = threading.Event(), []
    stream.launch(lambda: done.append(gate.wait(10)))
    threading.Timer(0.05, gate.set).start()
    acl.Device(0).synchronize()
    assert done == [True]


def test_device_synchronize_raises_after_its_timeout(stream: acl.Stream) -> None:
    gate = threading.Event()
    stream.launch(gate.wait, 10)
    with pytest.raises(acl.TimeoutError) as raised:
        acl.Device(0).synchronize(timeout_ms=20)
    assert raised.value.function == "aclrtSynchronizeDeviceWithTimeout"
    gate.set()
    acl.Device(0).synchronize(timeout_ms=10_000)


def test_device_wait_that_times_out_leaves_no_error_on_the_streams() -> None:
    gate = threading.Event()
    with acl.Stream(0) as first, acl.Stream(0) as second, acl.Buffer(512) as one, acl.Buffer(512) as other:
        for stream, buffer in ((first, one), (second, other)):
            stream.launch(gate.wait, 30)
            acl.fill(buffer, 0, stream=stream, wait=False)
        with pytest.raises(acl.TimeoutError):
            acl.Device(0).synchronize(timeout_ms=100)
        gate.set()
        for stream in (first, second):
            stream.synchronize(timeout_ms=20_000)
            stream.synchronize(timeout_ms=20_000)


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31])
def test_timeouts_that_the_runtime_refuses(timeout_ms: int, stream: acl.Stream) -> None:
    for wait in (acl.Device(0).synchronize, stream.synchronize, acl.Event().synchronize):
        with pytest.raises(
            ValueError, match=f"timeout_ms must be None or 1 to 2147483647, not {timeout_ms}"
        ):
            wait(timeout_ms=timeout_ms)


def test_device_objects_are_equal_if_their_ordinals_are() -> None:
    assert acl.Device(1) == acl.Device(1) != acl.Device(0)
    assert len({acl.Device(1), acl.Device(1), acl.Device(0)}) == 2
    assert repr(acl.Device(1)) == "Device(1)"


def test_new_context_is_current_until_another_is_used_or_it_is_closed(no_leaks: None) -> None:
    before = acl.Context.current()
    context = acl.Context(1)
    assert acl.Context.current() == context
    assert acl.Device.current() == acl.Device(1)
    assert before is not None
    before.use()
    context.close()
    context.close()
    assert context.closed
    with pytest.raises(ValueError, match="the Context is closed"):
        context.use()
    assert acl.Device.current() == acl.Device(0)


def test_with_block_of_a_context_restores_the_earlier_context(no_leaks: None) -> None:
    acl.Device(0).use()
    context = acl.Context(0)
    acl.Device(1).use()
    with context:
        assert acl.Context.current() == context
    assert acl.Device.current() == acl.Device(1)
    acl.Device(0).use()
    context.close()


def test_a_borrowed_context_is_not_destroyed(no_leaks: None) -> None:
    context = acl.Context.current()
    assert context is not None
    context.close()
    with acl.Stream():
        pass


def test_acl_initialised_earlier_by_foreign_code_is_accepted() -> None:
    done = run_python("""
        import ctypes, acl
        library = ctypes.CDLL(acl.library())
        assert library.aclInit(None) == 0
        with acl.Buffer(100): pass
        print("fine")
    """)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("fine", "", 0)


# ---- calls that keep the thread's context -------------------------------------------------------

def in_a_thread(body: Callable[[], None]) -> None:
    """Run a function in a new thread, which has no context; raise the function's exception in the calling thread."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("question", [
    lambda: acl.Device(1).memory_info(), lambda: acl.Device(1).stream_priorities(),
    lambda: acl.Device(1).synchronize(), lambda: acl.Device(1).__enter__().__exit__(),
])
def test_device_queries_give_no_device_to_a_thread_without_one(question: Callable[[], object]) -> None:
    acl.Device(1).use()
    acl.Device(0).use()

    def body() -> None:
        question()
        assert acl.Device.current() is None
        assert acl.Buffer(16).device == 0

    in_a_thread(body)


def test_with_block_of_a_shared_device_restores_the_context_of_each_thread() -> None:
    shared, inside, go = acl.Device(0), threading.Event(), threading.Event()
    first = acl.Context(1)
    acl.Device(0).use()

    def body() -> None:
        first.use()
        with shared:
            inside.set()
            assert go.wait(30)
        assert acl.Context.current() == first

    thread = threading.Thread(target=in_a_thread, args=(body,))
    thread.start()
    assert inside.wait(30)
    with acl.Context(0) as second, shared:
        pass
    go.set()
    thread.join()
    second.close()
    first.close()
    acl.Device(0).use()


def test_device_queries_do_not_count_as_device_uses(sim: ModuleType) -> None:
    device = acl.Device(1)
    device.use()
    before = acl.Context.current()
    device.memory_info(), device.stream_priorities(), device.synchronize()
    with device:
        acl.Stream(1).close()
    sim.reset_counters()
    device.use()
    device.memory_info()
    assert sim.counters()["aclrtSetDevice"] == 1
    assert acl.Context.current() == before
    device.reset()
    acl.Device(0).use()


def test_thread_can_allocate_after_its_current_context_is_closed() -> None:
    def body() -> None:
        acl.Context(0).close()
        assert acl.Buffer(16).device == 0

    in_a_thread(body)
    acl.Device(0).use()


# ---- objects of another device ------------------------------------------------------------------

X = np.ones((2, 8), np.float32)


def use_of(kind: str, stream: acl.Stream) -> None:
    """Use an object of device 0 on a stream."""
    buffer = acl.Buffer(64)
    model = acl.Model(small_model().to_bytes(), 0)
    array = Array.of(buffer, (2, 8), "float32")
    uses: dict[str, Callable[[], object]] = {
        "model 'model'": lambda: model.run_async(X, stream),
        "input 'x'": lambda: acl.Model(small_model().to_bytes(), 1).run_async(array, stream),
        "input 'x' of bytes": lambda: acl.Model(fixed_model(), 1).run_async(buffer, stream),
        "input 0 of Relu": lambda: acl.Op("Relu")(array, stream=stream),
        "an output of Relu": lambda: acl.Op("Relu")(X, outputs=[array], stream=stream),
    }
    uses[kind]()


@pytest.mark.parametrize(
    "kind", ["model 'model'", "input 'x'", "input 'x' of bytes", "input 0 of Relu", "an output of Relu"])
def test_models_and_arrays_on_another_device_than_the_stream_are_refused(kind: str) -> None:
    acl.Device(0).use()
    try:
        with acl.Device(1):
            stream = acl.Stream(1)
        acl.Device(0).use()
        wanted = f"{kind.removesuffix(' of bytes')} is on device 0, the stream is on device 1"
        with pytest.raises(acl.InvalidArgumentError, match=re.escape(wanted)):
            use_of(kind, stream)
    finally:
        acl.Device(0).use()


def fixed_model() -> bytes:
    """Return a model of fixed shapes: y = relu(x), for x of [2, 8]."""
    b = Builder()
    b.add("Relu", b.input("x", "float32", [2, 8]), outputs=["y"])
    b.output("y", "float32", [2, 8])
    return b.to_bytes()


def test_streams_of_a_context_that_acl_refuses_to_destroy_are_still_waited_for(sim: ModuleType) -> None:
    context, go = acl.Context(0), threading.Event()
    stream = acl.Stream()
    stream.launch(go.wait, 30)
    with sim.fault("aclrtDestroyContext", times=1), pytest.raises(acl.AclError):
        context.close()
    with pytest.raises(acl.TimeoutError):
        stream.synchronize(timeout_ms=1)
    go.set()
    stream.close()


def test_streams_of_a_new_context_with_the_handle_of_a_destroyed_one_go_on() -> None:
    child = run_python("""
        import acl
        from acl.runtime import _device

        context = acl.Context(0)
        handle, old, end, made = context.handle, acl.Stream(), _device.streams_end, []

        def late(streams):                  # what another thread may do before the streams are ended
            made.append((acl.Context(0), acl.Stream()))
            end(streams)

        _device.streams_end = late
        context.close()
        print(made[0][0].handle == handle, old.progress.ended, made[0][1].progress.ended)
        _device.streams_end = end
    """, ACL_SIM_REUSE_HANDLES="1")
    assert child.stdout.split() == ["True", "True", "False"], child.stderr


def test_device_used_during_its_first_question_is_not_reset_by_the_answer() -> None:
    with _device.Question(1), _device.Question(1):
        with acl.Device(1):
            stream = acl.Stream(1)
    with acl.Device(1):
        stream.record()
        stream.close()
    acl.Device(1).reset()


def test_device_whose_reset_failed_needs_no_further_reset(sim: ModuleType) -> None:
    with acl.Device(1):
        pass
    acl.Device(1).reset(force=True)                 # other tests may have used it
    with acl.Device(1):
        stream = acl.Stream(1)
    with sim.fault("aclrtResetDevice", times=1), pytest.raises(acl.AclError):
        acl.Device(1).reset()
    with acl.Device(1):
        pass
    acl.Device(1).reset()
    assert stream.progress.ended
