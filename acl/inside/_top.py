"""The service's side of `aclpool top`: a socket that answers one word, usually with a snapshot of the pools.

It is off unless `serve_top()` is called or `ACL_POOL_TOP=1` is set before the import.  A thread waits in `accept`, so
it costs nothing while no caller asks.  An answer takes the arenas' locks as `Pool.stats` does, and about 0.2 ms of the
interpreter.  The socket lies in a folder that only the user can access, and the kernel reports who asks: only the user
and root get an answer.  A caller can change one thing: the word `trim` makes the pools give back idle memory.  After a
fork the child serves on a socket of its own, and only its own pools.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import secrets
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.bind._log import warning

if TYPE_CHECKING:
    from acl.inside._snapshot import StreamStats
    from acl.pool._pool import Pool

__all__ = ["FORMAT", "TopServer", "serve_top", "snapshot", "top_folder"]

FORMAT = {"format": "aclpool top", "version": 1}
ANSWER_SECONDS = 2.0            # longest time to send an answer, and to wait for the thread's end
LONGEST_PATH = 107       # most bytes of the path of a Unix socket, without the zero at its end
STREAM_NUMBERS = (
    "stream", "kind", "reserved", "allocated", "allocated_peak", "requested", "cached", "free", "waiting",
    "asleep", "largest_free", "live_blocks", "hits", "fits", "recalls", "slow", "failures", "frees", "steals",
    "donated", "syncs",
)

logger = logging.getLogger("acl.top")


# ---- where ----

def top_folder() -> Path:
    """Return the folder of the sockets: `ACL_POOL_TOP_DIR`, else one in the user's runtime or temporary folder."""
    chosen = os.environ.get("ACL_POOL_TOP_DIR")
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "aclpool"
    return Path(tempfile.gettempdir()) / f"aclpool-{os.getuid()}"


def check_folder(folder: Path, *, reading: bool = False) -> None:
    """Refuse a folder that another user owns or can write to.  Root may read a folder that `ACL_POOL_TOP_DIR` names.

    Raises
    ------
    PermissionError
        The folder is refused; the message has its name and the reason.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder}: expected a folder for aclpool top's sockets, got something else")
    ours = found.st_uid in (os.geteuid(), 0)
    named = reading and os.geteuid() == 0 and bool(os.environ.get("ACL_POOL_TOP_DIR"))
    if not (ours or named) or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder}: expected a folder of user {os.geteuid()} to which nobody else may write, got one of user "
            f"{found.st_uid} with mode {found.st_mode & 0o777:o}; remove it, or set ACL_POOL_TOP_DIR")


def process_lives(pid: int) -> bool:
    """Return True if a process with this number exists."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def sweep(folder: Path) -> None:
    """Remove the sockets of processes that ended without removing them, through `os._exit` or a signal."""
    for path in folder.glob("*.sock"):
        pid = path.name.split("-", 1)[0]
        if pid.isdigit() and not process_lives(int(pid)):
            with contextlib.suppress(OSError):
                path.unlink()


def peer_of(connection: socket.socket) -> int:
    """Return the user number of the process at the other end of the connection."""
    user: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    return user


# ---- what ----

def stream_numbers(one: StreamStats) -> dict[str, Any]:
    """Return the statistics of one stream as plain values."""
    return {"name": one.name, **{name: getattr(one, name) for name in STREAM_NUMBERS}}


def pool_numbers(pool: Pool) -> dict[str, Any]:
    """Return the statistics of a pool as plain values."""
    from acl.inside import _books

    stats = pool.stats()
    oom = pool.last_oom()
    return {
        "name": pool.name, "device": pool.device, "card": _books.card(pool.device), "limit": stats.limit,
        "reserved": stats.reserved, "reserved_peak": stats.reserved_peak,
        "allocated": stats.allocated, "requested": stats.requested,
        "requested_peak": stats.requested_peak, "spare": stats.spare, "ooms": stats.ooms,
        "asleep": stats.asleep,
        "driver_calls": sum(stats.driver_calls.values()), "tags": stats.tags,
        "streams": [stream_numbers(one) for one in stats.streams], "last_oom": str(oom) if oom else "",
    }


def device_numbers(ordinal: int) -> dict[str, Any]:
    """Return the sums of a device's ledger as plain values."""
    from acl.inside import _books
    from acl.inside._ledger import memory_ledger

    ledger = memory_ledger(ordinal)
    return {
        "device": ordinal, "card": _books.card(ordinal),
        "total": ledger.total, "free": ledger.free, "pools": ledger.sum(owner="pool"),
        "process": ledger.sum(owner="process"), "others": ledger.sum(owner="others") + ledger.sum(owner="rest"),
        "told_apart": ledger.components is not None,
    }


