"""The ledger: its rows add up to the device's memory, and each agrees with an independent count."""

import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.calls import api
from support.child import child_environment, run_child, run_python
from support.core import MIB, Door, Slow, open_door

import acl

pytestmark = pytest.mark.usefixtures("no_leaks")


def taken() -> acl.Ledger:
    """Return the ledger of device 0, after checking its sums against the driver and the simulator."""
    ledger = acl.memory_ledger(0)
    free, total = acl.Device(0).memory_info()
    assert sum(row.bytes for row in ledger.rows) == ledger.total == total
    assert ledger.sum(owner="free") == free
    assert all(row.bytes >= 0 for row in ledger.rows)
    ours = ledger.sum(owner="pool") + ledger.sum(owner="process")
    assert ours == acl.sim.physical_bytes(0)
    return ledger


@pytest.fixture
def opened() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    with open_door(name="service") as made:
        yield made


def test_ledger_of_an_idle_device_has_no_memory_of_pools_or_other_processes() -> None:
    ledger = taken()
    assert ledger.sum(owner="pool") == 0
    assert ledger.sum(owner="others") == 0


def test_ledger_gives_live_bytes_by_stream_and_tag(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    kept = [pool.alloc(3 * MIB, stream, tag="kv"), pool.alloc(1000, stream, tag="kv"), pool.alloc(5 * MIB, tag="io")]
    block = door.alloc(777)
    ledger = taken()
    padding = 32
    assert ledger.sum(owner="pool", tag="kv", state="requested") == 3 * MIB + padding + 1024 + padding
    assert ledger.sum(owner="pool", tag="kv", state="slack") == 512 - padding + 512 * 3 - 1024 - padding
    assert ledger.sum(owner="pool", tag="io", stream=0, state="requested") == 5 * MIB + padding
    (untagged,) = ledger.select(owner="pool", stream=stream.handle, tag="", state="requested")
    assert (untagged.bytes, untagged.blocks, untagged.kind, untagged.name) == (777, 1, "stream", "service")
    assert ledger.tags()["kv"] == 3 * MIB + 512 + 1536
    assert ledger.sum(owner="pool") == pool.stats().reserved
    door.free(block)
    for buffer in kept:
        buffer.close()


def test_ledger_gives_cached_free_and_spare_bytes(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _stream, door = opened
    first, second = door.alloc(4096), door.alloc(3 * MIB)
    door.free(first)
    door.free(second)
    stats = pool.stats()
    ledger = taken()
    assert ledger.sum(owner="pool", state="cached") == 4096 == stats.streams[0].cached
    assert ledger.sum(owner="pool", state="free") == stats.reserved - 4096
    assert ledger.sum(owner="pool", state="requested") == 0
    pool.trim()
    left = taken()
    assert left.sum(owner="pool") == pool.stats().reserved < stats.reserved
    (line,) = [line for line in left.pools if line.name == "service"]
    assert line.unmapped > 0


def test_ledger_counts_blocks_that_wait_for_another_stream(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    with acl.Stream(0) as other, Slow(other):
        buffer = pool.alloc(2 * MIB, stream)
        pool.record_stream(buffer, other)
        buffer.close()
        assert taken().sum(owner="pool", state="waiting") == 2 * MIB + 512
    pool.trim()
    assert taken().sum(owner="pool", state="waiting") == 0


def test_ledger_counts_memory_of_this_process_outside_the_pool(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _stream, door = opened
    block = door.alloc(3 * MIB)
    before, used = taken(), acl.sim.physical_bytes()
    address = ctypes.c_void_p()
    assert api.aclrtMalloc(ctypes.byref(address), 10 * MIB, 0) == 0
    after, more = taken(), acl.sim.physical_bytes() - used
    assert more >= 10 * MIB
    assert after.sum(owner="process") - before.sum(owner="process") == more
    assert after.sum(owner="process", name="MALLOC") - before.sum(owner="process", name="MALLOC") == more
    assert after.sum(owner="process", name="PHYSICAL") == before.sum(owner="process", name="PHYSICAL")
    assert after.sum(owner="pool") == before.sum(owner="pool") == pool.stats().reserved
    assert api.aclrtFree(address) == 0
    door.free(block)


NEIGHBOUR = """
import sys
import acl
acl.Device(0).use()
held = acl.Buffer(int(sys.argv[1]))
print(acl.sim.physical_bytes(), flush=True)
sys.stdin.read()
"""
OBSERVER = """
import sys
import acl
acl.Device(0).use()
raw = acl.Buffer(10 << 20)
pool = acl.Pool(0, name="service")
block = pool.alloc("3MiB", tag="kv")
ledger = acl.memory_ledger(0)
own = acl.sim.physical_bytes()
assert sum(row.bytes for row in ledger.rows) == ledger.total == 1 << 30, ledger
assert ledger.sum(owner="pool") + ledger.sum(owner="process") == own, ledger
print(ledger.sum(owner="others"))
try:
    pool.alloc("600MiB")
except acl.OutOfMemoryError as error:
    print(error.report.advice)
"""


@contextmanager
def neighbour_of(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process that holds memory of the device. Yield it, and the bytes that it holds."""
    with subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(500 * MIB)], env=environment, text=True, cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as neighbour:
        assert neighbour.stdout is not None
        yield neighbour, int(neighbour.stdout.readline())


def observed(environment: dict[str, str]) -> list[str]:
    """Run another process on the device; return the bytes that it sees as "others", and its OOM report's advice."""
    done = subprocess.run([sys.executable, "-c", OBSERVER], env=environment, text=True, capture_output=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_ledger_counts_a_second_process_as_other_processes(tmp_path: Path) -> None:
    """The neighbour reads its own memory from the simulator's accounting; the observer sees only the free bytes."""
    environment = child_environment(ACL_SIM_SHARED=str(tmp_path / "devices"), ACL_SIM_MEMORY="1G")
    with neighbour_of(environment) as (neighbour, held):
        assert held >= 500 * MIB
        others, advice = observed(environment)
        assert int(others) == held
        assert "outside the pool" in advice
        assert neighbour.stdin is not None
        neighbour.stdin.close()
        assert neighbour.wait(timeout=300) == 0
    assert observed(environment) == ["0"]


def test_ledger_counts_no_memory_of_a_killed_process(tmp_path: Path) -> None:
    environment = child_environment(ACL_SIM_SHARED=str(tmp_path / "devices"), ACL_SIM_MEMORY="1G")
    with neighbour_of(environment) as (neighbour, _):
        neighbour.kill()
    assert observed(environment) == ["0"]


def test_ledger_counts_each_pool_separately() -> None:
    before = taken().sum(owner="process")
    with acl.Pool(0, name="a") as a, acl.Pool(0, name="b", segments=True) as b:
        held = [a.alloc(3 * MIB), b.alloc(7 * MIB)]
        ledger = taken()
        assert ledger.sum(owner="pool", name="a") == a.stats().reserved
        assert ledger.sum(owner="pool", name="b") == b.stats().reserved
        assert ledger.sum(owner="process") == before
        assert [pool.name for pool in ledger.pools if pool.reserved] == ["a", "b"]
        for buffer in held:
            buffer.close()


def test_ledger_lists_a_closed_pool_with_live_buffers() -> None:
    pool = acl.Pool(0, name="gone")
    buffer = pool.alloc(3 * MIB)
    pool.close()
    assert taken().sum(owner="pool", name="gone", state="requested") == 3 * MIB + 32
    buffer.close()


def taken_by_pools() -> tuple[int, int]:
    """Return the device memory that the simulator counts, and the memory of all pools in the ledger."""
    return acl.sim.physical_bytes(), taken().sum(owner="pool")


def drop_with_a_block(stream: acl.Stream) -> tuple[Door, int]:
    """Drop a pool while a block is live. Return its callbacks and this block."""
    pool = acl.Pool(0)
    pool.register(stream)
    door = Door(stream)
    block = door.alloc(3 * MIB)
    pool.unregister(stream)
    return door, block


@pytest.mark.parametrize("occasion", ["make", "trim", "drop"])
def test_orphaned_pool_is_destroyed_when_its_last_block_is_freed(stream: acl.Stream, occasion: str) -> None:
    kept = [acl.Pool(0), acl.Pool(0)]
    occasions: dict[str, Callable[[], object]] = {
        "make": lambda: kept.append(acl.Pool(0)), "trim": lambda: kept[0].trim(), "drop": kept.pop}
    occur = occasions[occasion]
    before = taken_by_pools()
    door, block = drop_with_a_block(stream)
    occur()
    with_orphan = taken_by_pools()
    door.free(block)
    occur()
    assert with_orphan == tuple(count + 4 * MIB for count in before)
    assert taken_by_pools() == before


def test_pool_without_its_python_object_is_listed_as_an_orphan() -> None:
    done = run_python("""
        import acl
        from support.core import MIB, Door
        stream = acl.Stream()
        pool = acl.Pool(0)
        pool.register(stream)
        door = Door(stream)
        block = door.alloc(3 * MIB)
        pool.close()
        del pool
        ledger = acl.memory_ledger(0)
        print(ledger.sum(owner="pool", name="orphan-0", state="requested") == 3 * MIB)
        print(ledger.sum(owner="pool") == acl.sim.physical_bytes(), ledger.sum(owner="process"))
        door.free(block)
        print(acl.memory_ledger(0).sum(owner="pool", state="requested"))
    """)
    assert done.stdout.splitlines() == ["True", "True 0", "0"], done.stderr


def test_ledger_has_one_row_for_other_memory_if_the_runtime_does_not_split_it(
    opened: tuple[acl.Pool, acl.Stream, Door], sim: object
) -> None:
    pool, _stream, door = opened
    block = door.alloc(3 * MIB)
    with acl.sim.fault("aclrtGetMemUsageInfo", every=1, code=207000):
        ledger = acl.memory_ledger(0)
    assert ledger.components is None
    assert sum(row.bytes for row in ledger.rows) == ledger.total
    assert ledger.sum(owner="rest") == ledger.total - ledger.free - pool.stats().reserved
    assert not list(ledger.select(owner="process"))
    door.free(block)


def test_ledger_rows_add_up_while_another_thread_allocates(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _stream, door = opened
    stop = threading.Event()

    def load() -> None:
        acl.Device(0).use()
        while not stop.is_set():
            blocks = [door.alloc(size) for size in (512, 70_000, 3 * MIB, 9 * MIB)]
            for block in blocks:
                door.free(block)
            pool.trim(idle=True)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(50):
            ledger = acl.memory_ledger(0)
            assert sum(row.bytes for row in ledger.rows) == ledger.total
            if ledger.steady:
                assert all(row.bytes >= 0 for row in ledger.rows)
    finally:
        stop.set()
        thread.join()


def test_ledger_can_be_written_as_a_table_and_as_a_dict(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    with pool.alloc(3 * MIB, stream, tag="kv"):
        ledger = taken()
        told = json.loads(json.dumps(ledger.as_dict()))
        text = str(ledger)
    assert sum(row["bytes"] for row in told["rows"]) == told["total"]
    assert "pool service" in text
    assert "kv" in text and "1 block, slack" in text
    assert f"stream {stream.name} " in text
    assert text.splitlines()[0] == "device 0: 32.00 GiB"


def test_unknown_name_in_a_ledger_sum_is_refused(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    with pytest.raises(TypeError, match="no 'color'"):
        acl.memory_ledger(0).sum(color="red")


def test_limit_and_headroom_of_a_pool_can_be_changed(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    pool.limit = "4MiB"
    assert not door.alloc(6 * MIB)
    pool.limit = None
    block = door.alloc(6 * MIB)
    assert block
    door.free(block)
    pool.headroom = "40GiB"
    assert pool.headroom == 40 << 30
    assert not door.alloc(16 * MIB)
    with pytest.raises(ValueError, match="at least one granule"):
        pool.limit = 1


def test_ledger_command_reports_each_device() -> None:
    done = run_child("-m", "aclpool", "ledger")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("device")] == [
        "device 0: 32.00 GiB", "device 1: 32.00 GiB"]
    told = json.loads(run_child("-m", "aclpool", "ledger", "--device", "1", "--json").stdout)
    assert [one["device"] for one in told] == [1]
    assert sum(row["bytes"] for row in told[0]["rows"]) == told[0]["total"]


@pytest.mark.parametrize(
    "arguments, environment, text",
    [(["--device", "2"], {}, "expected 0 to 1, got 2"), ([], {"ACL_SIM_DEVICES": "0"}, "there is no device")],
)
def test_ledger_command_names_a_missing_device(
    arguments: list[str], environment: dict[str, str], text: str
) -> None:
    done = run_child("-m", "aclpool", "ledger", *arguments, **environment)  # type: ignore[arg-type]
    assert done.returncode == 1
    assert text in done.stderr


@pytest.mark.parametrize(("device", "error", "text"), [
    ("0", TypeError, "device must be an int or a Device, not str"), (1.0, TypeError, "device must be .*, not float"),
    (-1, ValueError, "device must be 0 or more, .* not -1"),
    (99, ValueError, "device must be below [0-9]+, the number of devices, not 99"),
])
def test_ledger_of_an_argument_that_is_not_a_device_is_refused_by_name(
    device: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        acl.memory_ledger(device)


def test_ledger_distinguishes_pools_of_one_name() -> None:
    """If two pools had the same name, their rows would be added, and be reported twice."""
    with acl.Pool(0, name="twin") as one, acl.Pool(0, name="twin") as two:
        assert (one.name, two.name) == ("twin", "twin-2")
        with one.alloc(MIB), two.alloc(3 * MIB):
            ledger = taken()
            assert [pool.name for pool in ledger.pools] == ["twin", "twin-2"]
            assert ledger.sum(name="twin", state="requested") == MIB + 32
            assert ledger.sum(name="twin-2", state="requested") == 3 * MIB + 32
    gone = acl.Pool(0, name="again")
    kept = gone.alloc(MIB)
    gone.close()
    with acl.Pool(0, name="again") as later, later.alloc(3 * MIB):
        assert later.name == "again"
        names = [pool.name for pool in taken().pools]
        assert names[0] == "again" and names[1].startswith("again (closed, number ") and len(names) == 2
    kept.close()


def test_ledger_counts_the_bytes_asleep() -> None:
    """The memory of sleeping blocks was given back, so no sum has it; a row says how much they need to wake."""
    with acl.Pool(0, name="dozing") as pool:
        weights, cache = pool.alloc("8 MiB", tag="weights"), pool.alloc("4 MiB", tag="kv")
        pool.sleep("weights", offload=False)
        ledger = acl.memory_ledger(0)
        (mine,) = [one for one in ledger.pools if one.name == "dozing"]
        assert list(mine.asleep) == ["weights"] and 0 <= mine.asleep["weights"] - (8 << 20) < 512
        assert ledger.sum(name="dozing", tag="weights") == 0
        assert sum(row.bytes for row in ledger.rows) == ledger.total
        (line,) = [line for line in str(ledger).splitlines() if "weights, asleep" in line]
        assert line.split() == ["weights,", "asleep", "0", "B", "0.0%", "8.00", "MiB", "without", "memory"]
        pool.wake()
        assert all(one.asleep == {} for one in acl.memory_ledger(0).pools)
        weights.close()
        cache.close()
