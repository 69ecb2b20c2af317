"""The words that a caller may send to `aclpool top`'s socket, and the answer to each.

A caller sends one line with one word: `snapshot` or `metrics`.  A caller that sends nothing gets the
snapshot.  `_top` has checked before that the caller is the user or root.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from acl.inside import _top

__all__ = ["answer_to"]

WORD_SECONDS = 0.2
LONGEST_WORD = 32                   # bytes, with the end of the line


def word_of(caller: socket.socket) -> str:
    """Return the caller's word; `snapshot` if it sends none in `WORD_SECONDS`."""
    said = b""
    caller.settimeout(WORD_SECONDS)
    with contextlib.suppress(TimeoutError):
        while not said.endswith(b"\n") and len(said) < LONGEST_WORD:
            part = caller.recv(LONGEST_WORD - len(said))
            if not part:
                break
            said += part
    return said.decode(errors="replace").strip() or "snapshot"


def metrics_document() -> dict[str, Any]:
    """Return the metrics of this process's pools, as `acl.metrics.snapshot` gives them."""
    from acl import metrics

    return {**_top.FORMAT, "pid": os.getpid(), "worker": metrics.worker_name(), "metrics": metrics.snapshot()}


WORDS = {"snapshot": lambda: _top.snapshot(), "metrics": metrics_document}


def answer_to(caller: socket.socket) -> dict[str, Any]:
    """Read the caller's word and return the answer; for an unknown word, one that names the known ones."""
    word = word_of(caller)
    make = WORDS.get(word)
    if make is None:
        return {**_top.FORMAT, "pid": os.getpid(), "error": f"expected one of {', '.join(WORDS)}, got {word!r}"}
    return make()
