"""The HTTP server: Starlette routes around an `Engine`, and a uvicorn server that drains on SIGTERM.

    pip install aclpool[serve]; python examples/serving/app.py --port 8000 --limit 256MiB

POST /v1/embeddings {"input": "text"}    the answer, or 400, 413, 429, 503 (with Retry-After)
GET  /healthz                            200, or 503 while it drains or every lane is failing
GET  /metrics                            Prometheus's text format
GET  /memory                             the use of the memory: a page for browsers, JSON for others
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from answers import BODY_BYTES, answer, parsed, too_large
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from task import TextTask

import acl
from acl.serving import Engine, Options, metrics_page

__all__ = ["Server", "application", "main"]

#: Seconds after the grace period, in which each request that still waits is answered that the server is down.
ANSWER_S = 10
PAGE = Path(__file__).with_name("memory.html")
#: The address /memory has two answers. A browser that cached the page would give it to the page's own request for
#: JSON.
FRESH = {"Cache-Control": "no-store", "Vary": "Accept"}


async def embed(request: Request) -> Response:
    """Answer a request for one text; the rest of a body that is too large is not read."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            break
    status, content, headers = too_large() if len(body) > BODY_BYTES else await answer(
        request.app.state.engine, request.app.state.task, parsed(body))
    return JSONResponse(content, status, headers)


async def health(request: Request) -> Response:
    engine: Engine = request.app.state.engine
    health = engine.health()
    content = {"state": health.state, "lanes": [lane._asdict() for lane in health.lanes]}
    return JSONResponse(content, 200 if health.state == "ok" else 503)


async def metrics(request: Request) -> Response:
    return Response(metrics_page(request.app.state.engine), media_type=CONTENT_TYPE_LATEST)


def picture(engine: Engine) -> dict[str, Any]:
    """Return the present use of the memory, and the state of the engine."""
    ledger = acl.memory_ledger(engine.options.device)
    return {
        "time": time.time(),
        "ledger": asdict(ledger),
        "pool": None if engine.pool is None else asdict(engine.pool.stats()),
        "engine": {
            "counts": dict(engine.counts), "queued": len(engine.queue), "promised": engine.promised,
            "room": engine.room, "lanes_ended": len(engine.ended),
        },
    }


async def memory(request: Request) -> Response:
    engine: Engine = request.app.state.engine
    if "text/html" in request.headers.get("accept", ""):
        return FileResponse(PAGE, headers=FRESH)
    # The ledger asks the device, so it runs on another thread, with a context.
    return JSONResponse(await asyncio.to_thread(picture_here, engine), headers=FRESH)


def picture_here(engine: Engine) -> dict[str, Any]:
    acl.Device(engine.options.device).use()
    return picture(engine)


def application(engine: Engine, task: TextTask, grace_s: float | None = None) -> Starlette:
    """Return the routes around an engine; closing the application drains it, for at most `grace_s` seconds."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close, grace_s)

    app = Starlette(lifespan=lifespan, routes=[
        Route("/v1/embeddings", embed, methods=["POST"]),
        Route("/healthz", health), Route("/metrics", metrics), Route("/memory", memory),
    ])
    app.state.engine = engine
    app.state.task = task
    return app


class Server(uvicorn.Server):
    """Drains after a signal: accepted requests are answered, and /healthz tells the load balancer.

    After the grace period, or after a second signal, each remaining request is answered that the server is down.
    """

    def __init__(self, engine: Engine, config: uvicorn.Config, grace_s: float) -> None:
        super().__init__(config)
        self.engine, self.grace_s = engine, grace_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        again, hasty = self.engine.draining, self.engine.hasty
        self.engine.drain()
        timer = threading.Timer(0 if again else self.grace_s, self.engine.cut_short)
        timer.daemon = True
        timer.start()
        if hasty or not again:                  # a second handle_exit makes uvicorn close all connections
            super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port; raise OSError if that fails."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)               # two sockets may bind a port, but only one may listen
    except BaseException:
        made.close()
        raise
    return made


def port_of(text: str) -> int:
    """Return a port's number; raise an argparse error for any other text."""
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number of 0 to 65535, not {text!r}")
    return int(text)


def seconds_of(text: str) -> float:
    """Return a time to wait in seconds; raise an argparse error for any other text."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"seconds are a number from 0 on, not {text!r}")
    return seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port_of, default=8000)
    parser.add_argument("--lanes", type=int, default=2, help="streams, each with a thread")
    parser.add_argument("--batch", type=int, default=8, help="most requests in one batch")
    parser.add_argument("--queue", type=int, default=256, help="most requests that wait")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder")
    parser.add_argument("--limit", default="1GiB", help="of the pool")
    parser.add_argument("--headroom", default="0", help="bytes that the pool leaves free on the device")
    parser.add_argument("--no-pool", action="store_true", help="the driver's allocator, for comparison")
    parser.add_argument("--grace", type=seconds_of, default=30, help="seconds to answer what is accepted, at the end")
    given = parser.parse_args(arguments)
    try:
        door = listening(given.host, given.port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        parser.exit(1, f"{parser.prog}: cannot listen on {given.host}:{given.port}: {reason}\n")
    try:
        engine = Engine(Options(
            lanes=given.lanes, batch=given.batch, queue=given.queue, limit=given.limit, headroom=given.headroom,
            pool=not given.no_pool))
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    except acl.AclError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    task = TextTask(given.layers)
    try:
        engine.load("text", task, instances=given.lanes, warm=[[task.item("warm")]])
    except acl.AclError as error:
        engine.close(0)
        parser.exit(1, f"{parser.prog}: {error}\n")
    config = uvicorn.Config(
        application(engine, task, 1.0), log_level="warning", access_log=False,
        timeout_graceful_shutdown=round(given.grace) + ANSWER_S)
    try:
        Server(engine, config, given.grace).run([door])
    except KeyboardInterrupt:               # uvicorn has shut down in order, and raises it again
        parser.exit(130)
    finally:
        engine.close(0)                     # no effect if the server has closed it; needed if uvicorn failed before


if __name__ == "__main__":
    main()
