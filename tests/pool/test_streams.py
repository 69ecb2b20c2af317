"""Order: when and on which stream freed memory is used again; captures, threads, ends of streams and registrations.

Work that waits stops the streams of these tests, so that later work is certainly not finished.
"""

import gc
import threading
from types import ModuleType

import pytest
from support.calls import api
from support.child import run_python
from support.core import (  # noqa: F401
    MIB,
    Door,
    Made,
    Slow,
    blocks_at,
    layout,
    open_door,
    physical,
    physical_base,
)

import acl
from acl import sim

pytestmark = pytest.mark.usefixtures("no_leaks")


def counts(pool: acl.Pool, name: str) -> int:
    return pool.stats().driver_calls[name]


# ---- one stream


def test_freed_block_is_reused_immediately_on_its_own_stream(made: Made) -> None:
    pool, stream, door = made
    block, address = door.take(4 * MIB)
    with Slow(stream):
        door.free(block)
        again, same = door.take(4 * MIB)
        assert same == address
        assert counts(pool, "aclrtSynchronizeStream") == 0
    door.free(again)


def test_a_block_is_never_reused_on_another_stream_while_its_own_is_at_work(made: Made) -> None:
    pool, stream, door = made
    with acl.Stream() as second:
        pool.register(second)
        other = Door(second)
        block, address = door.take(4 * MIB)
        with Slow(stream):
            door.free(block)
            taken, elsewhere = other.take(4 * MIB)
            assert not address <= elsewhere < address + 4 * MIB
        other.free(taken)
        pool.unregister(second)


def test_a_trim_waits_for_the_stream_before_it_unmaps(made: Made) -> None:
    pool, stream, door = made
    block, _ = door.take(8 * MIB)
    done: list[int] = []
    with Slow(stream) as slow:
        door.free(block)
        trimmer = threading.Thread(target=lambda: done.append(pool.trim()))
        trimmer.start()
        trimmer.join(0.1)
        assert not done
        assert physical() == 8 * MIB
        slow.go_on()
        trimmer.join(300)
    assert done == [8 * MIB]


def test_trim_of_idle_streams_does_not_touch_a_busy_stream(made: Made) -> None:
    pool, stream, door = made
    block, _ = door.take(8 * MIB)
    with Slow(stream):
        door.free(block)
        assert pool.trim(idle=True) == 0
        assert pool.decay_tick() == 0
        assert layout(pool, stream) == "F8"
    stream.synchronize()
    assert pool.trim(idle=True) == 8 * MIB


def test_pages_move_within_an_arena_only_after_its_stream_was_waited_for() -> None:
    with open_door(limit="32MiB", views=False) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(8)]
        state: list[bool] = []
        with Slow(stream) as slow:
            for block in held[::2]:
                door.free(block)
            threading.Timer(0.1, lambda: (state.append(stream.query()), slow.go_on())).start()
            large = door.alloc(12 * MIB)
        assert large
        assert state == [False]  # the stream was still busy when the timer ended the wait
        assert pool.stats().total("steals") >= 6
        assert pool.check() == 0
        for block in (large, *held[1::2]):
            door.free(block)


def test_allocation_returns_null_and_moves_no_pages_if_its_wait_times_out() -> None:
    with open_door(limit="16MiB", sync_timeout_ms=50, views=False) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(4)]
        with Slow(stream):
            door.free(held[0])
            door.free(held[2])
            assert door.alloc(8 * MIB) == 0
            assert pool.stats().total("sync_failures") >= 1
            assert layout(pool, stream) == "F4 L4 F4 L4"
            assert pool.check() == 0
        stream.synchronize()
        large = door.alloc(8 * MIB)
        assert large
        for block in (large, held[1], held[3]):
            door.free(block)


