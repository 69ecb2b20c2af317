"""Pool.leaks, marks, tracking, expect_no_leaks, the pytest fixture, the report at exit."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import pytest
from support.child import run_child, run_python
from support.core import MIB, Made, Slow

import acl
from acl.inside._leaks import LeakError
from acl.inside._snapshot import lasting


def addresses(report: acl.LeakReport) -> set[int]:
    return {block.address for block in report.blocks}


def test_leak_report_lists_all_live_blocks(made: Made) -> None:
    pool, stream, _ = made
    kept = [pool.alloc(1000, stream, tag="kv"), pool.alloc("3MiB", stream, tag="kv"), pool.alloc(500, stream)]
    report = pool.leaks()
    assert addresses(report) == {buffer.address for buffer in kept} and bool(report) and len(report) == 3
    assert report.bytes == pool.stats().allocated
    assert report.by_tag() == {"kv": pool.stats().tags["kv"], "": 1024}
    assert list(report.by_size_class()) == ["2.00 MiB to 4.00 MiB", "512 B to 1.00 KiB", "256 B to 512 B"]
    assert all(block.stream == stream.handle and block.age is None and block.stack == () for block in report.blocks)
    assert "tag 'kv'" in str(report) and "where they were allocated is not known" in str(report)
    for buffer in kept:
        buffer.close()
    assert not pool.leaks() and str(pool.leaks()) == "no blocks are live"


def test_leak_marks_are_exact_without_tracking(made: Made) -> None:
    """Reports since several marks agree with the test's own list, although addresses are reused."""
    pool, _, door = made
    seed = random.randrange(1 << 30)
    print("seed", seed)
    generator = random.Random(seed)
    live: dict[int, tuple[int, int]] = {}
    marks: list[acl.Mark] = []
    for turn in range(2000):
        if turn % 400 == 0:
            marks.append(pool.mark())
            assert marks[-1].blocks == len(live)
        if live and generator.random() < 0.35:      # few frees, so that some blocks are live at every mark
            block = generator.choice(list(live))
            del live[block]
            door.free(block)
        else:
            block, address = door.take(generator.choice([1, 600, 70_000, 700_000, 3 * MIB]))
            live[block] = (address, len(marks))
    for number, mark in enumerate(marks, 1):
        expected = {address for address, born in live.values() if born >= number}
        assert addresses(pool.leaks(since=mark)) == expected
    assert addresses(pool.leaks()) == {address for address, _ in live.values()}
    for block in live:
        door.free(block)


def test_marked_blocks_are_freed_to_the_cache_and_served_from_it(made: Made) -> None:
    """Marked blocks are freed to the cache and served from it like blocks without a mark."""
    pool, _, door = made
    block = door.take(1000)[0]
    pool.mark()
    door.free(block)
    before = pool.stats().hits
    again = door.take(1000)[0]
    assert again == block and pool.stats().hits == before + 1
    assert pool.leaks(since=pool.mark()) .blocks == ()
    door.free(again)


def test_leak_report_gives_the_ages_of_tracked_blocks(made: Made) -> None:
    pool, stream, _ = made
    early = pool.alloc(100, stream)
    with pool.track():
        old = pool.alloc(200, stream)
        time.sleep(0.05)
        young = pool.alloc(300, stream)
        report = pool.leaks()
        ages = {block.address: block.age for block in report.blocks}
        assert ages[early.address] is None and report.tracked
        old_age, young_age = ages[old.address], ages[young.address]
        assert old_age is not None and young_age is not None and old_age - young_age >= 0.05
        gap, older = old_age - young_age, report
        for _ in range(100):                    # this thread may be suspended between the two reports
            now = max(block.age or 0 for block in pool.leaks().blocks)
            older = pool.leaks(older_than=now - gap / 20)
            if len(older.blocks) == 1:
                break
        assert addresses(older) == {old.address} and older.unknown == 1
        assert "1 more blocks, of unknown age" in str(older)
    assert {block.age is None for block in pool.leaks().blocks} == {True, False}
    for buffer in (early, old, young):
        buffer.close()


