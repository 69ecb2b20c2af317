"""What `aclpool run --pool` prints while the program runs: the out-of-memory reports of its pools.

ACL calls the pool below the program, which sees only the code that its call returned. So a call that may
allocate and fails is followed by a look at the pools' new reports. A report of one pool and tag is printed at
most every 10 seconds, as in the log.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import acl

if TYPE_CHECKING:
    from acl.inside._oom import OomReport

__all__ = ["Reports", "told_after"]

APART = 10.0                        # seconds between two printed reports of one pool and tag
CALLS = {"mdl": "execute", "op": "execute", "rt": "synchronize"}        # functions that may allocate, by how they begin


class Reports:
    """Prints new reports to standard error.

    Parameters
    ----------
    pools : callable
        Returns the pools that are there now.
    clock : callable, optional
        Returns seconds.
    """

    def __init__(self, pools: Callable[[], Iterable[acl.Pool]], clock: Callable[[], float] = time.monotonic) -> None:
        self.pools = pools
        self.clock = clock
        self.lock = threading.Lock()
        self.seen: dict[str, int] = {}                      # number of the last report, by the pool's name
        self.printed: dict[tuple[str, str], float] = {}     # when, by pool and tag
        self.kept_back: dict[tuple[str, str], int] = {}

    def look(self) -> None:
        """Print what the pools have reported since the last look."""
        from acl.inside import _books

        with self.lock:
            for pool in self.pools():
                with contextlib.suppress(RuntimeError):     # the device is lost, or this is a fork's child
                    for report in _books.ooms(pool):
                        if report.number > self.seen.get(pool.name, 0):
                            self.seen[pool.name] = report.number
                            self.tell(report)

    def tell(self, report: OomReport) -> None:
        """Print a report, or count it if one of its pool and tag was printed a short time ago."""
        key, now = (report.pool, report.tag), self.clock()
        if key in self.printed and now - self.printed[key] < APART:
            self.kept_back[key] = self.kept_back.get(key, 0) + 1
            return
        self.printed[key] = now
        more = self.kept_back.pop(key, 0)
        print(report.details() + (f"\n  {more} more like it since the last report" if more else ""),
              file=sys.stderr, flush=True)

    def end(self) -> None:
        """Look once more, and say what was kept back."""
        self.look()
        for (pool, tag), more in self.kept_back.items():
            whose = f" for {tag!r}" if tag else ""
            print(f"out of memory: {more} more reports of {pool}{whose} were kept back", file=sys.stderr, flush=True)
        self.kept_back.clear()


def failed(answer: Any) -> bool:
    """True if pyACL's answer has an error code: alone, or as the last of a tuple."""
    code = answer[-1] if isinstance(answer, tuple) and answer else answer
    return isinstance(code, int) and code != 0


def followed(function: Callable[..., Any], reports: Reports) -> Callable[..., Any]:
    """Return the function with a look at the reports after each failure."""
    def call(*arguments: Any, **named: Any) -> Any:
        answer = function(*arguments, **named)
        if failed(answer):
            reports.look()
        return answer
    return call


@contextlib.contextmanager
def told_after(reports: Reports) -> Iterator[None]:
    """While this lasts, failed calls of pyACL that may allocate are followed by the reports; the rest at the end."""
    before: list[tuple[ModuleType, str, Any]] = []
    for room, beginning in CALLS.items():
        module = getattr(acl, room)
        for name in dir(module):
            function = getattr(module, name)
            if name.startswith(beginning) and callable(function):
                before.append((module, name, function))
                setattr(module, name, followed(function, reports))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)
        reports.end()
