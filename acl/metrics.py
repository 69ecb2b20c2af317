"""Metrics of the pools of this process: for Prometheus, for OpenTelemetry, or as plain values.

Reading takes no lock and walks no blocks: it looks at the counters that the allocator keeps anyway, so
a scrape does not hold up an allocation.  The numbers of one reading may be a few allocations apart.

Names, labels and meanings in `METRICS` are stable: what is there stays.  `prometheus_client` is needed
only by `PrometheusCollector` (the extra ``aclpool[metrics]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acl import _books, _findings
from acl._pool import open_pools

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["METRICS", "MetricInfo", "PrometheusCollector", "Reading", "read", "snapshot"]


@dataclass(frozen=True)
class MetricInfo:
    """What a metric means.

    Attributes
    ----------
    name : str
        In Prometheus's style; counters end in ``_total``.
    kind : str
        ``"gauge"`` or ``"counter"``.
    unit : str
        ``"By"`` for bytes, ``"s"`` for seconds, ``"1"`` for a count, as OpenTelemetry writes units.
    labels : tuple of str
        Which labels its points have, in this order.
    help : str
        One sentence.
    """

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    help: str


@dataclass
class Reading:
    """A metric and its values at one moment.

    Attributes
    ----------
    info : MetricInfo
        Which metric.
    points : dict
        From the labels' values to the value.
    """

    info: MetricInfo
    points: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, value: float, *labels: str) -> None:
        """Add to a point: two parts of a pool may have the same labels, as a stream that comes again."""
        self.points[labels] = self.points.get(labels, 0) + value


POOL = ("pool", "device")
STREAM = (*POOL, "stream", "kind")
_INFOS = (
    MetricInfo("aclpool_reserved_bytes", "gauge", "By", POOL, "Device memory that the pool holds."),
    MetricInfo("aclpool_reserved_peak_bytes", "gauge", "By", POOL, "The most that it has held."),
    MetricInfo("aclpool_limit_bytes", "gauge", "By", POOL, "The most that it may hold; 0 for no limit."),
    MetricInfo("aclpool_headroom_bytes", "gauge", "By", POOL, "What it leaves free on the device."),
    MetricInfo("aclpool_spare_bytes", "gauge", "By", POOL, "Memory held that is in no stream's part."),
    MetricInfo("aclpool_out_of_memory_total", "counter", "1", POOL, "Allocations that could not be served."),
    MetricInfo("aclpool_driver_calls_total", "counter", "1", (*POOL, "call"), "Calls of the driver."),
    MetricInfo("aclpool_driver_failures_total", "counter", "1", (*POOL, "call"),
               "Calls of the driver that returned an error."),
    MetricInfo("aclpool_stream_reserved_bytes", "gauge", "By", STREAM, "Memory of a stream's part."),
    MetricInfo("aclpool_live_bytes", "gauge", "By", (*STREAM, "tag"),
               "Bytes of blocks in use, as the pool rounds them, by tag; an empty tag is nobody's."),
    MetricInfo("aclpool_requested_bytes", "gauge", "By", STREAM, "Bytes asked for, of blocks in use."),
    MetricInfo("aclpool_unused_bytes", "gauge", "By", STREAM,
               "Memory of a stream's part that no block in use covers: cached, free or waiting."),
    MetricInfo("aclpool_allocations_total", "counter", "1", (*STREAM, "path"),
               "Allocations served by the exact-size cache (hit), by best fit (fit), with driver calls (slow)."),
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
    """Live bytes of a stream's part by tag; what has none is of the stream's own."""
    left = part["live"]
    for tag, (live, _) in part["tags"].items():
        left -= live
        yield tag, live
    if left > 0 or not part["tags"]:
        yield part["default_tag"], max(left, 0)


def read_stream(found: dict[str, Reading], labels: tuple[str, ...], part: dict[str, Any]) -> None:
    """The points of one stream's part."""
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
        ("unused_bytes", max(part["reserved"] - part["live"], 0)),
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
    longest[labels] = max(longest.get(labels, 0), part["slow_longest_ns"] / 1e9)


