"""`Pool` on the simulator: buffers, registration, statistics, limits, out of memory."""

import ast
import ctypes
import gc
import re
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest
from support.calls import api, out
from support.child import run_python
from support.core import physical, physical_base  # noqa: F401

import acl
import acl.sim
from acl.pool._options import OPTIONS

MIB = 1 << 20


@pytest.fixture
def pool(sim: ModuleType) -> Iterator[acl.Pool]:
    """Make a pool on device 0, and check afterwards that all of its memory was freed."""
    acl.Device(0).use()
    gc.collect()
    before = sim.physical_bytes()
    with acl.Pool(0) as made:
        yield made
        gc.collect()
    assert sim.physical_bytes() == before


def test_pool_buffer_has_the_requested_size_stream_and_device(pool: acl.Pool, stream: acl.Stream) -> None:
    with pool.alloc(1000, stream) as buffer:
        assert buffer.size == 1000 and buffer.stream is stream and buffer.device == 0
        acl.fill(buffer, 7)
        assert acl.to_bytes(buffer) == b"\7" * 1000
        assert pool.stats().requested == 1056                   # with the padding that the chip needs after a buffer
    assert pool.stats().requested == 0 and pool.check() == 0


@pytest.mark.parametrize("size", [0, 1, 511, "1 KiB", "1.5MB"])
def test_buffer_sizes_may_be_ints_or_texts(pool: acl.Pool, size: int | str) -> None:
    wanted = {"1 KiB": 1024, "1.5MB": 1_500_000}.get(size, size)        # type: ignore[call-overload]
    with pool.alloc(size) as buffer:
        assert buffer.size == wanted and buffer.address


@pytest.mark.parametrize(("size", "error", "text"), [
    (-1, ValueError, "nbytes must be at least 0, not -1"), ("8 parsecs", ValueError, "nbytes must look like '8GiB'"),
    (1.5, TypeError, "nbytes must be an int or a text such as '8GiB', not float"),
    (None, TypeError, "not NoneType"), (1 << 70, ValueError, r"nbytes must be below 2\*\*63"),
    (1 << 50, ValueError, r"nbytes must be below 2\*\*46"),
])
def test_wrong_buffer_sizes_are_refused(pool: acl.Pool, size: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pool.alloc(size)                                                # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "text"), [
    ({"granule": 3 << 20}, "granule must be a power of two"),
    ({"granule": 4096}, "granule must be a power of two of at least 64 KiB"),
    ({"granule": "auto"}, "granule 'auto' is chosen by the limit, and none is given"),
    ({"granule": "auto", "limit": "1MiB"}, "limit must be at least one granule"),
    ({"limit": 1000}, "limit must be at least one granule"),
    ({"headroom": -5}, "headroom must be at least 0, not -5"),
    ({"limit": "1GiB", "preallocate": "2GiB"}, r"preallocate must be at most limit \('1GiB'\), not '2GiB'"),
    ({"pages": "tiny"}, "pages must be one of huge, normal, huge1g, not 'tiny'"),
    ({"sync_timeout_ms": 0}, "sync_timeout_ms must be positive, or -1 for no limit, not 0"),
    ({"views": "never"}, "views must be a bool or 'always', not 'never'"),
    ({"decay_ms": -3}, "decay_ms must be at least 1"),
    ({"decay_ms": 2**40}, r"decay_ms must be at least 1 and below 2\*\*31"),
    ({"limit": "101%"}, "limit must be at most '100%', not '101%'"),
    ({"limit": "%"}, "limit must look like '8GiB'"),
    ({"limit": "0%"}, "limit must be at least one granule .* not '0%'"),
    ({"headroom": "33GiB"}, "headroom must be at most the 34359738368 bytes of device 0, not 35433480192"),
    ({"preallocate": "33GiB"}, "preallocate must be at most the 34359738368 bytes of device 0"),
])
def test_wrong_pool_options_are_refused(options: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        acl.Pool(0, **options)                                          # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "wanted"), [
    ("1GiB", 1 << 30), ("1Gi", 1 << 30), ("1G", 1 << 30), ("1gi", 1 << 30), ("1GB", 10**9), ("50%", 16 << 30),
    (" 12.5 % ", 4 << 30), ("100%", 32 << 30)])
