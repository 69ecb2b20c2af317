"""A process that exits while a pool has memory and a stream has work; `order.ask_exits` starts it."""

from __future__ import annotations

import os
import signal
import time

import acl
from acl import rt
from acl.tools.doctor.deep.memory import must

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Exit in the way that the argument names: closed, open, _exit, exception or SIGTERM."""
    acl.Device(0).use()
    pool = acl.Pool(0, limit="64MiB")
    stream = acl.Stream(0)
    buffer = pool.alloc("4MiB", stream)
    must(rt.memset_async(buffer.address, 4 << 20, 1, 4 << 20, stream.handle), "aclrtMemsetAsync")
    how = arguments[0]
    if how == "closed":
        stream.synchronize()
        buffer.close()
        stream.close()
        pool.close()
    elif how == "_exit":
        os._exit(0)
    elif how == "exception":
        raise SystemExit(3)
    elif how == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
