"""Budgets of tags: `Pool.budget`."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.core import MIB, Door, open_door
from support.requests import small_model

import acl
import acl.metrics
from acl.inside import _books

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def opened() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    with open_door() as made:
        yield made
        assert made[0].check() == 0


def live(pool: acl.Pool, tag: str) -> int:
    return pool.stats().budgets[tag].live


def take(pool: acl.Pool, block: int, stream: acl.Stream | None = None) -> acl.Buffer:
    """Allocate a buffer whose block, with the padding of the pool, has `block` bytes."""
    return pool.alloc(block - 100, stream, tag="a")


def test_budget_exceeded_is_out_of_memory_for_that_tag_alone(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    pool.budget("a", "1MiB")
    kept = take(pool, MIB, stream)
    with pytest.raises(acl.OutOfMemoryError) as raised:
        take(pool, 512, stream)
    report = raised.value.report
    assert (report.tag, report.stopped, report.tried) == ("a", ("budget",), ())
    assert (report.budget, report.budget_live) == (MIB, MIB)
    assert report.advice.endswith(f"pool.budget('a', {MIB + 512})")
    pool.alloc(MIB, stream, tag="b").close()
    pool.alloc(MIB, stream).close()
    assert pool.stats().budgets == {"a": acl.BudgetStats(MIB, MIB, 1)}
    kept.close()
    take(pool, MIB, stream).close()


def test_budget_advice_followed_suffices(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    pool.budget("a", 1024)
    kept = take(pool, 1024, stream)
    with pytest.raises(acl.OutOfMemoryError) as raised:
        take(pool, 512, stream)
    assert "free 512 B with this tag" in raised.value.report.advice
    with pytest.raises(acl.OutOfMemoryError) as larger:
        take(pool, 2048, stream)
    assert "free" not in larger.value.report.advice         # no free would make room for it
    pool.budget("a", int(raised.value.report.advice.rsplit(" ", 1)[1].rstrip(")")))
    take(pool, 512, stream).close()
    kept.close()


@pytest.mark.parametrize("size", [512, MIB])
def test_budget_counts_blocks_that_were_live_before_the_budget_was_set(
    opened: tuple[acl.Pool, acl.Stream, Door], size: int
) -> None:
    pool, stream, door = opened
    with acl.Stream() as other:
        kept = [take(pool, size, stream), take(pool, size, other)]
        pool.budget("a", 2 * size)
        assert live(pool, "a") == 2 * size
        with pytest.raises(acl.OutOfMemoryError):
            take(pool, size, stream)
        kept.pop().close()
        take(pool, size, stream).close()
        with pool.tag("a"):
            block = door.alloc(size)
            assert block and door.alloc(size) == 0
        door.free(block)
        kept.pop().close()
    assert live(pool, "a") == 0


def test_budget_applies_to_streams_made_after_the_budget_was_set(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, _ = opened
    pool.budget("a", 512)
    with acl.Stream() as other, take(pool, 512, other), pytest.raises(acl.OutOfMemoryError):
        take(pool, 512, other)


def test_budget_of_none_removes_the_bound_and_keeps_the_counts(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    pool.budget("a", 512)
    pool.budget("a", None)
    with take(pool, 4096, stream):
        assert pool.stats().budgets["a"] == acl.BudgetStats(0, 4096, 0)
        pool.budget("a", 1024)
        with pytest.raises(acl.OutOfMemoryError):
            take(pool, 512, stream)


def test_budget_is_fully_available_again_after_the_pool_was_full(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    pool.budget("a", "4GiB")
    pool.limit = 4 * MIB
    with pytest.raises(acl.OutOfMemoryError) as raised:
        take(pool, 64 * MIB, stream)
    assert "budget" not in raised.value.report.stopped
    assert live(pool, "a") == 0


def test_budget_hook_that_frees_is_asked_once(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    pool.budget("a", 1024)
    kept = [take(pool, 1024, stream)]
    asked: list[acl.OomReport] = []

    def hook(report: acl.OomReport) -> None:
        asked.append(report)
        kept.pop().close()

    pool.on_oom(hook)
    take(pool, 1024, stream).close()
    assert [report.tag for report in asked] == ["a"]


def test_budget_of_many_threads_is_never_exceeded_nor_lost() -> None:
    """The budget has room for the blocks of 3 of the 4 threads.  The threads use their own and the default stream."""
    pool = acl.Pool(0)
    size = 2048
    pool.budget("a", 3 * size)
    refused = [0] * 4

    def work(me: int) -> None:
        acl.Device(0).use()
        with acl.Stream() as stream:
            for turn in range(400):
                try:
                    buffer = take(pool, size, stream if turn % 2 else None)
                except acl.OutOfMemoryError:
                    refused[me] += 1
                    continue
                told = live(pool, "a")
                assert size <= told <= 3 * size, told
                buffer.close()

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.stats().budgets["a"] == acl.BudgetStats(3 * size, 0, sum(refused))
    assert pool.check() == 0
    pool.close()


def test_budget_set_while_threads_allocate_counts_each_block() -> None:
    pool = acl.Pool(0)
    done = threading.Event()

    def work() -> None:
        acl.Device(0).use()
        with acl.Stream() as stream:
            kept = []
            while not done.is_set():
                kept.append(take(pool, 512, stream))
                take(pool, MIB, stream).close()
                if len(kept) == 50:
                    kept.clear()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        pool.budget("a", None if turn % 2 else "1GiB")
    done.set()
    for thread in threads:
        thread.join()
    assert live(pool, "a") == 0
    assert pool.check() == 0
    pool.close()


@pytest.mark.parametrize("room", [512, 1 << 20])
def test_budget_of_a_model_limits_only_runs_of_that_model(
    opened: tuple[acl.Pool, acl.Stream, Door], room: int
) -> None:
    """With a budget of 512 bytes, the inputs do not fit; with 1 MiB, the workspace that ACL requests does not fit."""
    pool, stream, _ = opened
    x = np.ones((8192, 8), np.float32)
    content = small_model().to_bytes()
    with acl.Model(content, name="bounded") as one, acl.Model(content, name="free") as other:
        right = one(x, stream=stream)[0]
        pool.budget("bounded", room)
        with pytest.raises(acl.OutOfMemoryError) as raised:
            one(x, stream=stream)
        assert (raised.value.report.tag, raised.value.report.stopped) == ("bounded", ("budget",))
        np.testing.assert_array_equal(other(x, stream=stream)[0], right)
        assert live(pool, "bounded") <= room
        pool.budget("bounded", "64MiB")
        with one.run_async([x], stream)[0] as result:
            assert live(pool, "bounded") >= x.nbytes
            np.testing.assert_array_equal(result.numpy(), right)


@pytest.mark.parametrize(("tag", "limit", "words"), [
    ("a", 511, "at least 512"), ("", 512, "tag must be"), ("a", "x", "limit must look like"),
    ("a", "101%", "limit must be at most")])
def test_wrong_budget_is_refused_with_the_name_of_the_argument(
    opened: tuple[acl.Pool, acl.Stream, Door], tag: str, limit: int | str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        opened[0].budget(tag, limit)
    assert opened[0].stats().budgets == {}


def test_budget_of_a_tag_beyond_the_tag_table_is_refused(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    for number in range(70):
        pool.alloc(1, stream, tag=f"t{number}").close()
    with pytest.raises(ValueError, match="first 62"):
        pool.budget("t69", 512)
    pool.budget("t0", 512)


def test_joint_peak_of_alternating_streams_is_less_than_the_sum_of_their_peaks() -> None:
    with acl.Pool(0, name="turns") as pool, acl.Stream() as one, acl.Stream() as other:
        for stream in (one, other, one):
            pool.alloc(4 * MIB, stream).close()
        stats = pool.stats()
        assert stats.requested_peak >= 8 * MIB
        assert 4 * MIB <= stats.joint_requested_peak < 5 * MIB
        told = {reading.info.name: reading.points for reading in acl.metrics.read()}
        assert told["aclpool_joint_requested_peak_bytes"][("turns", "0")] == stats.joint_requested_peak
        assert sum(value for labels, value in told["aclpool_requested_peak_bytes"].items()
                   if labels[0] == "turns") == stats.requested_peak
        with pool.alloc(4 * MIB, one), pool.alloc(4 * MIB, other):
            assert 8 * MIB <= pool.stats().joint_requested_peak < 9 * MIB


def test_log_of_many_failures_has_one_report_and_a_count(
    opened: tuple[acl.Pool, acl.Stream, Door], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, stream, _ = opened
    now = [1000.0]
    monkeypatch.setattr(_books, "monotonic", lambda: now[0])
    pool.budget("a", 512)

    def fail(tag: str) -> None:
        with pytest.raises(acl.OutOfMemoryError):
            pool.alloc(4096 if tag == "a" else 1 << 45, stream, tag=tag)

    for _ in range(72):
        fail("a")
    fail("b")
    assert [record.acl_tag for record in caplog.records] == ["a", "b"]
    now[0] += _books.REPORTS_APART
    fail("a")
    last = caplog.records[-1]
    assert (last.acl_tag, last.acl_pool, last.acl_kept_back, last.acl_report) == ("a", pool.name, 71, 74)
    assert "71 more like it" in last.getMessage()


def test_log_of_a_new_pool_is_not_suppressed_for_an_earlier_pool_of_its_name(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with acl.Pool(0, name="again") as pool, pytest.raises(acl.OutOfMemoryError):
            pool.alloc(1 << 45)
    assert [record.acl_report for record in caplog.records] == [1, 1]


def test_close_of_a_pool_with_live_blocks_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    pool = acl.Pool(0, name="early")
    buffer = pool.alloc(512)
    pool.close()
    buffer.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "early is closed while" in caplog.text
    acl.Pool(0).close()
    assert len(caplog.records) == 1