def test_pool_sizes_may_be_texts_or_shares_of_the_device(size: str, wanted: int) -> None:
    with acl.Pool(0, size, headroom=size) as pool:
        assert (pool.limit, pool.headroom) == (wanted, wanted)
        pool.limit = pool.headroom = "25%"
        assert (pool.limit, pool.headroom) == (8 << 30, 8 << 30)


def test_limit_above_the_device_memory_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "acl.pool"):
        acl.Pool(0, "33GiB").close()
        assert "limit is 35433480192 bytes, and device 0 has 34359738368" in caplog.text
        caplog.clear()
        acl.Pool(0, "32GiB").close()
        assert caplog.text == ""


ASKED = {"ACL_POOL_LIMIT": "25%", "ACL_POOL_HEADROOM": "1Gi", "ACL_POOL_GRANULE": "4MiB", "ACL_POOL_DECAY_MS": "60000",
         "ACL_POOL_NAME": "main"}


def test_pool_options_equal_the_parameters_of_its_signature() -> None:
    words = acl.Pool.__doc__ or ""
    signature = words.partition(")")[0]
    given = {name: ast.literal_eval(default) for name, default in re.findall(r"(\w+)=([^,)]+)", signature)}
    assert set(given) == {"device", "stream", *OPTIONS}
    for name, option in OPTIONS.items():
        assert given[name] in (None, option.default) and f"\n{name} : " in words, name


def test_environment_gives_the_pool_options_that_are_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def decays() -> int:
        return [thread.name for thread in threading.enumerate()].count("acl-pool-decay")

    before = decays()
    for name, value in ASKED.items():
        monkeypatch.setenv(name, value)
    with acl.Pool(0) as pool, pool.alloc(1):
        assert (pool.limit, pool.headroom, pool.name) == (8 << 30, 1 << 30, "main")
        assert pool.stats().reserved == 4 << 20
        assert decays() == before + 1
    with acl.Pool(0, "1GiB", headroom=0, granule="2MiB", decay_ms=0, name="own") as pool, pool.alloc(1):
        assert (pool.limit, pool.headroom, pool.name) == (1 << 30, 0, "own")
        assert pool.stats().reserved == 2 << 20
        assert decays() == before


@pytest.mark.parametrize(("name", "value", "text"), [
    ("ACL_POOL_LIMIT", "much", "ACL_POOL_LIMIT must look like '8GiB'"),
    ("ACL_POOL_LIMIT", "200%", "ACL_POOL_LIMIT must be at most '100%'"),
    ("ACL_POOL_HEADROOM", "-1", "ACL_POOL_HEADROOM must look like"),
    ("ACL_POOL_GRANULE", "big", "ACL_POOL_GRANULE must look like"),
    ("ACL_POOL_DECAY_MS", "1s", "ACL_POOL_DECAY_MS must be a number of milliseconds, not '1s'"),
])
def test_variable_that_makes_no_sense_is_named(
    name: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=text):
        acl.Pool(0)


def test_buffer_padding_depends_on_the_chip(sim: ModuleType) -> None:
    for soc, bytes_asked in (("Ascend910B1", 1056), ("Ascend950PR_9599", 1024)):
        if soc not in sim.socs():
            continue
        done = run_python(f"""
            import acl, acl.sim
            acl.sim.configure(soc={soc!r})
            acl.Device(0).use()
            pool = acl.Pool(0)
            buffer = pool.alloc(1000)
            print(pool.stats().requested)
            """)
        assert (done.stdout.strip(), done.stderr) == (str(bytes_asked), "")


def test_memory_of_dropped_buffers_is_reused(pool: acl.Pool, stream: acl.Stream) -> None:
    address = pool.alloc(5000, stream).address
    assert pool.alloc(5000, stream).address == address
    assert pool.stats().allocated == 0


def test_a_buffer_outlives_its_closed_pool(sim: ModuleType) -> None:
    acl.Device(0).use()
    before = sim.physical_bytes()
    pool = acl.Pool(0)
    buffer = pool.alloc(3 * MIB)
    pool.close()
    pool.close()
    acl.fill(buffer, 9)
    assert acl.to_bytes(buffer)[-1] == 9
    with pytest.raises(ValueError, match="the Pool is closed"):
        pool.alloc(1)
    del pool
    assert sim.physical_bytes() > before
    del buffer
    gc.collect()
    assert sim.physical_bytes() == before


