"""Guarded streams: the pool finds errors of its users, reports them with the block's history, and continues to work."""

import ctypes
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.calls import api
from support.core import MIB, Door, Slow, open_door
from support.requests import small_model

import acl
import acl.sim
from acl.pool._findings import reports

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def door() -> Iterator[Door]:
    with open_door(debug=True) as (pool, _, made):
        yield made
        assert pool.check() == 0


def found(before: dict[str, int]) -> dict[str, int]:
    return {kind: count - before[kind] for kind, count in reports().items() if count != before[kind]}


@pytest.mark.parametrize("size", [1, 100, 512, 4096, 3 * MIB + 5])
def test_overflow_of_a_block_is_reported_when_the_block_is_freed(door: Door, size: int) -> None:
    before = reports()
    block, address = door.take(size)
    acl.Device(0).synchronize()
    ctypes.memset(address + size, 0, 1)
    door.free(block)
    assert found(before) == {"overflow": 1}
    told = acl.guard_findings()[-1]
    assert (told.kind, told.address, told.size) == ("overflow", address, size)
    assert "past the end" in str(told)


def test_a_write_to_a_freed_block_is_found() -> None:
    before = reports()
    with open_door(debug=True) as (pool, stream, door):
        block, address = door.take(1000)
        door.free(block)
        stream.synchronize()
        ctypes.memset(address + 17, 1, 1)
        pool.unregister(stream)  # checks the blocks in quarantine
    assert found(before) == {"use after free": 1}
    told = acl.guard_findings()[-1]
    assert (told.kind, told.address, told.size) == ("use after free", address, 1000)
    assert told.allocated and told.freed


def test_double_free_is_reported_while_the_block_is_in_quarantine_and_later(door: Door) -> None:
    before = reports()
    block = door.alloc(512)
    door.free(block)
    door.free(block)
    assert found(before) == {"double free": 1}
    for other in [door.alloc(5000) for _ in range(70)]:
        door.free(other)
    door.free(block)
    assert found(before) == {"double free": 2}
    told = acl.guard_findings()[-1]
    assert told.kind == "double free" and "freed twice" in str(told)
    assert told.allocated and told.freed and told.found


def test_free_of_a_foreign_pointer_is_reported(door: Door) -> None:
    before = reports()
    block = door.alloc(512)
    door.free(block + 8)
    door.free(4096)
    door.free(block)
    assert found(before) == {"foreign pointer": 2}
    assert "no live block" in str(acl.guard_findings()[-1])


def test_correct_program_gets_no_report(door: Door, capfd: pytest.CaptureFixture[str]) -> None:
    before = reports()
    for size in (0, 1, 511, 512, 70000, MIB, 5 * MIB) * 12:
        block, address = door.take(size)
        acl.Device(0).synchronize()
        ctypes.memset(address, 5, size)
        advised = door.advise(size, address)
        door.free(block)
        door.free(advised)
    assert found(before) == {}
    assert capfd.readouterr().err == ""


def test_quarantined_blocks_are_reused_before_an_allocation_fails() -> None:
    with open_door(debug=True, limit="16MiB") as (_, _, door):
        for _ in range(4):
            block = door.alloc(9 * MIB)
            assert block
            door.free(block)


def test_guard_is_switched_on_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_door() as (pool, _, plain):
        assert not pool.guarded
    monkeypatch.setenv("ACL_POOL_DEBUG", "1")
    with open_door() as (pool, _, guarded):
        assert pool.guarded
        assert guarded.values[1:4] != plain.values[1:4]
        assert acl.allocator_of(pool.streams[0]).pool is pool  # type: ignore[union-attr]


# ---- samples ------------------------------------------------------------------------------------


@pytest.fixture
def sampled() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    """Open a pool in which every third block is guarded, with a stream and its allocator."""
    with open_door(debug="sample:3") as made:
        assert made[0].guard_every == 3
        yield made
        assert made[0].check() == 0


