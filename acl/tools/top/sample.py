"""The data of `aclpool top`: it asks the processes one after the other, and computes rates from two answers.

A socket whose process has ended is removed.  This module uses no device and makes no pool.
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

from acl.inside._text import printable
from acl.inside._top import FORMAT, STREAM_NUMBERS, check_folder, peer_of, process_lives, top_folder

__all__ = ["Answer", "PoolRates", "Rates", "ask", "ask_all", "exchange", "rates_between", "rates_of", "sample",
           "sockets", "stream_key"]

ASK_SECONDS = 2.0
MOST_BYTES = 32 << 20
POOL_NUMBERS = (
    "device", "limit", "reserved", "reserved_peak", "allocated", "requested", "requested_peak", "spare", "ooms",
    "asleep", "driver_calls",
)
DEVICE_NUMBERS = ("device", "total", "free", "pools", "process", "others")


@dataclass(frozen=True)
class Rates:
    """Rates of a pool or of one of its streams in an interval.

    Attributes
    ----------
    allocations, slow : float
        Allocations per second, and slow allocations per second (those that called the driver or waited).
    hit_rate, fast_rate : float or None
        Of the allocations in the interval, the share that the exact-size caches served, and the share that was not
        slow.  None if there were no allocations.
    """

    allocations: float = 0.0
    slow: float = 0.0
    hit_rate: float | None = None
    fast_rate: float | None = None


@dataclass(frozen=True)
class PoolRates(Rates):
    """Rates of a pool in an interval.

    Attributes
    ----------
    driver_calls : float
        Driver calls per second.
    ooms : int
        Allocations that failed in the interval.
    streams : dict of str to Rates
        The rates of each stream, by `stream_key`.
    """

    driver_calls: float = 0.0
    ooms: int = 0
    streams: dict[str, Rates] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A process's snapshot, and its pools' rates since the previous snapshot."""

    pid: int
    document: dict[str, Any]
    rates: dict[str, PoolRates] = field(default_factory=dict)

    @property
    def pools(self) -> list[dict[str, Any]]:
        """The process's pools."""
        return list(self.document["pools"])

    @property
    def command(self) -> str:
        """The command line with which the process was started."""
        return str(self.document.get("command", ""))


# ---- checking another process's answer ----

class OddAnswer(ValueError):
    """Raised for an answer that is not that of a service."""


def number_of(table: dict[str, Any], name: str) -> int:
    """Return a 64-bit count from a table; 0 if it is missing, because older services have fewer counts."""
    value = table.get(name, 0)
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise OddAnswer(f"{name} must be a count, not {value!r:.80}")
    return value


def text_of(table: dict[str, Any], name: str) -> str:
    """Return a text from a table, without characters that control a terminal."""
    value = table.get(name, "")
    if not isinstance(value, str):
        raise OddAnswer(f"{name} must be a text, not {type(value).__name__}")
    return printable(value)