def test_pool_arrays_have_the_given_shape_type_stream_and_tag(pool: acl.Pool, stream: acl.Stream) -> None:
    with pool.empty((3, 5), "float16", stream, tag="kv") as array:
        assert array.nbytes == 30 and len(array) == 3 and array.buffer.stream is stream
        assert array.numpy().shape == (3, 5)
        assert pool.stats().tags == {"kv": 512}
    assert pool.empty((), "int64").nbytes == 8
    with pytest.raises(ValueError, match="dtype must be one of"):
        pool.empty(3, "float3")
    with pytest.raises(ValueError, match="shape must not have negative extents"):
        pool.empty((2, -1))
    for shape in ("ab", (2, 1.5), 2.5):
        with pytest.raises(TypeError, match="shape must be an int or ints"):
            pool.empty(shape)


def test_live_bytes_are_counted_for_each_tag(pool: acl.Pool) -> None:
    weights, cache = pool.alloc(MIB, tag="weights"), pool.alloc(1000, tag="cache")
    assert pool.stats().tags == {"weights": MIB + 512, "cache": 1536}
    assert {block.tag for block in pool.blocks() if block.state == "live"} == {"weights", "cache"}
    weights.close()
    assert pool.stats().tags == {"weights": 0, "cache": 1536}
    cache.close()
    with pytest.raises(TypeError, match="tag must be a str, not int"):
        pool.alloc(1, tag=3)                                            # type: ignore[arg-type]


def test_registered_stream_has_the_same_five_values_for_its_whole_life(pool: acl.Pool, stream: acl.Stream) -> None:
    assert acl.allocator_of(stream) is None and acl.allocator_of(None) is None
    pool.register(stream)
    first = acl.allocator_of(stream)
    assert first is not None and first.pool is pool and all(first[:5])
    assert pool.streams == (stream.handle,)
    pool.register(stream)
    assert acl.allocator_of(stream) == first
    pool.unregister(stream)
    assert acl.allocator_of(stream) is None and pool.streams == ()
    pool.register(stream.handle)
    assert acl.allocator_of(stream) == first, "the same five values for the stream's whole life"


def test_foreign_allocator_of_a_stream_is_distinguished_from_a_pool(pool: acl.Pool, stream: acl.Stream) -> None:
    pool.register(stream)
    ours = acl.allocator_of(stream)
    assert ours is not None
    desc = acl.rt.allocator_create_desc()
    for setter, value in (
        (acl.rt.allocator_set_obj_to_desc, 77), (acl.rt.allocator_set_alloc_func_to_desc, ours.get_addr),
        (acl.rt.allocator_set_free_func_to_desc, ours.free),
        (acl.rt.allocator_set_alloc_advise_func_to_desc, ours.alloc_advise),
        (acl.rt.allocator_set_get_addr_from_block_func_to_desc, ours.get_addr),
    ):
        assert setter(desc, value) == 0
    assert acl.rt.allocator_register(stream.handle, desc) == 0
    other = acl.allocator_of(stream)
    assert other is not None and other.pool is None and other.object == 77
    acl.rt.allocator_unregister(stream.handle)


def test_allocator_of_a_stream_is_the_one_that_acl_reports(pool: acl.Pool, stream: acl.Stream) -> None:
    """`allocator_of` is right even if a program registers the allocator of another stream directly in ACL."""
    with acl.Pool(0) as second, acl.Stream(0) as other:
        pool.register(stream)
        second.register(other)
        theirs = acl.allocator_of(other)
        assert theirs is not None and theirs.pool is second
        desc = acl.rt.allocator_create_desc()
        for setter, value in zip((
            acl.rt.allocator_set_obj_to_desc, acl.rt.allocator_set_alloc_func_to_desc,
            acl.rt.allocator_set_free_func_to_desc, acl.rt.allocator_set_alloc_advise_func_to_desc,
            acl.rt.allocator_set_get_addr_from_block_func_to_desc,
        ), theirs[:5], strict=True):
            assert setter(desc, value) == 0
        assert acl.rt.allocator_register(stream.handle, desc) == 0
        assert acl.allocator_of(stream) == theirs
        assert acl.rt.allocator_set_obj_to_desc(desc, 4096) == 0
        assert acl.rt.allocator_register(stream.handle, desc) == 0
        found = acl.allocator_of(stream)
        assert found is not None and found.object == 4096 and found.pool is None
        pool.register(stream)
        found = acl.allocator_of(stream)
        assert found is not None and found.pool is pool