def test_pages_of_a_busy_arena_are_taken_only_after_a_wait_for_its_stream() -> None:
    with open_door(limit="16MiB", sync_timeout_ms=10000) as (pool, _, door), acl.Stream() as second:
        pool.register(second)
        other = Door(second)
        block = other.alloc(16 * MIB)
        state: list[bool] = []
        with Slow(second) as slow:
            other.free(block)
            threading.Timer(0.1, lambda: (state.append(second.query()), slow.go_on())).start()
            mine = door.alloc(12 * MIB)
        assert mine
        assert state == [False]
        assert pool.stats().total("donated") >= 6
        door.free(mine)
        pool.unregister(second)


def test_streams_that_work_concurrently_keep_their_pages() -> None:
    """Two streams that allocate in turn share pages of 160 MiB.

    Streams that allocate at the same time get pages of their own, so the pool holds more.
    """
    stop, turns = threading.Event(), 0
    with open_door() as (pool, stream, door), acl.Stream() as second:
        pool.register(second)
        other = Door(second)

        def work() -> None:
            nonlocal turns
            while not stop.is_set():
                other.free(other.alloc(MIB))
                turns += 1

        def met() -> bool:
            """Allocate on the first stream; return True if it was slow and the other thread allocated 3 times in it."""
            before = turns, slow()
            held.append(door.alloc(40 * MIB))
            return turns > before[0] + 2 and slow() > before[1]

        def slow() -> int:
            return sum(one.slow for one in pool.stats().streams if one.stream == stream.handle)

        thread = threading.Thread(target=work)
        sim.configure(latency="memory")             # makes driver calls, and so slow allocations, take time
        thread.start()
        try:
            often = row = 0
            while often < 5 and physical() <= 240 * MIB:       # the other thread may seldom run
                held: list[int] = []
                row = row + 1 if True in [met() for _ in range(4)] else 0
                often += row > 4
                for block in held:
                    door.free(block)
                for block in [other.alloc(40 * MIB) for _ in range(4)]:
                    other.free(block)
        finally:
            stop.set()
            thread.join()
            sim.configure(latency="off")
        assert 240 * MIB < physical() < 340 * MIB
        pool.unregister(second)


def test_an_idle_arena_gives_its_pages_without_a_wait() -> None:
    with open_door(limit="32MiB") as (pool, _, door), acl.Stream() as second:
        pool.register(second)
        other = Door(second)
        other.free(other.alloc(32 * MIB))
        mine = door.alloc(24 * MIB)
        assert mine
        assert counts(pool, "aclrtSynchronizeStream") == 0
        door.free(mine)
        pool.unregister(second)


def test_pages_do_not_move_between_streams_if_stealing_is_off() -> None:
    with open_door(limit="16MiB", steal=False) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(4)]
        door.free(held[0])
        door.free(held[2])
        assert door.alloc(8 * MIB) == 0
        assert layout(pool, stream) == "F4 L4 F4 L4"
        assert counts(pool, "aclrtUnmapMem") == 0
        door.free(held[1])
        door.free(held[3])


def test_pages_are_stolen_while_their_owner_allocates() -> None:
    """Two threads use two arenas under a limit that is too low for both. No page is used by both at once."""
    with open_door(limit="16MiB") as (pool, _, door), acl.Stream() as second:
        pool.register(second)
        doors = (door, Door(second))
        taken: dict[int, tuple[int, int]] = {}
        guard = threading.Lock()
        failures: list[str] = []

        def work(which: int) -> None:
            acl.Device(0).use()
            for i in range(400):
                size = ((i * 7 + which * 3) % 9 + 1) * MIB
                block = doors[which].alloc(size)
                if not block:
                    continue
                address = doors[which].address(block)
                with guard:
                    for low, length in taken.values():
                        if address < low + length and low < address + size:
                            failures.append(f"{address:#x} is twice in use")
                    taken[block] = (address, size)
                with guard:
                    del taken[block]
                doors[which].free(block)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert not failures
        assert pool.check() == 0
        assert pool.stats().allocated == 0
        assert physical() == pool.stats().reserved <= 16 * MIB
        for each in (door, doors[1]):           # one of them needs pages of the other, even if no page has moved yet
            before = pool.stats().total("donated")
            block = each.alloc(14 * MIB)
            assert block
            each.free(block)
        assert pool.stats().total("donated") > before
        pool.unregister(second)


