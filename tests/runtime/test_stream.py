"""Stream and Event: order, waiting, lifetimes."""

import gc
import threading
import time
from types import ModuleType

import pytest

import acl
from acl.runtime import _stream


def hold(stream: acl.Stream) -> threading.Event:
    """Keep a stream busy until the returned event is set, but for 30 s at most."""
    gate = threading.Event()
    stream.launch(gate.wait, 30)
    return gate


def test_stream_query_is_true_only_when_work_is_done(stream: acl.Stream) -> None:
    assert stream.query() is True
    gate = hold(stream)
    assert stream.query() is False
    gate.set()
    stream.synchronize()
    assert stream.query() is True


def test_stream_synchronize_raises_after_its_timeout_and_the_work_goes_on(stream: acl.Stream) -> None:
    gate = hold(stream)
    with pytest.raises(acl.TimeoutError) as raised:
        stream.synchronize(timeout_ms=20)
    assert raised.value.function == "aclrtSynchronizeStreamWithTimeout"
    gate.set()
    stream.synchronize(timeout_ms=10_000)


def test_work_of_a_stream_runs_in_order(stream: acl.Stream) -> None:
    order: list[int] = []
    for number in range(50):
        stream.launch(order.append, number)
    stream.synchronize()
    assert order == list(range(50))


def test_streams_run_their_work_concurrently(stream: acl.Stream) -> None:
    with acl.Stream() as other, acl.Buffer(16) as buffer:
        gate = hold(stream)
        acl.fill(buffer, 7, stream=other)
        assert acl.to_bytes(buffer) == bytes([7] * 16)
        assert stream.query() is False
        gate.set()


def test_an_event_orders_two_streams(stream: acl.Stream) -> None:
    with acl.Stream() as other, acl.Event() as event:
        order: list[str] = []
        gate = hold(stream)
        stream.launch(order.append, "first")
        event.record(stream)
        other.wait_event(event)
        other.launch(order.append, "second")
        assert other.query() is False
        gate.set()
        other.synchronize()
        assert order == ["first", "second"]


def test_event_query_is_true_only_after_its_work_and_synchronize_waits(stream: acl.Stream) -> None:
    with acl.Event() as event:
        gate = hold(stream)
        event.record(stream)
        assert event.query() is False
        with pytest.raises(acl.TimeoutError) as raised:
            event.synchronize(timeout_ms=20)
        assert raised.value.function == "aclrtSynchronizeEventWithTimeout"
        gate.set()
        event.synchronize()
        assert event.query() is True


def test_stream_record_returns_a_new_event(stream: acl.Stream) -> None:
    with stream.record() as event:
        event.synchronize(timeout_ms=10_000)
        assert event.query()


def test_elapsed_time_between_two_timing_events_is_measured(stream: acl.Stream) -> None:
    with acl.Event(timing=True) as start, acl.Event(timing=True) as end:
        start.record(stream)
        stream.launch(time.sleep, 0.03)
        end.record(stream)
        stream.synchronize()
        assert start.elapsed_ms(end) >= 25


def test_elapsed_time_of_events_without_timing_is_refused(stream: acl.Stream) -> None:
    with (
        acl.Event() as start,
        acl.Event(timing=True) as end,
        pytest.raises(ValueError, match="timing=True"),
    ):
        start.elapsed_ms(end)


def test_default_stream_has_handle_0_and_runs_work(no_leaks: None) -> None:
    default = acl.Stream.default()
    assert (default.handle, repr(default)) == (0, "<Stream default of device 0>")
    done: list[int] = []
    default.launch(done.append, 1)
    default.synchronize()
    assert done == [1]
    default.close()
    default.close()


def test_stream_accepts_priority_flags_and_stop_on_failure(no_leaks: None) -> None:
    least, greatest = acl.Device(0).stream_priorities()
    with acl.Stream(priority=greatest, flags=1, stop_on_failure=True) as made:
        assert made.query()
    assert least >= greatest


def test_stream_on_another_device_makes_that_device_current(no_leaks: None) -> None:
    with acl.Stream(1) as made:
        assert made.device == 1
        assert acl.Device.current() == acl.Device(1)
    acl.Device(0).use()


def test_stream_close_waits_for_work_and_may_be_called_twice(no_leaks: None) -> None:
    made, done = acl.Stream(), []
    made.launch(lambda: (time.sleep(0.05), done.append(1)))
    made.close()
    assert done == [1]
    made.close()
    assert made.closed
    assert repr(made) == "<Stream closed>"


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.query(),
        lambda s: s.synchronize(),
        lambda s: s.synchronize(timeout_ms=5),
        lambda s: s.record(),
        lambda s: s.launch(print),
        lambda s: s.abort(),
        lambda s: s.handle,
        lambda s: s.wait_event(acl.Event()),
        lambda s: acl.Event().record(s),
        lambda s: acl.Buffer(1, stream=s),
        lambda s: acl.fill(acl.Buffer(1), stream=s),
        lambda s: acl.copy(acl.Buffer(1), acl.Buffer(1), stream=s),
    ],
)
def test_closed_stream_refuses_use(use: object, no_leaks: None) -> None:
    made = acl.Stream()
    made.close()
    with pytest.raises(ValueError, match="the Stream is closed"):
        use(made)  # type: ignore[operator]