def test_the_default_stream_is_not_registered(pool: acl.Pool) -> None:
    with pytest.raises(ValueError, match="ACL never asks for the default stream's allocator"):
        pool.register(None)                                             # type: ignore[arg-type]


def test_use_pool_registers_new_streams(pool: acl.Pool) -> None:
    with acl.use_pool(pool) as same:
        assert same is pool
        with acl.Stream(0) as inside, acl.Stream(1) as elsewhere:
            found = acl.allocator_of(inside)
            assert found is not None and found.pool is pool
            assert acl.allocator_of(elsewhere) is None
            acl.Device(0).use()
    with acl.Stream(0) as outside:
        assert acl.allocator_of(outside) is None
    with pytest.raises(TypeError, match="pool must be a Pool, not int"):
        acl.use_pool(3)                                                 # type: ignore[arg-type]
    pool.close()
    with pytest.raises(ValueError, match="the Pool is closed"):
        acl.use_pool(pool)


def test_a_borrowed_stream_may_be_registered(pool: acl.Pool) -> None:
    with acl.Stream(0) as stream:
        pool.register(acl.Stream.from_handle(stream.handle))
        assert pool.streams == (stream.handle,)
        pool.unregister(stream)


def test_new_stream_at_the_address_of_an_ended_stream_is_not_registered(pool: acl.Pool) -> None:
    """A new stream may get the address of an ended one; in any case, no allocator is registered for the new stream."""
    for _ in range(40):
        with acl.Stream(0) as stream:
            assert acl.allocator_of(stream) is None
            pool.register(stream)
            assert acl.allocator_of(stream.handle) is not None
            pool.alloc(1000, stream).close()
            handle = stream.handle
        assert acl.allocator_of(handle) is None
    assert pool.streams == ()
    assert pool.check() == 0


def test_stream_destroyed_by_foreign_code_leaves_no_registration(pool: acl.Pool) -> None:
    """The stream is destroyed through ACL, so only a callback of ACL informs the pool."""
    handle = out()
    assert api.aclrtCreateStream(ctypes.byref(handle)) == 0
    assert handle.value is not None
    pool.register(handle.value)
    assert acl.allocator_of(handle.value) is not None
    assert api.aclrtDestroyStream(handle) == 0
    assert acl.allocator_of(handle.value) is None
    assert pool.streams == ()


def test_stream_may_end_while_its_buffers_are_live(pool: acl.Pool) -> None:
    with acl.Stream(0) as stream:
        pool.register(stream)
        buffer = pool.alloc(5 * MIB, stream)
    assert pool.stats().allocated >= 5 * MIB
    buffer.close()
    assert pool.check() == 0
    assert pool.trim() >= 5 * MIB


def test_buffer_can_be_freed_after_its_stream_is_unregistered(pool: acl.Pool, stream: acl.Stream) -> None:
    pool.register(stream)
    buffer = pool.alloc(1000, stream)
    pool.unregister(stream)
    buffer.close()
    assert pool.check() == 0


def test_page_size_that_the_driver_cannot_map_is_refused_when_the_pool_is_made(sim: ModuleType) -> None:
    acl.Device(0).use()
    with pytest.raises(ValueError, match="granule must be a multiple of the driver's 2097152 bytes"):
        acl.Pool(0, granule="64KiB")
    acl.Pool(0, granule="64KiB", segments=True).close()
    # If the library cannot report its granularity, the first allocation fails instead.
    with sim.fault("aclrtMemGetAllocationGranularity", every=1, code=207000), acl.Pool(0, granule="64KiB") as pool:
        with pytest.raises(acl.OutOfMemoryError, match="the granule must be a multiple"):
            pool.alloc(1 << 20)


