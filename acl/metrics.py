"""Metrics of the pools of this process, for Prometheus, for OpenTelemetry, or as plain values.

Reading takes no lock of a stream and does not walk over blocks.  It reads counters that the allocator has in any case,
so a scrape does not delay allocations.  Therefore the numbers of one reading may differ by a few allocations.

Names, labels and meanings in `METRICS` are stable: new metrics may be added, but none is changed or removed.  Only
`PrometheusCollector` needs `prometheus_client` (the extra ``aclpool[metrics]``).
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from acl.bind._error import AclError
from acl.inside import _books, _tallies
from acl.inside._text import printable
from acl.pool import _findings, _registry
from acl.pool._pool import open_pools
from acl.runtime._device import ordinal_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from acl.inside._histograms import PoolHistograms, PoolPeak

__all__ = ["METRICS", "Distribution", "MetricInfo", "PrometheusCollector", "Reading", "read",
           "snapshot"]


@dataclass(frozen=True)
class MetricInfo:
    """The description of a metric.

    Attributes
    ----------
    name : str
        Name in the style of Prometheus; names of counters end in ``_total``.
    kind : str
        ``"gauge"``, ``"counter"`` or ``"histogram"``.
    unit : str
        Unit in the form of OpenTelemetry: ``"By"`` for bytes, ``"s"`` for seconds, ``"1"`` for a count.
    labels : tuple of str
        Names of the labels of its points, in their order.
    help : str
        Meaning of the metric in one sentence.
    """

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True)
class Distribution:
    """A point of a histogram.

    Attributes
    ----------
    bounds : tuple of float
        Upper bounds of all buckets but the last, in rising order.
    counts : tuple of int
        Number of values in each bucket; the last bucket has the values above all bounds.
    sum : float
        Sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass
class Reading:
    """A metric and its values at one moment.

    Attributes
    ----------
    info : MetricInfo
        The metric.
    points : dict
        Dict from the labels' values to the metric's value; for a histogram, to its number of values.
    distributions : dict
        For a histogram, dict from the labels' values to a `Distribution`; empty for other metrics.
    """

    info: MetricInfo
    points: dict[tuple[str, ...], float] = field(default_factory=dict)
    distributions: dict[tuple[str, ...], Distribution] = field(default_factory=dict)

    def add(self, value: float, *labels: str) -> None:
        """Add a value to a point.  Several parts of a pool may have equal labels, for example streams with one name."""
        labels = tuple(map(printable, labels))
        self.points[labels] = self.points.get(labels, 0) + value