def tables_of(table: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of tables from a table."""
    value = table.get(name)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise OddAnswer(f"{name} must be a list of tables")
    return value


def stream_of(told: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: number_of(told, name) for name in STREAM_NUMBERS if name != "kind"}
    return {**numbers, "kind": text_of(told, "kind"), "name": text_of(told, "name")}


def pool_of(told: dict[str, Any]) -> dict[str, Any]:
    tags = told.get("tags", {})
    if not isinstance(tags, dict):
        raise OddAnswer(f"tags must be a table, not {type(tags).__name__}")
    return {
        "name": text_of(told, "name"), **{name: number_of(told, name) for name in POOL_NUMBERS},
        "tags": {printable(tag): number_of(tags, tag) for tag in tags},
        "streams": [stream_of(one) for one in tables_of(told, "streams")], "last_oom": text_of(told, "last_oom"),
    }


def device_of(told: dict[str, Any]) -> dict[str, Any]:
    return {**{name: number_of(told, name) for name in DEVICE_NUMBERS}, "told_apart": told.get("told_apart") is True}


def checked(document: Any) -> dict[str, Any]:
    """Return the answer with every value checked and every text printable.

    Raises
    ------
    OddAnswer
        The document is not the answer of a service.
    """
    if not isinstance(document, dict) or any(document.get(key) != value for key, value in FORMAT.items()):
        raise OddAnswer("not an answer for aclpool top")
    when = document.get("time")
    if not isinstance(when, (int, float)) or not abs(when) < 1e15:
        raise OddAnswer(f"time must be a number of seconds, not {when!r:.80}")
    return {
        **FORMAT, "pid": number_of(document, "pid"), "command": text_of(document, "command"),
        "backend": text_of(document, "backend"), "time": float(when),
        "pools": [pool_of(one) for one in tables_of(document, "pools")],
        "devices": [device_of(one) for one in tables_of(document, "devices")],
    }


# ---- asking ----

def connect(caller: socket.socket, path: Path) -> None:
    """Connect to a socket.

    If many processes connect at once, Linux refuses with EAGAIN; then try again, for `ASK_SECONDS` at most.
    """
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        try:
            return caller.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def receive(caller: socket.socket, seconds: float) -> bytes:
    """Return all bytes that the service sends; raise OSError after `seconds`, or after more than `MOST_BYTES`."""
    parts: list[bytes] = []
    size, due = 0, time.monotonic() + seconds
    while True:
        left = due - time.monotonic()
        if left <= 0 or size > MOST_BYTES:
            raise TimeoutError("the answer has no end")
        caller.settimeout(left)
        try:
            part = caller.recv(1 << 16)
        except ConnectionResetError:            # the service has answered and closed without reading the word
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)


def exchange(path: Path, word: str, seconds: float | None = None) -> Any:
    """Send a word to a socket; return the answer's JSON, or None if there is no valid answer.

    The answer must be complete after `seconds` (default: `ASK_SECONDS`).  A process is not asked if it belongs to a
    user other than root, this user and the owner of the folder.  If the process has ended, remove the socket.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(ASK_SECONDS)
            connect(caller, path)
            if peer_of(caller) not in (0, os.geteuid(), path.parent.stat().st_uid):
                return None
            with contextlib.suppress(BrokenPipeError):      # the service may have answered and closed already
                caller.sendall(f"{word}\n".encode())
            return json.loads(receive(caller, ASK_SECONDS if seconds is None else seconds))
    except ConnectionRefusedError:
        pid = path.name.split("-", 1)[0]
        if pid.isdigit() and not process_lives(int(pid)):
            with contextlib.suppress(OSError):
                path.unlink()
        return None
    except (OSError, ValueError, RecursionError):
        return None


def ask(path: Path) -> dict[str, Any] | None:
    """Return the snapshot of the process behind a socket; None if it gives no valid answer."""
    try:
        return checked(exchange(path, "snapshot"))
    except OddAnswer:
        return None


def sockets(pids: set[int] | None = None, folder: Path | None = None) -> list[Path]:
    """Return the sockets of all processes that can be asked, or only of `pids`.

    Raises
    ------
    PermissionError
        The folder of sockets belongs to another user, or another user can write to it.
    """
    folder = folder or top_folder()
    try:
        check_folder(folder, reading=True)
        paths = sorted(folder.glob("*.sock"))
    except FileNotFoundError:
        return []
    if pids is None:
        return paths
    return [path for path in paths if (pid := path.name.split("-", 1)[0]).isdigit() and int(pid) in pids]


def ask_all(pids: set[int] | None = None, folder: Path | None = None) -> list[Answer]:
    """Return the answers of all other processes that can be asked, or only of `pids`, in the order of process ids.

    Raises
    ------
    PermissionError
        The folder of sockets belongs to another user, or another user can write to it.
    """
    answers = []
    for path in sockets(pids, folder):
        document = ask(path)
        if document is not None and document["pid"] != os.getpid():
            answers.append(Answer(int(document["pid"]), document))
    return sorted(answers, key=lambda answer: answer.pid)


# ---- rates ----

def stream_key(stream: dict[str, Any]) -> str:
    """Return a text that identifies a stream within its pool."""
    return f"{stream['kind']} {stream['stream']:#x}"


def total(streams: list[dict[str, Any]], *names: str) -> int:
    """Return the sum of these counters over streams."""
    return sum(int(stream.get(name, 0)) for stream in streams for name in names)     # older services lack some counters


def served(streams: list[dict[str, Any]]) -> int:
    """Return the number of allocations that the streams have served."""
    return total(streams, "hits", "fits", "recalls", "slow") - total(streams, "failures")


def counted(before: list[dict[str, Any]], after: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return the fields of `Rates` from two readings of a pool's or a stream's counters; none is negative."""
    allocations = max(0, served(after) - served(before))
    slow = max(0, total(after, "slow") - total(before, "slow"))
    hits = max(0, total(after, "hits") - total(before, "hits"))
    return {
        "allocations": allocations / seconds, "slow": slow / seconds,
        "hit_rate": min(1.0, hits / allocations) if allocations else None,
        "fast_rate": max(0.0, 1 - slow / allocations) if allocations else None,
    }


def rates_of(before: dict[str, Any], after: dict[str, Any], seconds: float) -> PoolRates:
    """Return a pool's rates from two of its snapshots, taken `seconds` apart; all are 0 if that is not positive."""
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
    """Return the later answers, with the rates of the pools that are in the earlier ones."""
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
    """Ask twice, `interval` seconds apart, and return the later answers with rates.

    If `interval` is 0, or if no process answered, ask once and return answers without rates.
    """
    before = ask_all(pids)
    if interval <= 0 or not before:
        return before
    time.sleep(interval)
    return rates_between(before, ask_all(pids))
