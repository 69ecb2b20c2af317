"""Out-of-memory reports: their statements are true, and their advice helps."""

import ctypes
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.calls import api
from support.child import run_python
from support.core import MIB, Door, Slow, open_door
from support.requests import small_model

import acl
from acl.inside import _books

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    acl.Device(0).use()
    yield


def refused(pool: acl.Pool, size: int, stream: acl.Stream | None = None) -> acl.OomReport:
    """Make an allocation that must fail, and return its report."""
    with pytest.raises(acl.OutOfMemoryError) as raised:
        pool.alloc(size, stream)
    report = raised.value.report
    assert isinstance(report, acl.OomReport)
    assert report.changes[0] in str(raised.value)
    return report


def test_lost_device_is_not_reported_as_a_full_device(sim: ModuleType) -> None:
    with acl.Pool(0) as pool:
        with sim.device_lost(0), pytest.raises(acl.DeviceLostError) as raised:
            pool.alloc("8MiB")
        report = raised.value.report
        assert report.changes == ("memory is not what is missing: the device does not answer any more",)
        assert "full" not in str(raised.value)
        assert report.details().startswith("device lost: ")


def advised(report: acl.OomReport, text: str) -> str:
    """Return the piece of advice with these words; there must be one."""
    (found,) = [change for change in report.changes if text in change]
    return found


def test_limit_named_in_the_report_is_sufficient() -> None:
    with acl.Pool(0, "32MiB") as pool:
        with pool.alloc("20MiB", tag="weights"):
            report = refused(pool, 21 * MIB)
            advice = advised(report, "the pool's limit is in the way")
            limit = int(re.findall(r"\((\d+) bytes\)", advice)[0])
            assert "limit" in report.stopped and report.code == 0
            pool.limit = limit - 1
            refused(pool, 21 * MIB)
            pool.limit = limit
            pool.alloc(21 * MIB).close()


