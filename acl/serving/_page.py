"""The metrics of an engine, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from acl import metrics
from acl.metrics import Distribution, MetricInfo, Reading

if TYPE_CHECKING:
    from prometheus_client import Metric

    from acl.serving._engine import Engine
    from acl.serving._tally import Histogram

__all__ = ["METRICS", "EngineCollector", "metrics_page", "readings"]

MODEL = ("model",)
_INFOS = (
    MetricInfo("aclpool_serving_requests_total", "counter", "1", ("model", "event"),
               "Requests by what became of them; loads, faults, ooms and lane_errors by how often they happened."),
    MetricInfo("aclpool_serving_batches_total", "counter", "1", ("model", "size"),
               "Batches that succeeded, by how many requests shared them."),
    MetricInfo("aclpool_serving_queue_seconds", "histogram", "s", MODEL, "Time of a request in the queue."),
    MetricInfo("aclpool_serving_latency_seconds", "histogram", "s", MODEL, "Time of a request until it was answered."),
    MetricInfo("aclpool_serving_version", "gauge", "1", MODEL, "The number of the version that takes new requests."),
    MetricInfo("aclpool_serving_instances", "gauge", "1", MODEL, "How often the version is loaded."),
    MetricInfo("aclpool_serving_unfinished", "gauge", "1", MODEL, "Its accepted requests that are not over."),
    MetricInfo("aclpool_serving_queued", "gauge", "1", (), "Requests that are accepted and not begun."),
    MetricInfo("aclpool_serving_lanes", "gauge", "1", ("state",), "Lanes by their state; restart if one has ended."),
    MetricInfo("aclpool_serving_lane_faults_total", "counter", "1", ("lane",), "Faults of the device, by lane."),
    MetricInfo("aclpool_serving_promised_bytes", "gauge", "By", (), "What the batches that run may need."),
    MetricInfo("aclpool_serving_room_bytes", "gauge", "By", (), "What they may need at most."),
)
#: All metrics of an engine by name.
METRICS: dict[str, MetricInfo] = {info.name: info for info in _INFOS}


def distribution_of(histogram: Histogram) -> Distribution:
    """Return the values of a histogram."""
    return Distribution(histogram.BOUNDS, tuple(histogram.counts), histogram.sum)


def readings(engine: Engine) -> list[Reading]:
    """Return the engine's metrics with their present values."""
    found = {name: Reading(info) for name, info in METRICS.items()}

    def add(name: str, value: float, *labels: str) -> None:
        found[f"aclpool_serving_{name}"].add(value, *labels)

    with engine.changed:
        for event, count in engine.tally.counts.items():
            add("requests_total", count, "", event)
        for name, version in engine.models.items():
            tally = version.tally
            for event, count in tally.counts.items():
                add("requests_total", count, name, event)
            for size, count in tally.batches.items():
                add("batches_total", count, name, str(size))
            for metric, histogram in (("queue_seconds", tally.waited), ("latency_seconds", tally.took)):
                add(metric, sum(histogram.counts), name)
                found[f"aclpool_serving_{metric}"].distributions[name,] = distribution_of(histogram)
            add("version", version.number, name)
            add("instances", len(version.models), name)
            add("unfinished", version.jobs, name)
        for state in ("working", "failing", "ended"):
            add("lanes", sum(lane.state == state for lane in engine.health().lanes), state)
        for lane in engine.lanes:
            add("lane_faults_total", lane.faults, str(lane.number))
        add("queued", len(engine.queue))
        add("promised_bytes", engine.promised)
        add("room_bytes", engine.room)
    return list(found.values())


class EngineCollector:
    """Collect the metrics of an engine, without its pool's metrics, for a registry of `prometheus_client`.

    Parameters
    ----------
    engine : Engine
        The engine whose metrics are collected.

    Examples
    --------
    >>> prometheus_client.REGISTRY.register(acl.serving.EngineCollector(engine))
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, so that the registry can check their names."""
        return metrics.families(Reading(info) for info in METRICS.values())

    def collect(self) -> Iterable[Metric]:
        """Return the metrics with their current values, for a scrape."""
        return metrics.families(readings(self.engine))


class _Page:
    """The part of a registry that `generate_latest` uses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def collect(self) -> Iterable[Metric]:
        return metrics.families([*readings(self.engine), *metrics.read(self.engine.options.device)])


def metrics_page(engine: Engine) -> bytes:
    """Return the metrics of an engine and of the pools on its device, in the text format of Prometheus.

    Serve the bytes at a route such as ``/metrics``, with the type `prometheus_client.CONTENT_TYPE_LATEST`.

    Raises
    ------
    ImportError
        `prometheus_client` is not installed: ``pip install aclpool[serve]``.
    """
    try:
        from prometheus_client import generate_latest
    except ImportError as error:
        raise ImportError("prometheus_client is not installed: pip install aclpool[serve]") from error
    return generate_latest(cast(Any, _Page(engine)))
