"""Random programs of queued work on pools of several kinds: contents are checked, and a failing program is shortened.

`support.work_world` has the actions: streams in two contexts, which are stopped, share blocks, and are destroyed while
work runs; captures, unloads, sleeps by tag, trims, early frees and threads; and failing driver calls in all of these.
`ACLPOOL_LONG=1` runs seeds for an hour (marker `long`; `ACLPOOL_SEED` is the first, `ACLPOOL_SECONDS` the time).
"""

from __future__ import annotations

import os
import time

import pytest
from support.core import physical_base  # noqa: F401
from support.work_world import Action, Settings, actions_of, fails, shortest

pytestmark = pytest.mark.usefixtures("no_leaks")

KINDS = 12


def tried(seed: int, count: int) -> None:
    """Run the actions of a seed; if they fail, report a shorter list that also fails, and the code that runs it."""
    settings = Settings.of(seed)
    actions = actions_of(seed, count)
    found = fails(settings, actions)
    if found:
        left = shortest(actions, lambda fewer: fails(settings, fewer))
        pytest.fail(f"seed {seed}: {found}\nfrom support.work_world import Settings, run\n"
                    f"run(Settings.of({seed}), {left})")


@pytest.mark.parametrize("seed", range(KINDS))
def test_queued_work_finds_its_own_bytes(seed: int) -> None:
    tried(seed, 250)


def test_failing_list_of_actions_is_shortened_to_the_actions_needed_to_fail() -> None:
    actions: list[Action] = actions_of(1, 100)
    needed = [actions[3], actions[50], actions[99]]

    def failing(some: list[Action]) -> bool:
        return [one for one in some if one in needed] == needed

    assert shortest(actions, failing) == needed


if os.environ.get("ACLPOOL_LONG") == "1":

    @pytest.mark.long
    def test_queued_work_of_many_seeds_finds_its_own_bytes() -> None:
        seed = int(os.environ.get("ACLPOOL_SEED", time.time_ns() % 10**9))
        end = time.monotonic() + float(os.environ.get("ACLPOOL_SECONDS", "3600"))
        while time.monotonic() < end:
            tried(seed, 300)
            seed += 1