@pytest.mark.parametrize(("limit", "granule"), [
    ("512MiB", 2 << 20), ("1GiB", 2 << 20), ("2GiB", 4 << 20), ("5GiB", 8 << 20), (8 << 30, 16 << 20),
])
def test_automatic_page_size_grows_with_the_limit(limit: int | str, granule: int) -> None:
    with acl.Pool(0, limit=limit, granule="auto") as pool, pool.alloc(1):
        assert pool.stats().reserved == granule


@pytest.mark.parametrize("device, error", [("0", TypeError), (None, TypeError), (1.0, TypeError), (-1, ValueError)])
def test_a_wrong_device_is_named(device: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="device must be"):
        acl.Pool(device)                                                # type: ignore[arg-type]


def test_a_number_that_is_no_streams_handle_is_refused(pool: acl.Pool) -> None:
    with pytest.raises(ValueError, match="stream must be a Stream or the handle of one, not 5"):
        pool.register(5)
    with acl.Stream(0) as gone:
        handle = gone.handle
    with pytest.raises(ValueError, match="the handle of one"):
        pool.register(handle)
    assert pool.streams == ()


def test_a_stream_of_another_device_is_refused(pool: acl.Pool) -> None:
    with acl.Stream(1) as stream:
        with pytest.raises(ValueError, match="stream is of device 1, the pool of device 0"):
            pool.alloc(100, stream)
        with pytest.raises(ValueError, match="stream is of device 1, the pool of device 0"):
            pool.register(stream)
        acl.Device(0).use()
        with pool.alloc(100) as buffer, pytest.raises(ValueError, match="stream is of device 1, the pool of device 0"):
            buffer.record_stream(stream)


def test_a_stream_is_registered_with_one_pool(pool: acl.Pool, stream: acl.Stream) -> None:
    pool.register(stream)
    with acl.Pool(0) as other:
        with pytest.raises(ValueError, match=f"served by pool '{pool.name}'.*replace=True.*'{other.name}'"):
            other.register(stream)
        assert (pool.streams, other.streams) == ((stream.handle,), ())
        pool.register(stream)                                           # no error: registered by the same pool
        other.register(stream, replace=True)
        assert (pool.streams, other.streams) == ((), (stream.handle,))
        pool.unregister(stream)                                         # no error, though another pool serves it now
        assert acl.allocator_of(stream).pool is other                   # type: ignore[union-attr]


def test_reprs_are_short(pool: acl.Pool, stream: acl.Stream) -> None:
    with pool.alloc(3 * MIB, stream):
        text = repr(pool.stats())
        assert text.startswith("<PoolStats 3.00 MiB live of 4.00 MiB reserved, 1 streams, 1 allocations")
        assert len(repr(acl.memory_ledger(0))) < 120


def test_allocation_above_the_limit_raises_and_leaves_an_out_of_memory_report(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, "32MiB") as pool:
        assert pool.last_oom() is None
        keep = pool.alloc("20MiB", tag="weights")
        with pytest.raises(acl.OutOfMemoryError, match="the pool's limit is in the way") as caught:
            pool.alloc("20MiB")
        assert isinstance(caught.value, MemoryError) and caught.value.code == 207001
        assert "the device has no room" not in str(caught.value)
        report = pool.last_oom()
        assert report is not None
        assert report.limit == 32 * MIB and report.live >= 20 * MIB and report.size >= 20 * MIB
        assert (report.top_tag, report.top_bytes) == ("weights", 20 * MIB + 512)
        assert report.device_free > 0 and not report.capturing
        assert pool.stats().ooms == 1
        keep.close()
        pool.alloc("20MiB").close()


def test_allocation_is_tried_again_after_the_out_of_memory_hook(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, "32MiB") as pool:
        held = [pool.alloc("20MiB")]
        seen = []

        def make_room(report: acl.OomReport) -> None:
            seen.append(report)
            held.pop().close()
            pool.trim()

        pool.on_oom(make_room)
        with pool.alloc("20MiB") as buffer:
            assert buffer.size == 20 * MIB
        assert len(seen) == 1 and seen[0].size >= 20 * MIB
        pool.on_oom(None)
        with pytest.raises(TypeError, match="hook must be callable or None"):
            pool.on_oom(3)                                              # type: ignore[arg-type]


def test_out_of_memory_hook_that_frees_nothing_is_called_once(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, "32MiB") as pool:
        calls: list[object] = []
        pool.on_oom(calls.append)
        with pytest.raises(acl.OutOfMemoryError):
            pool.alloc("40MiB")
        assert len(calls) == 1


