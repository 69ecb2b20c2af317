"""Threads that Python did not create: they use one arena, become owners of one lock, and steal pages."""

import threading

import numpy as np
import pytest
from support.child import run_python

from acl.tools._rig import Rig, function_addresses
from acl.tools.bench import _loops

EVENT = np.dtype([("size", "<u8"), ("slot", "<u4"), ("stream", "<u4")])
PAGE = 2 << 20


def replacements(seed: int, most: int, slots: int = 64, count: int = 4096) -> bytes:
    print("seed", seed)
    choose = np.random.default_rng(seed)
    events = np.zeros(count, EVENT)
    events["size"] = np.exp(choose.uniform(np.log(64), np.log(most), count)).astype(np.int64)
    events["slot"] = choose.integers(0, slots, count)
    return events.tobytes()


def loads_on(rig: Rig, streams: list[int], most: int, count: int) -> list[_loops.Load]:
    addresses = function_addresses()
    return [
        _loops.Load.replace(_loops.Subject(f"thread {i}", rig.arena(stream), *addresses), replacements(i, most), count)
        for i, stream in enumerate(streams)
    ]


@pytest.mark.parametrize("most", [64 << 10, 4 << 20], ids=["cached", "binned"])
@pytest.mark.parametrize("streams", [[1, 1], [1, 1, 1], [1, 2]], ids=["shared", "three", "own"])
def test_threads_not_started_by_python_can_allocate_and_free(streams: list[int], most: int) -> None:
    rig = Rig()
    loads = loads_on(rig, streams, most, 60_000)
    _loops.run_foreign(loads, 2)
    assert rig.check() == 0
    for load in loads:
        assert load.failures == 0
        load.close()
    assert rig.check() == 0
    assert all(rig.stats(stream)["allocated"] == 0 for stream in streams)


def test_threads_that_steal_pages_from_each_other_leave_the_pool_consistent() -> None:
    rig = Rig(limit=160 * PAGE)
    loads = loads_on(rig, [1, 2, 3], 16 << 20, 4000)
    _loops.run_foreign(loads, 2)
    assert rig.check() == 0
    assert sum(rig.stats(stream)["counters"]["donated"] for stream in (1, 2, 3)) > 0
    for load in loads:
        load.close()
    rig.trim()
    assert rig.check() == 0 and rig.reserved() == 0


def test_blocks_can_be_freed_by_threads_that_did_not_allocate_them() -> None:
    rig = Rig()
    failures: list[int] = []

    def give_back(blocks: list[int]) -> None:
        failures.extend(block for block in blocks if not rig.free(block))

    def work(number: int) -> None:
        for round_number in range(300):
            blocks = [rig.alloc(1000 * (number + 1)) for _ in range(20)]
            if round_number % 10 == 0:
                thread = threading.Thread(target=give_back, args=(blocks,))
                thread.start()
                thread.join()
            else:
                give_back(blocks)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert rig.check() == 0 and rig.stats()["allocated"] == 0


@pytest.mark.parametrize("bias", ["1", "0"], ids=["biased", "no membarrier"])
def test_the_lock_excludes_while_its_owner_changes(bias: str) -> None:
    """The owner enters the lock by two plain stores while other threads revoke its bias."""
    done = run_python(
        """
        import threading
        from acl.tools.bench import _loops
        from acl.tools._rig import Rig, function_addresses

        rig = Rig()
        addresses = function_addresses()
        stop = threading.Event()

        def intrude():
            while not stop.is_set():
                assert rig.check_arena() == 0
                rig.free(rig.alloc(3000))
        thread = threading.Thread(target=intrude)
        thread.start()
        for _ in range(40):
            load = _loops.Load.pairs(_loops.Subject("owner", rig.arena(), *addresses), 3000, 100_000)
            _loops.run_foreign([load], 1)
        stop.set()
        thread.join()
        assert rig.check() == 0 and rig.stats()["allocated"] == 0
        print(rig.stats()["live_blocks"])
        """,
        ACL_POOL_BIAS=bias,
        timeout=300,
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")
