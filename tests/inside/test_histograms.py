"""`Pool.histograms` and `Pool.peak` agree with the tests' own counts."""

from __future__ import annotations

import pickle
import random
import time
from collections import Counter
from types import ModuleType

import pytest
from support.core import MIB, open_door

import acl


def test_histogram_of_sizes_counts_the_requested_sizes() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    generator = random.Random(seed)
    asked: list[int] = []
    with open_door() as (pool, _, door):
        live: list[int] = []
        for _ in range(3000):
            if live and generator.random() < 0.6:
                door.free(live.pop(generator.randrange(len(live))))
            else:
                size = int(2 ** generator.uniform(0, 23))
                asked.append(size)
                live.append(door.take(size)[0])
        sizes = pool.histograms().sizes
        stats = pool.stats()
        for block in live:
            door.free(block)
    assert sizes.total == len(asked) == stats.allocations
    rounded = Counter(-(-size // 512) * 512 for size in asked)
    for low, high, count in zip(sizes.lows, sizes.highs, sizes.counts, strict=True):
        assert count == sum(times for size, times in rounded.items() if low <= size <= high)
        assert high - low < max(512, low / 32 + 512)
    assert list(sizes.lows) == sorted(sizes.lows)
    exact = sorted(-(-size // 512) * 512 for size in asked)
    for share in (0.1, 0.5, 0.9, 0.99, 1.0):
        wanted = exact[max(0, int(share * len(exact) + 0.999999) - 1)]
        assert wanted <= sizes.quantile(share) <= wanted * 33 / 32 + 512


def test_histogram_of_times_counts_slow_allocations(sim: ModuleType) -> None:
    with open_door() as (pool, _, door):
        quick = [door.take(1000)[0] for _ in range(10)]
        found = pool.histograms()
        assert found.slow_ns.total == pool.stats().slow == 1
        sim.configure(latency="memory")
        began = time.perf_counter_ns()
        slow = door.take(3 * MIB)[0]
        passed = time.perf_counter_ns() - began
        sim.configure(latency="off")
        after = pool.histograms()
        for block in [*quick, slow]:
            door.free(block)
    assert after.slow_ns.total == 2
    took = after.slow_total_ns - found.slow_total_ns
    assert 20_000 <= took <= passed                         # two pages were created and mapped
    assert after.slow_longest_ns == max(found.slow_longest_ns, took)
    assert after.slow_ns.lows[-1] <= after.slow_longest_ns <= after.slow_ns.highs[-1]
    assert after.slow_ns.highs[-1] - after.slow_ns.lows[-1] <= after.slow_ns.lows[-1] / 8


def test_failed_allocations_are_timed_but_have_no_size() -> None:
    with open_door(limit="8MiB") as (pool, _, door):
        assert door.alloc(64 * MIB) == 0
        found = pool.histograms()
        assert found.sizes.total == 0 and found.slow_ns.total == 1


def test_histogram_gives_totals_quantiles_and_texts() -> None:
    empty = acl.Histogram((), (), ())
    assert empty.total == 0 and empty.quantile(0.5) == 0
    assert repr(empty) == "<Histogram of nothing>"
    assert str(acl.PoolHistograms(empty, empty, 0, 0)) == "no allocations"
    one = acl.Histogram((1, 513), (512, 1024), (3, 1))
    assert [one.quantile(share) for share in (0, 0.5, 0.75, 0.76, 1)] == [512, 512, 512, 1024, 1024]
    assert repr(one) == "<Histogram 4 values, median 512, 99 % up to 1,024, all up to 1,024>"
    assert str(acl.PoolHistograms(one, one, 7_000_000, 5_000_000)) == (
        "4 allocations, half of up to 512 B, all of up to 1.00 KiB; 4 slow, 7.0 ms in all, "
        "p99.9 1 us, p99.99 1 us, the longest 5.0 ms")
    mostly = acl.PoolHistograms(acl.Histogram((1,), (512,), (10_000,)), one, 7_000_000, 900)
    assert [mostly.time_ns(share) for share in (0.5, 0.9996, 0.9998, 1)] == [1000, 1000, 512, 900]
    assert one.at_most(512) == 3 and one.at_most(511) == 0 and one.at_most(9999) == 4
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(ValueError, match=r"share must be from 0 to 1, not 1.5"):
        one.quantile(1.5)


def test_peak_report_gives_the_bytes_and_the_tags_of_the_peak() -> None:
    with acl.Pool(0) as pool, acl.Stream(0) as one, acl.Stream(0) as other:
        kept = [pool.alloc("40MiB", one, tag="weights"), pool.alloc("24MiB", other, tag="kv")]
        began = time.time()
        top = pool.alloc("16MiB", one)
        ended = time.time()
        top.close()
        kept.pop().close()
        small = pool.alloc("1MiB", other, tag="later")
        peak = pool.peak()
        assert began - 1 < peak.time < ended + 1 and peak.ago >= 0
        assert 80 * MIB <= peak.live <= 80 * MIB + 4096 and peak.reserved >= peak.live
        assert list(peak.tags) == ["weights", "kv", ""]
        assert peak.streams.keys() == {one.handle, other.handle}
        assert peak.streams[one.handle] >= 56 * MIB > peak.streams[other.handle] >= 24 * MIB
        assert sum(peak.tags.values()) == sum(peak.streams.values()) == peak.live
        assert str(peak).startswith("peak 80.0") and "weights 40.0" in str(peak)
        for buffer in [*kept, small]:
            buffer.close()


def test_peak_that_needs_no_new_memory_is_recorded() -> None:
    """No allocation is slow here, so the peak is found from the arena's own peak."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    generator = random.Random(seed)
    with open_door() as (pool, stream, door):
        small = [door.take(300_032)[0] for _ in range(1500)]
        pool.alloc("1GiB", stream).close()
        while small:
            door.free(small.pop())
        pool.reset_peak()
        slow = pool.stats().slow
        live: list[tuple[int, int]] = []
        now = most = 0
        for _ in range(4000):
            if live and (generator.random() < 0.45 or now > 300 * MIB):
                block, size = live.pop(generator.randrange(len(live)))
                door.free(block)
                now -= size
            else:
                size = generator.choice([512, 4096, 300_032, 2 * MIB, 9 * MIB])
                live.append((door.take(size)[0], -(-size // 512) * 512))
                now += live[-1][1]
                most = max(most, now)
        assert pool.stats().slow == slow
        assert most * 63 / 64 - MIB <= pool.peak().live <= most
        for block, _ in live:
            door.free(block)


def test_reset_peak_forgets_the_earlier_peak() -> None:
    with acl.Pool(0) as pool:
        pool.alloc("64MiB").close()
        assert pool.peak().live >= 64 * MIB
        pool.reset_peak()
        assert pool.peak().live == 0 and pool.peak().tags == {}
        pool.alloc("32MiB").close()
        assert 32 * MIB <= pool.peak().live < 33 * MIB
