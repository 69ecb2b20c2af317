"""Tags, which name the use of memory: they are set by `tag=`, a scope, the stream, or the model."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.core import MIB, Door, open_door
from support.requests import small_model

import acl
from acl.inside import _books

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def opened() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    with open_door() as made:
        yield made
        assert made[0].check() == 0


def tags(pool: acl.Pool) -> dict[str, int]:
    """Return the live bytes by tag, without zeros."""
    return {name: size for name, size in pool.stats().tags.items() if size}


def test_tag_scope_applies_to_allocations_of_python_and_of_acl(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    before = door.alloc(512)
    with pool.tag("kv"):
        buffer, block = pool.alloc(1000, stream), door.alloc(2048)
        own = pool.alloc(512, stream, tag="own")
    after = door.alloc(512)
    assert tags(pool) == {"kv": 1536 + 2048, "own": 1024}
    for each in (before, block, after):
        door.free(each)
    buffer.close()
    own.close()
    assert tags(pool) == {}


def test_tag_scopes_can_be_nested_and_end_in_order(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    blocks = []
    with pool.tag("outer"):
        with pool.tag("inner"):
            blocks.append(door.alloc(512))
        blocks.append(door.alloc(1024))
    blocks.append(door.alloc(2048))
    assert tags(pool) == {"outer": 1024, "inner": 512}
    for block in blocks:
        door.free(block)


@pytest.mark.parametrize("between", ["nothing", "looks"])
def test_tag_scopes_are_exact_for_every_owner_of_the_arena_lock(
    opened: tuple[acl.Pool, acl.Stream, Door], between: str
) -> None:
    """The owner of an arena does not look at scopes, so no thread may be the owner while a scope is open."""
    pool, _, door = opened
    random = Random(7)
    expected: dict[str, int] = {}
    blocks: list[int] = []
    for turn in range(60):
        tag = random.choice(["", "a", "b"])
        with pool.tag(tag) if tag else nullcontext():
            for _ in range(40 if between == "looks" else 0):
                pool.leaks()                    # takes the arena's lock, so this thread might become its owner
            for _ in range(random.randrange(1, 60)):
                blocks.append(door.alloc(512))
                expected[tag] = expected.get(tag, 0) + 512
                door.free(door.alloc(2048))
        assert tags(pool) == {name: size for name, size in expected.items() if name}, turn
    for block in blocks:
        door.free(block)


def test_arena_lock_is_biased_again_after_a_tag_scope_ends(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    """After the scope the arena has an owner again: an allocation in another thread then revokes the bias."""
    pool, stream, door = opened

    def handovers() -> int:
        found = _books.glance(pool)
        assert found is not None
        (part,) = [each for each in found["streams"] if each["stream"] == stream.handle]
        return int(part["handovers"])

    def visited() -> bool:
        before = handovers()
        thread = threading.Thread(target=lambda: door.free(door.alloc(512)))
        thread.start()
        thread.join()
        return handovers() > before

    def work() -> None:
        for _ in range(3000):
            door.free(door.alloc(512))

    work()
    if not visited():
        pytest.skip("no lock is biased here")
    with pool.tag("a"):
        work()
        assert not visited()
    work()
    assert visited()


def test_tag_scope_applies_to_one_pool_only(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    with open_door() as (other, _, second), pool.tag("a"), other.tag("shifts the numbers"), other.tag("b"):
        blocks = [(door, door.alloc(512)), (second, second.alloc(1024))]
        assert (tags(pool), tags(other)) == ({"a": 512}, {"b": 1024})
        for each, block in blocks:
            each.free(block)


def test_tag_scope_applies_to_streams_made_later(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, _ = opened
    with pool.tag("late"), acl.Stream(0) as stream:
        pool.register(stream)
        door = Door(stream)
        block, advised = door.alloc(512), door.advise(1024, 1 << 40)
        assert tags(pool) == {"late": 1536}
        door.free(block)
        door.free(advised)


def test_tag_scope_applies_to_its_thread_only(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    taken = []
    with pool.tag("mine"):
        thread = threading.Thread(target=lambda: taken.append(door.alloc(512)))
        thread.start()
        thread.join()
        assert tags(pool) == {}
    door.free(taken[0])


def test_tag_scope_ended_in_another_thread_raises_an_error_and_ends(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    scope = pool.tag("wandering")
    scope.__enter__()

    def end() -> None:
        with pytest.raises(ValueError):  # as contextvars raise for a token of another context
            scope.__exit__(None, None, None)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    with pytest.raises(ValueError, match="make another one"):      # this thread's list still has the scope
        scope.__enter__()
    block = door.alloc(512)
    assert tags(pool) == {}
    door.free(block)


def test_tag_scope_that_is_open_cannot_be_opened_again(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    scope = opened[0].tag("once")
    with scope, pytest.raises(ValueError, match="open already"):
        scope.__enter__()
    with scope:
        pass


def test_asyncio_tasks_have_tag_scopes_of_their_own(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    buffers: list[acl.Buffer] = []
    bare: list[int] = []

    async def request(name: str, size: int) -> None:
        with pool.tag(name):
            await asyncio.sleep(0)
            buffers.append(pool.alloc(size, stream))
            bare.append(door.alloc(512))
            await asyncio.sleep(0)
            buffers.append(pool.alloc(size, stream))

    async def serve() -> None:
        await asyncio.gather(request("a", 480), request("b", 992))

    asyncio.run(serve())
    assert tags(pool) == {"a": 1024, "b": 2048}  # none for bare callbacks: C code does not know the current task
    for buffer in buffers:
        buffer.close()
    for block in bare:
        door.free(block)


def test_tags_beyond_the_tag_table_are_counted_as_other_tags(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    buffers = [pool.alloc(100, stream, tag=f"request-{i}") for i in range(70)]
    found = tags(pool)
    assert len(found) == 63
    assert found["request-61"] == 512
    assert found["(other tags)"] == 8 * 512
    assert sum(found.values()) == pool.stats().allocated
    for buffer in buffers:
        buffer.close()


def test_tag_of_a_stream_applies_to_its_blocks_without_a_tag(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    block = door.alloc(512)
    pool.tag_stream(stream, "encoder")
    with pool.alloc(480, stream, tag="kv"):
        assert tags(pool) == {"encoder": 512, "kv": 512}
        assert {info.tag for info in pool.blocks(stream) if info.state == "live"} == {"encoder", "kv"}
        ledger = acl.memory_ledger(0)
        assert ledger.sum(tag="encoder", state="requested", stream=stream.handle) == 512
    pool.tag_stream(stream, None)
    assert tags(pool) == {}
    door.free(block)


def test_stream_can_be_tagged_before_its_first_use() -> None:
    with acl.Pool(0) as pool, acl.Stream(0) as stream:
        pool.tag_stream(stream, "decoder")
        pool.register(stream)
        door = Door(stream)
        block = door.alloc(512)
        assert tags(pool) == {"decoder": 512}
        door.free(block)


def test_tagged_stream_still_serves_allocations_from_its_cache(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    """A stream with a name still has the fast path: its allocations are served from the cache."""
    pool, stream, door = opened
    pool.tag_stream(stream, "encoder")
    for _ in range(100):
        door.free(door.alloc(512))
    assert pool.stats().hits >= 99


# ---- models -------------------------------------------------------------------------------------


def failed_run(stream: acl.Stream, scope: str | None = None, named: str | None = None) -> acl.OomReport:
    """Make a run fail: inputs and outputs fit, but not the memory for which ACL asks. Return the report."""
    with acl.Model(small_model().to_bytes(), name="relu") as model, acl.Pool(0, limit="64MiB") as pool:
        model(np.ones((4, 8), np.float32))
        pool.register(stream)
        hogs = [pool.alloc("16MiB", stream, tag="hog") for _ in range(3)]
        if named is not None:
            pool.tag_stream(stream, named)
        # Inputs and outputs take 4.4 MiB each and fit; the tensors between them do not.
        x = np.ones((144_000, 8), np.float32)
        with pool.tag(scope) if scope else nullcontext(), pytest.raises(acl.OutOfMemoryError) as raised:
            model(x, stream=stream)
        for hog in hogs:
            hog.close()
        stream.synchronize()
        model(x, stream=stream)
        pool.unregister(stream)
    assert isinstance(raised.value.report, acl.OomReport)
    return raised.value.report


def test_allocations_of_a_model_run_are_tagged_with_the_name_of_the_model(stream: acl.Stream) -> None:
    report = failed_run(stream)
    assert report.tag == "relu"
    assert report.tags["hog"] == 3 * (16 * MIB + 512)
    assert {"inputs", "outputs"} <= set(report.tags)


def test_tags_of_the_user_take_precedence_over_the_name_of_the_model(stream: acl.Stream) -> None:
    assert failed_run(stream, named="lane").tag == "lane"
    report = failed_run(stream, scope="request-7")
    assert report.tag == "request-7"
    assert "inputs" not in report.tags


def test_name_of_a_model_is_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bert.base.onnx"
    path.write_bytes(small_model().to_bytes())
    with acl.Model(path) as model, acl.Model(path.read_bytes()) as other, acl.Model(path, name="x") as third:
        assert (model.name, other.name, third.name) == ("bert.base", "model", "x")


def test_model_run_in_a_coroutine_has_the_tag_of_its_task(stream: acl.Stream) -> None:
    with acl.Model(small_model().to_bytes()) as model, acl.Pool(0, limit="64MiB") as pool:
        model(np.ones((4, 8), np.float32))
        pool.register(stream)
        hogs = [pool.alloc("16MiB", stream) for _ in range(3)]

        async def serve() -> acl.OutOfMemoryError:
            with pool.tag("task"):
                await asyncio.sleep(0)
                with pytest.raises(acl.OutOfMemoryError) as raised:
                    model.run_async([np.ones((144_000, 8), np.float32)], stream)
                return raised.value

        report = asyncio.run(serve()).report
        assert report is not None
        assert report.tag == "task"
        for hog in hogs:
            hog.close()
        stream.synchronize()
        model(np.ones((4, 8), np.float32), stream=stream)
        pool.unregister(stream)


def test_workspace_of_an_operator_has_the_tag_of_the_scope(stream: acl.Stream) -> None:
    with acl.Pool(0, limit="16MiB") as pool:
        pool.register(stream)
        with pool.tag("op"):
            (total,) = acl.Op("Add")(np.ones(8, np.float32), np.ones(8, np.float32), stream=stream)
            assert pool.stats().tags["op"] == 512 == pool.stats().allocated
        assert total.numpy().tolist() == [2.0] * 8
        total.close()
        stream.synchronize()
        pool.unregister(stream)
