"""The out-of-memory reports that `aclpool run --pool` prints while the program runs.

ACL calls the pool inside a call of the program, and the program sees only the status of its call.  So after a failed
call that may allocate, new reports of the pools are looked for and printed.  For each pool and tag, a report is printed
at most every 10 seconds, as in the log.
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
from acl.inside._processes import report_with_others

if TYPE_CHECKING:
    from acl.inside._oom import OomReport

__all__ = ["Reports", "told_after"]

APART = 10.0                        # least seconds between two printed reports of one pool and tag
CALLS = {"mdl": "execute", "op": "execute", "rt": "synchronize"}        # functions that may allocate: module, prefix


class Reports:
    """Prints new reports to standard error.

    Parameters
    ----------
    pools : callable
        Returns the existing pools.
    clock : callable, optional
        Returns the time in seconds.
    """

    def __init__(self, pools: Callable[[], Iterable[acl.Pool]], clock: Callable[[], float] = time.monotonic) -> None:
        self.pools = pools
        self.clock = clock
        self.lock = threading.Lock()
        self.seen: dict[str, int] = {}                      # by the pool's name: number of its last report
        self.printed: dict[tuple[str, str], float] = {}     # by pool and tag: time of the last printed report
        self.kept_back: dict[tuple[str, str], int] = {}

    def look(self) -> None:
        """Print the reports that the pools made since the last call."""
        from acl.inside import _books

        with self.lock:
            for pool in self.pools():
                with contextlib.suppress(RuntimeError):     # the device is lost, or this is a forked child
                    for report in _books.ooms(pool):
                        if report.number > self.seen.get(pool.name, 0):
                            self.seen[pool.name] = report.number
                            self.tell(report)

    def tell(self, report: OomReport) -> None:
        """Print a report; or only count it if one of this pool and tag was printed less than `APART` seconds ago."""
        key, now = (report.pool, report.tag), self.clock()
        if key in self.printed and now - self.printed[key] < APART:
            self.kept_back[key] = self.kept_back.get(key, 0) + 1
            return
        self.printed[key] = now
        more = self.kept_back.pop(key, 0)
        report = report_with_others(report)
        print(report.details() + (f"\n  {more} more like it since the last report" if more else ""),
              file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the last reports, and the number of reports that were only counted."""
        self.look()
        for (pool, tag), more in self.kept_back.items():
            whose = f" for {tag!r}" if tag else ""
            print(f"out of memory: {more} more reports of {pool}{whose} were kept back", file=sys.stderr, flush=True)
        self.kept_back.clear()


def failed(answer: Any) -> bool:
    """Return True if the result of a pyACL function is an error code, or a tuple that ends with one."""
    code = answer[-1] if isinstance(answer, tuple) and answer else answer
    return isinstance(code, int) and code != 0


def followed(function: Callable[..., Any], reports: Reports) -> Callable[..., Any]:
    """Return a function that calls `function` and, if it failed, prints new reports."""
    def call(*arguments: Any, **named: Any) -> Any:
        answer = function(*arguments, **named)
        if failed(answer):
            reports.look()
        return answer
    return call


@contextlib.contextmanager
def told_after(reports: Reports) -> Iterator[None]:
    """Context manager: print new reports after each failed call of pyACL that may allocate, and at the end."""
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
