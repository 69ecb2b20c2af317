"""Fixtures; and the environment: everything runs on the simulator unless a test says otherwise.

A run of everything takes all cores (`-n auto`); one of named tests or files takes one, as starting
workers would cost more than it saves.

`ACLPOOL_SKIPS`, a regular expression, makes every skip an error whose reason it does not match: so a
lane of CI that could not install what its tests want does not pass.
"""

import gc
import os
import re
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:       # as for a background job of a shell, and its children
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from support.core import Made, open_door

import acl
import acl.sim

# Tests of real programs that this environment lacks; CI has a lane for them.
collect_ignore = [] if find_spec("torch_npu") or find_spec("mindspore") else ["adapters/frameworks"]


skipped: list[str] = []


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """What `-n auto` means: None leaves it to xdist."""
    return None if config.args_source is not pytest.Config.ArgsSource.ARGS else 0


def freeze() -> None:
    """Thousands of tests ask for a collection; what is there by now lasts, and need not be looked at again."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    freeze()


@pytest.fixture(scope="module", autouse=True)
def freeze_reports() -> Iterator[None]:
    """What pytest keeps of each test is not looked at again either."""
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
    """Fail if tests were skipped for another reason than `ACLPOOL_SKIPS` names."""
    allowed = os.environ.get("ACLPOOL_SKIPS")
    if allowed is None or hasattr(session.config, "workerinput"):
        return
    if unexpected := [one for one in skipped if not re.search(allowed, one)]:
        print("\nSkipped, which ACLPOOL_SKIPS does not allow:", *unexpected, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def sim() -> Iterator[ModuleType]:
    """The simulator's controls; faults, trace and counters are reset afterwards."""
    acl.sim.reset()
    yield acl.sim
    acl.sim.reset()


@pytest.fixture
def no_leaks(sim: ModuleType) -> Iterator[None]:
    """The test must leave as many live handles and bytes behind as it found."""
    gc.collect()
    for ordinal in reversed(range(acl.Device.count())):
        device = acl.Device(ordinal)
        device.use()                # it has a default context from here on
        device.synchronize()        # what earlier tests dropped at work is freed now, not during this test
    handles, used = sim.live_handles(), sim.physical_bytes()
    yield
    gc.collect()
    assert sim.live_handles() == handles
    assert sim.physical_bytes() == used


@pytest.fixture
def stream() -> Iterator[acl.Stream]:
    """A stream on device 0."""
    with acl.Stream(0) as made:
        yield made


@pytest.fixture
def made() -> Iterator[Made]:
    """A pool with one registered stream, and its door; the pool must be whole at the end."""
    with open_door() as opened:
        yield opened
        assert opened[0].check() == 0