# ---- other streams


@pytest.mark.parametrize("size", [4096, 4 * MIB])
def test_a_recorded_buffer_is_not_reused_before_the_other_stream_is_done(made: Made, size: int) -> None:
    pool, stream, _ = made
    with acl.Stream() as second:
        buffer = pool.alloc(size, stream)
        address = buffer.address
        pool.record_stream(buffer, second)
        with Slow(second):
            buffer.close()
            assert blocks_at(pool, stream, "waiting") == [address]
            buffers = [pool.alloc(size, stream) for _ in range(4)]
            assert address not in [one.address for one in buffers]
        second.synchronize()
        for one in buffers:
            one.close()
        big = pool.alloc(64 * MIB, stream)  # slow: it polls the pending frees
        assert blocks_at(pool, stream, "waiting") == []
        big.close()


def test_stream_recorded_on_a_view_is_recorded_on_its_buffer(made: Made) -> None:
    pool, stream, _ = made
    with acl.Stream() as second:
        buffer = pool.alloc(MIB, stream)
        buffer.view(512).view(512).record_stream(second)
        with Slow(second):
            buffer.close()
            assert len(blocks_at(pool, stream, "waiting")) == 1


def test_only_a_pool_s_buffer_can_wait_for_other_streams(made: Made) -> None:
    _, stream, _ = made
    with acl.Buffer(100) as own, pytest.raises(ValueError, match="only a pool's Buffer can wait"):
        own.record_stream(stream)


@pytest.mark.parametrize("size", [4096, 4 * MIB])
def test_freed_block_does_not_wait_for_a_stream_that_has_ended(made: Made, size: int) -> None:
    pool, stream, _ = made
    for _ in range(20):
        buffer = pool.alloc(size, stream)
        with acl.Stream() as second:
            buffer.record_stream(second)
            buffer.record_stream(second)
        buffer.close()
        assert blocks_at(pool, stream, "waiting") == [] and pool.check() == 0
    assert pool.stats().reserved == (2 if size < MIB else 6) * MIB


def test_end_of_each_stream_that_shares_a_block_is_recorded(made: Made) -> None:
    pool, stream, _ = made
    others = [acl.Stream() for _ in range(8)]
    buffers = [pool.alloc(4096, stream) for _ in range(8)]
    for buffer in buffers:
        for other in others:
            buffer.record_stream(other)
    for other in others:
        other.close()
    for buffer in buffers:
        buffer.close()
    assert blocks_at(pool, stream, "waiting") == [] and pool.check() == 0


def test_shared_block_waits_for_the_remaining_stream_when_one_stream_ends(made: Made) -> None:
    pool, stream, _ = made
    with acl.Stream() as third:
        buffer = pool.alloc(MIB, stream)
        with acl.Stream() as second:
            buffer.record_stream(third)
            buffer.record_stream(second)
        with Slow(third):
            buffer.close()
            assert len(blocks_at(pool, stream, "waiting")) == 1


def test_trim_waits_for_the_device_if_the_state_of_a_destroyed_stream_is_unknown(made: Made, sim: ModuleType) -> None:
    pool, stream, _ = made
    second = acl.Stream()
    buffer = pool.alloc(4 * MIB, stream)
    buffer.record_stream(second)
    with sim.fault("aclrtStreamQuery"):
        del second                                  # destroyed, and the pool cannot know whether its work is done
        gc.collect()
    buffer.close()
    assert len(blocks_at(pool, stream, "waiting")) == 1
    assert pool.trim(idle=True) == 0                # `idle=True` does not wait
    assert pool.trim() == 6 * MIB