POOL = ("pool", "device")
STREAM = (*POOL, "stream", "kind")
_INFOS = (
    MetricInfo("aclpool_reserved_bytes", "gauge", "By", POOL, "Device memory that the pool holds."),
    MetricInfo("aclpool_reserved_peak_bytes", "gauge", "By", POOL, "The most that it has held."),
    MetricInfo("aclpool_limit_bytes", "gauge", "By", POOL, "The most that it may hold; 0 for no limit."),
    MetricInfo("aclpool_headroom_bytes", "gauge", "By", POOL, "What it leaves free on the device."),
    MetricInfo("aclpool_spare_bytes", "gauge", "By", POOL, "Memory held that is in no stream's part."),
    MetricInfo("aclpool_peak_live_bytes", "gauge", "By", POOL,
               "The most that was live at one time over all streams, since the start or the last reset."),
    MetricInfo("aclpool_joint_requested_peak_bytes", "gauge", "By", POOL,
               "The most that was asked for at one time over all streams, since the start or the last reset."),
    MetricInfo("aclpool_peak_timestamp_seconds", "gauge", "s", POOL, "When that was, as Unix time."),
    MetricInfo("aclpool_peak_tag_bytes", "gauge", "By", (*POOL, "tag"), "Live bytes by tag at that moment."),
    MetricInfo("aclpool_allocation_size_bytes", "histogram", "By", POOL,
               "Sizes of the allocations that were served, rounded up to 512; above 32 KiB within 1/32."),
    MetricInfo("aclpool_slow_allocation_seconds", "histogram", "s", POOL,
               "How long allocations with driver calls took, failed ones too, within 1/8."),
    MetricInfo("aclpool_growth_refused_total", "counter", "1", (*POOL, "by"),
               "Times that the pool could not grow, by what refused: limit, headroom or driver."),
    MetricInfo("aclpool_budget_limit_bytes", "gauge", "By", (*POOL, "tag"),
               "The most that may be live with a tag that has a budget; 0 for no limit."),
    MetricInfo("aclpool_budget_live_bytes", "gauge", "By", (*POOL, "tag"), "What is live with it."),
    MetricInfo("aclpool_budget_refused_total", "counter", "1", (*POOL, "tag"), "Requests that found no room in it."),
    MetricInfo("aclpool_sleeps_total", "counter", "1", POOL, "Calls that put blocks to sleep."),
    MetricInfo("aclpool_wakes_total", "counter", "1", POOL, "Calls that woke blocks."),
    MetricInfo("aclpool_out_of_memory_total", "counter", "1", POOL, "Allocations that could not be served."),
    MetricInfo("aclpool_driver_calls_total", "counter", "1", (*POOL, "call"), "Calls of the driver."),
    MetricInfo("aclpool_driver_failures_total", "counter", "1", (*POOL, "call"),
               "Calls of the driver that returned an error."),
    MetricInfo("aclpool_stream_reserved_bytes", "gauge", "By", STREAM, "Memory of a stream's part."),
    MetricInfo("aclpool_live_bytes", "gauge", "By", (*STREAM, "tag"),
               "Bytes of blocks in use, as the pool rounds them, by tag; an empty tag is nobody's."),
    MetricInfo("aclpool_requested_bytes", "gauge", "By", STREAM, "Bytes asked for, of blocks in use."),
    MetricInfo("aclpool_requested_peak_bytes", "gauge", "By", STREAM, "The most that was asked for at one time."),
    MetricInfo("aclpool_asleep_bytes", "gauge", "By", STREAM,
               "Bytes of blocks in use that sleep: addresses, with memory only where others share their pages."),
    MetricInfo("aclpool_unused_bytes", "gauge", "By", STREAM,
               "Memory of a stream's part that no block in use covers, or one asleep: cached, free or waiting."),
    MetricInfo("aclpool_allocations_total", "counter", "1", (*STREAM, "path"),
               "Allocations served by the exact-size cache (hit), by best fit (fit), by pages that were mapped there "
               "before (recall), and those with driver calls (slow), failed ones too."),
    MetricInfo("aclpool_slow_allocations_total", "counter", "1", (*STREAM, "rung"),
               "Allocations with driver calls, by where their memory came from."),
    MetricInfo("aclpool_slow_seconds_total", "counter", "s", STREAM,
               "Time that allocations with driver calls took, failed ones too."),
    MetricInfo("aclpool_slow_longest_seconds", "gauge", "s", STREAM, "The longest of them."),
    MetricInfo("aclpool_allocation_failures_total", "counter", "1", STREAM, "Allocations that got nothing."),
    MetricInfo("aclpool_pages_moved_total", "counter", "1", (*STREAM, "to"),
               "Pages that moved within the part (own), or were given away (others)."),
    MetricInfo("aclpool_stream_waits_total", "counter", "1", STREAM, "Waits for the stream in allocations."),
    MetricInfo("aclpool_stream_wait_failures_total", "counter", "1", STREAM,
               "Of these, those that expired or failed."),
    MetricInfo("aclpool_cache_flushes_total", "counter", "1", STREAM, "Flushes of the exact-size cache."),
    MetricInfo("aclpool_refused_frees_total", "counter", "1", STREAM,
               "Frees of what was no live block: foreign pointers and double frees."),
    MetricInfo("aclpool_stray_calls_total", "counter", "1", (),
               "Calls of the allocator's callbacks in this process with what is no allocator, or no block of any."),
    MetricInfo("aclpool_lock_handovers_total", "counter", "1", STREAM,
               "How often another thread took the part's lock from the one that owned it."),
    MetricInfo("aclpool_guard_findings_total", "counter", "1", ("kind",),
               "Memory errors that guarded blocks have found in this process."),
    MetricInfo("aclpool_device_total_bytes", "gauge", "By", ("device",), "Memory of a device with a pool."),
    MetricInfo("aclpool_device_free_bytes", "gauge", "By", ("device",), "What nobody holds of it."),
)
#: All metrics by name.
METRICS: dict[str, MetricInfo] = {info.name: info for info in _INFOS}


