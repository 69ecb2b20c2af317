"""What the environment asks of every pool of a program that nobody edits: a report of leaks, a recording.

``ACL_POOL_LEAKS`` is `_leaks`' own.  ``ACL_POOL_RECORD=FILE[,capacity=N][,stacks=HOW][,signal=NAME]`` records each
pool from its beginning, and saves what it has at the interpreter's exit, at SIGTERM where nobody else waits for that,
and whenever the signal comes.  Pools that are recorded so live until the exit.  What goes wrong when a file is written
is told on standard error, as nobody could catch it; the program goes on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acl.bind._log import warning

if TYPE_CHECKING:
    from acl.inside._recording import Recording
    from acl.pool._pool import Pool

__all__ = ["Asked", "record_asked", "watch"]

NAME = "ACL_POOL_RECORD"
ENDINGS = (".npz", ".pickle", ".pkl")
STACKS = {"none": False, "python": "python", "native": "native", "all": "all"}
HELP = f"{NAME} must be FILE[,capacity=N][,stacks=none|python|native|all][,signal=NAME]"


@dataclass(frozen=True)
class Asked:
    """What ``ACL_POOL_RECORD`` says; `file` may have ``{pid}`` in it."""

    file: str
    capacity: int = 1 << 20
    stacks: Any = "python"
    signal: int = 0


def record_asked(text: str) -> Asked:
    """The variable's value.

    Raises
    ------
    ValueError
        If it makes no sense; the message has the whole of what may be said.
    """
    file, *options = text.split(",")
    found: dict[str, Any] = {}
    if not file.endswith(ENDINGS):
        raise ValueError(f"{HELP}; FILE must end in .npz, .pickle or .pkl, not {file!r}")
    for option in options:
        name, _, value = option.partition("=")
        if name == "capacity" and value.isdecimal() and 1 <= int(value) <= 1 << 32:
            found["capacity"] = int(value)
        elif name == "stacks" and value in STACKS:
            found["stacks"] = STACKS[value]
        elif name == "signal" and isinstance(getattr(signal, f"SIG{value.removeprefix('SIG')}", None), signal.Signals):
            found["signal"] = int(getattr(signal, f"SIG{value.removeprefix('SIG')}"))
        else:
            raise ValueError(f"{HELP}, not {option!r}")
    return Asked(file, **found)


def watch(pool: Pool) -> None:
    """A pool was made: begin what is asked for."""
    if os.environ.get("ACL_POOL_LEAKS", "0") not in ("", "0"):
        from acl.inside._leaks import tell_exit, watch_exit

        watch_exit(pool)
        at_sigterm(tell_exit)
    text = os.environ.get(NAME, "")
    if text:
        Recorder.of(record_asked(text)).add(pool)


#: What is done before SIGTERM ends the process, each with the number of the process that it is for.
ends: dict[Callable[[int], object], int] = {}


def at_sigterm(end: Callable[[int], object]) -> None:
    """Do this when the process is told to end, where nobody else waits for that: `atexit` does not run then."""
    first = not ends
    ends.setdefault(end, os.getpid())
    if first and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):              # another thread than the main one makes the first pool
            signal.signal(signal.SIGTERM, on_sigterm)


def on_sigterm(number: int, frame: Any) -> None:
    """Do it, and end as SIGTERM ends a process."""
    for end, pid in ends.items():
        try:
            end(pid)
        except Exception as error:
            sys.stderr.write(f"acl: at SIGTERM: {type(error).__name__}: {error}\n")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class Recorder:
    """All recordings of this process that the variable asked for."""

    lock = threading.Lock()
    here: Recorder | None = None

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.pid = os.getpid()
        self.recordings: list[tuple[str, Recording]] = []
        self.before: Any = None
        atexit.register(self.end)
        at_sigterm(self.end)
        folder = Path(asked.file.replace("{pid}", str(self.pid))).parent
        if not folder.is_dir():         # told now: at the exit all that was recorded would be lost
            sys.stderr.write(f"acl: {NAME}: there is no folder {folder} to save in\n")
        if asked.signal:
            try:
                self.before = signal.signal(asked.signal, self.on_signal)
            except ValueError:
                warning("record", "%s: signals can be waited for only where the main thread makes the first pool", NAME)

    @classmethod
    def of(cls, asked: Asked) -> Recorder:
        """The one of this process; the first pool makes it."""
        with cls.lock:
            if cls.here is None or cls.here.pid != os.getpid():
                cls.here = Recorder(asked)
            return cls.here

    def add(self, pool: Pool) -> None:
        """Record a pool; the first one has the file's own name, others their own in it."""
        file = Path(self.asked.file.replace("{pid}", str(self.pid)))
        recording = pool.record(capacity=self.asked.capacity, stacks=self.asked.stacks)
        with self.lock:
            name = f"{file.stem}-{pool.name.replace(os.sep, '_')}{file.suffix}" if self.recordings else file.name
            self.recordings.append((str(file.with_name(name)), recording))

    def save(self) -> None:
        """Write all files."""
        for path, recording in self.recordings:
            try:
                recording.save(path)
            except Exception as error:
                sys.stderr.write(f"acl: {NAME}: {path}: {type(error).__name__}: {error}\n")

    def on_signal(self, number: int, frame: Any) -> None:
        """Save, then do what was done before."""
        if self.pid == os.getpid():
            self.save()
        if callable(self.before):
            self.before(number, frame)

    def end(self, pid: int = 0) -> None:
        """The interpreter's exit, or SIGTERM's."""
        if self.pid == os.getpid():
            for _, recording in self.recordings:
                recording.stop()
            self.save()