def test_block_shared_with_two_streams_waits_for_both(made: Made) -> None:
    pool, stream, _ = made
    with acl.Stream() as second, acl.Stream() as third:
        buffer = pool.alloc(4 * MIB, stream)
        pool.record_stream(buffer, second)
        pool.record_stream(buffer, third)
        with Slow(third):
            with Slow(second):
                buffer.close()
            second.synchronize()
            pool.alloc(16 * MIB, stream).close()
            assert len(blocks_at(pool, stream, "waiting")) == 1
        third.synchronize()
        pool.alloc(48 * MIB, stream).close()
        assert blocks_at(pool, stream, "waiting") == []


def test_pending_free_is_synchronised_before_an_allocation_fails() -> None:
    with open_door(limit="16MiB") as (pool, stream, _), acl.Stream() as second:
        buffer = pool.alloc(12 * MIB, stream)
        pool.record_stream(buffer, second)
        with Slow(second) as slow:
            buffer.close()
            threading.Timer(0.1, slow.go_on).start()
            again = pool.alloc(12 * MIB, stream)
        again.close()


def test_trim_releases_blocks_that_no_other_stream_uses_any_more(made: Made) -> None:
    pool, stream, _ = made
    with acl.Stream() as second:
        buffer = pool.alloc(MIB, stream)
        pool.record_stream(buffer, second)
        with Slow(second):
            buffer.close()
            assert pool.trim() == 0
        assert pool.trim() == 2 * MIB


def test_a_buffer_of_another_pool_is_refused(made: Made) -> None:
    pool, stream, _ = made
    with acl.Pool() as foreign, foreign.alloc(64) as buffer, pytest.raises(ValueError, match="not of this pool"):
        pool.record_stream(buffer, stream)


def test_blocks_freed_by_another_thread_return_to_their_arena(made: Made) -> None:
    pool, stream, door = made
    held = [door.alloc(size) for size in (512, 4096, MIB, 7 * MIB) for _ in range(20)]
    half = threading.Thread(target=lambda: [door.free(block) for block in held[::2]])
    half.start()
    fresh = [door.alloc(512) for _ in range(200)]
    half.join()
    for block in held[1::2] + fresh:
        door.free(block)
    assert pool.stats().allocated == 0
    assert "L" not in layout(pool, stream)


def test_a_finalizer_on_another_thread_gives_a_buffer_back(made: Made) -> None:
    pool, stream, _ = made
    buffers = [pool.alloc(5000, stream) for _ in range(50)]
    thread = threading.Thread(target=buffers.clear)
    thread.start()
    thread.join()
    assert pool.stats().allocated == 0


# ---- unloads, early frees, captures


def test_blocks_returned_at_an_unload_wait_for_the_device(made: Made) -> None:
    pool, stream, door = made
    small, large = door.alloc(4096), door.alloc(4 * MIB)
    with acl.Stream() as auxiliary, Slow(auxiliary) as slow:
        pool.unload_begin()
        door.free(small)
        door.free(large)
        assert len(blocks_at(pool, stream, "waiting")) == 2
        assert pool.stats().allocated == 0
        again = door.alloc(4 * MIB)
        assert again != large
        threading.Timer(0.05, slow.go_on).start()
        assert pool.unload_end()
    assert blocks_at(pool, stream, "waiting") == []
    door.free(again)


def test_overlapping_unloads_defer_frees_until_the_last_unload_ends(made: Made) -> None:
    pool, stream, door = made
    pool.unload_begin()
    pool.unload_begin()
    assert pool.unload_end()
    with acl.Stream() as auxiliary, Slow(auxiliary):
        door.free(door.alloc(4 * MIB))
        assert len(blocks_at(pool, stream, "waiting")) == 1
    assert pool.unload_end()
    assert blocks_at(pool, stream, "waiting") == []
    door.free(door.alloc(4 * MIB))
    assert blocks_at(pool, stream, "waiting") == []


def test_pool_with_early_frees_unmaps_no_page_inside_a_callback() -> None:
    with open_door(limit="16MiB", early_frees=True) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(4)]
        door.free(held[0])
        door.free(held[2])
        assert door.alloc(12 * MIB) == 0
        assert counts(pool, "aclrtUnmapMem") == 0
        assert pool.trim() == 0
        assert pool.decay_tick() == 0
        with acl.Stream() as second:
            pool.register(second)
            assert Door(second).alloc(4 * MIB) == 0
            pool.unregister(second)
        assert layout(pool, stream) == "F4 L4 F4 L4"
        assert pool.trim(drained=True) == 8 * MIB
        door.free(held[1])
        door.free(held[3])