def test_leak_mark_gives_a_lower_bound_of_the_age(made: Made) -> None:
    pool, stream, _ = made
    with pool.alloc(100, stream):
        pool.mark()
        time.sleep(0.02)
        block = pool.leaks().blocks[0]
        assert block.at_least and block.age is not None and block.age >= 0.02
        assert len(pool.leaks(older_than=0.01)) == 1 and not pool.leaks(older_than=60)


def holder(pool: acl.Pool, stream: acl.Stream) -> acl.Buffer:
    return pool.alloc("2MiB", stream, tag="request")


def test_leak_report_groups_blocks_by_the_stack_of_their_allocation(made: Made) -> None:
    pool, stream, door = made
    with pool.track(stacks="python"):
        kept = [holder(pool, stream) for _ in range(5)]
        other = pool.alloc(100, stream)
        groups = pool.leaks().groups()
        block = door.take(100)[0]
        assert "1 x 100 B, 100 B in all, no tag" in str(pool.leaks())
        assert str(pool.leaks()).count("no Python stack: ACL or C code asked for it") == 1
        door.free(block)
    assert [(group.tag, group.blocks) for group in groups] == [("request", 5), ("", 1)]
    assert groups[0].stack[0] == (__file__, holder.__code__.co_firstlineno + 1, "holder")
    assert groups[0].oldest is not None and groups[0].youngest is not None
    assert groups[0].oldest >= groups[0].youngest
    for buffer in [*kept, other]:
        buffer.close()


def test_native_stacks_of_earlier_blocks_are_not_given_to_new_blocks(made: Made) -> None:
    pool, _, door = made
    with pool.record(stacks="native"):
        door.free(door.take(100)[0])
    with pool.track(stacks="python"):
        block = door.take(100)[0]
        assert [one.stack for one in pool.leaks().blocks] == [()]
    door.free(block)


def test_expect_no_leaks_raises_for_blocks_allocated_inside_and_still_live(made: Made) -> None:
    pool, stream, _ = made
    with pool.alloc(100, stream):
        with pool.expect_no_leaks():
            with pool.alloc(200, stream):
                pass
        with pytest.raises(LeakError, match=r"1 block, 2.00 MiB, live since the mark") as caught:
            with pool.expect_no_leaks():
                kept = holder(pool, stream)
        assert "in holder" in str(caught.value) and caught.value.report is not None
        assert addresses(caught.value.report) == {kept.address}
        kept.close()


def test_error_inside_expect_no_leaks_is_not_hidden(made: Made) -> None:
    pool, stream, _ = made
    with pytest.raises(KeyError), pool.expect_no_leaks():
        kept = pool.alloc(100, stream)
        raise KeyError("mine")
    kept.close()
    assert not pool.leaks().tracked


def test_tracking_and_recording_go_together(made: Made) -> None:
    pool, _, door = made
    tracking = pool.track(stacks=False)
    with pool.record() as recording:
        block = door.take(512)[0]
    assert pool.leaks().tracked
    tracking.stop()
    tracking.stop()
    assert not pool.leaks().tracked and len(recording.events) >= 1
    door.free(block)
    before = pool.stats().hits
    door.free(door.take(512)[0])
    assert pool.stats().hits == before + 1


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({"since": 3}, TypeError, "since must be what Pool.mark gave, not int"),
    ({"older_than": -1}, ValueError, "older_than must be seconds of at least 0, not -1"),
    ({"older_than": float("nan")}, ValueError, "not nan"),
    ({"older_than": "5"}, TypeError, "older_than must be a number, not str"),
])
def test_wrong_leak_arguments_are_refused(made: Made, arguments: dict[str, float], error: type[Exception], text: str,
                                    ) -> None:
    with pytest.raises(error, match=text):
        made[0].leaks(**arguments)                                    # type: ignore[arg-type]