def test_limit_named_for_the_peak_of_all_streams_is_sufficient(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB") as pool, acl.Stream() as other:
        with pool.alloc(10 * MIB, stream), pool.alloc(18 * MIB, other):
            pass
        with pool.alloc(4 * MIB, stream):
            report = refused(pool, 40 * MIB, stream)
            assert report.granule == 2 * MIB
            assert report.joint_requested_peak == pool.stats().joint_requested_peak >= 28 * MIB
            advice = advised(report, "asked for 28.00 MiB at one time over all streams")
        limit, at_peak = map(int, re.findall(r"\((\d+) bytes\)", advice))
        assert at_peak == limit + -(-(report.joint_requested_peak - report.live) // (2 * MIB)) * 2 * MIB
        pool.limit = at_peak
        with pool.alloc(10 * MIB, stream), pool.alloc(18 * MIB, other), pool.alloc(40 * MIB, stream):
            pass


def test_limit_for_the_peak_is_not_named_where_it_is_no_higher_or_does_not_fit() -> None:
    numbers: dict[str, Any] = dict.fromkeys(
        ("stream", "code", "free", "largest_free", "waiting", "others", "capturing", "moved"), 0)
    report = acl.OomReport(
        **numbers, size=8 * MIB, limit=16 * MIB, reserved=16 * MIB, live=12 * MIB, missing=8 * MIB,
        device_free=12 * MIB, device_total=32 * MIB, granule=2 * MIB, stopped=("limit",), joint_requested_peak=15 * MIB)
    assert "it needs about 28.00 MiB" in report.advice
    assert "needs about" not in replace(report, joint_requested_peak=12 * MIB).advice
    assert "needs about" not in replace(report, device_free=11 * MIB).advice
    assert "24.00 MiB would do" in replace(report, device_free=11 * MIB).advice


def test_headroom_named_in_the_report_is_sufficient() -> None:
    free, _ = acl.Device(0).memory_info()
    with acl.Pool(0, headroom=free - 8 * MIB) as pool:
        with pool.alloc(4 * MIB):
            report = refused(pool, 20 * MIB)
            advice = advised(report, "is what stopped it")
            headroom = int(re.findall(r"at most (\d+) bytes of headroom", advice)[0])
            assert "headroom" in report.stopped and report.headroom == free - 8 * MIB
            pool.headroom = headroom + 1
            refused(pool, 20 * MIB)
            pool.headroom = headroom
            pool.alloc(20 * MIB).close()


def test_out_of_memory_report_advises_a_trim_if_memory_may_not_move(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB", steal=False) as pool:
        pool.alloc(20 * MIB, stream).close()
        report = refused(pool, 20 * MIB)
        advised(report, "memory may not move (steal=False)")
        assert report.whole >= 20 * MIB
        assert pool.trim() >= 20 * MIB
        pool.alloc(20 * MIB).close()


def test_out_of_memory_report_names_a_busy_stream_that_holds_memory(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB", sync_timeout_ms=50) as pool, acl.Stream(0) as other:
        pool.alloc(20 * MIB, other).close()
        with Slow(other):
            report = refused(pool, 20 * MIB, stream)
            assert f"on stream {other.name} free" in advised(report, "other streams of the pool hold memory")
            assert "busy" in report.stopped
        assert pool.trim() >= 20 * MIB
        pool.alloc(20 * MIB, stream).close()


def test_out_of_memory_report_says_that_work_of_the_own_stream_blocks_its_free_pages(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB", sync_timeout_ms=50, views=False) as pool:
        blocks = [pool.alloc(6 * MIB, stream) for _ in range(5)]
        for block in blocks[::2]:
            block.close()
        with Slow(stream):
            report = refused(pool, 14 * MIB, stream)
            advised(report, "this stream's own free pages")
            assert report.free >= 14 * MIB > report.largest_free
        pool.alloc(14 * MIB, stream).close()
        for block in blocks[1::2]:
            block.close()


def test_out_of_memory_report_advises_a_trim_with_a_drained_queue_for_early_frees(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB", early_frees=True) as pool:
        pool.register(stream)
        door = Door(stream)
        door.free(door.alloc(20 * MIB))
        report = refused(pool, 20 * MIB)
        advised(report, "trim(drained=True)")
        assert not report.moved
        stream.synchronize()
        assert pool.trim(drained=True) >= 20 * MIB
        pool.alloc(20 * MIB).close()
        pool.unregister(stream)


def test_out_of_memory_report_advises_to_release_captures_of_destroyed_graphs(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB") as pool:
        with pool.capture(stream) as capture:
            pool.alloc(20 * MIB, stream).close()
        report = refused(pool, 20 * MIB)
        advised(report, "captured graphs keep")
        capture.release()
        pool.alloc(20 * MIB).close()


def test_out_of_memory_report_says_that_pages_cannot_move_during_a_capture() -> None:
    with open_door(limit="16MiB", watch_captures=True) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(3)]
        door.free(held[1])
        graph = ctypes.c_void_p()
        assert api.aclmdlRICaptureBegin(stream.handle, 0) == 0
        inside = door.alloc(4 * MIB)
        assert inside and door.alloc(4 * MIB) == 0
        report = pool.last_oom()
        assert report is not None
        advised(report, "the stream is being captured")
        assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        assert api.aclmdlRIDestroy(graph.value) == 0
        block = door.alloc(4 * MIB)
        assert block
        for each in (block, inside, held[0], held[2]):
            door.free(each)


def test_out_of_memory_report_says_that_the_capture_state_could_not_be_queried(stream: acl.Stream) -> None:
    with acl.Pool(0, watch_captures=True) as pool:
        pool.alloc(MIB, stream).close()
        with acl.sim.fault("aclmdlRICaptureGetInfo", every=1, code=507000):
            report = refused(pool, MIB, stream)
        assert report.stopped == ("capture",) and report.tried == ()
        assert "tried: nothing, as the stream is or may be captured" in report.details()


def test_out_of_memory_report_says_that_the_driver_refused_addresses(stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        with acl.sim.fault("aclrtReserveMemAddress", every=1, code=507000):
            report = refused(pool, MIB, stream)
        assert report.stopped == ("driver",) and report.tried == ()
        assert "tried: nothing, as the driver refused an address range" in report.details()
        pool.alloc(MIB, stream).close()


def test_out_of_memory_report_mentions_blocks_that_wait_for_another_stream(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB", sync_timeout_ms=50) as pool, acl.Stream(0) as other:
        with Slow(other):
            buffer = pool.alloc(20 * MIB, stream)
            pool.record_stream(buffer, other)
            buffer.close()
            report = refused(pool, 20 * MIB, stream)
            advised(report, "freed blocks wait for other streams")
        other.synchronize()
        pool.alloc(20 * MIB, stream).close()


def test_out_of_memory_report_of_a_full_device_names_missing_bytes_and_holders() -> None:
    free, _ = acl.Device(0).memory_info()
    address = ctypes.c_void_p()
    assert api.aclrtMalloc(ctypes.byref(address), free - 16 * MIB, 0) == 0
    with acl.Pool(0) as pool:
        with pool.alloc(4 * MIB, tag="weights"):
            report = refused(pool, 30 * MIB)
            advice = advised(report, "the device is full")
            assert "'weights'" in advice and "outside the pool" in advice
            assert report.stopped == ("driver",) and report.code == 207001
            assert report.device_free == acl.Device(0).memory_info()[0]
            assert api.aclrtFree(address) == 0
            pool.alloc(30 * MIB).close()


@pytest.mark.parametrize("segments", [False, True])
def test_request_larger_than_the_device_is_refused_without_driver_calls(segments: bool, stream: acl.Stream) -> None:
    """The pool refuses the request at once: it allocates and moves no page for it, and keeps its cached blocks."""
    _, total = acl.Device(0).memory_info()
    with acl.Pool(0, segments=segments) as pool:
        with pool.alloc(6 * MIB, stream):
            pool.alloc(6 * MIB, stream).close()
            before = pool.stats()
            report = refused(pool, total + 1, stream)
            after = pool.stats()
            assert after.driver_calls["aclrtMallocPhysical"] == before.driver_calls["aclrtMallocPhysical"]
            assert after.driver_calls["aclrtMalloc"] == before.driver_calls["aclrtMalloc"]
            assert (after.reserved, after.reserved_peak) == (before.reserved, before.reserved_peak)
            assert report.stopped == ("device",) and report.tried == ()
            assert "no change of the pool would do: the device has 32.00 GiB in all" in report.advice
            assert "nothing, as the device cannot hold what is missing" in report.details()


def test_request_larger_than_the_free_device_memory_is_refused_at_once(stream: acl.Stream) -> None:
    """The device is large enough, but other code holds its memory; when that is freed, the request succeeds."""
    free, _ = acl.Device(0).memory_info()
    address = ctypes.c_void_p()
    assert api.aclrtMalloc(ctypes.byref(address), 4096 * MIB, 0) == 0
    with acl.Pool(0, name="large") as pool:
        with pool.alloc(6 * MIB, stream, tag="weights"):
            before = pool.stats().driver_calls["aclrtMallocPhysical"]
            report = refused(pool, free - 2048 * MIB, stream)
            assert pool.stats().driver_calls["aclrtMallocPhysical"] == before
            assert report.stopped == ("device",) and "outside the pool" in advised(report, "the device is full")
            assert api.aclrtFree(address) == 0
            assert pool.stats().driver_calls["aclrtMallocPhysical"] == before


def test_free_pages_of_the_pool_count_as_room() -> None:
    """The device alone has too little memory, but with the free pages of the pool there is enough."""
    free, _ = acl.Device(0).memory_info()
    address = ctypes.c_void_p()
    assert api.aclrtMalloc(ctypes.byref(address), free - 2600 * MIB, 0) == 0
    with acl.Pool(0) as pool, acl.Stream(0) as one, acl.Stream(0) as two:
        pool.alloc(2100 * MIB, one).close()
        with pool.alloc(2500 * MIB, two) as large:
            assert large.size == 2500 * MIB
    assert api.aclrtFree(address) == 0


def test_out_of_memory_report_names_a_driver_that_refuses_although_memory_is_free() -> None:
    with acl.Pool(0) as pool, acl.sim.fault("aclrtMallocPhysical", every=1, code=507000):
        report = refused(pool, MIB)
        assert "refused with 507000" in report.advice
        assert report.code == 507000


def test_out_of_memory_report_of_fragmented_memory_has_more_free_bytes_than_its_largest_block() -> None:
    with acl.Pool(0, "32MiB", segments=True) as pool:
        blocks = [pool.alloc(5 * MIB) for _ in range(6)]
        for block in blocks[::2]:
            block.close()
        report = refused(pool, 9 * MIB)
        assert report.free >= 9 * MIB > report.largest_free
        assert any("in pieces" in change or "limit" in change for change in report.changes)
        for block in blocks[1::2]:
            block.close()


def test_out_of_memory_report_gives_live_bytes_by_tag_over_all_streams(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB") as pool:
        held = [pool.alloc(8 * MIB, tag="kv"), pool.alloc(4 * MIB, stream, tag="kv"), pool.alloc(1000, stream)]
        with pool.tag("request"):
            report = refused(pool, 40 * MIB, stream)
        assert report.tag == "request"
        assert report.tags == {"kv": 12 * MIB + 1024, "": 1536}
        assert sum(report.tags.values()) == report.live == pool.stats().allocated
        assert report.others == pool.stats().streams[0].reserved
        text = report.details()
        assert "for 'request'" in text and "kv 12.00 MiB" in text and "tried: nothing" in text
        assert report.stopped == ("limit",)
        for each in held:
            each.close()


def test_the_exception_carries_the_report_in_notes_and_pickles() -> None:
    with acl.Pool(0, "4MiB", name="tiny") as pool:
        with pytest.raises(acl.OutOfMemoryError) as raised:
            pool.alloc(5 * MIB)
    error = raised.value
    assert error.report is not None and error.report.pool == "tiny"
    notes = getattr(error, "__notes__", [error.report.details()])
    assert notes == [error.report.details()]
    copied = pickle.loads(pickle.dumps(error))
    assert copied.report == error.report and str(copied) == str(error)


def test_operator_that_finds_no_memory_raises_an_out_of_memory_error_with_a_report(stream: acl.Stream) -> None:
    with acl.Pool(0, limit="16MiB") as pool:
        pool.register(stream)
        x = [pool.empty((512, 512), "float16", stream) for _ in range(2)]     # the sum needs a workspace
        out = pool.empty((512, 512), "float16", stream)
        for each in x:
            acl.fill(each.buffer, 0)
        hog = pool.alloc(pool.limit - pool.stats().reserved, stream)
        rest = []
        with pytest.raises(acl.OutOfMemoryError):
            while True:
                rest.append(pool.alloc(4096, stream))
        multiply = acl.Op("MatMul", transpose_x1=False, transpose_x2=False)
        with pytest.raises(acl.OutOfMemoryError) as raised:
            multiply(*x, outputs=[out], stream=stream)
        assert raised.value.report is not None and raised.value.function.startswith("aclop")
        assert isinstance(raised.value.__cause__, acl.AclError)
        for each in (*rest, hog):
            each.close()
        multiply(*x, outputs=[out], stream=stream)
        stream.synchronize()
        for array in (*x, out):
            array.close()
        pool.unregister(stream)


def test_out_of_memory_report_is_logged_and_not_printed() -> None:
    done = run_python("""
        import acl
        pool = acl.Pool(0, "4MiB")
        def fail():
            try:
                pool.alloc("5MiB")
            except acl.OutOfMemoryError:
                pass
        fail()
        import logging
        fail()
        told = []
        handler = logging.Handler()
        handler.emit = lambda record: told.append((record.name, record.levelname, record.getMessage()))
        logging.getLogger("acl").addHandler(handler)
        fail()
        (name, level, text), = told
        print(name, level, text.splitlines()[0])
    """)
    assert done.stderr == ""
    assert done.stdout.startswith("acl.pool ERROR out of memory: 5.00 MiB could not be had")


def test_out_of_memory_report_does_not_count_blocks_asleep_as_in_use(stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB") as pool:
        with pool.alloc(20 * MIB, stream, tag="weights"), pool.alloc(4 * MIB, stream):
            pool.sleep("weights", offload=False)
            report = refused(pool, 40 * MIB, stream)
            assert report.live == 4 * MIB + 512 <= report.reserved
            assert report.tags["weights"] == 20 * MIB + 512
            assert pool.stats().fragmentation >= 0
            pool.wake()


def test_each_failed_allocation_is_found_with_its_own_report(stream: acl.Stream) -> None:
    """The newest report does not always belong to the allocation whose exception is made.

    The allocation of another thread may fail before the exception of the first failure is made.  Then the newest report
    is that of the other thread.
    """
    with acl.Pool(0, "16MiB") as pool, acl.Stream(0) as other:
        for size, on in ((20, stream), (20, other), (30, other), (20, stream), (40, stream)):
            refused(pool, size * MIB, on)
        found = _books.oom_of(pool, 0, stream.handle, 20 * MIB + 32)
        assert found is not None and (found.number, found.size, found.stream) == (4, 20 * MIB + 32, stream.handle)
        newest = _books.oom_of(pool, 3, other.handle), _books.oom_of(pool, 2, other.handle)
        assert newest[0] is None and newest[1] is not None and newest[1].number == 3
        assert _books.oom_of(pool, 0, stream.handle, 50 * MIB) is None
        assert [report.number for report in _books.ooms(pool)] == [1, 2, 3, 4, 5]


class Others:
    """Before each reading of a report, makes an allocation of another stream fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pool: acl.Pool, stream: acl.Stream) -> None:
        for name in ("last_oom", "oom_of"):
            real = getattr(_books, name)
            monkeypatch.setattr(_books, name, lambda *given, _real=real: self.fail(_real, given))
        self.pool, self.stream, self.within, self.failures = pool, stream, False, 0

    def fail(self, real: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if not self.within:
            self.within = True
            with pytest.raises(acl.OutOfMemoryError):
                self.pool.alloc(100 * MIB, self.stream)
            self.failures += 1
            self.within = False
        return real(*given)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch, stream: acl.Stream) -> Iterator[Others]:
    """Register a pool of 4 MiB for `stream`, in which allocations of another stream fail too."""
    with acl.Pool(0, "4MiB") as pool, acl.Stream(0) as other:
        pool.register(stream)
        yield Others(monkeypatch, pool, other)
        stream.synchronize()
        pool.unregister(stream)


def test_failed_model_run_has_its_own_out_of_memory_report(others: Others, stream: acl.Stream) -> None:
    told: list[acl.OomReport] = []
    x = np.ones((2**15, 8), np.float32)
    with acl.Model(small_model().to_bytes()) as model:
        model(np.ones((4, 8), np.float32))
        others.pool.on_oom(lambda report: None if others.within else told.append(report))
        with pytest.raises(acl.OutOfMemoryError) as raised:
            model(x, stream=stream)
    report = raised.value.report
    assert others.failures > 0 and isinstance(report, acl.OomReport)
    assert report.stream == stream.handle and report.size < 100 * MIB
    assert [one.stream for one in told] == [stream.handle]


def test_operator_that_fails_for_another_reason_is_not_reported_as_out_of_memory(
    others: Others, stream: acl.Stream
) -> None:
    """In the compile function, an allocation of another stream fails; the operator must not report that failure."""
    @acl.Op.compiler("Undecided")
    def choose(inputs: object, outputs: object, choice: acl.KernelChoice) -> None:
        others.fail(int, ())

    x = others.pool.empty((4, 8), stream=stream)
    with pytest.raises(acl.AclError) as raised:
        acl.Op("Undecided")(x, outputs=[x], stream=stream)
    acl.Op.remove_compiler("Undecided")
    assert others.failures > 0 and not isinstance(raised.value, MemoryError)
    x.close()


def test_failed_operator_has_its_own_out_of_memory_report(others: Others, stream: acl.Stream) -> None:
    x = others.pool.empty((2**10, 2**8), "float16", stream)      # the product needs a workspace
    y = others.pool.empty((2**8, 2**10), "float16", stream)
    result = acl.Pool(0).empty((2**10, 2**10), "float16", stream)
    with pytest.raises(acl.OutOfMemoryError) as raised:
        acl.Op("MatMul")(x, y, outputs=[result], stream=stream)
    report = raised.value.report
    assert isinstance(report, acl.OomReport) and report.stream == stream.handle and report.size < 100 * MIB
    for array in (x, y, result):
        array.close()