def snapshot() -> dict[str, Any]:
    """Return the answer of the socket: this process's pools and their devices."""
    from acl.bind.generated._libacl import backend
    from acl.pool._pool import open_pools

    pools, devices = [], []
    for pool in open_pools():
        with contextlib.suppress(Exception):   # the pool was closed meanwhile, or belongs to the parent process
            pools.append(pool_numbers(pool))
    for ordinal in sorted({pool["device"] for pool in pools}):
        with contextlib.suppress(Exception):   # if the device is lost, the pools' numbers are still valid
            devices.append(device_numbers(ordinal))
    return {
        **FORMAT, "pid": os.getpid(), "command": command_line(), "backend": backend() if pools else "",
        "time": time.monotonic(), "pools": pools, "devices": devices,
    }


def command_line() -> str:
    """Return the command line of this process."""
    try:
        words = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return " ".join(word.decode(errors="replace") for word in words)
    except OSError:
        return " ".join(sys.argv)


# ---- the server ----

class TopServer:
    """A socket and the thread that answers on it; made by `serve_top`.

    Attributes
    ----------
    path : str
        Path of the socket.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder)
        sweep(folder)
        self.pid = os.getpid()
        self.closing = False
        self.path = str(folder / f"{self.pid}-{secrets.token_hex(4)}.sock")
        if len(os.fsencode(self.path)) > LONGEST_PATH:
            raise ValueError(f"expected a socket's path of at most {LONGEST_PATH} bytes, got {self.path!r}; "
                             "set ACL_POOL_TOP_DIR to a shorter one")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o600)
        self.socket.listen(64)
        self.thread = threading.Thread(target=self.run, name="acl-top", daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Answer until the socket is closed."""
        while True:
            try:
                caller, _ = self.socket.accept()
            except OSError:
                if self.closing or self.socket.fileno() < 0:
                    return
                time.sleep(0.1)                 # a temporary error, such as no free file descriptor
                continue
            with caller:
                try:
                    self.answer(caller)
                except Exception:
                    logger.debug("no answer for aclpool top", exc_info=True)

    def answer(self, caller: socket.socket) -> None:
        """Answer one caller's word, if the caller is the user or root."""
        from acl.inside._top_words import answer_to

        if peer_of(caller) not in (os.geteuid(), 0):
            return
        told = json.dumps(answer_to(caller)).encode() + b"\n"
        caller.settimeout(ANSWER_SECONDS)
        caller.sendall(told)

    def close(self) -> None:
        """Stop answering and remove the socket; a second call does nothing."""
        if self.pid != os.getpid():   # in a forked child: the socket is the parent's
            return
        self.closing = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        if self.thread is not threading.current_thread():
            self.thread.join(ANSWER_SECONDS)

    def __enter__(self) -> TopServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Serving:
    """The one server of this process."""

    lock = threading.Lock()
    server: TopServer | None = None
    hooked = False


def serve_top() -> TopServer:
    """Make this process visible to `aclpool top`, and return its server.

    The socket is in `ACL_POOL_TOP_DIR`, else in the user's runtime folder; only the user and root get an
    answer. Setting `ACL_POOL_TOP=1` before the import does the same.

    Returns
    -------
    TopServer
        The server, with the socket's `path`; its `close()` stops it. A second call returns the same server.

    Raises
    ------
    OSError
        The socket cannot be made; a `PermissionError` if other users can access its folder.
    """
    with Serving.lock:
        server = Serving.server
        if server is None or server.pid != os.getpid() or server.socket.fileno() < 0:
            server = Serving.server = TopServer(top_folder())
        if not Serving.hooked:
            Serving.hooked = True
            atexit.register(stop)
            os.register_at_fork(after_in_child=serve_in_child)
        return server


def stop() -> None:
    """Close the server, if there is one."""
    if Serving.server is not None:
        Serving.server.close()


def serve_in_child() -> None:
    """Start a server in a forked child, with a socket of its own, if the parent has one."""
    Serving.lock = threading.Lock()
    server = Serving.server
    if server is None or server.socket.fileno() < 0:
        return
    server.socket.close()
    try:
        made = serve_top()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:                    # such children end by os._exit, after multiprocessing's finalizers
            util.register_after_fork(made, lambda server: util.Finalize(server, server.close, exitpriority=0))
    except (OSError, ValueError) as error:
        warning("top", "the child of a fork cannot be seen by aclpool top: %s", error)


def serve_if_asked() -> None:
    """Start the server at `import acl` if `ACL_POOL_TOP` is set; an error never stops the service."""
    try:
        serve_top()
    except (OSError, ValueError) as error:
        warning("top", "ACL_POOL_TOP is set, but aclpool top will not see this process: %s", error)
