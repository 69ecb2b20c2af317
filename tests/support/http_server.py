"""An ASGI application behind a uvicorn server in a thread, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

__all__ = ["served"]


@contextmanager
def served(application: Any) -> Iterator[int]:
    """Serve an application on a free port, and yield the port."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(300)
