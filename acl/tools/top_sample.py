"""What `aclpool top` knows: the processes that serve, asked one after the other, and rates between two answers.

Sockets whose process is gone are removed on the way.  No device is touched and no pool is made here.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acl.inside._top import FORMAT, top_folder

__all__ = ["Answer", "PoolRates", "Rates", "ask", "ask_all", "rates_between", "rates_of", "sample", "stream_key"]

ASK_SECONDS = 2.0
MOST_BYTES = 32 << 20


@dataclass(frozen=True)
class Rates:
    """What a pool or one of its streams did in an interval.

    Attributes
    ----------
    allocations, slow : float
        A second: allocations, and those that made a driver call.
    hit_rate, fast_rate : float or None
        Parts of the interval's allocations: served by the exact-size caches, and without a driver call; None if
        there were none.
    """

    allocations: float = 0.0
    slow: float = 0.0
    hit_rate: float | None = None
    fast_rate: float | None = None


@dataclass(frozen=True)
class PoolRates(Rates):
    """What a pool did in an interval.

    Attributes
    ----------
    driver_calls : float
        A second: calls of the driver.
    ooms : int
        Allocations in the interval that could not be served.
    streams : dict of str to Rates
        The same for each stream, by `stream_key`.
    """

    driver_calls: float = 0.0
    ooms: int = 0
    streams: dict[str, Rates] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A process's snapshot, and its pools' rates since the one before."""

    pid: int
    document: dict[str, Any]
    rates: dict[str, PoolRates] = field(default_factory=dict)

    @property
    def pools(self) -> list[dict[str, Any]]:
        """The process's pools."""
        return list(self.document["pools"])

    @property
    def command(self) -> str:
        """How the process was started."""
        return str(self.document.get("command", ""))


def process_lives(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def connect(caller: socket.socket, path: Path) -> None:
    """Connect, in turn: where many ask at once, Linux says "again" instead of waiting."""
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        try:
            return caller.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def ask(path: Path) -> dict[str, Any] | None:
    """A socket's answer; None if there is none, and if its process is gone it is removed."""
    data = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(ASK_SECONDS)
            connect(caller, path)
            while (part := caller.recv(1 << 16)) and len(data) < MOST_BYTES:
                data += part
        document = json.loads(data)
    except ConnectionRefusedError:
        pid = path.name.split("-", 1)[0]
        if pid.isdigit() and not process_lives(int(pid)):
            with contextlib.suppress(OSError):
                path.unlink()
        return None
    except (OSError, ValueError):
        return None
    known = isinstance(document, dict) and all(document.get(key) == value for key, value in FORMAT.items())
    return document if known else None


def ask_all(pids: set[int] | None = None, folder: Path | None = None) -> list[Answer]:
    """The answers of all processes that serve, or of these, by process id."""
    folder = folder or top_folder()
    try:
        paths = sorted(folder.glob("*.sock"))
    except OSError:
        return []
    answers = []
    for path in paths:
        pid = path.name.split("-", 1)[0]
        if pids is not None and (not pid.isdigit() or int(pid) not in pids):
            continue
        document = ask(path)
        if document is not None and document["pid"] != os.getpid():
            answers.append(Answer(int(document["pid"]), document))
    return sorted(answers, key=lambda answer: answer.pid)


# ---- rates ----

def stream_key(stream: dict[str, Any]) -> str:
    """What tells a stream's part from the others of its pool."""
    return f"{stream['kind']} {stream['stream']:#x}"


def total(streams: list[dict[str, Any]], *names: str) -> int:
    """The sum over streams of some of their counters."""
    return sum(int(stream.get(name, 0)) for stream in streams for name in names)     # an older service has fewer


def served(streams: list[dict[str, Any]]) -> int:
    """Allocations that streams have served."""
    return total(streams, "hits", "fits", "recalls", "slow") - total(streams, "failures")


def counted(before: list[dict[str, Any]], after: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The fields of `Rates` between two readings of the same streams; none is negative."""
    allocations = max(0, served(after) - served(before))
    slow = max(0, total(after, "slow") - total(before, "slow"))
    hits = max(0, total(after, "hits") - total(before, "hits"))
    return {
        "allocations": allocations / seconds, "slow": slow / seconds,
        "hit_rate": min(1.0, hits / allocations) if allocations else None,
        "fast_rate": max(0.0, 1 - slow / allocations) if allocations else None,
    }


def rates_of(before: dict[str, Any], after: dict[str, Any], seconds: float) -> PoolRates:
    """What a pool did between two of its snapshots."""
    if seconds <= 0:
        return PoolRates()
    known = {stream_key(stream): stream for stream in before["streams"]}
    streams = {key: Rates(**counted([known[key]], [stream], seconds))
               for stream in after["streams"] if (key := stream_key(stream)) in known}
    return PoolRates(
        **counted(before["streams"], after["streams"], seconds), streams=streams,
        driver_calls=max(0, after["driver_calls"] - before["driver_calls"]) / seconds,
        ooms=max(0, after["ooms"] - before["ooms"]),
    )


def rates_between(before: list[Answer], after: list[Answer]) -> list[Answer]:
    """The later answers, with the rates of the pools that were there before."""
    known = {answer.pid: answer for answer in before}
    found = []
    for answer in after:
        old = known.get(answer.pid)
        rates = {}
        if old is not None:
            seconds = answer.document["time"] - old.document["time"]
            pools = {pool["name"]: pool for pool in old.pools}
            rates = {pool["name"]: rates_of(pools[pool["name"]], pool, seconds)
                     for pool in answer.pools if pool["name"] in pools}
        found.append(Answer(answer.pid, answer.document, rates))
    return found


def sample(interval: float, pids: set[int] | None) -> list[Answer]:
    """Two rounds of questions, `interval` seconds apart; one without rates if it is 0."""
    before = ask_all(pids)
    if interval <= 0 or not before:
        return before
    time.sleep(interval)
    return rates_between(before, ask_all(pids))