def test_error_in_the_out_of_memory_hook_is_raised_by_the_allocation(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, "32MiB") as pool:
        def fail(report: acl.OomReport) -> None:
            raise KeyError("hook")

        pool.on_oom(fail)
        with pytest.raises(KeyError, match="hook"):
            pool.alloc("40MiB")
        assert pool.check() == 0


def test_acl_callback_returns_null_and_keeps_the_out_of_memory_report(sim: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0, "32MiB") as pool:
        pool.register(stream)
        from acl.tools.bench import _peers

        subject = _peers.registered("pool", stream.handle, pool)
        assert subject.take(40 * MIB) == 0
        report = pool.last_oom()
        assert report is not None and report.stream == stream.handle and report.size == 40 * MIB


def test_pool_statistics_count_allocations_hits_and_driver_calls(pool: acl.Pool, stream: acl.Stream) -> None:
    for _ in range(10):
        pool.alloc(4096, stream).close()
    big = pool.alloc(9 * MIB, stream)
    stats = pool.stats()
    assert stats.allocations == 11 and stats.hits == 9 and stats.slow == 2
    assert stats.hit_rate == 9 / 11
    assert stats.reserved == physical() and stats.reserved_peak >= stats.reserved
    assert 0 < stats.fragmentation < 1
    part = stats.streams[0]
    assert part.stream == stream.handle and part.kind == "stream"
    assert part.rungs["grow"] == 2 and part.live_blocks == 1 and part.frees == 10
    assert stats.driver_calls["aclrtMapMem"] >= stats.driver_calls["aclrtMallocPhysical"] > 0
    assert not any(stats.driver_failures.values())
    big.close()
    pool.reset_peak()
    assert pool.stats().allocated_peak == 0


def test_preallocated_memory_serves_allocations_and_trim_returns_the_rest(sim: ModuleType) -> None:
    acl.Device(0).use()
    before = sim.physical_bytes()
    with acl.Pool(0, preallocate="64MiB") as pool:
        assert sim.physical_bytes() - before >= 64 * MIB
        calls = pool.stats().driver_calls
        pool.alloc("60MiB").close()
        assert pool.stats().driver_calls == calls
        assert pool.trim("16MiB") >= 48 * MIB
        assert pool.stats().reserved <= 16 * MIB
        pool.trim(idle=True)
        assert sim.physical_bytes() == before


@pytest.mark.parametrize("size", [2 * MIB, 64 * MIB])
def test_whole_limit_of_a_pool_can_be_preallocated(sim: ModuleType, size: int) -> None:
    acl.Device(0).use()
    with acl.Pool(0, size, preallocate=size) as pool:
        assert pool.stats().reserved == size


