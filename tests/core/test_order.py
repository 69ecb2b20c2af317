"""Order: use by other streams, model unloads, captures, modes.  The tests run on the core test harness."""

import pytest
from support.child import run_python

from acl.tools._rig import Rig

PAGE = 2 << 20
CAPTURING, WATCHED, UNLOADING, FORKED, CLOSED = 1, 2, 4, 8, 16


@pytest.mark.parametrize("size", [1000, 3 * PAGE])
def test_a_shared_block_waits_for_the_other_stream(size: int) -> None:
    rig = Rig(capacity=64 * PAGE)
    block = rig.alloc(size)
    assert rig.share(block, other=2)
    rig.set(busy=True)
    rig.free(block)
    assert rig.check() == 0
    assert rig.poll() == 0
    assert rig.alloc(size) != block
    rig.set(busy=False)
    assert rig.poll() == 1
    assert rig.check() == 0 and not rig.waiting()


def test_use_of_a_block_on_its_own_stream_needs_no_event() -> None:
    rig = Rig()
    block = rig.alloc(1000)
    assert rig.share(block, other=1)
    rig.free(block)
    assert rig.alloc(1000) == block
    assert rig.calls()["event"] == 0


def test_shared_block_is_reused_only_after_every_stream_use_has_ended() -> None:
    rig = Rig()
    block = rig.alloc(1000)
    assert all(rig.share(block, other) for other in (2, 3, 4))
    rig.set(busy=True)
    rig.free(block)
    assert rig.check() == 0
    rig.set(busy=False, fail="event", at=1, code=507899)       # the first query fails: that use counts as not over
    assert rig.poll() == 0
    assert rig.check() == 0 and rig.waiting()
    assert rig.poll() == 1
    assert not rig.waiting()


def test_cache_miss_beside_40_busy_streams_queries_16_events() -> None:
    rig = Rig()
    blocks = [rig.alloc(1000) for _ in range(40)]
    for stream, block in enumerate(blocks, 2):
        assert rig.share(block, other=stream)
    rig.set(busy=True)
    for block in blocks:
        rig.free(block)
    events = rig.calls()["event"]
    rig.alloc(3 * PAGE)
    assert rig.calls()["event"] == events + 16
    rig.set(busy=False)
    assert rig.poll() == 40 and rig.check() == 0 and not rig.waiting()


def test_blocks_that_wait_for_many_streams_are_released_in_any_order() -> None:
    """The streams' queues of pending frees differ in length, and some streams share a bucket of the hash table."""
    rig = Rig()
    blocks = [rig.alloc(1000) for _ in range(900)]
    for number, block in enumerate(blocks):
        for other in range(2, 2 + number % 4):
            assert rig.share(block, other=other + number % 300)
    rig.set(busy=True)
    for block in blocks[:600]:
        rig.free(block)
    assert rig.poll() == 0 and rig.check() == 0
    for block in blocks[600:]:
        rig.free(block)
    rig.set(busy=False, fail="event", at=7, code=507899)        # one queue releases nothing: its oldest query fails
    released = rig.poll()
    assert 0 < released < 675 and rig.check() == 0
    assert rig.poll() == 675 - released and rig.check() == 0 and not rig.waiting()


def test_pending_frees_are_reused_before_the_pool_grows() -> None:
    rig = Rig()
    block = rig.alloc(3 * PAGE)
    rig.share(block, other=2)
    rig.free(block)                                             # its use is over, but the pool has not asked yet
    reserved = rig.reserved()
    assert rig.alloc(3 * PAGE)
    assert rig.reserved() == reserved
    assert rig.stats()["counters"]["rungs"][0] == 1


def test_events_of_ended_stream_uses_are_reused() -> None:
    rig = Rig()
    for _ in range(20):
        block = rig.alloc(1000)
        rig.share(block, other=2)
        rig.free(block)
        assert rig.poll() == 1
    assert rig.calls()["event"] == 1 + 20 * 2                   # one created; 20 times recorded and queried


@pytest.mark.parametrize("at", [1, 2])
def test_freed_block_without_an_event_waits_for_the_device(at: int) -> None:
    rig = Rig()
    block = rig.alloc(1000)
    rig.share(block, other=2)
    rig.set(fail="event", at=at, code=207005)
    assert rig.free(block)
    assert rig.check() == 0
    assert rig.poll() == 0 and rig.waiting()
    assert rig.sync_waiting() and not rig.waiting()
    assert rig.check() == 0


def test_framework_arena_records_no_event_inside_a_free() -> None:
    rig = Rig(early_frees=True)
    block = rig.alloc(1000)
    rig.share(block, other=2)
    rig.free(block)
    assert rig.calls()["event"] == 0
    assert rig.waiting() and rig.sync_waiting()


def test_blocks_freed_during_an_unload_wait_for_the_device() -> None:
    rig = Rig()
    large, small = rig.alloc(3 * PAGE), rig.alloc(1000)
    rig.set_mode(set=UNLOADING)
    rig.free(large)
    rig.free(small)
    assert rig.check() == 0
    assert rig.alloc(1000) != small
    assert "W" in rig.layout() and "W" in rig.layout("small")
    rig.set_mode(clear=UNLOADING)
    rig.set(busy=True)
    assert not rig.sync_waiting() and rig.waiting()
    rig.set(busy=False)
    assert rig.sync_waiting() and not rig.waiting()
    assert rig.check() == 0