def test_sampling_guard_checks_one_block_in_n(sampled: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = sampled
    blocks = [door.alloc(512) for _ in range(12)]
    assert pool.stats().requested == 12 * 512 + 4 * 64
    for block in blocks:
        door.free(block)


@pytest.mark.parametrize("kind", ["overflow", "use after free"])
def test_sampling_guard_finds_errors_without_waiting(
    sampled: tuple[acl.Pool, acl.Stream, Door], sim: object, kind: str
) -> None:
    _, stream, door = sampled
    before = reports()
    acl.sim.reset_counters()
    for turn in range(300):
        block, address = door.take(2000)
        if turn == 20:                                                  # block 21: every third block is guarded
            acl.Device(0).synchronize()
            victim = address
            if kind == "overflow":
                ctypes.memset(address + 2000, 0, 1)
        door.free(block)
        if turn == 20 and kind == "use after free":
            acl.Device(0).synchronize()
            ctypes.memset(victim, 1, 1)
    stream.synchronize()
    waits = acl.sim.counters().get("aclrtSynchronizeStreamWithTimeout", 0) - 1      # without this test's own wait
    for _ in range(300):
        door.free(door.alloc(2000))                                     # polls the checks that are complete
    stream.synchronize()
    for _ in range(300):
        door.free(door.alloc(2000))
    assert found(before) == {kind: 1}
    told = acl.guard_findings()[-1]
    assert (told.kind, told.address, told.size) == (kind, victim, 2000)
    assert told.allocated and told.freed
    assert waits == 0, "samples never wait"


def test_blocks_that_are_not_sampled_are_checked_for_double_frees_only(
    sampled: tuple[acl.Pool, acl.Stream, Door]
) -> None:
    _, stream, door = sampled
    before = reports()
    block, address = door.take(2000)                                    # not guarded: only each third block is
    acl.Device(0).synchronize()
    ctypes.memset(address + 2000, 0, 1)
    door.free(block)
    assert found(before) == {}
    door.free(block)
    assert found(before) == {"double free": 1}
    stream.synchronize()


def test_sampled_blocks_in_quarantine_are_reused_before_an_allocation_fails() -> None:
    with open_door(debug="sample:2", limit="16MiB") as (_, _, door):
        for _ in range(8):
            block = door.alloc(9 * MIB)
            assert block
            door.free(block)


def test_correct_program_gets_no_report_from_the_sampling_guard(sampled: tuple[acl.Pool, acl.Stream, Door]) -> None:
    _, stream, door = sampled
    before = reports()
    for size in (0, 1, 511, 512, 70000, MIB, 5 * MIB) * 40:
        block, address = door.take(size)
        stream.synchronize()
        ctypes.memset(address, 5, size)
        advised = door.advise(size, address)
        door.free(block)
        door.free(advised)
    assert found(before) == {}


def test_guarded_blocks_freed_after_unregister_are_not_reported() -> None:
    before = reports()
    with open_door(debug=True) as (pool, stream, door):
        blocks = [door.alloc(700) for _ in range(5)]
        pool.unregister(stream)
        for block in blocks:
            door.free(block)
        assert pool.stats().requested == 0
        pool.register(stream)
        door.free(door.alloc(700))
    assert found(before) == {}


def test_pinned_memory_is_kept_while_a_copy_to_the_memory_is_queued() -> None:
    def pinned_freed() -> int:
        return acl.sim.counters().get("aclrtFreeHost", 0)

    with acl.Pool(debug="sample:2", sync_timeout_ms=50) as pool, acl.Stream() as stream:
        pool.register(stream)
        door = Door(stream)
        blocks = [door.alloc(512) for _ in range(4)]
        stream.synchronize()
        before = pinned_freed()
        with Slow(stream):
            for block in blocks:
                door.free(block)
            pool.unregister(stream)
            assert pinned_freed() == before
        pool.register(stream)
        pool.unregister(stream)
        assert pinned_freed() == before + 1


def test_guard_reports_have_python_stacks_of_allocations_by_python(stream: acl.Stream) -> None:
    with acl.Model(small_model().to_bytes()) as model, acl.Pool(0, debug=True) as pool:
        pool.register(stream)
        door = Door(stream)
        x = np.ones((64, 8), np.float32)
        model(x, stream=stream)
        before = reports()
        model.run_async([x], stream)
        block = door.alloc(100)
        door.free(block)
        door.free(block)
        assert found(before) == {"double free": 1}
        assert any("test_guard" in frame or "ffi" in frame for frame in acl.guard_findings()[-1].found)
        stream.synchronize()
        pool.unregister(stream)


def test_guard_reports_go_to_the_log_and_are_not_printed(
    door: Door, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    block = door.alloc(512)
    door.free(block)
    door.free(block)
    acl.guard_findings()
    (record,) = [record for record in caplog.records if record.name == "acl.guard"]
    assert record.levelname == "ERROR" and "freed twice" in record.getMessage()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("debug", ["sample:0", "sample:", "sample:-3", "most", 3, "sample:1.5"])
def test_unknown_guard_level_is_refused(debug: object) -> None:
    with pytest.raises(ValueError, match="debug must be a bool, 'all' or 'sample:N'"):
        acl.Pool(0, debug=debug)  # type: ignore[arg-type]


@pytest.mark.parametrize("text, every", [("", 0), ("0", 0), ("1", 1), ("all", 1), ("sample:250", 250)])
def test_guard_level_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, every: int) -> None:
    monkeypatch.setenv("ACL_POOL_DEBUG", text)
    with acl.Pool(0) as pool:
        assert (pool.guard_every, pool.guarded) == (every, every > 0)


def test_wrong_guard_level_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_POOL_DEBUG", "yes")
    with pytest.raises(ValueError, match="ACL_POOL_DEBUG must be"):
        acl.Pool(0)


@pytest.mark.parametrize("debug", [True, "sample:2"])
def test_guarded_stream_can_be_used_by_two_threads(debug: bool | str) -> None:
    """ACL forbids two threads to use one stream's allocator at the same time.

    If they do, a block may be freed unchecked, but no block is lost, and no false error is reported.
    """
    before = reports()
    with open_door(debug=debug) as (pool, stream, door):

        def work(seed: int) -> None:
            acl.Device(0).use()
            blocks: list[int] = []
            for turn in range(400):
                blocks.append(door.alloc(512 * (1 + (turn * seed) % 9)))
                if len(blocks) > 5:
                    door.free(blocks.pop(turn % 5))
            for block in blocks:
                door.free(block)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.synchronize()
        pool.unregister(stream)
        assert pool.stats().requested == 0
        assert pool.check() == 0
    assert found(before) == {}


def test_leak_report_gives_sizes_without_guard_bytes() -> None:
    with open_door(debug=True) as (pool, stream, door):
        block = door.alloc(700)
        with pool.alloc(1000, stream), pool.alloc(1):
            pool.mark()
            assert sorted(each.size for each in pool.leaks().blocks) == [1, 700, 1000]
        door.free(block)


def test_quarantined_block_is_not_reported_as_a_leak() -> None:
    with open_door(debug=True) as (pool, _, door):
        mark = pool.mark()
        door.free(door.alloc(5000))
        assert len(pool.leaks(since=mark)) == 0
        block = door.alloc(5000)
        assert len(pool.leaks(since=mark)) == 1
        door.free(block)


# ---- buffers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 511, 4096, 3 * MIB + 5])
@pytest.mark.parametrize("own", [True, False])
def test_an_overflow_of_a_buffer_is_found(stream: acl.Stream, size: int, own: bool) -> None:
    """A write to the first byte after the buffer is reported with the stacks of the allocation and of the free."""
    before = reports()
    with acl.Pool(0, debug=True) as pool:
        buffer = pool.alloc(size, stream if own else None, tag="kv")
        address = buffer.address
        acl.Device(0).synchronize()
        ctypes.memset(address + size, 0, 1)
        assert pool.leaks().blocks[0].size == size and pool.leaks().by_tag().keys() == {"kv"}
        buffer.close()
    assert found(before) == {"overflow": 1}
    told = acl.guard_findings()[-1]
    assert (told.kind, told.address, told.size) == ("overflow", address, size)
    for stack in (told.allocated, told.freed):
        assert any("test_an_overflow_of_a_buffer_is_found" in frame for frame in stack), told


def test_a_write_to_a_closed_buffer_is_found(stream: acl.Stream) -> None:
    """The blocks in quarantine are checked when the pool is closed or deleted."""
    before = reports()
    for number in range(2):
        pool = acl.Pool(0, debug=True)
        buffer = pool.alloc(1000, stream)
        address = buffer.address
        buffer.close()
        stream.synchronize()
        ctypes.memset(address + 17, 1, 1)
        if number:
            pool.close()
        del buffer, pool
        assert found(before) == {"use after free": 1 + number}


def test_sampling_guard_checks_one_buffer_in_n(stream: acl.Stream) -> None:
    before = reports()
    with acl.Pool(0, debug="sample:3") as pool:
        buffers = [pool.alloc(512, stream) for _ in range(12)]
        assert pool.stats().requested == 8 * 544 + 4 * 576
        stream.synchronize()
        for buffer in buffers:
            ctypes.memset(buffer.address + 512, 0, 1)
            buffer.close()
    assert found(before) == {"overflow": 4}


def test_correct_use_of_buffers_gets_no_report(stream: acl.Stream) -> None:
    """Contents stay correct through copies and views, also if another thread or stream uses or drops a buffer."""
    before = reports()
    with acl.Pool(0, debug=True, limit="64MiB") as pool, acl.Stream(0) as other:
        for size in (1, 511, 70_000, 5 * MIB) * 12:
            data = bytes([size % 251]) * size
            with pool.alloc(size, stream) as buffer, pool.alloc(size) as beside:
                acl.copy(buffer, data)
                acl.copy(beside, buffer)
                back = bytearray(size)
                acl.copy(back, beside)
                assert bytes(back) == data
            shared = pool.alloc(size, stream)
            pool.record_stream(shared, other)
            shared.close()
            view = pool.alloc(size).view(0, 1)
            thread = threading.Thread(target=lambda held: held.pop().close(), args=([view],))
            thread.start()
            del view
            thread.join()
        assert pool.check() == 0
    assert found(before) == {}


def test_freed_buffer_that_another_stream_reads_is_not_filled_by_the_guard(stream: acl.Stream) -> None:
    """If another stream uses a freed buffer, the guard must not fill it: that stream would read wrong bytes."""
    with acl.Pool(0, debug=True) as pool, acl.Stream(0) as other, acl.HostBuffer(MIB) as host:
        with pool.alloc(MIB, stream) as buffer, Slow(other):
            acl.fill(buffer, 7)
            stream.synchronize()
            pool.record_stream(buffer, other)
            address = ctypes.c_void_p(buffer.address)
            assert api.aclrtMemcpyAsync(ctypes.c_void_p(host.address), ctypes.c_size_t(MIB), address,
                                        ctypes.c_size_t(MIB), 2, ctypes.c_void_p(other.handle)) == 0
            buffer.close()
            stream.synchronize()
        other.synchronize()
        assert bytes(host) == b"\7" * MIB


def test_quarantined_buffers_are_reused_before_an_allocation_fails(stream: acl.Stream) -> None:
    with acl.Pool(0, debug=True, limit="16MiB") as pool:
        for _ in range(4):
            pool.alloc(9 * MIB, stream).close()
        with pytest.raises(acl.OutOfMemoryError):
            pool.alloc(17 * MIB, stream)
        with pool.alloc(9 * MIB):
            pass


def test_a_buffer_outlives_its_stream_and_its_pool() -> None:
    before = reports()
    pool = acl.Pool(0, debug=True)
    with acl.Stream(0) as gone:
        kept = [pool.alloc(1000, gone) for _ in range(3)]
        kept.pop().close()
    kept.pop().close()
    pool.close()
    kept.pop().close()
    assert found(before) == {}


def test_a_freed_block_that_could_not_be_filled_is_not_reported(sim: object) -> None:
    before = reports()
    with open_door(debug=True) as (pool, stream, door):
        block, address = door.take(4096)
        ctypes.memset(address, 1, 4096)
        with acl.sim.fault("aclrtMemsetAsync", nth=1) as fault:
            door.free(block)
            assert fault.hits == 1
        for _ in range(80):                     # the block is in quarantine for 32 frees
            door.free(door.take(4096)[0])
        stream.synchronize()
        assert pool.check() == 0
    assert found(before) == {}
