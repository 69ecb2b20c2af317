"""Another process for `aclpool top` and its like: a socket in its name that gives a chosen answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["answering"]


@contextlib.contextmanager
def answering(folder: Path, said: bytes, number: int = 0) -> Iterator[list[bytes]]:
    """Serve a socket in the name of another living process, its socket `number`; yield the list of what it was asked.

    Each caller gets the answer `said`.
    """
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"{os.getppid()}-{number}.sock"))
        listener.listen()

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller = listener.accept()[0]
                    with caller, contextlib.suppress(OSError):
                        asked.append(caller.recv(64))
                        caller.sendall(said)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