def test_buffers_have_a_separate_arena_with_early_frees() -> None:
    with open_door(early_frees=True) as (pool, stream, door):
        block, address = door.take(4 * MIB)
        door.free(block)
        with pool.alloc(3 * MIB, stream) as buffer:
            assert not address <= buffer.address < address + 4 * MIB
        assert [one.kind for one in pool.stats().streams] == ["stream", "user"]
        pool.trim(drained=True)


@pytest.mark.parametrize(("value", "early"), [("1", False), ("2", True), ("3", True), ("x", False)])
def test_early_frees_are_chosen_by_the_core_number_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, early: bool
) -> None:
    monkeypatch.setenv("MAX_RUNTIME_CORE_NUMBER", value)
    with open_door() as (pool, _, door):
        door.free(door.alloc(4 * MIB))
        assert pool.trim() == (0 if early else 4 * MIB)
        pool.trim(drained=True)


def test_a_captured_graphs_blocks_are_private_until_it_is_gone(made: Made) -> None:
    pool, stream, door = made
    with pool.capture(stream) as capture:
        block, address = door.take(4 * MIB)
        door.free(block)
        inner, same = door.take(4 * MIB)
        assert same == address  # reused within the capture
        door.free(inner)
    outside, elsewhere = door.take(4 * MIB)
    assert not address <= elsewhere < address + 4 * MIB
    door.free(outside)
    assert pool.trim() == 4 * MIB
    assert capture.reserved == 4 * MIB
    assert [one.kind for one in pool.stats().streams] == ["stream", "capture"]
    pool.release_capture(capture)
    capture.release()
    assert physical() == pool.stats().reserved
    pool.trim()
    assert physical() == 0


@pytest.mark.parametrize("watch", [False, True])
def test_capture_with_early_frees_covers_acl_allocations_and_buffers(watch: bool) -> None:
    with open_door(early_frees=True, watch_captures=watch) as (pool, stream, door):
        capture = pool.capture(stream)
        if watch:
            assert acl.mdl.ri_capture_begin(stream.handle, 2) == 0
        else:
            capture.__enter__()
        block, address = door.take(4 * MIB)
        buffer = pool.alloc(3 * MIB, stream)
        own = buffer.address
        door.free(block)
        buffer.close()
        if watch:
            graph, ret = acl.mdl.ri_capture_end(stream.handle)
            assert (ret, acl.mdl.ri_destroy(graph)) == (0, 0)
        else:
            capture.__exit__()
            assert capture.reserved == 8 * MIB
        with pool.alloc(3 * MIB, stream) as outside:
            assert outside.address != own
        block, elsewhere = door.take(4 * MIB)
        assert elsewhere != address
        door.free(block)
        capture.release()
        assert pool.check() == 0
        pool.trim(drained=True)


@pytest.mark.parametrize("environment", [
    {}, {"ACL_SIM_REUSE_HANDLES": "1"}, {"ACL_WITHOUT": "aclrtRegStreamStateCallback", "ACL_SIM_REUSE_HANDLES": ""}])
def test_capture_of_a_destroyed_stream_is_refused(environment: dict[str, str]) -> None:
    """The next stream gets the arena of the destroyed one; its memory must not belong to the graph."""
    done = run_python(
        """
        import acl
        with acl.Pool(0) as pool:
            with acl.Stream() as gone:
                pool.alloc(5000, gone).close()
                capture = pool.capture(gone)
            with acl.Stream() as stream:
                buffer = pool.alloc(5000, stream)
                try:
                    capture.__enter__()
                except ValueError as error:
                    print(error)
                print([one.kind for one in pool.stats().streams])
                buffer.close()
        """, **environment)
    assert (done.stdout, done.stderr) == ("the stream of the Capture was destroyed\n['stream']\n", "")


