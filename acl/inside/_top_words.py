"""The words that a caller may send to `aclpool top`'s socket, and the answer to each.

A caller sends one line with one word: `snapshot`, `metrics` or `trim`.  A caller that sends nothing gets the
snapshot.  `_top` has checked before that the caller is the user or root.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from acl.bind._error import AclError
from acl.inside import _top

__all__ = ["answer_to"]

WORD_SECONDS = 0.2              # longest wait for the caller's word
LONGEST_WORD = 32                   # bytes, including the end of the line


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


def trim_document() -> dict[str, Any]:
    """Make each pool give back idle memory, without waiting for a stream.  Return how much each gave back."""
    from acl.pool._pool import open_pools

    pools: list[dict[str, Any]] = []
    for pool in open_pools():
        try:
            told = {"name": pool.name, "device": pool.device, "given": pool.trim(idle=True),
                    "reserved": pool.stats().reserved, "error": ""}
        except AclError as error:
            told = {"name": pool.name, "device": pool.device, "given": 0, "reserved": 0, "error": str(error)}
        except RuntimeError:  # the pool was closed meanwhile, or belongs to the process that this one was forked from
            continue
        pools.append(told)
    return {**_top.FORMAT, "pid": os.getpid(), "pools": pools}


WORDS = {"snapshot": lambda: _top.snapshot(), "metrics": metrics_document, "trim": trim_document}


def answer_to(caller: socket.socket) -> dict[str, Any]:
    """Read the caller's word and return the answer.  The answer to an unknown word names the known words."""
    word = word_of(caller)
    make = WORDS.get(word)
    if make is None:
        return {**_top.FORMAT, "pid": os.getpid(), "error": f"expected one of {', '.join(WORDS)}, got {word!r}"}
    return make()
