"""Metrics: names are stable, values agree with those of the pool, and the dashboard uses only existing names."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from support.child import run_python
from support.core import MIB, Door, open_door

import acl
from acl import metrics

pytestmark = pytest.mark.usefixtures("no_leaks")
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana_dashboard.json"


@pytest.fixture
def opened() -> Iterator[tuple[acl.Pool, acl.Stream, Door]]:
    with open_door(name="service", limit="64MiB") as made:
        yield made


def value(name: str, **labels: str) -> float:
    """Return the sum of the points of a metric that have these labels."""
    (found,) = [one for one in metrics.snapshot() if one["name"] == name]
    points = [point for point in found["points"] if labels.items() <= point["attributes"].items()]
    assert points, f"{name} has no point with {labels}"
    total: float = sum(point["value"] for point in points)
    return total


def test_metric_values_agree_with_the_pool_statistics(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    for _ in range(9):
        door.free(door.alloc(4096))
    block, buffer = door.alloc(3 * MIB), pool.alloc(1000, stream, tag="kv")
    stats = pool.stats()
    part = stats.streams[0]
    here = {"pool": "service", "device": "0", "stream": stream.name, "kind": "stream"}
    assert value("aclpool_reserved_bytes", pool="service", device="0") == stats.reserved
    assert value("aclpool_reserved_peak_bytes", pool="service") == stats.reserved_peak
    assert value("aclpool_limit_bytes", pool="service") == 64 * MIB
    assert value("aclpool_live_bytes", **here) == stats.allocated
    assert value("aclpool_live_bytes", **here, tag="kv") == 1536
    assert value("aclpool_live_bytes", **here, tag="") == 3 * MIB
    assert value("aclpool_requested_bytes", **here) == stats.requested
    assert value("aclpool_unused_bytes", **here) == part.reserved - part.allocated
    for path, count in (("hit", part.hits), ("fit", part.fits), ("slow", part.slow)):
        assert value("aclpool_allocations_total", **here, path=path) == count
    assert value("aclpool_slow_allocations_total", **here, rung="grow") == part.rungs["grow"]
    slow = pool.histograms()
    assert round(value("aclpool_slow_seconds_total", **here) * 1e9) == slow.slow_total_ns > 0
    assert round(value("aclpool_slow_longest_seconds", **here) * 1e9) == slow.slow_longest_ns > 0
    assert value("aclpool_driver_calls_total", pool="service", call="aclrtMapMem") == stats.driver_calls["aclrtMapMem"]
    assert value("aclpool_allocation_failures_total", **here) == 0
    assert door.alloc(100 * MIB) == 0
    assert value("aclpool_allocation_failures_total", **here) == 1
    assert value("aclpool_out_of_memory_total", pool="service") == 1
    free, total = acl.Device(0).memory_info()
    assert (value("aclpool_device_free_bytes"), value("aclpool_device_total_bytes")) == (free, total)
    door.free(block)
    door.free(block)
    assert value("aclpool_refused_frees_total", **here) == 1
    buffer.close()


def test_tag_of_a_stream_is_a_label_of_its_metrics(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, door = opened
    pool.tag_stream(stream, "encoder")
    block = door.alloc(512)
    assert value("aclpool_live_bytes", pool="service", tag="encoder") == 512
    door.free(block)


def test_metrics_of_all_streams_can_be_summed_into_one_series(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    with pool.alloc(512, stream), pool.alloc(512):
        (live,) = [one for one in metrics.read(streams=False) if one.info.name == "aclpool_live_bytes"]
        assert [labels[2] for labels in live.points if labels[0] == "service"] == [""]
        assert sum(size for labels, size in live.points.items() if labels[0] == "service") == 2048


def test_closed_pool_has_no_metrics(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    with acl.Pool(0, name="short"):
        assert value("aclpool_reserved_bytes", pool="short") == 0
    with pytest.raises(AssertionError, match="no point"):
        value("aclpool_reserved_bytes", pool="short")


def test_metrics_snapshot_is_plain_data_and_complete(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    found = json.loads(json.dumps(metrics.snapshot()))
    assert [one["name"] for one in found] == list(metrics.METRICS)
    for one in found:
        info = metrics.METRICS[one["name"]]
        assert one["kind"] == info.kind and (one["kind"] == "counter") == one["name"].endswith("_total")
        assert all(tuple(point["attributes"]) == info.labels for point in one["points"])
        assert all((info.kind == "histogram") == ("bucket_counts" in point) for point in one["points"])


def test_metric_distributions_agree_with_the_pool_histograms(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    """Each size is counted below the right bound, and the times agree with the times of the slow allocations."""
    pool, _, door = opened
    sizes = [1, 512, 513, 2048, 32768, 131072, 140_000, 2 * MIB, 2_200_000, 33 * MIB]
    for size in sizes:
        door.free(door.alloc(size))
    found = {one["name"]: one["points"] for one in metrics.snapshot()}
    (point,) = [each for each in found["aclpool_allocation_size_bytes"] if each["attributes"]["pool"] == "service"]
    assert point["count"] == len(sizes)
    below = 0
    for bound, count in zip(point["explicit_bounds"], point["bucket_counts"], strict=False):
        below += count
        assert below == sum(-(-size // 512) * 512 <= bound for size in sizes), bound
    asked = sum(-(-size // 512) * 512 for size in sizes)
    assert asked <= point["sum"] <= asked * 33 / 32
    (point,) = [each for each in found["aclpool_slow_allocation_seconds"] if each["attributes"]["pool"] == "service"]
    slow = pool.histograms()
    assert point["count"] == sum(point["bucket_counts"]) == slow.slow_ns.total
    assert round(point["sum"] * 1e9) == slow.slow_total_ns
    for bound, upto in zip(point["explicit_bounds"], accumulate(point["bucket_counts"]), strict=False):
        assert upto == slow.slow_ns.at_most(round(bound * 1e9))


def test_metrics_give_the_peak_and_its_time(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    began = time.time()
    with pool.alloc(20 * MIB, stream, tag="kv"), pool.alloc(5 * MIB, stream):
        ended = time.time()
    peak = pool.peak()
    assert value("aclpool_peak_live_bytes", pool="service") == peak.live
    assert value("aclpool_peak_tag_bytes", pool="service", tag="kv") == peak.tags["kv"] == 20 * MIB + 512
    moment = min(value("aclpool_peak_timestamp_seconds", pool="service") for _ in range(5))
    assert began - 0.1 <= moment <= ended + 0.1     # least of 5: suspending the thread makes a value too late


def test_sleeping_bytes_count_as_unused(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, stream, _ = opened
    with pool.alloc(8 * MIB, stream, tag="weights"):
        pool.sleep("weights", offload=False)
        assert value("aclpool_asleep_bytes", pool="service") == 8 * MIB + 512
        part = pool.stats().streams[0]
        assert value("aclpool_unused_bytes", pool="service") == part.reserved
        pool.wake()
        assert value("aclpool_asleep_bytes", pool="service") == 0
    assert value("aclpool_sleeps_total", pool="service") == value("aclpool_wakes_total", pool="service") == 1


def test_refused_growth_is_counted_by_what_refused(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    pool, _, door = opened
    assert value("aclpool_growth_refused_total", pool="service") == 0
    block = door.alloc(60 * MIB)
    assert door.alloc(8 * MIB) == 0
    assert value("aclpool_growth_refused_total", pool="service", by="limit") > 0
    assert value("aclpool_growth_refused_total", pool="service", by="driver") == 0
    door.free(block)
    pool.limit = None
    with acl.sim.fault("aclrtMallocPhysical", every=1, code=207001):
        assert door.alloc(200 * MIB) == 0
    assert value("aclpool_growth_refused_total", pool="service", by="driver") > 0


def test_reading_metrics_does_not_revoke_biased_locks(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    """The owner of a biased lock stays the owner, even if other threads read the metrics."""
    _, _, door = opened

    def serve() -> None:
        acl.Device(0).use()
        for _ in range(5000):       # more uses than a thread needs to become the owner
            door.free(door.alloc(512))

    with ThreadPoolExecutor(1) as owner:
        owner.submit(serve).result()
        before = value("aclpool_lock_handovers_total", pool="service")
        for _ in range(3):
            metrics.read()
            owner.submit(serve).result()
        assert value("aclpool_lock_handovers_total", pool="service") == before


# ---- prometheus_client --------------------------------------------------------------------------


def test_prometheus_client_scrapes_all_metrics(opened: tuple[acl.Pool, acl.Stream, Door]) -> None:
    client = pytest.importorskip("prometheus_client")
    pool, stream, _ = opened
    registry = client.CollectorRegistry()
    collector = metrics.PrometheusCollector(registry)
    with pool.alloc(3 * MIB, stream, tag="kv"):
        text = client.generate_latest(registry).decode()
        labels = f'device="0",kind="stream",pool="service",stream="{stream.name}",tag="kv"'
        (line,) = [line for line in text.splitlines() if line.startswith("aclpool_live_bytes{") and 'tag="kv"' in line]
        assert sorted(line[len("aclpool_live_bytes{"):line.index("}")].split(",")) == labels.split(",")
        assert float(line.split()[-1]) == 3 * MIB + 512
        assert registry.get_sample_value("aclpool_reserved_bytes", {"pool": "service", "device": "0"}) == (
            pool.stats().reserved)
    names = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert {info.name for info in metrics.METRICS.values()} == names
    collector.close()
    assert "aclpool" not in client.generate_latest(registry).decode()


def test_child_of_a_fork_leaves_out_the_pools_of_its_parent() -> None:
    done = run_python("""
        import os, acl
        def held():
            (reading,) = [one for one in acl.metrics.read(device_memory=False)
                          if one.info.name == "aclpool_reserved_bytes"]
            return sum(reading.points.values())
        pool = acl.Pool(0)
        block = pool.alloc("3MiB")
        before = held()
        child = os.fork()
        if child == 0:
            os._exit(held() != 0)
        print(before > 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert (done.stdout, done.stderr) == ("True 0\n", "")


def test_two_collectors_in_one_registry_are_refused() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    metrics.PrometheusCollector(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.PrometheusCollector(registry)


def test_collector_without_the_prometheus_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"aclpool\[metrics\]"):
        metrics.PrometheusCollector()


# ---- the dashboard ------------------------------------------------------------------------------


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, part in node.items():
            if key in ("expr", "query") and isinstance(part, str):
                yield part
            else:
                yield from expressions(part)
    elif isinstance(node, list):
        for part in node:
            yield from expressions(part)


def series_of(name: str) -> str:
    """Return the metric of a series; the series of a histogram have suffixes."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in metrics.METRICS and metrics.METRICS[base].kind == "histogram" else name


def test_dashboard_uses_only_existing_metrics_and_labels() -> None:
    board = json.loads(DASHBOARD.read_text())
    found = [text for text in expressions(board) if "aclpool_" in text]
    assert len(found) >= 20
    for text in found:
        names = [series_of(name) for name in re.findall(r"aclpool_\w+", text)]
        assert names and set(names) <= set(metrics.METRICS), text
        known = {label for name in names for label in metrics.METRICS[name].labels}
        known |= {"le"} if "_bucket" in text else set()
        used = set(re.findall(r"[{,]\s*(\w+)\s*=~?", text))
        for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text):
            used |= set(re.split(r",\s*", group))
        used |= set(re.findall(r"label_values\(\w+,\s*(\w+)\)", text))
        assert used <= known, text
        assert text.count("(") == text.count(")") and text.count("{") == text.count("}")


def test_each_legend_of_the_dashboard_names_labels_that_its_series_have() -> None:
    board = json.loads(DASHBOARD.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = re.findall(r"\bby\s*\(([^)]*)\)", target["expr"])
            names = re.findall(r"aclpool_\w+", target["expr"])
            labels = set(re.split(r",\s*", kept[0])) if kept else set(metrics.METRICS[names[0]].labels)
            assert legend <= labels, target


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    board = json.loads(DASHBOARD.read_text())
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in board["panels"]]
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    for i, (x, y, w, h) in enumerate(places):
        for ox, oy, ow, oh in places[:i]:
            assert x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y