def test_capture_in_a_closed_pool_is_refused() -> None:
    with acl.Stream() as stream:
        with acl.Pool(0) as pool:
            capture = pool.capture(stream)
        with pytest.raises(ValueError, match="closed"):
            capture.__enter__()


def test_pool_synchronises_no_stream_while_a_stream_is_captured() -> None:
    import ctypes

    with open_door(limit="16MiB", watch_captures=True) as (pool, stream, door):
        held = [door.alloc(4 * MIB) for _ in range(3)]
        door.free(held[1])
        graph = ctypes.c_void_p()
        assert api.aclmdlRICaptureBegin(stream.handle, 0) == 0
        inside = door.alloc(4 * MIB)
        assert inside
        assert door.alloc(4 * MIB) == 0  # the free page belongs to the stream, which cannot be waited for
        assert counts(pool, "aclrtSynchronizeStream") == 0
        report = pool.last_oom()
        assert report is not None
        assert report.capturing
        assert api.aclmdlRICaptureEnd(stream.handle, ctypes.byref(graph)) == 0
        assert api.aclmdlRIDestroy(graph.value) == 0
        for block in (inside, held[0], held[2]):
            door.free(block)
        assert pool.check() == 0


# ---- registrations and ends


def test_stream_registered_again_gets_its_earlier_five_values(made: Made) -> None:
    pool, stream, door = made
    block = door.alloc(MIB)
    pool.register(stream)
    assert Door(stream).values == door.values
    pool.unregister(stream)
    assert acl.allocator_of(stream) is None
    pool.register(stream)
    assert Door(stream).values == door.values
    door.free(block)


def test_acl_callback_accepts_frees_after_unregister(made: Made) -> None:
    pool, stream, door = made
    small, large = door.alloc(512), door.alloc(4 * MIB)
    pool.unregister(stream)
    door.free(small)
    door.free(large)
    assert pool.stats().allocated == 0
    assert pool.check() == 0


def test_capture_cannot_begin_again_before_its_graph_is_released() -> None:
    with acl.Pool(0) as pool, acl.Stream() as stream:
        capture = pool.capture(stream)
        with capture:
            pool.alloc(8 * MIB - 64, stream).close()
        with pytest.raises(ValueError, match="memory of a graph"), capture:
            pass
        assert capture.reserved == 8 * MIB
        capture.release()
        with capture:
            pool.alloc(8 * MIB - 64, stream).close()
        capture.release()
        pool.trim()
        assert pool.stats().reserved == 0


def test_only_a_pool_s_own_capture_is_released(made: Made) -> None:
    pool, stream, _ = made
    with pytest.raises(TypeError, match="capture must be a Capture, not int"):
        pool.release_capture(5)  # type: ignore[arg-type]
    with acl.Pool() as other, pool.capture(stream) as capture:
        pool.alloc(4096, stream).close()
        with pytest.raises(ValueError, match="the Capture is not of this pool"):
            other.release_capture(capture)
    assert capture.reserved == 2 * MIB
    pool.release_capture(capture)


def test_a_stream_may_end_with_live_blocks() -> None:
    with acl.Pool() as pool:
        stream = acl.Stream()
        pool.register(stream)
        door, handle = Door(stream), stream.handle
        block = door.alloc(4 * MIB)
        stream.close()
        assert acl.allocator_of(handle) is None
        assert pool.streams == ()
        door.free(block)
        assert pool.stats().allocated == 0
        assert pool.check() == 0
        assert pool.trim() == 4 * MIB


def test_1100_streams_created_and_destroyed_leave_at_most_16_mib_reserved() -> None:
    with acl.Pool() as pool:
        for _ in range(1100):  # more streams than a pool has arenas
            with acl.Stream() as stream:
                assert acl.allocator_of(stream) is None
                pool.register(stream)
                door = Door(stream)
                door.free(door.alloc(4 * MIB))
        assert pool.stats().reserved <= 16 * MIB
        assert pool.check() == 0


