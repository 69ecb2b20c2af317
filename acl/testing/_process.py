"""Runs tests in child processes, one process for each test.

ACL cannot be used in both the parent and the child of a fork, and importing torch takes seconds.  So one process,
the *nursery*, is forked after the tests are collected and before the first one runs.  It has imported the modules
that the tests need, and it uses no device.  For each test that needs its own process, the nursery forks a child.
The child runs the test and sends its reports back.

Call these functions only in pytest's thread.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from acl import sim
from acl.testing._torch import torch_in_use
from aclpool_pytest import KEY

__all__ = ["Nursery"]

POLL_S = 0.05           # seconds between checks whether a child has ended while another process holds its pipe open


class Nursery:
    """The nursery process, as an object of pytest's own process."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._numbers = {id(item): number for number, item in enumerate(items)}
        self.refusal = refusal()
        if self.refusal is not None:
            return
        orders, self._orders = os.pipe()
        answers, theirs = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(self._orders)
            os.close(answers)
            serve(items, orders, theirs)
        os.close(orders)
        os.close(theirs)
        self._answers = open(answers, "rb")

    def run(self, item: pytest.Item) -> None:
        """Let a child run a test, and pass the child's reports to pytest."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Run a test in a child and return its reports.

        If the child did not exit with 0, return one report, of how it ended.  If a child could not use a device, return
        one report that says so, without a child.
        """
        if self.refusal is not None:
            return [failure(item, "setup", self.refusal)]
        os.write(self._orders, self._numbers[id(item)].to_bytes(8, "little"))
        status, sent = pickle.load(self._answers)
        if status == 0:
            config = item.config
            read = config.hook.pytest_report_from_serializable
            return [read(config=config, data=data) for data in pickle.loads(sent)]
        ended = f"signal {-status} ({signal.strsignal(-status)})" if status < 0 else f"exit status {status}"
        return [failure(item, "call", f"the process of the test was ended by {ended}", *captured(item.config))]

    def end(self) -> None:
        """End the nursery process; do nothing if this process is a child of it."""
        if self.refusal is None and self._pid != 0:
            os.close(self._orders)
            self._answers.close()
            os.waitpid(self._pid, 0)


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)     # "fork with several threads", which xdist has
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fork()


def refusal() -> str | None:
    """Return a message if a child of this process could not use a device, else None."""
    if torch_in_use() or (sim.loaded() and "context" in sim.live_handles()):
        return ("the test cannot have a process of its own (acl_fresh, acl_world), as a device was used while tests "
                "were collected: expected fixtures to do that, not modules")
    return None


def captured(config: pytest.Config) -> tuple[str, str]:
    """Return what a child that died wrote to stdout and stderr."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is None or not capture.is_globally_capturing():
        return "", ""
    out, err = capture.read_global_capture()
    return out, err


def failure(item: pytest.Item, when: Any, text: str, out: str = "", err: str = "") -> pytest.TestReport:
    """Return a report by which a test fails."""
    sections = [(f"Captured std{name} {when}", content) for name, content in (("out", out), ("err", err)) if content]
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "failed", text, when, sections)


def serve(items: Sequence[pytest.Item], orders: int, answers: int) -> NoReturn:
    """Run the nursery: read numbers of tests and fork a child for each, until pytest closes the pipe."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)       # Ctrl-C also reaches pytest's process, which handles it
    with open(answers, "wb") as answer:
        while number := os.read(orders, 8):
            reader, writer = os.pipe()
            child = fork()
            if child == 0:
                signal.signal(signal.SIGINT, before)
                run(items[int.from_bytes(number, "little")], writer)
            os.close(writer)
            pickle.dump(read_until_end(reader, child), answer)
            answer.flush()
    os._exit(0)


def read_until_end(reader: int, child: int) -> tuple[int, bytes]:
    """Wait for the end of a child; return its exit status, and what it wrote to a pipe.

    The end of the pipe is not enough, because processes that the test started may still hold the pipe open.
    """
    sent, ended, status = bytearray(), 0, 0
    os.set_blocking(reader, False)
    while not ended:
        select.select([reader], [], [], POLL_S)
        ended, status = os.waitpid(child, os.WNOHANG)       # before the read below, which then gets all bytes
        with suppress(BlockingIOError):
            while some := os.read(reader, 1 << 16):
                sent += some
            if not ended:
                ended, status = os.waitpid(child, 0)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), bytes(sent)


def run(item: pytest.Item, writer: int) -> NoReturn:
    """Called in the child: run the test with all its fixtures, send the reports, and exit."""
    status = 1
    try:
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)     # the fork did not copy OpenMP's other threads
        config = item.config
        session = config.stash[KEY].session
        if session is not None:
            session.apart()
        reports = runtestprotocol(item, log=False, nextitem=None)
        sent = [config.hook.pytest_report_to_serializable(config=config, report=report) for report in reports]
        with open(writer, "wb") as pipe:
            pickle.dump(sent, pipe)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
