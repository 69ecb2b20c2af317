"""Holds the work of a stream back until a test lets it continue."""

from __future__ import annotations

import threading

import acl

__all__ = ["GATE_SECONDS", "Gate"]

GATE_SECONDS = 30.0


class Gate:
    """Stops a stream's work until `open` is called or its `with` block ends, but for `GATE_SECONDS` at most."""

    def __init__(self, stream: acl.Stream) -> None:
        self.opened = threading.Event()
        stream.launch(self.opened.wait, GATE_SECONDS)

    def open(self, after: float = 0.0) -> None:
        """Let the work continue, now or in `after` seconds."""
        if after:
            threading.Timer(after, self.opened.set).start()
        else:
            self.opened.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self.open()