def test_leak_mark_of_another_pool_is_refused(made: Made) -> None:
    with acl.Pool(0) as other:
        mark = other.mark()
    with pytest.raises(ValueError, match="since is a mark of another pool"):
        made[0].leaks(since=mark)
    wrong: list[Any] = ["perl", [], None, 1, True]
    for stacks in wrong:
        with pytest.raises(ValueError, match="stacks must be"):
            made[0].track(stacks=stacks)


SERVICE = """
import acl

class Service:
    def __init__(self):
        self.pool = acl.Pool(0)
        self.stream = acl.Stream(0)
        self.sessions = {}

    def handle(self, number):
        prompt = self.pool.alloc(1 << 20, self.stream, tag="prompt")
        self.remember(number)
        prompt.close()
        if number % 3:
            self.sessions.pop(number).close()

    def remember(self, number):
        self.sessions[number] = self.pool.alloc(300_000, self.stream, tag="session")

service = Service()
for number in range(30):
    service.handle(number)
"""


def test_leaks_of_a_service_are_reported_at_exit(tmp_path: Path) -> None:
    """The report names the leaking line, the number of blocks and bytes, their tag and their holder."""
    script = tmp_path / "service.py"
    script.write_text(SERVICE, encoding="utf-8")
    line = SERVICE.splitlines().index(
        '        self.sessions[number] = self.pool.alloc(300_000, self.stream, tag="session")') + 1
    done = run_child(str(script), ACL_POOL_LEAKS="1")
    assert done.returncode == 0
    assert "at exit, pool-0 on device 0 has 10 blocks, 2.86 MiB, live" in done.stderr
    assert "10 x 292.97 KiB, 2.86 MiB in all" in done.stderr
    assert "held by __main__.service.sessions[0]\n" in done.stderr
    assert "tag 'session'" in done.stderr and "prompt" not in done.stderr
    name = "Service.remember" if sys.version_info >= (3, 11) else "remember"
    assert f"{script}:{line} in {name}" in done.stderr
    assert run_child(str(script)).stderr == ""
    report = tmp_path / "report.txt"
    assert run_child(str(script), ACL_POOL_LEAKS=str(report)).stderr == ""
    assert "10 blocks" in report.read_text(encoding="utf-8")
    nowhere = run_child(str(script), ACL_POOL_LEAKS=str(tmp_path / "no" / "report.txt")).stderr
    assert "10 blocks" in nowhere and "ACL_POOL_LEAKS: [Errno 2]" in nowhere


CACHE = """
import acl

pool = acl.Pool(0)
stream = acl.Stream(0)

class Plans:
    __slots__ = ("made",)

    def __init__(self):
        self.made = {}

    def workspace(self, *shape):
        if shape not in self.made:
            self.made[shape] = pool.empty(shape, "float32", stream)
        return self.made[shape]

PLANS = {"encoder": Plans()}
for length in range(1, 200, 7):
    PLANS["encoder"].workspace(8, length, 1024)
"""

VIEW = """
import acl

pool = acl.Pool(0)
heads = []

def last_row(rows):
    batch = pool.alloc(rows * 65536, tag="batch")
    return batch.view((rows - 1) * 65536, 1000)

def serve():
    for _ in range(6):
        heads.append(last_row(64))

serve()
"""

def exit_report(tmp_path: Path, program: str, within: str) -> tuple[str, str]:
    """Run a program; return its report at exit, and the place of its line with `within`, as in the report."""
    script = tmp_path / "service.py"
    script.write_text(program, encoding="utf-8")
    done = run_child(str(script), ACL_POOL_LEAKS="1")
    assert done.returncode == 0, done.stderr
    line = next(number for number, text in enumerate(program.splitlines(), 1) if within in text)
    return done.stderr, f"{script}:{line} in "


