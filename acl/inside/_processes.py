"""The other processes that hold memory of a device, for out-of-memory reports.

Each process that answers `aclpool top` is asked for its snapshot.  All are asked at once and have `WITHIN` seconds
together, because the thread that asks has just failed to get memory and may hold a model's lock.  A process that did
not answer is left alone for `SILENT` seconds, and answers are used again for `FRESH` seconds.  So a service whose
allocations fail often asks seldom.  Nothing here makes a pool, allocates device memory or raises an exception.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.inside._oom import OomProcess
from acl.inside._text import printable
from acl.inside._top import FORMAT, check_folder, peer_of, top_folder

if TYPE_CHECKING:
    from acl.inside._oom import OomReport

__all__ = ["report_with_others"]

WITHIN = 0.1                        # seconds in which all processes together must answer
FRESH = 1.0                         # seconds for which answers are used again
SILENT = 60.0                       # seconds for which a process that did not answer is not asked again
MOST_ASKED = 64                     # most processes that are asked
MOST_BYTES = 4 << 20                # longest answer of one process
MOST_NAMED = 8                      # most processes in a report, those that hold the most


class Asked:
    """The answers of the last question."""

    lock = threading.Lock()
    when = float("-inf")                        # time of the question
    found: dict[int, Any] = {}                  # by process id: the snapshot; None if there was no answer
    silent: dict[Path, float] = {}              # by socket: time of the question that was not answered


# ---- asking ----

def paths_asked(now: float) -> Iterator[tuple[int, Path, bool]]:
    """Yield process id and socket of each other process, and False if it did not answer recently."""
    folder = top_folder()
    check_folder(folder, reading=True)
    for path in sorted(folder.glob("*.sock"))[:MOST_ASKED]:
        pid = path.name.split("-", 1)[0]
        if pid.isdigit() and int(pid) != os.getpid():
            yield int(pid), path, now - Asked.silent.get(path, float("-inf")) >= SILENT


def connected(path: Path) -> socket.socket | None:
    """Return a socket that has sent the question; None if the process has ended, or is not the user's or root's."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        caller.setblocking(False)
        caller.connect(str(path))
        if peer_of(caller) in (0, os.geteuid()):
            with contextlib.suppress(BrokenPipeError):      # it may have answered and closed already
                caller.send(b"snapshot\n")
            return caller
    except (ConnectionRefusedError, FileNotFoundError):
        pass
    except BaseException:
        caller.close()
        raise
    caller.close()
    return None


def received(callers: dict[int, socket.socket], deadline: float) -> dict[int, bytes]:
    """Return the answers that were complete before the deadline, by process id; empty if one is too long."""
    parts: dict[int, list[bytes]] = {pid: [] for pid in callers}
    done: dict[int, bytes] = {}
    with selectors.DefaultSelector() as waiting:
        for pid, caller in callers.items():
            waiting.register(caller, selectors.EVENT_READ, pid)
        while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                pid, part = key.data, b""
                with contextlib.suppress(ConnectionResetError):
                    part = callers[pid].recv(1 << 16)
                parts[pid].append(part)
                too_long = sum(map(len, parts[pid])) > MOST_BYTES
                if too_long or not part:
                    waiting.unregister(key.fileobj)
                    done[pid] = b"" if too_long else b"".join(parts[pid])
    return done


def ask_now(now: float) -> None:
    """Ask all other processes that are not known as silent, and keep their answers in `Asked`."""
    callers: dict[int, socket.socket] = {}
    paths: dict[int, Path] = {}
    Asked.found, silent = {}, {}
    try:
        for pid, path, ask in paths_asked(now):
            paths[pid] = path
            if not ask:
                Asked.found[pid], silent[path] = None, Asked.silent[path]
                continue
            try:
                caller = connected(path)
            except OSError:                     # more callers wait there than it can hold: it does not answer
                Asked.found[pid], silent[path] = None, now
                continue
            if caller is not None:
                callers[pid] = caller
        answers = received(callers, time.monotonic() + WITHIN)
    finally:
        for caller in callers.values():
            caller.close()
    for pid in callers:
        Asked.found[pid] = None
        if pid not in answers:
            silent[paths[pid]] = now
        with contextlib.suppress(KeyError, ValueError, RecursionError):
            Asked.found[pid] = json.loads(answers[pid])
    Asked.silent = silent


# ---- what they hold ----

def count_of(table: dict[str, Any], name: str) -> int:
    """Return a number of bytes from another process's answer; raise ValueError if it is no such number."""
    value = table.get(name, 0)
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(f"{name} must be a count")
    return value


def of_card(part: dict[str, Any], device: int, card: int) -> bool:
    """Return True if a part of an answer is about this card; without its number, if the ordinals are the same."""
    told = part.get("card", -1)
    return bool(told == card if card >= 0 and told != -1 else part.get("device") == device)


def process_of(pid: int, told: Any, device: int, card: int, backend: str) -> OomProcess | None:
    """Return what a process holds of the device, or that it did not answer (`told` is None).

    Return None if the process holds nothing of the device, or if its answer is not valid.
    """
    if told is None:
        return OomProcess(pid, answered=False)
    try:
        if any(told.get(key) != value for key, value in FORMAT.items()) or told["pid"] != pid:
            return None
        if told["backend"] not in ("", backend):
            return None                         # a simulated device is not a real one
        pools = [one for one in told["pools"] if of_card(one, device, card)]
        reserved = sum(count_of(one, "reserved") for one in pools)
        used = sum(max(count_of(one, "requested") - count_of(one, "asleep"), 0) for one in pools)
        outside = sum(count_of(one, "process") for one in told["devices"] if of_card(one, device, card))
        names = tuple(printable(one["name"]) for one in pools)
        command = printable(told["command"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if reserved + outside == 0:
        return None
    return OomProcess(pid, command, names, reserved, max(reserved - used, 0), outside)


def processes_of(device: int, card: int, backend: str) -> list[OomProcess]:
    """Ask the other processes, or use their last answers.

    Return the processes that hold memory of the device, those that hold the most first, and those that did not answer.
    """
    now = time.monotonic()
    if now - Asked.when >= FRESH:
        Asked.when = now
        ask_now(now)
    found = [process_of(pid, told, device, card, backend) for pid, told in Asked.found.items()]
    return sorted((one for one in found if one is not None), key=lambda one: (-one.bytes, one.pid))


def report_with_others(report: OomReport) -> OomReport:
    """Return the report with the other processes that hold memory of its device, if the device was the reason.

    If anything fails, the report is returned as it is.
    """
    if not report.by_device:
        return report
    try:
        from acl.bind.generated._libacl import backend
        from acl.inside import _books

        others = bytes_of_others(report.device)
        if others == 0 or not Asked.lock.acquire(timeout=WITHIN):
            return replace(report, other_processes=others)
        try:
            found = processes_of(report.device, _books.card(report.device), backend() or "")
        finally:
            Asked.lock.release()
        return replace(report, other_processes=others, processes=tuple(found[:MOST_NAMED]))
    except Exception:
        return report


def bytes_of_others(device: int) -> int:
    """Return the bytes of a device that other processes and the system hold; -1 if they are not known."""
    from acl.inside import _books

    components = _books.components(device)
    free, total = _books.device_bytes(device)
    return -1 if components is None else max(total - free - sum(components.values()), -1)