def test_blocks_can_be_freed_after_their_pool_is_closed() -> None:
    pool = acl.Pool()
    with acl.Stream() as stream:
        pool.register(stream)
        door = Door(stream)
        block = door.alloc(4 * MIB)
        pool.close()
        assert door.alloc(512) == 0
        door.free(block)
        del pool
        gc.collect()
        assert physical() == 0


def test_use_pool_serves_the_streams_of_pyacl_programs(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool, acl.Pool(1) as other:
        acl.Device(0).use()
        with acl.use_pool(pool), acl.use_pool(other):
            made = [acl.rt.create_stream(), acl.rt.create_stream_with_config(0, 0)]
            acl.Device(1).use()
            far = acl.rt.create_stream()
        acl.Device(0).use()
        late = acl.rt.create_stream()
        assert [status for _, status in (*made, far, late)] == [0] * 4
        handles = [handle for handle, _ in made]
        assert all(pool.serves(handle) and not other.serves(handle) for handle in handles)
        assert other.serves(far[0]) and not pool.serves(far[0]) and not pool.serves(late[0])
        assert sim.live_handles()["stream"] >= 4
        for handle in (*handles, late[0]):
            assert acl.rt.destroy_stream(handle) == 0
        assert pool.streams == ()
        acl.Device(1).use()
        assert acl.rt.destroy_stream_force(far[0]) == 0 and other.streams == ()
        acl.Device(0).use()


def test_stream_of_pyacl_that_the_pool_cannot_register_is_destroyed(sim: ModuleType) -> None:
    with acl.Pool(0) as pool, acl.use_pool(pool):
        streams = sim.live_handles().get("stream", 0)
        with sim.fault("aclrtAllocatorRegister", nth=1, code=507000), pytest.raises(acl.AclError):
            acl.rt.create_stream()
        assert sim.live_handles().get("stream", 0) == streams


def test_stream_of_pyacl_is_destroyed_although_acl_refuses_to_unregister_it(sim: ModuleType) -> None:
    with acl.Pool(0) as pool, acl.use_pool(pool):
        handle, status = acl.rt.create_stream()
        assert status == 0 and pool.streams == (handle,)
        with sim.fault("aclrtAllocatorUnregister", nth=1, code=507000):
            assert acl.rt.destroy_stream(handle) == 0
        assert pool.streams == ()


def test_a_decay_goes_on_after_a_failure(sim: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    import time

    with acl.Pool(0, decay_ms=20) as pool:
        with sim.fault("aclrtSetDevice", every=1, code=507899) as broken:
            pool.alloc("20MiB").close()
            deadline = time.monotonic() + 60
            while broken.hits < 3:
                assert time.monotonic() < deadline, "the decay's thread does not tick"
                time.sleep(0.01)
        while pool.stats().reserved:
            assert time.monotonic() < deadline, pool.stats()
            time.sleep(0.01)
    assert sum("the decay will try again" in record.getMessage() for record in caplog.records) == 1


def test_trim_and_close_log_that_their_wait_timed_out(sim: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    with acl.Stream(0) as stream:
        pool = acl.Pool(0, sync_timeout_ms=20, name="busy")
        pool.alloc("20MiB", stream).close()
        stream.launch(gate.wait)
        try:
            assert pool.trim() == 0
            (said,) = [record.getMessage() for record in caplog.records if "gave up" in record.getMessage()]
            assert "busy: trim gave up on" in said and "20 ms" in said
            caplog.clear()
            pool.close()
            assert "busy: close gave up on" in caplog.text
        finally:
            gate.set()
        stream.synchronize()
    caplog.clear()
    del pool
    gc.collect()
    with acl.Pool(0) as idle:
        idle.alloc(1000).close()
        idle.trim()
    assert "gave up" not in caplog.text


def test_sizes_with_a_single_letter_use_binary_units() -> None:
    with acl.Pool(0, limit="1G", headroom="3M") as pool:
        assert (pool.limit, pool.headroom) == (1 << 30, 3 << 20)
