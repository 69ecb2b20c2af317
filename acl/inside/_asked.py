"""Environment variables that request a leak report or a recording of each pool, without a change of the program.

`_leaks` describes ``ACL_POOL_LEAKS``.  ``ACL_POOL_RECORD=FILE[,capacity=N][,stacks=HOW][,signal=NAME]`` records each
pool from its beginning.  The recordings are saved at the interpreter's exit, at SIGTERM if the program has no handler
for it, and at each signal NAME.  Pools that are recorded in this way are kept until the exit.  If a file cannot be
written, the error is printed on standard error, because the program could not catch it; the program continues.
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
    """The value of ``ACL_POOL_RECORD``; `file` may contain ``{pid}``."""

    file: str
    capacity: int = 1 << 20
    stacks: Any = "python"
    signal: int = 0


def record_asked(text: str) -> Asked:
    """Return the parsed value of ``ACL_POOL_RECORD``.

    Raises
    ------
    ValueError
        The value is not valid; the message shows the whole syntax.
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
    """Start the leak report and the recording of a new pool, if the environment requests them."""
    if os.environ.get("ACL_POOL_LEAKS", "0") not in ("", "0"):
        from acl.inside._leaks import tell_exit, watch_exit

        watch_exit(pool)
        at_sigterm(tell_exit)
    text = os.environ.get(NAME, "")
    if text:
        Recorder.of(record_asked(text)).add(pool)


#: Functions to call before SIGTERM ends the process, each with the number of the process that registered it.
ends: dict[Callable[[int], object], int] = {}


def at_sigterm(end: Callable[[int], object]) -> None:
    """Register a function to be called at SIGTERM, which does not run `atexit`.

    It is not called if the program has a handler for SIGTERM, or if another thread than the main one calls this first.
    """
    first = not ends
    ends.setdefault(end, os.getpid())
    if first and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):              # raised if this is not the main thread, which cannot set a handler
            signal.signal(signal.SIGTERM, on_sigterm)


def on_sigterm(number: int, frame: Any) -> None:
    """Call the registered functions, and end the process as SIGTERM does."""
    for end, pid in list(ends.items()):         # another thread may be making the first pool
        try:
            end(pid)
        except Exception as error:
            sys.stderr.write(f"acl: at SIGTERM: {type(error).__name__}: {error}\n")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class Recorder:
    """All recordings of this process that ``ACL_POOL_RECORD`` requested."""

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
        if not folder.is_dir():         # warn now: at the exit the whole recording would be lost
            sys.stderr.write(f"acl: {NAME}: there is no folder {folder} to save in\n")
        if asked.signal:
            try:
                self.before = signal.signal(asked.signal, self.on_signal)
            except ValueError:
                warning("record", "%s: signals can be waited for only where the main thread makes the first pool", NAME)

    @classmethod
    def of(cls, asked: Asked) -> Recorder:
        """Return the Recorder of this process, which the first pool makes."""
        with cls.lock:
            if cls.here is None or cls.here.pid != os.getpid():
                cls.here = Recorder(asked)
            return cls.here

    def add(self, pool: Pool) -> None:
        """Record a pool.  The first pool is saved under the file's name, each other one with its pool's name added."""
        file = Path(self.asked.file.replace("{pid}", str(self.pid)))
        recording = pool.record(capacity=self.asked.capacity, stacks=self.asked.stacks)
        with self.lock:
            name = f"{file.stem}-{pool.name.replace(os.sep, '_')}{file.suffix}" if self.recordings else file.name
            self.recordings.append((str(file.with_name(name)), recording))

    def save(self) -> None:
        """Write the files of all recordings."""
        for path, recording in self.recordings:
            try:
                recording.save(path)
            except Exception as error:
                sys.stderr.write(f"acl: {NAME}: {path}: {type(error).__name__}: {error}\n")

    def on_signal(self, number: int, frame: Any) -> None:
        """Save all recordings, then call the previous handler of the signal."""
        if self.pid == os.getpid():
            self.save()
        if callable(self.before):
            self.before(number, frame)

    def end(self, pid: int = 0) -> None:
        """Stop and save all recordings, at the interpreter's exit or at SIGTERM."""
        if self.pid == os.getpid():
            for _, recording in self.recordings:
                recording.stop()
            self.save()