def test_full_pool_synchronises_the_device_to_reuse_pending_frees() -> None:
    rig = Rig(limit=10 * PAGE)
    block = rig.alloc(9 * PAGE)
    rig.set_mode(set=UNLOADING)
    rig.free(block)
    rig.set_mode(clear=UNLOADING)
    assert rig.alloc(9 * PAGE)
    assert rig.calls()["sync"] >= 1
    assert rig.check() == 0


def test_a_double_free_of_a_waiting_block_is_refused() -> None:
    rig = Rig()
    block = rig.alloc(1000)
    rig.share(block, other=2)
    assert rig.free(block)
    assert not rig.free(block)


def test_a_capture_has_memory_of_its_own() -> None:
    rig = Rig()
    before = rig.alloc(1000)
    rig.free(before)
    capture = rig.capture_begin()
    inside = [rig.alloc(1000), rig.alloc(3 * PAGE)]
    assert before not in inside
    for block in inside:
        assert rig.free(block)
    assert rig.alloc(1000) == inside[0]                         # reused within the capture
    assert rig.free(inside[0])
    rig.capture_end()
    after = [rig.alloc(1000), rig.alloc(3 * PAGE)]
    assert after[0] == before and not set(after) & set(inside)
    assert rig.check() == 0
    assert rig.capture_release(capture) == 4


def test_a_captured_block_is_never_moved_or_trimmed() -> None:
    rig = Rig(limit=40 * PAGE)
    capture = rig.capture_begin()
    rig.free(rig.alloc(20 * PAGE))
    rig.capture_end()
    assert rig.trim(drained=True) == 0
    assert rig.alloc(30 * PAGE) == 0                            # 20 of the 40 pages belong to the graph
    assert rig.alloc(30 * PAGE, stream=2) == 0
    rig.capture_release(capture)
    assert rig.alloc(30 * PAGE)
    assert rig.check() == 0


def test_captured_block_can_be_freed_after_the_capture() -> None:
    rig = Rig()
    capture = rig.capture_begin()
    block = rig.alloc(2 * PAGE)
    rig.capture_end()
    assert rig.alloc(2 * PAGE) != block
    assert rig.free(block) and not rig.free(block)
    assert rig.alloc(2 * PAGE) != block
    rig.capture_release(capture)
    assert rig.check() == 0


def test_memory_of_a_released_capture_serves_the_next_capture() -> None:
    rig = Rig()
    first = rig.capture_begin()
    rig.free(rig.alloc(1000))
    rig.capture_end()
    second = rig.capture_begin()
    assert second != first
    rig.capture_end()
    rig.capture_release(first)
    assert rig.capture_begin() == first


def test_another_stream_can_use_a_block_of_a_capture() -> None:
    rig = Rig()
    rig.capture_begin()
    block = rig.alloc(1000)
    assert rig.share(block, other=2)
    rig.set(busy=True)
    assert rig.free(block) and rig.check() == 0
    assert rig.alloc(1000) != block
    rig.set(busy=False)
    assert rig.sync_waiting() and rig.check() == 0


def test_capture_of_a_watched_stream_gets_memory_of_its_own() -> None:
    rig = Rig()
    rig.set_mode(set=WATCHED)
    outside = rig.alloc(1000)
    rig.free(outside)
    rig.set(capturing=7)
    inside = rig.alloc(1000)
    assert inside != outside
    rig.free(inside)
    rig.set(capturing=8)                                        # another graph, with memory of its own
    other = rig.alloc(1000)
    assert other not in (inside, outside)
    rig.set(capturing=0)
    assert rig.alloc(1000) == outside
    assert rig.check() == 0


def test_capture_gets_no_memory_if_its_arena_cannot_be_made() -> None:
    # Run in a new process: in this one the capture could use the arena of a destroyed pool.
    done = run_python(f"""
        import resource
        from acl.tools._rig import Rig
        rig = Rig()
        rig.set_mode(set={WATCHED})
        outside = rig.alloc(1000)
        rig.free(outside)
        rig.set(capturing=7)
        resource.setrlimit(resource.RLIMIT_DATA, (4096, resource.RLIM_INFINITY))
        inside = rig.alloc(1000)
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        oom = rig.last_oom()
        rig.set(capturing=0)
        print(inside, oom["number"], bool(oom["capturing"]), rig.alloc(1000) == outside)
    """)
    assert (done.stdout, done.returncode) == ("0 1 True True\n", 0), done.stderr


def test_released_capture_keeps_its_pages_with_early_frees() -> None:
    rig = Rig(early_frees=True)
    capture = rig.capture_begin()
    rig.free(rig.alloc(4 * PAGE))
    rig.capture_end()
    assert rig.capture_release(capture) == 0
    assert rig.calls()["unmap"] == 0
    assert rig.trim(drained=True) == 4 * PAGE


@pytest.mark.parametrize("mode", [FORKED, CLOSED])
def test_frees_are_accepted_in_modes_that_refuse_allocations(mode: int) -> None:
    rig = Rig()
    block = rig.alloc(1000)
    rig.set_mode(set=mode)
    assert rig.alloc(1000) == 0 and rig.try_alloc(1000) == 0
    assert rig.free(block)
    assert rig.check() == 0
