"""Tests in processes of their own.

ACL cannot be used on both sides of a fork, and torch takes seconds to import.  So one process, the nursery, is
forked when the tests were collected and none has run: it has imported what tests need and uses no device.
For each test that is to be alone it forks a child, which runs the test and sends its reports back.

Thread rule: pytest's thread only.
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

POLL_S = 0.05           # how often to ask for the end of a child whose pipe others hold open


class Nursery:
    """The process that has children for tests, as pytest's own process sees it."""

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
        """Have a child run a test, and hand its reports on, as pytest's own protocol does."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """The reports of the child; one that says how it ended, if it has sent none."""
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
        """Let the process end; in a child of it there is nothing to do."""
        if self.refusal is None and self._pid != 0:
            os.close(self._orders)
            self._answers.close()
            os.waitpid(self._pid, 0)


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)     # other threads: xdist has some, which a child lacks
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fork()


def refusal() -> str | None:
    """Why a child of this process could not use a device, if so."""
    if torch_in_use() or (sim.loaded() and "context" in sim.live_handles()):
        return ("the test cannot have a process of its own (acl_fresh, acl_world), as a device was used while tests "
                "were collected: expected fixtures to do that, not modules")
    return None


def captured(config: pytest.Config) -> tuple[str, str]:
    """What a child that died has written."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is None or not capture.is_globally_capturing():
        return "", ""
    out, err = capture.read_global_capture()
    return out, err


def failure(item: pytest.Item, when: Any, text: str, out: str = "", err: str = "") -> pytest.TestReport:
    """A report that fails a test."""
    sections = [(f"Captured std{name} {when}", content) for name, content in (("out", out), ("err", err)) if content]
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "failed", text, when, sections)


def serve(items: Sequence[pytest.Item], orders: int, answers: int) -> NoReturn:
    """The nursery: a child for each number that comes, until pytest's process ends."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)       # pytest's process is interrupted, too, and decides
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

    The pipe's end does not tell, as processes that the test leaves behind hold it open.
    """
    sent, ended, status = bytearray(), 0, 0
    os.set_blocking(reader, False)
    while not ended:
        select.select([reader], [], [], POLL_S)
        ended, status = os.waitpid(child, os.WNOHANG)       # asked before the reading, which then is the last
        with suppress(BlockingIOError):
            while some := os.read(reader, 1 << 16):
                sent += some
            if not ended:
                ended, status = os.waitpid(child, 0)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), bytes(sent)


def run(item: pytest.Item, writer: int) -> NoReturn:
    """In the child: run the test with all its fixtures, send the reports, and end."""
    status = 1
    try:
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)     # OpenMP's other threads are not here
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
