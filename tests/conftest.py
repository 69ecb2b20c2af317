"""Fixtures of all tests, and the environment: tests run on the simulator, except those that choose another library.

A run of all tests uses all cores (`-n auto`).  A run of named tests or files uses one, because starting workers would
take longer than it saves.

`ACLPOOL_SKIPS` is a regular expression.  If a test is skipped for a reason that it does not match, the run fails.  So a
lane of CI does not pass if it could not install a package that its tests need.
"""

import gc
import os
import re
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:       # the case in a background job of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from support.core import Made, open_door

import acl
import acl.sim

# Tests with real frameworks are left out if no framework is installed; CI has a lane for them.
collect_ignore = [] if find_spec("torch_npu") or find_spec("mindspore") else ["adapters/frameworks"]


skipped: list[str] = []


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers for `-n auto`: 0 if tests or files are named, else None, and xdist decides."""
    return None if config.args_source is not pytest.Config.ArgsSource.ARGS else 0


def freeze() -> None:
    """Exclude all present objects from later garbage collections.

    Thousands of tests run a collection; these objects live until the end, and need not be examined each time.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    freeze()


@pytest.fixture(scope="module", autouse=True)
def freeze_reports() -> Iterator[None]:
    """After each module of tests, exclude the reports that pytest keeps from later garbage collections."""
    yield
    freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    note_skip(report)


def note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        skipped.append(f"{report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped for a reason that `ACLPOOL_SKIPS` does not match."""
    allowed = os.environ.get("ACLPOOL_SKIPS")
    if allowed is None or hasattr(session.config, "workerinput"):
        return
    if unexpected := [one for one in skipped if not re.search(allowed, one)]:
        print("\nSkipped, which ACLPOOL_SKIPS does not allow:", *unexpected, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def sim() -> Iterator[ModuleType]:
    """The module `acl.sim`; faults, trace and counters are reset before and after the test."""
    acl.sim.reset()
    yield acl.sim
    acl.sim.reset()


@pytest.fixture
def no_leaks(sim: ModuleType) -> Iterator[None]:
    """Fail the test if it leaves more live handles or bytes than existed before it."""
    gc.collect()
    for ordinal in reversed(range(acl.Device.count())):
        device = acl.Device(ordinal)
        device.use()                # now, because its default context counts as a handle
        device.synchronize()        # so that objects of earlier tests, dropped while in use, are freed now
    handles, used = sim.live_handles(), sim.physical_bytes()
    yield
    gc.collect()
    assert sim.live_handles() == handles
    assert sim.physical_bytes() <= used     # less: memory was freed that an earlier test had dropped while in use


@pytest.fixture
def stream() -> Iterator[acl.Stream]:
    """A stream on device 0."""
    with acl.Stream(0) as made:
        yield made


@pytest.fixture
def made() -> Iterator[Made]:
    """A pool with one registered stream, and its `Door`; at the end, the pool's invariants are checked."""
    with open_door() as opened:
        yield opened
        assert opened[0].check() == 0
