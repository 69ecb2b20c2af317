"""A pytest plugin: a test fails if its streams race.

`PYTHONPATH=tests ACL_SIM_RACES=1 ACL_SIM_RACES_FAIL=1 pytest -p support.races tests/pool/test_pool.py`.  A test that
races on purpose has the marker `races` and is not checked.
"""

import json
import os
from collections.abc import Iterator

import pytest

os.environ["ACL_BACKEND"] = os.environ.get("ACL_BACKEND") or "sim"   # conftest.py sets it too, but is loaded later

import acl.sim

__all__ = ["look_for_races", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "races: frees or unmaps memory under queued work, on purpose")


@pytest.fixture(autouse=True)
def look_for_races(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if the order checker finds a race while it runs."""
    before = len(acl.sim.races())
    if request.node.get_closest_marker("races") is not None:
        with acl.sim.races_muted():
            yield
        return
    yield
    found = acl.sim.races()[before:]
    if found:
        pytest.fail("\n".join(json.dumps(one, indent=1) for one in found), pytrace=False)