@pytest.mark.parametrize(
    "use",
    [
        lambda e: e.query(),
        lambda e: e.synchronize(),
        lambda e: e.record(),
        lambda e: e.handle,
        lambda e: e.elapsed_ms(e),
        lambda e: acl.Stream.default().wait_event(e),
    ],
)
def test_closed_event_refuses_use(use: object, no_leaks: None) -> None:
    event = acl.Event()
    event.close()
    event.close()
    with pytest.raises(ValueError, match="the Event is closed"):
        use(event)  # type: ignore[operator]


def test_dropping_a_stream_or_event_destroys_its_handle(no_leaks: None) -> None:
    made, event = acl.Stream(), acl.Event()
    del made, event
    gc.collect()


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_ends_from_any_context(end: str, no_leaks: None) -> None:
    made = [acl.Stream(0)]
    acl.Device(1).use()
    if end == "close":
        made[0].close()
    made.clear()
    assert acl.Device.current() == acl.Device(1)
    acl.Device(0).use()


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_ends_in_a_thread_without_a_context(end: str, no_leaks: None) -> None:
    made = [acl.Stream(1)]
    acl.Device(0).use()
    thread = threading.Thread(target=made[0].close if end == "close" else made.clear)
    thread.start()
    thread.join()
    made.clear()
    acl.Device(0).synchronize()                 # destroys the stream, which the thread could not do


def test_thread_without_a_context_gets_the_context_of_the_stream(no_leaks: None) -> None:
    seen: list[object] = []

    def body() -> None:
        made.launch(seen.append, "called")
        made.synchronize()
        seen.append(acl.Device.current())

    with acl.Stream(1) as made:
        acl.Device(0).use()
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        assert seen == ["called", acl.Device(1)]


def test_a_borrowed_stream_is_not_destroyed(stream: acl.Stream) -> None:
    borrowed = acl.Stream.from_handle(stream.handle)
    assert borrowed == stream
    assert hash(borrowed) == hash(stream)
    borrowed.close()
    assert stream.query()


def test_borrowed_handle_that_is_not_a_stream_is_refused() -> None:
    with pytest.raises(acl.InvalidArgumentError) as raised:
        acl.Stream.from_handle(0x1234560).query()
    assert raised.value.code == 107017


def test_stream_of_another_context_is_refused(stream: acl.Stream) -> None:
    with acl.Device(1), acl.Buffer(16) as there, pytest.raises(acl.InvalidArgumentError) as raised:
        acl.fill(there, stream=stream)
    assert raised.value.code == 107003
    assert "context" in raised.value.hint


def test_second_init_of_a_stream_is_refused(stream: acl.Stream) -> None:
    with pytest.raises(ValueError, match="exists already"):
        stream.__init__()  # type: ignore[misc]
    event = acl.Event()
    with pytest.raises(ValueError, match="exists already"):
        event.__init__()  # type: ignore[misc]


def test_event_without_init_is_closed_and_can_be_closed() -> None:
    with pytest.raises(ValueError, match="closed"):
        acl.Event.__new__(acl.Event).query()
    acl.Event.__new__(acl.Event).close()


def test_hooks_for_new_streams_are_called_with_each_new_stream(no_leaks: None) -> None:
    seen: list[int] = []
    hook = lambda made: seen.append(made.handle)  # noqa: E731
    _stream.made_hooks.append(hook)
    try:
        with acl.Stream() as made:
            assert seen == [made.handle]
    finally:
        _stream.made_hooks.remove(hook)


def test_on_close_hook_gets_the_handle_after_the_stream_is_destroyed(sim: ModuleType) -> None:
    made, seen = acl.Stream(), []
    handle = made.handle
    before = sim.live_handles()["stream"]
    made.on_close(lambda gone: seen.append((gone, sim.live_handles().get("stream", 0))))
    made.close()
    assert seen == [(handle, before - 1)]


def test_many_threads_can_launch_on_one_stream(stream: acl.Stream) -> None:
    done: list[int] = []

    def body() -> None:
        acl.Device(0).use()
        for _ in range(100):
            stream.launch(done.append, 1)
            stream.query()
        stream.synchronize()

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 400


def test_stream_synchronize_releases_the_gil(stream: acl.Stream) -> None:
    gate, beats = hold(stream), []
    waiter = threading.Thread(target=stream.synchronize)
    waiter.start()
    for _ in range(5):
        beats.append(1)
        time.sleep(0.001)
    assert waiter.is_alive()
    gate.set()
    waiter.join()