def test_leaking_cache_with_many_sizes_is_one_group_of_the_report(tmp_path: Path) -> None:
    """The blocks of the cache have many sizes but one cause: the report has one group, and names the cache."""
    report, place = exit_report(tmp_path, CACHE, "pool.empty(")
    assert "has 29 blocks" in report and "29 x 32.00 KiB to 6.16 MiB" in report and place in report
    assert report.count(place) == 1
    assert "held by __main__.PLANS['encoder'].made[(8, 1, 1024)].buffer\n" in report


def test_leak_report_names_the_view_that_keeps_a_buffer_alive(tmp_path: Path) -> None:
    """The cause is not the line that allocated: the report names the view that keeps a small part of the batch."""
    report, place = exit_report(tmp_path, VIEW, "pool.alloc(")
    assert "6 x 4.00 MiB, 24.00 MiB in all, tag 'batch'" in report and place in report
    assert "held by __main__.heads[0]: a view, 1000 B of 4.00 MiB" in report


ERRORS = """
import acl
from concurrent.futures import ThreadPoolExecutor

pool = acl.Pool(0)

class Service:
    def __init__(self):
        self.workers = ThreadPoolExecutor(1)
        self.jobs = {}

    def rank(self, rows):
        scores = pool.alloc(rows * 65536)
        return self.order(rows)

    def order(self, rows):
        raise ValueError(rows)

service = Service()
for number in range(5):
    service.jobs[number] = service.workers.submit(service.rank, 8 + number)
service.workers.shutdown()
"""


def test_leak_report_names_the_exception_that_keeps_a_buffer_alive(tmp_path: Path) -> None:
    """An exception keeps the locals of all functions that it left; the report shows the path through its traceback."""
    report, place = exit_report(tmp_path, ERRORS, "return self.order(")
    way = f"]._exception.__traceback__ -> scores, a local of rank at {place.removesuffix(' in ')}"
    assert f"      held by __main__.service.jobs[0{way}" in report
    assert f"      the youngest by __main__.service.jobs[4{way}" in report


def test_leak_report_names_the_holders_of_the_oldest_and_youngest_block(tmp_path: Path) -> None:
    """The report names the holders of the oldest and the youngest block, which show why two keys do not match."""
    report, _ = exit_report(tmp_path, """
import acl
pool = acl.Pool(0)
plans = {}
for _ in range(20):
    key = (8, 64, float("nan"))
    if key not in plans:
        plans[key] = pool.alloc(4096)
""", "pool.alloc")
    assert "held by __main__.plans[(8, 64, nan)]\n" in report
    assert "the youngest by __main__.plans[(8, 64, nan)]\n" in report


def test_leak_report_mentions_blocks_that_wait_for_another_stream(made: Made) -> None:
    """No block is live, but frees are pending: the report names the stream for which they wait."""
    pool, stream, _ = made
    with acl.Stream(0) as side:
        with Slow(side):
            for _ in range(3):
                batch = pool.alloc("4MiB", stream, tag="batch")
                pool.record_stream(batch, side)
                batch.close()
            report = pool.leaks()
            assert not report and report.waiting == {side.handle: 3 * (4 * MIB + 512)}
            assert f"12.00 MiB more were freed, but wait for the work of stream {side.name}" in str(report)
        side.synchronize()
        assert pool.leaks().waiting == {} and str(pool.leaks()) == "no blocks are live"


def test_leak_report_mentions_blocks_that_wait_for_the_device(made: Made) -> None:
    pool, _, door = made
    block = door.take(MIB)[0]
    with pool.unloading():
        door.free(block)
        assert pool.leaks().waiting == {None: MIB}
        assert "1.00 MiB more were freed, but wait for a synchronisation of the device" in str(pool.leaks())
    assert pool.leaks().waiting == {}


