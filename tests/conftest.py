"""Fixtures; and the environment: everything runs on the simulator unless a test says otherwise."""

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"

import pytest
from support.core import Made, open_door

import acl
import acl.sim

# Tests of real programs that this environment lacks; CI has a lane for them.
collect_ignore = [] if find_spec("torch_npu") or find_spec("mindspore") else ["clients"]


def pytest_collection_finish() -> None:
    """Thousands of tests ask for a collection; what is there by now lasts, and need not be looked at again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def sim() -> Iterator[ModuleType]:
    """The simulator's controls; faults, trace and counters are reset afterwards."""
    acl.sim.reset()
    yield acl.sim
    acl.sim.reset()


@pytest.fixture
def no_leaks(sim: ModuleType) -> Iterator[None]:
    """The test must leave as many live handles and bytes behind as it found."""
    for ordinal in reversed(range(acl.Device.count())):  # each has a default context from here on
        acl.Device(ordinal).use()
    gc.collect()
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