def read_pool(found: dict[str, Reading], name: str, device: str, told: dict[str, Any], streams: bool) -> None:
    """The points of one pool."""
    labels = (name, device)
    for field_name in ("reserved", "reserved_peak", "limit", "headroom", "spare"):
        found[f"aclpool_{field_name}_bytes"].add(told[field_name], *labels)
    found["aclpool_out_of_memory_total"].add(told["ooms"], *labels)
    for metric, calls in (("driver_calls", "driver_calls"), ("driver_failures", "driver_failures")):
        for call, count in told[calls].items():
            found[f"aclpool_{metric}_total"].add(count, *labels, call)
    for part in told["streams"]:
        stream = (f"{part['stream']:#x}" if part["stream"] else "default") if streams else ""
        read_stream(found, (*labels, stream, part["kind"]), part)


def read(device: int | None = None, *, streams: bool = True, device_memory: bool = True) -> list[Reading]:
    """Every metric with its values now.

    Parameters
    ----------
    device : int, optional
        Only pools of this device.
    streams : bool
        Tell streams apart by their handles; without, the label ``stream`` is empty and the values are
        sums.  For services that make many streams.
    device_memory : bool
        Ask the driver how much of each device is free: one call for each device.
    """
    found = {name: Reading(info) for name, info in METRICS.items()}
    devices: set[int] = set()
    for pool in open_pools(device):
        told = _books.glance(pool)
        if told is not None and not (pool.closed and told["reserved"] == 0):
            devices.add(pool.device)
            read_pool(found, pool.name, str(pool.device), told, streams)
    for kind, count in _findings.reports().items():
        found["aclpool_guard_findings_total"].add(count, kind)
    for ordinal in sorted(devices) if device_memory else ():
        free, total = _books.device_bytes(ordinal)
        found["aclpool_device_free_bytes"].add(free, str(ordinal))
        found["aclpool_device_total_bytes"].add(total, str(ordinal))
    return list(found.values())


def snapshot(device: int | None = None, *, streams: bool = True, device_memory: bool = True) -> list[dict[str, Any]]:
    """The same as plain values, in OpenTelemetry's words.

    Parameters
    ----------
    device, streams, device_memory
        As for `read`.

    Returns
    -------
    list of dict
        Each with ``name``, ``description``, ``unit``, ``kind`` (``"gauge"``, or ``"counter"`` for a
        monotonic sum) and ``points``, a list of dicts with ``attributes`` and ``value``: what an
        observable instrument's callback returns as observations.
    """
    return [
        {
            "name": one.info.name, "description": one.info.help, "unit": one.info.unit, "kind": one.info.kind,
            "points": [
                {"attributes": dict(zip(one.info.labels, labels, strict=True)), "value": value}
                for labels, value in one.points.items()],
        }
        for one in read(device, streams=streams, device_memory=device_memory)]


class PrometheusCollector:
    """A collector for `prometheus_client`: all metrics of all pools, read when a scrape asks.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        Where to register; the client's default registry if not given.
    device, streams, device_memory
        As for `read`.

    Raises
    ------
    ImportError
        `prometheus_client` is not installed: ``pip install aclpool[metrics]``.

    Examples
    --------
    >>> acl.metrics.PrometheusCollector()
    >>> prometheus_client.start_http_server(9400)
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, device: int | None = None, streams: bool = True,
        device_memory: bool = True,
    ) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError("prometheus_client is not installed: pip install aclpool[metrics]") from error
        self.device = device
        self.streams = streams
        self.device_memory = device_memory
        self.registry = prometheus_client.REGISTRY if registry is None else registry
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics without values; the registry asks it which names are taken."""
        return families(Reading(info) for info in METRICS.values())

    def collect(self) -> Iterable[Metric]:
        """What a scrape gets."""
        return families(read(self.device, streams=self.streams, device_memory=self.device_memory))

    def close(self) -> None:
        """Take it out of the registry."""
        self.registry.unregister(self)


def families(readings: Iterable[Reading]) -> Iterator[Metric]:
    """Readings as the client's metric families."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for one in readings:
        kind = CounterMetricFamily if one.info.kind == "counter" else GaugeMetricFamily
        family = kind(one.info.name, one.info.help, labels=one.info.labels)
        for labels, value in one.points.items():
            family.add_metric(labels, value)
        yield family
