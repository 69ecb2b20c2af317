"""The service of examples/serving as a Ray Serve deployment: several replicas, each with a pool of its own.

    pip install aclpool "ray[serve]"; python examples/ray_serve.py --replicas 2

Each replica is a process with the same `Engine` and task as the single server. Ray starts them, spreads the requests,
and exports the metrics of each replica's pool and ledger under the replica's name. This file deploys, sends requests,
checks that the answers of all replicas agree, prints the metrics, and shuts down. On NPUs give each replica a device:
``ray_actor_options={"resources": {"NPU": 1}}``. If Ray is not installed, it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import sys
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

log = logging.getLogger("ray.serve")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "serving"))
os.environ.setdefault("ACL_BACKEND", "sim")

TEXT = "the quick brown fox jumps over the lazy dog " * 5


class Replica:
    """The class of the deployment: it has an engine, and answers an HTTP request with an embedding."""

    def __init__(self, limit: str) -> None:
        from ray import serve
        from ray.util.metrics import Gauge
        from task import TextTask

        from acl.serving import Engine, Options

        self.name = serve.get_replica_context().replica_id.unique_id
        self.task = TextTask()
        self.engine = Engine(Options(limit=limit))
        self.engine.load("text", self.task)
        self.ledger = Gauge("aclpool_ledger_bytes", "A device's memory by owner.", tag_keys=("owner", "replica_name"))
        self.pools: dict[str, Gauge] = {}
        self.teller = asyncio.get_event_loop().create_task(self.tell())

    async def tell(self) -> None:
        """Once a second, set Ray's metrics to those of the pool, and to the ledger's sums."""
        while True:
            try:
                await asyncio.to_thread(self.tell_once)
            except Exception:
                log.exception("the metrics could not be told")
            await asyncio.sleep(1)

    def tell_once(self) -> None:
        from ray.util.metrics import Gauge

        import acl
        from acl import metrics

        acl.Device(self.engine.options.device).use()
        sums: Counter[str] = Counter()
        for row in acl.memory_ledger(self.engine.options.device).rows:
            sums[row.owner] += row.bytes
        for owner, total in sums.items():
            self.ledger.set(total, {"owner": owner, "replica_name": self.name})
        for one in metrics.snapshot(self.engine.options.device, streams=False):
            if any("value" not in point for point in one["points"]):
                continue                        # a histogram, which a Gauge cannot show
            gauge = self.pools.get(one["name"])
            if gauge is None:
                gauge = self.pools[one["name"]] = Gauge(
                    one["name"], one["description"], tag_keys=(*metrics.METRICS[one["name"]].labels, "replica_name"))
            for point in one["points"]:
                gauge.set(point["value"], {**point["attributes"], "replica_name": self.name})

    async def __call__(self, request: Any) -> Any:
        from answers import BODY_BYTES, answer, parsed, too_large
        from starlette.responses import JSONResponse

        body = await request.body()             # already received by Ray's proxy
        status, content, headers = (
            too_large() if len(body) > BODY_BYTES else await answer(self.engine, self.task, parsed(body)))
        return JSONResponse({**content, "replica": self.name}, status, headers)

    def check_health(self) -> None:
        """Raise an error if all lanes fail or one has ended. Ray calls this, and then replaces the replica."""
        if not self.engine.healthy:
            raise RuntimeError("every lane is failing, or one has ended")

    def __del__(self) -> None:
        if hasattr(self, "engine"):             # false if __init__ failed
            self.engine.close(grace_s=30)


def ask(port: int, number: int) -> tuple[int, dict[str, Any]]:
    """Send a request with one of ten texts. Return the text's number and the answer."""
    body = json.dumps({"input": TEXT[: 20 + 15 * (number % 10)]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return number % 10, json.load(answer)


def exported(port: int) -> list[tuple[str, str, float]]:
    """Return (replica, what is counted, bytes) for the ledger and the pools, from Ray's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = []
    for line in lines:
        if match := re.match(r"ray_aclpool_(ledger|reserved|requested)_bytes\{(.*)\} (\S+)$", line):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            what = " ".join(filter(None, [match[1], labels.get("owner")]))
            found.append((labels["replica_name"], what, float(match[3])))
    return sorted(found)


def exported_of(replicas: set[str], port: int) -> list[tuple[str, str, float]]:
    """Return what `exported` returns, once all these replicas are in it: Ray collects metrics every ten seconds."""
    for _ in range(60):
        told = exported(port)
        if replicas <= {replica for replica, what, nbytes in told if what == "reserved" and nbytes > 0}:
            return told
        time.sleep(1)
    raise SystemExit(f"replicas {replicas} answered, and not all of their pools are in the metrics")


def check(answers: list[tuple[int, dict[str, Any]]]) -> Counter[str]:
    """Check that a text has the same embedding in all replicas. Return the number of answers of each replica."""
    first: dict[int, list[float]] = {}
    for which, answer in answers:
        known = first.setdefault(which, answer["embedding"])
        if max(abs(a - b) for a, b in zip(known, answer["embedding"], strict=True)) > 1e-4:
            raise SystemExit(f"text {which}: the replicas do not agree")
    return Counter(answer["replica"] for _, answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--limit", default="128MiB", help="of each replica's pool")
    given = parser.parse_args()
    try:
        import ray
        from ray import serve
    except ImportError:
        print("ray is not installed: pip install 'ray[serve]'")
        return
    path = os.pathsep.join([str(HERE / "serving"), os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=given.replicas + 1, include_dashboard=False, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": path, "ACL_BACKEND": os.environ["ACL_BACKEND"]}})
    try:
        serve.start(http_options={"port": given.port})
        deployment = serve.deployment(
            num_replicas=given.replicas, max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})(Replica)
        serve.run(deployment.bind(given.limit))
        started = time.perf_counter()
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda n: ask(given.port, n), range(given.requests)))
        seconds = time.perf_counter() - started
        found = check(answers)
        print(f"{len(answers)} answers in {seconds:.1f} s by {len(found)} replicas: {dict(found)}")
        for replica, what, nbytes in exported_of(set(found), ray.nodes()[0]["MetricsExportPort"]):
            print(f"replica {replica}: {what} {nbytes / 2**20:.1f} MiB")
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