@pytest.mark.parametrize("stacks", [None, False, "python"])
def test_leak_report_gives_the_requested_sizes(made: Made, stacks: Literal[False, "python"] | None) -> None:
    """Sizes are right with and without tracking, after marks, and for blocks of ACL, which have no padding."""
    pool, stream, door = made
    sizes = [1, 1000, 1023, 70_000, 4 * MIB]
    noted: AbstractContextManager[object] = nullcontext() if stacks is None else pool.track(stacks=stacks)
    with noted:
        for _ in range(3):                      # the same blocks, allocated in turn by Python and by ACL
            buffers = [pool.alloc(size, stream) for size in sizes]
            assert sorted(each.size for each in pool.leaks().blocks) == sizes
            pool.mark()
            assert sorted(each.size for each in pool.leaks().blocks) == sizes
            for buffer in buffers:
                buffer.close()
            blocks = [door.take(size)[0] for size in sizes]
            assert sorted(each.size for each in pool.leaks().blocks) == sizes
            for block in blocks:
                door.free(block)


def test_leak_mark_is_exact_for_buffers(made: Made) -> None:
    """A buffer's block stores its padding too, which must not change the age that is stored there."""
    pool, stream, _ = made
    with pool.alloc(1000, stream) as old:
        mark = pool.mark()
        with pool.alloc(1000, stream) as young:
            assert addresses(pool.leaks(since=mark)) == {young.address}
            ages = {block.address: block.age for block in pool.leaks().blocks}
            assert ages[young.address] is None and ages[old.address] is not None
            assert addresses(pool.leaks(since=pool.mark())) == set()


class Table:
    """Holds a buffer in a slot."""

    __slots__ = ("row",)


def holder_text(pool: acl.Pool) -> str:
    return "".join(line for line in pool.leaks().text(holders=True).splitlines() if "held by" in line).strip()


KEPT: list[object] = []