def test_decay_runs_in_the_background(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(0, decay_ms=5) as pool:
        pool.alloc("64MiB").close()
        for _ in range(6000):
            if pool.stats().reserved == 0:
                break
            threading.Event().wait(0.01)
        assert pool.stats().reserved == 0
    assert not [t for t in threading.enumerate() if t.name == "acl-pool-decay"]


def test_pool_serves_buffers_from_segments_if_addresses_cannot_be_reserved(sim: ModuleType) -> None:
    acl.Device(0).use()
    before = sim.physical_bytes()
    with acl.Pool(0) as pool, sim.fault("aclrtReserveMemAddress", code=207000):
        with pool.alloc("50MiB") as buffer:
            acl.fill(buffer, 5)
            assert acl.to_bytes(buffer)[-1] == 5
        assert pool.stats().driver_calls["aclrtMapMem"] == 0
        assert pool.check() == 0
    assert sim.physical_bytes() == before


def test_early_frees_are_the_default_with_several_launching_threads() -> None:
    done = run_python("""
        import acl
        acl.Device(0).use()
        pool = acl.Pool(0)
        stream = acl.Stream()
        pool.register(stream)
        pool.alloc("64MiB", stream).close()
        print(pool.trim(), [s.kind for s in pool.stats().streams], pool.trim(drained=True) > 0)
        """, MAX_RUNTIME_CORE_NUMBER="3")
    assert (done.stdout.strip(), done.stderr) == ("0 ['stream', 'user'] True", "")


def test_pool_refuses_use_while_another_device_is_current(sim: ModuleType) -> None:
    acl.Device(0).use()
    with acl.Pool(1) as pool:
        with acl.Stream(1) as stream, pool.alloc(1000, stream) as buffer:
            assert buffer.device == 1
        acl.Device(0).use()
        with pytest.raises(ValueError, match="the pool is for device 1, the current device is 0"):
            pool.alloc(1000)


def test_pools_of_one_device_share_no_blocks(sim: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0, "16MiB") as one, acl.Pool(0, "16MiB") as other:
        a, b = one.alloc("12MiB", stream), other.alloc("12MiB", stream)
        assert a.address != b.address
        with pytest.raises(ValueError, match="the Buffer is not of this pool"):
            one.record_stream(b, stream)
        a.close()
        b.close()


def test_block_list_of_a_stream_shows_states_and_sizes(pool: acl.Pool, stream: acl.Stream) -> None:
    assert pool.blocks(stream) == []
    pool.alloc(1000, stream).close()
    keep = pool.alloc(3000, stream)
    states = [(block.state, block.size) for block in pool.blocks(stream)]
    assert states[:2] == [("cached", 1536), ("live", 3072)]
    assert sum(1 for state, _ in states if state == "hole") == 1
    keep.close()


def test_interpreter_exit_with_a_live_pool_prints_nothing() -> None:
    done = run_python("""
        import acl
        acl.Device(0).use()
        pool = acl.Pool(0, decay_ms=5)
        streams = [acl.Stream() for _ in range(3)]
        for stream in streams:
            pool.register(stream)
        held = [pool.alloc("5MiB", stream) for stream in streams]
        acl.use_pool(pool)
        """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_forked_child_cannot_use_the_pool_of_its_parent() -> None:
    done = run_python("""
        import os, acl
        acl.Device(0).use()
        pool = acl.Pool(0)
        stream = acl.Stream()
        pool.register(stream)
        from acl.tools.bench import _peers
        subject = _peers.registered("pool", stream.handle, pool)
        block = subject.take(1000)
        buffer = pool.alloc(1000)
        child = os.fork()
        if child == 0:
            assert subject.take(1000) == 0
            subject.give(block)
            try:
                pool.alloc(1000)
            except Exception as error:
                os._exit(0 if "fork" in str(error) else 3)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert subject.take(1000)
        subject.give(block)
        print(pool.check())
        """)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("0", "", 0)


def test_block_list_can_be_made_while_the_garbage_collector_frees_blocks() -> None:
    """If the pool held the arena's lock while it makes the list, a finalizer in this thread would wait for ever."""
    done = run_python(
        """
        import gc
        import acl

        class Knot:
            def __init__(self, pool):
                self.knot, self.buffer = self, pool.alloc(4096)

        with acl.Pool(0) as pool:
            kept = [pool.alloc(4096) for _ in range(200)]
            gc.disable()
            knots = [Knot(pool) for _ in range(50)]
            del knots
            gc.set_threshold(1)
            gc.enable()
            live = sum(block.state == "live" for block in pool.blocks())
            gc.collect()
            print(live, pool.stats().total("live_blocks"))
            del kept
        """,
    )
    assert (done.stdout.split()[1:], done.stderr) == (["200"], "")


@pytest.mark.parametrize("function", ["aclrtMapMem", "aclrtMallocPhysical", "aclrtReserveMemAddress"])
def test_a_driver_that_lacks_any_part_of_virtual_memory_gets_segments(sim: ModuleType, function: str) -> None:
    acl.Device(0).use()
    with sim.fault(function, every=1, code=207000), acl.Pool(0) as pool:
        with pool.alloc("3MiB") as buffer, pool.alloc(1000) as small:
            assert buffer.address and small.address
            assert pool.stats().driver_calls["aclrtMalloc"] >= 1
        assert pool.check() == 0


def test_pool_allocation_fails_on_a_lost_device(pool: acl.Pool, sim: ModuleType) -> None:
    with sim.device_lost(0), pytest.raises(acl.DeviceLostError):
        pool.alloc("40MiB")
    report = pool.last_oom()
    assert report is not None and report.code == 507899
    assert pool.check() == 0
    pool.alloc("40MiB").close()
