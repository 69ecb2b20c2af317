"""The HTTP side: Starlette routes around an `Engine`, and a uvicorn server that drains on SIGTERM.

    pip install aclpool[serve]; python examples/serving/app.py --port 8000 --limit 256MiB

POST /v1/embeddings {"input": "text"}    the answer, or 429, 503 (with Retry-After), 413
GET  /healthz                            200, or 503 while it drains or every lane is failing
GET  /metrics                            Prometheus's text format
GET  /memory                             where the memory is: a page in a browser, JSON for others
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from engine import Engine, Options, Refused
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from task import TextTask

import acl
from acl.metrics import PrometheusCollector

__all__ = ["Server", "application", "main"]

PAGE = Path(__file__).with_name("memory.html")
#: One address, two answers: a browser that kept the page would give it to the page's own question.
FRESH = {"Cache-Control": "no-store", "Vary": "Accept"}


async def embed(request: Request) -> Response:
    """One text; waits for its batch without holding a thread."""
    engine: Engine = request.app.state.engine
    try:
        body = json.loads(await request.body())
        item = engine.task.item(body["input"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return JSONResponse({"error": f"expected {{'input': text}}: {error}"}, 400)
    try:
        vector, shared = await asyncio.wrap_future(engine.submit(item))
    except Refused as refused:
        after = {} if refused.after is None else {"Retry-After": str(max(1, round(refused.after)))}
        return JSONResponse({"error": refused.reason}, refused.status, after)
    except acl.AclError as error:
        return JSONResponse({"error": str(error)}, 500)
    return JSONResponse({"embedding": vector, "length": len(item), "batch": shared})


async def health(request: Request) -> Response:
    engine: Engine = request.app.state.engine
    state = "draining" if engine.draining else "ok" if engine.healthy else "failing"
    return JSONResponse({"state": state}, 200 if state == "ok" else 503)


async def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)


class EngineCollector:
    """What the service knows of itself, for `prometheus_client`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self.engine
        events = CounterMetricFamily("serving_requests", "Requests by what became of them.", labels=["event"])
        for name, count in sorted(engine.counts.items()):
            events.add_metric([name], count)
        sizes = CounterMetricFamily("serving_batches", "Batches by how many requests shared them.", labels=["size"])
        for size, count in sorted(engine.batches.items()):
            sizes.add_metric([str(size)], count)
        yield from (events, sizes)
        yield GaugeMetricFamily("serving_queued", "Requests that are accepted and not begun.", len(engine.queue))
        yield GaugeMetricFamily("serving_promised_bytes", "What accepted requests may need.", engine.promised)
        yield GaugeMetricFamily("serving_room_bytes", "What they may need at most.", engine.room)


def picture(engine: Engine) -> dict[str, Any]:
    """Where the memory is at this moment, and what the engine is doing."""
    ledger = acl.memory_ledger(engine.options.device)
    return {
        "time": time.time(),
        "ledger": asdict(ledger),
        "pool": None if engine.pool is None else asdict(engine.pool.stats()),
        "engine": {
            "counts": dict(engine.counts), "queued": len(engine.queue), "promised": engine.promised,
            "room": engine.room, "batches": dict(engine.batches),
        },
    }


async def memory(request: Request) -> Response:
    engine: Engine = request.app.state.engine
    if "text/html" in request.headers.get("accept", ""):
        return FileResponse(PAGE, headers=FRESH)
    # The ledger asks the device, so a thread of its own, with a context.
    return JSONResponse(await asyncio.to_thread(picture_here, engine), headers=FRESH)


def picture_here(engine: Engine) -> dict[str, Any]:
    acl.Device(engine.options.device).use()
    return picture(engine)


def application(engine: Engine) -> Starlette:
    """The routes around an engine; closing the application drains it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    app = Starlette(lifespan=lifespan, routes=[
        Route("/v1/embeddings", embed, methods=["POST"]),
        Route("/healthz", health), Route("/metrics", metrics), Route("/memory", memory),
    ])
    app.state.engine = engine
    app.state.registry = CollectorRegistry()
    app.state.registry.register(EngineCollector(engine))
    PrometheusCollector(app.state.registry, device=engine.options.device)
    return app


class Server(uvicorn.Server):
    """Drains from the signal on: what is accepted is answered, /healthz tells the balancer."""

    def __init__(self, engine: Engine, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.engine = engine

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.engine.draining = True
        super().handle_exit(sig, frame)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--lanes", type=int, default=2, help="streams, each with a thread")
    parser.add_argument("--batch", type=int, default=8, help="most requests in one batch")
    parser.add_argument("--queue", type=int, default=256, help="most requests that wait")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder")
    parser.add_argument("--limit", default="1GiB", help="of the pool")
    parser.add_argument("--headroom", default="0", help="bytes that the pool leaves free on the device")
    parser.add_argument("--no-pool", action="store_true", help="the driver's allocator, for comparison")
    given = parser.parse_args(arguments)
    try:
        engine = Engine(TextTask(given.layers), Options(
            lanes=given.lanes, batch=given.batch, queue=given.queue, limit=given.limit, headroom=given.headroom,
            pool=not given.no_pool))
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    config = uvicorn.Config(application(engine), given.host, given.port, log_level="warning", access_log=False)
    Server(engine, config).run()


if __name__ == "__main__":
    main()