@pytest.fixture(params=["listed", "frozen"])
def module_names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test with and without a `gc.freeze`, which hides the objects of modules from the collector's lists.

    A search usually gives up after half a second; with the objects of all other tests it may need longer.
    """
    monkeypatch.setattr("acl.inside._holders.SECONDS", 60)
    if request.param == "frozen":
        gc.freeze()
    else:
        gc.unfreeze()
    yield
    gc.unfreeze()                               # so that the garbage of the test is collected
    gc.collect()
    gc.freeze()


def test_leak_report_names_holder_in_each_container(module_names: None, made: Made) -> None:
    """The report names the holder of a block through each kind of container, and none for a block of ACL."""
    pool, stream, door = made
    KEPT.clear()

    def generator(buffer: acl.Buffer) -> Generator[int, None, None]:
        yield buffer.address

    def fill() -> None:
        slots = Table()
        slots.row = pool.alloc(100, stream)                         # type: ignore[attr-defined]
        KEPT.append({("a", 1): (slots,)})

    fill()
    assert holder_text(pool) == f"held by {__name__}.KEPT[0][('a', 1)][0].row"
    KEPT[:] = [KEPT[0][("a", 1)][0].row]                            # type: ignore[index]
    assert holder_text(pool) == f"held by {__name__}.KEPT[0]"
    local = KEPT.pop()
    assert holder_text(pool).startswith("held by local, a local of test_leak_report_names_holder_in_each_container at ")
    running = generator(local)                                      # type: ignore[arg-type]
    next(running)
    del local
    assert "generator" in holder_text(pool) and "which has not ended" in holder_text(pool)
    running.close()
    del running
    assert not pool.leaks()
    block = door.take(100)[0]
    assert len(pool.leaks()) == 1 and holder_text(pool) == ""
    door.free(block)


def test_leak_report_says_that_only_c_code_holds_a_block(made: Made) -> None:
    """A DLPack tensor of a consumer keeps the memory, and no Python object refers to it."""
    pool, stream, _ = made
    with pool.track(stacks="python"):
        taken = pool.alloc(1000, stream).__dlpack__(stream=-1)
        assert "held by nothing that was found: C code" in pool.leaks().text(holders=True)
        assert "held by" not in pool.leaks().text()
        del taken
        assert not pool.leaks()


def test_leak_report_keeps_no_object_alive(made: Made) -> None:
    """A report reads the locals of functions; it keeps none of them, and does not change the dict of a `locals()`."""
    pool, stream, _ = made

    def use() -> None:
        kept = pool.alloc(1000, stream)
        assert "kept, a local of use" in pool.leaks().text(holders=True)
        del kept
        assert not pool.leaks()

    def look() -> None:
        kept = pool.alloc(1000, stream)
        mine = locals()
        assert "kept" in pool.leaks().text(holders=True)
        assert mine["kept"] is kept

    use()
    look()


@pytest.mark.parametrize(("seconds", "text"), [
    (3e-6, "3 us"), (0.0123, "12 ms"), (0.0012, "1.2 ms"), (59.0, "59 s"), (90.0, "1.5 min"), (7300.0, "2.0 h"),
    (1e6, "12 days"),
])
def test_durations_are_written_with_a_suitable_unit(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_exit_report_file_says_that_no_block_leaked(tmp_path: Path) -> None:
    run_python("import acl; acl.Pool(0).alloc(100).close()", ACL_POOL_LEAKS=str(tmp_path / "report.txt"))
    assert "nothing is live in" in (tmp_path / "report.txt").read_text(encoding="utf-8")


def test_forked_child_writes_no_leak_report(tmp_path: Path) -> None:
    done = run_python("""
        import os, sys
        import acl
        pool = acl.Pool(0)
        kept = pool.alloc(100)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
    """, ACL_POOL_LEAKS=str(tmp_path / "report.txt"))
    assert done.returncode == 0 and done.stderr == ""
    assert (tmp_path / "report.txt").read_text(encoding="utf-8").count("at exit") == 1


def test_pytest_fixture_no_pool_leaks_fails_only_the_leaking_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["acl.testing"]\n', encoding="utf-8")
    (tmp_path / "test_it.py").write_text("""
import acl
import pytest

pytestmark = pytest.mark.usefixtures("no_pool_leaks")
pool = acl.Pool(0)
before = pool.alloc(100)
kept = []

def test_clean():
    pool.alloc(1000).close()

def test_leaky():
    kept.append(pool.alloc(5000, tag="mine"))

def test_clean_again():
    pass
""", encoding="utf-8")
    done = run_child("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path), "--rootdir", str(tmp_path))
    assert "2 passed, 1 error" in done.stdout or "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "tag 'mine'" in done.stdout and "in test_leaky" in done.stdout
    gc.collect()


def test_blocks_are_not_tracked_by_default() -> None:
    done = run_python("""
        import acl
        pool = acl.Pool(0)
        print(pool.leaks().tracked)
    """)
    assert done.stdout.strip() == "False" and done.stderr == ""


def test_block_ages_are_right_in_a_process_that_just_started() -> None:
    done = run_python("""
        import time
        import acl
        pool = acl.Pool(0)
        with pool.track():
            began = time.monotonic()
            buffer = pool.alloc(100)
            time.sleep(0.1)
            age = pool.leaks().blocks[0].age
            print(0.1 <= age <= time.monotonic() - began)
    """)
    assert done.stdout == "True\n", done.stderr


def test_blocks_older_than_the_tracking_are_reported_as_such(sim: object) -> None:
    with acl.Pool(0) as pool:
        kept = [pool.alloc("300KiB") for _ in range(2)]
        with pool.track():
            kept.append(pool.alloc("200KiB"))
            text = pool.leaks().text()
        for one in kept:
            one.close()
    assert "it was allocated before the pool was tracked" in text
    assert "ACL or C code asked for it" not in text