def tag_points(part: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the live bytes of a stream by tag; bytes without a tag count for the stream's default tag."""
    left = part["live"]
    for tag, (live, _) in part["tags"].items():
        left -= live
        yield tag, live
    if left > 0 or not part["tags"]:
        yield part["default_tag"], max(left, 0)


def read_stream(found: dict[str, Reading], labels: tuple[str, ...], part: dict[str, Any]) -> None:
    """Add the points of one stream; `part` is its part of a pool's counters."""
    counters = part["counters"]
    for tag, live in tag_points(part):
        found["aclpool_live_bytes"].add(live, *labels, tag)
    for path, name in (("hit", "hits"), ("fit", "fits"), ("recall", "recalls"), ("slow", "slow")):
        found["aclpool_allocations_total"].add(counters[name], *labels, path)
    for rung, count in counters["rungs"].items():
        found["aclpool_slow_allocations_total"].add(count, *labels, rung)
    found["aclpool_pages_moved_total"].add(counters["steals"], *labels, "own")
    found["aclpool_pages_moved_total"].add(counters["donated"], *labels, "others")
    for name, value in (
        ("stream_reserved_bytes", part["reserved"]),
        ("requested_bytes", part["requested"]),
        ("requested_peak_bytes", part["requested_peak"]),
        ("asleep_bytes", part["asleep"]),
        ("unused_bytes", max(part["reserved"] - (part["live"] - part["asleep"]), 0)),
        ("slow_seconds_total", part["slow_ns"] / 1e9),
        ("allocation_failures_total", counters["failures"]),
        ("stream_waits_total", counters["syncs"]),
        ("stream_wait_failures_total", counters["sync_failures"]),
        ("cache_flushes_total", counters["flushes"]),
        ("refused_frees_total", counters["refused"]),
        ("lock_handovers_total", part["handovers"]),
    ):
        found[f"aclpool_{name}"].add(value, *labels)
    longest = found["aclpool_slow_longest_seconds"].points
    labels = tuple(map(printable, labels))
    longest[labels] = max(longest.get(labels, 0), part["slow_longest_ns"] / 1e9)


def read_pool(found: dict[str, Reading], name: str, device: str, told: dict[str, Any], streams: bool) -> None:
    """Add the points of one pool."""
    labels = (name, device)
    for field_name in ("reserved", "reserved_peak", "limit", "headroom", "spare"):
        found[f"aclpool_{field_name}_bytes"].add(told[field_name], *labels)
    found["aclpool_joint_requested_peak_bytes"].add(told["joint_requested_peak"], *labels)
    found["aclpool_out_of_memory_total"].add(told["ooms"], *labels)
    found["aclpool_sleeps_total"].add(told["sleeps"], *labels)
    found["aclpool_wakes_total"].add(told["wakes"], *labels)
    for tag, budget in told["budgets"].items():
        found["aclpool_budget_limit_bytes"].add(budget.limit, *labels, tag)
        found["aclpool_budget_live_bytes"].add(budget.live, *labels, tag)
        found["aclpool_budget_refused_total"].add(budget.refused, *labels, tag)
    for by, count in told["refusals"].items():
        found["aclpool_growth_refused_total"].add(count, *labels, by)
    for metric, calls in (("driver_calls", "driver_calls"), ("driver_failures", "driver_failures")):
        for call, count in told[calls].items():
            found[f"aclpool_{metric}_total"].add(count, *labels, call)
    for part in told["streams"]:
        stream = part["name"] if streams else ""
        read_stream(found, (*labels, stream, part["kind"]), part)


#: Bucket bounds of sizes (512 B to 2 GiB) and of times (1 us to 17 s); each bound is four times the previous one.
SIZE_BOUNDS = tuple(512 << shift for shift in range(0, 24, 2))
SLOW_BOUNDS_NS = tuple(1 << shift for shift in range(10, 36, 2))


def bucket_counts(values: tuple[int, ...], counts: tuple[int, ...], bounds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the counts of coarse buckets: each fine bucket is added to the coarse bucket that has its value."""
    found = [0] * (len(bounds) + 1)
    for value, count in zip(values, counts, strict=True):
        found[bisect_left(bounds, value)] += count
    return tuple(found)


def read_tallies(found: dict[str, Reading], labels: tuple[str, ...], told: PoolHistograms, peak: PoolPeak) -> None:
    """Add the points of a pool's histograms and of its peak."""
    sizes, slow = told.sizes, told.slow_ns
    most = sum(high * count for high, count in zip(sizes.highs, sizes.counts, strict=True))
    # Coarse bounds are powers of two.  A size of 2**n bytes is the lower limit of its fine bucket, so fine buckets of
    # sizes are placed by their lower limit.  For times they are placed by their upper limit.
    asked = bucket_counts(sizes.lows, sizes.counts, SIZE_BOUNDS)
    took = bucket_counts(slow.highs, slow.counts, SLOW_BOUNDS_NS)
    for name, point in (
        ("allocation_size_bytes", Distribution(SIZE_BOUNDS, asked, most)),
        ("slow_allocation_seconds",
         Distribution(tuple(bound / 1e9 for bound in SLOW_BOUNDS_NS), took, told.slow_total_ns / 1e9)),
    ):
        found[f"aclpool_{name}"].add(sum(point.counts), *labels)
        found[f"aclpool_{name}"].distributions[tuple(map(printable, labels))] = point
    found["aclpool_peak_live_bytes"].add(peak.live, *labels)
    found["aclpool_peak_timestamp_seconds"].points[tuple(map(printable, labels))] = peak.time
    for tag, live in peak.tags.items():
        found["aclpool_peak_tag_bytes"].add(live, *labels, tag)


def read(device: int | None = None, *, streams: bool = True, device_memory: bool = True) -> list[Reading]:
    """Return all metrics with their current values.

    Parameters
    ----------
    device : int, optional
        Read only the pools of this device.
    streams : bool
        True for separate values of each stream, by its name.  False for sums over all streams, with an empty
        label ``stream``; this is for services that make many streams.
    device_memory : bool
        True to query the free memory of each device, with one driver call for each.
    """
    found = {name: Reading(info) for name, info in METRICS.items()}
    devices: set[int] = set()
    for pool in open_pools(None if device is None else ordinal_of(device)):
        told = _books.glance(pool)
        if told is not None and not (pool.closed and told["reserved"] == 0):
            devices.add(pool.device)
            read_pool(found, pool.name, str(pool.device), told, streams)
            tallies = _tallies.glance(pool)
            if tallies is not None:
                read_tallies(found, (pool.name, str(pool.device)), *tallies)
    for kind, count in _findings.reports().items():
        found["aclpool_guard_findings_total"].add(count, kind)
    found["aclpool_stray_calls_total"].add(_registry.strays())
    for ordinal in sorted(devices) if device_memory else ():
        try:
            free, total = _books.device_bytes(ordinal)
        except (AclError, RuntimeError):        # the device is lost, or was opened before a fork
            continue
        found["aclpool_device_free_bytes"].add(free, str(ordinal))
        found["aclpool_device_total_bytes"].add(total, str(ordinal))
    return list(found.values())


def snapshot(device: int | None = None, *, streams: bool = True, device_memory: bool = True) -> list[dict[str, Any]]:
    """Return all metrics as plain values, in the form of OpenTelemetry.

    Parameters
    ----------
    device, streams, device_memory
        As for `read`.

    Returns
    -------
    list of dict
        For each metric ``name``, ``description``, ``unit``, ``kind`` (``"gauge"``, ``"counter"`` for a
        monotonic sum, ``"histogram"``) and ``points``.  The points are dicts with ``attributes`` and ``value``,
        like the observations that a callback for OpenTelemetry returns.  Points of a histogram have ``count``,
        ``sum``, ``explicit_bounds`` and ``bucket_counts`` instead of ``value``.
    """
    return [
        {"name": one.info.name, "description": one.info.help, "unit": one.info.unit, "kind": one.info.kind,
         "points": [point_of(one, labels) for labels in one.points]}
        for one in read(device, streams=streams, device_memory=device_memory)]


def point_of(one: Reading, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return a point as plain values."""
    attributes = dict(zip(one.info.labels, labels, strict=True))
    spread = one.distributions.get(labels)
    if spread is None:
        return {"attributes": attributes, "value": one.points[labels]}
    return {"attributes": attributes, "count": sum(spread.counts), "sum": spread.sum,
            "explicit_bounds": list(spread.bounds), "bucket_counts": list(spread.counts)}


class PrometheusCollector:
    """Collect the metrics of all pools for `prometheus_client`; they are read at each scrape.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        The registry that collects from this object.  Default: the client's default registry.
    device, streams, device_memory
        As for `read`.
    process_labels : bool
        True to give each point the labels ``process`` (the process id) and ``worker`` (``ACL_POOL_WORKER``, else the
        process id), as `aclpool exporter` does.  If one collector of a registry has them, all have.

    Raises
    ------
    ImportError
        `prometheus_client` is not installed: ``pip install aclpool[metrics]``.
    ValueError
        The registry already has a collector of all devices, or of this device.

    Examples
    --------
    >>> acl.metrics.PrometheusCollector()
    >>> prometheus_client.start_http_server(9400)
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, device: int | None = None, streams: bool = True,
        device_memory: bool = True, process_labels: bool = False,
    ) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError("prometheus_client is not installed: pip install aclpool[metrics]") from error
        if registry is not None and not callable(getattr(registry, "register", None)):
            raise TypeError(f"registry must be a CollectorRegistry or None, not {type(registry).__name__}")
        self.device = None if device is None else ordinal_of(device)
        self.streams = streams
        self.device_memory = device_memory
        self.process_labels = process_labels
        self.registry = prometheus_client.REGISTRY if registry is None else registry
        self.together = _Together.of(self.registry)
        self.together.add(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, so that the registry can check their names."""
        return families(Reading(info) for info in METRICS.values())

    def readings(self) -> list[Reading]:
        """Return the collector's metrics with their current values."""
        return read(self.device, streams=self.streams, device_memory=self.device_memory)

    def collect(self) -> Iterable[Metric]:
        """Return this collector's metrics with their current values, for a scrape."""
        return families(self.readings(), process_pairs() if self.process_labels else ())

    def close(self) -> None:
        """Remove the collector from the registry; a second call does nothing."""
        self.together.remove(self)


class _Together:
    """All collectors of one registry.  They are scraped together, because a page may have each metric only once."""

    lock = threading.Lock()
    known: weakref.WeakKeyDictionary[CollectorRegistry, _Together] = weakref.WeakKeyDictionary()

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = weakref.ref(registry)
        self.members: list[PrometheusCollector] = []

    @classmethod
    def of(cls, registry: CollectorRegistry) -> _Together:
        with cls.lock:
            return cls.known.setdefault(registry, cls(registry))

    def add(self, member: PrometheusCollector) -> None:
        registry = self.registry()
        with self.lock:
            if any(member.device in (None, each.device) or each.device is None for each in self.members):
                raise ValueError("Duplicated timeseries in CollectorRegistry: it has one of this device or of all")
            if not self.members and registry is not None:
                registry.register(self)         # raises ValueError if another collector has a metric's name
            self.members.append(member)

    def remove(self, member: PrometheusCollector) -> None:
        registry = self.registry()
        with self.lock:
            if member in self.members:
                self.members.remove(member)
                if not self.members and registry is not None:
                    registry.unregister(self)

    def describe(self) -> Iterable[Metric]:
        return families(Reading(info) for info in METRICS.values())

    def collect(self) -> Iterable[Metric]:
        """Return each metric once, with the points of all devices, for a scrape."""
        members = list(self.members)
        first, *others = [member.readings() for member in members] or [[]]
        for more in others:
            for one, other in zip(first, more, strict=True):
                one.points.update(other.points)
                one.distributions.update(other.distributions)
        return families(first, process_pairs() if any(member.process_labels for member in members) else ())


def worker_name() -> str:
    """Return the name of this worker process: `ACL_POOL_WORKER`, else the process id."""
    return os.environ.get("ACL_POOL_WORKER") or str(os.getpid())


def process_pairs() -> tuple[tuple[str, str], ...]:
    """Return the labels that identify this process, with their current values, which differ in a forked child."""
    return ("process", str(os.getpid())), ("worker", printable(worker_name()))


def families(readings: Iterable[Reading], more: tuple[tuple[str, str], ...] = ()) -> Iterator[Metric]:
    """Yield readings as `prometheus_client`'s metric families; each point also has the labels `more`."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    values = tuple(value for _, value in more)
    for one in readings:
        names = (*(name for name, _ in more), *one.info.labels)
        if one.info.kind == "histogram":
            spread = HistogramMetricFamily(one.info.name, one.info.help, labels=names)
            for labels, point in one.distributions.items():
                bounds = [*(f"{bound:.12g}" for bound in point.bounds), "+Inf"]
                buckets = list(zip(bounds, accumulate(point.counts), strict=True))
                spread.add_metric((*values, *labels), buckets, point.sum)
            yield spread
            continue
        kind = CounterMetricFamily if one.info.kind == "counter" else GaugeMetricFamily
        family = kind(one.info.name, one.info.help, labels=names)
        for labels, value in one.points.items():
            family.add_metric((*values, *labels), value)
        yield family
